"""Matrix products with a constant matrix (NNEF 1.0.1 sections 4.7 and 4.9.2); see `convolution` for the algebra."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cvm.graph import GraphOperation
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.form import Known, LinearForm, Term
from cvm.lowering.operands import linear_operand, sum_of
from cvm.quantization.rationals import Rationals

__all__: list[str] = []


@rule("linear")
def linear(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """Input * transpose(filter) + bias, with constant filter and bias."""
    product = _product(lowering, operation, "input", lowering.constant(operation, "filter"))
    bias = lowering.constant(operation, "bias")
    form = LinearForm(bias.shape, (), bias.rationals())
    return [sum_of(product, linear_operand(lowering, operation, form, product.shape))]


@rule("matmul")
def matmul(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """A * B for matrices, where B is constant."""
    if operation.attributes["transposeA"]:
        raise lowering.unsupported(operation, "transposeA is not lowered")
    known = lowering.constant(operation, "B")
    if len(known.shape) != 2:
        raise lowering.unsupported(operation, f"only matrices are lowered, found rank {len(known.shape)}")
    if not operation.attributes["transposeB"]:
        turned = (items.moved(lambda array: array.T) for items in (known.scale, known.offset))
        known = Known(known.codes.T, *turned)
    return [_product(lowering, operation, "A", known)]


def _product(lowering: Lowering, operation: GraphOperation, parameter: str, known: Known) -> LinearForm:
    """X * transpose(w) for x = s*q + b and w = t*v + u with one t and u per row of w."""
    value, scale, constant, form = lowering.coded(operation, parameter)
    if form.rank != 2 or len(known.shape) != 2:
        raise lowering.unsupported(operation, f"only matrices are lowered, found rank {form.rank}")
    if known.scale.shape[1] > 1:
        raise lowering.unsupported(operation, "the matrix is quantised along the axis that is summed over")
    weights, rest = known.centred()
    per_output = [items.moved(lambda array: array.reshape(1, -1)) for items in (known.scale, rest)]
    terms = [_term(lowering, operation, value, weights, "weights", per_output[0], scale)]
    if not rest.is_zero():
        ones = np.ones((1, known.shape[1]), np.int64)
        terms.append(_term(lowering, operation, value, ones, "ones", per_output[1], scale))
    total = Rationals(weights.sum(axis=1).reshape(1, -1)) * per_output[0]
    total = total + Rationals.scalar(known.shape[1], 2) * per_output[1]
    return LinearForm(
        (form.shape[0], known.shape[0]),
        tuple(terms),
        Rationals.scalar(0, 2) if constant == 0 else total * Rationals.scalar(constant, 2),
    )


def _term(
    lowering: Lowering, operation: GraphOperation, value: str, weights: np.ndarray, what: str, factor: Rationals,
    scale: Fraction,
) -> Term:  # fmt: skip
    matrix = lowering.tensor_constant(operation, weights, what)
    return Term(lowering.emit(operation, "dense", value, matrix), factor * Rationals.scalar(scale, 2))
