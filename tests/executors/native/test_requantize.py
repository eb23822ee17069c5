"""`requantize` in machine integers is the definition, in every arithmetic, and nothing leaves the bits it is given."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from cvm.executors.native.emit.requantize import Terms, biased, terms
from cvm.program import Output, ProgramBuilder
from tests.executors.native.comparison import compare
from tests.selection import examples

LARGEST = 2**63 - 1
LEAST, MOST = -(2**31) + 1, 2**31 - 1
ROUNDINGS = ("half_up", "half_even", "toward_zero")


def exact(xs: Sequence[int], ms: Sequence[int], c: int, s: int, rounding: str, lo: int, hi: int) -> int:
    """The definition."""
    value = Fraction(sum(m * x for m, x in zip(ms, xs, strict=True)) + c, 2**s)
    if rounding == "half_up":
        result = floor(value + Fraction(1, 2))
    elif rounding == "half_even":
        result = round(value)
    else:
        result = int(value)
    return min(max(result, lo), hi)


def require(value: int, bits: int) -> int:
    """The value, which must be one of a signed integer of so many bits."""
    assert -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
    return value


def machine(found: Terms, xs: Sequence[int], channel: int) -> int:
    """What the code computes, step by step, every step within its bits."""
    result = uncut(found, xs, channel)
    return min(max(result, found.rule.lo), found.rule.hi) if found.rule.clips else require(result, 32)


def uncut(found: Terms, xs: Sequence[int], channel: int) -> int:
    rule = found.rule
    bits = 32 if rule.arithmetic == "narrow" else 64
    ms = [int(np.broadcast_to(m, (2,))[channel]) for m in found.multipliers]
    c, s = (int(np.broadcast_to(array, (2,))[channel]) for array in (found.offset, found.shift))
    total = require(c, bits)
    for m, x in zip(ms, xs, strict=True):
        total = require(total + require(require(m, bits) * x, bits), bits)
    if rule.arithmetic == "narrow":
        assert 0 <= s < 32
        return total >> s
    if rule.arithmetic == "high":
        assert 0 <= s < 32
        return (total >> 32) >> s
    assert 0 <= s < 64
    if rule.rounding == "half_even":
        some = min(s, 1)
        total = require(total + (1 << (s - some)) - 1 + ((total >> s) & some), 64)
    elif rule.rounding == "toward_zero" and total < 0:
        total = require(total + (1 << s) - 1, 64)
    return total >> s


EDGES = [0, 1, -1, 2, 127, 255, 4095, 4096, 4097, 2**15, 2**20, MOST, LEAST]
ENDS = st.sampled_from(EDGES) | st.integers(LEAST, MOST) | st.integers(-5000, 5000)
WIDE = st.integers(0, 62).flatmap(lambda bits: st.integers(-(2**bits) + 1, 2**bits - 1)) | st.sampled_from(
    (2**62 - 1, -(2**62) + 1, 0, 1)
)


@st.composite
def cases(draw: Any) -> tuple[list[tuple[int, int]], list[np.ndarray], np.ndarray, np.ndarray, str, int, int]:
    """Intervals and parameters, for two channels, that the verifier accepts."""
    count = draw(st.sampled_from((1, 1, 1, 2, 3)))
    intervals = [tuple(sorted((draw(ENDS), draw(ENDS)))) for _ in range(count)]
    s = draw(st.integers(0, 62))
    shift = np.array([s, max(0, s - draw(st.integers(0, 3)))])
    ms = []
    for lo, hi in intervals:
        room = max(0, 62 - max(abs(lo), abs(hi)).bit_length() - (count if count > 1 else 0))
        bits = draw(st.integers(0, max(0, room)) | st.just(max(0, room)) | st.just(62))
        ms.append(np.array([draw(WIDE) >> (62 - bits) for _ in range(2)]))
    c = np.array([draw(WIDE) >> draw(st.integers(0, 62)) for _ in range(2)])
    lo, hi = sorted((draw(ENDS), draw(ENDS)))
    for channel in range(2):
        parts = [[int(m[channel]) * x for x in ends] for m, ends in zip(ms, intervals, strict=True)]
        positive = sum(max(0, *pair) for pair in parts) + max(0, int(c[channel])) + ((1 << int(shift[channel])) >> 1)
        negative = sum(min(0, *pair) for pair in parts) + min(0, int(c[channel]))
        assume(positive <= LARGEST and negative >= -LARGEST)
    return intervals, ms, c, shift, draw(st.sampled_from(ROUNDINGS)), lo, hi


def chosen(case: Any) -> Terms:
    intervals, ms, c, s, rounding, lo, hi = case
    magnitudes = [max(abs(a), abs(b)) for a, b in intervals]
    return terms(magnitudes, ms, c, s, rounding, lo, hi)


def check(case: Any, data: st.DataObject) -> None:
    intervals, ms, c, s, rounding, lo, hi = case
    found = chosen(case)
    event(found.rule.arithmetic)
    magnitudes = [max(abs(a), abs(b)) for a, b in intervals]
    moved = {bias: biased(found, magnitudes, bias) for bias in (0, 1, 128, 255)}
    corners = [[a, b, *data.draw(st.lists(st.integers(a, b), max_size=3))] for a, b in intervals]
    for channel in range(2):
        for index in range(max(map(len, corners))):
            for repeat in range(2):
                xs = [corner[(index + repeat * n) % len(corner)] for n, corner in enumerate(corners)]
                right = exact(xs, [int(m[channel]) for m in ms], int(c[channel]), int(s[channel]), rounding, lo, hi)
                assert machine(found, xs, channel) == right
                for bias, terms_ in moved.items():
                    if terms_ is not None:  # the clip is left to the store
                        event("the clip is left to the store")
                        assert min(max(machine(terms_, xs, channel), lo + bias), hi + bias) == right + bias


@settings(max_examples=examples(250))
@given(cases(), st.data())
def test_terms_compute_the_definition_within_their_bits(case: Any, data: st.DataObject) -> None:
    check(case, data)


@pytest.mark.long
@settings(max_examples=20_000)
@given(cases(), st.data())
def test_terms_compute_the_definition_within_their_bits_at_length(case: Any, data: st.DataObject) -> None:
    check(case, data)


def arithmetic(magnitude: int, m: int, c: int, s: int, rounding: str = "half_up") -> str:
    arrays = (np.array([value]) for value in (m, c, s))
    m_, c_, s_ = arrays
    return terms([magnitude], [m_], c_, s_, rounding, -128, 127).rule.arithmetic


def test_arithmetics_are_chosen_by_size() -> None:
    assert arithmetic(2**15, 2**15, 0, 22) == "narrow"
    assert arithmetic(2**21, 2**30 + 12345, 0, 42) == "high"
    assert arithmetic(2**20, 2**30, 0, 20) == "wide"
    assert arithmetic(2**15, 2**15, 0, 22, "half_even") == "wide"
    # A multiplier of 31 bits is shortened where no code changes.
    assert arithmetic(255, 2**30 + 12345, 0, 37) == "narrow"


def test_every_small_input_of_a_cut_form_has_its_code() -> None:
    random = np.random.default_rng(0)
    narrowed = 0
    for _ in range(60):
        x = int(random.integers(1, 4096, endpoint=True))
        m, s = random.integers(-(2**31), 2**31, 2), random.integers(32, 45, 2)
        c = random.integers(-(2**40), 2**40, 2)
        found = terms([x], [m], c, s, "half_up", -(2**15), 2**15)
        narrowed += found.rule.arithmetic == "narrow"
        for value in range(-x, x + 1, max(1, x // 50)):
            for k in (0, 1):
                right = exact([value], [int(m[k])], int(c[k]), int(s[k]), "half_up", -(2**15), 2**15)
                assert machine(found, [value], k) == right
    assert narrowed


def test_every_pair_of_codes_of_a_cut_form_has_its_sum() -> None:
    """Two terms, as residual connections have them: all pairs, and again with the bias of bytes."""
    random = np.random.default_rng(1)
    narrowed = 0
    for bits in (30, 31, 31, 31, 31, 31, 31, 31):
        x, y = 128, int(random.choice([127, 255]))
        ms = [random.integers(-(2**bits), 2**bits, 2) for _ in range(2)]
        s = np.array([bits + 1, bits])
        c = random.integers(-(2 ** (bits + 5)), 2 ** (bits + 5), 2)
        found = terms([x, y], ms, c, s, "half_up", -128, 127)
        if found.rule.arithmetic != "narrow":
            continue
        narrowed += 1
        moved = biased(found, [x, y], 128)
        assert moved is not None
        a, b = np.meshgrid(np.arange(-x, x + 1), np.arange(-y, y + 1))
        for k in (0, 1):
            right = np.clip((ms[0][k] * a + ms[1][k] * b + c[k] + (1 << int(s[k]) >> 1)) >> int(s[k]), -128, 127)
            for form, bias in ((found, 0), (moved, 128)):
                total = form.multipliers[0][k] * a + form.multipliers[1][k] * b + form.offset[k]
                assert np.abs(total).max() < 2**31
                codes = np.clip((total >> int(form.shift[k])) - bias, -128, 127)
                np.testing.assert_array_equal(codes, right)
    assert narrowed >= 6


LIMITS = [
    # interval, m, c, s
    ((0, 0), [2**62 - 1, 5], [3, -3], [1, 62]),  # nothing is multiplied
    ((0, 0), [2**40], [5], [1]),
    ((-1, 1), [2**62 - 1, -(2**62) + 1], [0, 0], [62, 61]),
    ((-1, 1), [2**62 - 1, 1], [-(2**61), 2**61], [62, 0]),
    ((0, 4096), [2**50], [-(2**62) - 2**32], [31]),  # |m| |x| + |c| leaves 64 bits for an x that does not occur
    ((0, 4096), [2**51 - 2**40], [-(2**40)], [31]),
    ((LEAST, MOST), [2**31 - 1, -(2**31) + 1], [0, 2**31], [32, 31]),
    ((LEAST, MOST), [1, -1], [0, 0], [0, 0]),
    ((LEAST, MOST), [1, 1], [2**62, -(2**62)], [62, 62]),
    ((LEAST, MOST), [2**31, 2**30], [1, -1], [62, 61]),
    ((-(2**15), 2**15), [2**16 - 1, 2**16 - 1], [0, 2**14], [31, 30]),
    ((0, 255), [2**31 - 1, 3 * 2**29], [2**30, -(2**38)], [38, 39]),
    ((-3, 3), [1, 2], [0, 1], [1, 2]),  # ties
    ((-(2**20), 2**20), [2**40, 2**41], [2**39, -(2**40)], [41, 42]),
]


@pytest.mark.sweep
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_code_computes_the_definition_at_the_limits(rounding: str) -> None:
    builder, outputs = ProgramBuilder(), []
    for number, ((lo, hi), *parameters) in enumerate(LIMITS):
        for width in (1, 19):  # a scalar; whole vectors and a rest
            x = builder.input(f"x{number}_{width}", (2, 2, width), lo, hi)
            m, c, s = (builder.parameter(np.array(values).reshape(-1, 1)) for values in parameters)
            for low, high in ((LEAST, MOST), (-128, 127)):
                attributes = {"lo": low, "hi": high, "rounding": rounding}
                (y,) = builder.add("requantize", [x, m, c, s], attributes)
                outputs.append(Output(f"y{len(outputs)}", y))
    compare(builder.build(outputs), threads=[1], captures=[frozenset()])


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("where", "rounding"),
    [("per channel", "half_up"), ("per position", "half_up"), ("per tensor", "half_even"),
     ("per position", "toward_zero")],
)  # fmt: skip
def test_parameters_of_any_shape_behind_a_convolution(where: str, rounding: str) -> None:
    shape = {"per channel": (1, 37, 1, 1), "per position": (1, 37, 3, 5), "per tensor": (1,)}[where]
    random = np.random.default_rng(1)
    builder, outputs = ProgramBuilder(), []
    x = builder.input("x", (2, 7, 3, 5), -128, 127)
    weights = builder.constant(random.integers(-128, 127, (37, 7, 1, 1)))
    (sums,) = builder.add("conv2d", [x, weights])
    for bits, down in ((14, 22), (31, 40), (43, 52)):
        m = builder.parameter(random.integers(0, 2**bits, shape))
        c = builder.parameter(random.integers(-(2**bits), 2**bits, shape))
        s = builder.parameter(random.integers(down - 3, down, shape, endpoint=True))
        (y,) = builder.add("requantize", [sums, m, c, s], {"lo": -128, "hi": 127, "rounding": rounding})
        outputs.append(Output(f"y{bits}", y))
    compare(builder.build(outputs), threads=[2], captures=[frozenset()])
    for output in outputs:  # alone, so that the kernel of the convolution computes it
        compare(builder.build([output]), threads=[1], captures=[frozenset()])
