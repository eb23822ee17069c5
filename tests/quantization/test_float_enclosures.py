"""Enclosures in float64 hold the true numbers, by an oracle in integers; codes are decided by them or not at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer, float_enclosures
from cvm.quantization.enclosures import Arithmetic
from cvm.quantization.float_enclosures import FLOATS, FloatInterval, between
from cvm.quantization.many import Many, Numbers, codes_of, enclosed, many_rationals, taken
from cvm.quantization.reals import FUNCTIONS, Real, Undefined, code, floor, rational, sigmoid
from tests.oracle import enclosures
from tests.selection import examples

BITS = 1400
LOOSE = 2.0**-40
"""Far wider than any enclosure of a number near 1."""

ORACLE: dict[str, tuple[Callable[[enclosures.Interval, int], enclosures.Interval], float, float]] = {
    "exp": (enclosures.exp, -600.0, 600.0),
    "log": (enclosures.log, 1e-290, 1e290),
    "sqrt": (enclosures.square_root, 0.0, 1e290),
    "sin": (enclosures.sin, -10000.0, 10000.0),
    "atan": (enclosures.arctangent, -1e20, 1e20),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Numbers beyond the range of float64 are meant."""
    with np.errstate(all="ignore"):
        yield


def numbers(low: float, high: float) -> st.SearchStrategy[float]:
    near = st.floats(max(low, -4.0), min(high, 4.0), allow_subnormal=False)
    return near | st.floats(low, high, allow_subnormal=False)


def enclosing(name: str, x: float) -> FloatInterval:
    at = np.array([x])
    found: FloatInterval = getattr(FLOATS, name)((at, at))
    return found


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ORACLE))
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_an_enclosure_holds_the_number_of_the_oracle(name: str, data: st.DataObject) -> None:
    oracle, low, high = ORACLE[name]
    x = data.draw(numbers(low, high))
    found = enclosing(name, x)
    if name == "sqrt" and x < 2.0**-900:  # squares of such roots are beyond the range of float64
        return
    ends = oracle(enclosures.around(Fraction(x), BITS), BITS)
    assert Fraction(found[0].item()) <= Fraction(ends[1], 2**BITS)
    assert Fraction(ends[0], 2**BITS) <= Fraction(found[1].item())
    if abs(found[0].item()) < 4:
        assert found[1].item() - found[0].item() < LOOSE


@settings(max_examples=20, deadline=None)
@given(st.floats(-9, 9, allow_subnormal=False))
def test_an_enclosure_of_the_error_function_meets_that_in_decimals(x: float) -> None:
    found = enclosing("erf", x)
    fine = Arithmetic.of(60)
    low, high = fine.erf(fine.rational(Fraction(x)))
    assert Fraction(found[0].item()) <= Fraction(high)
    assert Fraction(low) <= Fraction(found[1].item())
    assert found[1].item() - found[0].item() < LOOSE


@settings(max_examples=examples(200), deadline=None)
@given(*[st.floats(-1e150, 1e150, allow_subnormal=False)] * 2)
def test_sums_products_and_quotients_hold_the_rational(x: float, y: float) -> None:
    pair = [(np.array([item]), np.array([item])) for item in (x, y)]
    exact = {"add": Fraction(x) + Fraction(y), "mul": Fraction(x) * Fraction(y)}
    if y:
        exact["div"] = Fraction(x) / Fraction(y)
    for name, truth in exact.items():
        low, high = (end.item() for end in getattr(FLOATS, name)(*pair))
        if math.isfinite(low) and math.isfinite(high):
            assert Fraction(low) <= truth <= Fraction(high)


@given(st.fractions(), st.fractions(0, 1))
def test_floats_around_rationals(x: Fraction, width: Fraction) -> None:
    low, high = (end.item() for end in between(x, x + width))
    assert Fraction(low) <= x
    assert x + width <= Fraction(high)


@pytest.mark.parametrize(
    ("name", "x"),
    [("log", 0.0), ("log", -1.0), ("sqrt", -1e-9), ("exp", 700.0), ("sin", 1e9), ("exp", math.inf), ("sqrt", math.inf)],
)
def test_outside_of_the_domain_nothing_is_known(name: str, x: float) -> None:
    assert all(np.isnan(end).all() for end in enclosing(name, x))


@pytest.mark.parametrize("wrong", [lambda x: x * 1.0001, lambda x: x + 1e-9, lambda x: np.zeros_like(x)])
@pytest.mark.parametrize("name", ["log", "sqrt"])
def test_the_library_may_say_anything(name: str, wrong: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong guess makes an enclosure wide, or leaves the number unknown; it makes none wrong."""
    right = getattr(np, name)
    monkeypatch.setattr(float_enclosures.np, name, lambda x: wrong(right(x)))
    low, high = (end.item() for end in enclosing(name, 3.7))
    truth = getattr(math, name)(3.7)
    assert math.isnan(low) or low < truth < high


# Functions of many numbers


def along(function: Callable[[Real], Real], xs: list[Fraction]) -> Numbers:
    inputs = many_rationals(xs)
    return Numbers(enclosed(len(xs), lambda at: function(taken(inputs, at))), lambda i: function(rational(xs[i])))


DOMAINS = {"acosh": 1, "log": 0, "log2": 0, "sqrt": 0, "rsqrt": 0}
ROUNDINGS = st.sampled_from(["half_up", "half_even", "toward_zero"])


@st.composite
def quantisers(draw: st.DrawFn) -> Quantizer:
    if draw(st.integers(0, 4)) == 0:
        return LogarithmicQuantizer(draw(st.integers(-3, 9)), draw(st.integers(1, 6)))
    scale = draw(st.sampled_from([Fraction(1, 2), Fraction(1, 64), Fraction(3, 70), Fraction(1, 30000)]))
    lo = draw(st.integers(-40000, 10))
    offset = scale * draw(st.fractions(-3, 3, max_denominator=4))
    return LinearQuantizer((scale,), (offset,), lo, lo + draw(st.integers(1, 70000)), rounding=draw(ROUNDINGS))


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_codes_of_many_numbers_are_those_of_each(name: str, data: st.DataObject) -> None:
    """Also where a function is piecewise, has no value for some, or takes a number to a tie."""
    least = DOMAINS.get(name, -4)
    xs = data.draw(st.lists(st.fractions(least, 4, max_denominator=48), min_size=1, max_size=12))
    quantizer = data.draw(quantisers())
    defined, codes = [], []
    for x in xs:
        try:
            codes.append(code(FUNCTIONS[name](rational(x)), quantizer))
            defined.append(x)
        except Undefined:
            pass
    if defined:
        assert codes_of(along(FUNCTIONS[name], defined), quantizer).tolist() == codes


@pytest.mark.parametrize("distance", [0, 1, -1])
def test_thresholds_nearer_than_floats_tell_are_decided_exactly(distance: int) -> None:
    """The threshold between the codes 0 and 1 is put 10^-30 above and below sigmoid(1), nearer than floats can tell."""
    fine = Arithmetic.of(50)
    bounds = sigmoid(rational(1)).bounds(fine)
    assert bounds is not None
    at = Fraction(bounds[0]) + Fraction(distance, 10**30) + (0 if distance else Fraction(1))
    quantizer = LinearQuantizer((Fraction(1),), (at - Fraction(1, 2),), 0, 1)
    found = along(sigmoid, [Fraction(1)])
    assert codes_of(found, quantizer).tolist() == [1 if distance < 0 else 0]


def test_an_unwidened_enclosure_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the outward step, enclosures are wrong, and the comparison with the oracle says so."""
    monkeypatch.setattr(float_enclosures, "outward", lambda low, high: (low, high))
    wrong = 0
    for n in range(1, 200):
        x = n / 64
        low, high = (Fraction(end.item()) for end in enclosing("exp", x))
        ends = enclosures.exp(enclosures.around(Fraction(x), BITS), BITS)
        wrong += not (low <= Fraction(ends[1], 2**BITS) and Fraction(ends[0], 2**BITS) <= high)
    assert wrong > 20


def test_a_number_of_which_nothing_is_known_is_made_at_once_and_the_others_when_asked_for() -> None:
    made: list[int] = []

    def make(index: int) -> Real:
        made.append(index)
        return rational(index)

    found = Numbers((np.array([0.0, np.nan, 2.0]), np.array([0.0, np.nan, 2.0])), make)
    assert made == [1]
    assert codes_of(found, LinearQuantizer((Fraction(1),), (Fraction(0),), 0, 9)).tolist() == [0, 1, 2]
    assert made == [1]
    assert found[2] is found[-1]
    assert made == [1, 2]
    assert len(found[0:2]) == 2
    with pytest.raises(IndexError):
        found[3]


def test_a_function_that_asks_for_digits_leaves_all_unknown() -> None:
    inputs = many_rationals([Fraction(1), Fraction(2)])
    low, high = enclosed(2, lambda at: rational(floor(taken(inputs, at))))
    assert np.isnan(low).all()
    assert np.isnan(high).all()


def test_answers_that_differ_are_taken_apart() -> None:
    xs = [Fraction(-2), Fraction(3), Fraction(0), Fraction(-1, 3)]
    runs: list[int] = []

    def absolute(x: Real) -> Real:
        assert isinstance(x, Many)
        runs.append(x.low.size)
        return x if x.sign > 0 else -x

    inputs = many_rationals(xs)
    low, high = enclosed(4, lambda at: absolute(taken(inputs, at)))
    assert runs[0] == 4
    assert sorted(runs[1:]) == [1, 2]
    assert [low[0], low[1]] == [2, 3]
    assert np.isnan(low[2])  # zero is at the threshold: not decided here
    assert low[3] <= 1 / 3 <= high[3]
