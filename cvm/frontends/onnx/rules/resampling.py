"""Resize: along each axis the nearest element, or a sum of neighbours with exact rational weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from cvm.frontends.common.decompositions.sums import Taps, resampled
from cvm.frontends.onnx.call import Made, OnnxCall, Operand
from cvm.frontends.onnx.model import exact
from cvm.frontends.onnx.rules.registry import rule
from cvm.frontends.onnx.translation import OnnxTranslation
from cvm.limits import elements, require

__all__: list[str] = []

_HALF = Fraction(1, 2)
_MOST_COORDINATES = 2**20
"""The largest extent that Resize gives: it computes the coordinate of each index."""

_COORDINATES: dict[str, Callable[[int, Fraction, int, int], Fraction]] = {
    "half_pixel": lambda x, scale, n, m: (x + _HALF) / scale - _HALF,
    "pytorch_half_pixel": lambda x, scale, n, m: (x + _HALF) / scale - _HALF if m > 1 else Fraction(0),
    "half_pixel_symmetric": lambda x, scale, n, m: (
        Fraction(n, 2) * (1 - Fraction(m) / (scale * n)) + (x + _HALF) / scale - _HALF
    ),
    "align_corners": lambda x, scale, n, m: Fraction(x * (n - 1), m - 1) if m > 1 else Fraction(0),
    "asymmetric": lambda x, scale, n, m: x / scale,
    "tf_half_pixel_for_nn": lambda x, scale, n, m: (x + _HALF) / scale,
}
"""For each mode, the coordinate in the input of output index x; n and m are the extents of input and output."""

_NEAREST: dict[str, Callable[[Fraction], int]] = {
    "round_prefer_floor": lambda x: math.ceil(x - _HALF),
    "round_prefer_ceil": lambda x: math.floor(x + _HALF),
    "floor": math.floor,
    "ceil": math.ceil,
}


@rule("Resize")
def resize(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Resize axis by axis; coordinates are exact rationals, also where scales are floats."""
    source = call.operand()
    mode = call.text("mode", "nearest", "nearest", "linear", "cubic")
    if mode == "cubic" and not source.real:
        raise call.refuse(
            "cubic resampling of integers may leave their data type",
            "resample between DequantizeLinear and QuantizeLinear",
        )
    words = (*(key for key in _COORDINATES if call.version < 13 or key != "tf_half_pixel_for_nn"), "tf_crop_and_resize")
    kind = call.text("coordinate_transformation_mode", "half_pixel", *words)
    nearest = _NEAREST[call.text("nearest_mode", "round_prefer_floor", *_NEAREST)]
    if kind == "tf_crop_and_resize":
        raise call.refuse("the mode tf_crop_and_resize is not computed", "slice the region out with Slice first")
    for name in ("antialias", "exclude_outside"):
        if call.flag(name, False):
            raise call.refuse(f"{name} is not computed", "leave it out")
    call.text("keep_aspect_ratio_policy", "stretch", "stretch")
    call.ignore("extrapolation_value")
    cubic = call.number("cubic_coeff_a", Fraction(-3, 4))
    name, shape = translation.name(source), list(source.shape)
    for axis, size, scale in _sizes(call, source):
        extent, shape[axis] = shape[axis], size
        if size == extent and scale == 1:
            continue
        require("extent", size, _MOST_COORDINATES, f"{call.node.label}: an extent that is resampled")
        elements(shape, translation.limits, call.node.label)
        at = [_COORDINATES[kind](x, scale, extent, size) for x in range(size)]
        taps = _taps(at, mode, nearest, cubic, extent)
        name = resampled(translation, name, taps, axis, skip_ones=True)
    if mode == "linear" and not source.real:
        name = translation.emit("cast", name, dtype="integer")
    return Made(name, tuple(shape), source.data_type)


def _sizes(call: OnnxCall, source: Operand) -> list[tuple[int, int, Fraction]]:
    """The axis, the new extent and the scale of each axis that is resized."""
    given = call.integers("axes")
    axes = call.axes(tuple(range(source.rank)) if given is None else given, source.rank)
    sizes = call.constant_integers(3, "sizes")
    if sizes:
        if len(sizes) != len(axes) or any(size < 1 for size in sizes):
            raise call.invalid(
                "shape",
                f"sizes {list(sizes)} must be above 0, one for each axis of {list(source.shape)} that is resized",
            )
        return [(axis, size, Fraction(size, source.shape[axis])) for axis, size in zip(axes, sizes, strict=True)]
    if call.optional(2) is None or not call.constant(2, "the scales").size:
        raise call.invalid("inputs", "neither scales nor sizes are given; one of them must be")
    scales = [exact(item, call.node, "a scale") for item in call.constant(2, "the scales").ravel().tolist()]
    if len(scales) != len(axes) or any(scale <= 0 for scale in scales):
        raise call.invalid(
            "shape",
            f"{len(scales)} scales: there must be one above 0 for each axis of {list(source.shape)} that is resized",
        )
    found = []
    for axis, scale in zip(axes, scales, strict=True):
        size = math.floor(source.shape[axis] * scale)
        if size < 1:
            raise call.invalid("shape", f"a scale of {float(scale)} leaves nothing of axis {axis}")
        found.append((axis, size, scale))
    return found


def _taps(at: Sequence[Fraction], mode: str, nearest: Callable[[Fraction], int], a: Fraction, extent: int) -> Taps:
    def inside(index: int) -> int:
        return min(max(index, 0), extent - 1)

    if mode == "nearest":
        return [[(inside(nearest(x)), Fraction(1))] for x in at]
    found = []
    for x in at:
        low = math.floor(x)
        part = x - low
        weights = (1 - part, part) if mode == "linear" else _cubic(part, a)
        first = low if mode == "linear" else low - 1
        found.append([(inside(first + i), weight) for i, weight in enumerate(weights)])
    return found


def _cubic(t: Fraction, a: Fraction) -> tuple[Fraction, ...]:
    """The weights of the four neighbours at distances 1 + t, t, 1 - t and 2 - t (Keys, 1981)."""

    def near(d: Fraction) -> Fraction:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Fraction) -> Fraction:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return far(1 + t), near(t), near(1 - t), far(2 - t)
