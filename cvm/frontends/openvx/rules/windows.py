"""Pooling: zeros beyond the data take part; a mean is that of the whole window, truncated."""

from __future__ import annotations

from cvm.frontends.openvx.constants import Kernels, Pooling
from cvm.frontends.openvx.graph import Node
from cvm.frontends.openvx.rules.registry import rule
from cvm.frontends.openvx.rules.sums import images, sides
from cvm.frontends.openvx.translation import OpenvxTranslation

__all__ = ["pooled"]


@rule(Kernels.VX_KERNEL_POOLING_LAYER)
def pooling(translation: OpenvxTranslation, node: Node) -> str:
    """The greatest, or the mean, of every window."""
    return pooled(translation, node, "constant")


def pooled(translation: OpenvxTranslation, node: Node, border: str) -> str:
    """Pooling with what the border says beyond the data."""
    name, (batch, channels, *extents) = images(translation, node)
    outputs = node["outputs"]
    sizes, paddings = (
        (node[f"pooling_{what}_y"], node[f"pooling_{what}_x"]) for what in ("size", "padding")
    )  # fmt: skip
    skips = (node.derived["skip_y"], node.derived["skip_x"])
    mean = node["pooling_type"] == Pooling.VX_NN_POOLING_AVG
    name = translation.emit(
        "avg_pool" if mean else "max_pool",
        {"input": name},
        (batch, channels, *outputs.shape[-2:]),
        outputs.format.quantizer("toward_zero" if mean else "half_even"),
        size=(1, 1, *sizes),
        border=border,
        padding=((0, 0), (0, 0), *sides(extents, outputs.shape[-2:], sizes, skips, paddings)),
        stride=(1, 1, *skips),
        dilation=(1, 1, 1, 1),
    )
    return translation.reshaped(name, outputs.shape)
