"""softmax (NNEF 1.0.1 section 4.9.1), bounded and not exact, for more items than `rules.exact_softmax` can prove.

y_i = exp(x_i) / sum_j exp(x_j) over codes x = s*q + b. Let d_j = max(q) - q_j and E_j = 2^W * exp(-s*d_j) + e_j, where
|e_j| <= 1/2 and the largest E is exactly 2^W. The quotient E_i / sum E differs from y_i by at most
(1/2 + (n - 1)/2) / 2^W = n / 2^(W+1), because sum E >= 2^W and y_i <= 1. The code is
lo + floor((2*K*E_i + (1 - 2*z)*S) / (2*S)), where S = sum E, K = 1/scale and z = offset/scale + lo of the result's
quantiser, whose least code lo stands for offset + scale*lo.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from cvm.limits import INT32_MAX
from cvm.lowering.claims import bounded
from cvm.lowering.context import Coded, Lowering, Result, rule
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import LinearForm
from cvm.lowering.parts.exponentials import Logits, softmax_by_quotient
from cvm.lowering.rules.exact_softmax import softmax_of_few, softmax_of_two
from cvm.lowering.rules.logic import truth
from cvm.quantization import LinearQuantizer
from cvm.quantization.exact import round_fraction
from cvm.quantization.rationals import Rationals
from cvm.quantization.reals import exp, rational, rounded

__all__: list[str] = []

_MULTIPLIER_BITS = 28
_FINENESS = 40
"""With op-set 2, results are this many bits finer than a step."""
_TABLE = 65_536


@rule(
    "softmax",
    claim=bounded(
        "for two items a table of their difference; for few, sums of exponentials in a fixed point proven over all of "
        "them; for more, a table of the exponential, sums, one integer division",
        "the more items, the nearer sums of their exponentials come to a threshold (256 times as many sums per item of "
        "8 bits): no table of one width is proven to decide all; the report says how near a number must be to differ",
        "so many items that exactness is not proven, and the result has no quantiser for the whole tensor",
        "so many items that no bits are left for the table",
    ),
)
def softmax(lowering: Lowering) -> list[Result]:
    """exp(x) / sum(exp(x)) over ``axes``: exact for few items, otherwise by a table of exponentials and a division."""
    axes = tuple(int(axis) for axis in lowering.operation.attributes["axes"])  # type: ignore[union-attr, arg-type]
    shape = lowering.output_shape()
    count = math.prod(shape[axis] for axis in axes)
    if count == 1:
        return [LinearForm(shape, (), Rationals.scalar(1, len(shape)))]
    value, scale, _, _ = lowering.coded("x")
    lo, hi = value.range.hull()
    if hi - lo >= _TABLE:
        raise lowering.needs_quantization(str(lowering.operation.inputs["x"]))
    if count == 2:
        return [softmax_of_two(lowering, value, scale, axes)]
    quantizer = lowering.quantizer()
    exact = softmax_of_few(lowering, value, scale, axes, quantizer) if quantizer else None
    if exact is not None:
        return [exact]
    quantizer = lowering.linear_quantizer()
    if quantizer is None or not quantizer.per_tensor:
        raise lowering.unsupported("the result needs a quantiser for the whole tensor")
    return [_bounded(lowering, Logits(value, scale, axes), quantizer)]


_NEAR = "hidden items are not far enough below all others to count nothing"


@rule(
    "masked_softmax",
    claim=bounded(
        "a table of the exponential, sums, one integer division; hidden items count nothing",
        "as for softmax of many items",
        "the result has no quantiser for the whole tensor",
        "so many items that no bits are left for the table",
        _NEAR,
    ),
)
def masked_softmax(lowering: Lowering) -> list[Result]:
    """exp(x) / sum(exp(x)) over the items of ``axes`` that are seen. Where none is, x + ``below`` counts if the mask is
    ``added``, which is as if all were seen; else all items are alike.

    Codes of hidden items become so small that their distance from the greatest seen one is beyond every distance of
    seen items: the table of the exponential ends with a zero for them.
    """
    axes = lowering.integers("axes")
    shape = lowering.output_shape()
    value, scale, constant, _ = lowering.coded("x")
    lo, hi = value.range.hull()
    span = hi - lo
    if span >= _TABLE:
        raise lowering.needs_quantization(str(lowering.operation.inputs["x"]))
    quantizer = lowering.linear_quantizer()
    if quantizer is None or not quantizer.per_tensor:
        raise lowering.unsupported("the result needs a quantiser for the whole tensor")
    added = bool(lowering.integer("added"))
    # The greatest number that a hidden item can be, less the least one that a seen item can be.
    distance = lowering.fraction("below") + (scale * span if added else -(scale * lo + constant))
    if distance > -_least_distance(quantizer, math.prod(shape[axis] for axis in axes)):
        raise lowering.unsupported(_NEAR)
    seen = truth(lowering, "seen", len(shape))
    if added:
        shift = lowering.tensor_constant([2 * span + 2], "hidden")
        value = value.broadcast(shape) + (seen * shift - shift)
    else:
        below = lowering.tensor_constant(np.full(shape, lo - span - 1), "hidden")
        value = lowering.emit("where", seen.broadcast(shape), value.broadcast(shape), below, label="masked")
    return [_bounded(lowering, Logits(value, scale, axes, span), quantizer)]


def _least_distance(quantizer: LinearQuantizer, count: int) -> Fraction:
    """How far below the others hidden items must be, so that all of them together are 2^-64 steps of the result."""
    bits = 64 + math.ceil(count / quantizer.scale[0]).bit_length()
    return Fraction(7, 10) * bits  # e^(7/10) > 2


def _bounded(lowering: Lowering, logits: Logits, quantizer: LinearQuantizer) -> Coded:
    """The codes of softmax, by tables of the exponential of distances from the greatest item."""
    value, scale, axes = logits.value, logits.unit, tuple(logits.axes)
    shape = lowering.output_shape()
    count = math.prod(shape[axis] for axis in axes)
    if lowering.op_set >= 2:
        coded = softmax_by_quotient(lowering, logits, quantizer, _FINENESS)
        if coded is not None:
            return coded
    width = _width(quantizer, count)
    if width < 1:
        raise lowering.unsupported(f"{count} items leave no bits for the table of the exponential")
    powers_of_e = (rational(2**width) * exp(rational(-scale * d)) for d in range(logits.farthest + 1))
    table = logits.table([rounded(item) for item in powers_of_e])
    greatest = value.max(axes, keepdims=True)
    distance = greatest - value
    powers = lowering.emit("cvm_lut", lowering.tensor_constant(table, "exp"), distance)
    total = powers.sum(axes, keepdims=True)
    numerator, error = _numerator(lowering, quantizer, powers, total, width, count)
    two = lowering.tensor_constant([2], "two")
    doubled = total * two
    quotient = lowering.emit("broadcast_div", numerator, doubled)
    codes = quotient.clip(0, quantizer.hi - quantizer.lo)
    if quantizer.lo:
        least = lowering.tensor_constant([quantizer.lo], "least")
        codes = codes + least
    steps = Fraction(count, 2 ** (width + 1)) / quantizer.scale[0] + error
    bound = Fraction(math.ceil(steps))
    note = f"may differ only within {float(steps):.1e} steps of a rounding threshold"
    # A tie lies at a threshold. However it is rounded, the bound of at least one code covers it.
    return Coded(codes, bound, note, any_rounding=True)


def _width(quantizer: LinearQuantizer, count: int) -> int:
    """The largest width W of the table for which 2*K*E + (1 - 2*z)*S fits in int32."""
    rise, shift = _coefficients(quantizer)
    most = math.ceil(rise + max(Fraction(0), shift) * count) + 1
    return min(24, (INT32_MAX // most).bit_length() - 1)


def _coefficients(quantizer: LinearQuantizer) -> tuple[Fraction, Fraction]:
    """2*K and 1 - 2*z."""
    scale = quantizer.scale[0]
    return 2 / scale, 1 - 2 * (quantizer.offset[0] / scale + quantizer.lo)


def _numerator(
    lowering: Lowering, quantizer: LinearQuantizer, powers: Value, total: Value, width: int, count: int
) -> tuple[Value, Fraction]:
    """2*K*E + (1 - 2*z)*S, at least zero, and the error that it adds to the code before rounding, in steps."""
    rise, shift = _coefficients(quantizer)
    exact = rise.denominator == shift.denominator == 1
    bits = 0 if exact else max(0, _MULTIPLIER_BITS - max(int(rise), int(abs(shift))).bit_length())
    factors = [round_fraction(factor * 2**bits, "half_up") for factor in (rise, shift)]
    rank = len(powers.shape)
    parameters = [
        lowering.parameter(np.full((1,) * rank, item), label)
        for item, label in zip((*factors, 0, bits), ("m1", "m2", "c", "s"), strict=True)
    ]
    value = lowering.emit("requantize", powers, total, *parameters, rounding="half_up", lo=0, hi=INT32_MAX)
    if exact:
        return value, Fraction(0)
    # Rounding adds an error of 1/2. The errors of both factors, 2^-(bits+1), are multiplied by at most 2^W and n*2^W.
    # The sum of these errors is divided by 2*S >= 2^(W+1).
    absolute = Fraction(1, 2) + Fraction(2**width * (1 + count), 2 ** (bits + 1))
    return value, absolute / 2 ** (width + 1)
