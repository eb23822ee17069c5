"""Functions of wide sums: brackets that floats find are right by exact arithmetic, and no threshold has changed."""

from __future__ import annotations

import json
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.errors import Unsupported
from cvm.lowering.proofs import crossings
from cvm.lowering.proofs.crossings import ABOVE, BELOW, BETWEEN, Crossings
from cvm.quantization import LinearQuantizer
from cvm.quantization.reals import FUNCTIONS, Real, rational
from cvm.quantization.steps import step
from tests.lowering.table_cases import CurveCase, curve_cases, ranged, refusal_or_digest

DIGESTS: dict[str, str] = json.loads((Path(__file__).parent / "curve_digests.json").read_text())
"""Written by the compiler that searched for each threshold alone, in decimals."""

CASES: dict[str, list[CurveCase]] = defaultdict(list)
for _case in curve_cases():
    CASES[_case.name].append(_case)


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES))
def test_the_thresholds_of_a_function_have_not_changed(name: str) -> None:
    found = {case.key: refusal_or_digest(case) for case in CASES[name]}
    assert found == {key: DIGESTS[key] for key in found}


def test_every_digest_is_compared() -> None:
    assert {case.key for items in CASES.values() for case in items} == set(DIGESTS)


def reached(function: object, x: float, quantizer: LinearQuantizer, code: int) -> bool:
    number: Real = function(rational(Fraction(x)))  # type: ignore[operator]
    at = step(quantizer, code)
    return at.reached(number.exact) if number.exact is not None else number.compare(at.number()) > 0


_POSITIVE = Fraction(1, 90), Fraction(9)
SPANS = {"log": _POSITIVE, "log2": _POSITIVE, "sqrt": (Fraction(0), Fraction(9))}
RISING = ("atan", "exp", "floor", "log", "log2", "sigmoid", "softplus", "sqrt", "tanh")


@pytest.mark.sweep
@pytest.mark.parametrize("name", RISING)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_a_bracket_holds_where_the_function_reaches_the_step(name: str, data: st.DataObject) -> None:
    low, high = SPANS.get(name, (Fraction(-7), Fraction(5)))
    low += data.draw(st.fractions(0, 1, max_denominator=50))
    scale = Fraction(data.draw(st.integers(1, 400)), 1000)
    rounding = data.draw(st.sampled_from(["half_up", "half_even"]))
    quantizer = LinearQuantizer((scale,), (scale * data.draw(st.integers(-3, 3)) / 2,), -20, 20, rounding=rounding)
    function = FUNCTIONS[name]
    found = Crossings.of(function, lambda x: True, (low, high), quantizer, 0, Fraction(1, 10**4))
    for i, code in enumerate(range(-19, 21)):
        if found.where[i] == BETWEEN:
            below, above = found.below[i].item(), found.reached[i].item()
            assert low <= Fraction(below) < Fraction(above) <= high
            assert not reached(function, below, quantizer, code)
            assert reached(function, above, quantizer, code)
        elif found.where[i] in (BELOW, ABOVE):
            end = low if found.where[i] == BELOW else high
            number = function(rational(end))
            side = number.compare(step(quantizer, code).number())
            assert side == (1 if found.where[i] == BELOW else -1)


def test_brackets_are_narrow() -> None:
    quantizer = ranged(("0", "1"), 16)
    ends = Fraction(-9), Fraction(8)
    found = Crossings.of(FUNCTIONS["sigmoid"], lambda x: True, ends, quantizer, 0, Fraction(1, 2**22))
    between = found.where == BETWEEN
    assert between.sum() > 60000
    widths = np.sort((found.reached - found.below)[between])
    assert widths[len(widths) * 9 // 10] <= 2.0**-36
    assert widths[-1] <= 2.0**-22  # where the function is flat, floats do not tell its values apart


def test_without_floats_the_thresholds_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where floats decide nothing at all, every step is searched exactly."""
    case = CurveCase("sigmoid", ranged(("0", "1"), 6), bits=10)
    before = case.digest()

    def nothing(count: int, function: object) -> tuple[object, object]:
        return np.full(count, np.nan), np.full(count, np.nan)

    monkeypatch.setattr(crossings, "enclosed", nothing)
    assert case.digest() == before


@pytest.mark.slow
def test_codes_of_16_bits_are_found_in_seconds_or_refused_before_they_are_searched() -> None:
    start = process_time()
    CurveCase("sigmoid", ranged(("0", "1"), 16)).program()
    assert process_time() - start < 10
    start = process_time()
    with pytest.raises(
        Unsupported, match="thresholds for each of 40 classes of channels, more than 1048576"
    ) as refusal:
        CurveCase("sigmoid", ranged(("0", "1"), 16), classes=40).program()
    assert refusal.value.code == "lowering.unprovable"
    assert process_time() - start < 5
