"""Proven ranges hold: what FORMAL computes from inputs within their ranges lies within the proven ranges."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cvm.errors import Invalid
from cvm.ops import REGISTRY, Call, Op, Range, Shape, get
from formal.registry import OPS
from formal.tensor import indices, stored

from .strategies import Draw, proven_call

Array = npt.NDArray[Any]


def executed(name: str, arrays: list[Array], attributes: dict[str, Any]) -> list[Array]:
    """The outputs of FORMAL, as arrays of Python integers."""
    tensors = [stored(array.shape, [int(item) for item in array.ravel()]) for array in arrays]
    found = OPS[name](*tensors, **attributes)
    outputs = found if isinstance(found, tuple) else (found,)
    return [
        np.array([tensor[d] for d in indices(tensor.shape)], dtype=object).reshape(tensor.shape) for tensor in outputs
    ]


@st.composite
def members(draw: Draw, shape: Shape, bounds: Range) -> Array:
    """A tensor within its range; its elements are mostly at the ends of their intervals."""
    lo, hi = (np.broadcast_to(end, shape).ravel() for end in (bounds.lo, bounds.hi))
    corner = draw(st.sampled_from(["low", "high", "any"]))
    if corner != "any":
        return (lo if corner == "low" else hi).reshape(shape)
    choices = draw(st.lists(st.integers(0, 5), min_size=lo.size, max_size=lo.size))
    middle = lo + (hi - lo) // 3
    picked = [(a, a, b, b, m, min(a + 1, b))[k] for a, b, m, k in zip(lo, hi, middle, choices, strict=True)]
    return np.array(picked, np.int64).reshape(shape)


def within(bounds: Range, values: Array) -> bool:
    return bool((bounds.lo <= values).all() and (values <= bounds.hi).all())


@pytest.mark.sweep
@pytest.mark.parametrize("name", REGISTRY)
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_outputs_lie_in_the_proven_ranges(name: str, data: st.DataObject) -> None:
    check_outputs(name, data)


@pytest.mark.long
@pytest.mark.parametrize("name", REGISTRY)
@settings(deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_many_outputs_lie_in_the_proven_ranges(name: str, data: st.DataObject) -> None:
    check_outputs(name, data)


def check_outputs(name: str, data: st.DataObject) -> None:
    op = get(name)
    call = data.draw(proven_call(op))
    shapes, proven = op.infer(call), op.prove(call)
    arrays = [data.draw(members(shape, bounds)) for shape, bounds in zip(call.shapes, call.ranges, strict=True)]
    outputs = executed(name, arrays, dict(call.attributes))
    assert [output.shape for output in outputs] == list(shapes)
    for bounds, output in zip(proven, outputs, strict=True):
        assert within(bounds, output)
        assert within(bounds.per_channel(), output)


INTERVALS = [(lo, hi) for lo in range(-3, 4) for hi in range(lo, 4)]


def hull_of_outputs(name: str, intervals: tuple[tuple[int, int], ...], attributes: dict[str, Any]) -> tuple[int, int]:
    arguments = np.array(list(itertools.product(*(range(lo, hi + 1) for lo, hi in intervals))), np.int64)
    (output,) = executed(name, list(arguments.T), attributes)
    return int(output.min()), int(output.max())


def hull_proven(op: Op, intervals: tuple[tuple[int, int], ...], attributes: dict[str, Any]) -> tuple[int, int]:
    ranges = tuple(Range.uniform(1, lo, hi) for lo, hi in intervals)
    (proven,) = op.prove(Call(((1,),) * len(intervals), op.parse(attributes), ranges))
    return proven.hull()


UNARY: list[tuple[str, dict[str, Any]]] = [
    ("relu", {}),
    ("abs", {}),
    ("cvm_precision", {}),
    ("negative", {}),
    *(("clip", {"a_min": lo, "a_max": hi}) for lo, hi in [(-2, 1), (1, 2), (-5, 5), (0, 0)]),
    *(("cvm_clip", {"precision": p}) for p in (1, 2, 3, 32)),
    *(("cvm_right_shift", {"precision": p, "shift_bit": s}) for p in (1, 2, 32) for s in (1, 2, 32)),
    *(("cvm_left_shift", {"precision": p, "shift_bit": s}) for p in (1, 4, 32) for s in (1, 32)),
]
BINARY = [name for name in REGISTRY if name.startswith(("broadcast_", "elemwise_"))]


@pytest.mark.parametrize(("name", "attributes"), UNARY)
def test_the_range_of_a_unary_op_is_the_hull_of_its_values(name: str, attributes: dict[str, Any]) -> None:
    for interval in INTERVALS:
        assert hull_proven(get(name), (interval,), attributes) == hull_of_outputs(name, (interval,), attributes)


@pytest.mark.parametrize("name", BINARY)
def test_the_range_of_a_binary_op_is_the_hull_of_its_values(name: str) -> None:
    for pair in itertools.product(INTERVALS, repeat=2):
        assert hull_proven(get(name), pair, {}) == hull_of_outputs(name, pair, {})


def test_the_range_of_where_is_the_hull_of_its_values() -> None:
    narrow = [(-1, 0), (1, 1), (-2, 3)]
    for condition, a, b in itertools.product(INTERVALS, narrow, narrow):
        intervals = (condition, a, b)
        assert hull_proven(get("where"), intervals, {}) == hull_of_outputs("where", intervals, {})


@pytest.mark.parametrize("rounding", ["half_up", "half_even", "toward_zero"])
def test_the_range_of_requantize_is_the_hull_of_its_values(rounding: str) -> None:
    op, attributes = get("requantize"), {"rounding": rounding, "lo": -4, "hi": 5}
    for m, c, s in itertools.product([-3, 0, 2, 7], [-5, 0, 1, 2, 6], [0, 1, 2, 3]):
        parameters = [np.array([item]) for item in (m, c, s)]
        for lo, hi in INTERVALS:
            ranges = (Range.uniform(1, lo, hi), *(Range.exactly(item) for item in parameters))
            (proven,) = op.prove(Call(((1,),) * 4, op.parse(attributes), ranges))
            x = np.arange(lo, hi + 1)
            (output,) = executed("requantize", [x, *parameters], attributes)
            assert proven.hull() == (output.min(), output.max())


def extreme(name: str, arrays: list[Array], x: Range, attributes: dict[str, Any], largest: bool) -> Array:
    """The extreme values of each output element of a map that is linear in its first input, found by linearity."""
    shape = arrays[0].shape
    zero = np.zeros(shape, np.int64)
    (total,) = executed(name, [zero, *arrays[1:]], attributes)
    base = total.copy()
    for index in itertools.product(*map(range, shape)):
        unit = zero.copy()
        unit[index] = 1
        (response,) = executed(name, [unit, *arrays[1:]], attributes)
        ends = [(response - base) * int(np.broadcast_to(end, shape)[index]) for end in (x.lo, x.hi)]
        total = total + (np.maximum(*ends) if largest else np.minimum(*ends))
    return total


@pytest.mark.parametrize("name", ["conv2d", "dense"])
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_with_constant_weights_the_range_of_each_channel_is_attained(name: str, data: st.DataObject) -> None:
    op = get(name)
    call = data.draw(proven_call(op))
    x = call.ranges[0].per_channel()
    constants = [
        np.array(data.draw(st.lists(st.integers(-9, 9), min_size=math.prod(shape), max_size=math.prod(shape))))
        for shape in call.shapes[1:]
    ]
    arrays = [array.reshape(shape) for array, shape in zip(constants, call.shapes[1:], strict=True)]
    (proven,) = op.prove(Call(call.shapes, call.attributes, (x, *map(Range.exactly, arrays))))
    attributes, inputs = dict(call.attributes), [np.zeros(call.shapes[0], np.int64), *arrays]
    others = tuple(axis for axis in range(proven.rank) if axis != 1)
    least = extreme(name, inputs, x, attributes, largest=False).min(axis=others, keepdims=True)
    largest = extreme(name, inputs, x, attributes, largest=True).max(axis=others, keepdims=True)
    assert (proven.lo == least).all()
    assert (proven.hi == largest).all()


def test_a_table_is_searched_between_the_clamped_ends_of_each_channels_interval() -> None:
    table = np.array([5, -1, 7, 3, 9, -8])
    indices_ = Range(np.array([[-3], [1], [3]]).T, np.array([[0], [3], [99]]).T)
    (proven,) = get("cvm_lut").prove(Call(((6,), (2, 3)), get("cvm_lut").parse({}), (Range.exactly(table), indices_)))
    assert proven.lo.tolist() == [[5, -1, -8]]
    assert proven.hi.tolist() == [[5, 7, 9]]


@pytest.mark.parametrize(("name", "attributes", "target"), [
    ("reshape", {"target_shape": (1, 3, 4)}, (1, 3, 1)),
    ("reshape", {"target_shape": (3, 4)}, (3, 1)),
    ("transpose", {"axes": (1, 0, 2, 3)}, (3, 1, 1, 1)),
    ("squeeze", {"axes": (0,)}, (3, 1, 1)),
    ("expand_dims", {"axis": 0}, (1, 1, 3, 1, 1)),
])  # fmt: skip
def test_ranges_per_channel_follow_their_channels(name: str, attributes: dict[str, Any], target: Shape) -> None:
    x = Range(np.arange(3).reshape(1, 3, 1, 1), np.arange(10, 13).reshape(1, 3, 1, 1))
    op = get(name)
    (proven,) = op.prove(Call(((1, 3, 2, 2),), op.parse(attributes), (x,)))
    assert proven.lo.shape == target
    assert proven.lo.ravel().tolist() == [0, 1, 2]


END = 2**31 - 1


@pytest.mark.parametrize("bias", [-END, END])
@pytest.mark.parametrize("seed", range(3))
def test_sums_beyond_int64_are_exact(seed: int, bias: int) -> None:
    weights = np.random.default_rng(seed).integers(END - 99, END + 1, (2, 7)) * np.array([[1], [-1]])
    least, largest = [], []
    for row in weights.tolist():
        least.append(sum(min(w * -END, w * END) for w in row) + bias)
        largest.append(sum(max(w * -END, w * END) for w in row) + bias)
    ends = (Range.exactly(np.full(2, bias)),)
    x = Range.uniform(2, -END, END)
    op = get("dense")
    (dense,) = op.prove(Call(((1, 7), (2, 7), (2,)), op.parse({}), (x, Range.exactly(weights), *ends)))
    assert (dense.lo.ravel().tolist(), dense.hi.ravel().tolist()) == (least, largest)
    op, x = get("conv2d"), Range.uniform(4, -END, END)
    for shape in ((2, 7, 1, 1), (2, 1, 1, 7)):
        data = (1, shape[1], 1, shape[3])
        kernel = Range.exactly(weights.reshape(shape))
        (conv,) = op.prove(Call((data, shape, (2,)), op.parse({}), (x, kernel, *ends)))
        assert (conv.lo.ravel().tolist(), conv.hi.ravel().tolist()) == (least, largest)


def test_a_bias_may_lift_a_sum_beyond_int64() -> None:
    a, b = 2**30 + 1, 2**31 - 2
    assert 4 * a * b < 2**63 <= 4 * a * b + END
    op = get("dense")
    weights, x = Range.exactly(np.full((1, 4), a)), Range.exactly(np.full((1, 4), b))
    (proven,) = op.prove(Call(((1, 4), (1, 4), (1,)), op.parse({}), (x, weights, Range.uniform(1, END, END))))
    assert proven.hull() == (4 * a * b + END,) * 2


def test_bounds_of_a_wide_outer_product_are_not_made() -> None:
    rows, columns = Range.exactly(np.arange(1000).reshape(-1, 1)), Range.exactly(np.arange(1000).reshape(1, -1))
    op = get("broadcast_add")
    (proven,) = op.prove(Call(((1000, 1), (1, 1000)), op.parse({}), (rows, columns)))
    assert proven.lo.shape == (1, 1000)
    assert proven.hull() == (0, 1998)


def test_the_verdict_on_int64_is_exact_at_its_end() -> None:
    op = get("requantize")
    attributes = op.parse({"rounding": "half_up", "lo": 0, "hi": 1})
    shapes = ((1,),) * 4
    room = 2**63 - 1 - 2**60 - (2**31 - 1) * 2**30

    def call(c: int) -> Call:
        parameters = (Range.exactly(np.array([item], np.int64)) for item in (2**30, c, 61))
        return Call(shapes, attributes, (Range.uniform(1, 0, 2**31 - 1), *parameters))

    op.prove(call(room))
    with pytest.raises(Invalid) as caught:
        op.prove(call(room + 1))
    assert caught.value.code == "ops.requantize.C7"
