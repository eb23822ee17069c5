"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR, with exact coordinates."""

from __future__ import annotations

import math
from fractions import Fraction

from cvm.frontends.common.decompositions.sums import Taps, resampled
from cvm.frontends.tflite.call import Made, TfliteCall
from cvm.frontends.tflite.rules.geometry import resized
from cvm.frontends.tflite.rules.registry import rule
from cvm.frontends.tflite.translation import TfliteTranslation

__all__: list[str] = []

_HALF = Fraction(1, 2)


@rule("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resize(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Resize the plane: each element is the nearest input element, or the four around it weighted by distance."""
    source = call.operand()
    sizes = resized(call, source, translation.limits)
    corners, centres = call.flag("AlignCorners"), call.flag("HalfPixelCenters")
    if corners and centres:
        raise call.invalid("option", "AlignCorners and HalfPixelCenters exclude each other")
    linear = call.operator.op == "RESIZE_BILINEAR"
    name = translation.planar(source)
    for axis, (extent, size) in enumerate(zip(source.shape[1:3], sizes, strict=True), 2):
        if extent != size:
            scale = Fraction(extent - 1, size - 1) if corners and size > 1 else Fraction(extent, size)
            taps = _linear(extent, size, scale, centres) if linear else _nearest(extent, size, scale, corners, centres)
            name = resampled(translation, name, taps, axis, skip_ones=True)
    return Made(name, planar=True)


def _linear(extent: int, size: int, scale: Fraction, centres: bool) -> Taps:
    """For each output index, the two input neighbours with their weights; beyond the border both are the border
    element.
    """
    found = []
    for index in range(size):
        at = (index + _HALF) * scale - _HALF if centres else index * scale
        low = math.floor(at)
        first, second = (min(max(i, 0), extent - 1) for i in (low, low + 1))
        found.append([(first, 1 - (at - low)), (second, at - low)])
    return found


def _nearest(extent: int, size: int, scale: Fraction, corners: bool, centres: bool) -> Taps:
    """For each output index, the input element it lies in; with AlignCorners the nearest one, ties away from the
    origin.
    """
    offset = _HALF if centres else Fraction(0)
    at = [(index + offset) * scale for index in range(size)]
    indices = [math.floor(point + _HALF) if corners else math.floor(point) for point in at]
    return [[(min(max(index, 0), extent - 1), Fraction(1))] for index in indices]
