"""TFLite_Detection_PostProcess: decode boxes from anchors, and keep the best boxes that do not overlap."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from cvm.frontends.common.data_types import unit
from cvm.frontends.common.decompositions.movement import gathered
from cvm.frontends.tflite.call import Made, Operand, TfliteCall
from cvm.frontends.tflite.flexible import numbers_of
from cvm.frontends.tflite.floats import exp32
from cvm.frontends.tflite.rules.registry import rule
from cvm.frontends.tflite.translation import TfliteTranslation
from cvm.quantization import LinearQuantizer
from cvm.records import dataclass

__all__: list[str] = []

_OP = "CUSTOM.TFLite_Detection_PostProcess"
_SCALES = ("y_scale", "x_scale", "h_scale", "w_scale")
_COUNTS = ("max_detections", "max_classes_per_detection", "num_classes")
_BITS = 16
"""The number of bits of the codes of coordinates."""


@dataclass(frozen=True, slots=True)
class _Options:
    scales: tuple[Fraction, ...]
    """The scales of y, x, height and width."""
    detections: int
    classes: int
    score_threshold: Fraction
    overlap: int
    """The overlap threshold in percent."""


def _options(call: TfliteCall) -> _Options:
    names = (*_SCALES, *_COUNTS, "nms_score_threshold", "nms_iou_threshold", "use_regular_nms", "detections_per_class")
    found = numbers_of(call.operator, names)
    missing = [name for name in (*_SCALES, *_COUNTS, *names[7:9]) if name not in found]
    if missing:
        raise call.invalid("option", f"its options lack {missing[0]}")
    scales, counts = tuple(found[name] for name in _SCALES), tuple(int(found[name]) for name in _COUNTS)
    if min(scales) <= 0 or min(counts) < 1:
        raise call.invalid("option", "its scales and counts must be above 0")
    detections, per_detection, classes = counts
    if per_detection != 1:
        raise call.refuse(f"it gives {per_detection} classes for each detection", "set max_classes_per_detection to 1")
    if found.get("use_regular_nms"):
        if classes != 1:
            raise call.refuse(f"it suppresses each of {classes} classes by itself", "set use_regular_nms to false")
        detections = min(detections, int(found.get("detections_per_class", Fraction(100))))
    threshold = found["nms_iou_threshold"]
    overlap = round(100 * threshold)
    if not 1 <= overlap <= 100 or abs(100 * threshold - overlap) > Fraction(1, 10**4):
        message = f"its overlap threshold {float(threshold)} is no whole percent above 0"
        raise call.refuse(message, "set nms_iou_threshold to one: overlaps are compared in percent")
    return _Options(scales, detections, classes, found["nms_score_threshold"], overlap)


@rule(_OP)
def detections(translation: TfliteTranslation, call: TfliteCall) -> list[Made]:
    """Boxes (y1, x1, y2, x2), classes, scores and the number of the best boxes that do not overlap; unused rows are 0.

    With an anchor (y, x, h, w), the code of a box gives the centre y + h * y_code / y_scale and the half height h *
    e^(h_code / h_scale) / 2, and likewise for x and the width. Both are rounded to multiples of the finest power of two
    for which all boxes are codes of 16 bits; the corners are their difference and their sum. The score of a box is the
    greatest score of its classes. A box is dropped if it overlaps a kept box of a greater score by nms_iou_threshold or
    more.
    """
    options = _options(call)
    encodings, predictions, anchors = (call.operand(i) for i in range(3))
    items = _checked(call, options, encodings, predictions, anchors)
    boxes, grid = _boxes(translation, call, options, encodings, anchors)
    scores, classes = _best(translation, options, predictions)
    chosen = translation.emit(
        "non_max_suppression", boxes, scores, score_threshold=options.score_threshold, overlap=options.overlap,
        count=options.detections,
    )  # fmt: skip
    count = options.detections
    valid = translation.emit("ge", chosen, Fraction(0))
    at = translation.reshape(translation.emit("max", chosen, Fraction(0), quantizer=unit(0, items - 1)), (count,))
    score_grid = translation.grid(predictions)
    assert score_grid is not None
    class_grid, whole = unit(0, max(options.classes - 1, 1)), unit(0, count)
    results = []
    for name, shape, quantizer in (
        (boxes, (items, 4), grid), (classes, (items,), class_grid), (scores, (items,), score_grid),
    ):  # fmt: skip
        flat = translation.reshape(name, shape)
        taken = translation.reshape(gathered(translation, flat, at, 0, items - 1), (1, count, *shape[1:]))
        bits = valid if len(shape) == 1 else translation.reshape(valid, (1, count, 1), dtype="logical")
        results.append((translation.emit("select", bits, taken, Fraction(0), quantizer=quantizer), quantizer))
    ones = translation.emit("select", valid, Fraction(1), Fraction(0))
    total = translation.reshape(translation.emit("sum_reduce", ones, axes=(1,)), (1,))
    results.append((translation.emit("copy", total, quantizer=whole), whole))
    for tensor, (_, quantizer) in zip(call.results, results, strict=False):
        translation.on_grid(tensor, quantizer)
    return [Made(name) for name, _ in results]


def _checked(call: TfliteCall, options: _Options, encodings: Operand, predictions: Operand, anchors: Operand) -> int:
    """The number of boxes. Raises `Invalid` for shapes that do not fit, `Unsupported` for options that are not
    supported.
    """
    items = encodings.shape[1] if encodings.rank == 3 else 0
    fits = encodings.rank == 3 and encodings.shape[0] == 1 and encodings.shape[2] >= 4 and anchors.shape == (items, 4)
    behind = predictions.shape[2] - options.classes if predictions.shape[:2] == (1, items) else -1
    if not fits or predictions.rank != 3 or behind not in (0, 1) or len(call.results) != 4:
        shapes = ", ".join(str(list(item.shape)) for item in (encodings, predictions, anchors))
        raise call.invalid("shape", f"boxes, classes and anchors do not fit: {shapes}")
    if options.detections > items:
        raise call.refuse(f"it gives {options.detections} detections of {items} boxes", "lower max_detections")
    for operand in (encodings, predictions, anchors):
        if operand.quantizer is None or operand.quantizer.axis is not None:
            raise call.refuse(f"{operand.label} must have one scale", "quantise the model when it is converted")
    call.constant(2, "the anchors")
    return items


def _boxes(
    translation: TfliteTranslation, call: TfliteCall, options: _Options, encodings: Operand, anchors: Operand
) -> tuple[str, LinearQuantizer]:
    """The corners (1, N, 4) of all boxes, and the quantiser of their coordinates."""
    code, grid = encodings.quantizer, anchors.quantizer
    assert code is not None
    assert grid is not None
    assert anchors.values is not None
    items = anchors.shape[0]
    ends = [abs(code.value(end)) for end in (code.lo, code.hi)]
    spans = [max(abs(grid.value(int(end))) for end in (anchors.values.min(), anchors.values.max()))] * 2
    reach = max(ends) / min(options.scales)
    if reach > 40:
        raise call.refuse(f"boxes may be e^{float(reach):.0f} times as large as their anchors", "quantise them finer")
    centre = max(ends) / min(options.scales[:2]) * spans[0] + spans[1]
    half = exp32(max(ends) / min(options.scales[2:])) * spans[0]
    quantizer = _grid(centre + half)
    name, sides = translation.name(encodings), []
    for axis in (0, 1):
        at, size = (translation.constant(anchors.values[:, i].reshape(1, items, 1), (1, items, 1), grid)
                    for i in (axis, axis + 2))  # fmt: skip
        place, extent = (
            translation.emit("slice", name, axes=(2,), begin=(i,), end=(i + 1,), stride=(1,)) for i in (axis, axis + 2)
        )
        scaled = translation.emit("mul", translation.emit("div", place, options.scales[axis]), size)
        middle = translation.emit("add", scaled, at, quantizer=quantizer)
        grown = translation.emit("exp", translation.emit("div", extent, options.scales[axis + 2]))
        half_ = translation.emit("mul", translation.emit("mul", grown, size), Fraction(1, 2), quantizer=quantizer)
        sides.append((middle, half_))
    low = [translation.emit("sub", *side, quantizer=quantizer) for side in sides]
    high = [translation.emit("add", *side, quantizer=quantizer) for side in sides]
    return translation.emit("concat", (*low, *high), axis=2, quantizer=quantizer), quantizer


def _grid(most: Fraction) -> LinearQuantizer:
    """The quantiser with 16-bit codes and the finest power of two as scale that holds numbers of magnitude ``most``."""
    codes = 2 ** (_BITS - 1) - 1
    most = max(most, Fraction(1, 2**20))
    scale = Fraction(2) ** (math.floor(most).bit_length() - (_BITS - 1))
    while most / scale > codes - 2:
        scale *= 2
    while most / (scale / 2) <= codes - 2:
        scale /= 2
    return LinearQuantizer((scale,), (Fraction(0),), -codes, codes)


def _best(translation: TfliteTranslation, options: _Options, predictions: Operand) -> tuple[str, str]:
    """The greatest score (1, N) of each box among its classes, and the first class with that score."""
    items, columns = predictions.shape[1:]
    name = translation.name(predictions)
    if columns > options.classes:
        name = translation.emit("slice", name, axes=(2,), begin=(1,), end=(columns,), stride=(1,))
    if options.classes == 1:
        return translation.reshape(name, (1, items)), translation.constant(np.zeros((1, items), np.int64), (1, items))
    scores = translation.reshape(translation.emit("max_reduce", name, axes=(2,)), (1, items))
    return scores, translation.reshape(translation.emit("argmax_reduce", name, axes=(2,)), (1, items), dtype="integer")
