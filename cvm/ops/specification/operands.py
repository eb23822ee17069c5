"""Functions that make the operands of examples."""

from __future__ import annotations

from math import prod

from cvm.ops.ranges import Shape
from cvm.ops.specification.statement import ExampleTensor, Interval

__all__ = ["constant", "given", "parameter"]


def given(shape: Shape, elements: tuple[int, ...], interval: Interval) -> ExampleTensor:
    """An input of the program, with its declared interval."""
    assert prod(shape) == len(elements), "as many elements as the shape has"
    return ExampleTensor(shape, elements, "input", interval)


def constant(shape: Shape, elements: tuple[int, ...]) -> ExampleTensor:
    """A constant tensor."""
    assert prod(shape) == len(elements), "as many elements as the shape has"
    return ExampleTensor(shape, elements)


def parameter(shape: Shape, elements: tuple[int, ...]) -> ExampleTensor:
    """A parameter, that is, an int64 constant."""
    assert prod(shape) == len(elements), "as many elements as the shape has"
    return ExampleTensor(shape, elements, "parameter")
