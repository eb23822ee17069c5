"""`requantize` in float64, and joined to the sums before it: the same codes as in Python integers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.executors.numpy import NumpyExecutor
from cvm.executors.numpy.codes import FloatCodes
from cvm.program import Output, Program, ProgramBuilder, verify
from tests.executors.kernels import call_of, int32, parameter
from tests.selection import examples

MOST = 2**31 - 1


def code(x: int, m: int, c: int, s: int, lo: int, hi: int) -> int:
    """The meaning in Python integers."""
    v = m * x + c
    return min(max((v + (1 << s >> 1)) >> s, lo), hi)


@settings(max_examples=examples(300))
@given(
    m=st.one_of(st.integers(-(2**31), 2**31), st.integers(-(2**54), 2**54)),
    c=st.one_of(st.integers(-(2**40), 2**40), st.integers(-(2**54), 2**54)),
    s=st.integers(0, 62),
    bounds=st.tuples(st.integers(-300, 300), st.integers(-300, 300)),
    more=st.lists(st.integers(-MOST, MOST), max_size=20),
)
def test_codes_are_those_of_integers_at_and_around_every_threshold(
    m: int, c: int, s: int, bounds: tuple[int, int], more: list[int]
) -> None:
    lo, hi = sorted(bounds)
    around = [((k << s) - (1 << s >> 1) - c) // m + d for k in range(lo, hi + 2) for d in (-1, 0, 1)] if m else [0]
    xs = [x for x in [*around, *more, -MOST, 0, MOST] if abs(x) <= MOST]
    fits = all(abs(m * x) + abs(c) + (1 << s) < 2**63 for x in (-MOST, MOST))
    xs = xs if fits else [0]
    arrays = [int32(xs), parameter([m]), parameter([c]), parameter([s])]
    floats = FloatCodes.of(call_of("requantize", arrays, {"rounding": "half_up", "lo": lo, "hi": hi}))
    if floats is None:
        return
    found = np.empty(len(xs), np.int32)
    floats.write_all([int32(xs)], found)
    assert found.tolist() == [code(x, m, c, s, lo, hi) for x in xs]


@pytest.mark.parametrize(
    ("m", "c", "s", "proven"),
    [(2**31, 0, 44, True), (2**31, 0, 45, False), (2**53, 0, 40, True), (2**53 + 1, 0, 40, False),
     (3, 2**52, 40, True), (3, 2**53, 40, False), (1, 0, 0, True), (2**31, 0, 52, False)],
)  # fmt: skip
def test_float64_is_used_up_to_2_to_the_53(m: int, c: int, s: int, proven: bool) -> None:
    arrays = [int32([0, 1]), parameter([m]), parameter([c]), parameter([s])]
    found = FloatCodes.of(call_of("requantize", arrays, {"rounding": "half_up", "lo": 0, "hi": 255}))
    assert (found is not None) == proven


@pytest.mark.parametrize(
    ("lo", "shifts", "proven"),
    [(-(2**20), [32, 30], True), (2**20 - 255, [0, 33], False), (1 - 2**31, [20, 21], True),
     (1 - 2**31, [22, 1], False), (1 - 2**31, [24, 1], False),
     (2**31 - 256, [52, 0], False), (-1, [43, 44], True), (-1, [44, 45], False)],
)  # fmt: skip
def test_a_far_end_of_the_codes_needs_a_small_shift(lo: int, shifts: list[int], proven: bool) -> None:
    arrays = [int32([0, 1]), parameter([1, 1]), parameter([0, 0]), parameter(shifts)]
    found = FloatCodes.of(call_of("requantize", arrays, {"rounding": "half_up", "lo": lo, "hi": lo + 255}))
    ends = [abs((1 << s >> 1) - (lo << s)) + (256 << s) for s in shifts]
    assert (max(ends) <= 2**53) == proven
    assert (found is not None) == proven


def network(stride: int, dilation: int, padding: int, size: int) -> Program:
    """A depthwise convolution, a pointwise one and a product, each followed by codes."""
    build, random = ProgramBuilder(), np.random.default_rng(size)
    x = build.input("x", (2, 6, size, size + 1), -128, 127)
    weights = build.constant(random.integers(-127, 128, (6, 1, 3, 3)))
    attributes = {"padding": (padding, padding), "stride": (stride, stride), "dilation": (dilation,) * 2, "groups": 6}
    (sums,) = build.add("conv2d", [x, weights], attributes, "depthwise")

    def codes(sums: str, channels: int, rank: int, name: str) -> str:
        shape = (1, channels, *(1,) * (rank - 2))
        parameters = [random.integers(2**28, 2**29, shape), random.integers(-(2**30), 2**30, shape), np.full(shape, 37)]
        bounds = {"rounding": "half_up", "lo": -128, "hi": 127}
        return build.add("requantize", [sums, *map(build.parameter, parameters)], bounds, name)[0]

    y = codes(sums, 6, 4, "y")
    pointwise = build.constant(random.integers(-127, 128, (9, 6, 1, 1)))
    attributes = {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 1}
    (sums,) = build.add("conv2d", [y, pointwise], attributes, "pointwise")
    z = codes(sums, 9, 4, "z")
    features = math.prod(build.shape(z)[1:])
    (flat,) = build.add("reshape", [z], {"target_shape": (2, features)})
    dense = build.constant(random.integers(-127, 128, (5, features)))
    (sums,) = build.add("dense", [flat, dense], {}, "product")
    return build.build([Output("y", y), Output("last", codes(sums, 5, 2, "last"))])


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(("dilation", "padding", "size"), [(1, 1, 7), (1, 0, 14), (2, 2, 9), (2, 0, 8)])
def test_joined_codes_are_those_of_single_nodes(stride: int, dilation: int, padding: int, size: int) -> None:
    verified = verify(network(stride, dilation, padding, size))
    numpy = NumpyExecutor(verified)
    x = np.random.default_rng(0).integers(-128, 128, (2, 6, size, size + 1), np.int32)
    joined, single = numpy.run({"x": x}, {}), numpy.run({"x": x}, {}, "all")
    assert numpy.explain()[0].startswith("depthwise = conv2d: float32")
    for name, tensor in joined.values.items():
        np.testing.assert_array_equal(tensor, single.values[name], strict=True)
    weights = np.array(next(c for c in verified.program.constants if c.shape == (6, 1, 3, 3)).array())
    assert np.array_equal(single.values["depthwise"], direct(x, weights, stride, dilation, padding))


def direct(x: np.ndarray, weights: np.ndarray, stride: int, dilation: int, padding: int) -> np.ndarray:
    """A depthwise convolution, tap by tap."""
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    rows, columns = ((n - 2 * dilation - 1) // stride + 1 for n in padded.shape[2:])
    total = np.zeros((*x.shape[:2], rows, columns), np.int64)
    for i in range(3):
        for j in range(3):
            part = padded[:, :, i * dilation :, j * dilation :][:, :, ::stride, ::stride][:, :, :rows, :columns]
            total += part * weights[None, :, 0, i, j, None, None]
    return total
