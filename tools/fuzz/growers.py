"""Random valid programs: graphs of all ops, deep, over odd shapes and extreme data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from cvm.limits import INT32_MAX
from cvm.program import Output, Program
from tools.fuzz.growth import LARGEST, Draw, Growth, Shape
from tools.plain_ops import PLAIN

__all__ = ["GROWERS", "Sample", "sample"]


@dataclass(frozen=True)
class Sample:
    """A program, the ops of its nodes, the length of its longest chain of nodes, and inputs for some runs."""

    program: Program
    ops: tuple[str, ...]
    depth: int
    runs: tuple[Mapping[str, npt.NDArray[np.int32]], ...]


def unary(g: Growth, op: str) -> None:
    g.add(op, [g.operand()])


def same_shape(g: Growth, op: str) -> None:
    a = g.limited(g.operand(), 30)
    g.add(op, [a, g.limited(g.like(g.shape_of(a)), 30)])


def broadcast(g: Growth, op: str) -> None:
    bits = {"broadcast_add": 30, "broadcast_sub": 30, "broadcast_mul": 15}.get(op, 31)
    a = g.limited(g.operand(), bits)
    shape = g.broadcastable(g.shape_of(a))
    b = g.limited(g.source(shape) if g.chance() else g.adapted(g.small(g.choice(g.values)), shape), bits)
    g.add(op, [a, b] if g.chance() else [b, a])


def reduce(g: Growth, op: str) -> None:
    x = g.operand()
    shape = g.shape_of(x)
    axes = [axis - len(shape) * g.number(0, 1) for axis in range(len(shape)) if g.chance()]
    g.random.shuffle(axes)
    if op == "sum":
        x = g.limited(x, 31 - prod(shape).bit_length())
    g.add(op, [x], axes=tuple(axes), keepdims=g.chance(), exclude=g.chance())


def conv2d(g: Growth, op: str) -> None:
    groups, ic, opg = g.number(1, 3), g.number(1, 2), g.number(1, 2)
    kernel = (g.number(1, 3), g.number(1, 3))
    padding, dilation = (g.number(0, 2), g.number(0, 2)), (g.number(1, 2), g.number(1, 2))
    extents = [
        max(1, d * (k - 1) + 1 - 2 * p) + g.number(0, 2) for k, d, p in zip(kernel, dilation, padding, strict=True)
    ]
    x = g.adapted(g.operand(), (g.number(1, 2), groups * ic, *extents))
    weights = (groups * opg, ic, *kernel)
    w = g.adapted(g.small(g.choice(g.values)), weights) if not g.number(0, 2) else g.source(weights)
    bits = g.choice((7, 8, 12))
    inputs = [g.limited(x, 23 - bits), g.limited(w, bits)]  # 18 products at most, below 2^28
    if g.chance():
        inputs.append(g.limited(g.source(weights[:1]), 30))
    stride = (g.number(1, 3), g.number(1, 3))
    g.add(op, inputs, padding=padding, stride=stride, dilation=dilation, groups=groups)


def dense(g: Growth, op: str) -> None:
    m, k, n = g.number(1, 3), g.number(1, 6), g.number(1, 4)
    x = g.adapted(g.operand(), (m, k))
    w = g.adapted(g.small(g.choice(g.values)), (n, k)) if not g.number(0, 2) else g.source((n, k))
    bits = g.choice((7, 8, 12, 15))
    inputs = [g.limited(x, 27 - bits), g.limited(w, bits)]
    if g.chance():
        inputs.append(g.limited(g.source((n,)), 30))
    g.add(op, inputs)


def max_pool2d(g: Growth, op: str) -> None:
    x = g.ranked(4)
    windows = [_window(g, extent) for extent in g.shape_of(x)[2:]]
    pool_size, padding, strides, ceil_modes = zip(*windows, strict=True)
    ceil_mode = all(ceil_modes) and g.chance()
    g.add(op, [x], pool_size=pool_size, padding=padding, strides=strides, ceil_mode=ceil_mode)


def _window(g: Growth, extent: int) -> tuple[int, int, int, bool]:
    """A window along one axis: its size, padding and stride, and whether it may be counted in ceil mode."""
    padding = g.number(0, 1)
    size = g.number(padding + 1, max(padding + 1, min(3, extent + 2 * padding)))
    stride = g.number(1, 3)
    steps = extent + 2 * padding - size
    if steps // stride * stride - padding >= extent:  # the last window would lie in the padding
        stride = 1
    return size, padding, stride, -(-steps // stride) * stride - padding < extent


def upsampling(g: Growth, op: str) -> None:
    x = g.ranked(4)
    g.add(op, [x], scale=g.number(1, 3 if prod(g.shape_of(x)) <= LARGEST // 3 else 2))


def clip(g: Growth, op: str) -> None:
    bounds = sorted(max(-INT32_MAX, bound) for bound in (*g.interval(), g.number(-300, 300)))
    g.add(op, [g.operand()], a_min=bounds[0], a_max=bounds[1])


def cvm_clip(g: Growth, op: str) -> None:
    g.add(op, [g.operand()], precision=g.number(1, 32))


def shift(g: Growth, op: str) -> None:
    g.add(op, [g.operand()], precision=g.number(1, 32), shift_bit=g.number(1, 32))


def repeat(g: Growth, op: str) -> None:
    x = g.operand()
    rank = len(g.shape_of(x))
    g.add(op, [x], axis=g.number(-rank, rank - 1), repeats=g.number(1, 3))


def tile(g: Growth, op: str) -> None:
    x = g.operand()
    reps = [1] * g.number(1, min(8, len(g.shape_of(x)) + 1))
    for _ in range(2):
        reps[g.number(0, len(reps) - 1)] = g.number(1, 2)
    g.add(op, [x], reps=tuple(reps))


def concatenate(g: Growth, op: str) -> None:
    x = g.operand()
    shape = g.shape_of(x)
    axis = g.number(-len(shape), len(shape) - 1)
    parts = [x]
    for _ in range(g.number(0, 2)):
        other = list(shape)
        other[axis] = g.number(1, 2)
        parts.append(g.like(tuple(other)))
    g.random.shuffle(parts)
    g.add(op, parts, axis=axis)


def transpose(g: Growth, op: str) -> None:
    x = g.operand()
    rank = len(g.shape_of(x))
    axes = g.draw.permutation(range(rank)) if g.number(0, 3) else []
    g.add(op, [x], axes=tuple(axis - rank * g.number(0, 1) for axis in axes))


def slice_(g: Growth, op: str) -> None:
    x = g.operand()
    begin, end, strides = [], [], []
    for n in g.shape_of(x):
        stride, first = g.choice((1, 1, 2, 3, -1, -2)), g.number(0, n - 1)
        last = g.number(first + 1, n + 1) if stride > 0 else g.number(-1, first - 1)
        begin.append(first - n * g.number(0, 1))
        end.append(last if last >= 0 else -n - 1 - g.number(0, 2))
        strides.append(stride)
    kept = g.number(0, len(begin))
    g.add(op, [x], begin=tuple(begin[:kept]), end=tuple(end[:kept]), strides=tuple(strides[:kept]))


def slice_like(g: Growth, op: str) -> None:
    x = g.operand()
    shape = g.shape_of(x)
    like = tuple(g.number(1, n) for n in shape)
    axes = [axis - len(shape) * g.number(0, 1) for axis in range(len(shape)) if g.chance()]
    g.add(op, [x, g.adapted(g.small(g.choice(g.values)), like)], axes=tuple(axes))


def indices(g: Growth, count: int) -> str:
    """Positions among ``count``: drawn ones, also beyond both ends, or any computed value."""
    if g.number(0, 2) == 0:
        return g.small(g.choice(g.values))
    shape = g.shape(g.number(1, 3))
    return (
        g.constant([g.random.randint(-2, count + 1) for _ in range(prod(shape))])
        if len(shape) == 1
        else g.source(shape, min(INT32_MAX, 2 * count))
    )


def take(g: Growth, op: str) -> None:
    x = g.operand()
    shape = g.shape_of(x)
    if g.chance():
        g.add(op, [x, indices(g, prod(shape))])
        return
    axis = g.number(-len(shape), len(shape) - 1)
    chosen = indices(g, shape[axis])
    if len(shape) + len(g.shape_of(chosen)) > 9 or prod(shape) * prod(g.shape_of(chosen)) > 20 * LARGEST:
        chosen = g.adapted(chosen, (2,))
    if len(shape) == 8:
        chosen = g.adapted(chosen, (prod(g.shape_of(chosen)),))
    g.add(op, [x, chosen], axis=axis)


def cvm_lut(g: Growth, op: str) -> None:
    x = g.operand()
    if g.chance():
        g.add(op, [x, indices(g, prod(g.shape_of(x)))])
    else:
        g.add(op, [g.source((g.choice((1, 2, 17, 256)),)), x])


def expand_dims(g: Growth, op: str) -> None:
    x = g.operand()
    rank = len(g.shape_of(x))
    g.add(op, [x], axis=g.number(-rank - 1, rank), num_newaxis=g.number(0, min(2, 8 - rank)))


def reshape(g: Growth, op: str) -> None:
    x = g.operand()
    left, target = prod(g.shape_of(x)), []
    for _ in range(g.number(0, 6)):
        divisor = g.choice([k for k in range(1, left + 1) if left % k == 0])
        target.append(divisor)
        left //= divisor
    target.insert(g.number(0, len(target)), left)
    g.add(op, [x], target_shape=tuple(target))


def squeeze(g: Growth, op: str) -> None:
    x = g.operand()
    shape = g.shape_of(x)
    if 1 not in shape and len(shape) < 8 and g.number(0, 3):
        x = g.one("expand_dims", x, axis=g.number(0, len(shape)), num_newaxis=1)
        shape = g.shape_of(x)
    ones = [axis for axis, extent in enumerate(shape) if extent == 1 and g.chance()]
    g.add(op, [x], axes=tuple(axis - len(shape) * g.number(0, 1) for axis in ones))


def where(g: Growth, op: str) -> None:
    a = g.operand()
    shape = g.shape_of(a)
    condition = g.adapted(g.small(g.choice(g.values)), shape[:1] if g.chance() else shape)
    g.add(op, [condition, a, g.like(shape)])


def get_valid_count(g: Growth, op: str) -> None:
    x = g.adapted(g.operand(), (g.number(1, 2), g.number(1, 4), g.choice((2, 3, 6, 6))))
    lo, hi = g.builder.range(x).hull()
    g.add(op, [x], score_threshold=g.number(max(lo - 1, -INT32_MAX), max(hi, -INT32_MAX + 1)))


def non_max_suppression(g: Growth, op: str) -> None:
    shapes = [name for name in g.values if len(g.shape_of(name)) == 3 and g.shape_of(name)[2] == 6]
    boxes: Shape = (g.number(1, 2), g.number(1, 6), 6)
    if shapes and g.chance():
        x = g.choice(shapes)
    else:
        x = g.adapted(g.operand(), boxes)
        if g.chance():  # few ids, and corners that overlap
            x = g.one("cvm_clip", x, precision=g.number(2, 4))
    count = g.adapted(g.small(g.choice(g.values)), g.shape_of(x)[:1]) if g.chance() else g.source(g.shape_of(x)[:1], 6)
    g.add(
        op, [x, count], iou_threshold=g.choice((1, 20, 50, 99, 100, 101, INT32_MAX)),
        max_output_size=g.number(-1, 4), force_suppress=g.chance(), top_k=g.number(-1, 6),
    )  # fmt: skip


def requantize(g: Growth, op: str) -> None:
    x = g.operand()
    shape = g.shape_of(x)
    terms = [x]
    for _ in range(g.choice((0, 0, 1, 2, 7))):
        other = tuple(extent if g.chance() else 1 for extent in shape)[g.number(0, len(shape) - 1) :]
        terms.append(g.adapted(g.small(g.choice(g.values)), other))
    widest = max(g.magnitude(term) for term in terms).bit_length()
    bits = g.number(0, 59 - widest)  # eight products below 2^62 in all

    def parameter(largest: int, least: int | None = None) -> str:
        extents = tuple(extent if g.chance() else 1 for extent in shape)[g.number(0, len(shape) - 1) :]
        return g.builder.parameter(g.elements(extents, -largest if least is None else least, largest))

    multipliers = [parameter(2**bits) for _ in terms]
    shift_bits = g.number(0, 62)
    parameters = [*multipliers, parameter(2 ** g.number(0, 61) - 1), parameter(shift_bits, max(0, shift_bits - 2))]
    lo, hi = sorted(g.choice((-INT32_MAX, -32768, -128, -1, 0, 1, 127, 255, INT32_MAX)) for _ in range(2))
    rounding = g.choice(("half_up", "half_even", "toward_zero"))
    g.add(op, [*terms, *parameters], rounding=rounding, lo=lo, hi=hi)


def matmul(g: Growth, op: str) -> None:
    m, k, n = g.number(1, 3), g.number(1, 6), g.number(1, 4)
    batch = [(extent * g.number(1, 2), extent) for extent in [g.number(1, 2) for _ in range(g.number(0, 2))]]
    transpose_a, transpose_b = g.chance(), g.chance()
    of_a = (*(extent for extent, _ in batch), *((k, m) if transpose_a else (m, k)))
    of_b = (*(extent for _, extent in batch), *((n, k) if transpose_b else (k, n)))
    bits = g.choice((7, 8, 12, 15))
    a, b = (g.adapted(g.operand(), shape) if g.chance() else g.source(shape) for shape in (of_a, of_b))
    g.add(op, [g.limited(a, 27 - bits), g.limited(b, bits)], transpose_a=transpose_a, transpose_b=transpose_b)


def quotient(g: Growth, op: str) -> None:
    x = g.operand()
    shape = g.shape_of(x)

    def extents() -> Shape:
        return tuple(extent if g.chance() else 1 for extent in shape)[g.number(0, len(shape) - 1) :]

    def parameter(own: Shape, least: int, largest: int) -> str:
        return g.builder.parameter(g.elements(own, least, largest))

    terms = [x, *(g.adapted(g.small(g.choice(g.values)), extents()) for _ in range(g.choice((0, 0, 1, 5))))]
    divisors = [g.adapted(g.small(g.choice(g.values)), extents()) for _ in range(g.number(1, 3))]
    divisors = [g.one("clip", y, a_min=0, a_max=g.choice((3, 300, INT32_MAX))) for y in divisors]
    wide = 2 ** g.choice((4, 20, 31, 62))
    factors = [parameter(extents(), -wide, wide) for _ in terms]
    weights = [parameter((1,), 0, 2 ** g.choice((1, 10, 62))) for _ in divisors]
    ends = [parameter(extents(), -wide, wide), parameter((1,), 1, g.choice((1, 2, 2**33)))]
    lo, hi = sorted(g.choice((-INT32_MAX, -32768, -128, -1, 0, 1, 127, 255, INT32_MAX)) for _ in range(2))
    rounding = g.choice(("half_up", "half_even", "toward_zero"))
    g.add(op, [*terms, *divisors, *factors, *weights, *ends], terms=len(terms), rounding=rounding, lo=lo, hi=hi)


def normalize(g: Growth, op: str) -> None:
    x = g.operand()
    shape = g.shape_of(x)
    axes = [axis for axis in range(len(shape)) if g.chance()] or [0]
    x = g.limited(x, 30 - prod(shape[axis] for axis in axes).bit_length())

    def parameter(least: int, largest: int) -> str:
        own = tuple(extent if g.chance() else 1 for extent in shape)[g.number(0, len(shape) - 1) :]
        return g.builder.parameter(g.elements(own, least, largest))

    m, c, k = 2 ** g.choice((4, 20, 50, 61)), 2 ** g.choice((1, 20, 50)), 2 ** g.choice((0, 3, 20, 40))
    parameters = [parameter(-m, m), parameter(-c, c), parameter(1, k)]
    parameters += [g.builder.parameter(g.elements((1,), 1, 2 ** g.choice((0, 5, 30)))) for _ in range(2)]
    lo, hi = sorted(g.choice((-32768, -128, -1, 0, 1, 127, 255, 32767)) for _ in range(2))
    g.add(
        op, [x, *parameters], axes=tuple(axis - len(shape) * g.number(0, 1) for axis in axes),
        statistic=g.choice(("variance", "mean_square", "square_sum")), shift=g.choice((0, 0, 3, 62)),
        rounding=g.choice(("half_up", "half_even")), lo=lo, hi=hi,
    )  # fmt: skip


def update_slice(g: Growth, op: str) -> None:
    x = g.operand()
    shape = g.shape_of(x)
    axis = g.number(0, len(shape) - 1)
    own = (*shape[:axis], g.number(1, shape[axis]), *shape[axis + 1 :])
    part = g.adapted(g.operand(), own) if g.chance() else g.source(own)
    index = g.adapted(g.small(g.choice(g.values)), (1,)) if g.chance() else g.source((1,), 3)
    g.add(op, [x, part, index], axis=axis - len(shape) * g.number(0, 1))


GROWERS: dict[str, Callable[[Growth, str], None]] = {
    "sum": reduce, "max": reduce, "broadcast_add": broadcast, "broadcast_sub": broadcast, "broadcast_mul": broadcast,
    "broadcast_div": broadcast, "broadcast_max": broadcast, "broadcast_greater": broadcast, "conv2d": conv2d,
    "dense": dense, "relu": unary, "max_pool2d": max_pool2d, "upsampling": upsampling, "abs": unary,
    "cvm_precision": unary, "elemwise_add": same_shape, "elemwise_sub": same_shape, "negative": unary, "clip": clip,
    "cvm_clip": cvm_clip, "cvm_right_shift": shift, "cvm_left_shift": shift, "repeat": repeat, "tile": tile,
    "flatten": unary, "concatenate": concatenate, "transpose": transpose, "slice": slice_, "slice_like": slice_like,
    "take": take, "cvm_lut": cvm_lut, "expand_dims": expand_dims, "reshape": reshape, "squeeze": squeeze,
    "where": where, "get_valid_count": get_valid_count, "non_max_suppression": non_max_suppression,
    "requantize": requantize, "matmul": matmul, "quotient": quotient, "normalize": normalize,
    "update_slice": update_slice,
}  # fmt: skip
"""Op -> the function that adds it, with whatever its operands need, to a growing program."""
GROWERS.update({name: unary for name in PLAIN if name not in GROWERS})


def _state(g: Growth, counts: Sequence[int]) -> list[str]:
    """A few states, any value of whose shape may be their update."""
    names = []
    for index in range(g.choice(counts)):
        shape = g.shape(g.number(1, 3))
        initial = g.constant(g.elements(shape, -INT32_MAX, INT32_MAX))
        names.append(g.kept(g.builder.state(f"state{index}", initial, -INT32_MAX, INT32_MAX), 0))
    return names


def sample(
    draw: Draw,
    chosen: Callable[[], Sequence[str]],
    growers: Mapping[str, Callable[[Growth, str], None]] = GROWERS,
    states: Sequence[int] = (0, 0, 0, 1, 2),
) -> Sample:
    """A valid program with the ops that ``chosen`` gives (it is called once there are values to apply them to) and a
    chain of at least three nodes, and inputs for one run, or for three if it has state.

    ``growers`` has the function that adds each of them. The number of states is one of ``states``.
    """
    g = Growth(draw)
    g.source(g.shape())
    kept = _state(g, states)
    g.source(g.shape())
    for op in chosen():
        growers[op](g, op)
    while max(g.depth.values()) < 3:
        g.one("negative", max(g.depth, key=lambda name: g.depth[name]))
    for state in kept:
        same = [name for name in g.values if g.shape_of(name) == g.shape_of(state)]
        g.builder.update(state, g.choice(same))
    outputs = list(dict.fromkeys([g.latest, g.choice(g.values)]))
    program = g.builder.build([Output(f"y{index}", name) for index, name in enumerate(outputs)])
    runs = tuple(
        {
            item.value.name: g.elements(item.value.shape, item.value.lo, item.value.hi).astype(np.int32)
            for item in program.inputs
        }
        for _ in range(3 if kept else 1)
    )
    return Sample(program, tuple(g.ops), max(g.depth.values()), runs)
