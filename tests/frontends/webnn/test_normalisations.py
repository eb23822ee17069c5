"""layerNormalization and instanceNormalization: every code that of the exact number, by a model in rationals."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm import webnn
from cvm.quantization import LinearQuantizer
from tests.lowering.test_layer_normalization import expected


def grid(scale: float, zero: int) -> LinearQuantizer:
    """Codes whose parity is that of the multiples of the scale: ties go to those."""
    size = Fraction(scale)
    return LinearQuantizer((size,), (Fraction(0),), -128 - zero, 127 - zero, rounding="half_even")


def found(op: str, codes: np.ndarray, source: tuple[float, int], result: tuple[float, int], parameters: Any,
          **options: Any) -> np.ndarray:  # fmt: skip
    context = webnn.ML().create_context(strict_scale_rank=False, executor="numpy")
    b = webnn.MLGraphBuilder(context)
    scale, zero = (b.constant(np.float32(source[0])), b.constant(np.int8(source[1])))
    x = b.dequantize_linear(b.input("x", ("int8", codes.shape)), scale, zero)
    given = {name: b.constant(items) for name, items in parameters.items() if items is not None}
    y = getattr(b, op)(x, **given, **options)
    q = b.quantize_linear(y, b.constant(np.float32(result[0])), b.constant(np.int8(result[1])))
    return context.compute(b.build({"q": q}), {"x": codes})["q"]


@st.composite
def layers(draw: st.DrawFn) -> tuple[Any, ...]:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    axes = tuple(draw(st.permutations(sorted(draw(st.sets(st.integers(0, len(shape) - 1)))))))
    items = draw(st.lists(st.integers(-128, 127), min_size=math.prod(shape), max_size=math.prod(shape)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    extents = [shape[axis] for axis in axes]
    parameters = {
        name: random.normal(size=extents).astype(np.float32) if draw(st.booleans()) else None
        for name in ("scale", "bias")
    }
    scales = st.floats(2.0**-6, 1, width=32)
    source, result = ((draw(scales), draw(st.integers(-128, 127))) for _ in range(2))
    epsilon = draw(st.sampled_from([1e-5, 1.0, 0.25]))
    return np.array(items, np.int8).reshape(shape), axes, source, result, parameters, epsilon


def spread(items: np.ndarray | None, axes: tuple[int, ...], shape: tuple[int, ...], default: float) -> np.ndarray:
    """Parameters over the given axes, in their order, as a tensor that broadcasts."""
    extents = [n if axis in axes else 1 for axis, n in enumerate(shape)]
    if items is None:
        return np.full(extents, default, np.float32)
    return items.transpose(np.argsort(axes)).reshape(extents)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(layers())
def test_layers(case: Any) -> None:
    check_layers(case)


@pytest.mark.long
@settings(max_examples=400, deadline=None)
@given(layers())
def test_many_layers(case: Any) -> None:
    check_layers(case)


def check_layers(case: Any) -> None:
    codes, axes, source, result, parameters, epsilon = case
    wanted = expected(
        codes.astype(int) - source[1], tuple(sorted(axes)), grid(source[0], 0), grid(*result), Fraction(epsilon),
        *(spread(parameters[name], axes, codes.shape, default) for name, default in (("scale", 1), ("bias", 0))),
    )  # fmt: skip
    y = found("layer_normalization", codes, source, result, parameters, axes=list(axes), epsilon=epsilon)
    np.testing.assert_array_equal(y, wanted + result[1])


@pytest.mark.sweep
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("zero", [-7, 4])
def test_instances(layout: str, zero: int) -> None:
    random = np.random.default_rng(3)
    shape = tuple({"n": 2, "c": 3, "h": 4, "w": 5}[letter] for letter in layout)
    codes = random.integers(-128, 128, shape, dtype=np.int8)
    parameters = {name: random.normal(size=3).astype(np.float32) for name in ("scale", "bias")}
    axes, channel = (layout.index("h"), layout.index("w")), (layout.index("c"),)
    source, result = (0.0625, zero), (float(np.float32(0.03)), -zero)
    wanted = expected(
        codes.astype(int) - zero, axes, grid(source[0], 0), grid(*result), Fraction(1e-5),
        *(spread(parameters[name], channel, shape, 0) for name in ("scale", "bias")),
    )  # fmt: skip
    y = found("instance_normalization", codes, source, result, parameters, layout=layout)
    np.testing.assert_array_equal(y, wanted + result[1])


def test_without_axes_after_the_first_and_without_parameters() -> None:
    """The default axes are all but the first."""
    codes = np.arange(-12, 12, dtype=np.int8).reshape(2, 3, 4)
    one, none = np.ones((1, 3, 4), np.float32), np.zeros((1, 3, 4), np.float32)
    step = float(np.float32(0.01))
    wanted = expected(codes.astype(int), (1, 2), grid(0.5, 0), grid(step, 0), Fraction(1e-5), one, none)
    np.testing.assert_array_equal(found("layer_normalization", codes, (0.5, 0), (step, 0), {}), wanted)


@pytest.mark.parametrize("op", ["layer_normalization", "instance_normalization"])
def test_what_is_refused_says_what_to_do(op: str) -> None:
    codes = np.zeros((1, 2, 2, 2), np.int8)
    with pytest.raises(webnn.NotSupportedError, match="epsilon above 0"):
        found(op, codes, (0.5, 0), (0.5, 0), {}, epsilon=0)
