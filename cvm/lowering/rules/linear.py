"""Matrix products (NNEF 1.0.1 sections 4.7 and 4.9.2) of constant and of computed tensors, in batches.

Let A = sum_i f_i * X_i + a and B = sum_j g_j * Y_j + b, where factors and constants do not vary along the summed axis
of extent n. Then

    A * B = sum_ij f_i * g_j * (X_i * Y_j) + sum_i f_i * b * (sum X_i) + sum_j g_j * a * (sum Y_j) + n * a * b,

which consists of products and sums of integers. Operands of one term are first shifted to integers around their zero,
so that a and b are less than half a step.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.bounds import holding, magnitude
from cvm.lowering.claims import ALONG_THE_SUM, exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import Known, LinearForm, Shape, Term
from cvm.lowering.parts.digits import narrow_digits, weighed_digits
from cvm.lowering.parts.operands import around_zero, linear_operand, sum_of
from cvm.quantization.rationals import Rationals
from cvm.records import dataclass

__all__: list[str] = []

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, slots=True)
class _Factor:
    """A value of the program, or constant integers, and its coefficient."""

    items: Value | Array
    factor: Rationals


@dataclass(frozen=True, eq=False, slots=True)
class _Matrices:
    """One operand of a product, of shape (.., rows, n). The summed axis is the last one."""

    shape: Shape
    factors: tuple[_Factor, ...]
    constant: Rationals


@rule("linear", claim=exact("sums of products of integers around zero, and their row sums", ALONG_THE_SUM))
def linear(lowering: Lowering) -> list[Result]:
    """Input * transpose(filter) + bias."""
    product = _product(lowering, ("input", False), ("filter", False))
    bias = lowering.linear("bias")
    return [sum_of(product, linear_operand(lowering, bias, product.shape))]


@rule("matmul", claim=exact("sums of products of integers around zero, and their row sums", ALONG_THE_SUM))
def matmul(lowering: Lowering) -> list[Result]:
    """A * B, where either operand may be transposed first."""
    transposed = [bool(lowering.operation.attributes[name]) for name in ("transposeA", "transposeB")]
    return [_product(lowering, ("A", transposed[0]), ("B", not transposed[1]))]


def _product(lowering: Lowering, left: tuple[str, bool], right: tuple[str, bool]) -> LinearForm:
    """The matrix product of two operands. Each has a flag that says whether its last two axes must be swapped, so that
    the summed axis is the last one.
    """
    a, b = (_matrices(lowering, *side) for side in (left, right))
    shape = lowering.output_shape()
    count = a.shape[-1]
    n = Rationals.scalar(count, len(shape))
    result = LinearForm(shape, (), n * a.constant * _crossed(b.constant))
    zero = Rationals.scalar(0, len(shape))

    def add(items: Value | Array, factor: Rationals) -> None:
        nonlocal result
        if isinstance(items, Value):
            result = sum_of(result, LinearForm(shape, (Term(items, factor),), zero))
        else:
            result = sum_of(result, LinearForm(shape, (), Rationals(items) * factor))

    for x in a.factors:
        for y in b.factors:
            factor = x.factor * _crossed(y.factor)
            for items, weight in _products(lowering, (x.items, a.shape), (y.items, b.shape)):
                add(items, factor * Rationals.scalar(weight, len(shape)))
    if not b.constant.is_zero():
        for x in a.factors:
            add(_totals(x.items), x.factor * _crossed(b.constant))
    if not a.constant.is_zero():
        for y in b.factors:
            totals = _totals(y.items)
            add(_transposed(totals), a.constant * _crossed(y.factor))
    return result


def _matrices(lowering: Lowering, parameter: str, exchanged: bool) -> _Matrices:
    operand = lowering.stored(parameter)
    if isinstance(operand, Known):
        found = _known(operand)
    else:
        form = lowering.linear(parameter)
        if len(form.terms) == 1 and form.terms[0].factor.uniform and form.constant.uniform:
            form = around_zero(lowering, form)
        factors = tuple(_Factor(term.value.broadcast(form.shape), term.factor) for term in form.terms)
        found = _Matrices(form.shape, factors, form.constant)
    if exchanged:
        shape = (*found.shape[:-2], found.shape[-1], found.shape[-2])
        transposed = tuple(_Factor(_transposed(x.items), _crossed(x.factor)) for x in found.factors)
        found = _Matrices(shape, transposed, _crossed(found.constant))
    apart = [part for factor in found.factors for part in _apart(lowering, found, factor, parameter)]
    if found.constant.shape[-1] == 1:
        return _Matrices(found.shape, tuple(apart), found.constant)
    # A constant that varies along the summed axis becomes another tensor of integers.
    constant, rank = found.constant, len(found.shape)
    items = np.broadcast_to(constant.numerators, found.shape)
    apart.append(_Factor(items, Rationals.scalar(Fraction(1, constant.denominator), rank)))
    return _Matrices(found.shape, tuple(apart), Rationals.scalar(0, rank))


_MOST_PARTS = 16


def _apart(lowering: Lowering, matrices: _Matrices, factor: _Factor, parameter: str) -> list[_Factor]:
    """Split a factor by coefficient. Each part has one coefficient, and zeros in place of the items of other parts.

    Raises `Unsupported` if there are too many coefficients, or if they vary along other axes than the summed one.
    """
    coefficients = factor.factor
    if coefficients.shape[-1] == 1:
        return [factor]
    distinct = list(dict.fromkeys(coefficients.numerators.ravel().tolist()))
    if len(distinct) > _MOST_PARTS or coefficients.numerators.size != coefficients.shape[-1]:
        message = f"{parameter} has {len(distinct)} scales along the axis that is summed over: at most {_MOST_PARTS}"
        raise lowering.unsupported(message)
    parts = []
    for numerator in distinct:
        mask = (coefficients.numerators == numerator).astype(object) * 1
        if isinstance(factor.items, Value):
            mask_value = lowering.tensor_constant(mask, "mask")
            items: Value | Array = factor.items * mask_value
        else:
            items = factor.items * mask
        unit = Rationals.scalar(Fraction(numerator, coefficients.denominator), len(matrices.shape))
        parts.append(_Factor(items, unit))
    return parts


def _known(known: Known) -> _Matrices:
    """A constant matrix as one factor, with its codes shifted towards zero."""
    codes, rest = known.centred()
    return _Matrices(known.shape, (_Factor(codes, known.scale),), rest)


def _crossed(items: Rationals) -> Rationals:
    """Swap the last two axes of coefficients, so that coefficients of rows become coefficients of columns."""
    return items.moved(lambda array: np.swapaxes(array, -1, -2))


def _transposed(items: Value | Array) -> Value | Array:
    """Swap the last two axes of a value, with an op, or of an array."""
    if not isinstance(items, Value):
        return np.swapaxes(items, -1, -2)
    rank = len(items.shape)
    return items.transpose((*range(rank - 2), rank - 1, rank - 2))


def _totals(items: Value | Array) -> Value | Array:
    """Sum a value or an array over its last axis, which is kept with extent 1."""
    if not isinstance(items, Value):
        held = holding(items, magnitude(items) * items.shape[-1])
        return np.asarray(held.sum(axis=-1, keepdims=True), dtype=object)
    rank = len(items.shape)
    return items.sum((rank - 1,), keepdims=True)


def _products(
    lowering: Lowering, left: tuple[Value | Array, Shape], right: tuple[Value | Array, Shape]
) -> list[tuple[Value | Array, int]]:
    """Emit X * transpose(Y) as weighted products of digits."""
    (x, x_shape), (y, y_shape) = left, right
    if not isinstance(x, Value) and not isinstance(y, Value):
        return [(_multiplied(lowering, left, right), 1)]
    if isinstance(x, Value) and isinstance(y, Value):
        digits = narrow_digits(x, y, x_shape[-1])
        return [(_multiplied(lowering, (a, x_shape), (b, y_shape)), p * q) for a, p in digits[0] for b, q in digits[1]]
    if isinstance(x, Value):
        assert not isinstance(y, Value)
        found = weighed_digits(x, y, tuple(range(y.ndim - 1)))
        return [(_multiplied(lowering, (a, x_shape), (b, y_shape)), weight) for a, b, weight in found]
    assert isinstance(y, Value)
    found = weighed_digits(y, x, tuple(range(x.ndim - 1)))
    return [(_multiplied(lowering, (b, x_shape), (a, y_shape)), weight) for a, b, weight in found]


def _multiplied(
    lowering: Lowering, left: tuple[Value | Array, Shape], right: tuple[Value | Array, Shape]
) -> Value | Array:
    """X * transpose(Y) for each item of the batch."""
    (x, x_shape), (y, y_shape) = left, right
    if not isinstance(x, Value) and not isinstance(y, Value):
        bound = magnitude(x) * magnitude(y) * x_shape[-1]
        return np.asarray(np.matmul(holding(x, bound), holding(np.swapaxes(y, -1, -2), bound)), dtype=object)
    values = [items if isinstance(items, Value) else lowering.tensor_constant(items, "matrix") for items in (x, y)]
    batch = np.broadcast_shapes(x_shape[:-2], y_shape[:-2])
    rows, count, columns = x_shape[-2], x_shape[-1], y_shape[-2]
    size = int(np.prod(batch))
    if int(np.prod(y_shape[:-2])) == 1:
        # If there is one matrix Y for the whole batch, the rows of all matrices X form one matrix.
        every = int(np.prod(x_shape[:-1]))
        flat = [values[0].in_shape((every, count)), values[1].in_shape((columns, count))]
        return lowering.emit("dense", *flat).in_shape((*batch, rows, columns))
    if lowering.op_set >= 2:
        values[0] = values[0].broadcast((*batch, rows, count))
        shared = (1,) * (len(batch) + 2 - len(y_shape)) + y_shape
        return lowering.emit("matmul", values[0], values[1].in_shape(shared), transpose_a=False, transpose_b=True)
    full = [value.broadcast((*batch, *shape[-2:])) for value, shape in zip(values, (x_shape, y_shape), strict=True)]
    # Each item of the batch becomes a group of channels: the summed axis becomes its input channels, rows its pixels.
    image = full[0].in_shape((size, rows, count)).transpose((0, 2, 1))
    image = image.in_shape((1, size * count, rows, 1))
    filters = full[1].in_shape((size * columns, count, 1, 1))
    product = lowering.emit("conv2d", image, filters, padding=(0, 0), stride=(1, 1), dilation=(1, 1), groups=size)
    transposed = product.in_shape((*batch, columns, rows))
    found = _transposed(transposed)
    assert isinstance(found, Value)
    return found
