"""Normalisation by mean and variance, which are constants or computed from the data, and by norms."""

from __future__ import annotations

import math
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
    """BatchNormalization with constant parameters per channel."""
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
    """A vector operand laid along the channels (axis 1), in the rank of the first operand."""
    source, operand = call.operand(), call.operand(index)
    if operand.shape != (source.shape[1],):
        raise call.invalid("shape", f"{operand.name!r} has shape {list(operand.shape)}, not [{source.shape[1]}]")
    along = [source.shape[1] if axis == 1 else 1 for axis in range(source.rank)]
    return translation.reshape(translation.name(operand), along)


@rule("LayerNormalization")
def layer_normalization(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """LayerNormalization over the axes from ``axis`` on; the mean and the deviation are not available as results."""
    source = call.operand()
    axis = call.axis(call.integer("axis", -1), source.rank)
    call.ignore("stash_type")
    inputs: dict[str, Argument] = {"input": translation.name(source), "offset": Fraction(0)}
    for index, key in ((1, "scale"), (2, "offset")):
        if call.optional(index) is not None:
            inputs[key] = _broadcast_behind(translation, call, index, axis)
    return _standardised(translation, call, inputs, range(axis, source.rank))


@rule("InstanceNormalization")
def instance_normalization(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """InstanceNormalization over the spatial axes, for each channel of each batch index."""
    source = call.operand()
    if source.rank < 3:
        raise call.invalid(
            "shape", f"the input must have batch, channels and at least one axis more, found {list(source.shape)}"
        )
    inputs: dict[str, Argument] = {"input": translation.name(source)}
    for index, key in ((1, "scale"), (2, "offset")):
        inputs[key] = _per_channel(translation, call, index)
    return _standardised(translation, call, inputs, range(2, source.rank))


@rule("GroupNormalization")
def group_normalization(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """GroupNormalization over groups of channels and the spatial axes; scale and bias are per channel (per group before
    21).
    """
    source, groups = call.operand(), call.integer("num_groups", 0)
    call.ignore("stash_type")
    if source.rank < 3 or groups < 1 or source.shape[1] % groups:
        raise call.invalid("shape", f"{groups} groups do not divide the channels of {list(source.shape)}")
    batch, channels = source.shape[:2]
    whole = (batch, groups, channels // groups, math.prod(source.shape[2:]))
    inputs: dict[str, Argument] = {"input": translation.reshape(translation.name(source), whole)}
    for index, key in ((1, "scale"), (2, "offset")):
        operand = call.operand(index)
        along = (1, groups, 1, 1) if call.version < 21 else (1, groups, channels // groups, 1)
        if operand.shape != (math.prod(along),):
            message = f"{operand.name!r} has shape {list(operand.shape)}, not [{math.prod(along)}]"
            raise call.invalid("shape", message)
        inputs[key] = translation.reshape(translation.name(operand), along)
    made = _standardised(translation, call, inputs, (2, 3))
    return made._replace(name=translation.reshape(made.name, source.shape))


@rule("RMSNormalization", "SimplifiedLayerNormalization")
def root_mean_square(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """RMSNormalization: x / sqrt(mean of x^2 + epsilon) over the axes from ``axis`` on, times a constant scale."""
    source = call.operand()
    axis = call.axis(call.integer("axis", -1), source.rank)
    call.ignore("stash_type")
    inputs: dict[str, Argument] = {"input": translation.name(source), "offset": Fraction(0)}
    if call.optional(1) is not None:
        inputs["scale"] = _broadcast_behind(translation, call, 1, axis)
    return _standardised(translation, call, inputs, range(axis, source.rank), "rms_normalization")


@rule("LRN")
def local_response(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """LRN: x / (bias + alpha / size * sum of the squares of neighbouring channels) ^ beta."""
    source, size = call.operand(), call.integer("size", 0)
    alpha, beta, bias = (call.number(name, default) for name, default in _RESPONSE.items())
    if source.rank < 2 or size < 1:
        raise call.invalid(
            "shape", f"expected batch and channels and a size above 0, found {list(source.shape)}, {size}"
        )
    window = tuple(size if axis == 1 else 1 for axis in range(source.rank))
    name = translation.emit(
        "local_response_normalization", translation.name(source), size=window, alpha=alpha, beta=beta, bias=bias
    )
    return Made(name, source.shape, source.data_type)


_RESPONSE = {"alpha": Fraction(13743895, 2**37), "beta": Fraction(3, 4), "bias": Fraction(1)}
"""The default alpha (the float32 number 1e-4), beta and bias."""


@rule("LpNormalization")
def norm(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """LpNormalization: x divided by its norm along an axis; 0 where the norm is 0."""
    source, p = call.operand(), call.integer("p", 2)
    axis = call.axis(call.integer("axis", -1), source.rank)
    if p not in (1, 2):
        raise call.invalid("attribute", f"p must be 1 or 2, found {p}")
    least = Fraction(1, 2**100)  # smaller than every nonzero norm of codes, so that 0 / 0 becomes 0 / least
    name = translation.emit(
        f"l{p}_normalization", translation.name(source), axes=(axis,), bias=Fraction(0), epsilon=least
    )
    return Made(name, source.shape, source.data_type)


def _broadcast_behind(translation: OnnxTranslation, call: OnnxCall, index: int, axis: int) -> str:
    """An operand that broadcasts to the axes from ``axis`` on of the first operand, in the rank of
    the first operand.
    """
    source, operand = call.operand(), call.operand(index)
    along = (1,) * (source.rank - operand.rank) + operand.shape
    behind = zip(along[axis:], source.shape[axis:], strict=False)
    if len(along) != source.rank or not set(along[:axis]) <= {1} or not all(n in (1, m) for n, m in behind):
        shapes = f"{operand.name!r} has shape {list(operand.shape)}"
        raise call.invalid("shape", f"{shapes}, which does not broadcast to {list(source.shape[axis:])}")
    return translation.reshape(translation.name(operand), along)


def _standardised(
    translation: OnnxTranslation,
    call: OnnxCall,
    inputs: dict[str, Argument],
    axes: Sequence[int],
    operation: str = "layer_normalization",
) -> Made:
    source, epsilon = call.operand(), call.number("epsilon", _EPSILON)
    if epsilon <= 0:
        raise call.refuse("items that are all alike would be divided by zero", "choose an epsilon above 0")
    name = translation.emit(operation, axes=tuple(axes), inputs=inputs, epsilon=epsilon)
    return Made(name, source.shape, source.data_type)
