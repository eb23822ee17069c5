"""Strategies for calls of ops: anything at all, and valid calls with small tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from cvm.ops import REGISTRY, Call, Op, Range, Shape
from cvm.ops.catalogue import catalogue
from tools.plain_ops import PLAIN

Draw = Callable[[st.SearchStrategy[Any]], Any]
Recipe = Callable[[Draw], tuple[tuple[Shape, ...], dict[str, Any]]]

ATTRIBUTES = {entry["name"]: entry["attributes"] for entry in catalogue()}

extents = st.sampled_from([1, 1, 1, 2, 2, 3, 4])
small_integers = st.integers(-4, 4)


def shapes(least: int = 1, most: int = 4) -> st.SearchStrategy[Shape]:
    return st.lists(extents, min_size=least, max_size=most).map(tuple)


# --- anything at all -------------------------------------------------------------------------------------------------

_any_extent = st.one_of(st.integers(1, 5), st.integers(1, 2**31 - 1), st.sampled_from([1, 1, 1, 6, 4096, 2**31 - 1]))
_any_shape = st.lists(_any_extent, min_size=1, max_size=8).map(tuple)


def _attribute(spec: dict[str, Any]) -> st.SearchStrategy[Any]:
    if spec["type"] == "boolean":
        return st.booleans()
    if spec["type"] == "word":
        return st.sampled_from(spec["values"])
    least, most = spec["minimum"], spec["maximum"]
    number = st.one_of(
        st.integers(max(least, -9), min(most, 9)), st.integers(least, most), st.sampled_from([least, most])
    )
    if spec["type"] == "integer":
        return st.one_of(number, st.none()) if spec.get("optional") else number
    return st.lists(number, min_size=spec["least_length"], max_size=spec["most_length"]).map(tuple)


@st.composite
def any_call(draw: Draw, op: Op) -> Call:
    """Input shapes and attributes that need not fit: what `infer` must survive."""
    pool = draw(st.lists(st.one_of(_any_shape, shapes(1, 8)), min_size=1, max_size=3))
    least, largest = op.arity()
    count = draw(st.one_of(st.integers(least, least if largest is None else largest), st.integers(0, 20)))
    values = {spec["name"]: draw(_attribute(spec)) for spec in ATTRIBUTES[op.name]}
    return Call(tuple(draw(st.sampled_from(pool)) for _ in range(count)), op.parse(values))


# --- valid calls -----------------------------------------------------------------------------------------------------


def _axis_in(draw: Draw, rank: int) -> int:
    return int(draw(st.integers(-rank, rank - 1)))


def _axes(draw: Draw, rank: int) -> tuple[int, ...]:
    chosen = draw(st.lists(st.integers(0, rank - 1), unique=True, max_size=rank))
    return tuple(axis - draw(st.sampled_from([0, rank])) for axis in chosen)


def _unary(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    return (draw(shapes()),), {}


def _same(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    shape = draw(shapes())
    return (shape, shape), {}


def _clip(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    lo, hi = sorted(draw(st.tuples(small_integers, small_integers)))
    return (draw(shapes()),), {"a_min": lo, "a_max": hi}


def _cvm_clip(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    return (draw(shapes()),), {"precision": draw(st.integers(1, 32))}


def _shift(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    return (draw(shapes()),), {"precision": draw(st.integers(1, 32)), "shift_bit": draw(st.integers(1, 32))}


def _reduce(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    shape = draw(shapes())
    flags = {"keepdims": draw(st.booleans()), "exclude": draw(st.booleans())}
    return (shape,), {"axes": _axes(draw, len(shape)), **flags}


def _broadcast_to(draw: Draw, shape: Shape) -> Shape:
    suffix = shape[draw(st.integers(0, len(shape) - 1)) :]
    return tuple(draw(st.sampled_from([1, extent])) for extent in suffix)


def _broadcast(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    shape = draw(shapes())
    return (_broadcast_to(draw, shape), _broadcast_to(draw, shape)), {}


def _pair(draw: Draw, least: int, most: int) -> tuple[int, int]:
    number = st.integers(least, most)
    return draw(number), draw(number)


def _conv2d(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    groups, depth, breadth = (draw(st.integers(1, 2)) for _ in range(3))
    padding, stride, dilation, taps = _pair(draw, 0, 3), _pair(draw, 1, 3), _pair(draw, 1, 3), _pair(draw, 1, 3)
    least = [max(1, d * (k - 1) + 1 - 2 * p) for d, k, p in zip(dilation, taps, padding, strict=True)]
    size = [n + draw(st.integers(0, 3)) for n in least]
    weights = (groups * breadth, depth, *taps)
    bias = ((groups * breadth,),) * draw(st.integers(0, 1))
    data = (draw(st.integers(1, 2)), groups * depth, *size)
    return (data, weights, *bias), {"padding": padding, "stride": stride, "dilation": dilation, "groups": groups}


def _dense(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    rows, columns, terms = (draw(st.integers(1, 3)) for _ in range(3))
    bias = ((columns,),) * draw(st.integers(0, 1))
    return ((rows, terms), (columns, terms), *bias), {}


def _matmul(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    rows, columns, terms = (draw(st.integers(1, 3)) for _ in range(3))
    own = tuple(draw(st.integers(1, 2)) for _ in range(draw(st.integers(0, 2))))
    batch = tuple(extent * draw(st.integers(1, 2)) for extent in own)
    transpose_a, transpose_b = draw(st.booleans()), draw(st.booleans())
    a = (*batch, *((terms, rows) if transpose_a else (rows, terms)))
    b = (*own, *((columns, terms) if transpose_b else (terms, columns)))
    return (a, b), {"transpose_a": transpose_a, "transpose_b": transpose_b}


def _max_pool2d(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    window, strides, ceil_mode = _pair(draw, 1, 3), _pair(draw, 1, 3), draw(st.booleans())
    padding = tuple(draw(st.integers(0, k - 1)) for k in window)
    size = []
    for k, p, s in zip(window, padding, strides, strict=True):
        fitting = [n for n in range(1, 7) if k <= n + 2 * p and (not ceil_mode or -((k - n - 2 * p) // s) * s - p < n)]
        size.append(draw(st.sampled_from(fitting)))
    attributes = {"pool_size": window, "padding": padding, "strides": strides, "ceil_mode": ceil_mode}
    return ((draw(extents), draw(extents), *size),), attributes


def _upsampling(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    return (draw(shapes(4, 4)),), {"scale": draw(st.integers(1, 3))}


def _repeat(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    shape = draw(shapes())
    return (shape,), {"axis": _axis_in(draw, len(shape)), "repeats": draw(st.integers(1, 3))}


def _tile(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    return (draw(shapes(1, 3)),), {"reps": draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))}


def _concatenate(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    shape = draw(shapes())
    axis = _axis_in(draw, len(shape))
    at = axis % len(shape)
    parts = draw(st.lists(extents, min_size=1, max_size=3))
    return tuple((*shape[:at], n, *shape[at + 1 :]) for n in parts), {"axis": axis}


def _transpose(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    shape = draw(shapes())
    order = draw(st.one_of(st.just([]), st.permutations(range(len(shape)))))
    return (shape,), {"axes": [axis - draw(st.sampled_from([0, len(shape)])) for axis in order]}


def _slice(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    shape = draw(shapes())
    slices: list[tuple[int, int, int]] = []
    for n in shape:
        first, last = sorted(draw(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))))
        step = draw(st.integers(1, 3))
        if draw(st.booleans()):
            slices.append((first - draw(st.sampled_from([0, n])), last + 1, step))
        else:  # an end of -n - 1 is one before the first element
            slices.append((last, first - 1 - (n if first == 0 else 0), -step))
    return (shape,), dict(zip(("begin", "end", "strides"), zip(*slices, strict=True), strict=True))


def _slice_like(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    shape = draw(shapes())
    like = tuple(draw(st.integers(1, n)) for n in shape)
    axes = _axes(draw, len(shape))
    if axes:
        kept = max(axis % len(shape) for axis in axes) + 1
        like = like[: draw(st.integers(kept, len(shape)))]
    return (shape, like), {"axes": axes}


def _take(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    shape = draw(shapes(1, 3))
    axis = draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1)))
    return (shape, draw(shapes(1, 3))), {} if axis is None else {"axis": axis}


def _cvm_lut(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    return (draw(shapes(1, 2)), draw(shapes())), {}


def _expand_dims(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    shape = draw(shapes())
    return (shape,), {"axis": _axis_in(draw, len(shape) + 1), "num_newaxis": draw(st.integers(0, 3))}


def _reshape(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    shape = draw(shapes())
    slices = sorted(draw(st.lists(st.integers(1, len(shape)), max_size=3)))
    bounds = [0, *slices, len(shape)]
    target = [math.prod(shape[a:b]) for a, b in pairwise(bounds)]
    return (shape,), {"target_shape": draw(st.one_of(st.permutations(shape), st.just(target)))}


def _squeeze(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    shape = draw(shapes())
    ones = [axis for axis, n in enumerate(shape) if n == 1]
    return (shape,), {"axes": draw(st.lists(st.sampled_from(ones), unique=True)) if ones else []}


def _where(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    shape = draw(shapes())
    return (draw(st.sampled_from([shape, shape[:1]])), shape, shape), {}


def _get_valid_count(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    return ((draw(extents), draw(extents), draw(st.integers(2, 4))),), {"score_threshold": draw(small_integers)}


def _non_max_suppression(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    batches = draw(extents)
    attributes = {
        "iou_threshold": draw(st.integers(1, 101)),
        "max_output_size": draw(st.integers(-1, 2)),
        "force_suppress": draw(st.booleans()),
        "top_k": draw(st.integers(-1, 3)),
    }
    return ((batches, draw(extents), 6), (batches,)), attributes


def _requantize(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    shape, count = draw(shapes()), draw(st.integers(1, 3))
    others = tuple(_broadcast_to(draw, shape) for _ in range(2 * count + 1))
    lo, hi = sorted(draw(st.tuples(st.integers(-99, 99), st.integers(-99, 99))))
    rounding = draw(st.sampled_from(["half_up", "half_even", "toward_zero"]))
    return (shape, *others), {"rounding": rounding, "lo": lo, "hi": hi}


def _quotient(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    shape, terms, divisors = draw(shapes()), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    others = tuple(_broadcast_to(draw, shape) for _ in range(terms + divisors - 1))
    factors = tuple(_broadcast_to(draw, shape) for _ in range(terms))
    lo, hi = sorted(draw(st.tuples(st.integers(-99, 99), st.integers(-99, 99))))
    rounding = draw(st.sampled_from(["half_up", "half_even", "toward_zero"]))
    inputs = (shape, *others, *factors, *[(1,)] * divisors, _broadcast_to(draw, shape), (1,))
    return inputs, {"terms": terms, "rounding": rounding, "lo": lo, "hi": hi}


def _normalize(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    shape = draw(shapes())
    lo, hi = sorted(draw(st.tuples(st.integers(-99, 99), st.integers(-99, 99))))
    attributes = {
        "axes": _axes(draw, len(shape)) or (0,),
        "statistic": draw(st.sampled_from(["variance", "mean_square", "square_sum"])),
        "shift": draw(st.sampled_from([0, 0, 1, 62])),
        "rounding": draw(st.sampled_from(["half_up", "half_even"])),
    }
    inputs = (shape, *(_broadcast_to(draw, shape) for _ in range(3)), (1,), (1,))
    return inputs, {**attributes, "lo": lo, "hi": hi}


def _update_slice(draw: Draw) -> tuple[tuple[Shape, ...], dict[str, Any]]:
    shape = draw(shapes())
    axis = _axis_in(draw, len(shape))
    at = axis % len(shape)
    part = (*shape[:at], draw(st.integers(1, shape[at])), *shape[at + 1 :])
    return (shape, part, (1,)), {"axis": axis}


RECIPES: dict[str, Recipe] = {
    **dict.fromkeys(PLAIN, _unary),
    **dict.fromkeys(("sum", "max"), _reduce),
    **dict.fromkeys((name for name in REGISTRY if name.startswith("broadcast_")), _broadcast),
    **dict.fromkeys(("elemwise_add", "elemwise_sub"), _same),
    **dict.fromkeys(("cvm_right_shift", "cvm_left_shift"), _shift),
    "conv2d": _conv2d,
    "dense": _dense,
    "max_pool2d": _max_pool2d,
    "upsampling": _upsampling,
    "clip": _clip,
    "cvm_clip": _cvm_clip,
    "repeat": _repeat,
    "tile": _tile,
    "concatenate": _concatenate,
    "transpose": _transpose,
    "slice": _slice,
    "slice_like": _slice_like,
    "take": _take,
    "cvm_lut": _cvm_lut,
    "expand_dims": _expand_dims,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "where": _where,
    "get_valid_count": _get_valid_count,
    "non_max_suppression": _non_max_suppression,
    "requantize": _requantize,
    "matmul": _matmul,
    "quotient": _quotient,
    "normalize": _normalize,
    "update_slice": _update_slice,
}
"""How to draw a valid call: input shapes and attributes."""


@st.composite
def ranges(draw: Draw, shape: Shape, bound: int, constant: bool = False) -> Range:
    """A range of a tensor: one interval, one per channel, or a constant."""
    full = Range.exactly(np.zeros(shape, np.int64))
    kind = "constant" if constant else draw(st.sampled_from(["interval", "channels", "constant"]))
    extents = {"interval": full.over(range(full.rank)), "channels": full.per_channel(), "constant": full}[kind].lo.shape
    count = math.prod(extents)
    numbers = st.lists(st.integers(-bound, bound), min_size=count, max_size=count)
    lo = np.array(draw(numbers), np.int64).reshape(extents)
    if kind == "constant":
        return Range.exactly(lo)
    hi = np.array(draw(numbers), np.int64).reshape(extents)
    return Range(np.minimum(lo, hi), np.maximum(lo, hi))


def _positive(bounds: Range) -> Range:
    """The same with what is negative made 0."""
    return bounds.monotone(lambda ends: np.maximum(ends, 0))


@st.composite
def proven_call(draw: Draw, op: Op) -> Call:
    """A valid call with ranges of its inputs; all of them small, or some of them near the ends of int32."""
    found, attributes = RECIPES[op.name](draw)
    kinds = op.input_kinds(len(found))
    bound = draw(st.sampled_from([3, 3, 100, 2**31 - 1]))
    bounds = [
        draw(ranges(shape, bound if kind == "tensor" else min(bound, 1000), constant=kind == "parameter"))
        for shape, kind in zip(found, kinds, strict=True)
    ]
    if op.name == "requantize":
        bounds[-1] = Range.exactly(np.abs(bounds[-1].lo) % 12)
    if op.name == "quotient":
        count, terms = (len(found) - 2) // 2, attributes["terms"]
        for index in (*range(terms, count), *range(count + terms, 2 * count)):
            bounds[index] = Range.exactly(np.abs(bounds[index].lo)) if index >= count else _positive(bounds[index])
        bounds[-1] = Range.exactly(np.abs(bounds[-1].lo) + 1)
    if op.name == "normalize":
        most = 2**30 // math.prod(found[0])
        bounds[0] = bounds[0].monotone(lambda ends: np.clip(ends, -most, most))
        bounds[3:] = [Range.exactly(np.abs(item.lo) + 1) for item in bounds[3:]]
    return Call(found, op.parse(attributes), tuple(bounds))
