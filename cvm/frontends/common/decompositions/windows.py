"""Convolution and pooling: windows over the axes of space, after batch and channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cvm.frontends.common.emission import Emission
from cvm.graph import Operand
from cvm.quantization import LinearQuantizer

__all__ = ["Padding", "Windows", "convolution", "pooling", "sides"]

Padding = tuple[tuple[int, int], ...]
"""Elements before and after each axis."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Per axis of space: the padding, the step from window to window, and the distance of taps."""

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
    """Padding before and after each axis, such that there are exactly as many windows as outputs."""
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
    """A convolution with zero padding, or the transpose of one where the shape of its result is given."""
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
    """One number of each window of each channel: its mean, its maximum or its norm."""
    padding, strides, dilations = windows.padding, windows.strides, windows.dilations
    return graph.emit(
        op, x, quantizer=quantizer, size=(1, 1, *sizes), border=border, padding=((0, 0), (0, 0), *padding),
        stride=(1, 1, *strides), dilation=(1, 1, *dilations),
    )  # fmt: skip
