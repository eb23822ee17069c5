"""Normalisation by mean and variance: of constants, or of the data."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from cvm.frontends.onnx.call import Made, OnnxCall
from cvm.frontends.onnx.rules.registry import rule
from cvm.frontends.onnx.translation import OnnxTranslation
from cvm.graph import Operand as Argument

__all__: list[str] = []

_EPSILON = Fraction(10995116, 2**40)
"""The float32 number 1e-5."""


@rule("BatchNormalization")
def batch_normalization(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Constant parameters per channel."""
    source = call.operand()
    if call.flag("training_mode", False):
        raise call.refuse("it computes its statistics when it trains", "export the model for inference")
    epsilon = call.number("epsilon", _EPSILON)
    call.ignore("momentum")
    if source.rank < 2:
        raise call.invalid("shape", f"the input must have batch and channels, found {list(source.shape)}")
    inputs: dict[str, Argument] = {"input": translation.name(source)}
    for index, key in ((1, "scale"), (2, "offset"), (3, "mean"), (4, "variance")):
        inputs[key] = _per_channel(translation, call, index)
    name = translation.emit("batch_normalization", inputs=inputs, epsilon=epsilon)
    return Made(name, source.shape, source.data_type)


def _per_channel(translation: OnnxTranslation, call: OnnxCall, index: int) -> str:
    """A vector operand along the channels, axis 1, in the rank of the first operand."""
    source, operand = call.operand(), call.operand(index)
    if operand.shape != (source.shape[1],):
        raise call.invalid("shape", f"{operand.name!r} has shape {list(operand.shape)}, not [{source.shape[1]}]")
    along = [source.shape[1] if axis == 1 else 1 for axis in range(source.rank)]
    return translation.reshape(translation.name(operand), along)


@rule("LayerNormalization")
def layer_normalization(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Over the axes from ``axis`` on; the mean and the deviation are no results here."""
    source = call.operand()
    axis = call.axis(call.integer("axis", -1), source.rank)
    call.ignore("stash_type")
    inputs: dict[str, Argument] = {"input": translation.name(source), "offset": Fraction(0)}
    for index, key in ((1, "scale"), (2, "offset")):
        operand = call.optional(index)
        if operand is None:
            continue
        along = (1,) * (source.rank - operand.rank) + operand.shape
        behind = zip(along[axis:], source.shape[axis:], strict=False)
        whole = len(along) == source.rank and set(along[:axis]) <= {1} and all(n in (1, m) for n, m in behind)
        if not whole:
            shapes = f"{operand.name!r} has shape {list(operand.shape)}"
            raise call.invalid("shape", f"{shapes}, which does not broadcast to {list(source.shape[axis:])}")
        inputs[key] = translation.reshape(translation.name(operand), along)
    return _standardised(translation, call, inputs, range(axis, source.rank))


@rule("InstanceNormalization")
def instance_normalization(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Over the axes of space, of every channel of every item of the batch."""
    source = call.operand()
    if source.rank < 3:
        raise call.invalid(
            "shape", f"the input must have batch, channels and at least one axis more, found {list(source.shape)}"
        )
    inputs: dict[str, Argument] = {"input": translation.name(source)}
    for index, key in ((1, "scale"), (2, "offset")):
        inputs[key] = _per_channel(translation, call, index)
    return _standardised(translation, call, inputs, range(2, source.rank))


def _standardised(
    translation: OnnxTranslation, call: OnnxCall, inputs: dict[str, Argument], axes: Sequence[int]
) -> Made:
    source, epsilon = call.operand(), call.number("epsilon", _EPSILON)
    if epsilon <= 0:
        raise call.refuse("items that are all alike would be divided by zero", "choose an epsilon above 0")
    name = translation.emit("layer_normalization", axes=tuple(axes), inputs=inputs, epsilon=epsilon)
    return Made(name, source.shape, source.data_type)
