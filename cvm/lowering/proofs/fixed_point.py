"""Emit the codes of a form, where possible by a single ``requantize`` whose constants are proven exact.

See `cvm.quantization.fixed_point` for the proofs. The rows of a form (`cvm.lowering.proofs.rows`) are proven once each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Unsupported
from cvm.limits import INT32_MAX, INT64_MAX
from cvm.lowering.forms.emission import Emission, Value
from cvm.lowering.forms.form import Form, LinearForm, SurdForm, TableForm
from cvm.lowering.proofs.decide import Summand, TooWide, at_least_zero, narrowed
from cvm.lowering.proofs.rows import Sums, sums_of, without_idle_terms
from cvm.lowering.proofs.staircase import STAIRCASE_BITS, staircase_codes
from cvm.lowering.proofs.table import quantize_table
from cvm.lowering.proofs.ties import by_shift, even_of, has_odd_tie, truncated_by_shift
from cvm.ops.computed import MAX_QUOTIENT_TERMS
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer
from cvm.quantization.exact import code
from cvm.quantization.fixed_point import (
    FixedPoint,
    Unprovable,
    fit,
    fits_int64,
)
from cvm.quantization.rows import LinearRow, Row

__all__ = ["requantize"]

Array = npt.NDArray[Any]
_MANY_CODES = 2**16
"""With several accumulators and at least this many codes, rows whose denominators are powers of two are emitted
directly, without a search for a narrower form.
"""
_MOST_TERMS = 7
"""A ``requantize`` adds up to eight values. One of them may be zeros that give the result its shape."""


def requantize(lowering: Emission, form: Form, quantizer: Quantizer) -> Value:
    """Emit the codes of ``form`` under ``quantizer`` for the owner, claim their exactness, and return their value.

    Raises `Unsupported`: ``lowering.rounding``, or the errors of `staircase_codes` if no fixed-point form is exact.
    """
    if isinstance(form, TableForm):
        value = quantize_table(lowering, form, quantizer)
        lowering.claim(value, f"table of {len(form.numbers)} entries")
        return value
    if isinstance(quantizer, LogarithmicQuantizer) or (isinstance(form, SurdForm) and len(form.terms) > 1):
        return _by_staircase(lowering, form, quantizer)
    if form.clamped and quantizer.axis is not None:
        return _clamped_per_channel(lowering, form, quantizer)
    if isinstance(form, LinearForm) and _same_codes(form, quantizer):
        return form.terms[0].value
    bounds = _code_bounds(form, quantizer)
    if quantizer.rounding == "toward_zero":
        return _toward_zero(lowering, form, quantizer, bounds)
    sums = sums_of(form, quantizer, bounds)
    if quantizer.rounding == "half_even":
        below = sums_of(form, quantizer, bounds, below=True)
        if any(has_odd_tie(row, under) for row, under in zip(sums.rows, below.rows, strict=True)):
            return _half_even(lowering, form, sums, below, quantizer)
    codes = _nearest(lowering, sums)
    # If no tie has an odd code, all roundings to the nearest give the same codes.
    return codes or _by_staircase(lowering, form, replace(quantizer, rounding="half_up"))


def _nearest(lowering: Emission, sums: Sums) -> Value | None:
    """Emit the codes of the rows by one ``requantize``, or by an estimate and a correction; None if neither fits."""
    codes = sums.bounds[1] - sums.bounds[0]
    if len(sums.values) > 1 and codes >= _MANY_CODES:
        by_shift = _by_shift(lowering, sums)
        if by_shift is not None:
            return by_shift
    try:
        sums = without_idle_terms(sums)
        if len(sums.values) > _MOST_TERMS:
            raise Unprovable(f"{len(sums.values)} accumulators")
        forms = fit(sums.rows)
    except Unprovable:
        divided = _divided(lowering, sums) if lowering.op_set >= 2 else None
        if divided is not None:
            lowering.claim(divided, f"{len(sums.values)} accumulators, a quotient")
            return divided
        corrected = _corrected(lowering, sums)
        if corrected is None:
            return _by_shift(lowering, sums) if codes >= 2**STAIRCASE_BITS else None
        lowering.claim(corrected, f"{len(sums.values)} accumulators, estimated and corrected")
        return corrected
    return _emitted(lowering, sums, forms)


def _emitted(lowering: Emission, sums: Sums, forms: list[FixedPoint]) -> Value:
    value = _emit(lowering, sums, forms)
    lowering.claim(value, _note(sums.values, forms), accumulator=_accumulator(sums.rows, forms))
    return value


def _by_shift(lowering: Emission, sums: Sums) -> Value | None:
    """Emit rows whose denominators are powers of two directly, as floor((sum + R) / 2^s); None for other rows.

    This is for codes of so many bits that a search for a form takes long or finds none, such as products of integers
    divided by 2^31.
    """
    if len(sums.values) > _MOST_TERMS:
        return None
    forms = []
    for row in sums.rows:
        if not isinstance(row, LinearRow) or row.denominator & (row.denominator - 1):
            return None
        form = FixedPoint(row.factors, row.constant, row.denominator.bit_length() - 1)
        if form.shift > 62 or not fits_int64(row, form):
            return None
        forms.append(form)
    return _emitted(lowering, sums, forms)


def _directly(lowering: Emission, sums: Sums, exact: list[FixedPoint | None], rounding: str) -> Value | None:
    """Emit one ``requantize`` with a rounding other than half_up; None if a row has no form, or terms are too many."""
    forms = [item for item in exact if item is not None]
    if len(forms) < len(exact) or len(sums.values) > _MOST_TERMS:
        return None
    value = _emit(lowering, sums, forms, rounding)
    lowering.claim(value, _note(sums.values, forms))
    return value


def _half_even(
    lowering: Emission, form: LinearForm | SurdForm, sums: Sums, below: Sums, quantizer: LinearQuantizer
) -> Value:
    """Emit codes rounded to the nearest, ties to the even code, for rows in which ties occur.

    If all denominators are powers of two, one ``requantize`` with the rounding half_even computes them. Otherwise let u
    be the code with ties rounded upward, and d the code with ties rounded downward. They differ only at ties, by one,
    and the code is max(2 * floor(u / 2), d). This also holds after u and d are clipped to the bounds: the code of a tie
    next to an odd bound is that bound only if d is. If u or d does not fit, a staircase counts the thresholds.
    """
    exact = [by_shift(row, under) for row, under in zip(sums.rows, below.rows, strict=True)]
    direct = _directly(lowering, sums, exact, "half_even")
    if direct is not None:
        return direct
    ends: list[Value | None] = []
    for side, label in () if isinstance(form, SurdForm) else ((sums, "up"), (below, "down")):
        with lowering.part(label):
            ends.append(_nearest(lowering, side))
    up, down = ends or (None, None)
    if up is None or down is None:
        return _by_staircase(lowering, form, quantizer)
    value = even_of(up, down)
    lowering.claim(value, "rounded up and down, the even one of a tie")
    return value


def _toward_zero(
    lowering: Emission, form: LinearForm | SurdForm, quantizer: LinearQuantizer, bounds: tuple[int, int]
) -> Value:
    """Emit codes that are rounded toward zero.

    If all denominators are powers of two, one ``requantize`` with that rounding computes them. Otherwise the code is
    max(floor, 0) + min(ceiling, 0), where one of both terms is 0; the ceiling is computed as the floor of the next
    lower number, plus 1. Raises `Unsupported` (``lowering.rounding``) for surd forms, and if the parts do not fit 64
    bits.
    """
    if isinstance(form, SurdForm):
        raise Unsupported(
            "lowering.rounding", f"{lowering.owner!r} holds roots, which are not rounded toward zero", lowering.location
        )
    lo, hi = bounds
    sums, below = (sums_of(form, quantizer, bounds, side, Fraction(0)) for side in (False, True))
    exact = [truncated_by_shift(row, under) for row, under in zip(sums.rows, below.rows, strict=True)]
    direct = _directly(lowering, sums, exact, "toward_zero")
    if direct is not None:
        return direct
    parts = []
    for what, down, half, limits in (
        ("floor", False, Fraction(0), (0, max(hi, 0))),
        ("ceiling", True, Fraction(1), (min(lo, 0), 0)),
    ):
        if limits != (0, 0):
            with lowering.part(what):
                parts.append(_nearest(lowering, sums_of(form, quantizer, limits, down, half)))
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        message = f"no exact form of {lowering.owner!r} toward zero fits 64 bits"
        raise Unsupported("lowering.rounding", message, lowering.location)
    value = found[0]
    if len(found) == 2:
        value = value.apply("elemwise_add", found[1], label="")
    if lo > 0 or hi < 0:
        value = value.clip(lo, hi, label="")
    lowering.claim(value, "the floor above zero, the ceiling below")
    return value


def _by_staircase(lowering: Emission, form: LinearForm | SurdForm, quantizer: Quantizer) -> Value:
    value, note = staircase_codes(lowering, form, quantizer)
    lowering.claim(value, note)
    return value


def _clamped_per_channel(lowering: Emission, form: LinearForm | SurdForm, quantizer: LinearQuantizer) -> Value:
    """Emit the codes of the form without its clamp, then clip them in each channel to the codes of its bounds."""
    free = replace(form, lower=None, upper=None)
    with lowering.part("unclamped"):
        value = requantize(lowering, free, quantizer)
    assert quantizer.axis is not None
    extents = [len(quantizer.scale) if axis == quantizer.axis else 1 for axis in range(len(form.shape))]
    # min(a, b) = -max(-a, -b)
    for bound, sign in ((form.lower, 1), (form.upper, -1)):
        if bound is None:
            continue
        codes = np.array([sign * code(bound, quantizer, i) for i in range(len(quantizer.scale))], np.int64)
        limit = lowering.tensor_constant(codes.reshape(extents), "limit")
        value = value.maximum(limit) if sign > 0 else -(-value).maximum(limit)
    lowering.claim(value, "clamped codes")
    return value


def _same_codes(form: LinearForm, quantizer: LinearQuantizer) -> bool:
    """Whether the form is scale * X + offset with the scale and offset of the quantiser, so that X holds its codes."""
    if len(form.terms) != 1 or form.clamped or not quantizer.per_tensor:
        return False
    term = form.terms[0]
    if term.value.shape != form.shape or not (term.factor.uniform and form.constant.uniform):
        return False
    lo, hi = term.value.range.hull()
    same = term.factor.item() == quantizer.scale[0] and form.constant.item() == quantizer.offset[0]
    return same and quantizer.lo <= lo and hi <= quantizer.hi


def _code_bounds(form: LinearForm | SurdForm, quantizer: LinearQuantizer) -> tuple[int, int]:
    """The codes of the ends of the form's clamp, or the ends of the quantiser's codes if there is no clamp.

    A quantiser is monotone, so the code of a clamped number is the clamped code of the number.
    """
    lo = quantizer.lo if form.lower is None else code(form.lower, quantizer)
    return lo, quantizer.hi if form.upper is None else code(form.upper, quantizer)


def _ordered(lowering: Emission, sums: Sums) -> tuple[list[Value], list[int]]:
    """The values, of which the first one must have the shape of the result, and their indices in the sums.

    If none has that shape, the first one is broadcast. There may be no value at all.
    """
    shape, values = sums.shape, sums.values
    order = sorted(range(len(values)), key=lambda i: values[i].shape != shape)
    terms = [values[i] for i in order]
    if terms and terms[0].shape != shape:
        zeros = lowering.tensor_constant(np.zeros(shape, np.int64), "zeros")
        terms[0] = terms[0].plus(zeros, label="spread")
    return terms, order


def _emit(lowering: Emission, sums: Sums, forms: list[FixedPoint], rounding: str = "half_up") -> Value:
    terms, order = _ordered(lowering, sums)
    if not terms:
        # A tensor of zeros gives the result its shape.
        terms, order = [lowering.tensor_constant(np.zeros(sums.shape, np.int64), "zeros")], [0]
        forms = [replace(form, multipliers=(0,)) for form in forms]
    addends = [2**form.shift >> 1 for form in forms]
    columns = [[form.multipliers[i] for form in forms] for i in order]
    columns.append([form.offset - addend for form, addend in zip(forms, addends, strict=True)])
    columns.append([form.shift for form in forms])
    labels = [f"m{i + 1}" for i in range(len(order))] + ["c", "s"]
    parameters = [
        lowering.parameter(narrowed(np.array(column, dtype=np.int64)[sums.where]), label)
        for column, label in zip(columns, labels, strict=True)
    ]
    lo, hi = sums.bounds
    return lowering.emit("requantize", *terms, *parameters, label="", rounding=rounding, lo=lo, hi=hi)


def _divided(lowering: Emission, sums: Sums) -> Value | None:
    """Emit the codes as one `quotient`, which divides exactly; None where the op does not take the sums.

    With the least common denominator D of all rows, the code is floor((sum_i P_i * X_i + R) / D). The op rounds N / D
    half up, which is floor((N + floor(D / 2)) / D) for integers, so that N = sum_i P_i * X_i + R - floor(D / 2).
    """
    linear = [row for row in sums.rows if isinstance(row, LinearRow)]
    if len(linear) < len(sums.rows) or not 1 <= len(sums.values) <= MAX_QUOTIENT_TERMS:
        return None
    divisor = math.lcm(*(row.denominator for row in linear))
    times = [divisor // row.denominator for row in linear]
    columns = [[row.factors[i] * k for row, k in zip(linear, times, strict=True)] for i in range(len(sums.values))]
    columns.append([row.constant * k - divisor // 2 for row, k in zip(linear, times, strict=True)])
    if max(divisor, *(abs(item) for column in columns for item in column)) > INT64_MAX:
        return None
    terms, order = _ordered(lowering, sums)
    one = lowering.tensor_constant([1], "one")
    above = [narrowed(np.array(columns[i], np.int64)[sums.where]) for i in (*order, -1)]
    below = [np.array([item], np.int64) for item in (divisor, 0)]
    parameters = [lowering.parameter(item, "factor") for item in (*above[:-1], below[0], above[-1], below[1])]
    lo, hi = sums.bounds
    bounds = {"terms": len(terms), "rounding": "half_up", "lo": lo, "hi": hi}
    return lowering.emit("quotient", *terms, one, *parameters, label="", **bounds)


def _corrected(lowering: Emission, sums: Sums) -> Value | None:
    """Emit an estimate of the code that is right or too small by one, and a comparison that decides which.

    Let v = (sum_i P_i * X_i + R) / D and m_i = floor(P_i * 2^s / D). The sum of m_i * X_i differs from the sum of
    P_i * X_i * 2^s / D by at most M = sum_i max|X_i|. With c = floor(R * 2^s / D) - M - 1, the estimate w lies in
    (v - (2 M + 2) / 2^s, v]. So for 2^s >= 4 M + 4 its floor k is floor(v) or one less. The code is k + 1 if
    sum_i P_i * X_i + R - (k + 1) * D >= 0, and k otherwise. Returns None for surd rows, and if the sums do not fit.
    """
    values, (lo, hi) = sums.values, sums.bounds
    linear = [row for row in sums.rows if isinstance(row, LinearRow)]
    if len(linear) < len(sums.rows) or len(values) > _MOST_TERMS:
        return None
    magnitude = sum(max(abs(end) for row in linear for end in row.bounds[i]) for i in range(len(values)))
    shift = (4 * magnitude + 4).bit_length()
    forms = []
    for row in linear:
        multipliers = tuple((factor << shift) // row.denominator for factor in row.factors)
        forms.append(FixedPoint(multipliers, (row.constant << shift) // row.denominator - magnitude - 1, shift))
    if shift > 62 or not all(fits_int64(row, form) for row, form in zip(linear, forms, strict=True)):
        return None
    # The estimate is clipped to INT32_MAX - 1, so that its sum with the result of the comparison is proven to fit.
    with lowering.part("estimate"):
        estimate = _emit(lowering, replace(sums, bounds=(lo, min(hi, max(INT32_MAX - 1, lo)))), forms)

    def column(items: list[int]) -> Array:
        found = np.empty(len(items), dtype=object)
        found[:] = items
        return found

    def arranged(items: Array) -> Array:
        return narrowed(np.array(items.tolist(), np.int64)[sums.where])

    denominators = column([row.denominator for row in linear])
    summands = [Summand(value, column([row.factors[i] for row in linear])) for i, value in enumerate(values)]
    summands.append(Summand(estimate, -denominators))
    try:
        rest = column([row.constant for row in linear]) - denominators
        more = at_least_zero(lowering, sums.shape, summands, rest, "next", arranged)
    except TooWide:
        return None
    return estimate.apply("elemwise_add", more, label="corrected").clip(lo, hi, label="")


def _accumulator(rows: Sequence[Row], forms: Sequence[FixedPoint]) -> tuple[int, int]:
    """The interval of the 64-bit sum over all rows."""
    lows, highs = [], []
    for row, form in zip(rows, forms, strict=True):
        ends = [sorted((m * lo, m * hi)) for m, (lo, hi) in zip(form.multipliers, row.bounds, strict=True)]
        lows.append(form.offset + sum(end[0] for end in ends))
        highs.append(form.offset + sum(end[1] for end in ends))
    return min(lows), max(highs)


def _note(values: Sequence[Value], forms: Sequence[FixedPoint]) -> str:
    bits = max((abs(m).bit_length() for form in forms for m in form.multipliers), default=0)
    count = len(values)
    return f"{count} accumulator{'' if count == 1 else 's'}, multipliers of {bits} bits"
