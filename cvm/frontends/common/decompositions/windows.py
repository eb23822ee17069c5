"""Convolution and pooling: windows over the spatial axes, which follow batch and channels."""

from __future__ import annotations

from collections.abc import Sequence

from cvm.frontends.common.emission import Emission
from cvm.graph import Operand
from cvm.quantization import LinearQuantizer
from cvm.records import dataclass

__all__ = ["Padding", "Windows", "convolution", "pooling", "sides"]

Padding = tuple[tuple[int, int], ...]
"""The number of padding elements before and after each axis."""


@dataclass(frozen=True, slots=True)
class Windows:
    """For each spatial axis: the padding, the stride and the dilation."""

    padding: Padding
    strides: tuple[int, ...]
    dilations: tuple[int, ...]


def sides(
    extents: Sequence[int],
    outputs: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    before: Sequence[int],
    dilations: Sequence[int],
) -> Padding:
    """The padding before and after each axis that makes exactly as many windows as outputs."""
    found = []
    for extent, output, size, stride, first, dilation in zip(
        extents, outputs, sizes, strides, before, dilations, strict=True
    ):
        reach = (output - 1) * stride + (size - 1) * dilation + 1
        found.append((first, reach - extent - first))
    return tuple(found)


def convolution(
    graph: Emission,
    x: str,
    weights: str,
    bias: Operand,
    windows: Windows,
    groups: int,
    transposed_shape: Sequence[int] | None = None,
) -> str:
    """A convolution with zero padding; or its transpose, where the shape of the result is given."""
    if transposed_shape is None:
        return graph.emit(
            "conv", x, weights, bias, border="constant", padding=windows.padding, stride=windows.strides,
            dilation=windows.dilations, groups=groups,
        )  # fmt: skip
    return graph.emit(
        "deconv", x, weights, bias, border="constant", padding=windows.padding, stride=windows.strides,
        dilation=windows.dilations, groups=groups, output_shape=tuple(transposed_shape),
    )  # fmt: skip


def pooling(
    graph: Emission,
    op: str,
    x: str,
    sizes: Sequence[int],
    windows: Windows,
    border: str = "ignore",
    quantizer: LinearQuantizer | None = None,
) -> str:
    """One number per window and channel: the mean, the maximum or the norm, as ``op`` says."""
    padding, strides, dilations = windows.padding, windows.strides, windows.dilations
    return graph.emit(
        op, x, quantizer=quantizer, size=(1, 1, *sizes), border=border, padding=((0, 0), (0, 0), *padding),
        stride=(1, 1, *strides), dilation=(1, 1, *dilations),
    )  # fmt: skip
