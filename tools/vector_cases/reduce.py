"""Cases of the reduce ops."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from tools.vector_cases.case import Cases, Tensor, arange, filled, tensor
from tools.vector_cases.stream import MAX, Stream

__all__ = ["FAMILY"]

AXES = (
    ((3, 2), (0,)), ((3, 2), (-1,)), ((3, 2), (1, 0)), ((3, 2), (-2, 1)), ((2, 1, 3), ()), ((2, 1, 3), (0,)),
    ((2, 1, 3), (1,)), ((2, 1, 3), (-1,)), ((2, 1, 3), (2, 0)), ((2, 1, 3), (0, 1)), ((2, 1, 3), (-3, -1, -2)),
    ((2, 5, 1, 3), (1,)), ((2, 3, 1, 2), (1, 3)),
)  # fmt: skip
"""Shapes and axes that are tried with both values of keepdims and of exclude."""

HIGH = (
    ((2, 2, 3, 2), (3, 0, 1)), ((2, 1, 2, 1, 3), (-1, 0)), ((1, 1, 1, 1), (2,)), ((2, 1, 2, 1, 2, 1), (0, 2, 4)),
    ((1, 2, 1, 2, 1, 1, 2), (-6, 6)), ((2, 1, 1, 2, 1, 2, 1, 1), (7, 0, 3)),
    ((1, 2, 1, 2, 1, 2, 1, 2), (0, 1, 2, 3, 4, 5, 6, 7)), ((2, 1, 1, 2, 1, 2, 1, 1), ()),
)  # fmt: skip
"""Shapes of higher rank and axes."""


def reduce(op: str) -> Cases:
    """Sum and max: axes of every kind; equal and negative elements; the extremes."""
    c = Cases(op)

    def data(name: str, shape: tuple[int, ...]) -> Tensor:
        return Stream(f"{op}/{name}").spread(shape, -(2**26), 2**26)

    for index, (shape, axes) in enumerate(AXES):
        for keepdims, exclude in product((False, True), (False, True)):
            name = f"axes_{index:02}{'_keepdims' if keepdims else ''}{'_exclude' if exclude else ''}"
            aim = f"axes {list(axes)} of {list(shape)}"
            c.value(name, aim, data(name, shape), axes=axes, keepdims=keepdims, exclude=exclude)
    for index, (shape, axes) in enumerate(HIGH):
        for exclude in (False, True):
            name = f"rank_{len(shape)}_{index}{'_exclude' if exclude else ''}"
            aim = f"axes {list(axes)} of {list(shape)}"
            c.value(name, aim, data(name, shape), axes=axes, keepdims=bool(index % 2), exclude=exclude)
    plain = {"axes": (), "keepdims": False, "exclude": False}
    rows = {"axes": (1,), "keepdims": False, "exclude": False}
    c.value("equal_elements", "equal elements all count", filled((3, 4), 7), **rows)
    c.value("all_negative", "no element is above zero", arange((2, 3), -9), **plain)
    c.value("all_negative_rows", "no element of a row is above zero", arange((2, 3), -9), **rows)
    c.value("all_zero", "zeros only", filled((2, 3), 0), **rows)
    c.value("single", "one element, no axes", tensor((1,), [-5]), **plain)
    c.value("least", "the least element alone", tensor((1, 1), [-MAX]), **plain)
    c.value("cancel", "extremes whose sum is small", tensor((4,), [MAX, -MAX, MAX, -MAX]), **plain)
    c.value("last_is_largest", "the largest element is the last", arange((2, 5), -4), **rows)
    c.value("first_is_largest", "the largest element is the first", tensor((1, 4), [3, 2, 1, 0]), **rows)
    c.value("largest_sum", "a sum of 2^31 - 1", tensor((3,), [2**30, 2**30, -1]), **plain)
    c.value("least_sum", "a sum of -(2^31 - 1)", tensor((3,), [-(2**30), 1, -(2**30)]), **plain)
    c.value("long", "many terms", Stream(f"{op}/long").spread((300,), -1000, 1000), **plain)
    x = arange((2, 3))
    c.refused("C1", "axis 2 of rank 2", x, axes=(2,), keepdims=False, exclude=False)
    c.refused("C1", "axis -3 of rank 2", x, axes=(0, -3), keepdims=False, exclude=False)
    c.refused("C2", "an axis named twice", x, axes=(1, 1), keepdims=False, exclude=False)
    c.refused("C2", "an axis named from both ends", x, axes=(0, -2), keepdims=False, exclude=True)
    c.refused("attribute.axes", "nine axes", x, axes=(0,) * 9, keepdims=False, exclude=False)
    c.refused("attribute.axes", "an axis beyond 32 bits", x, axes=(2**31,), keepdims=False, exclude=False)
    c.refused("attribute.axes", "an integer is no tuple", x, axes=0, keepdims=False, exclude=False)
    c.refused("attribute.keepdims", "an integer is no boolean", x, axes=(), keepdims=1, exclude=False)
    c.refused("attribute.exclude", "an integer is no boolean", x, axes=(), keepdims=False, exclude=0)
    c.refused("attribute.axis", "an attribute that the op has not", x, axis=(0,), **plain)
    c.refused("arity", "no input", **plain)
    if op == "sum":
        c.refused("program.range", "a sum of 2^31", tensor((2,), [MAX, 1]), **plain)
        c.refused("program.range", "a sum of -2^31", tensor((2, 2), [0, 0, -MAX, -1]), **rows)
    return c


FAMILY: dict[str, Callable[[str], Cases]] = {"sum": reduce, "max": reduce}
"""For each op, the function that makes its cases."""
