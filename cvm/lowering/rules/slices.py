"""A slice along one axis replaced from a computed index on (ONNX TensorScatter): one op of op-set 2.

With op-set 1, each place along the axis takes from the update or from the input.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cvm.lowering.claims import exact
from cvm.lowering.context import Coded, Lowering, Result, rule
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import Known, LinearForm, Term
from cvm.lowering.parts.operands import codes_of, integers
from cvm.quantization import Quantizer
from cvm.quantization.exact import quantize_rationals
from cvm.quantization.rationals import Rationals

__all__: list[str] = []


@rule(
    "update_slice",
    claim=exact(
        "the integers move",
        "the result has no quantiser, and input and update are not integers of one scale and offset",
        "the scales of the result vary along the axis",
    ),
)
def update_slice(lowering: Lowering) -> list[Result]:
    """The input with a slice along an axis replaced by the update, from the clipped start on."""
    axis, start = lowering.integer("axis"), integers(lowering, "start")
    quantizer = lowering.quantizer()
    if quantizer is not None:
        if quantizer.axis == axis:
            raise lowering.unsupported("the result has scales along the axis where the update lies")
        kept, new = (_coded(lowering, name, quantizer) for name in ("input", "update"))
        return [Coded(_replaced(lowering, kept, new, start, axis), note="moved codes", any_rounding=True)]
    (kept, *first), (new, *second) = (_alike(lowering, name) for name in ("input", "update"))
    if first != second:
        raise lowering.needs_quantization(lowering.operation.outputs[0])
    factor, constant = (Rationals.scalar(item, kept.rank) for item in first)
    found = _replaced(lowering, kept, new, start, axis)
    return [LinearForm(lowering.output_shape(), (Term(found, factor),), constant)]


def _coded(lowering: Lowering, parameter: str, quantizer: Quantizer) -> Value:
    """The codes of an operand, in its own shape."""
    operand = lowering.operand(parameter)
    if isinstance(operand, Known):
        numbers = operand.rationals().broadcast(operand.shape)
        return lowering.tensor_constant(quantize_rationals(numbers, quantizer), parameter)
    return codes_of(lowering, operand, quantizer, parameter)


def _alike(lowering: Lowering, parameter: str) -> tuple[Value, Fraction, Fraction]:
    """The integers of an operand, and the factor and the constant that all of them have."""
    value, factor, constant, _ = lowering.coded(parameter)
    return value.broadcast(lowering.operand(parameter).shape), factor, constant


def _replaced(lowering: Lowering, kept: Value, new: Value, start: Value, axis: int) -> Value:
    if lowering.op_set >= 2:
        return lowering.emit("update_slice", kept, new, start, axis=axis)
    extent, count = kept.shape[axis], new.shape[axis]
    place = lowering.tensor_constant(np.arange(extent), "places") - start.clip(0, extent - count)
    begun = (place + lowering.tensor_constant([1], "one")).clip(0, 1)
    inside = begun * (lowering.tensor_constant([count], "count") - place).clip(0, 1)
    chosen = inside.reshape(tuple(extent if index == axis else 1 for index in range(kept.rank)))
    # take clips places outside of the update to its ends, whose elements are not chosen.
    return lowering.emit("where", chosen.broadcast(kept.shape), new.take(place, axis), kept)
