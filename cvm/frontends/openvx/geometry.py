"""Sizes that the extension derives from the extents of inputs and outputs (vxConvolutionLayer, vxDeconvolutionLayer).

All functions compute along a single axis.
"""

from __future__ import annotations

from cvm.frontends.openvx.constants import SizeRounding

__all__ = ["size_of_output", "skip_of", "upscale_of"]


def size_of_output(size: int, kernel: int, padding: int, skip: int, rounding: SizeRounding, dilation: int = 0) -> int:
    """The output size: round((size + 2 * padding - kernel - (kernel - 1) * dilation) / skip + 1)."""
    span = size + 2 * padding - kernel - (kernel - 1) * dilation
    up = rounding == SizeRounding.VX_NN_DS_SIZE_ROUNDING_CEILING
    return (-(-span // skip) if up else span // skip) + 1


def skip_of(size: int, output: int, kernel: int, padding: int, rounding: SizeRounding, dilation: int = 0) -> int | None:
    """The least skip >= 1 that gives an output of that size; 1 for an output of one element; None where none exists.

    An output of one element has no second window, so every large enough skip gives it. Otherwise
    round(span / skip) = output - 1 means span / output < skip <= span / (output - 1) for the floor, and
    span / (output - 1) <= skip < span / (output - 2) for the ceiling.
    """
    span = size + 2 * padding - kernel - (kernel - 1) * dilation
    if span < 0 or output < 1:
        return None
    if output == 1:
        return 1
    up = rounding == SizeRounding.VX_NN_DS_SIZE_ROUNDING_CEILING
    least = -(-span // (output - 1)) if up else span // output + 1
    skip = max(least, 1)
    return skip if size_of_output(size, kernel, padding, skip, rounding, dilation) == output else None


def upscale_of(size: int, output: int, kernel: int, padding: int, a: int) -> int | None:
    """The upscale with output = (size - 1) * upscale - 2 * padding + kernel + a; None where none exists.

    An input of one element fits every upscale: the least that exceeds ``a`` is returned, if the output has its size.
    """
    span = output + 2 * padding - kernel - a
    if size == 1:
        return a + 1 if span == 0 else None
    if span <= 0 or span % (size - 1):
        return None
    return span // (size - 1)
