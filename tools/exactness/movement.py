"""Operations that move elements: NNEF 1.0.1 section 4.5, and what other formats add."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate

from tests.oracle.real import Number, floor_of
from tools.exactness.call import Call, evaluates
from tools.exactness.elements import Elements, Index
from tools.exactness.windows import source

__all__: list[str] = []


def _position(index: Index, shape: tuple[int, ...]) -> int:
    found = 0
    for d, n in zip(index, shape, strict=True):
        found = found * n + d
    return found


def _index(position: int, shape: tuple[int, ...]) -> Index:
    found: list[int] = []
    for n in reversed(shape):
        position, d = divmod(position, n)
        found.append(d)
    return tuple(reversed(found))


def _integer(x: Number) -> int:
    """An index, which an ONNX model may compute as a real number: rounded half up."""
    return floor_of(x + Fraction(1, 2))[0]


@evaluates("reshape", "squeeze", "unsqueeze")
def reshape(call: Call) -> Elements:
    """The elements in row-major order under another shape."""
    x, shape = call.operands["input"], call.shapes[0]
    return call.made(lambda d: x[_index(_position(d, shape), x.shape)])


@evaluates("transpose")
def transpose(call: Call) -> Elements:
    """Axis k of the result is axis axes[k]."""
    x, axes = call.operands["input"], call.attributes["axes"]
    order = (*axes, *range(len(axes), len(x.shape)))
    places = [order.index(axis) for axis in range(len(order))]
    return call.made(lambda d: x[tuple(d[place] for place in places)])


@evaluates("split")
def split(call: Call) -> tuple[Elements, ...]:
    """Consecutive sections along the axis."""
    x, axis, ratios = call.operands["value"], call.attributes["axis"], call.attributes["ratios"]
    unit = x.shape[axis] // sum(ratios)
    starts = [0, *(unit * end for end in accumulate(ratios))]

    def part(number: int) -> Elements:
        start = starts[number]
        return call.made(lambda d: x[(*d[:axis], d[axis] + start, *d[axis + 1 :])], call.shapes[number])

    return tuple(part(number) for number in range(len(ratios)))


@evaluates("concat")
def concat(call: Call) -> Elements:
    """The tensors one after the other along the axis."""
    parts, axis = call.operands["values"], call.attributes["axis"]

    def rule(d: Index) -> Number:
        place = d[axis]
        for x in parts:
            if place < x.shape[axis]:
                found: Number = x[(*d[:axis], place, *d[axis + 1 :])]
                return found
            place -= x.shape[axis]
        raise IndexError(d)

    return call.made(rule)


@evaluates("stack")
def stack(call: Call) -> Elements:
    """The tensors one after the other along a new axis."""
    parts, axis = call.operands["values"], call.attributes["axis"]
    return call.made(lambda d: parts[d[axis]][(*d[:axis], *d[axis + 1 :])])


@evaluates("unstack")
def unstack(call: Call) -> tuple[Elements, ...]:
    """The slices along the axis, without it."""
    x, axis = call.operands["value"], call.attributes["axis"]

    def part(number: int) -> Elements:
        return call.made(lambda d: x[(*d[:axis], number, *d[axis:])], call.shapes[number])

    return tuple(part(number) for number in range(x.shape[axis]))


@evaluates("slice")
def slice_(call: Call) -> Elements:
    """The elements from begin on along the axes, every stride-th."""
    x, a = call.operands["input"], call.attributes
    starts, steps = [0] * len(x.shape), [1] * len(x.shape)
    for axis, first, step in zip(a["axes"], a["begin"], a["stride"] or (1,) * len(a["axes"]), strict=True):
        starts[axis] = first + x.shape[axis] if first < 0 else min(first, x.shape[axis] - (step < 0))
        steps[axis] = step
    return call.made(lambda d: x[tuple(start + step * i for start, step, i in zip(starts, steps, d, strict=True))])


@evaluates("pad")
def pad(call: Call) -> Elements:
    """The tensor with elements of its border around it."""
    x, a = call.operands["input"], call.attributes

    def rule(d: Index) -> Number:
        found = [source(i - before, n, a["border"]) for i, (before, _), n in zip(d, a["padding"], x.shape, strict=True)]
        inside = tuple(place for place in found if place is not None)
        return x[inside] if len(inside) == len(found) else Fraction(a["value"])

    return call.made(rule)


@evaluates("tile")
def tile(call: Call) -> Elements:
    """The tensor repeated along every axis."""
    x = call.operands["input"]
    return call.made(lambda d: x[tuple(i % n for i, n in zip(d, x.shape, strict=True))])


@evaluates("gather")
def gather(call: Call) -> Elements:
    """The slices along the axis at the given indices."""
    x, indices, axis = call.operands["input"], call.operands["indices"], call.attributes["axis"]
    rank = len(indices.shape)

    def rule(d: Index) -> Number:
        place = _integer(indices[d[axis : axis + rank]])
        if not 0 <= place < x.shape[axis]:
            raise ValueError(f"not satisfied: the index {place} is below {x.shape[axis]}")
        found: Number = x[(*d[:axis], place, *d[axis + rank :])]
        return found

    return call.made(rule)


@evaluates("update_slice")
def update_slice(call: Call) -> Elements:
    """The input with a slice along the axis replaced, which begins at the start, clipped so that it fits."""
    x, update, start = (call.operands[name] for name in ("input", "update", "start"))
    axis = call.attributes["axis"]

    def rule(d: Index) -> Number:
        first = min(max(_integer(start[(0,) * len(start.shape)]), 0), x.shape[axis] - update.shape[axis])
        inside = first <= d[axis] < first + update.shape[axis]
        found: Number = update[(*d[:axis], d[axis] - first, *d[axis + 1 :])] if inside else x[d]
        return found

    return call.made(rule)


@evaluates("nearest_upsample")
def nearest_upsample(call: Call) -> Elements:
    """Every element repeated along the axes of space."""
    x, factor = call.operands["input"], (1, 1, *call.attributes["factor"])
    return call.made(lambda d: x[tuple(i // f for i, f in zip(d, factor, strict=True))])


@evaluates("nearest_downsample")
def nearest_downsample(call: Call) -> Elements:
    """Every factor-th element along the axes of space."""
    x, factor = call.operands["input"], (1, 1, *call.attributes["factor"])
    return call.made(lambda d: x[tuple(i * f for i, f in zip(d, factor, strict=True))])


@evaluates("copy_n")
def copy_n(call: Call) -> tuple[Elements, ...]:
    """The tensor, several times."""
    return (call.operands["x"],) * len(call.shapes)
