"""A multiplier of two digits gives every sum the code that the definition of `requantize` gives it, in 32 bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.executors.native.emit.digits import Digits, digit_parameters


def exact(m: int, c: int, s: int, x: int, lo: int, hi: int) -> int:
    return min(max((m * x + c) >> s, lo), hi)


def int32(value: int) -> int:
    assert -(2**31) <= value < 2**31
    return value


def in_lanes(found: Digits, x: int, lo: int, hi: int) -> int:
    """What the instructions give: no number but the wrapping products m x and their sums has more than 32 bits."""
    half = 1 << found.bits - 1
    m, c = (int(found.multiplier[0]) + half) >> found.bits, int(found.offset[0]) >> found.bits
    n, d = int(found.multiplier[0]) - (m << found.bits), int(found.offset[0]) - (c << found.bits)
    lower = int32(int32(n * x) + d) >> found.bits
    total = int32(int32(m) * x + int32(c) + lower)
    return min(max(total >> found.shift, lo), hi)


def searched(m: int, c: int, s: int, ends: tuple[int, int], bounds: tuple[int, int]) -> Digits | None:
    arrays = [np.array([number]) for number in (m, c, s, *ends)]
    return digit_parameters(arrays[0], arrays[1], arrays[2], (arrays[3], arrays[4]), bounds)


@st.composite
def parameters(draw: st.DrawFn) -> tuple[int, int, int, tuple[int, int], tuple[int, int]]:
    """m, c and s with which the sums from end to end have some results, and bounds."""
    size = 2 ** draw(st.integers(1, 22))
    least, most = sorted(draw(st.lists(st.integers(-size, size), min_size=2, max_size=2, unique=True)))
    s = draw(st.integers(0, 50))
    steps = draw(st.integers(0, 2**12))
    m = min(max(0, steps * 2**s // (most - least) + draw(st.integers(-3, 3))), 2**34)
    c = draw(st.integers(-m * size - 2**s, 2**s)) + draw(st.sampled_from([0, 2**s // 2]))
    return m, c, s, (least, most), draw(st.sampled_from([(0, 255), (-128, 127), (0, 1), (3, 200), (-500, 500)]))


@settings(max_examples=40)
@given(parameters(), st.data())
def test_every_sum_has_its_result(
    case: tuple[int, int, int, tuple[int, int], tuple[int, int]], data: st.DataObject
) -> None:
    check_sums(case, data)


@pytest.mark.long
@settings(max_examples=10_000)
@given(parameters(), st.data())
def test_every_sum_has_its_result_for_many(
    case: tuple[int, int, int, tuple[int, int], tuple[int, int]], data: st.DataObject
) -> None:
    check_sums(case, data)


def check_sums(case: tuple[int, int, int, tuple[int, int], tuple[int, int]], data: st.DataObject) -> None:
    m, c, s, (least, most), (lo, hi) = case
    found = searched(*case)
    if found is None:
        return
    sums = {least, most, *data.draw(st.lists(st.integers(least, most), max_size=8))}
    if m:
        results = data.draw(st.lists(st.integers(lo, hi), min_size=1, max_size=8))
        sums |= {-((c - (result << s)) // m) + near for result in results for near in (-1, 0, 1)}
    for x in sums:
        if least <= x <= most:
            assert in_lanes(found, x, lo, hi) == exact(m, c, s, x, lo, hi)


@pytest.mark.parametrize(("taps", "least"), [(9, 128), (16, 115), (32, 75)])
def test_usual_multipliers_have_two_digits(taps: int, least: int) -> None:
    """Random multipliers of 31 bits and sums of few products of bytes: else kernels would hardly ever use the form."""
    rng = np.random.default_rng(taps)
    most = taps * 255 * 40
    shift = rng.integers(37, 42, 128)
    multiplier = rng.integers(2**30, 2**31, 128)
    offset = (rng.integers(-128, 128, 128) << shift) + (1 << (shift - 1))
    channels = zip(multiplier, offset, shift, strict=True)
    found = [searched(int(m), int(c), int(s), (-most, most), (-128, 127)) for m, c, s in channels]
    assert sum(one is not None for one in found) >= least


@pytest.mark.parametrize(
    "change",
    [
        {"multiplier": -1},
        {"shift": 63},
        {"offset": 2**62},
        {"ends": (-(2**31), 2**31 - 1)},
        {"shift": 4},
        {"bounds": (0, 0)},
        {"shift": 32, "bounds": (-600, 600)},
        {"multiplier": 2**30 + 12345, "ends": (-(2**24), 2**24)},
        {"multiplier": 2**34, "offset": -(2**34) * 2**17, "ends": (2**17, 2**17 + 100)},
        {"multiplier": 2**61, "shift": 1, "ends": (0, 0)},
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, object]) -> None:
    usual = {"multiplier": 2**30 + 1, "offset": 0, "shift": 40, "ends": (-(2**17), 2**17), "bounds": (0, 255)}
    assert searched(*usual.values()) is not None  # type: ignore[arg-type]
    assert searched(*(usual | change).values()) is None  # type: ignore[arg-type]
