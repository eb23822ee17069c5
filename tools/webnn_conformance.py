"""Replay the cases of the web platform tests on the WebNN builder, and count the outcomes per operator.

    python tools/webnn_conformance.py [FOLDER]             print the counts (default: ../shared/webnn)
    python tools/webnn_conformance.py [FOLDER] --write     write them to docs/webnn-conformance.json
    python tools/webnn_conformance.py [FOLDER] --check     fail where that file says otherwise
    python tools/webnn_conformance.py [FOLDER] --floats    print the counts of graphs of floats with calibration

FOLDER/conformance/NAME.json holds cases: values only, as its README describes them. Integers and quantised graphs are
run unchanged, and are equal if every bit is. A case of floats whose operator only moves or compares its items is run
on integers of the same order. Every other graph of floats is built unchanged, and the builder refuses it; --floats
builds these graphs with their own inputs as the samples of a calibration, and compares within the error that the graph
states. int4 and uint4 are not in the specification and are held in int8 and uint8. A quantizeLinear to them is followed
by a clamp to their range, which gives the same numbers, since quantizeLinear saturates.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cvm import webnn
from cvm.frontends.webnn.builder import snake_case

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs" / "webnn-conformance.json"
SHARED = ROOT.parent / "shared" / "webnn"

Case = dict[str, Any]

EXACT = ("integer_exact", "qdq", "quantization")
FOUR_BITS = {"int4": ("int8", -8, 7), "uint4": ("uint8", 0, 15)}
"""Data types that are not in the specification: the types that hold them, and their ends."""

REASONS = {
    "nothing rounds its states": "states that nothing quantises",
    "a float value would": "a graph of floats",
    "of a float to integers is undefined": "a graph of floats",
    "would round": "a graph of floats",
    "the range of the machine": "integers beyond +-(2^31 - 1)",
    "NaN": "NaN",
}
"""Beginnings of refusals, and the names for them in the record."""


def files(kind: str, folder: Path = SHARED) -> list[Path]:
    """The files of one kind: "conformance" or "validation"."""
    return sorted(path for path in (folder / kind).glob("*.json") if path.stem != "manifest")


def cases(path: Path) -> list[Case]:
    """The cases or calls of one file."""
    document = json.loads(path.read_text())
    return list(document.get("cases") or document["calls"])


# Values


def number(value: Any) -> Any:
    """A literal: infinities, NaN, -0 and large integers are strings."""
    if not isinstance(value, str):
        return value
    if value.endswith("n") and value[:-1].lstrip("-").isdigit():
        return int(value[:-1])
    try:
        return float(value.replace("Infinity", "inf"))
    except ValueError:
        return value


def array(tensor: Case) -> np.ndarray[Any, Any]:
    """The contents of a tensor, in the data type that holds them."""
    kind = FOUR_BITS.get(tensor["dataType"], (tensor["dataType"],))[0]
    items = [number(tensor["fill"])] if "fill" in tensor else [number(item) for item in tensor["data"]]
    with np.errstate(over="ignore"):
        found = np.array(items, kind)
    return np.full(tensor["shape"], found[0]) if "fill" in tensor else found.reshape(tensor["shape"])


# Running


def run(
    case: Case, executor: str = "numpy", calibrated: bool = False
) -> tuple[dict[str, np.ndarray[Any, Any]], webnn.MLGraph]:
    """The results of the builder's graph, with promised values of integer inputs; ``calibrated`` by its own inputs."""
    context = webnn.ML().create_context(strict_scale_rank=False, allow_negative_scale=True, executor=executor)
    builder = webnn.MLGraphBuilder(context)
    known: dict[str, Any] = {}
    feeds = {}
    for name, tensor in case["inputs"].items():
        values = array(tensor)
        if tensor.get("constant"):
            known[name] = builder.constant(values)
            continue
        promise = (int(values.min()), int(values.max())) if values.dtype.kind in "iu" else None
        known[name] = builder.input(name, (values.dtype.name, values.shape), value_range=promise)
        feeds[name] = values
    for call in case["operators"]:
        found = _called(builder, call, known)
        outputs = call["outputs"]
        known.update(zip(outputs, found, strict=True) if isinstance(outputs, list) else [(outputs, found)])
        for four in _four_bits(case, call):
            _, low, high = FOUR_BITS[four]
            known[outputs] = builder.clamp(found, min_value=low, max_value=high)
    outputs = {name: known[name] for name in case["expected"]}
    graph = builder.build(outputs, calibration=[feeds] if calibrated else None)
    return context.compute(graph, feeds), graph


def _four_bits(case: Case, call: Case) -> list[str]:
    """The 4-bit type of the result of a quantizeLinear, or none."""
    if call["name"] != "quantizeLinear":
        return []
    names = [value for argument in call["arguments"] for key, value in argument.items() if key == "zeroPoint"]
    return [case["inputs"][name]["dataType"] for name in names if case["inputs"][name]["dataType"] in FOUR_BITS]


def _called(builder: webnn.MLGraphBuilder, call: Case, known: dict[str, Any]) -> Any:
    positional: list[Any] = []
    options: dict[str, Any] = {}
    for argument in call["arguments"]:
        for key, value in (argument or {}).items():
            if key == "options":
                options |= {snake_case(name): _resolved(item, known) for name, item in value.items()}
            else:
                positional.append(_resolved(value, known))
    return getattr(builder, call["name"])(*positional, **options)


def _resolved(value: Any, known: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_resolved(item, known) for item in value]
    return known[value] if isinstance(value, str) and value in known else number(value)


# Floats that are only moved or compared

_VALUES = {"value", "minValue", "maxValue"}
"""Options whose numbers are compared with the elements."""


def ranked(case: Case) -> Case:
    """The case in integers of the same order: for operators that only move or compare.

    Raises `webnn.NotSupportedError` for NaN, which has no order.
    """
    tensors = [*case["inputs"].values(), *case["expected"].values()]
    reals = [tensor for tensor in tensors if tensor["dataType"].startswith("float")]
    literals = [item for call in case["operators"] for argument in call["arguments"]
                for item in argument.get("options", {}).items()]  # fmt: skip
    kind = reals[0]["dataType"] if reals else "float32"

    def single(item: Any) -> float:
        """A decimal as the float32 that it was written for."""
        with np.errstate(over="ignore"):
            return float(np.dtype(kind).type(number(item)))

    found = {0.0}
    for tensor in reals:
        found |= {single(item) for item in (tensor["data"] if "data" in tensor else [tensor["fill"]])}
    found |= {single(item) for key, item in literals if key in _VALUES and item != "NaN"}
    if any(np.isnan(list(found))):
        raise webnn.NotSupportedError("conformance.nan", "no integer stands for NaN")
    order = sorted({abs(item) for item in found})  # one order for both signs, since magnitudes are compared too
    number_of_item = {sign * item: sign * number for number, item in enumerate(order) for sign in (1, -1)}
    small = max(map(abs, number_of_item.values())) < 128
    signs = case["operators"][-1]["name"] == "sign"  # its results are the numbers -1, 0 and 1

    def encoded(tensor: Case, result: bool) -> Case:
        if tensor not in reals:
            return tensor
        number_of: Callable[[Any], int] = (
            (lambda item: int(single(item))) if result and signs else (lambda item: number_of_item[single(item)])
        )
        rest = {"data": [number_of(item) for item in tensor["data"]]} if "data" in tensor else {
            "fill": number_of(tensor["fill"])
        }  # fmt: skip
        return {**tensor, **rest, "dataType": "int8" if small else "int32"}

    def option(key: str, item: Any) -> Any:
        if key not in _VALUES:
            return item
        return None if item == "NaN" else number_of_item[single(item)]  # NaN means no bound

    operators = [
        {**call, "arguments": [
            {"options": {k: option(k, v) for k, v in argument["options"].items()}} if "options" in argument
            else argument
            for argument in call["arguments"]]}
        for call in case["operators"]
    ]  # fmt: skip
    sides = {
        side: {name: encoded(tensor, side == "expected") for name, tensor in case[side].items()}
        for side in ("inputs", "expected")
    }
    return {**case, **sides, "operators": operators}


# Counting


def verdict(case: Case) -> tuple[str, str]:
    """("equal", how it was run), ("refused", why), or ("different", the result)."""
    ordered = case["data_movement_only"] or case["order_only"]
    how = "as it is" if case["klass"] in EXACT or not ordered else "in integers of the same order"
    try:
        played = case if how == "as it is" else ranked(case)
        found, _ = run(played)
    except (webnn.NotSupportedError, webnn.MLTypeError) as error:
        return "refused", next((reason for part, reason in REASONS.items() if part in str(error)), str(error))
    for name, tensor in played["expected"].items():
        expected = array(tensor)
        if found[name].dtype != expected.dtype or not np.array_equal(found[name], expected):
            return "different", name
    return "equal", how


_DIGITS = {"float32": 2.0**-20, "float16": 2.0**-9}
"""The error of expectations themselves, relative to their greatest magnitude: the tests allow some last digits."""


_OFF = {"erf float32 0D scalar": 2.0**-24}
"""Expectations with a larger error: erf(-0.004352752584964037) is -0.0049115243, and the file has -0.0049115545."""


def calibrated_verdict(case: Case) -> tuple[str, str]:
    """For a graph of floats: ("within", the stated error), ("refused", why), or ("beyond", the result)."""
    try:
        found, graph = run(case, calibrated=True)
    except (webnn.NotSupportedError, webnn.MLTypeError) as error:
        return "refused", next((why for part, why in CALIBRATED_REASONS.items() if part in str(error)), str(error))
    for name, tensor in case["expected"].items():
        expected = array(tensor)
        slack = _DIGITS.get(expected.dtype.name, 0) * float(np.abs(expected).max()) + _OFF.get(case["name"], 0)
        stated = graph.quantization_errors[name].max_error
        if np.abs(found[name].astype(np.float64) - expected.astype(np.float64)).max() > stated + slack:
            return "beyond", name
    return "within", "the stated error"


CALIBRATED_REASONS = {"NaN or": "NaN or infinite numbers", "the range of the machine": "integers beyond +-(2^31 - 1)"}
"""As `REASONS`, for calibrated graphs."""


def float_cases(folder: Path = SHARED) -> Iterator[tuple[str, Case]]:
    """The graphs of floats that the builder refuses without calibration, with the file of each."""
    for path in files("conformance", folder):
        for case in cases(path):
            moved = case["data_movement_only"] or case["order_only"]
            if case["klass"] not in EXACT and not moved:
                yield path.stem, case


Verdict = tuple[str, str]


def record_of(verdicts: Iterable[tuple[str, Case, Verdict]]) -> dict[str, dict[str, Any]]:
    """For each file of cases: how many there are, how many are equal and how, how many are refused and why."""
    found: dict[str, dict[str, Counter[str]]] = {}
    for name, _, (what, why) in verdicts:
        found.setdefault(name, {}).setdefault(what, Counter())[why] += 1
    return {
        name: {"cases": sum(map(Counter.total, kinds.values()))}
        | {what: dict(sorted(kinds[what].items())) for what in ("equal", "refused", "different") if what in kinds}
        for name, kinds in found.items()
    }


def record_of_floats(verdicts: Iterable[tuple[str, Verdict]]) -> dict[str, dict[str, int]]:
    """For each file of cases: how many graphs of floats are within the stated error, how many are refused and why."""
    found: dict[str, Counter[str]] = {}
    for name, (what, why) in verdicts:
        found.setdefault(name, Counter())[what if what == "within" else f"{what}: {why}"] += 1
    return {name: dict(sorted(counts.items())) for name, counts in found.items()}


def counted(folder: Path = SHARED) -> dict[str, dict[str, Any]]:
    """The record of all cases of a folder."""
    paths = files("conformance", folder)
    return record_of((path.stem, case, verdict(case)) for path in paths for case in cases(path))


def rows(record: dict[str, dict[str, Any]]) -> Iterator[str]:
    """One line per operator, for reading."""
    for name, counts in record.items():
        yield f"{name}: {json.dumps(counts)}"


def main() -> int:
    """Print, write or compare the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, default=SHARED)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help="write docs/webnn-conformance.json")
    action.add_argument("--floats", action="store_true", help="calibrate the graphs of floats, in minutes")
    action.add_argument("--check", action="store_true", help="compare with docs/webnn-conformance.json")
    arguments = parser.parse_args()
    if not files("conformance", arguments.folder):
        print(f"{arguments.folder} holds no cases", file=sys.stderr)
        return 2
    if arguments.floats:
        found = record_of_floats((name, calibrated_verdict(case)) for name, case in float_cases(arguments.folder))
        print("\n".join(f"{name}: {json.dumps(counts)}" for name, counts in found.items()))
        return 0
    record = counted(arguments.folder)
    text = json.dumps(record, indent=1) + "\n"
    if arguments.write:
        RECORD.write_text(text, encoding="utf-8")
    elif arguments.check:
        if RECORD.is_file() and RECORD.read_text(encoding="utf-8") == text:
            return 0
        print(f"{RECORD} is stale: run {Path(__file__).name} --write", file=sys.stderr)
        return 1
    else:
        print("\n".join(rows(record)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
