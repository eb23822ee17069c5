"""Whole domains, not samples: every int16 element, every pair of int8, FORMAL's rule against NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from cvm.executors import create
from cvm.program import Output, ProgramBuilder, verify
from formal.registry import OPS
from formal.tensor import elements, stored

INT16 = np.arange(-(2**15), 2**15, dtype=np.int32)
INT8 = np.arange(-(2**7), 2**7, dtype=np.int32)

SHIFTS = (1, 2, 8, 15, 16, 17, 31, 32)
HARD = (
    # multiplier, offset, shift
    (1, 0, 1),
    (-1, 0, 4),
    (2**30 + 1, 0, 31),
    (1518500249, -(2**40) + 1, 38),
    (2**40 + 3, 2**55 - 1, 47),
    (2**45 - 1, 2**59 + 2**44, 60),
    (-(2**46), 2**61, 62),
    (3, -1, 1),
)
"""Multipliers with ties, next to ties, beyond 32 bits, and close to the end of 64 bits."""
HARDER = tuple(
    (odd * 2**up, (2**up - 1) * sign, down)
    for odd, (up, down), sign in product((1, 5, 999983), ((0, 3), (12, 20), (25, 40)), (-1, 1))
)


def numpy_result(op: str, tensors: Sequence[np.ndarray], parameters: Sequence[int], attributes: dict[str, Any]) -> Any:
    """The result of the NumPy executor for tensors as inputs of a program with the intervals of their elements."""
    builder = ProgramBuilder()
    names = [builder.input(f"x{index}", x.shape, int(x.min()), int(x.max())) for index, x in enumerate(tensors)]
    feeds = dict(zip(names, tensors, strict=True))
    names += [builder.parameter([item]) for item in parameters]
    (result,) = builder.add(op, names, attributes)
    return create("numpy", verify(builder.build([Output("y", result)]))).run(feeds, {}).values[result]


def check(op: str, tensors: Sequence[np.ndarray], parameters: Sequence[int] = (), **attributes: Any) -> None:
    operands = [stored(x.shape, x.ravel().tolist()) for x in tensors]
    operands += [stored((1,), [item]) for item in parameters]
    expected = OPS[op](*operands, **attributes)
    assert numpy_result(op, tensors, parameters, attributes).ravel().tolist() == elements(expected)


@pytest.mark.sweep
@pytest.mark.parametrize("op", ["cvm_right_shift", "cvm_left_shift"])
@pytest.mark.parametrize("shift_bit", SHIFTS)
def test_shifts_agree_on_all_int16(op: str, shift_bit: int) -> None:
    for precision in (8, 32):
        check(op, [INT16], precision=precision, shift_bit=shift_bit)


@pytest.mark.long
@pytest.mark.parametrize("op", ["cvm_right_shift", "cvm_left_shift"])
@pytest.mark.parametrize("shift_bit", range(1, 33))
def test_shifts_agree_on_all_int16_for_all_attributes(op: str, shift_bit: int) -> None:
    for precision in range(1, 33):
        check(op, [INT16], precision=precision, shift_bit=shift_bit)


def test_cvm_clip_agrees_on_all_int16() -> None:
    for precision in (1, 2, 8, 15, 16, 17, 32):
        check("cvm_clip", [INT16], precision=precision)


@pytest.mark.long
def test_cvm_clip_agrees_on_all_int16_for_all_precisions() -> None:
    for precision in range(1, 33):
        check("cvm_clip", [INT16], precision=precision)


def requantize(multipliers: Sequence[tuple[int, int, int]], roundings: Sequence[str]) -> None:
    for (m, c, s), rounding in product(multipliers, roundings):
        for lo, hi in ((-(2**31) + 1, 2**31 - 1), (-128, 127)) if s < 40 else ((-32768, 32767),):
            check("requantize", [INT16], (m, c, s), rounding=rounding, lo=lo, hi=hi)


@pytest.mark.sweep
@pytest.mark.parametrize("rounding", ["half_up", "half_even", "toward_zero"])
def test_requantize_agrees_on_all_int16_accumulators(rounding: str) -> None:
    requantize(HARD[3:5], [rounding])


@pytest.mark.long
@pytest.mark.parametrize("rounding", ["half_up", "half_even", "toward_zero"])
def test_requantize_agrees_on_all_int16_accumulators_for_all_hard_multipliers(rounding: str) -> None:
    requantize((*HARD, *HARDER), [rounding])


@pytest.mark.parametrize("op", ["broadcast_div", "broadcast_mul"])
def test_products_and_quotients_agree_on_all_pairs_of_int8(op: str) -> None:
    check(op, [INT8.reshape(256, 1), INT8])
