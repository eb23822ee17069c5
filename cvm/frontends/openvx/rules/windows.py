"""Pooling by the specification: zeros beyond the data count; a mean covers the whole window and is truncated."""

from __future__ import annotations

from cvm.frontends.common.decompositions import windows
from cvm.frontends.openvx.constants import Kernels, Pooling
from cvm.frontends.openvx.graph import OpenvxNode
from cvm.frontends.openvx.rules.registry import rule
from cvm.frontends.openvx.rules.sums import images
from cvm.frontends.openvx.translation import OpenvxTranslation

__all__ = ["pooled"]


@rule(Kernels.VX_KERNEL_POOLING_LAYER)
def pooling(translation: OpenvxTranslation, node: OpenvxNode) -> str:
    """The maximum or the mean of every window."""
    return pooled(translation, node, "constant")


def pooled(translation: OpenvxTranslation, node: OpenvxNode, border: str) -> str:
    """Pooling whose border mode says what the windows read beyond the data."""
    name, (_, _, *extents) = images(translation, node)
    outputs = node["outputs"]
    sizes = (node["pooling_size_y"], node["pooling_size_x"])
    paddings = (node["pooling_padding_y"], node["pooling_padding_x"])
    skips, ones = (node.derived["skip_y"], node.derived["skip_x"]), (1, 1)
    mean = node["pooling_type"] == Pooling.VX_NN_POOLING_AVG
    padding = windows.sides(extents, outputs.shape[-2:], sizes, skips, paddings, ones)
    name = windows.pooling(
        translation, "avg_pool" if mean else "max_pool", name, sizes, windows.Windows(padding, skips, ones), border,
        outputs.format.quantizer("toward_zero" if mean else "half_even"),
    )  # fmt: skip
    return translation.reshaped(name, outputs.shape)
