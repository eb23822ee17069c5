"""softmax between dequantizeLinear and quantizeLinear: exact for few items, ties included, and bounded for more."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cvm import webnn
from tests.frontends.webnn import model
from tests.oracle import enclosures


def graph(shape: tuple[int, ...], axis: int, source: tuple[float, int], result: tuple[float, int]) -> webnn.MLGraph:
    b = webnn.MLGraphBuilder(webnn.ML().create_context(strict_scale_rank=False, executor="numpy"))
    x = b.dequantize_linear(
        b.input("x", ("int8", shape)), b.constant(np.float32(source[0])), b.constant(np.int8(source[1]))
    )
    q = b.quantize_linear(
        b.softmax(x, axis), b.constant(np.float32(result[0])), b.constant(np.array(result[1], np.uint8))
    )
    return b.build({"q": q})


def expected(row: np.ndarray, scale: float, result: tuple[float, int]) -> list[int]:
    """By integer intervals; all items alike give 1 / n."""
    found = []
    for own in row:
        powers = [Fraction(scale) * (int(q) - int(own)) for q in row]

        def share(bits: int, powers: list[Fraction] = powers) -> enclosures.Interval:
            parts = [enclosures.exp(enclosures.around(p, bits), bits) if p else model.one(bits) for p in powers]
            return enclosures.reciprocal((sum(p[0] for p in parts), sum(p[1] for p in parts)), bits)

        found.append(model.code(share, Fraction(float(np.float32(result[0]))), result[1], 0, 255))
    return found


@example(4, 0.30000001192092896, 0, 0.004999999888241291, 0, 0)  # proven within one code, not exact
@settings(max_examples=15, deadline=None)
@given(
    st.integers(2, 4), st.floats(2.0**-7, 0.5, width=32), st.integers(-128, 127), st.floats(2.0**-8, 0.25, width=32),
    st.integers(0, 40), st.integers(0, 2**32),
)  # fmt: skip
def test_few_items_are_exact(count: int, scale: float, zero: int, step: float, result_zero: int, seed: int) -> None:
    codes = np.random.default_rng(seed).integers(-128, 128, (9, count)).astype(np.int8)
    codes[0] = codes[0, 0]  # all alike
    compiled = graph(codes.shape, 1, (scale, zero), (step, result_zero))
    exact = "off by" not in compiled.explain()
    assert exact or count == 4, "of four items the sums of some scales are too near to a threshold"
    found = compiled.context.compute(compiled, {"x": codes})["q"]
    difference = found.astype(np.int64) - [expected(row, scale, (step, result_zero)) for row in codes]
    assert np.abs(difference).max() <= (0 if exact else 1)


@pytest.mark.parametrize(("count", "step"), [(2, 1.0), (4, 0.5)])
def test_items_that_are_all_alike_at_a_tie(count: int, step: float) -> None:
    """1/2 and (1/4) / 0.5 are half-way between 0 and 1, and 0 is even."""
    codes = np.full((1, count), 7, np.int8)
    compiled = graph(codes.shape, 1, (0.1, 0), (step, 0))
    assert compiled.context.compute(compiled, {"x": codes})["q"].tolist() == [[0] * count]
    assert expected(codes[0], 0.1, (step, 0)) == [0] * count


def test_many_items_are_within_the_bound_that_is_stated() -> None:
    codes = np.random.default_rng(3).integers(-128, 128, (3, 40)).astype(np.int8)
    scale = float(np.float32(0.05))
    compiled = graph(codes.shape, 1, (scale, 0), (1 / 256, 0))
    assert "off by at most 1" in compiled.explain()
    found = compiled.context.compute(compiled, {"x": codes})["q"].astype(int)
    assert abs(found - [expected(row, scale, (1 / 256, 0)) for row in codes]).max() <= 1
