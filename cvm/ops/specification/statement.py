"""The parts of a statement about an op, and its evaluation.

Shapes, gas and the intervals of pointwise ops are stated as lines of Python, so that they have exactly one meaning and
tests can compare them with the declarations. Other intervals are stated in words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

from cvm.ops.declaration import Op
from cvm.ops.ranges import Shape

__all__ = ["Each", "Example", "ExampleTensor", "Interval", "Statement", "evaluated_gas", "evaluated_interval",
           "evaluated_shapes", "gas_line"]  # fmt: skip

Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ExampleTensor:
    """An operand of an example: an input of a program with an interval, a constant, or a parameter."""

    shape: Shape
    elements: tuple[int, ...]
    role: Literal["input", "constant", "parameter"] = "constant"
    interval: Interval = (0, 0)


@dataclass(frozen=True, slots=True)
class Example:
    """One use of an op. The generator of the page computes its results and verifies them."""

    inputs: tuple[ExampleTensor, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Each:
    """The interval of a pointwise op: the lines ``where``, then the least and the largest element of the result.

    ``X.lo`` and ``X.hi`` are the bounds of one element of the operand X.
    """

    lo: str
    hi: str
    where: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Statement:
    """The statement about an op.

    ``where`` are lines that define names for the shapes and the work. ``shapes`` has one expression per output.
    ``work`` is the gas besides 1, the elements read and the elements written. ``X.shape`` is the shape of the operand
    X, ``X.size`` the number of its elements, 0 for an absent operand. Attributes have their own names.
    """

    shapes: tuple[str, ...]
    interval: Each | tuple[str, ...]
    example: Example
    where: tuple[str, ...] = ()
    work: str = ""
    formulas: tuple[str, ...] = ()
    """Parts of the definition that FORMAL's formula does not say but its code does, in words."""


def _broadcast(*shapes: Shape) -> Shape:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(map(max, zip(*padded, strict=True)))


def _clip(x: int, lo: int, hi: int) -> int:
    return max(lo, min(x, hi))


def _quotient(a: int, b: int) -> int:
    magnitude: int = abs(a) // abs(b)
    return magnitude if (a < 0) == (b < 0) else -magnitude


def _rounded(v: int, s: int, rounding: str) -> int:
    if rounding == "half_up":
        return (v + ((1 << s) >> 1)) >> s
    if rounding == "toward_zero":
        return _quotient(v, 1 << s)
    floor, twice = v >> s, 2 * (v - (v >> s << s))
    return floor + (twice > 1 << s or (twice == 1 << s and floor % 2 == 1))


def _ratio(a: int, b: int, rounding: str) -> int:
    """The quotient a / b for b > 0, rounded."""
    if rounding == "half_up":
        return (2 * a + b) // (2 * b)
    if rounding == "toward_zero":
        return _quotient(a, b)
    floor, twice = a // b, 2 * (a % b)
    return floor + (twice > b or (twice == b and floor % 2 == 1))


_WORDS: dict[str, Any] = {
    "broadcast": _broadcast, "clip": _clip, "quotient": _quotient, "ratio": _ratio, "rounded": _rounded,
    "prod": math.prod,
    "abs": abs, "enumerate": enumerate, "len": len, "max": max, "min": min, "range": range, "reversed": reversed,
    "sum": sum, "tuple": tuple, "zip": zip,
}  # fmt: skip
"""The functions that statements may use; docs/ops.md says what they are."""


def _operands(op: Op, items: Sequence[SimpleNamespace]) -> dict[str, Any]:
    """The operands by the names in the declaration. An input that takes many tensors is a list."""
    if op.name in ("requantize", "quotient"):
        n = (len(items) - 2) // 2
        last = op.inputs[-1].name
        return {"x": list(items[:n]), "m": list(items[n : 2 * n]), "c": items[-2], last: items[-1]}
    if any(spec.many for spec in op.inputs):
        return {op.inputs[0].name: list(items)}
    absent = SimpleNamespace(shape=(), size=0)
    names = [spec.name for spec in op.inputs]
    return dict(zip(names, [*items, *[absent] * (len(names) - len(items))], strict=True))


def _scope(op: Op, items: Sequence[SimpleNamespace], attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {"__builtins__": {}, **_WORDS, **attributes, **_operands(op, items)}


def _evaluated(lines: Sequence[str], scope: dict[str, Any]) -> None:
    for line in lines:
        exec(line, scope)  # the line is a part of this package


def _shaped(statement: Statement, op: Op, shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all names in a statement: operands, attributes, the names that its lines define, outputs."""
    scope = _scope(op, [SimpleNamespace(shape=shape, size=math.prod(shape)) for shape in shapes], attributes)
    _evaluated(statement.where, scope)
    for name, text in zip(op.outputs, statement.shapes, strict=True):
        shape = tuple(eval(text, scope))  # the text is a part of this package
        scope[name] = SimpleNamespace(shape=shape, size=math.prod(shape))
    return scope


def evaluated_shapes(
    statement: Statement, op: Op, shapes: Sequence[Shape], attributes: Mapping[str, Any]
) -> tuple[Shape, ...]:
    """The shapes of the outputs of a valid call, as the statement gives them."""
    scope = _shaped(statement, op, shapes, attributes)
    return tuple(scope[name].shape for name in op.outputs)


def gas_line(statement: Statement, op: Op) -> str:
    """The gas of a call as an expression."""
    read = [f"sum(t.size for t in {spec.name})" if spec.many else f"{spec.name}.size" for spec in op.inputs]
    written = [f"{name}.size" for name in op.outputs]
    return " + ".join(["1", *read, *written, *([statement.work] if statement.work else [])])


def evaluated_gas(statement: Statement, op: Op, shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> int:
    """The gas of a valid call, as the statement gives it."""
    return int(eval(gas_line(statement, op), _shaped(statement, op, shapes, attributes)))  # texts of this package


def evaluated_interval(each: Each, op: Op, intervals: Sequence[Interval], attributes: Mapping[str, Any]) -> Interval:
    """The interval of the result for operands of one element each, as the statement gives it."""
    scope = _scope(op, [SimpleNamespace(lo=lo, hi=hi) for lo, hi in intervals], attributes)
    _evaluated(each.where, scope)
    return int(eval(each.lo, scope)), int(eval(each.hi, scope))  # texts of this package
