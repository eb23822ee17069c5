"""Reduce ops (the document's section "Reduce Operators")."""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np

from cvm.ops.attributes import INTEGERS, TRUTH, Attribute, TypedAttributes
from cvm.ops.axes import axis_rules, normal
from cvm.ops.declaration import Call, Input, Op, register
from cvm.ops.ranges import BOUNDS, Range, Shape, affordable

__all__ = ["Max", "Sum"]


class _Attributes(TypedAttributes):
    """The axes to reduce, and whether they are kept."""

    axes = Attribute(INTEGERS, "the axes to reduce; empty: all, even with exclude", default=())
    keepdims = Attribute(TRUTH, "whether a reduced axis is kept with extent 1", default=False)
    exclude = Attribute(TRUTH, "whether axes are the axes to keep, and all others are reduced", default=False)


def _reduced(call: Call) -> tuple[int, ...]:
    """The document's R: the axes that are reduced, in increasing order."""
    rank = len(call.shapes[0])
    named = normal(call.attributes.axes, rank)
    if not named:
        return tuple(range(rank))
    return tuple(axis for axis in range(rank) if (axis in named) != call.attributes.exclude)


def _left(shape: Shape, reduced: tuple[int, ...]) -> int:
    """The number of elements of the reduced tensor."""
    return math.prod(extent for axis, extent in enumerate(shape) if axis not in reduced)


class _Reduce(Op):
    """An op that reduces all elements along some axes to one."""

    family = "reduce"
    inputs = (Input("X", "any tensor, of N dimensions"),)
    Attributes = _Attributes
    constraints = axis_rules("C1", "C2")

    def shape(self, call: Call) -> tuple[Shape, ...]:
        reduced = _reduced(call)
        extents = list(enumerate(call.shapes[0]))
        if call.attributes.keepdims:
            return (tuple(1 if axis in reduced else extent for axis, extent in extents),)
        return (tuple(extent for axis, extent in extents if axis not in reduced) or (1,),)

    def range(self, call: Call) -> tuple[Range, ...]:
        reduced = _reduced(call)
        (x,) = affordable(call.ranges, lambda shapes: _left(shapes[0], reduced), allowed=BOUNDS)
        bounds = self.reduce(x, reduced, call.shapes[0])
        if call.attributes.keepdims:
            return (bounds,)
        kept = tuple(extent for axis, extent in enumerate(bounds.shape) if axis not in reduced) or (1,)
        return (bounds.moved(lambda array: array.reshape(kept)),)

    def work(self, call: Call) -> int:
        return math.prod(call.shapes[0])

    @abstractmethod
    def reduce(self, x: Range, axes: tuple[int, ...], shape: Shape) -> Range:
        """The range of the reduced tensor, with the reduced axes kept at extent 1."""


@register
class Sum(_Reduce):
    """The sum over the given axes: Y[d] = sum Z, where Z is the family of all X[..] that d stands for."""

    name = "sum"
    source = "Reduce Operators, sum"

    def reduce(self, x: Range, axes: tuple[int, ...], shape: Shape) -> Range:
        return x.total(axes, shape)


@register
class Max(_Reduce):
    """The largest element over the given axes: Y[d] = max Z, where Z is the family of all X[..] that d stands for."""

    name = "max"
    source = "Reduce Operators, max"

    def reduce(self, x: Range, axes: tuple[int, ...], shape: Shape) -> Range:
        return x.moved(lambda bounds: np.max(bounds, axis=axes, keepdims=True))
