"""The statement about an engine: for each case whether its codes are exact, and which rule gives those that are not."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.comparison import Setting, Shown, compared, explained
from cvm.comparison.engines import EXTRA
from cvm.comparison.running import checked, taken
from cvm.conformance.cases import Case
from cvm.conformance.onnx_cases import onnx_cases
from cvm.conformance.running import Prepared, answers, prepared
from cvm.conformance.tflite_cases import tflite_cases
from cvm.errors import Invalid, Unsupported

__all__ = ["VERDICTS", "cases_for", "statement"]

Array = npt.NDArray[Any]
VERDICTS: Mapping[str, str] = {
    "exact": "every code is the exact one",
    "within one": "codes differ, each by one",
    "wrong": "a code differs by more than one",
    "refused": "the engine does not run the case, or shows no codes",
    "crashed": "the engine's process ended",
}
"""What is said of a case."""


def cases_for(setting: Setting, ops: Sequence[str] = ()) -> list[Case]:
    """The cases in the formats that an engine reads. ``ops``: only operators of these names, in any case of letters.

    Raises `Unsupported` if the engine is not installed, and `Invalid` (``conformance.op``) for an unknown name.
    """
    formats = setting.runner.formats
    for kind in formats:
        checked(setting, kind)
        _require_writer(kind)
    every = [case for kind, made in _CASES.items() if kind in formats for case in made()]
    wanted = {op.lower() for op in ops}
    names = sorted({case.op for case in every})
    unknown = wanted - {name.lower() for name in names}
    if unknown:
        message = f"there is no case for {', '.join(sorted(unknown))} in {' and '.join(formats)}; "
        raise Invalid("conformance.op", message + f"there are {', '.join(names)}")
    return [case for case in every if not wanted or case.op.lower() in wanted]


_CASES = {"onnx": onnx_cases, "tflite": tflite_cases}
_WRITERS = {"onnx": ("onnx",), "tflite": ("tflite", "flatbuffers")}
"""The packages that write the cases of a format."""


def _require_writer(kind: str) -> None:
    missing = [name for name in _WRITERS[kind] if find_spec(name) is None]
    if missing:
        message = f"the cases in {kind} are written with a package that is not installed, {missing[0]}"
        raise Unsupported("compare.extra", f"{message}: pip install 'cvm[{EXTRA}]'")


def statement(settings: Sequence[Setting], ops: Sequence[str] = ()) -> dict[str, Any]:
    """What engines do to all cases, as a JSON document. Raises as `cases_for` does."""
    engines = []
    with tempfile.TemporaryDirectory() as folder:
        ready: dict[str, Prepared] = {}
        for setting in settings:
            cases = cases_for(setting, ops)
            for case in cases:
                if case.name not in ready:
                    ready[case.name] = prepared(case, Path(folder), len(ready))
            items = [ready[case.name] for case in cases]
            found = answers(items, setting, Path(folder))
            rows = [_row(item, setting, shown) for item, shown in zip(items, found, strict=True)]
            counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in VERDICTS}
            engines.append(
                {"setting": setting.label, "package": setting.package, "counts": counts, "cases": rows},
            )
    return {"engines": engines}


def _row(item: Prepared, setting: Setting, shown: Mapping[str, Array] | str) -> dict[str, Any]:
    """What is said of one case."""
    case = item.case
    row: dict[str, Any] = {
        "op": case.op,
        "form": case.form,
        "types": case.types,
        "attributes": case.attributes,
        "numbers": case.numbers,
    }
    if isinstance(shown, str):
        return row | ({"verdict": "crashed"} if shown == "crashed" else {"verdict": "refused", "message": shown})
    codes, hidden = taken(item.model, shown)
    if hidden:
        return row | {"verdict": "refused", "message": next(iter(hidden.values()))}
    found = compared(item.model, Shown(setting, "", codes, {}, {}), item.samples.feeds)
    own = found.tensors[0].own
    row["of"] = own.of
    if not own.differ:
        return row | {"verdict": "exact"}
    verdict = "within one" if own.farthest == 1 else "wrong"
    row |= {"verdict": verdict, "differ": own.differ, "farthest": own.farthest}
    with np.errstate(all="ignore"):  # float32 models of engines overflow where the engines do
        (why,) = explained(found, item.samples.feeds)
    return row | {"rule": why.model, "explained": why.explained, "astray": why.astray}
