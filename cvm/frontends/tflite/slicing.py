"""STRIDED_SLICE: the indices that it takes along each axis, by the masks of TensorFlow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cvm.frontends.tflite.call import TfliteCall
from cvm.frontends.tflite.model import Shape

__all__ = ["strided"]

Indices = npt.NDArray[np.int64]


def strided(call: TfliteCall, shape: Shape) -> tuple[list[Indices], set[int]]:
    """The indices along each axis, and the set of axes that the result drops.

    Raises `Unsupported` for new axes and ellipses, which converters write as reshapes, and for an empty result.
    """
    begins, ends, steps = (call.integers(i, what) for i, what in ((1, "begin"), (2, "end"), (3, "strides")))
    if call.integer("EllipsisMask") or call.integer("NewAxisMask"):
        raise call.refuse("it has an ellipsis or adds an axis", "write that as a RESHAPE")
    if not len(begins) == len(ends) == len(steps) <= len(shape):
        raise call.invalid("shape", f"{len(begins)} begins, {len(ends)} ends, {len(steps)} strides for {list(shape)}")
    masks = [call.integer(f"{name}Mask") for name in ("Begin", "End", "ShrinkAxis")]
    found: list[Indices] = []
    dropped: set[int] = set()
    for axis, extent in enumerate(shape):
        if axis >= len(begins):
            found.append(np.arange(extent, dtype=np.int64))
            continue
        open_begin, open_end, shrink = (bool(mask >> axis & 1) for mask in masks)
        begin, end, step = begins[axis], ends[axis], steps[axis]
        if step == 0:
            raise call.invalid("shape", "a stride must not be 0")
        if shrink:
            at = np.array([call.axis(begin, extent)], np.int64)
            dropped.add(axis)
        else:
            if call.flag("Offset"):
                end += begin
            window = slice(None if open_begin else begin, None if open_end else end, step)
            at = np.arange(extent, dtype=np.int64)[window]
        if at.size == 0:
            raise call.refuse(f"nothing is left of axis {axis} of {list(shape)}")
        found.append(at)
    return found, dropped
