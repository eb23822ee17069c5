"""Operations on the bits of integers, which NNEF does not have. They are lowered to tables, of wide integers for each
digit of 8 bits.

A negative integer has the bits of its two's complement, in any width. Let x = sum_i d_i * 256^i, where the last digit
is in [-128, 127] and the others are in [0, 255], and let y have such digits too. Then the result is the sum of the
results for each pair of digits, weighted in the same way.
"""

from __future__ import annotations

import numpy as np

from cvm.limits import INT32_MAX
from cvm.lowering.claims import exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import LinearForm, Term
from cvm.lowering.parts.operands import integers
from cvm.lowering.rules.integers import combined
from cvm.quantization.rationals import Rationals

__all__: list[str] = []

_FUNCTIONS: dict[str, np.ufunc] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_DIGIT = 8


@rule("bitwise", claim=exact("a table over both operands, or over each digit of 8 bits of both"))
def bitwise(lowering: Lowering) -> list[Result]:
    """The attribute ``kind`` ("and", "or", "xor") of the bits of x and y, which have one rank and hold integers."""
    shape = lowering.output_shape()
    values = [integers(lowering, name).broadcast(shape) for name in ("x", "y")]
    terms = []
    for number, (first, second) in enumerate(_digits(lowering, values)):
        value = _by_table(lowering, first, second)
        terms.append(Term(value, Rationals.scalar(2 ** (_DIGIT * number), len(shape))))
    return [LinearForm(shape, tuple(terms), Rationals.scalar(0, len(shape)))]


def _by_table(lowering: Lowering, first: Value, second: Value) -> Value:
    """The operation on two values that are single digits."""
    (low, high), (least, most) = (value.range.hull() for value in (first, second))
    run = most - least + 1
    end = (high - low + 1) * run - 1
    index = combined(lowering, [first, second], (run, 1), -low * run - least, 0, (0, end))
    rows, columns = np.arange(low, high + 1).reshape(-1, 1), np.arange(least, most + 1)
    items = _FUNCTIONS[str(lowering.operation.attributes["kind"])](rows, columns)
    table = lowering.tensor_constant(items.ravel(), "bits")
    return lowering.emit("cvm_lut", table, index)


def _digits(lowering: Lowering, values: list[Value]) -> list[list[Value]]:
    """Pairs of digits of two values, from the lowest one on. Both values get the same number of digits."""
    found = []
    everything = (-INT32_MAX, INT32_MAX)
    while not all(_is_digit(*value.range.hull()) for value in values):
        half = 2 ** (_DIGIT - 1)  # subtracted, since rounding adds it, so that the result is a floor
        above = [combined(lowering, [value], (1,), -half, _DIGIT, everything) for value in values]
        found.append(
            [
                combined(lowering, [value, more], (1, -(2**_DIGIT)), 0, 0, (0, 2**_DIGIT - 1))
                for value, more in zip(values, above, strict=True)
            ]
        )
        values = above
    return [*found, values]


def _is_digit(lo: int, hi: int) -> bool:
    """Whether all integers of [lo, hi] are unsigned digits, or all are signed digits."""
    return bool((lo >= 0 and hi < 2**_DIGIT) or (lo >= -(2 ** (_DIGIT - 1)) and hi < 2 ** (_DIGIT - 1)))
