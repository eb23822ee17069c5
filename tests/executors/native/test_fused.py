"""The fused form of a requantization is its definition for every sum, whatever lies in the lane beside it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.executors.native.emit.fused import LEAST, MOST, fused_parameters
from cvm.executors.native.runtime.select import available
from cvm.program import Output, ProgramBuilder
from tests.executors.native.comparison import compare

FUSING = [machine.name for machine in available() if machine.fuses]


def exact(m: int, c: int, s: int, x: int, lo: int, hi: int) -> int:
    return min(max((m * x + c) >> s, lo), hi)


def fused(wide: int, addend: int, lane: int, lo: int, hi: int) -> int:
    """What the instructions give for a lane, which holds a sum in the upper of its lowest 52 bits."""
    assert 0 <= lane < 2**52
    assert 0 <= wide < 2**52
    total = addend + (lane * wide >> 52)
    assert -(2**63) <= total < 2**63
    return min(max(total >> 32, lo), hi)


@st.composite
def parameters(draw: st.DrawFn) -> tuple[int, int, int, int, int, int]:
    """m, c and s such that the results 0 .. 255 are reached somewhere, the largest sum, and bounds."""
    largest = draw(st.integers(1, 2 ** draw(st.integers(1, MOST)) - 1))
    s = draw(st.integers(1, 52))
    steps = draw(st.integers(1, 2**12))  # results from end to end
    m = max(1, min(steps * 2**s // largest + draw(st.integers(-3, 3)), 2**31 - 1, 2**s - 1))
    c = draw(st.integers(-m * largest, 2**s)) + draw(st.sampled_from([0, 2 ** (s - 1)]))
    lo, hi = draw(st.sampled_from([(0, 255), (-128, 127), (0, 1), (3, 200), (-500, 500)]))
    return m, c, s, largest, lo, hi


@settings(max_examples=25)
@given(parameters(), st.data())
def test_every_sum_has_its_result(case: tuple[int, int, int, int, int, int], data: st.DataObject) -> None:
    check_sums(case, data)


@pytest.mark.long
@settings(max_examples=10_000)
@given(parameters(), st.data())
def test_every_sum_has_its_result_for_many(case: tuple[int, int, int, int, int, int], data: st.DataObject) -> None:
    check_sums(case, data)


def check_sums(case: tuple[int, int, int, int, int, int], data: st.DataObject) -> None:
    m, c, s, largest, lo, hi = case
    found = fused_parameters(*(np.array([value]) for value in (m, c, s, largest)), lo, hi)
    if found is None:
        return
    wide, addend, bits = int(found[0][0]), int(found[1][0]), found[2]
    firsts = {-((c - (k << s)) // m) for k in data.draw(st.lists(st.integers(lo, hi), min_size=1, max_size=8))}
    sums = {0, largest, *data.draw(st.lists(st.integers(0, largest), max_size=8))}
    sums |= {first + near for first in firsts for near in (-1, 0, 1)}
    for x in sums & set(range(largest + 1)):
        for beside in {0, largest, data.draw(st.integers(0, largest))}:
            right = exact(m, c, s, x, lo, hi)
            odd, even = (x << 32 | beside) >> (bits - LEAST), (beside << 32 | x) << (52 - bits)
            assert fused(wide, addend, odd, lo, hi) == right
            assert fused(wide, addend, even % 2**52, lo, hi) == right


def test_usual_multipliers_have_the_form() -> None:
    """Random multipliers of 31 bits and the sums of 3 x 3 windows: else kernels would hardly ever use it."""
    rng = np.random.default_rng(1)
    most = 9 * 255 * 127
    shift = rng.integers(36, 42, 128)
    multiplier = rng.integers(2**30, 2**31, 128)
    offset = -multiplier * (most // 2) + (rng.integers(0, 256, 128) << shift) + (1 << (shift - 1))
    assert fused_parameters(multiplier, offset, shift, np.full(128, most), 0, 255) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"largest": 2**MOST},
        {"multiplier": 0},
        {"multiplier": -5},
        {"multiplier": 2**20, "shift": 20},
        {"shift": 0},
        {"shift": 53},
        {"offset": 2**61 + 1},
        {"multiplier": 2**31 - 1, "shift": 31, "largest": 5000, "hi": 5000},
        {"hi": 0},
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, int]) -> None:
    usual = {"multiplier": 2**30, "offset": 0, "shift": 40, "largest": 1000, "lo": 0, "hi": 255, **change}
    arrays = [np.array([usual[name]]) for name in ("multiplier", "offset", "shift", "largest")]
    assert fused_parameters(*arrays, usual["lo"], usual["hi"]) is None


@pytest.mark.sweep
@pytest.mark.usefixtures("ways")
@pytest.mark.skipif(not FUSING, reason="this processor has no multiply-adds of 52 bits")
@pytest.mark.parametrize("groups", [1, 40])
@pytest.mark.parametrize(("lo", "hi"), [(0, 255), (-128, 127), (5, 90), (-700, 700)])
def test_kernels_compute_extreme_sums(groups: int, lo: int, hi: int) -> None:
    """Largest and least sums side by side, where what lies in the lane beside is as large as can be."""
    random = np.random.default_rng(groups)
    builder = ProgramBuilder()
    x = builder.input("x", (1, 40 if groups > 1 else 2, 6, 9), 0, 255)
    weights = random.choice([-128, 127], (40, 1 if groups > 1 else 2, 3, 3))
    weights[:4], weights[4:8], weights[8] = -128, 127, 0
    attributes = {"padding": (1, 1), "stride": (1, 1), "dilation": (1, 1), "groups": groups}
    (sums,) = builder.add("conv2d", [x, builder.constant(weights)], attributes)
    parameters = [
        random.integers(2**30, 2**31, (1, 40, 1, 1)),
        random.integers(-(2**45), 2**45, (1, 40, 1, 1)),
        random.integers(36, 40, (1, 40, 1, 1)),
    ]
    given = [sums, *map(builder.parameter, parameters)]
    (y,) = builder.add("requantize", given, {"lo": lo, "hi": hi, "rounding": "half_up"})
    compare(builder.build([Output("y", y)]), threads=[1, 2], captures=[frozenset()])
