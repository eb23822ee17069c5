from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import floor

import numpy as np
import pytest

from formal.registry import OPS
from formal.tensor import elements
from tests.formal.formal_tensors import arange, call, tensor

ROUNDINGS: dict[str, Callable[[Fraction], int]] = {
    "half_up": lambda v: floor(v + Fraction(1, 2)),
    "half_even": round,
    "toward_zero": int,
}
"""Each rounding said with exact fractions."""


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("s", [0, 1, 2, 3, 7, 40])
def test_requantize_rounds_the_exact_quotient(rounding: str, s: int) -> None:
    xs = [*range(-70, 71), 2**31 - 1, -(2**31) + 1]
    for m, c in ((1, 0), (-3, 5), (2**39, 2**39), (2**40 - 1, -(2**60))):
        expected = [ROUNDINGS[rounding](Fraction(m * x + c, 2**s)) for x in xs]
        wide = call("requantize", xs, [m], [c], [s], rounding=rounding, lo=-(2**80), hi=2**80)
        assert wide == expected
        narrow = call("requantize", xs, [m], [c], [s], rounding=rounding, lo=-3, hi=4)
        assert narrow == [sorted((-3, y, 4))[1] for y in expected]


def test_requantize_sums_its_terms_with_parameters_broadcast_to_the_output() -> None:
    x = [arange((2, 3, 2), start) for start in (-5, 100, 7)]
    m = [np.array([[[2]], [[3]]]), np.array([[[1], [-2], [4]]]), np.array([5])]
    c, s = arange((3, 2), -10), np.array([[1], [0], [2]])
    expected = np.floor_divide(m[0] * x[0] + m[1] * x[1] + m[2] * x[2] + c, 2**s)
    result = OPS["requantize"](*(tensor(item) for item in (*x, *m, c, s)), rounding="half_up", lo=-(2**31), hi=2**31)
    assert not isinstance(result, tuple)
    halves = np.floor_divide(2 * (m[0] * x[0] + m[1] * x[1] + m[2] * x[2] + c) + 2**s, 2 ** (s + 1))
    assert elements(result) == halves.ravel().tolist()
    assert elements(result) != expected.ravel().tolist()


def test_an_unknown_rounding_is_an_error() -> None:
    with pytest.raises(ValueError, match="no rounding 'up'"):
        call("requantize", [1], [1], [0], [1], rounding="up", lo=-1, hi=1)


def test_broadcast_greater_is_strict() -> None:
    assert call("broadcast_greater", [[1], [2], [3]], [2]) == [[0], [0], [1]]
