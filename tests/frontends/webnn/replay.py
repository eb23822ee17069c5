"""Cases of the web platform tests (values only) replayed on the builder, where the shared folder has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from cvm import webnn
from cvm.frontends.webnn.builder import snake_case

SHARED = Path(__file__).resolve().parents[4] / "shared" / "webnn"

Case = dict[str, Any]
_OUTSIDE = {"int4", "uint4"}
"""Data types that the specification has not."""


def files(kind: str) -> list[Path]:
    """The files of one kind: "conformance" or "validation"."""
    folder = SHARED / kind
    return sorted(path for path in folder.glob("*.json") if path.stem != "manifest") if folder.is_dir() else []


def cases(path: Path) -> list[Case]:
    """The cases or calls of one file."""
    document = json.loads(path.read_text())
    return list(document.get("cases") or document["calls"])


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


def array(tensor: Case) -> np.ndarray:
    if tensor["dataType"] in _OUTSIDE:
        raise webnn.NotSupportedError("test.data-type", f"{tensor['dataType']} is not in the specification")
    if "fill" in tensor:
        return np.full(tensor["shape"], number(tensor["fill"]), tensor["dataType"])
    items = [number(item) for item in tensor["data"]]
    return np.array(items, tensor["dataType"]).reshape(tensor["shape"])


def run(case: Case, executor: str = "numpy") -> tuple[dict[str, np.ndarray], webnn.MLGraph]:
    """What the builder's graph gives, with the values of integer inputs promised."""
    options = {"strict_scale_rank": False, "allow_negative_scale": True}
    context = webnn.ML().create_context(**options, executor=executor)
    builder = webnn.MLGraphBuilder(context)
    known: dict[str, Any] = {}
    feeds = {}
    for name, tensor in case["inputs"].items():
        values = array(tensor)
        descriptor = (tensor["dataType"], tensor["shape"])
        if tensor.get("constant"):
            known[name] = builder.constant(descriptor, values)
            continue
        promise = (int(values.min()), int(values.max())) if values.dtype.kind in "iu" else None
        known[name] = builder.input(name, descriptor, value_range=promise)
        feeds[name] = values
    for call in case["operators"]:
        found = _called(builder, call, known)
        outputs = call["outputs"]
        known.update(zip(outputs, found, strict=True) if isinstance(outputs, list) else [(outputs, found)])
    graph = builder.build({name: known[name] for name in case["expected"]})
    return context.compute(graph, feeds), graph


def _called(builder: webnn.MLGraphBuilder, call: Case, known: dict[str, Any]) -> Any:
    positional, options = [], {}
    for argument in call["arguments"]:
        for key, value in argument.items():
            if key == "options":
                options |= {snake_case(name): _resolved(item, known) for name, item in value.items()}
            else:
                positional.append(_resolved(value, known))
    return getattr(builder, call["name"])(*positional, **options)


def _resolved(value: Any, known: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_resolved(item, known) for item in value]
    return known[value] if isinstance(value, str) and value in known else number(value)


def ranked(case: Case) -> Case:
    """The case in integers of the same order: for operators that only move or compare."""
    tensors = [*case["inputs"].values(), *case["expected"].values()]
    reals = [tensor for tensor in tensors if tensor["dataType"].startswith("float")]
    literals = [item for call in case["operators"] for argument in call["arguments"]
                for item in argument.get("options", {}).items()]  # fmt: skip
    kind = reals[0]["dataType"] if reals else "float32"

    def single(item: Any) -> float:
        """A decimal as the float that it is written for."""
        with np.errstate(over="ignore"):
            return float(np.dtype(kind).type(number(item)))

    found = {0.0}
    for tensor in reals:
        found |= {single(item) for item in (tensor["data"] if "data" in tensor else [tensor["fill"]])}
    found |= {single(item) for key, item in literals if key in _VALUES}
    if not all(np.isfinite(list(found))):
        raise webnn.NotSupportedError("test.finite", "an infinity or NaN has no integer")
    order = sorted({abs(item) for item in found})  # the same for both signs: magnitudes are compared too
    places = {sign * item: sign * place for place, item in enumerate(order) for sign in (1, -1)}
    small = max(map(abs, places.values())) < 128

    def encoded(tensor: Case) -> Case:
        if tensor not in reals:
            return tensor
        rest = {"data": [places[single(item)] for item in tensor["data"]]} if "data" in tensor else {
            "fill": places[single(tensor["fill"])]
        }  # fmt: skip
        return {**tensor, **rest, "dataType": "int8" if small else "int32"}

    def option(key: str, item: Any) -> Any:
        return places[single(item)] if key in _VALUES else item

    operators = [
        {**call, "arguments": [
            {"options": {k: option(k, v) for k, v in argument["options"].items()}} if "options" in argument
            else argument
            for argument in call["arguments"]]}
        for call in case["operators"]
    ]  # fmt: skip
    sides = {side: {name: encoded(tensor) for name, tensor in case[side].items()} for side in ("inputs", "expected")}
    return {**case, **sides, "operators": operators}


_VALUES = {"value", "minValue", "maxValue"}
"""Options that are numbers among the elements."""
