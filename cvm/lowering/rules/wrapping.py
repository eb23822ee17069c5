"""Quantisers that wrap: round(x / scale) modulo 2^N, in two's complement. NNEF has no such quantisers.

Let x / scale = S / 2^s, where S is a sum of integers. q = round(S / 2^s) need not fit 32 bits, but the number t of
periods of 2^N in it does:

    t = floor((q - lo) / 2^N),   q - 2^N * t = round((S - 2^(s + N) * t) / 2^s).

With L = lo + 2^N * t, the condition q >= L can be written as a condition on S. It is S >= 2^s * L - 2^(s-1) if ties go
upward, and also if they go to the even code, since L is even; it is S >= 2^s * L if q is a floor. Truncation is the
floor of (S + (2^s - 1) * [S < 0]) / 2^s. So a code takes two ``requantize``, or three.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Unsupported
from cvm.limits import INT32_MAX
from cvm.lowering.claims import exact
from cvm.lowering.context import Coded, Lowering, Result, rule
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import Known, LinearForm
from cvm.lowering.proofs.decide import fixed_sum
from cvm.lowering.proofs.fixed_point import requantize
from cvm.lowering.proofs.pieces import summands
from cvm.quantization import LinearQuantizer
from cvm.quantization.exact import round_fraction
from cvm.quantization.quantizer import Rounding
from cvm.quantization.rationals import Rationals

__all__: list[str] = []


Term = tuple[Value, npt.NDArray[Any]]


@rule("wrapping_quantize", claim=exact("the code modulo 2^N, by the number of periods that it is beyond the range"))
def wrapping_quantize(lowering: Lowering) -> list[Result]:
    """The code of x with step ``scale``, rounded by ``rounding``, modulo hi - lo + 1 = 2^N. lo is even."""
    scale = lowering.fraction("scale")
    lo, hi = (int(lowering.operation.attributes[name]) for name in ("lo", "hi"))  # type: ignore[arg-type]
    rounding: Rounding = lowering.operation.attributes["rounding"]  # type: ignore[assignment]
    form = lowering.linear("x")
    if not form.terms:
        return [_known(form, scale, lo, hi, rounding)]
    least, greatest = (end / scale for end in form.ends())
    name, location = lowering.owner, lowering.location
    if lo <= round_fraction(least, rounding) and round_fraction(greatest, rounding) <= hi:
        reported = len(lowering.report)
        quantizer = LinearQuantizer((scale,), (Fraction(0),), lo, hi, rounding=rounding)
        value = requantize(lowering, form, quantizer)
        note = lowering.report[-1].note if len(lowering.report) > reported else "the same codes"
        del lowering.report[reported:]
        return [Coded(value, note=f"{note}, proven to fit", any_rounding=True)]
    found, constant, unit = summands(form.terms, form.constant, whole=True)
    step = unit / scale
    shift = step.denominator.bit_length() - 1
    terms: list[Term] = [(item.value, item.coefficients * step.numerator) for item in found]
    offset = constant.numerators // constant.denominator * step.numerator
    periods = max(-least, greatest) / (hi - lo + 1) + 2
    if step.denominator & (step.denominator - 1) or periods > INT32_MAX:
        message = f"codes of {name!r} that wrap need a scale of integers times a power of two, of at most 62 bits"
        raise Unsupported("lowering.rounding", message, location)
    try:
        value = _wrapped(lowering, form.shape, terms, offset, shift, (lo, hi), rounding)
    except Invalid as error:
        raise Unsupported("lowering.range", f"{lowering.operation.name}: {error.message}", location) from None
    return [Coded(value, note=f"modulo 2^{(hi - lo).bit_length()}", any_rounding=True)]


def _known(form: LinearForm, scale: Fraction, lo: int, hi: int, rounding: Rounding) -> Known:
    items = [round_fraction(item / scale, rounding) for item in form.constant.broadcast(form.shape).fractions()]
    wrapped = np.array([(item - lo) % (hi - lo + 1) + lo for item in items], dtype=object).reshape(form.shape)
    rank = len(form.shape)
    return Known(wrapped, Rationals.scalar(scale, rank), Rationals.scalar(0, rank))


def _wrapped(
    lowering: Lowering,
    shape: tuple[int, ...],
    terms: list[Term],
    offset: npt.NDArray[Any],
    shift: int,
    bounds: tuple[int, int],
    rounding: Rounding,
) -> Value:
    (lo, hi), one = bounds, np.ones((1,) * len(shape), dtype=object)
    bits = shift + (hi - lo).bit_length()
    half = 2**shift >> 1
    if rounding == "toward_zero":
        if shift:
            negated = [(value, -factor) for value, factor in terms]
            below = fixed_sum(lowering, shape, negated, -offset, 0, (0, 1), "negative")
            terms = [*terms, (below, one * (2**shift - 1))]
        # The half that half_up adds is subtracted, which leaves the floor.
        floored, last, rounding = offset, offset - half, "half_up"
    else:
        floored, last = offset + half, offset
    first = floored - (lo << shift) - 2 ** (bits - 1)
    periods = fixed_sum(lowering, shape, terms, first, bits, (-INT32_MAX, INT32_MAX), "turns")
    whole = [*terms, (periods, one * -(2**bits))]
    return fixed_sum(lowering, shape, whole, last, shift, bounds, "", rounding)
