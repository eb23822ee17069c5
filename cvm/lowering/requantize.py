"""From a form to codes: one ``requantize`` per quantised tensor, its constants proven exact.

See `cvm.quantization.fixed_point` for the proofs. A form's rows - distinct combinations of coefficients, constants and
bounds over channels and positions - are proven once each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Location, Unsupported
from cvm.lowering.context import Lowering
from cvm.lowering.decide import Summand, TooWide, at_least_zero, narrowed
from cvm.lowering.form import Form, LinearForm, SurdForm, TableForm
from cvm.lowering.table import quantize_table
from cvm.program.model import Exactness
from cvm.quantization import LinearQuantizer
from cvm.quantization.exact import code
from cvm.quantization.fixed_point import (
    FixedPoint,
    LinearRow,
    Row,
    SurdRow,
    Unprovable,
    decides_without,
    fit,
    fits_int64,
)
from cvm.quantization.rationals import Rationals

__all__ = ["requantize"]

Array = npt.NDArray[Any]
_HALF = Fraction(1, 2)
_MOST_TERMS = 7
"""Of eight of a ``requantize``, one may be needed to give the shape."""


def requantize(lowering: Lowering, form: Form, quantizer: LinearQuantizer, name: str, location: Location) -> str:
    """Emit the codes of ``form`` under ``quantizer`` as the value ``name``; returns the value that holds them.

    Raises `Unsupported` (``lowering.unprovable``) where no exact fixed-point form fits 64 bits.
    """
    if quantizer.rounding != "half_up":
        raise Unsupported("lowering.rounding", f"rounding {quantizer.rounding} is not lowered", location)
    if isinstance(form, TableForm):
        value = quantize_table(lowering, form, quantizer, name, location)
        lowering.report.append(Exactness(name, value, Fraction(0), note=f"table of {len(form.numbers)} entries"))
        return value
    if isinstance(form, LinearForm) and _same_codes(lowering, form, quantizer):
        return form.terms[0].value
    ends = _code_bounds(form, quantizer)
    if ends is None:
        return _clamped_per_channel(lowering, form, quantizer, name, location)
    lo, hi = ends
    values, rows, where = _rows(lowering, form, quantizer, lo, hi)
    try:
        values, rows = _without_idle_terms(values, rows)
        if len(values) > _MOST_TERMS:
            raise Unprovable(f"{len(values)} accumulators")
        forms = fit(rows)
    except Unprovable as error:
        corrected = _corrected(lowering, form.shape, values, rows, where, (lo, hi), name)
        if corrected is None:
            raise Unsupported(
                "lowering.unprovable",
                f"no exact 64-bit form of the requantisation exists ({error}): quantise the operands of this tensor",
                location,
            ) from None
        note = f"{len(values)} accumulators, estimated and corrected"
        lowering.report.append(Exactness(name, corrected, Fraction(0), note=note))
        return corrected
    value = _emit(lowering, form.shape, values, forms, where, (lo, hi), name)
    lowering.report.append(Exactness(name, value, Fraction(0), _accumulator(rows, forms), _note(values, forms)))
    return value


def _same_codes(lowering: Lowering, form: LinearForm, quantizer: LinearQuantizer) -> bool:
    """Whether the form is the codes of this very quantiser already: rounding a code's value gives the code."""
    if len(form.terms) != 1 or form.clamped or not quantizer.per_tensor:
        return False
    term = form.terms[0]
    if lowering.builder.shape(term.value) != form.shape or not (term.factor.uniform and form.constant.uniform):
        return False
    lo, hi = lowering.builder.range(term.value).hull()
    same = term.factor.item() == quantizer.scale[0] and form.constant.item() == quantizer.offset[0]
    return same and quantizer.lo <= lo and hi <= quantizer.hi


def _code_bounds(form: LinearForm | SurdForm, quantizer: LinearQuantizer) -> tuple[int, int] | None:
    """The codes of the form's bounds; None where channels have different ones.

    A quantiser is monotone: the code of a clamped value is the clamped code.
    """
    if isinstance(form, SurdForm) or not form.clamped:
        return quantizer.lo, quantizer.hi
    least, greatest = (set(codes) for codes in _codes_of_bounds(form, quantizer))
    return (least.pop(), greatest.pop()) if len(least) == len(greatest) == 1 else None


def _codes_of_bounds(form: LinearForm, quantizer: LinearQuantizer) -> tuple[list[int], list[int]]:
    """The codes of the lower and of the upper bound in each channel."""
    channels = range(len(quantizer.scale))
    lower, upper = (
        [end if bound is None else code(bound, quantizer, i) for i in channels]
        for bound, end in ((form.lower, quantizer.lo), (form.upper, quantizer.hi))
    )
    return lower, upper


def _clamped_per_channel(
    lowering: Lowering, form: Form, quantizer: LinearQuantizer, name: str, location: Location
) -> str:
    """The codes without the clamp, then the greater of these and the lower bounds, the lesser and the upper."""
    assert isinstance(form, LinearForm)
    assert quantizer.axis is not None
    builder = lowering.builder
    extents = [len(quantizer.scale) if axis == quantizer.axis else 1 for axis in range(form.rank)]
    lower, upper = (np.array(codes, np.int64).reshape(extents) for codes in _codes_of_bounds(form, quantizer))
    value = requantize(lowering, replace(form, lower=None, upper=None), quantizer, f"{name}.unclamped", location)
    (value,) = builder.add("broadcast_max", (value, builder.constant(lower, f"{name}.lower")), name=f"{name}.max")
    (value,) = builder.add("negative", (value,), name=f"{name}.negative")
    (value,) = builder.add("broadcast_max", (value, builder.constant(-upper, f"{name}.upper")), name=f"{name}.min")
    (value,) = builder.add("negative", (value,), name=name)
    lowering.report[-1] = replace(lowering.report[-1], tensor=name, value=value)
    return value


def _rows(
    lowering: Lowering, form: LinearForm | SurdForm, quantizer: LinearQuantizer, lo: int, hi: int
) -> tuple[list[str], list[Row], Array]:
    """The values that are summed, the distinct rows, and an array that says which row serves which position."""
    rank = len(form.shape)
    extents = [1] * rank
    if quantizer.axis is not None:
        extents[quantizer.axis] = len(quantizer.scale)
    scale = Rationals.of(quantizer.scale, extents)
    offset = Rationals.of(quantizer.offset, extents)
    half = Rationals.scalar(_HALF, rank)
    if isinstance(form, SurdForm):
        values = [form.value]
        parts = [form.slope / scale, form.origin / scale, (form.offset - offset) / scale + half, form.radicand]
    else:
        values = [term.value for term in form.terms]
        parts = [*(term.factor / scale for term in form.terms), (form.constant - offset) / scale + half]
    bounds = [lowering.builder.range(value) for value in values]
    columns = [part.numerators for part in parts] + [end for bound in bounds for end in (bound.lo, bound.hi)]
    whole = np.broadcast_shapes(*(column.shape for column in columns))
    flat = [np.broadcast_to(column, whole).ravel().tolist() for column in columns]
    index: dict[tuple[int, ...], int] = {}
    where = np.array([index.setdefault(key, len(index)) for key in zip(*flat, strict=True)]).reshape(whole)
    make = _surd_row if isinstance(form, SurdForm) else _linear_row
    return values, [make(key, [part.denominator for part in parts], lo, hi) for key in index], where


def _linear_row(key: Sequence[int], denominators: Sequence[int], lo: int, hi: int) -> Row:
    count = len(denominators)
    *factors, constant = (Fraction(n, d) for n, d in zip(key[:count], denominators, strict=True))
    denominator = math.lcm(*(factor.denominator for factor in factors)) if factors else 1
    # floor((n + r) / D) = floor((n + floor(r)) / D) for integers n and D: the constant needs no common denominator.
    return LinearRow(
        tuple(int(factor * denominator) for factor in factors),
        math.floor(constant * denominator),
        denominator,
        tuple(zip(key[count::2], key[count + 1 :: 2], strict=True)),
        lo,
        hi,
    )


def _surd_row(key: Sequence[int], denominators: Sequence[int], lo: int, hi: int) -> Row:
    slope, origin, height, radicand = (Fraction(n, d) for n, d in zip(key[:4], denominators, strict=True))
    bounds = ((key[4], key[5]),)
    if slope:
        return SurdRow(slope, origin, height, radicand, bounds, lo, hi)
    # Without a slope the code is one number: that at which an accumulator of factor one, fixed at zero, stands.
    steps = SurdRow(Fraction(1), origin, height, radicand, ((0, 0),), lo, hi)
    reached = sum(int(at <= 0) for at in steps.thresholds(np.arange(lo + 1, hi + 1, dtype=object)).tolist())
    return LinearRow((0,), lo + reached, 1, bounds, lo, hi)


def _without_idle_terms(values: list[str], rows: list[Row]) -> tuple[list[str], list[Row]]:
    """Leave out the second of two accumulators, or the first, where its value never changes a code."""
    linear = [row for row in rows if isinstance(row, LinearRow)]
    for term in (1, 0):
        if len(values) == 2 and len(linear) == len(rows) and all(decides_without(row, term) for row in linear):
            return values[: term or 1] if term else values[1:], [row.fixed(term, row.bounds[term][0]) for row in linear]
    return values, rows


def _emit(
    lowering: Lowering,
    shape: tuple[int, ...],
    values: list[str],
    forms: list[FixedPoint],
    where: Array,
    bounds: tuple[int, int],
    name: str,
) -> str:
    builder = lowering.builder
    order = sorted(range(len(values)), key=lambda i: builder.shape(values[i]) != shape)
    terms = [values[i] for i in order]
    if not terms or builder.shape(terms[0]) != shape:
        # The first term gives the shape of the result: spread it, or put a tensor of zeros in its place.
        zeros = builder.constant(np.zeros(shape, np.int64), name=f"{name}.zeros")
        terms[:1] = builder.add("broadcast_add", (terms[0], zeros), name=f"{name}.spread") if terms else (zeros,)
        forms = forms if order else [replace(form, multipliers=(0,)) for form in forms]
        order = order or [0]
    addends = [2**form.shift >> 1 for form in forms]
    columns = [[form.multipliers[i] for form in forms] for i in order]
    columns.append([form.offset - addend for form, addend in zip(forms, addends, strict=True)])
    columns.append([form.shift for form in forms])
    labels = [f"{name}.m{i + 1}" for i in range(len(order))] + [f"{name}.c", f"{name}.s"]
    parameters = [
        builder.parameter(narrowed(np.array(column, dtype=np.int64)[where]), name=label)
        for column, label in zip(columns, labels, strict=True)
    ]
    attributes = {"rounding": "half_up", "lo": bounds[0], "hi": bounds[1]}
    (value,) = builder.add("requantize", (*terms, *parameters), attributes, name=name)
    return value


def _corrected(
    lowering: Lowering,
    shape: tuple[int, ...],
    values: list[str],
    rows: list[Row],
    where: Array,
    bounds: tuple[int, int],
    name: str,
) -> str | None:
    """An estimate of the code that is right or one too small, and one comparison that decides which.

    Let v = (sum_i P_i * X_i + R) / D. With m_i = floor(P_i * 2^s / D) the sum of m_i * X_i is off from that of
    P_i * X_i * 2^s / D by at most M = sum_i max|X_i|. With c = floor(R * 2^s / D) - M - 1 the estimate w lies in
    (v - (2 M + 2) / 2^s, v], so that for 2^s >= 4 M + 4 its floor k is floor(v) or one less: the code is k + 1 exactly
    if sum_i P_i * X_i + R - (k + 1) * D >= 0, and else k.
    """
    linear = [row for row in rows if isinstance(row, LinearRow)]
    if len(linear) < len(rows) or len(values) > _MOST_TERMS:
        return None
    builder = lowering.builder
    magnitude = sum(max(abs(end) for row in linear for end in row.bounds[i]) for i in range(len(values)))
    shift = (4 * magnitude + 4).bit_length()
    forms = []
    for row in linear:
        multipliers = tuple((factor << shift) // row.denominator for factor in row.factors)
        forms.append(FixedPoint(multipliers, (row.constant << shift) // row.denominator - magnitude - 1, shift))
    if shift > 62 or not all(fits_int64(row, form) for row, form in zip(linear, forms, strict=True)):
        return None
    estimate = _emit(lowering, shape, values, forms, where, bounds, f"{name}.estimate")

    def arranged(items: list[int]) -> Array:
        column = np.empty(len(items), dtype=object)
        column[:] = items
        return np.asarray(column[where], dtype=object)

    denominators = arranged([row.denominator for row in linear])
    summands = [Summand(value, arranged([row.factors[i] for row in linear])) for i, value in enumerate(values)]
    summands.append(Summand(estimate, -denominators))
    try:
        more = at_least_zero(
            builder, shape, summands, arranged([row.constant for row in linear]) - denominators, f"{name}.next"
        )
    except TooWide:
        return None
    (total,) = builder.add("elemwise_add", (estimate, more), name=f"{name}.corrected")
    (value,) = builder.add("clip", (total,), {"a_min": bounds[0], "a_max": bounds[1]}, name=name)
    return value


def _accumulator(rows: Sequence[Row], forms: Sequence[FixedPoint]) -> tuple[int, int]:
    """The interval of the 64-bit sum over all rows."""
    lows, highs = [], []
    for row, form in zip(rows, forms, strict=True):
        ends = [sorted((m * lo, m * hi)) for m, (lo, hi) in zip(form.multipliers, row.bounds, strict=True)]
        lows.append(form.offset + sum(end[0] for end in ends))
        highs.append(form.offset + sum(end[1] for end in ends))
    return min(lows), max(highs)


def _note(values: Sequence[str], forms: Sequence[FixedPoint]) -> str:
    bits = max((abs(m).bit_length() for form in forms for m in form.multipliers), default=0)
    count = len(values)
    return f"{count} accumulator{'' if count == 1 else 's'}, multipliers of {bits} bits"
