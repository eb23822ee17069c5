"""The geometry of convolutions and pooling: their windows, and the layout of their filters."""

from __future__ import annotations

from collections.abc import Sequence

from cvm.frontends.common.decompositions.windows import Windows, sides
from cvm.frontends.tflite.call import Operand, TfliteCall
from cvm.limits import Limits, elements, require

__all__ = ["filter_layout", "pairs", "resized", "transposed_windows", "windows_of"]

_SAME, _VALID = 0, 1


def pairs(call: TfliteCall, name: str, *endings: str) -> tuple[int, ...]:
    """An option with one value above 0 per spatial axis; 1 where the schema has its default."""
    found = tuple(call.integer(name + ending, 1) for ending in endings)
    if any(item < 1 for item in found):
        raise call.invalid("option", f"{name} must be above 0, found {list(found)}")
    return found


def windows_of(
    call: TfliteCall, extents: Sequence[int], kernel: Sequence[int], endings: Sequence[str], dilated: bool
) -> tuple[Windows, tuple[int, ...]]:
    """The windows and their number along each axis; of an odd total padding, the greater half is at the end."""
    strides = pairs(call, "Stride", *endings)
    named = [f"{ending}Factor" for ending in endings]
    dilations = pairs(call, "Dilation", *named) if dilated else (1,) * len(extents)
    spans = [(size - 1) * gap + 1 for size, gap in zip(kernel, dilations, strict=True)]
    kind = call.integer("Padding")
    if kind not in (_SAME, _VALID):
        raise call.invalid("option", f"the padding number {kind} is neither SAME nor VALID")
    counts, before = [], []
    for extent, step, span in zip(extents, strides, spans, strict=True):
        if kind == _VALID and span > extent:
            raise call.invalid("shape", f"a window of {span} items is larger than the extent {extent}")
        count = -(-extent // step) if kind == _SAME else (extent - span) // step + 1
        counts.append(count)
        before.append(max((count - 1) * step + span - extent, 0) // 2)
    return Windows(sides(extents, counts, kernel, strides, before, dilations), strides, dilations), tuple(counts)


def filter_layout(
    call: TfliteCall, source: Operand, weights: Operand, depthwise: bool
) -> tuple[tuple[int, ...], int, int]:
    """The permutation that puts results at axis 0 and channels at axis 1, the number of results, and of groups."""
    call.require_rank(source, 4)
    call.require_rank(weights, 4)
    channels, order = source.shape[3], (0, 3, 1, 2)
    if depthwise:
        results, groups, order = weights.shape[3], channels, (3, 0, 1, 2)
        if weights.shape[0] != 1 or results % channels:
            raise call.invalid("shape", f"a filter of {list(weights.shape)} does not fit {channels} channels")
    else:
        results = weights.shape[0]
        groups = channels // weights.shape[3] if channels % weights.shape[3] == 0 else 0
        if not groups or results % groups:
            raise call.invalid("shape", f"a filter of {list(weights.shape)} does not fit {channels} channels")
    return order, results, groups


def resized(call: TfliteCall, source: Operand, limits: Limits) -> tuple[int, int]:
    """The height and width that a plane is resized to, from the second operand.

    Raises `LimitExceeded` for a plane with more than ``limits.expansion`` rows or columns, each of which is computed at
    compile time, or with too many elements.
    """
    call.require_rank(source, 4)
    sizes = call.integers(1, "the size")
    if len(sizes) != 2 or any(size < 1 for size in sizes):
        raise call.invalid("shape", f"the size must be a height and a width above 0, found {list(sizes)}")
    height, width = sizes
    require("expansion", max(sizes), limits.expansion, f"{call.result.label}: rows and columns")
    elements((source.shape[0], height, width, source.shape[3]), limits, call.result.label)
    return height, width


def transposed_windows(
    call: TfliteCall, shape: Sequence[int], weights: Operand, source: Operand
) -> tuple[Windows, tuple[int, ...]]:
    """The windows of the convolution that TRANSPOSE_CONV transposes, and the shape of its result with channels at axis
    1.

    ``shape`` is the shape of the result with channels last; the filter's axes are results, spatial axes, channels.
    """
    call.require_rank(source, 4)
    call.require_rank(weights, 4)
    results = weights.shape[0]
    if len(shape) != 4 or shape[3] != results or weights.shape[3] != source.shape[3]:
        raise call.invalid("shape", f"a filter of {list(weights.shape)} does not give {list(shape)}")
    windows, counts = windows_of(call, shape[1:3], weights.shape[1:3], ("H", "W"), dilated=False)
    if counts != source.shape[1:3]:
        raise call.invalid("shape", f"{list(shape)} does not belong to the input {list(source.shape)}")
    return windows, (shape[0], results, *shape[1:3])
