"""Quantisation as an operation of the graph (NNEF 1.0.1 sections 4.9.5 and 7.2), with constant or computed ranges.

With a constant range, the codes are those of a quantiser. With a computed range, the code q of the quotient
(x - min) / (max - min) is found by comparisons (`cvm.lowering.parts.ratio`). Its number, min + q * (max - min) / r, is
linear in products of the code and the accumulators of the range.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cvm.errors import Invalid, Unsupported
from cvm.lowering.claims import SEVERAL_AXES, TOO_WIDE, exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.forms.form import Known, LinearForm, TableForm, Term, code_form, known_codes
from cvm.lowering.forms.logarithms import decoded, known_powers
from cvm.lowering.parts.digits import product
from cvm.lowering.parts.operands import codes_of, expanded, linear_operand, scaled, sum_of
from cvm.lowering.parts.ratio import least_value, ratio_codes
from cvm.lowering.proofs.pieces import at_least
from cvm.lowering.proofs.table import Operand, lattice
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer
from cvm.quantization.exact import quantize_rationals
from cvm.quantization.rationals import Rationals

__all__: list[str] = []


@rule(
    "linear_quantize",
    claim=exact(
        "the codes of that quantiser; for a computed range (7.2), comparisons bit by bit with multiples of its extent",
        SEVERAL_AXES,
        TOO_WIDE,
    ),
)
@rule(
    "min_max_linear_quantize",
    "zero_point_linear_quantize",
    claim=exact("the codes of that quantiser", SEVERAL_AXES, "a parameter is computed"),
)
def linear_quantize(lowering: Lowering) -> list[Result]:
    """The number for which the code of x stands."""
    parameters = ("zero_point", "scale") if lowering.operation.name.startswith("zero") else ("min", "max")
    bounds = [lowering.operand(name) for name in parameters]
    if all(isinstance(bound, Known) for bound in bounds):
        quantizer = _quantizer(lowering, [bound for bound in bounds if isinstance(bound, Known)])
        return [_quantised(lowering, quantizer)]
    if lowering.operation.name != "linear_quantize":
        raise lowering.unsupported("computed parameters are lowered for linear_quantize only")
    return [_dynamic(lowering)]


def _quantizer(lowering: Lowering, bounds: list[Known]) -> LinearQuantizer:
    """The quantiser of constant parameters: one of each, or one per index of one axis."""
    rank = len(lowering.output_shape())
    first, second = (bound.expanded(rank) for bound in bounds)
    shape = np.broadcast_shapes(first.shape, second.shape)
    axes = [axis for axis, extent in enumerate(shape) if extent > 1]
    if len(axes) > 1:
        raise lowering.unsupported("a range that varies along several axes is not lowered")
    a, b = (tuple(item.broadcast(shape).fractions()) for item in (first, second))
    axis, bits = (axes[0] if axes else None), lowering.integer("bits")
    try:
        if lowering.operation.name == "linear_quantize":
            return LinearQuantizer.min_max(a, b, bits, False, False, axis)
        signed, symmetric = (bool(lowering.operation.attributes[name]) for name in ("signed", "symmetric"))
        if lowering.operation.name == "min_max_linear_quantize":
            return LinearQuantizer.min_max(a, b, bits, signed, symmetric, axis)
        return LinearQuantizer.zero_point(tuple(int(z) for z in a), b, bits, signed, symmetric, axis)
    except Invalid as error:
        at = lowering.location
        raise error.at(file=at.file, line=at.line, column=at.column, tensor=at.tensor, op=at.op) from None


def _quantised(lowering: Lowering, quantizer: LinearQuantizer) -> Result:
    shape = lowering.output_shape()
    operand = expanded(lowering, lowering.operand("x"), shape)
    if isinstance(operand, Known):
        return known_codes(quantize_rationals(operand.rationals().broadcast(shape), quantizer), quantizer)
    return code_form(codes_of(lowering, operand, quantizer, "codes"), shape, quantizer)


# Ranges that are computed (section 7.2)


def _dynamic(lowering: Lowering) -> LinearForm:
    """``linear_quantize`` with a computed range. If the range is empty, every code is 0 and every number is min."""
    shape = lowering.output_shape()
    rank = len(shape)
    x, low, high = (linear_operand(lowering, lowering.linear(name), shape) for name in ("x", "min", "max"))
    extent = sum_of(high, scaled(low, lambda factor: -factor))
    above = sum_of(x, scaled(low, lambda factor: -factor))
    levels = 2 ** lowering.integer("bits") - 1
    quantizer = LinearQuantizer((Fraction(1, levels),), (Fraction(0),), 0, levels)
    codes = ratio_codes(lowering, above, extent, quantizer)
    if least_value(lowering, extent) < 0:
        # For a negative extent, the comparison is meaningless. For an extent of zero, every code stands for min.
        codes = codes * at_least(lowering, shape, extent)
    result = low
    unit = Rationals.scalar(Fraction(1, levels), rank)
    zero = Rationals.scalar(0, rank)
    for term in extent.terms:
        for value, weight in product(codes, term.value):
            part = Term(value, term.factor * unit * Rationals.scalar(weight, rank))
            result = sum_of(result, LinearForm(shape, (part,), zero))
    if not extent.constant.is_zero():
        result = sum_of(result, LinearForm(shape, (Term(codes, extent.constant * unit),), zero))
    return result


# Logarithms


@rule(
    "logarithmic_quantize",
    claim=exact(
        "comparisons with powers of two and their roots",
        "max is computed",
        "max differs between channels, and the powers of two of its codes do not fit 32 bits",
    ),
)
def logarithmic_quantize(lowering: Lowering) -> list[Result]:
    """sign(x) * 2^round(log2 |x|), with a clamped exponent: the number for which the code of x stands.

    With a range per channel, x and the result are scaled by the power of two of the channel.
    """
    shape, bits = lowering.output_shape(), lowering.integer("bits")
    bound = lowering.constant("max").expanded(len(shape))
    tops = [LogarithmicQuantizer.of(item, bits).top for item in bound.fractions()]
    operand = expanded(lowering, lowering.operand("x"), shape)
    if len(set(tops)) == 1:
        return [_powers(lowering, operand, LogarithmicQuantizer(tops[0], bits))]
    unit = Rationals.of((Fraction(2) ** top for top in tops), bound.shape)
    if isinstance(operand, Known):
        values = operand.rationals() / unit
        return [Known.of(known_powers(values.broadcast(shape), LogarithmicQuantizer(0, bits)).rationals() * unit)]
    form = linear_operand(lowering, lowering.linear("x"), shape)
    table = _powers(lowering, scaled(form, lambda factor: factor / unit), LogarithmicQuantizer(0, bits))
    found = None
    if isinstance(table, TableForm):
        with lowering.part("powers"):
            found = lattice(table)
    if found is None:
        raise lowering.unsupported("a range per channel is lowered for powers of two that fit 32 bits")
    return [scaled(found, lambda factor: factor * unit)]


def _powers(lowering: Lowering, operand: Operand, quantizer: LogarithmicQuantizer) -> TableForm | Known:
    if isinstance(operand, Known):
        return known_powers(operand.rationals().broadcast(operand.shape), quantizer)
    codes = codes_of(lowering, operand, quantizer, "codes")
    try:
        return decoded(codes, operand.shape, quantizer)
    except Unsupported as error:
        at = lowering.location
        raise error.at(file=at.file, line=at.line, column=at.column, tensor=at.tensor, op=at.op) from None
