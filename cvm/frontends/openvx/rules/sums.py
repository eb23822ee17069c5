"""Convolution, deconvolution and fully connected layers: exact sums with their biases, rounded and converted once."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from cvm.frontends.common.decompositions import windows
from cvm.frontends.openvx.constants import Kernels
from cvm.frontends.openvx.graph import OpenvxNode
from cvm.frontends.openvx.rules.registry import rule
from cvm.frontends.openvx.translation import OpenvxTranslation

__all__ = ["images"]


def images(
    translation: OpenvxTranslation, node: OpenvxNode, parameter: str = "inputs"
) -> tuple[str, tuple[int, int, int, int]]:
    """An input (batches.., C, H, W) as a tensor (B, C, H, W), and the shape of that tensor."""
    tensor = node[parameter]
    shape = (math.prod(tensor.shape[:-3]), *tensor.shape[-3:])
    return translation.reshaped(translation.read(tensor), shape), shape


def _bias(translation: OpenvxTranslation, node: OpenvxNode) -> str | Fraction:
    biases = node["biases"]
    if biases is None:
        return Fraction(0)
    return translation.static(biases, (1, *biases.shape))


@rule(Kernels.VX_KERNEL_CONVOLUTION_LAYER)
def convolution(translation: OpenvxTranslation, node: OpenvxNode) -> str:
    """A convolution with the skips that follow from the sizes."""
    name, (_, _, *extents) = images(translation, node)
    weights, outputs, params = node["weights"], node["outputs"], node["convolution_params"]
    skips = (node.derived["skip_y"], node.derived["skip_x"])
    dilations = (params.dilation_y + 1, params.dilation_x + 1)
    paddings = (params.padding_y, params.padding_x)
    padding = windows.sides(extents, outputs.shape[-2:], weights.shape[-2:], skips, paddings, dilations)
    found = windows.Windows(padding, skips, dilations)
    filters = translation.static(weights)
    name = windows.convolution(translation, name, filters, _bias(translation, node), found, 1)
    name = translation.converted(name, outputs.format, params.overflow_policy, params.rounding_policy)
    return translation.reshaped(name, outputs.shape)


@rule(Kernels.VX_KERNEL_DECONVOLUTION_LAYER)
def deconvolution(translation: OpenvxTranslation, node: OpenvxNode) -> str:
    """A deconvolution: a convolution of the input with upscale - 1 zeros between its elements, with unflipped weights.

    The deconvolution of graphs correlates with weights that are flipped along both axes, so they are flipped first.
    """
    name, (batch, *_) = images(translation, node)
    weights, outputs, params = node["weights"], node["outputs"], node["deconvolution_params"]
    flipped = np.flip(translation.raw(weights), (2, 3)).swapaxes(0, 1)
    filters = translation.constant(flipped, flipped.shape, weights.format.quantizer())
    padding = ((params.padding_y, params.padding_y - params.a_y), (params.padding_x, params.padding_x - params.a_x))
    found = windows.Windows(padding, (node.derived["upscale_y"], node.derived["upscale_x"]), (1, 1))
    shape = (batch, *outputs.shape[-3:])
    name = windows.convolution(translation, name, filters, _bias(translation, node), found, 1, shape)
    name = translation.converted(name, outputs.format, params.overflow_policy, params.rounding_policy)
    return translation.reshaped(name, outputs.shape)


@rule(Kernels.VX_KERNEL_FULLY_CONNECTED_LAYER)
def fully_connected(translation: OpenvxTranslation, node: OpenvxNode) -> str:
    """A fully connected layer: a matrix product whose rows are inputs [width, height, IFM],
    flattened with x fastest.
    """
    inputs, weights, outputs = node["inputs"], node["weights"], node["outputs"]
    core = node.derived["core"]
    rows = math.prod(inputs.dims[core:])
    columns = math.prod(inputs.dims[:core])
    maps = weights.dims[-1]
    name = translation.reshaped(translation.read(inputs), (rows, columns))
    name = translation.emit("linear", name, translation.static(weights, (maps, columns)), _bias(translation, node))
    name = translation.converted(name, outputs.format, node["overflow_policy"], node["rounding_policy"])
    return translation.reshaped(name, outputs.shape)
