"""Fixed-point forms against enumeration of every accumulator, and proofs that must fail."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from cvm.quantization import fixed_point
from cvm.quantization.fixed_point import (
    FixedPoint,
    Unprovable,
    decides_without,
    fit,
    fits_int64,
    proves,
)
from cvm.quantization.rows import LinearRow, Row, SurdRow
from cvm.quantization.surds import ceil_surd
from tests.selection import examples


def clamped(value: int, row: Row) -> int:
    return min(max(value, row.lo), row.hi)


def exact_code(row: Row, x: tuple[int, ...]) -> int:
    """The definition of the staircase; for a surd by bisection over squares, not by the formula under test."""
    if isinstance(row, LinearRow):
        total = sum(factor * item for factor, item in zip(row.factors, x, strict=True)) + row.constant
        return clamped(total // row.denominator, row)
    below, above = row.lo, row.hi
    while below < above:
        middle = (below + above + 1) // 2
        below, above = (middle, above) if reaches(row, x[0], middle) else (below, middle - 1)
    return below


def reaches(row: SurdRow, x: int, k: int) -> bool:
    """Whether height + (slope*x + origin) / sqrt(radicand) >= k, by comparing squares with their signs."""
    left, right = row.slope * x + row.origin, k - row.height
    squares = left * left * (1 if left >= 0 else -1), right * right * row.radicand * (1 if right >= 0 else -1)
    return squares[0] >= squares[1]


def form_code(row: Row, form: FixedPoint, x: tuple[int, ...]) -> int:
    total = sum(m * item for m, item in zip(form.multipliers, x, strict=True)) + form.offset
    return clamped(total >> form.shift, row)


def assert_exact(row: Row, form: FixedPoint) -> None:
    for x in product(*(range(lo, hi + 1) for lo, hi in row.bounds)):
        assert form_code(row, form, x) == exact_code(row, x), (row, form, x)


@st.composite
def linear_rows(draw: st.DrawFn, terms: int, width: int) -> LinearRow:
    denominator = draw(st.integers(1, 10 ** draw(st.integers(1, 12))))
    factor = st.integers(-denominator, denominator).filter(bool)
    factors = tuple(draw(st.lists(factor, min_size=terms, max_size=terms)))
    starts = draw(st.lists(st.integers(-(2**12), 2**12), min_size=terms, max_size=terms))
    widths = draw(st.lists(st.integers(0, width), min_size=terms, max_size=terms))
    bounds = tuple((start, start + extent) for start, extent in zip(starts, widths, strict=True))
    middle = sum(factor * start for factor, start in zip(factors, starts, strict=True))
    constant = draw(st.integers(-20 * denominator, 20 * denominator)) - middle
    lo = draw(st.integers(-20, 20))
    return LinearRow(factors, constant, denominator, bounds, lo, lo + draw(st.integers(1, 60)))


@given(linear_rows(1, 4000))
def test_one_accumulator(row: LinearRow) -> None:
    (form,) = fit([row])
    assert proves(row, form)
    assert_exact(row, form)


@given(linear_rows(2, 60))
def test_two_accumulators_by_enumeration(row: LinearRow) -> None:
    (form,) = fit([row])
    assert proves(row, form)
    assert_exact(row, form)


@given(linear_rows(2, 90))
def test_two_accumulators_by_the_gap_lemma(row: LinearRow) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fixed_point, "_ENUMERABLE", 1)
        (form,) = fit([row])
        assert proves(row, form)
    assert_exact(row, form)


@given(linear_rows(3, 14))
def test_three_accumulators(row: LinearRow) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fixed_point, "_ENUMERABLE", 16)
        (form,) = fit([row])
        assert proves(row, form)
    assert_exact(row, form)


RATIONALS = st.fractions(-8, 8, max_denominator=500)


@settings(max_examples=examples(60))
@given(RATIONALS.filter(bool), RATIONALS, RATIONALS, st.fractions(Fraction(1, 50), 30, max_denominator=200))
def test_batch_normalisation_of_all_bytes(slope: Fraction, origin: Fraction, height: Fraction, root: Fraction) -> None:
    row = SurdRow(slope, origin, height, root, ((0, 255),), 0, 255)
    (form,) = fit([row])
    assert proves(row, form)
    assert_exact(row, form)


@given(RATIONALS.filter(bool), RATIONALS, RATIONALS, st.fractions(Fraction(1, 9), 9, max_denominator=20))
def test_batch_normalisation_with_a_rational_root_and_ties(
    slope: Fraction, origin: Fraction, height: Fraction, root: Fraction
) -> None:
    row = SurdRow(slope * root, origin * root, height, root * root, ((-60, 60),), -10, 10)
    (form,) = fit([row])
    assert_exact(row, form)
    denominator = slope.denominator * origin.denominator * height.denominator
    same = LinearRow(
        (int(slope * denominator),), int((origin + height) * denominator), denominator, row.bounds, row.lo, row.hi
    )
    assert_exact(same, form)


@given(RATIONALS.filter(bool), st.fractions(Fraction(1, 9), 9, max_denominator=20), st.integers(0, 20))
def test_the_factor_of_a_root_is_rounded_to_the_nearest_integer(
    slope: Fraction, radicand: Fraction, shift: int
) -> None:
    found = SurdRow(slope, Fraction(0), Fraction(0), radicand, ((0, 1),), 0, 1).multiplier(0, shift)
    exact_square = slope * slope / radicand * 4**shift
    nearest = abs(Fraction(found))
    assert max(nearest - Fraction(1, 2), Fraction(0)) ** 2 <= exact_square <= (nearest + Fraction(1, 2)) ** 2
    assert found * slope >= 0


@given(linear_rows(1, 500))
def test_the_interval_of_offsets_is_necessary_and_sufficient(row: LinearRow) -> None:
    (form,) = fit([row])
    assume(any(form.multipliers))  # else the code is constant, and so is the form
    proof = fixed_point._Proof(row)
    least, greatest = proof.offsets(form.multipliers, form.shift)
    for bound, beyond in ((least, -1), (greatest, 1)):
        if bound is not None:
            assert_exact(row, replace(form, offset=bound))
            wrong = replace(form, offset=bound + beyond)
            assert not proves(row, wrong)
            with pytest.raises(AssertionError):
                assert_exact(row, wrong)


@given(linear_rows(2, 25), st.integers(-4, 4), st.integers(-4, 4))
def test_what_is_proven_is_exact_and_what_is_wrong_is_never_proven(row: LinearRow, nudge: int, step: int) -> None:
    (form,) = fit([row])
    multipliers = (form.multipliers[0] + nudge * 2**20, form.multipliers[1] + step * 2**18)
    other = replace(form, multipliers=multipliers)
    if proves(row, other):
        assert_exact(row, other)


@given(linear_rows(2, 30), st.sampled_from([0, 1]))
def test_an_accumulator_that_decides_nothing(row: LinearRow, term: int) -> None:
    factors = list(row.factors)
    factors[term] = factors[term] % 7  # so small that it seldom matters
    row = replace(row, factors=tuple(factors))
    assume(row.factors[1 - term] != 0)
    if decides_without(row, term):
        for x in product(*(range(lo, hi + 1) for lo, hi in row.bounds)):
            fixed = tuple(row.bounds[term][0] if i == term else item for i, item in enumerate(x))
            assert exact_code(row, x) == exact_code(row, fixed)


def test_idle_accumulators_are_found() -> None:
    row = LinearRow((10**9, 1), 5 * 10**8, 10**9, ((0, 255), (0, 1000)), 0, 255)
    assert decides_without(row, 1)
    assert not decides_without(row, 0)


def test_constant_rows_have_the_constant_code() -> None:
    row = LinearRow((0, 0), 7, 2, ((-5, 5), (0, 9)), 0, 255)
    (form,) = fit([row])
    assert form == FixedPoint((0, 0), 3, 0)
    assert proves(row, form)
    assert not proves(row, replace(form, offset=4))


def test_all_rows_of_a_tensor_share_the_narrowest_width_that_serves() -> None:
    rows = [LinearRow((factor,), 0, 10**9, ((-(2**20), 2**20),), -128, 127) for factor in (10**6, 300_007, 999_999_937)]
    for row, form in zip(rows, fit(rows), strict=True):
        assert form.multipliers[0].bit_length() in (30, 31, 32)
        assert proves(row, form)


def test_a_sum_beyond_int64_is_never_called_a_fit() -> None:
    row = LinearRow((1,), 0, 1, ((0, 2**31 - 1),), 0, 255)
    assert fits_int64(row, FixedPoint((2**31,), 2**31, 32))
    assert not fits_int64(row, FixedPoint((2**33,), 0, 34))
    assert not fits_int64(row, FixedPoint((2**62,), 0, 34))
    # 2^32 * (2^31 - 1) + 2^32 is 2^63: one too many, and one less is not.
    assert not fits_int64(row, FixedPoint((2**32,), 2**32, 0))
    assert fits_int64(row, FixedPoint((2**32,), 2**32 - 1, 0))


def test_more_than_two_wide_accumulators_are_refused() -> None:
    wide = (0, 10**6)
    row = LinearRow((999_983, 999_979, 999_961), 0, 10**12, (wide, wide, wide), 0, 255)
    with pytest.raises(Unprovable):
        fit([row])


def test_a_real_layer_of_the_notes_needs_more_than_31_bits() -> None:
    """Two accumulators of a convolution with asymmetric weights: 31-bit multipliers do not prove, wider ones do."""
    scale = Fraction("0.66739773") / 255
    zero = Fraction("0.36885598") / scale
    mu = Fraction("4.500391") / 255 * scale / (Fraction("7.6484007") / 255)
    rest = round(zero) - zero
    denominator = (mu * rest).denominator * mu.denominator
    factors = (int(mu * denominator), int(mu * rest * denominator))
    row = LinearRow(factors, denominator * 120, denominator, ((-400_000, 450_000), (0, 144 * 255)), 0, 255)
    (form,) = fit([row])
    assert max(m.bit_length() for m in form.multipliers) > 31
    assert proves(row, form)


@given(st.fractions(-50, 50, max_denominator=60), st.fractions(0, 900, max_denominator=40), st.sampled_from([1, -1]))
def test_sums_with_a_square_root_are_rounded_up(start: Fraction, square: Fraction, sign: int) -> None:
    def not_below(t: int) -> bool:
        """t >= start + sign * sqrt(square), by comparing squares."""
        rise = t - start
        if sign > 0:
            return rise >= 0 and rise * rise >= square
        return rise >= 0 or rise * rise <= square

    found = ceil_surd(start, square, sign)
    assert not_below(found)
    assert not not_below(found - 1)


@given(linear_rows(2, 60))
def test_the_slacks_of_the_gap_lemma_are_those_that_some_value_of_the_second_accumulator_has(row: LinearRow) -> None:
    row = row if row.factors[0] > 0 else row.mirrored()
    lemma = fixed_point._Double(row)
    p, q = row.factors
    lo, hi = row.bounds[1]
    for slacks, extreme in ((lemma.least_slacks, min), (lemma.greatest_slacks, max)):
        of_all = [[(q * s + row.constant - k * row.denominator) % p for s in range(lo, hi + 1)] for k in lemma.k]
        exact = [extreme(residues) for residues in of_all]
        assert (slacks.lower() <= exact).all()
        assert (slacks.upper() >= exact).all()
        assert slacks.exact(np.arange(len(exact))).tolist() == exact


@given(linear_rows(2, 60), st.integers(-40, 40), st.integers(-40, 40))
def test_all_offsets_that_the_gap_lemma_admits_are_exact(row: LinearRow, nudge: int, step: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fixed_point, "_ENUMERABLE", 1)
        (form,) = fit([row])
        # Multipliers that are a little wrong leave an interval that is narrow, or empty.
        room = max(1, abs(form.multipliers[0]) >> 16)
        form = replace(form, multipliers=(form.multipliers[0] + nudge * room, form.multipliers[1] + step * room))
        least, greatest = fixed_point._Proof(row).offsets(form.multipliers, form.shift)
    if least is not None and greatest is not None and least > greatest:
        return
    for bound in (least, greatest):
        if bound is not None:
            assert_exact(row, replace(form, offset=int(bound)))


def test_an_accumulator_of_factor_zero_is_not_enumerated() -> None:
    row = LinearRow((999_983, 999_979, 0), 0, 3 * 10**6, ((0, 300), (0, 300), (-(10**9), 10**9)), 0, 255)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fixed_point, "_ENUMERABLE", 1)
        (form,) = fit([row])
        assert proves(row, form)
    assert form.multipliers[2] == 0
    assert_exact(replace(row, bounds=(*row.bounds[:2], (-3, 3))), form)


def test_the_addend_of_rounding_counts_towards_the_sum() -> None:
    row, most = LinearRow((1,), 0, 1, ((0, 0),), 0, 255), 2**63 - 1
    assert fits_int64(row, FixedPoint((1,), 512 - most, 10))
    assert not fits_int64(row, FixedPoint((1,), 511 - most, 10))
    assert fits_int64(row, FixedPoint((1,), most, 10))
    assert not fits_int64(row, FixedPoint((1,), most + 1, 10))


@given(RATIONALS.filter(bool), st.fractions(Fraction(1, 500), 500, max_denominator=500))
def test_the_bits_of_a_surd_factor_are_those_of_its_power_of_two(slope: Fraction, radicand: Fraction) -> None:
    bits = SurdRow(slope, Fraction(0), Fraction(0), radicand, ((0, 1),), 0, 1).scale_bits()
    square = slope * slope / radicand
    assert Fraction(4) ** (bits - 3) <= square < Fraction(4) ** bits


def test_a_third_accumulator_of_more_values_than_are_enumerated_is_refused() -> None:
    row = LinearRow((999_983, 999_979, 999_961), 0, 10**9, ((0, 10**6), (0, 10**6), (0, 600)), 0, 3)
    with pytest.raises(Unprovable, match="more than two wide accumulators"):
        fit([row])
    (form,) = fit([replace(row, bounds=(*row.bounds[:2], (0, 9)))])
    assert proves(replace(row, bounds=(*row.bounds[:2], (0, 9))), form)


@given(
    st.fractions(Fraction(1, 10**6), 10**4),
    st.fractions(-(10**6), 10**6),
    st.fractions(-300, 300, max_denominator=1000),
    st.one_of(st.fractions(Fraction(1, 10**6), 10**6), st.fractions(Fraction(1, 50), 50).map(lambda x: x * x)),
    st.sampled_from([(-128, 127), (0, 255), (-3, 4)]),
)
@example(Fraction(1, 2), Fraction(3), Fraction(0), Fraction(4), (-128, 127))  # each threshold is an integer
@example(Fraction(1, 10**6), Fraction(10**12), Fraction(1, 2), Fraction(10**18), (0, 255))  # beyond 2^52
def test_thresholds_of_a_surd_row_are_the_exact_ones(
    slope: Fraction, origin: Fraction, height: Fraction, radicand: Fraction, codes: tuple[int, int]
) -> None:
    row = SurdRow(slope, origin, height, radicand, ((-1000, 1000),), *codes)
    steps = np.array(row.steps(), dtype=object)
    found = row.thresholds(steps)
    wanted = [
        ceil_surd(-origin / slope, (k - height) ** 2 * radicand / slope**2, 1 if k >= height else -1)
        for k in row.steps()
    ]
    assert found.tolist() == wanted
    assert all(type(item) is int for item in found.tolist())
    reached = [sum(at <= end for at in wanted) for end in (-1000, 1000)]
    assert row.code_bounds() == (codes[0] + reached[0], codes[0] + reached[1])


def test_equal_rows_are_proven_once(monkeypatch: pytest.MonkeyPatch) -> None:
    proven = []
    first = fixed_point._search
    monkeypatch.setattr(fixed_point, "_search", lambda rows: proven.append(rows) or first(rows))
    row = LinearRow((10007, -30011), 4, 60013, ((-128, 127), (-2000, 2000)), -128, 127)
    steep = LinearRow((2**70 + 1,), 1, 2**70 - 1, ((-(2**31), 2**31),), -(2**31), 2**31 - 1)
    forms = fit([row])
    forms.clear()
    assert fit([row]) == list(first([row]))
    assert fit([replace(row, constant=5)]) != []
    assert [len(rows) for rows in proven] == [1, 1]
    messages = []
    for _ in range(2):
        with pytest.raises(Unprovable) as refusal:
            fit([steep])
        messages.append(str(refusal.value))
    assert messages[0] == messages[1]
    assert len(proven) == 3, "a refusal is remembered as well"


def test_many_rows_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    proven = []
    first = fixed_point._search
    monkeypatch.setattr(fixed_point, "_search", lambda rows: proven.append(rows) or first(rows))
    monkeypatch.setattr(fixed_point, "_MOST_REMEMBERED", 2)
    rows = [LinearRow((11003,), i, 60017, ((-500, 500),), -128, 127) for i in range(3)]
    assert fit(rows) == fit(rows)
    assert len(proven) == 2


@settings(deadline=None, max_examples=examples(100))
@given(linear_rows(2, 90), st.integers(1, 6))
def test_a_sample_of_the_steps_excludes_no_exact_form(row: LinearRow, stride: int) -> None:
    """Fewer steps are fewer conditions: the interval of offsets is at least as wide, for every width."""
    for width in fixed_point.WIDTHS[:3]:
        m, shift = fixed_point._multipliers(row, width)
        (least, greatest), (low, high) = (fixed_point._Proof(row, n).offsets(m, shift) for n in (1, stride))
        assert low is None or (least is not None and low <= least)
        assert high is None or (greatest is not None and greatest <= high)


def test_sampling_does_not_change_the_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [LinearRow((2**40 + k, 7**14), 3**25, 2**41, ((0, 900), (-700, 700)), -1000, 1000) for k in range(8)]
    plain = fit(rows)
    fixed_point._remembered_fit.cache_clear()
    monkeypatch.setattr(fixed_point, "_SAMPLED", 16)
    assert fixed_point._Proving(rows[0])._stride > 1
    assert fit(rows) == plain
    assert all(proves(row, form) for row, form in zip(rows, plain, strict=True))
