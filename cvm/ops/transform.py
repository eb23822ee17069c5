"""Transform ops (the document's section "Transform Operators").

This is the longest module of ops, because the section is the document's longest one: thirteen ops.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import itemgetter
from typing import ClassVar

import numpy as np

from cvm.limits import MAX_RANK
from cvm.ops.attributes import EXTENT, EXTENTS, INTEGER, INTEGERS, PADDING, POSITIVES, Attribute, TypedAttributes
from cvm.ops.axes import axis_rule, axis_rules, inside, normal
from cvm.ops.declaration import Call, Constraint, Input, Op, register
from cvm.ops.movement import concatenated, repeated, reshaped, selected
from cvm.ops.ranges import Range, Shape, aligned, pointwise

__all__ = ["Concatenate", "CvmLut", "ExpandDims", "Flatten", "Repeat", "Reshape", "Slice", "SliceLike", "Squeeze",
           "Take", "Tile", "Transpose", "Where"]  # fmt: skip


class _Transform(Op):
    """An op that moves elements; unless a subclass says otherwise, of one tensor."""

    family = "transform"
    inputs: ClassVar[tuple[Input, ...]] = (Input("X", "any tensor, of N dimensions n_0, .., n_{N-1}"),)


@register
class Repeat(_Transform):
    """Each element repeated right after itself along one axis: Y[.., d, ..] = X[.., d div repeats, ..]."""

    name = "repeat"
    source = "Transform Operators, repeat"

    class Attributes(TypedAttributes):
        """The axis and the number of repetitions."""

        axis = Attribute(INTEGER, "the axis along which elements are repeated", default=0)
        repeats = Attribute(EXTENT, "how many times each element is repeated")

    constraints = (axis_rule("C1"),)

    def shape(self, call: Call) -> tuple[Shape, ...]:
        axis = call.attributes.axis % len(call.shapes[0])
        return (tuple(n * call.attributes.repeats if k == axis else n for k, n in enumerate(call.shapes[0])),)

    def range(self, call: Call) -> tuple[Range, ...]:
        axis = call.attributes.axis % len(call.shapes[0])
        return (repeated(call.ranges[0], axis, call.attributes.repeats, each=True),)


@register
class Tile(_Transform):
    """The whole tensor repeated along its axes; shape and reps are aligned at the right: Y[k] = X[k mod n]."""

    name = "tile"
    source = "Transform Operators, tile"

    class Attributes(TypedAttributes):
        """The numbers of repetitions."""

        reps = Attribute(POSITIVES, "how many times the tensor is repeated along each axis")

    def shape(self, call: Call) -> tuple[Shape, ...]:
        extents, reps = _tiling(call)
        return (tuple(n * r for n, r in zip(extents, reps, strict=True)),)

    def range(self, call: Call) -> tuple[Range, ...]:
        extents, reps = _tiling(call)
        x = call.ranges[0].moved(lambda bounds: bounds.reshape((1,) * (len(extents) - bounds.ndim) + bounds.shape))
        for axis, times in enumerate(reps):
            x = repeated(x, axis, times, each=False)
        return (x,)


def _tiling(call: Call) -> tuple[Shape, Shape]:
    """The extents of X and the repetitions, both with leading 1s to the rank of the result."""
    shape, reps = call.shapes[0], call.attributes.reps
    rank = max(len(shape), len(reps))
    return (1,) * (rank - len(shape)) + shape, (1,) * (rank - len(reps)) + reps


@register
class Flatten(_Transform):
    """The elements in row-major order, in one dimension."""

    name = "flatten"
    source = "Transform Operators, flatten"

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return ((math.prod(call.shapes[0]),),)

    def range(self, call: Call) -> tuple[Range, ...]:
        return (reshaped(call.ranges[0], call.shapes[0], self.shape(call)[0]),)


def _equal_beside(call: Call) -> bool:
    axis = call.attributes.axis % len(call.shapes[0])
    return len({shape[:axis] + shape[axis + 1 :] for shape in call.shapes}) == 1


@register
class Concatenate(_Transform):
    """Tensors joined along one axis."""

    name = "concatenate"
    source = "Transform Operators, concatenate"
    inputs = (Input("I", "tensors of N dimensions", many=True),)

    class Attributes(TypedAttributes):
        """The axis along which tensors are joined."""

        axis = Attribute(INTEGER, "the axis along which the tensors are joined")

    constraints = (
        Constraint("C1", "inputs of one rank N", lambda c: len({len(shape) for shape in c.shapes}) == 1),
        axis_rule("C2"),
        Constraint("C3", "inputs that differ in extent along axis only", _equal_beside),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        first = call.shapes[0]
        axis = call.attributes.axis % len(first)
        return ((*first[:axis], sum(shape[axis] for shape in call.shapes), *first[axis + 1 :]),)

    def range(self, call: Call) -> tuple[Range, ...]:
        axis = call.attributes.axis % len(call.shapes[0])
        return (concatenated(call.ranges, axis, [shape[axis] for shape in call.shapes]),)


@register
class Transpose(_Transform):
    """The axes in another order: axis i of Y is axis axes[i] of X; without axes, the reverse order."""

    name = "transpose"
    source = "Transform Operators, transpose"

    class Attributes(TypedAttributes):
        """The order of the axes."""

        axes = Attribute(INTEGERS, "a permutation of the axes; empty: the reverse order", default=())

    constraints = (
        Constraint("C1", "axes empty or with N entries", lambda c: len(c.attributes.axes) in (0, len(c.shapes[0]))),
        *axis_rules("C2", "C3"),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return (tuple(call.shapes[0][axis] for axis in _order(call)),)

    def range(self, call: Call) -> tuple[Range, ...]:
        return (call.ranges[0].moved(lambda bounds: bounds.transpose(_order(call))),)


def _order(call: Call) -> tuple[int, ...]:
    rank = len(call.shapes[0])
    return normal(call.attributes.axes, rank) or tuple(reversed(range(rank)))


def _slices(call: Call) -> Iterator[tuple[int, int, int]]:
    """(b_vec, s_arr, number of elements) for every axis. If no element is left, the number is 0 or negative."""
    a = call.attributes
    for axis, extent in enumerate(call.shapes[0]):
        stride = a.strides[axis] if axis < len(a.strides) else 1
        least, largest = (0, extent) if stride > 0 else (-1, extent - 1)
        begin = a.begin[axis] if axis < len(a.begin) else 0
        end = a.end[axis] if axis < len(a.end) else extent
        begin, end = (bound + extent if bound < 0 else bound for bound in (begin, end))
        begin, end = (max(least, min(bound, largest)) for bound in (begin, end))
        yield begin, stride, -((begin - end) // stride)


@register
class Slice(_Transform):
    """Along each axis every stride-th element from begin up to, not including, end: Y[d] = X[b_vec + s_arr * d].

    A negative begin or end counts from the end of the axis. Then both are clipped to [0, n] for a positive stride, and
    to [-1, n - 1] for a negative one. Missing entries are 0, n and 1.
    """

    name = "slice"
    source = "Transform Operators, slice"

    class Attributes(TypedAttributes):
        """The part to keep, axis by axis."""

        begin = Attribute(INTEGERS, "where to begin; missing entries are 0", default=())
        end = Attribute(INTEGERS, "where to stop; missing entries are n", default=())
        strides = Attribute(INTEGERS, "the steps, also negative; missing entries are 1", default=())

    constraints = (
        Constraint(
            "C1",
            "begin, end and strides with at most N entries",
            lambda c: all(
                len(v) <= len(c.shapes[0]) for v in (c.attributes.begin, c.attributes.end, c.attributes.strides)
            ),
        ),
        Constraint("C2", "strides other than 0", lambda c: 0 not in c.attributes.strides),
        Constraint(
            "C3",
            "along every axis at least one element: b_vec < e_vec for a positive stride, e_vec < b_vec for a negative",
            lambda c: all(count > 0 for *_, count in _slices(c)),
        ),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return (tuple(count for *_, count in _slices(call)),)

    def range(self, call: Call) -> tuple[Range, ...]:
        x = call.ranges[0]
        for axis, (begin, stride, count) in enumerate(_slices(call)):
            if x.shape[axis] > 1:
                end = begin + stride * count
                part = (*(slice(None),) * axis, slice(begin, None if end < 0 else end, stride))
                x = x.moved(itemgetter(part))
        return (x,)


def _sliced(call: Call) -> tuple[int, ...]:
    """The document's sliced_axes."""
    return normal(call.attributes.axes, len(call.shapes[0])) or tuple(range(len(call.shapes[1])))


@register
class SliceLike(_Transform):
    """The first elements of X along some axes, as many as another tensor has along them: Y[d] = X[d]."""

    name = "slice_like"
    source = "Transform Operators, slice_like"
    inputs = (
        Input("X", "any tensor, of N dimensions n_0, .., n_{N-1}"),
        Input("shape_like", "a tensor of M dimensions m_0, .., m_{M-1}, of which only the shape counts"),
    )

    class Attributes(TypedAttributes):
        """The axes to slice."""

        axes = Attribute(INTEGERS, "the axes that are sliced; empty: all", default=())

    constraints = (
        Constraint("C1", "M = N where axes is empty", lambda c: bool(c.attributes.axes) or _ranks_equal(c)),
        *axis_rules("C2", "C3"),
        Constraint("C4", "axes that shape_like has", lambda c: all(axis < len(c.shapes[1]) for axis in _sliced(c))),
        Constraint(
            "C5",
            "m_j <= n_j for every axis j that is sliced",
            lambda c: all(c.shapes[1][axis] <= c.shapes[0][axis] for axis in _sliced(c)),
        ),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        sliced = _sliced(call)
        return (tuple(call.shapes[1][axis] if axis in sliced else n for axis, n in enumerate(call.shapes[0])),)

    def range(self, call: Call) -> tuple[Range, ...]:
        kept = tuple(slice(n) for n in self.shape(call)[0])  # a bound for a whole axis is kept
        return (call.ranges[0].moved(lambda bounds: bounds[kept]),)


def _ranks_equal(call: Call) -> bool:
    return len(call.shapes[0]) == len(call.shapes[1])


_TABLE = (
    Input("X", "any tensor, of N dimensions n_0, .., n_{N-1}"),
    Input("indices", "a tensor of M dimensions; its elements are clipped to the indices that exist"),
)


@register
class Take(_Transform):
    """The elements of X at the given indices along one axis, or of flattened X without axis.

    Y[d_0, .., d_{a+M-1}, ..] = X[d_0, .., d_{a-1}, clip(indices[d_a, .., d_{a+M-1}], 0, n_a - 1), ..], a = axis.
    """

    name = "take"
    source = "Transform Operators, take"
    inputs = _TABLE

    class Attributes(TypedAttributes):
        """The axis of the indices."""

        axis = Attribute(INTEGER, "the axis; without it X is flattened", default=None)

    constraints = (
        Constraint("C1", "axis in [-N, N), if given", lambda c: inside(_axis(c), len(c.shapes[0]))),
        Constraint(
            "C2",
            f"N + M - 1 <= {MAX_RANK} where axis is given",
            lambda c: not _axis(c) or len(c.shapes[0]) + len(c.shapes[1]) - 1 <= MAX_RANK,
        ),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        shape, indices = call.shapes
        for axis in normal(_axis(call), len(shape)):
            return ((*shape[:axis], *indices, *shape[axis + 1 :]),)
        return (indices,)

    def range(self, call: Call) -> tuple[Range, ...]:
        for axis in normal(_axis(call), len(call.shapes[0])):
            return (selected(call.ranges[0], axis, call.shapes[0][axis], call.ranges[1]),)
        return (_looked_up(call),)


def _axis(call: Call) -> tuple[int, ...]:
    """The axis of a take, or no axis."""
    return () if call.attributes.axis is None else (call.attributes.axis,)


def _looked_up(call: Call) -> Range:
    elements = math.prod(call.shapes[0])
    return selected(reshaped(call.ranges[0], call.shapes[0], (elements,)), 0, elements, call.ranges[1])


@register
class CvmLut(_Transform):
    """A table look-up: take without axis. Y[d] = flatten(X)[clip(indices[d], 0, |X| - 1)]."""

    name = "cvm_lut"
    source = "Transform Operators, cvm_lut"
    inputs = _TABLE

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return (call.shapes[1],)

    def range(self, call: Call) -> tuple[Range, ...]:
        return (_looked_up(call),)


@register
class ExpandDims(_Transform):
    """X with new dimensions of extent 1, starting at axis. A negative axis counts from behind the last dimension."""

    name = "expand_dims"
    source = "Transform Operators, expand_dims"

    class Attributes(TypedAttributes):
        """The position and the number of the new dimensions."""

        axis = Attribute(INTEGER, "where the new dimensions start; N + 1 is added if it is negative")
        num_newaxis = Attribute(PADDING, "the number of new dimensions", default=1)

    constraints = (
        Constraint("C1", "axis in [-N - 1, N + 1)", lambda c: inside((c.attributes.axis,), len(c.shapes[0]) + 1)),
        Constraint(
            "C2",
            f"N + num_newaxis <= {MAX_RANK}",
            lambda c: len(c.shapes[0]) + c.attributes.num_newaxis <= MAX_RANK,
        ),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return (_expanded(call, call.shapes[0]),)

    def range(self, call: Call) -> tuple[Range, ...]:
        return (call.ranges[0].moved(lambda bounds: bounds.reshape(_expanded(call, bounds.shape))),)


def _expanded(call: Call, extents: Shape) -> Shape:
    axis = call.attributes.axis % (len(extents) + 1)
    return (*extents[:axis], *(1,) * call.attributes.num_newaxis, *extents[axis:])


@register
class Reshape(_Transform):
    """The same elements, in row-major order, in another shape."""

    name = "reshape"
    source = "Transform Operators, reshape"

    class Attributes(TypedAttributes):
        """The shape of the result."""

        target_shape = Attribute(EXTENTS, "the shape of the result")

    constraints = (
        Constraint(
            "C1",
            "a target_shape of as many elements as X",
            lambda c: math.prod(c.attributes.target_shape) == math.prod(c.shapes[0]),
        ),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return (call.attributes.target_shape,)

    def range(self, call: Call) -> tuple[Range, ...]:
        return (reshaped(call.ranges[0], call.shapes[0], call.attributes.target_shape),)


def _dropped(call: Call) -> tuple[int, ...]:
    """The axes that squeeze removes."""
    shape = call.shapes[0]
    return normal(call.attributes.axes, len(shape)) or tuple(k for k, extent in enumerate(shape) if extent == 1)


@register
class Squeeze(_Transform):
    """X without dimensions of extent 1: the given ones, or all. If no dimension would be left, one is kept."""

    name = "squeeze"
    source = "Transform Operators, squeeze"

    class Attributes(TypedAttributes):
        """The axes to remove."""

        axes = Attribute(INTEGERS, "the axes to remove; empty: all of extent 1", default=())

    constraints = (
        *axis_rules("C1", "C2"),
        Constraint("C3", "extent 1 along every given axis", lambda c: all(c.shapes[0][k] == 1 for k in _dropped(c))),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return (_squeezed(call, call.shapes[0]),)

    def range(self, call: Call) -> tuple[Range, ...]:
        return (call.ranges[0].moved(lambda bounds: bounds.reshape(_squeezed(call, bounds.shape))),)


def _squeezed(call: Call, extents: Shape) -> Shape:
    dropped = _dropped(call)
    return tuple(extent for axis, extent in enumerate(extents) if axis not in dropped) or (1,)


@register
class Where(_Transform):
    """The elements of A where the condition is not 0, and of B where it is. A vector of conditions selects rows."""

    name = "where"
    source = "Transform Operators, where"
    inputs = (
        Input("Cond", "the condition, of A's shape, or (n_0,)"),
        Input("A", "any tensor, of N dimensions n_0, .., n_{N-1}"),
        Input("B", "a tensor of A's shape"),
    )
    constraints = (
        Constraint("C1", "A and B of the same shape", lambda c: c.shapes[1] == c.shapes[2]),
        Constraint(
            "C2", "Cond of A's shape or of shape (n_0,)", lambda c: c.shapes[0] in (c.shapes[1], c.shapes[1][:1])
        ),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return (call.shapes[1],)

    def range(self, call: Call) -> tuple[Range, ...]:
        condition, a, b = call.ranges
        rows = condition.moved(lambda bounds: bounds.reshape(bounds.shape + (1,) * (a.rank - bounds.ndim)))
        return (pointwise(aligned((rows, a, b), a.rank), _either),)


def _either(condition: Range, a: Range, b: Range) -> Range:
    """The range of ``a`` where the condition cannot be 0, of ``b`` where it must be 0, else the hull of both."""
    never_a = (condition.lo == 0) & (condition.hi == 0)
    always_a = (condition.lo > 0) | (condition.hi < 0)
    both = a.union(b)
    return Range(
        np.where(never_a, b.lo, np.where(always_a, a.lo, both.lo)),
        np.where(never_a, b.hi, np.where(always_a, a.hi, both.hi)),
    )
