"""Quantisation as an operation of the graph (NNEF 1.0.1 sections 4.9.5 and 7.2), with known or computed ranges.

With a range that is known the codes are those of a quantiser. With a computed range the code is that of the quotient
(x - min) / (max - min), found by comparing (`cvm.lowering.ratio`), and the number it stands for,
min + q * (max - min) / r, is linear in products of the code with the accumulators of the range.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from cvm.errors import Invalid
from cvm.graph import GraphOperation
from cvm.lowering.claims import SEVERAL_AXES, TOO_WIDE, exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.decide import TooWide, at_least_zero, count_reached
from cvm.lowering.form import Known, LinearForm, TableForm, Term, code_form, known_codes
from cvm.lowering.logarithms import power_code
from cvm.lowering.operands import codes_of, expanded, full_value, linear_operand, scaled, sum_of
from cvm.lowering.ratio import at_least, least_value, ratio_codes, summands, table_digits
from cvm.lowering.table import MOST_ENTRIES, tabulate
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer
from cvm.quantization.exact import quantize_rationals
from cvm.quantization.rationals import Rationals
from cvm.quantization.reals import Real, rational

__all__: list[str] = []


@rule(
    "linear_quantize",
    claim=exact(
        "the codes of that quantiser; of a computed range (7.2) bit by bit, the extent staying a factor",
        SEVERAL_AXES,
        TOO_WIDE,
    ),
)
@rule(
    "min_max_linear_quantize",
    "zero_point_linear_quantize",
    claim=exact("the codes of that quantiser", SEVERAL_AXES, "a parameter is computed"),
)
def linear_quantize(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """The number that the code of x stands for."""
    parameters = ("zero_point", "scale") if operation.name.startswith("zero") else ("min", "max")
    bounds = [lowering.operand(operation, name) for name in parameters]
    if all(isinstance(bound, Known) for bound in bounds):
        quantizer = _quantizer(lowering, operation, [bound for bound in bounds if isinstance(bound, Known)])
        return [_quantised(lowering, operation, quantizer)]
    if operation.name != "linear_quantize":
        raise lowering.unsupported(operation, "computed parameters are lowered for linear_quantize only")
    return [_dynamic(lowering, operation)]


def _integer(operation: GraphOperation, name: str) -> int:
    return int(operation.attributes[name])  # type: ignore[arg-type]


def _quantizer(lowering: Lowering, operation: GraphOperation, bounds: list[Known]) -> LinearQuantizer:
    """The quantiser of constant parameters: one of each, or one per index of one axis."""
    rank = len(lowering.output_shape(operation))
    first, second = (bound.expanded(rank) for bound in bounds)
    shape = np.broadcast_shapes(first.shape, second.shape)
    axes = [axis for axis, extent in enumerate(shape) if extent > 1]
    if len(axes) > 1:
        raise lowering.unsupported(operation, "a range that varies along several axes is not lowered")
    a, b = (tuple(item.broadcast(shape).fractions()) for item in (first, second))
    axis, bits = (axes[0] if axes else None), _integer(operation, "bits")
    try:
        if operation.name == "linear_quantize":
            return LinearQuantizer.min_max(a, b, bits, False, False, axis)
        signed, symmetric = (bool(operation.attributes[name]) for name in ("signed", "symmetric"))
        if operation.name == "min_max_linear_quantize":
            return LinearQuantizer.min_max(a, b, bits, signed, symmetric, axis)
        return LinearQuantizer.zero_point(tuple(int(z) for z in a), b, bits, signed, symmetric, axis)
    except Invalid as error:
        at = lowering.location(operation)
        raise error.at(file=at.file, line=at.line, column=at.column, tensor=at.tensor, op=at.op) from None


def _quantised(lowering: Lowering, operation: GraphOperation, quantizer: LinearQuantizer) -> Result:
    shape = lowering.output_shape(operation)
    operand = expanded(lowering, operation, lowering.operand(operation, "x"), shape)
    if isinstance(operand, Known):
        return known_codes(quantize_rationals(operand.rationals().broadcast(shape), quantizer), quantizer)
    return code_form(codes_of(lowering, operation, operand, quantizer, "codes"), shape, quantizer)


# Ranges that are computed (section 7.2)


def _dynamic(lowering: Lowering, operation: GraphOperation) -> LinearForm:
    """Linear_quantize with a computed range. Where it is empty, every code is 0 and every number min."""
    shape = lowering.output_shape(operation)
    rank = len(shape)
    x, low, high = (
        linear_operand(lowering, operation, lowering.linear(operation, name), shape) for name in ("x", "min", "max")
    )
    extent = sum_of(high, scaled(low, lambda factor: -factor))
    above = sum_of(x, scaled(low, lambda factor: -factor))
    levels = 2 ** _integer(operation, "bits") - 1
    quantizer = LinearQuantizer((Fraction(1, levels),), (Fraction(0),), 0, levels)
    codes = ratio_codes(lowering, operation, above, extent, quantizer)
    if least_value(lowering, extent) < 0:
        # Below zero the comparison means nothing; an extent of zero gives any code, all of which stand for min.
        codes = lowering.emit(operation, "broadcast_mul", codes, at_least(lowering, operation, shape, extent))
    result = low
    unit = Rationals.scalar(Fraction(1, levels), rank)
    zero = Rationals.scalar(0, rank)
    for term in extent.terms:
        product = lowering.emit(operation, "broadcast_mul", codes, term.value)
        result = sum_of(result, LinearForm(shape, (Term(product, term.factor * unit),), zero))
    if not extent.constant.is_zero():
        result = sum_of(result, LinearForm(shape, (Term(codes, extent.constant * unit),), zero))
    return result


# Logarithms


@rule(
    "logarithmic_quantize",
    claim=exact("comparisons of squares with powers of two", "max is computed, or differs between items"),
)
def logarithmic_quantize(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """sign(x) * 2^round(log2 |x|), clamped: x has one of 2^(bits+1) + 1 values, decided by comparisons of squares."""
    bound = lowering.constant(operation, "max").rationals()
    if len(set(bound.fractions())) > 1:
        raise lowering.unsupported(operation, "a range per channel is not lowered")
    quantizer = LogarithmicQuantizer.of(bound.fractions()[0], _integer(operation, "bits"))
    shape = lowering.output_shape(operation)
    operand = expanded(lowering, operation, lowering.operand(operation, "x"), shape)
    if isinstance(operand, Known):
        values = operand.rationals()
        items = [quantizer.value(power_code(item, quantizer)) for item in values.fractions()]
        return [LinearForm(shape, (), Rationals.of(items, values.shape))]
    if isinstance(operand, LinearForm) and not operand.clamped and not _few(lowering, operand):
        return [_counted(lowering, operation, operand, quantizer)]
    return [tabulate(lowering, operation, [operand], _nearest_power(quantizer), shape)]


def _few(lowering: Lowering, form: LinearForm) -> bool:
    if len(form.terms) != 1:
        return False
    lo, hi = lowering.builder.range(form.terms[0].value).hull()
    return (hi - lo + 1) * max(form.terms[0].factor.numerators.size, form.constant.numerators.size) <= MOST_ENTRIES // 4


def _nearest_power(quantizer: LogarithmicQuantizer) -> Callable[[Real], Real]:
    def nearest(x: Real) -> Real:
        if x.exact is not None:
            return rational(quantizer.value(power_code(x.exact, quantizer)))
        doubled = x * x * rational(2)
        # |x| reaches the exponent e at 2^(e - 1/2), where 2 * x^2 = 4^e.
        exponents = range(quantizer.top - quantizer.hi + 2, quantizer.top + 1)
        place = 1 + sum(doubled.compare(Fraction(4) ** e) >= 0 for e in exponents)
        return rational(quantizer.value(place if x.sign > 0 else -place))

    return nearest


def _threshold(k: int, quantizer: LogarithmicQuantizer, unit: Fraction) -> int:
    """The least integer N for which N * unit has the code k or more."""
    if k in (0, 1):
        return k
    if k < 0:
        return 1 - _threshold(1 - k, quantizer, unit)
    square = Fraction(2) ** (2 * (quantizer.top - quantizer.hi + k) - 1) / (unit * unit)
    return math.isqrt(math.ceil(square) - 1) + 1


def _counted(
    lowering: Lowering, operation: GraphOperation, form: LinearForm, quantizer: LogarithmicQuantizer
) -> TableForm:
    """The place of a wide sum among the steps of the codes.

    With N the integers of the sum in units u, code k > 1 with the exponent e is reached where N * u >= 2^(e - 1/2),
    code 1 where N > 0, code 0 where N >= 0, and code k < 0 where -N does not reach the code 1 - k.
    """
    shape, rank = form.shape, form.rank
    found, constant, unit = summands(form.terms, form.constant, whole=True)
    rest = constant.numerators // constant.denominator
    bound = int(abs(rest).max()) + sum(
        int(abs(item.coefficients).max()) * lowering.builder.range(item.value).magnitude() for item in found
    )
    steps = quantizer.hi - quantizer.lo
    exact = [_threshold(k, quantizer, unit) for k in range(quantizer.lo + 1, quantizer.hi + 1)]
    thresholds = [0, *(min(max(item, -bound), bound + 1) for item in exact)]
    thresholds += [bound + 1] * (2 ** steps.bit_length() - len(thresholds))
    name = f"{operation.outputs[0]}.power"

    def reached(trial: str) -> str:
        digits = table_digits(lowering, operation, thresholds, trial, rank)
        return at_least_zero(lowering.builder, shape, [*found, *digits], rest, name)

    try:
        place = count_reached(lowering.builder, shape, steps, reached, name, most=steps)
    except TooWide:
        raise lowering.needs_quantization(operation, str(operation.inputs["x"])) from None
    numbers = tuple(rational(quantizer.value(quantizer.lo + i)) for i in range(steps + 1))
    return TableForm(shape, full_value(lowering, operation, place, shape), numbers)
