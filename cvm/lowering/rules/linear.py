"""Matrix products (NNEF 1.0.1 sections 4.7 and 4.9.2): of constants and of computed tensors, in batches.

With A = sum_i f_i * X_i + a and B = sum_j g_j * Y_j + b, where factors and constants do not vary along the axis that is
summed over, of extent n,

    A * B = sum_ij f_i * g_j * (X_i * Y_j) + sum_i f_i * b * (sum X_i) + sum_j g_j * a * (sum Y_j) + n * a * b,

products and sums of integers. Operands of one term are first moved to the integers around their zero, so that a and b
are less than half a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.bounds import holding, magnitude
from cvm.graph import GraphOperation
from cvm.lowering.claims import ALONG_THE_SUM, exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.forms.form import Known, LinearForm, Shape, Term
from cvm.lowering.parts.digits import narrow_digits, weighed_digits
from cvm.lowering.parts.operands import around_zero, full_value, linear_operand, sum_of
from cvm.quantization.rationals import Rationals

__all__: list[str] = []

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, slots=True)
class _Factor:
    """A value of the program, or known integers, and its coefficient."""

    items: str | Array
    factor: Rationals


@dataclass(frozen=True, eq=False, slots=True)
class _Matrices:
    """One side of a product, of shape (.., rows, n): the axis that is summed over comes last."""

    shape: Shape
    factors: tuple[_Factor, ...]
    constant: Rationals


@rule("linear", claim=exact("sums of products of integers around zero, and their row sums", ALONG_THE_SUM))
def linear(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """Input * transpose(filter) + bias."""
    product = _product(lowering, operation, ("input", False), ("filter", False))
    bias = lowering.linear(operation, "bias")
    return [sum_of(product, linear_operand(lowering, operation, bias, product.shape))]


@rule("matmul", claim=exact("sums of products of integers around zero, and their row sums", ALONG_THE_SUM))
def matmul(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """A * B, either of them transposed first where asked for."""
    transposed = [bool(operation.attributes[name]) for name in ("transposeA", "transposeB")]
    return [_product(lowering, operation, ("A", transposed[0]), ("B", not transposed[1]))]


def _product(
    lowering: Lowering, operation: GraphOperation, left: tuple[str, bool], right: tuple[str, bool]
) -> LinearForm:
    """The product of two operands; with each goes whether its last two axes are exchanged to put the sum last."""
    a, b = (_matrices(lowering, operation, *side) for side in (left, right))
    shape = lowering.output_shape(operation)
    count = a.shape[-1]
    n = Rationals.scalar(count, len(shape))
    result = LinearForm(shape, (), n * a.constant * _crossed(b.constant))
    zero = Rationals.scalar(0, len(shape))

    def add(items: str | Array, factor: Rationals) -> None:
        nonlocal result
        if isinstance(items, str):
            result = sum_of(result, LinearForm(shape, (Term(items, factor),), zero))
        else:
            result = sum_of(result, LinearForm(shape, (), Rationals(items) * factor))

    for x in a.factors:
        for y in b.factors:
            factor = x.factor * _crossed(y.factor)
            for items, weight in _products(lowering, operation, (x.items, a.shape), (y.items, b.shape)):
                add(items, factor * Rationals.scalar(weight, len(shape)))
    if not b.constant.is_zero():
        for x in a.factors:
            add(_totals(lowering, operation, x.items), x.factor * _crossed(b.constant))
    if not a.constant.is_zero():
        for y in b.factors:
            totals = _totals(lowering, operation, y.items)
            add(_turned(lowering, operation, totals), a.constant * _crossed(y.factor))
    return result


def _matrices(lowering: Lowering, operation: GraphOperation, parameter: str, exchanged: bool) -> _Matrices:
    operand = lowering.operand(operation, parameter)
    if isinstance(operand, Known):
        found = _known(operand)
    else:
        form = lowering.linear(operation, parameter)
        if len(form.terms) == 1 and form.terms[0].factor.uniform and form.constant.uniform:
            form = around_zero(lowering, operation, form)
        factors = tuple(
            _Factor(full_value(lowering, operation, term.value, form.shape), term.factor) for term in form.terms
        )
        found = _Matrices(form.shape, factors, form.constant)
    if exchanged:
        shape = (*found.shape[:-2], found.shape[-1], found.shape[-2])
        turned = tuple(_Factor(_turned(lowering, operation, x.items), _crossed(x.factor)) for x in found.factors)
        found = _Matrices(shape, turned, _crossed(found.constant))
    apart = [part for factor in found.factors for part in _apart(lowering, operation, found, factor, parameter)]
    if found.constant.shape[-1] == 1:
        return _Matrices(found.shape, tuple(apart), found.constant)
    # A constant that varies along the sum is one more tensor of integers.
    constant, rank = found.constant, len(found.shape)
    items = np.broadcast_to(constant.numerators, found.shape)
    apart.append(_Factor(items, Rationals.scalar(Fraction(1, constant.denominator), rank)))
    return _Matrices(found.shape, tuple(apart), Rationals.scalar(0, rank))


_MOST_PARTS = 16


def _apart(
    lowering: Lowering, operation: GraphOperation, matrices: _Matrices, factor: _Factor, parameter: str
) -> list[_Factor]:
    """A factor as several, whose coefficients do not vary along the axis that is summed over: each has some items."""
    coefficients = factor.factor
    if coefficients.shape[-1] == 1:
        return [factor]
    distinct = list(dict.fromkeys(coefficients.numerators.ravel().tolist()))
    if len(distinct) > _MOST_PARTS or coefficients.numerators.size != coefficients.shape[-1]:
        message = f"{parameter} has {len(distinct)} scales along the axis that is summed over: at most {_MOST_PARTS}"
        raise lowering.unsupported(operation, message)
    parts = []
    for numerator in distinct:
        mask = (coefficients.numerators == numerator).astype(object) * 1
        if isinstance(factor.items, str):
            mask_value = lowering.tensor_constant(operation, mask, "mask")
            items: str | Array = lowering.emit(operation, "broadcast_mul", factor.items, mask_value)
        else:
            items = factor.items * mask
        unit = Rationals.scalar(Fraction(numerator, coefficients.denominator), len(matrices.shape))
        parts.append(_Factor(items, unit))
    return parts


def _known(known: Known) -> _Matrices:
    """Constant integers around zero."""
    codes, rest = known.centred()
    return _Matrices(known.shape, (_Factor(codes, known.scale),), rest)


def _crossed(items: Rationals) -> Rationals:
    """Coefficients of rows as coefficients of columns."""
    return items.moved(lambda array: np.swapaxes(array, -1, -2))


def _turned(lowering: Lowering, operation: GraphOperation, items: str | Array) -> str | Array:
    """The last two axes exchanged."""
    if not isinstance(items, str):
        return np.swapaxes(items, -1, -2)
    rank = len(lowering.builder.shape(items))
    return lowering.emit(operation, "transpose", items, axes=(*range(rank - 2), rank - 1, rank - 2))


def _totals(lowering: Lowering, operation: GraphOperation, items: str | Array) -> str | Array:
    """Sums over the last axis, of extent 1 then."""
    if not isinstance(items, str):
        held = holding(items, magnitude(items) * items.shape[-1])
        return np.asarray(held.sum(axis=-1, keepdims=True), dtype=object)
    rank = len(lowering.builder.shape(items))
    return lowering.emit(operation, "sum", items, axes=(rank - 1,), keepdims=True, exclude=False)


def _products(
    lowering: Lowering, operation: GraphOperation, left: tuple[str | Array, Shape], right: tuple[str | Array, Shape]
) -> list[tuple[str | Array, int]]:
    """X * transpose(Y) as products of their digits, and the weights of these."""
    (x, x_shape), (y, y_shape) = left, right
    if not isinstance(x, str) and not isinstance(y, str):
        return [(_multiplied(lowering, operation, left, right), 1)]
    if isinstance(x, str) and isinstance(y, str):
        digits = narrow_digits(lowering, operation, x, y, x_shape[-1])
        return [
            (_multiplied(lowering, operation, (a, x_shape), (b, y_shape)), p * q)
            for a, p in digits[0]
            for b, q in digits[1]
        ]
    if isinstance(x, str):
        assert not isinstance(y, str)
        found = weighed_digits(lowering, operation, x, y, tuple(range(y.ndim - 1)))
        return [(_multiplied(lowering, operation, (a, x_shape), (b, y_shape)), weight) for a, b, weight in found]
    assert isinstance(y, str)
    found = weighed_digits(lowering, operation, y, x, tuple(range(x.ndim - 1)))
    return [(_multiplied(lowering, operation, (b, x_shape), (a, y_shape)), weight) for a, b, weight in found]


def _multiplied(
    lowering: Lowering, operation: GraphOperation, left: tuple[str | Array, Shape], right: tuple[str | Array, Shape]
) -> str | Array:
    """X * transpose(Y) for each item of the batch."""
    (x, x_shape), (y, y_shape) = left, right
    if not isinstance(x, str) and not isinstance(y, str):
        bound = magnitude(x) * magnitude(y) * x_shape[-1]
        return np.asarray(np.matmul(holding(x, bound), holding(np.swapaxes(y, -1, -2), bound)), dtype=object)
    values = [
        items if isinstance(items, str) else lowering.tensor_constant(operation, items, "matrix") for items in (x, y)
    ]
    batch = np.broadcast_shapes(x_shape[:-2], y_shape[:-2])
    rows, count, columns = x_shape[-2], x_shape[-1], y_shape[-2]
    size = int(np.prod(batch))
    if int(np.prod(y_shape[:-2])) == 1:
        # One matrix for the whole batch: its rows are so many more.
        every = int(np.prod(x_shape[:-1]))
        flat = [_shaped(lowering, operation, values[0], (every, count)),
                _shaped(lowering, operation, values[1], (columns, count))]  # fmt: skip
        return _shaped(lowering, operation, lowering.emit(operation, "dense", *flat), (*batch, rows, columns))
    full = [full_value(lowering, operation, value, (*batch, *shape[-2:]))
            for value, shape in zip(values, (x_shape, y_shape), strict=True)]  # fmt: skip
    # Each item of the batch is a group of channels: the summed axis are its input channels, rows are pixels.
    image = lowering.emit(operation, "transpose", _shaped(lowering, operation, full[0], (size, rows, count)),
                          axes=(0, 2, 1))  # fmt: skip
    image = _shaped(lowering, operation, image, (1, size * count, rows, 1))
    filters = _shaped(lowering, operation, full[1], (size * columns, count, 1, 1))
    product = lowering.emit(
        operation, "conv2d", image, filters, padding=(0, 0), stride=(1, 1), dilation=(1, 1), groups=size
    )
    turned = _shaped(lowering, operation, product, (*batch, columns, rows))
    found = _turned(lowering, operation, turned)
    assert isinstance(found, str)
    return found


def _shaped(lowering: Lowering, operation: GraphOperation, value: str, shape: Shape) -> str:
    if lowering.builder.shape(value) == shape:
        return value
    return lowering.emit(operation, "reshape", value, target_shape=shape)
