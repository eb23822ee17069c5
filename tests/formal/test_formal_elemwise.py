from __future__ import annotations

from fractions import Fraction
from math import floor

import pytest

from tests.formal.formal_tensors import call

LARGEST = 2**31 - 1
NUMBERS = [*range(-130, 131), *(s * (2**k + e) for k in range(8, 31) for e in (-1, 0, 1) for s in (1, -1)),
           LARGEST, -LARGEST]  # fmt: skip


def test_ops_on_one_tensor() -> None:
    assert call("abs", NUMBERS) == [max(x, -x) for x in NUMBERS]
    assert call("negative", NUMBERS) == [0 - x for x in NUMBERS]


def test_ops_on_two_tensors() -> None:
    other = NUMBERS[::-1]
    assert call("elemwise_add", NUMBERS, other) == [a + b for a, b in zip(NUMBERS, other, strict=True)]
    assert call("elemwise_sub", NUMBERS, other) == [a - b for a, b in zip(NUMBERS, other, strict=True)]


def test_cvm_precision_is_the_smallest_number_of_bits_that_holds_the_magnitude() -> None:
    for x, bits in zip(NUMBERS, call("cvm_precision", NUMBERS), strict=True):
        assert bits >= 1
        assert abs(x) < 2**bits
        assert bits == 1 or abs(x) >= 2 ** (bits - 1)


def test_clip_is_the_nearest_number_in_the_interval() -> None:
    for a_min, a_max in ((-7, 3), (0, 0), (5, 100), (-LARGEST, LARGEST), (-LARGEST, -LARGEST)):
        assert call("clip", NUMBERS, a_min=a_min, a_max=a_max) == [sorted((a_min, x, a_max))[1] for x in NUMBERS]


@pytest.mark.parametrize("precision", range(1, 33))
def test_cvm_clip_is_symmetric(precision: int) -> None:
    alpha = 2 ** (precision - 1) - 1
    assert call("cvm_clip", NUMBERS, precision=precision) == [sorted((-alpha, x, alpha))[1] for x in NUMBERS]


@pytest.mark.parametrize("shift_bit", range(1, 33))
def test_right_shift_rounds_the_exact_quotient_half_up(shift_bit: int) -> None:
    for precision in (1, 2, 8, 31, 32):
        alpha = 2 ** (precision - 1) - 1
        quotients = [floor(Fraction(x, 2**shift_bit) + Fraction(1, 2)) for x in NUMBERS]
        found = call("cvm_right_shift", NUMBERS, precision=precision, shift_bit=shift_bit)
        assert found == [sorted((-alpha, q, alpha))[1] for q in quotients]


@pytest.mark.parametrize("shift_bit", range(1, 33))
def test_left_shift_clips_the_exact_product(shift_bit: int) -> None:
    for precision in (1, 2, 8, 31, 32):
        alpha = 2 ** (precision - 1) - 1
        found = call("cvm_left_shift", NUMBERS, precision=precision, shift_bit=shift_bit)
        assert found == [sorted((-alpha, x * 2**shift_bit, alpha))[1] for x in NUMBERS]
