"""TFLite_Detection_PostProcess against a model of its definition on rationals and integers."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

import cvm
from cvm.errors import CvmError, Malformed, Unsupported
from cvm.frontends import tflite
from cvm.frontends.tflite.writing import Array, Graph, Operator, Tensor, written
from cvm.lowering import lower
from cvm.passes.optimize import optimize
from cvm.program import Program

GALLERY = Path(__file__).resolve().parents[4] / "shared" / "gallery"
OPTIONS: dict[str, Any] = {
    "max_detections": 5, "max_classes_per_detection": 1, "num_classes": 3, "y_scale": 10.0, "x_scale": 10.0,
    "h_scale": 5.0, "w_scale": 5.0, "nms_score_threshold": 0.2, "nms_iou_threshold": 0.6, "use_regular_nms": False,
}  # fmt: skip
BOX, SCORE, ANCHOR = (0.04, 120), (0.00390625, 0), (0.0039, 0)
ITEMS = 24


def model(options: dict[str, Any] | bytes, classes: int = 4, anchors: Array | None = None) -> bytes:
    """The file of a model of the operator alone."""
    values = anchors if anchors is not None else grid_of_anchors()
    tensors = [
        Tensor((1, ITEMS, 4), "uint8", BOX[:1], BOX[1:], name="boxes"),
        Tensor((1, ITEMS, classes), "uint8", SCORE[:1], SCORE[1:], name="classes"),
        Tensor((ITEMS, 4), "uint8", ANCHOR[:1], ANCHOR[1:], values=values),
        *(Tensor((), "float32", name=f"out{i}", signature=None) for i in range(4)),
    ]
    custom = options if isinstance(options, bytes) else bytes(flexbuffers.Dumps(options))
    operator = Operator("CUSTOM.TFLite_Detection_PostProcess", [0, 1, 2], [3, 4, 5, 6], custom=custom)
    return written(Graph(tensors, [operator], [0, 1], [3, 4, 5, 6]))


def grid_of_anchors() -> Array:
    places = [(y, x, h, w) for y in (60, 128, 190) for x in (50, 120, 128, 200) for h, w in ((90, 60), (100, 100))]
    return np.array(places)


def compiled(data: bytes) -> Program:
    return optimize(lower(tflite.loads(data).graph))


def exact(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def rounded(value: Fraction | Decimal, scale: Fraction) -> int:
    if isinstance(value, Decimal):
        value = Fraction(value)
    return floor(value / scale + Fraction(1, 2))


def corners(codes: Array, scale: Fraction) -> list[list[int]]:
    """The boxes as integers of the grid: centre and half size are rounded, corners are their difference and sum."""
    f32 = lambda x: Fraction(float(np.float32(x)))  # noqa: E731
    found = []
    for row, anchor in zip(codes.tolist(), grid_of_anchors().tolist(), strict=True):
        place = [(code - BOX[1]) * f32(BOX[0]) for code in row]
        at = [code * f32(ANCHOR[0]) for code in anchor]
        centre = [rounded(place[i] / 10 * at[i + 2] + at[i], scale) for i in (0, 1)]
        half = [rounded(Fraction(exact(place[i] / 5).exp()) * at[i] / 2, scale) for i in (2, 3)]
        found.append([centre[0] - half[0], centre[1] - half[1], centre[0] + half[0], centre[1] + half[1]])
    return found


def overlap(a: list[int], b: list[int]) -> Fraction:
    area = lambda box: (box[2] - box[0]) * (box[3] - box[1])  # noqa: E731
    inner = [max(min(a[i + 2], b[i + 2]) - max(a[i], b[i]), 0) for i in (0, 1)]
    intersection = inner[0] * inner[1]
    union = area(a) + area(b) - intersection
    return Fraction(intersection, union) if union > 0 else Fraction(0)


def expected(boxes: Array, classes: Array, scale: Fraction, offset: int, least: int) -> list[Any]:
    places = corners(boxes[0], scale)
    scores = classes[0, :, offset:]
    best = [(int(row.max()), int(row.argmax())) for row in scores]
    kept: list[int] = []
    for i in sorted(range(ITEMS), key=lambda i: (-best[i][0], i)):
        overlaps = any(overlap(places[i], places[j]) >= Fraction(60, 100) for j in kept)
        if best[i][0] >= least and not overlaps and len(kept) < 5:
            kept.append(i)
    empty = 5 - len(kept)
    return [
        [places[i] for i in kept] + [[0] * 4] * empty, [best[i][1] for i in kept] + [0] * empty,
        [best[i][0] for i in kept] + [0] * empty, [len(kept)],
    ]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize(("classes", "threshold"), [(4, 0.2), (3, 0.2), (4, -20.0), (4, 0.9)])
@pytest.mark.parametrize("seed", range(4))
def test_boxes_that_are_kept(classes: int, threshold: float, seed: int) -> None:
    program = compiled(model(OPTIONS | {"nms_score_threshold": threshold}, classes))
    assert all(item.bound == 0 for item in program.provenance.exactness)
    random = np.random.default_rng(seed)
    boxes = random.integers(90, 150, (1, ITEMS, 4))
    scores = random.integers(0, 256, (1, ITEMS, classes)) // (1 if seed % 2 else 40)
    grid = program.outputs[0].quantizer
    assert isinstance(grid, cvm.quantization.LinearQuantizer)
    least = -(-Fraction(float(np.float32(threshold))) // Fraction(float(np.float32(SCORE[0]))))
    wanted = expected(boxes, scores, grid.scale[0], classes - 3, int(least))
    given = {"boxes": boxes.astype(np.int32), "classes": scores.astype(np.int32)}
    for executor in ("numpy", "native"):
        found = list(cvm.Session(program, executor=executor).run(given, codes=True).values())
        for array, items in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(np.asarray(array)[0] if array.ndim > 1 else array, items)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_classes_per_detection": 2}, "2 classes for each detection; set max_classes_per_detection to 1"),
        ({"use_regular_nms": True}, "it suppresses each of 3 classes by itself"),
        ({"nms_iou_threshold": 0.605}, "is no whole percent above 0"),
        ({"max_detections": 30}, "30 detections of 24 boxes"),
        ({"h_scale": 0.05}, "times as large as their anchors"),
    ],
)
def test_refusals(change: dict[str, Any], message: str) -> None:
    with pytest.raises(Unsupported, match="TFLite_Detection_PostProcess") as caught:
        tflite.loads(model(OPTIONS | change))
    assert message in str(caught.value)


def test_options_that_are_missing_or_broken() -> None:
    with pytest.raises(CvmError, match="its options lack x_scale"):
        tflite.loads(model({name: item for name, item in OPTIONS.items() if name != "x_scale"}))
    good = bytes(flexbuffers.Dumps(OPTIONS))
    random = np.random.default_rng(1)
    for _ in range(300):
        bad = bytearray(good)
        for at in random.integers(0, len(bad), random.integers(1, 6)):
            bad[at] = random.integers(0, 256)
        with suppress(CvmError):
            tflite.loads(model(bytes(bad[: random.integers(0, len(bad) + 1)])))
    with pytest.raises(Malformed, match="no map of FlexBuffers"):
        tflite.loads(model(b"\x00"))


@pytest.mark.long
def test_the_detector_of_the_gallery() -> None:
    file = GALLERY / "coral" / "traffic_model.tflite"
    if not file.is_file():
        pytest.skip("../shared/gallery/coral/traffic_model.tflite is not there")
    program = cvm.compile(file)
    random = np.random.default_rng(3)
    given = {
        item.value.name: np.clip(random.normal(128, 20, item.value.shape), 0, 255).astype(np.int32)
        for item in program.inputs
    }
    found = [cvm.Session(program, executor=executor).run(given, codes=True) for executor in ("numpy", "native")]
    for output in program.outputs:
        np.testing.assert_array_equal(found[0][output.name], found[1][output.name])
    scores = np.asarray(found[0]["TFLite_Detection_PostProcess:2"])
    assert scores.shape == (1, 40)
    assert (np.diff(scores) <= 0).all()
