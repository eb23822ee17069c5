"""Random programs in which one tensor is read, kept and returned in many layouts.

Many nodes move elements: transposes, reshapes, slices with strides of both signs, repeats, tiles, and
concatenations of such views, of parts that occur twice and of constants. The others compute from what was moved:
convolutions, products, pools, reductions, tables and requantizations, with constants that several nodes read in
different shapes and orders. Extents lie beside the lengths of vectors or are 1, and intervals end at powers of two and
at the limits of int32. States are replaced by views of themselves and of each other, and outputs are views of inputs,
states and other outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from cvm.limits import INT32_MAX
from cvm.program import Output, Program
from tools.fuzz.growers import GROWERS
from tools.fuzz.growth import Draw, Growth, Shape

__all__ = ["EXTENTS", "STEPS", "laid_out"]

EXTENTS = (1, 1, 1, 2, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)
"""The extents of axes: 1 often, and the numbers beside the lanes of vectors."""
MOST = 3000
"""The most elements of a tensor that ops are applied to."""
ENDS = ((0, 255), (-128, 127), (0, 127), (-3, 252), (-300, -45), (0, 256), (-129, 127), (-(2**15), 2**15 - 1),
        (0, 65535), (-INT32_MAX, INT32_MAX), (INT32_MAX - 255, INT32_MAX), (-INT32_MAX, 255 - INT32_MAX),
        (-1, 0), (7, 7))  # fmt: skip
"""The intervals of tensors: bytes with and without a bias, one more than a byte, words, and the limits."""


class _Layouts(Growth):
    """A growing program with tensors that fill vectors, and with constants that are read again."""

    def __init__(self, draw: Draw) -> None:
        super().__init__(draw)
        self.shared: list[str] = []
        self.made: list[str] = []
        self.read: set[str] = set()

    def add(self, op: str, inputs: Sequence[str], **attributes: Any) -> tuple[str, ...]:
        """See `Growth.add`; records what is made and read."""
        names = super().add(op, inputs, **attributes)
        self.made += names
        self.read.update(inputs)
        return names

    def shape(self, rank: int | None = None) -> Shape:
        """Extents of `EXTENTS`, with at most `MOST` elements."""
        rank = rank or self.choice((1, 2, 2, 3, 3, 4, 4, 4, 5))
        extents = [self.choice(EXTENTS) for _ in range(rank)]
        while prod(extents) > MOST // 2:
            largest = extents.index(max(extents))
            extents[largest] = self.choice([n for n in EXTENTS if n < extents[largest]])
        return tuple(extents)

    def interval(self) -> tuple[int, int]:
        """One of `ENDS`."""
        return self.choice(ENDS)

    def small(self, name: str) -> str:
        """The value, or its first elements along the longest axes."""
        shape = list(self.shape_of(name))
        if prod(shape) <= MOST:
            return name
        while prod(shape) > MOST:
            longest = shape.index(max(shape))
            shape[longest] = -(-shape[longest] // 2)
        return self.one("slice", name, begin=(), end=tuple(shape), strides=())

    def operand(self) -> str:
        """Any value; one of the last three in half of the cases."""
        return self.small(self.choice(self.values[-3:] if self.chance() else self.values))

    def codes(self, x: str) -> str:
        """A value as codes of at most 16 bits: rescaled, or clipped."""
        lo, hi = self.choice(ENDS[:9])
        if self.number(0, 3) == 0:
            return self.one("clip", x, a_min=lo, a_max=hi)
        shift = max(1, self.magnitude(x).bit_length() - self.choice((6, 7, 8, 9)))
        shape = self.shape_of(x)
        axis = self.choice((1 if len(shape) > 1 else 0, len(shape) - 1))
        own = tuple(n if k == axis else 1 for k, n in enumerate(shape)) if self.chance() else (1,)
        m = self.builder.parameter(self.elements(own, 2**22, 2**23) * self.choice((1, 1, -1)))
        c = self.builder.parameter(self.elements(own, -(2**24), 2**24))
        s = self.builder.parameter(np.full((1,), min(60, 22 + shift)))
        return self.one("requantize", x, m, c, s, rounding=self.choice(("half_up", "half_even")), lo=lo, hi=hi)

    def weights(self, shape: Shape) -> str:
        """Constants of a shape: those of an earlier node, as they are or moved there, or new ones."""
        same = [name for name in self.shared if self.shape_of(name) == shape]
        alike = [name for name in self.shared if sorted(self.shape_of(name)) == sorted(shape)]
        if same and self.number(0, 3):
            return self.choice(same)
        if alike and self.chance():
            return self.reordered(self.choice(alike), shape)
        lo, hi = self.choice(((-128, 127), (-127, 127), (-131, 120), (0, 255), (-200, 50), (-1, 1), (-600, 600)))
        self.shared.append(self.builder.constant(self.elements(shape, lo, hi)))
        return self.kept(self.shared[-1], 0)

    def reordered(self, name: str, shape: Shape) -> str:
        """The transpose of a value that has this shape, whose extents are those of the value in some order."""
        left = list(self.shape_of(name))
        axes = []
        for extent in shape:
            axes.append(left.index(extent))
            left[axes[-1]] = -1
        return self.one("transpose", name, axes=tuple(axes))


def _axes(g: _Layouts, x: str) -> str:
    """Axes in another order: exchanged, rotated or any."""
    rank = len(g.shape_of(x))
    axes = list(range(rank))
    kind = g.number(0, 2)
    if kind == 0:
        first = g.number(0, rank - 1)
        axes = axes[first:] + axes[:first]
    elif kind == 1 and rank > 1:
        axes[-1], axes[-2] = axes[-2], axes[-1]
    else:
        axes = g.draw.permutation(axes)
    return g.one("transpose", x, axes=tuple(axes))


def _grouped(g: _Layouts, x: str) -> str:
    """Another shape of the same elements: axes joined or divided at their extents, or any extents."""
    shape = list(g.shape_of(x))
    kind = g.number(0, 2)
    if kind == 0 and len(shape) > 1:
        first = g.number(0, len(shape) - 2)
        shape[first : first + 2] = [shape[first] * shape[first + 1]]
    elif kind == 1 and len(shape) < 7:
        axis = g.number(0, len(shape) - 1)
        divisor = g.choice([k for k in range(1, shape[axis] + 1) if shape[axis] % k == 0])
        shape[axis : axis + 1] = [divisor, shape[axis] // divisor]
    else:
        whole = prod(shape)
        divisor = g.choice([k for k in range(1, min(whole, 128) + 1) if whole % k == 0])
        shape = [divisor, whole // divisor]
    return g.one("reshape", x, target_shape=tuple(shape))


def _part(g: _Layouts, x: str) -> str:
    """Every k-th element along one or two axes, in either direction."""
    shape = g.shape_of(x)
    begin, end, strides = [0] * len(shape), list(shape), [1] * len(shape)
    for axis in {g.number(0, len(shape) - 1) for _ in range(2)}:
        n, stride = shape[axis], g.choice((1, 1, 2, 3, -1, -1, -2))
        first = g.number(0, max(0, n // 2)) if stride > 0 else g.number(n // 2, n - 1)
        begin[axis], strides[axis] = first, stride
        end[axis] = g.number(first + 1, n) if stride > 0 else -n - 1
    return g.one("slice", x, begin=tuple(begin), end=tuple(end), strides=tuple(strides))


def _times(g: _Layouts, x: str) -> str:
    """Elements repeated along an axis, or the whole tensor again behind itself."""
    shape = g.shape_of(x)
    axis, times = g.number(0, len(shape) - 1), g.number(1, 3)
    if g.chance():
        return g.one("repeat", x, axis=axis, repeats=times)
    return g.one("tile", x, reps=tuple(times if k == axis else 1 for k in range(len(shape))))


MOVES: tuple[Callable[[_Layouts, str], str], ...] = (_axes, _axes, _grouped, _part, _times)


def _moved(g: _Layouts, x: str) -> str:
    """A value after one to three moves."""
    for _ in range(g.number(1, 3)):
        x = g.small(g.choice(MOVES)(g, x))
    return x


def moves(g: _Layouts) -> None:
    """One to three moves of any value."""
    _moved(g, g.operand())


def joined(g: _Layouts) -> None:
    """A concatenation of a value with views of it and of others, with equal parts, constants and results of kernels."""
    x = g.operand()
    shape = g.shape_of(x)
    axis = g.number(0, len(shape) - 1)
    parts = [x]
    for _ in range(g.number(1, 3)):
        kind = g.number(0, 4)
        if kind == 0:
            parts.append(g.choice(parts))
        elif kind == 1:
            parts.append(_border(g, tuple(g.number(1, 3) if k == axis else n for k, n in enumerate(shape))))
        elif kind == 2:
            parts.append(g.one(g.choice(("relu", "negative", "abs")), x))
        elif kind == 3:
            parts.append(g.codes(x))
        else:
            same = [name for name in g.values if _fits(g.shape_of(name), shape, axis)]
            parts.append(g.choice(same))
    g.random.shuffle(parts)
    while len(parts) > 1 and sum(prod(g.shape_of(part)) for part in parts) > 2 * MOST:
        parts.pop()
    whole = g.one("concatenate", *parts, axis=axis - len(shape) * g.number(0, 1))
    if g.chance():
        g.one("concatenate", whole, g.choice(parts), axis=axis)


def _border(g: _Layouts, shape: Shape) -> str:
    """Constants beside a tensor: all the same, as a padding, or different ones."""
    lo, hi = g.interval()
    return g.constant(np.full(shape, g.choice((lo, hi))) if g.chance() else g.elements(shape, lo, hi))


def _fits(shape: Shape, other: Shape, axis: int) -> bool:
    rest = tuple(n for k, n in enumerate(other) if k != axis)
    return len(shape) == len(other) and tuple(n for k, n in enumerate(shape) if k != axis) == rest


def elements(g: _Layouts) -> None:
    """A sum, product or maximum of two layouts of tensors, one of which may have axes of one element."""
    x = g.operand()
    shape = g.shape_of(x)
    alike = [name for name in g.values if sorted(g.shape_of(name)) == sorted(shape)]
    y = g.reordered(g.choice(alike), shape)
    if g.chance():
        kept = g.number(0, len(shape) - 1)
        ends = tuple(g.shape_of(y)[k] if k == kept or g.chance() else 1 for k in range(len(shape)))
        y = g.one("slice", y, begin=(), end=ends, strides=())
    op = g.choice(("broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_max", "broadcast_greater"))
    bits = {"broadcast_add": 30, "broadcast_sub": 30, "broadcast_mul": 15}.get(op, 31)
    pair = [g.limited(x, bits), g.limited(y, bits)]
    g.add(op, pair if g.chance() else pair[::-1])


def convolution(g: _Layouts) -> None:
    """A convolution of a map in any layout, behind which codes and a residual sum may follow."""
    x = _shaped(g, 4)
    _, channels, rows, columns = g.shape_of(x)
    groups = g.choice((1, 1, channels, *(k for k in (2, 3, 4) if channels % k == 0)))
    each = channels // groups
    room = max(1, 100_000 // prod(g.shape_of(x)))
    own = groups * g.choice([n for n in (1, 2, 8, 16, 17, 32) if n <= room] if groups == 1 else [1, 1, 2])
    kernel = (g.number(1, min(3, rows)), g.number(1, min(3, columns)))
    w = g.weights((own, each, *kernel))
    inputs = [g.limited(x, 29 - 10 - (each * prod(kernel)).bit_length()), w]
    if g.chance():
        inputs.append(g.weights((own,)))
    padding = (g.number(0, kernel[0] - 1), g.number(0, kernel[1] - 1))
    stride = (g.number(1, 2), g.number(1, 2))
    _behind(g, g.one("conv2d", *inputs, padding=padding, stride=stride, dilation=(1, 1), groups=groups))


def _shaped(g: _Layouts, rank: int) -> str:
    """A value of 2 or 4 axes: moved as it is, after a reshape of the same elements, or gathered. Some become codes."""
    x = g.operand()
    shape = g.shape_of(x)
    if len(shape) == rank:
        x = _moved(g, x) if g.chance() else x
    if len(g.shape_of(x)) != rank:
        left, target = prod(g.shape_of(x)), []
        for _ in range(rank - 1):
            target.append(g.choice([k for k in range(1, min(left, 70) + 1) if left % k == 0]))
            left //= target[-1]
        x = g.one("reshape", x, target_shape=tuple(g.draw.permutation([*target, left])))
    x = g.one("transpose", x, axes=tuple(g.draw.permutation(range(rank)))) if not g.number(0, 2) else x
    return g.codes(x) if g.number(0, 2) == 0 else x


def _behind(g: _Layouts, sums: str) -> None:
    """What follows sums: nothing, codes, codes plus another tensor, a pool."""
    if not g.number(0, 3):
        return
    codes = g.codes(sums)
    kind = g.number(0, 3)
    if kind == 0:
        same = [name for name in g.values if g.shape_of(name) == g.shape_of(codes) and name != codes]
        y = g.choice(same) if same else codes
        g.one("elemwise_add", g.limited(codes, 30), g.limited(y, 30))
    elif kind == 1 and len(g.shape_of(codes)) == 4:
        GROWERS["max_pool2d"](g, "max_pool2d")


def product(g: _Layouts) -> None:
    """A product of rows in any layout with constants, or with another computed matrix."""
    x = _shaped(g, 2)
    rows, depth = g.shape_of(x)
    columns = g.choice([n for n in EXTENTS if n <= max(1, 100_000 // (rows * depth))])
    if g.chance():
        _behind(g, g.one("dense", g.limited(x, 29 - 10 - depth.bit_length()), g.weights((columns, depth))))
        return
    moved = g.chance()
    shape = (columns, depth) if moved else (depth, columns)
    if prod(shape) > MOST:
        y = x
        moved = True
    else:
        y = g.weights(shape) if g.chance() else g.adapted(g.operand(), shape)
    bits = min(g.choice((7, 8, 12)), 29 - depth.bit_length())
    x, y = g.limited(x, 30 - bits - depth.bit_length()), g.limited(y, bits)
    g.one("matmul", x, y, transpose_a=False, transpose_b=moved)


def gathered(g: _Layouts) -> None:
    """Elements of any layout at computed or constant indices, inside a tensor and beyond its ends."""
    x = g.operand()
    shape = g.shape_of(x)
    axis = g.number(0, len(shape) - 1)
    count = g.choice((1, 2, 3, 8, 9))
    whole = g.chance()
    most = prod(shape) if whole else shape[axis]
    chosen = g.elements((count,), -2, most + 1)
    index = g.constant(chosen) if g.chance() else g.limited(g.adapted(g.operand(), (count,)), most.bit_length())
    if whole:
        g.one("take", x, index)
    elif prod(shape) // shape[axis] * count <= MOST:
        g.one("take", x, index, axis=axis)


def codes(g: _Layouts) -> None:
    """Codes of any value."""
    g.codes(g.operand())


def table(g: _Layouts) -> None:
    """A table that another node may read, over codes."""
    x = g.codes(g.operand())
    entries = g.weights((g.choice((1, 16, 128, 255, 256, 257)),))
    g.one("cvm_lut", entries, x)


def reduced(g: _Layouts) -> None:
    """Sums or maxima of a moved tensor over any axes."""
    x = g.operand()
    shape = g.shape_of(x)
    axes = tuple(axis for axis in range(len(shape)) if g.chance())
    op = g.choice(("sum", "max"))
    x = g.limited(x, 31 - prod(shape).bit_length()) if op == "sum" else x
    g.one(op, x, axes=axes, keepdims=g.chance(), exclude=False)


def any_op(g: _Layouts) -> None:
    """Any op with the parameters that `growers` draws."""
    op = g.choice(("clip", "cvm_right_shift", "cvm_left_shift", "where", "max_pool2d", "upsampling", "normalize",
                   "quotient", "update_slice", "requantize", "slice_like", "squeeze", "expand_dims", "flatten",
                   "broadcast_div", "cvm_precision", "get_valid_count"))  # fmt: skip
    GROWERS[op](g, op)


STEPS: Mapping[str, Callable[[_Layouts], None]] = {
    "moves": moves, "joined": joined, "elements": elements, "convolution": convolution, "product": product,
    "gathered": gathered, "codes": codes, "table": table, "reduced": reduced, "any": any_op,
}  # fmt: skip
"""Step -> the function that adds it to a growing program."""
_FREQUENT = ("moves", "moves", "joined", "convolution", "elements")


def laid_out(draw: Draw, steps: int = 12) -> Program:
    """A valid program of at most so many steps, one or a few nodes each."""
    g = _Layouts(draw)
    g.kept(g.builder.input("x", g.shape(), *g.interval()), 0)
    states = _states(g)
    for _ in range(g.number(2, steps)):
        STEPS[g.choice((*STEPS, *_FREQUENT))](g)
    for state in states:
        g.builder.update(state, _successor(g, state, states))
    return g.builder.build([Output(f"y{number}", name) for number, name in enumerate(_outputs(g, states))])


def _states(g: _Layouts) -> list[str]:
    """Up to three states of one shape; the third one may have its axes in another order."""
    names: list[str] = []
    shape = g.shape()
    lo, hi = g.interval()
    for number in range(g.choice((0, 0, 1, 2, 3))):
        own = tuple(g.draw.permutation(shape)) if number == 2 else shape
        initial = g.constant(g.elements(own, lo, hi))
        names.append(g.kept(g.builder.state(f"state{number}", initial, lo, hi), 0))
    return names


def _successor(g: _Layouts, state: str, states: list[str]) -> str:
    """The next value of a state: a state, reversed or in another order of axes, or any value within its interval."""
    shape = g.shape_of(state)
    kind = g.number(0, 3)
    lo, hi = g.builder.range(state).hull()
    if kind == 0:
        same = [name for name in states if g.shape_of(name) == shape]
        return g.choice(same)
    if kind == 1:
        alike = [name for name in states if sorted(g.shape_of(name)) == sorted(shape)]
        moved = g.reordered(g.choice(alike), shape)
        rank = len(shape)
        return g.one("slice", moved, begin=(-1,) * rank, end=tuple(-n - 1 for n in shape), strides=(-1,) * rank)
    found = g.adapted(g.small(g.choice(g.values)), shape)
    bounds = g.builder.range(found).hull()
    return found if lo <= bounds[0] and bounds[1] <= hi else g.one("clip", found, a_min=lo, a_max=hi)


def _outputs(g: _Layouts, states: list[str]) -> list[str]:
    """The values that nothing reads, a few that others read too, and now and then a state, an input or one twice."""
    names = [name for name in g.made if name not in g.read]
    names += [g.choice(g.made) for _ in range(g.number(0, 2)) if g.made]
    if not g.number(0, 3):
        names.append("x" if g.chance() else g.choice(g.values))
    if states and g.chance():
        names.append(g.choice(states))
    return names
