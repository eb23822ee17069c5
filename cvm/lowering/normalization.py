"""Normalisation (NNEF 1.0.1 section 4.9.4)."""

from __future__ import annotations

from fractions import Fraction

from cvm.errors import Invalid
from cvm.graph import GraphOperation
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.form import SurdForm
from cvm.quantization.rationals import Rationals

__all__: list[str] = []


@rule("batch_normalization")
def batch_normalization(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """Offset + scale * (input - mean) / sqrt(variance + epsilon), with constant parameters.

    The root is irrational in general; the quantiser's thresholds are decided by integer square roots.
    """
    value, factor, constant, form = lowering.single(operation, "input")
    mean, variance, offset, scale = (
        lowering.constant(operation, name).expanded(form.rank) for name in ("mean", "variance", "offset", "scale")
    )
    radicand = variance + Rationals.scalar(Fraction(operation.attributes["epsilon"]), form.rank)  # type: ignore[arg-type]
    if min(radicand.numerators.ravel().tolist()) <= 0:
        raise Invalid(
            "lowering.variance", "variance + epsilon must be positive in every channel", lowering.location(operation)
        )
    if lowering.quantizer(operation) is None:
        raise lowering.needs_quantization(operation, operation.outputs[0])
    return [SurdForm(form.shape, value, scale * factor, scale * (constant - mean), offset, radicand)]
