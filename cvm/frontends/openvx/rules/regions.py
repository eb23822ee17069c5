"""Pooling of regions, softmax and the normalisations."""

from __future__ import annotations

import math

from cvm.frontends.openvx.checks import divisor_bounds
from cvm.frontends.openvx.constants import Kernels, NormType
from cvm.frontends.openvx.graph import OpenvxNode
from cvm.frontends.openvx.rules.registry import rule
from cvm.frontends.openvx.rules.sums import images
from cvm.frontends.openvx.translation import OpenvxTranslation

__all__ = ["pooled_regions"]


@rule(Kernels.VX_KERNEL_ROI_POOLING_LAYER)
def roi_pooling(translation: OpenvxTranslation, node: OpenvxNode) -> str:
    """The maximum of every cell of every region; cells are clipped to the image."""
    return pooled_regions(translation, node, before="clip")


def pooled_regions(translation: OpenvxTranslation, node: OpenvxNode, before: str) -> str:
    """Pool regions whose coordinates are raw integers, in every format.

    ``before`` says whether a cell that begins before the image is clipped ("clip") or empty ("empty").
    """
    name, (batch, *_) = images(translation, node)
    rois, outputs = node["inputs_rois"], node["output_arr"]
    count = rois.dims[1]
    regions = translation.reshaped(translation.read(rois), (batch, count, 4))
    size = outputs.shape[-2:]
    name = translation.emit(
        "region_maximum", name, regions, quantizer=outputs.format.quantizer(), output_size=size, before=before
    )
    return translation.reshaped(name, outputs.shape)


@rule(Kernels.VX_KERNEL_SOFTMAX_LAYER)
def softmax(translation: OpenvxTranslation, node: OpenvxNode) -> str:
    """Softmax over dimension 0 or 2, which is the last axis of the array or the last but two."""
    outputs = node["outputs"]
    axis = len(outputs.dims) - 1 - node.derived["axis"]
    name = translation.read(node["inputs"])
    return translation.emit("softmax", name, quantizer=outputs.format.quantizer(), axes=(axis,), accuracy="fine")


@rule(Kernels.VX_KERNEL_NORMALIZATION_LAYER, Kernels.VX_KERNEL_LOCAL_RESPONSE_NORMALIZATION_LAYER)
def normalization(translation: OpenvxTranslation, node: OpenvxNode) -> str:
    """Normalise by neighbouring maps, or by a square of one map."""
    name, _ = images(translation, node)
    outputs, size = node["outputs"], node["normalization_size"]
    maps = node["type"] == NormType.VX_NN_NORMALIZATION_ACROSS_MAPS
    window = (1, size, 1, 1) if maps else (1, 1, size, size)
    assert math.prod(window) == node.derived["count"]
    bias, alpha = divisor_bounds(node)
    name = translation.emit(
        "local_response_normalization",
        name,
        quantizer=outputs.format.quantizer(),
        size=window,
        bias=bias,
        alpha=alpha,
        beta=node["beta"],
        accuracy="fine",
    )
    return translation.reshaped(name, outputs.shape)
