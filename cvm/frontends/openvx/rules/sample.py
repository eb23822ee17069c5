"""Kernels as the sample implementation of OpenVX 1.3 computes them, bit for bit (``compat="khronos-sample-1.3"``).

It departs from the specification in these points.

* Sums begin with the bias as a raw integer, without the bits behind the point that products have. Every product is
  rounded and converted by itself, and the sum is converted after every input map. "To nearest even" is the truncation
  of (p + 128) / 256.
* Every tap of a convolution is shifted by the dilation. A deconvolution reads only those inputs whose index among the
  zeros is less than the size of the input without them.
* Pooling ignores padding; a window of padding alone gives the least integer, and so does every mean of S8 and S16.
* Cells of a region that begin before the image are empty.
* Of the activation functions all but the logistic function, the hyperbolic tangent and relu are refused; the first two
  are computed in floats, as softmax is, and normalisation with an approximation: they are not reproduced.

Where sums wrap, all conversions before the last one leave its result as it is.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.frontends.openvx.constants import Activation, ConvertPolicy, Kernels, Pooling, RoundPolicy
from cvm.frontends.openvx.errors import NotSupported
from cvm.frontends.openvx.formats import Format
from cvm.frontends.openvx.graph import OpenvxNode
from cvm.frontends.openvx.parameters import NNConvolutionParams, NNDeconvolutionParams
from cvm.frontends.openvx.rules.pointwise import activation
from cvm.frontends.openvx.rules.regions import pooled_regions
from cvm.frontends.openvx.rules.registry import sample_rule
from cvm.frontends.openvx.rules.sums import images
from cvm.frontends.openvx.rules.windows import pooled
from cvm.frontends.openvx.translation import OpenvxTranslation, refused
from cvm.limits import INT32_MAX
from cvm.quantization import LinearQuantizer

__all__: list[str] = []

Indices = npt.NDArray[np.int64]
"""An array (taps, outputs): the index along an axis that each tap of a window reads, -1 where it reads nothing."""

_Policies: TypeAlias = tuple[ConvertPolicy, RoundPolicy]


def _read(indices: Indices, extent: int) -> Indices:
    return np.where((indices >= 0) & (indices < extent), indices, -1)


def _windows(translation: OpenvxTranslation, name: str, rows: Indices, columns: Indices, fill: Fraction) -> str:
    """The elements of all windows, (B, C, taps, H, W), from a tensor (B, C, h, w); ``fill`` where a
    tap reads nothing.
    """
    batch, channels, height, width = translation.shape(name)
    quantizer = translation.quantizer_of(name)
    name = translation.emit(
        "pad", name, quantizer=quantizer, padding=((0, 0), (0, 0), (0, 1), (0, 1)), border="constant", value=fill
    )
    for axis, (items, extent) in enumerate(((rows, height), (columns, width)), start=2):
        indices = translation.constant(np.where(items < 0, extent, items).ravel(), (items.size,))
        name = translation.emit("gather", name, indices, quantizer=quantizer, axis=axis)
    (kernel_y, out_y), (kernel_x, out_x) = rows.shape, columns.shape
    name = translation.reshaped(name, (batch, channels, kernel_y, out_y, kernel_x, out_x))
    name = translation.transposed(name, (0, 1, 2, 4, 3, 5))
    return translation.reshaped(name, (batch, channels, kernel_y * kernel_x, out_y, out_x))


def _product_quantizer(format: Format, overflow: ConvertPolicy) -> LinearQuantizer:
    found = format.quantizer("toward_zero")
    wraps = overflow == ConvertPolicy.VX_CONVERT_POLICY_WRAP
    return replace(found, lo=-INT32_MAX, hi=INT32_MAX) if wraps else found


def _rounded_products(
    translation: OpenvxTranslation, name: str, weights: str, format: Format, policies: _Policies
) -> str:
    """The products of two tensors, each rounded and converted by itself."""
    overflow, rounding = policies
    quantizer = _product_quantizer(format, overflow)
    nearest = rounding == RoundPolicy.VX_ROUND_POLICY_TO_NEAREST_EVEN and format.position > 0
    if not nearest:
        return translation.emit("mul", name, weights, quantizer=quantizer)
    name = translation.emit("mul", name, weights)
    return translation.emit("add", name, format.unit / 2, quantizer=quantizer)


def _accumulated(translation: OpenvxTranslation, node: OpenvxNode, windows: str, policies: _Policies) -> str:
    """The sum over windows (B, C, taps, H, W): the bias, then the products of one input map after another."""
    weights, outputs, biases = node["weights"], node["outputs"], node["biases"]
    batch, channels, taps, *space = translation.shape(windows)
    maps, format = weights.dims[3], outputs.format
    total = None if biases is None else translation.static(biases, (1, *biases.shape))
    codes = translation.raw(weights).reshape(maps, channels, taps)
    quantizer = translation.quantizer_of(windows)
    for channel in range(channels):
        begin, end = (channel,), (channel + 1,)
        part = translation.emit("slice", windows, quantizer=quantizer, axes=(1,), begin=begin, end=end, stride=(1,))
        factors = translation.constant(codes[:, channel], (1, maps, taps, 1, 1), format.quantizer())
        products = _rounded_products(translation, part, factors, format, policies)
        name = translation.emit("sum_reduce", products, axes=(2,))
        name = translation.reshaped(name, (batch, maps, *space))
        if total is not None:
            name = translation.emit("add", name, total)
        total = translation.converted(name, format, policies[0], RoundPolicy.VX_ROUND_POLICY_TO_ZERO)
    assert total is not None
    return translation.reshaped(total, outputs.shape)


def _policies(params: NNConvolutionParams | NNDeconvolutionParams) -> _Policies:
    return ConvertPolicy(params.overflow_policy), RoundPolicy(params.rounding_policy)


@sample_rule(Kernels.VX_KERNEL_CONVOLUTION_LAYER)
def convolution(translation: OpenvxTranslation, node: OpenvxNode) -> str:
    """A convolution in which every tap is shifted by the dilation."""
    name, shape = images(translation, node)
    params, outputs = node["convolution_params"], node["outputs"]
    found = []
    for i, axis in enumerate("yx"):
        step = getattr(params, f"dilation_{axis}") + 1
        size, output = node["weights"].shape[2 + i], outputs.shape[-2:][i]
        start = step - 1 - getattr(params, f"padding_{axis}")
        indices = start + np.arange(size)[:, None] * step + np.arange(output)[None, :] * node.derived[f"skip_{axis}"]
        found.append(_read(indices, shape[2 + i]))
    windows = _windows(translation, name, found[0], found[1], Fraction(0))
    return _accumulated(translation, node, windows, _policies(params))


@sample_rule(Kernels.VX_KERNEL_DECONVOLUTION_LAYER)
def deconvolution(translation: OpenvxTranslation, node: OpenvxNode) -> str:
    """A deconvolution that reads only inputs whose index among the zeros is below the input's own size."""
    name, shape = images(translation, node)
    params, outputs = node["deconvolution_params"], node["outputs"]
    found = []
    for i, axis in enumerate("yx"):
        size, output, extent = node["weights"].shape[2 + i], outputs.shape[-2:][i], shape[2 + i]
        start = getattr(params, f"padding_{axis}") + 1 - size
        upscale = node.derived[f"upscale_{axis}"]
        indices = _read(start + np.arange(size)[:, None] + np.arange(output)[None, :], extent)
        found.append(np.where(indices % upscale == 0, indices // upscale, -1))
    windows = _windows(translation, name, found[0], found[1], Fraction(0))
    return _accumulated(translation, node, windows, _policies(params))


@sample_rule(Kernels.VX_KERNEL_FULLY_CONNECTED_LAYER)
def fully_connected(translation: OpenvxTranslation, node: OpenvxNode) -> str:
    """A fully connected layer: one sum of all products, converted at the end."""
    inputs, weights, outputs, biases = node["inputs"], node["weights"], node["outputs"], node["biases"]
    core = node.derived["core"]
    rows, columns = int(np.prod(inputs.dims[core:])), int(np.prod(inputs.dims[:core]))
    maps, format = weights.dims[-1], outputs.format
    policies = (node["overflow_policy"], node["rounding_policy"])
    name = translation.reshaped(translation.read(inputs), (rows, 1, columns))
    factors = translation.static(weights, (1, maps, columns))
    name = _rounded_products(translation, name, factors, format, policies)
    name = translation.emit("sum_reduce", name, axes=(2,))
    if biases is not None:
        name = translation.emit("add", name, translation.static(biases, (1, maps, 1)))
    name = translation.converted(name, format, policies[0], RoundPolicy.VX_ROUND_POLICY_TO_ZERO)
    return translation.reshaped(name, outputs.shape)


@sample_rule(Kernels.VX_KERNEL_POOLING_LAYER)
def pooling(translation: OpenvxTranslation, node: OpenvxNode) -> str:
    """Pooling: maxima ignore the padding; every mean of signed integers is the least integer."""
    outputs = node["outputs"]
    format = outputs.format
    if node["pooling_type"] == Pooling.VX_NN_POOLING_AVG:
        if not format.lo:
            return pooled(translation, node, "constant")
        translation.read(node["inputs"])
        least = translation.constant(np.full(outputs.shape, format.lo), outputs.shape, format.quantizer())
        return translation.emit("copy", least, quantizer=format.quantizer())
    name, shape = images(translation, node)
    found = []
    for i, axis in enumerate("yx"):
        start = np.arange(node[f"pooling_size_{axis}"])[:, None] - node[f"pooling_padding_{axis}"]
        indices = start + np.arange(outputs.shape[-2:][i])[None, :] * node.derived[f"skip_{axis}"]
        found.append(_read(indices, shape[2 + i]))
    windows = _windows(translation, name, found[0], found[1], format.lo * format.unit)
    name = translation.emit("max_reduce", windows, quantizer=format.quantizer(), axes=(2,))
    return translation.reshaped(name, outputs.shape)


@sample_rule(Kernels.VX_KERNEL_ROI_POOLING_LAYER)
def roi_pooling(translation: OpenvxTranslation, node: OpenvxNode) -> str:
    """Region pooling, in which a cell that begins before the image is empty."""
    return pooled_regions(translation, node, before="empty")


@sample_rule(Kernels.VX_KERNEL_ACTIVATION_LAYER)
def relu(translation: OpenvxTranslation, node: OpenvxNode) -> str:
    """Relu, the only activation that the sample implementation computes in integers."""
    function = node["function"]
    if function == Activation.VX_NN_ACTIVATION_RELU:
        return activation(translation, node)
    if function in (Activation.VX_NN_ACTIVATION_LOGISTIC, Activation.VX_NN_ACTIVATION_HYPERBOLIC_TAN):
        raise refused(node)
    message = f"the sample implementation has no {function.name}"
    raise NotSupported("compat.function", message, node.location("function"), node.label)
