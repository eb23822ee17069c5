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
from cvm.quantization import LinearQuantizer

__all__ = ["quantized_function"]

_DIGIT = 30
_WIDEST = 61

Inverse = Callable[[Fraction], Fraction | None]
"""For a threshold t of the result: the least argument v with f(v) >= t; None where every argument reaches it."""


@dataclass(frozen=True, slots=True)
class _Row:
    """Thresholds of one class: L = sum factors * values is at least ``thresholds[k]`` from code lo + k + 1 on."""

    factors: tuple[int, ...]
    thresholds: tuple[int, ...]
    lo: int
    hi: int


def quantized_function(
    lowering: Lowering, operation: GraphOperation, form: LinearForm, quantizer: LinearQuantizer, inverse: Inverse
) -> Coded:
    """The codes of a function of ``form`` that does not decrease, under ``quantizer``; exact.

    Raises `Unsupported` (``lowering.unprovable``) where the form does not fit 62 bits in integers.
    """
    rank = form.rank
    scale, offset = scale_and_offset(quantizer, rank)
    parts = [*(term.factor for term in form.terms), form.constant, scale, offset]
    whole = np.broadcast_shapes((1,) * rank, *(part.shape for part in parts))
    columns = [part.broadcast(whole).fractions() for part in parts]
    index: dict[tuple[Fraction, ...], int] = {}
    classes = np.array([index.setdefault(key, len(index)) for key in zip(*columns, strict=True)]).reshape(whole)
    bounds = [lowering.builder.range(term.value).hull() for term in form.terms]
    rows = [_row(key, bounds, quantizer, inverse) for key in index]
    if any(max(abs(row.lo), abs(row.hi)) >= 2**_WIDEST for row in rows):
        raise Unsupported(
            "lowering.unprovable",
            "the thresholds of this function do not fit 64 bits: quantise its operand so that zero is a code",
            lowering.location(operation),
        )
    bits = (quantizer.hi - quantizer.lo).bit_length()
    start = lowering.tensor_constant(operation, classes * 2**bits - 1, "start")
    code = _search(lowering, operation, form, rows, classes, start, bits)
    if quantizer.lo:
        least = lowering.tensor_constant(operation, np.array([quantizer.lo], dtype=object), "lo")
        code = lowering.emit(operation, "broadcast_add", code, least)
    if quantizer.hi - quantizer.lo != 2**bits - 1:
        code = lowering.emit(operation, "clip", code, a_min=quantizer.lo, a_max=quantizer.hi)
    return Coded(code, note=f"search among {quantizer.hi - quantizer.lo} thresholds, {len(rows)} classes")


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
    return _Row(tuple(whole), tuple(thresholds), lo, hi)


def _search(
    lowering: Lowering, operation: GraphOperation, form: LinearForm, rows: list[_Row], classes: np.ndarray, start: str,
    bits: int,
) -> str:  # fmt: skip
    """The number of thresholds reached, in [0, 2^bits)."""
    builder = lowering.builder
    values = [full_value(lowering, operation, term.value, form.shape) for term in form.terms]
    # Entry c * 2^bits + k - 1 of the tables is the k-th threshold of class c, less the least value of L; the entries
    # for which there is none are never reached.
    entries = []
    for row in rows:
        filled = [t - row.lo for t in row.thresholds]
        entries += filled + [row.hi + 1 - row.lo] * (2**bits - len(filled))
    digits = max(1, -(-max(entries).bit_length() // _DIGIT))
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
    weights = [
        builder.parameter(np.full((1,) * rank, -(2 ** (_DIGIT * d)), np.int64), name="digit") for d in range(digits)
    ]
    # [L >= T] = clip(L - (T - lo) - lo + 1, 0, 1)
    rest = builder.parameter(np.array([1 - row.lo for row in rows], np.int64)[classes], name="least")
    shift = builder.parameter(np.zeros((1,) * rank, np.int64), name="shift")
    code = None
    for bit in reversed(range(bits)):
        half = lowering.tensor_constant(operation, np.array([2**bit], dtype=object), "half")
        middle = lowering.emit(
            operation, "broadcast_add", start if code is None else _sum(lowering, operation, code, start), half
        )
        looked = [lowering.emit(operation, "cvm_lut", table, middle) for table in tables]
        reached = lowering.emit(
            operation, "requantize", *values, *looked, *factors, *weights, rest, shift, rounding="half_up", lo=0, hi=1
        )
        part = reached
        if bit:
            part = lowering.emit(operation, "broadcast_mul", reached, half)
        code = part if code is None else _sum(lowering, operation, code, part)
    assert code is not None
    return code


def _sum(lowering: Lowering, operation: GraphOperation, first: str, second: str) -> str:
    return lowering.emit(operation, "broadcast_add", first, second)
