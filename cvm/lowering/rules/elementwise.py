"""Elementwise operations (NNEF 1.0.1 section 4.2) and activation functions (section 4.9.1).

Linear operations rewrite the form. Clamps stay pending until codes are computed. All other operations are tables over
the codes of the operands (`cvm.lowering.proofs.table`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from cvm.errors import Unsupported
from cvm.lowering.claims import TOO_WIDE, exact
from cvm.lowering.context import Coded, Lowering, Result, rule
from cvm.lowering.forms.form import Known, LinearForm, SurdForm, Term
from cvm.lowering.parts.digits import product as products_of
from cvm.lowering.parts.operands import (
    around_zero,
    by_form,
    codes,
    function,
    linear_operand,
    scaled,
    sum_of,
    table_or,
)
from cvm.lowering.parts.ratio import quotient_of_forms
from cvm.lowering.parts.slopes import greater, sign_of, two_slopes
from cvm.lowering.parts.thresholds import function_of_sum
from cvm.lowering.proofs.curves import COURSES
from cvm.lowering.proofs.table import Operand
from cvm.quantization.rationals import Rationals
from cvm.quantization.reals import FUNCTIONS, Real, power, rational

__all__ = ["sum_of_operands"]


@rule("copy", claim=exact("the same integers; one requantize where the result has a quantiser of its own"))
def copy(lowering: Lowering) -> list[Result]:
    """The same real numbers. If the result has a quantiser of its own, they are quantised by it."""
    return [lowering.operand("x")]


@rule("neg", claim=exact("the coefficients of the sum change sign"))
def neg(lowering: Lowering) -> list[Result]:
    """-x."""
    x = lowering.operand("x")
    if isinstance(x, LinearForm) and not x.clamped:
        return [scaled(x, lambda factor: -factor)]
    return [function(lowering, ["x"], lambda v: -v)]


@rule("add", "sub", claim=exact("a sum of integers with rational coefficients, rounded once by one requantize"))
def add_or_sub(lowering: Lowering) -> list[Result]:
    """X + y or x - y, broadcast from the first dimension on."""
    add = lowering.operation.name == "add"
    return [by_form(lowering, sum_of_operands, lambda x, y: x + y if add else x - y)]


def sum_of_operands(lowering: Lowering) -> LinearForm:
    """``x + y`` for an addition, ``x - y`` for any other operation, as a linear form."""
    x, y = lowering.linear("x"), lowering.linear("y")
    if lowering.operation.name != "add":
        y = scaled(y, lambda factor: -factor)
    shape = lowering.output_shape()
    return sum_of(linear_operand(lowering, x, shape), linear_operand(lowering, y, shape))


@rule("add_n", claim=exact("a sum of integers with rational coefficients, rounded once by one requantize"))
def add_n(lowering: Lowering) -> list[Result]:
    """The sum of an array of tensors of one shape."""
    parts = lowering.operation.inputs["x"]
    if not isinstance(parts, tuple):
        raise lowering.unsupported("x must be an array of tensors")
    if not parts:
        return [LinearForm(lowering.output_shape(), (), Rationals.scalar(0, 1))]
    total = lowering.linear_of(parts[0], "x")
    for part in parts[1:]:
        total = sum_of(total, lowering.linear_of(part, "x"))
    return [total]


@rule("mul", claim=exact("a scaling by a constant, else a product of integers around zero"))
@rule(
    "div",
    claim=exact(
        "a scaling by a constant, a table over the codes of both, or, by a tensor of many codes, bit by bit",
        "a constant divisor holds a zero",
        "a divisor of more codes than a table holds is not proven to differ from zero, or the result has no quantiser",
        TOO_WIDE,
    ),
)
def mul_or_div(lowering: Lowering) -> list[Result]:
    """``x * y`` or ``x / y``. A constant factor or divisor scales the form; two sums become the sum of products."""
    function: Callable[[Real, Real], Real] = (
        (lambda x, y: x * y) if lowering.operation.name == "mul" else (lambda x, y: FUNCTIONS["rcp"](y) * x)
    )
    try:
        return [by_form(lowering, _product, function)]
    except Unsupported:
        quotient = quotient_of_forms(lowering) if lowering.operation.name == "div" else None
        if quotient is None:
            raise
        return [quotient]


def _product(lowering: Lowering) -> LinearForm | None:
    x, y = lowering.linear("x"), lowering.linear("y")
    if y.terms and not x.terms and lowering.operation.name == "mul":
        x, y = y, x
    shape = lowering.output_shape()
    x, y = linear_operand(lowering, x, shape), linear_operand(lowering, y, shape)
    if not y.terms:
        if lowering.operation.name == "div" and not y.constant.numerators.all():
            raise lowering.unsupported("the divisor holds a zero")
        scale = y.constant if lowering.operation.name == "mul" else Rationals.scalar(1, len(shape)) / y.constant
        return scaled(x, lambda factor: factor * scale)
    return _product_of_terms(lowering, x, y) if lowering.operation.name == "mul" else None


def _product_of_terms(lowering: Lowering, x: LinearForm, y: LinearForm) -> LinearForm | None:
    """The product of two forms of one term each, by the product of their integers, which are shifted such that 0 stands
    for zero.
    """
    if len(x.terms) != 1 or len(y.terms) != 1 or not (_uniform(x) and _uniform(y)):
        return None
    x, y = around_zero(lowering, x), around_zero(lowering, y)
    (a,), (b,) = x.terms, y.terms
    rank = x.rank
    products = products_of(a.value, b.value)
    terms = [Term(value, a.factor * b.factor * Rationals.scalar(weight, rank)) for value, weight in products]
    if not y.constant.is_zero():
        terms.append(Term(a.value, a.factor * y.constant))
    if not x.constant.is_zero():
        terms.append(Term(b.value, b.factor * x.constant))
    product = LinearForm(x.shape, (terms[0],), x.constant * y.constant)
    zero = Rationals.scalar(0, rank)
    for term in terms[1:]:
        product = sum_of(product, LinearForm(x.shape, (term,), zero))
    return product


def _uniform(form: LinearForm) -> bool:
    return form.terms[0].factor.uniform and form.constant.uniform


@rule("pow", claim=exact("a table over the codes of both operands; ties are decided in integers"))
def pow_(lowering: Lowering) -> list[Result]:
    """x^y by table."""
    return [function(lowering, ["x", "y"], _power)]


def _power(x: Real, y: Real) -> Real:
    if y.exact is not None:
        return power(x, y.exact)
    return FUNCTIONS["exp"](y * FUNCTIONS["log"](x))


@rule("relu", claim=exact("a clamp of the codes: a quantiser is monotone"))
def relu(lowering: Lowering) -> list[Result]:
    """max(x, 0): a pending clamp, which becomes a clip of the codes of the result."""
    x = lowering.operand("x")
    if isinstance(x, LinearForm | SurdForm):
        return [x.at_least(Fraction(0))]
    return [function(lowering, ["x"], FUNCTIONS["relu"])]


@rule("clamp", claim=exact("a clamp of the codes for constant bounds, else a table over all codes"))
def clamp(lowering: Lowering) -> list[Result]:
    """max(min(x, b), a). Constant bounds of the whole tensor become a pending clamp."""
    x, a, b = (lowering.operand(name) for name in ("x", "a", "b"))
    if isinstance(x, LinearForm | SurdForm) and not x.clamped and _one_number(a) and _one_number(b):
        low, high = (_number(bound) for bound in (a, b))
        return [replace(x, lower=low, upper=max(low, high))]
    return [function(lowering, ["x", "a", "b"], lambda v, low, high: _max(_min(v, high), low))]


def _one_number(operand: Operand) -> bool:
    return isinstance(operand, Known) and operand.codes.size == 1


def _number(operand: Operand) -> Fraction:
    assert isinstance(operand, Known)
    return operand.rationals().item()


@rule("min", "max", claim=exact("the lesser or greater code under the quantiser of the result, which is monotone"))
def min_or_max(lowering: Lowering) -> list[Result]:
    """The smaller or the larger operand. A quantiser is monotone, so the operands' codes are compared instead."""
    greatest = lowering.operation.name == "max"
    quantizer = lowering.quantizer()
    operands = [lowering.operand(name) for name in ("x", "y")]
    if quantizer is None or not all(isinstance(operand, LinearForm | SurdForm | Known) for operand in operands):
        real = _max if greatest else _min
        return [table_or(lowering, ["x", "y"], real, lambda refusal: greater(lowering, greatest, refusal))]
    sides = [codes(lowering, name, quantizer) for name in ("x", "y")]
    if not greatest:
        sides = [-value for value in sides]
    value = lowering.emit("broadcast_max", *sides)
    if not greatest:
        value = -value
    return [Coded(value, note=f"{lowering.operation.name} of codes", any_rounding=True)]


def _min(x: Real, y: Real) -> Real:
    return x if _less(x, y) else y


def _max(x: Real, y: Real) -> Real:
    return y if _less(x, y) else x


def _less(x: Real, y: Real) -> bool:
    """``x < y``. For two equal irrational numbers the comparison raises `Undecided`; it is never guessed."""
    if y.exact is not None:
        return x.compare(y.exact) < 0
    if x.exact is not None:
        return y.compare(x.exact) > 0
    return (x - y).sign < 0


# Functions by table


@rule("prelu", "leaky_relu", claim=exact("a table over the codes; of wide sums the codes of both slopes, or a sum"))
def prelu(lowering: Lowering) -> list[Result]:
    """Alpha * x where x < 0, else x."""
    rank = len(lowering.output_shape())
    if lowering.operation.name == "prelu":
        alpha = lowering.operand("alpha")
        if not isinstance(alpha, Known):
            return [function(lowering, ["x", "alpha"], _prelu)]
        below = alpha.expanded(rank)
        return [table_or(lowering, ["x", "alpha"], _prelu, lambda refusal: two_slopes(lowering, below, refusal))]
    slope = rational(lowering.fraction("alpha"))
    below = Rationals.scalar(lowering.fraction("alpha"), rank)
    return [table_or(lowering, ["x"], lambda x: _prelu(x, slope), lambda refusal: two_slopes(lowering, below, refusal))]


def _prelu(x: Real, alpha: Real) -> Real:
    return alpha * x if x.sign < 0 else x


@rule("abs", claim=exact("a table over the codes; of wide sums the greater code of the sum and its negative, or a sum"))
def absolute(lowering: Lowering) -> list[Result]:
    """X where x >= 0, else -x."""
    below = Rationals.scalar(-1, len(lowering.output_shape()))
    return [table_or(lowering, ["x"], FUNCTIONS["abs"], lambda refusal: two_slopes(lowering, below, refusal))]


@rule("sign", claim=exact("a table over the codes; of wide sums two comparisons with 0"))
def sign(lowering: Lowering) -> list[Result]:
    """-1, 0 or 1."""
    return [table_or(lowering, ["x"], FUNCTIONS["sign"], lambda refusal: sign_of(lowering, refusal))]


def _enter_functions() -> None:
    """Enter a rule that makes a table, for every function of one number that has no other rule."""

    def enter(name: str, real: Callable[[Real], Real]) -> None:
        course = COURSES.get(name)
        wide = "" if course is None else "; of wide sums thresholds, found by exact search"

        @rule(name, claim=exact(f"a table over the codes, correctly rounded{wide}"))
        def by_table(lowering: Lowering) -> list[Result]:
            if course is None:
                return [function(lowering, ["x"], real)]
            return [function_of_sum(lowering, real, course)]

    for name, real in FUNCTIONS.items():
        if name not in ("abs", "copy", "elu", "gelu", "neg", "relu", "sign"):
            enter(name, real)


_enter_functions()
