"""Small programs of one input that holds every integer of its interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from cvm.program import Exactness, Output, Program, ProgramBuilder, Provenance
from tests.passes.optimize.equality import assert_equal, extremes, passed

__all__ = ["ROUNDINGS", "add", "built", "const", "every", "fires", "ops_of", "requantize", "stays"]

ROUNDINGS = ("half_up", "half_even", "toward_zero")

Grow = Callable[[ProgramBuilder, str], str | Sequence[str]]


def built(lo: int, hi: int, grow: Grow, shape: tuple[int, ...] | None = None, named: Sequence[str] = ()) -> Program:
    """An input x of all integers of [lo, hi] (or of that shape), and what ``grow`` makes of it as outputs y0, y1, ..

    The values ``named`` are tensors of the document.
    """
    builder = ProgramBuilder()
    x = builder.input("x", shape or (1, hi - lo + 1), lo, hi)
    found = grow(builder, x)
    names = [found] if isinstance(found, str) else found
    report = tuple(Exactness(f"tensor {name}", name, Fraction(0)) for name in named)
    outputs = [Output(f"y{index}", name) for index, name in enumerate(names)]
    return builder.build(outputs, Provenance("test", exactness=report))


def add(builder: ProgramBuilder, op: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
    """Add a node of one result."""
    (value,) = builder.add(op, inputs, attributes, name=name)
    return value


def const(builder: ProgramBuilder, values: Any, parameter: bool = False) -> str:
    """Add a constant."""
    return builder.constant(np.array(values), kind="parameter" if parameter else "tensor")


def requantize(
    builder: ProgramBuilder,
    x: str,
    m: Any,
    c: Any,
    s: Any,
    lo: int,
    hi: int,
    rounding: str = "half_up",
    name: str | None = None,
) -> str:
    """Add a requantize of one tensor."""
    parameters = [const(builder, np.atleast_1d(item), parameter=True) for item in (m, c, s)]
    return add(builder, "requantize", x, *parameters, name=name, rounding=rounding, lo=lo, hi=hi)


def every(program: Program) -> list[dict[str, np.ndarray]]:
    """Inputs: for a row of all integers, that row; else extremes and random ones."""
    (value,) = (item.value for item in program.inputs)
    if value.shape == (1, value.hi - value.lo + 1):
        return [{"x": np.arange(value.lo, value.hi + 1, dtype=np.int32).reshape(value.shape)}]
    return [dict(feed) for feed in extremes(program, 6)]


def ops_of(program: Program) -> dict[str, int]:
    """How often each op occurs."""
    return dict(Counter(node.op for node in program.nodes))


def fires(name: str, program: Program) -> Program:
    """The pass rewrites the program; the result computes the same, by FORMAL."""
    after = passed(name, program)
    assert after is not program
    assert_equal(program, after, every(program))
    return after


def stays(name: str, program: Program) -> None:
    """The pass leaves the program as it is."""
    assert passed(name, program) is program
