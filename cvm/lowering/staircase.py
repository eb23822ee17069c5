"""Monotone functions of linear forms that are too wide for a table: the code is found among exact thresholds.

A code is the number of thresholds that the form has reached, L = sum_i P_i * X_i >= T_k, in integers. A binary search
finds it: for each bit of the code, from the highest, the threshold in the middle is looked up in a table and compared.
Where coefficients differ between channels or positions, each class of them has its own row of thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cvm.errors import Unsupported
from cvm.graph import GraphOperation
from cvm.lowering.context import Coded, Lowering
from cvm.lowering.form import LinearForm, scale_and_offset
from cvm.lowering.operands import full_value
from cvm.ops.extension import MAX_TERMS
from cvm.quantization import LinearQuantizer

__all__ = ["quantized_function"]

_DIGIT = 30
_WIDEST = 60
_MOST_BITS = 16
"""Of the codes: each has a threshold in the tables."""

Inverse = Callable[[Fraction], Fraction | None]
"""For a threshold t of the result: the least argument v with f(v) >= t; None where every argument reaches it."""


@dataclass(frozen=True, slots=True)
class _Row:
    """Thresholds of one class: L = sum factors * values is at least ``thresholds[k]`` from code lo + k + 1 on."""

    factors: tuple[int, ...]
    thresholds: tuple[int, ...]
    lo: int
    hi: int
    size: int
    """The sum of the largest absolute values of all summands."""


def quantized_function(
    lowering: Lowering, operation: GraphOperation, form: LinearForm, quantizer: LinearQuantizer, inverse: Inverse
) -> Coded:
    """The codes of a function of ``form`` that does not decrease, under ``quantizer``; exact.

    Raises `Unsupported` (``lowering.unprovable``) where the form has too many terms or does not fit 64 bits in
    integers, or where the codes have more than 16 bits (``lowering.bits``) or are rounded otherwise.
    """
    rank = form.rank
    bits = (quantizer.hi - quantizer.lo).bit_length()
    if quantizer.rounding != "half_up":
        raise _refused(lowering, operation, "rounding", f"rounding {quantizer.rounding} is not lowered")
    if bits > _MOST_BITS:
        message = f"codes of {bits} bits have too many thresholds: at most {_MOST_BITS} bits are lowered here"
        raise _refused(lowering, operation, "bits", message)
    scale, offset = scale_and_offset(quantizer, rank)
    parts = [*(term.factor for term in form.terms), form.constant, scale, offset]
    whole = np.broadcast_shapes((1,) * rank, *(part.shape for part in parts))
    columns = [part.broadcast(whole).fractions() for part in parts]
    index: dict[tuple[Fraction, ...], int] = {}
    classes = np.array([index.setdefault(key, len(index)) for key in zip(*columns, strict=True)]).reshape(whole)
    bounds = [lowering.builder.range(term.value).hull() for term in form.terms]
    rows = [_row(key, bounds, quantizer, inverse) for key in index]
    digits = max(1, *(-(-(row.hi + 1 - row.lo).bit_length() // _DIGIT) for row in rows))
    if any(row.size >= 2**_WIDEST for row in rows) or len(form.terms) + digits > MAX_TERMS:
        message = "the thresholds of this function do not fit 64 bits: quantise its operand so that zero is a code"
        raise _refused(lowering, operation, "unprovable", message)
    start = lowering.tensor_constant(operation, classes * 2**bits - 1, "start")
    code = _search(lowering, operation, form, rows, classes, start, (bits, digits))
    if quantizer.lo:
        least = lowering.tensor_constant(operation, np.array([quantizer.lo], dtype=object), "lo")
        code = lowering.emit(operation, "broadcast_add", code, least)
    if quantizer.hi - quantizer.lo != 2**bits - 1:
        code = lowering.emit(operation, "clip", code, a_min=quantizer.lo, a_max=quantizer.hi)
    return Coded(code, note=f"search among {quantizer.hi - quantizer.lo} thresholds, {len(rows)} classes")


def _refused(lowering: Lowering, operation: GraphOperation, rule: str, message: str) -> Unsupported:
    return Unsupported(f"lowering.{rule}", message, lowering.location(operation))


def _row(
    key: tuple[Fraction, ...], bounds: list[tuple[int, int]], quantizer: LinearQuantizer, inverse: Inverse
) -> _Row:
    *factors, constant, scale, offset = key
    common = math.lcm(*(factor.denominator for factor in factors))
    whole = [int(factor * common) for factor in factors]
    divisor = math.gcd(*whole) or 1
    step = Fraction(divisor, common)
    whole = [factor // divisor for factor in whole]
    ends = [sorted((p * lo, p * hi)) for p, (lo, hi) in zip(whole, bounds, strict=True)]
    lo, hi = sum(end[0] for end in ends), sum(end[1] for end in ends)
    thresholds = []
    for k in range(quantizer.lo + 1, quantizer.hi + 1):
        argument = inverse(offset + (k - Fraction(1, 2)) * scale)
        at = lo if argument is None else math.ceil((argument - constant) / step)
        thresholds.append(min(max(at, lo), hi + 1))
    size = sum(max(-end[0], end[1]) for end in ends)
    return _Row(tuple(whole), tuple(thresholds), lo, hi, size)


def _search(
    lowering: Lowering, operation: GraphOperation, form: LinearForm, rows: list[_Row], classes: np.ndarray, start: str,
    widths: tuple[int, int],
) -> str:  # fmt: skip
    """The number of thresholds reached, in [0, 2^bits); ``widths`` are those bits and the digits of a threshold."""
    bits, digits = widths
    builder = lowering.builder
    values = [full_value(lowering, operation, term.value, form.shape) for term in form.terms]
    # Entry c * 2^bits + k - 1 of the tables is the k-th threshold of class c, less the least value of L; the entries
    # for which there is none are never reached.
    entries = []
    for row in rows:
        filled = [t - row.lo for t in row.thresholds]
        entries += filled + [row.hi + 1 - row.lo] * (2**bits - len(filled))
    tables = [
        lowering.tensor_constant(
            operation, np.array([(t >> (_DIGIT * d)) % 2**_DIGIT for t in entries], dtype=object), "thresholds"
        )
        for d in range(digits)
    ]
    rank = form.rank
    factors = [
        builder.parameter(np.array([row.factors[i] for row in rows], np.int64)[classes], name="factor")
        for i in range(len(values))
    ]
    one = np.ones((1,) * rank, np.int64)
    weights = [builder.parameter(-(2 ** (_DIGIT * d)) * one, name="digit") for d in range(digits)]
    # [L >= T] = clip(L - (T - lo) - lo + 1, 0, 1)
    rest = builder.parameter(np.array([1 - row.lo for row in rows], np.int64)[classes], name="least")
    shift = builder.parameter(0 * one, name="shift")
    code = None
    for bit in reversed(range(bits)):
        half = lowering.tensor_constant(operation, np.array([2**bit], dtype=object), "half")
        reached = start if code is None else _sum(lowering, operation, code, start)
        middle = _sum(lowering, operation, reached, half)
        looked = [lowering.emit(operation, "cvm_lut", table, middle) for table in tables]
        part = lowering.emit(
            operation, "requantize", *values, *looked, *factors, *weights, rest, shift, rounding="half_up", lo=0, hi=1
        )
        if bit:
            part = lowering.emit(operation, "broadcast_mul", part, half)
        code = part if code is None else _sum(lowering, operation, code, part)
    assert code is not None
    return code


def _sum(lowering: Lowering, operation: GraphOperation, first: str, second: str) -> str:
    return lowering.emit(operation, "broadcast_add", first, second)
