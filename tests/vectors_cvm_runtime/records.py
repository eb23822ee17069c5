"""What the C++ library cvm-runtime says about single uses of its ops, and what our declarations say about the same.

``precision_rules.json`` holds derived precisions, ``rejections.json`` holds verdicts on odd attributes and shapes. A
record is said in our terms through `mapping`, and judged by `cvm.program.ProgramBuilder`: attributes are parsed, shapes
inferred, intervals proven, exactly as for a program that is loaded. An input of precision p has the interval
[-(2^(p-1) - 1), 2^(p-1) - 1].
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from cvm.errors import CvmError
from cvm.ops import precision
from cvm.program import ProgramBuilder

from .mapping import FOLDER as VECTORS
from .mapping import OPS, Shape, attributes_of

PRECISION_RULES = VECTORS.parent / "precision_rules.json"
REJECTIONS = VECTORS.parent / "rejections.json"

Effect: TypeAlias = Literal["same", "tighter", "wider", "admitted", "refused", "shape"]
"""Seen from here: the same; a smaller precision; a larger one; admitted here only; refused here only; another shape."""


@dataclass(frozen=True, eq=False)
class Record:
    """One use of an op and what the C++ library makes of it, in its own terms. What the file does not tell is None."""

    op: str
    attributes: Mapping[str, str]
    shapes: tuple[Shape, ...]
    precisions: tuple[int, ...]
    accepted: bool
    out_precisions: tuple[int, ...] | None = None
    """Also of a record that is refused for them; () where there are none."""
    out_shapes: tuple[Shape, ...] | None = None


@dataclass(frozen=True, eq=False)
class Verdict:
    """What our declarations make of a record: precisions and shapes of the results, or the reason of the refusal."""

    precisions: tuple[int, ...] = ()
    shapes: tuple[Shape, ...] = ()
    refusal: str = ""

    @property
    def accepted(self) -> bool:
        """Whether a program with this use of the op is valid."""
        return not self.refusal


def magnitude(p: int) -> int:
    """The largest magnitude of an element of precision ``p``."""
    return int(2 ** (p - 1) - 1)


@cache
def precision_rules(file: Path = PRECISION_RULES) -> Sequence[Record]:
    """All records of the file, in its order; empty if it is not there."""
    return tuple(
        Record(**_common(item), accepted=item["accepted"], out_precisions=tuple(item["out_precisions"]))
        for item in _items(file)
    )


@cache
def rejections(file: Path = REJECTIONS) -> Sequence[Record]:
    """All records of the file, in its order; empty if it is not there."""
    return tuple(
        Record(
            **_common(item),
            accepted=item["result"] == "accepted",
            out_shapes=None if item["out_shapes"] is None else _shapes(item["out_shapes"]),
        )
        for item in _items(file)
    )


def _items(file: Path) -> list[dict[str, Any]]:
    return json.loads(file.read_text("utf-8")) if file.is_file() else []


def _common(item: dict[str, Any]) -> dict[str, Any]:
    return {
        "op": item["op"],
        "attributes": item["attrs"],
        "shapes": _shapes(item["in_shapes"]),
        "precisions": tuple(item["in_precisions"]),
    }


def _shapes(lists: list[list[int]]) -> tuple[Shape, ...]:
    return tuple(map(tuple, lists))


@cache
def verdict(record: Record) -> Verdict:
    """What our declarations make of a record."""
    mapped = OPS[record.op]
    try:
        attributes = attributes_of(mapped, record.attributes, record.shapes[0])
    except (KeyError, ValueError, IndexError) as error:
        # An unknown or missing attribute, text that is not of its type, reshape codes beyond the shape: there is no
        # way to say it with typed attributes.
        return Verdict(refusal=f"attributes: {error}")
    builder = ProgramBuilder()
    try:
        names = [
            builder.input(f"input_{index}", shape, -magnitude(p), magnitude(p))
            for index, (shape, p) in enumerate(zip(record.shapes, record.precisions, strict=True))
        ]
        inputs = [names[index] for index in mapped.inputs] if mapped.inputs else names
        outputs = builder.add(mapped.op, inputs, attributes)
    except CvmError as error:
        return Verdict(refusal=str(error))
    return Verdict(
        tuple(precision(*builder.range(name).hull()) for name in outputs), tuple(map(builder.shape, outputs))
    )


def effect(record: Record) -> Effect:
    """How our verdict differs from theirs."""
    ours = verdict(record)
    if ours.accepted != record.accepted:
        return "admitted" if ours.accepted else "refused"
    if not ours.accepted:
        return "same"
    if record.out_shapes is not None and ours.shapes != record.out_shapes:
        return "shape"
    if record.out_precisions is None or ours.precisions == record.out_precisions:
        return "same"
    pairs = zip(ours.precisions, record.out_precisions, strict=True)
    return "wider" if any(here > there for here, there in pairs) else "tighter"


def described(record: Record) -> str:
    """A record and both verdicts on it, as one line of Markdown."""
    texts = "".join(f" {name}={text}" for name, text in record.attributes.items())
    given = ", ".join(f"INT{p} {_shape(shape)}" for p, shape in zip(record.precisions, record.shapes, strict=True))
    ours = verdict(record)
    there = _result(record.accepted, record.out_precisions, record.out_shapes)
    here = _result(ours.accepted, ours.precisions, ours.shapes if record.out_shapes else None)
    return f"`{record.op}{texts}` of {given}: there {there}, here {here}"


def _result(accepted: bool, precisions: Sequence[int] | None, shapes: Sequence[Shape] | None) -> str:
    if not accepted:
        return "refused"
    if shapes is not None:
        return ", ".join(map(_shape, shapes))
    return ", ".join(f"INT{p}" for p in precisions or ()) or "accepted"


def _shape(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
