"""NonMaxSuppression of quantised boxes, against the selection of the text in exact ratios."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from onnx import helper

from cvm.errors import Unsupported
from tests.frontends.onnx.making import compiled, made, results

node = helper.make_node
RANDOM = np.random.default_rng(31)


def model(shape: tuple[int, int, int], keep: int, overlap: float, score: float | None, centred: bool) -> Any:
    batches, _, count = shape
    names = ["boxes", "scores", "keep", "overlap", *(["least"] if score is not None else [])]
    nodes = [node("DequantizeLinear", ["b", "s", "zb"], ["boxes"]), node("DequantizeLinear", ["p", "s", "zp"], ["raw"]),
             node("Identity", ["raw"], ["scores"]),
             node("NonMaxSuppression", names, ["y"], center_point_box=int(centred))]  # fmt: skip
    constants = {"s": np.float32(0.25), "zb": np.uint8(3), "zp": np.uint8(128), "keep": np.array([keep]),
                 "overlap": np.array([overlap], np.float32), "least": np.array([score or 0], np.float32)}  # fmt: skip
    inputs = {"b": ("uint8", (batches, count, 4)), "p": ("uint8", shape)}
    return made(nodes, inputs, {"y": "int64"}, constants)


def selected(boxes: Any, scores: Any, keep: int, overlap: float, score: float | None, centred: bool) -> list[list[int]]:
    rows = []
    real = [[[Fraction(int(c) - 3, 4) for c in box] for box in batch] for batch in boxes]
    for b, batch in enumerate(real):
        corners = []
        for one, two, three, four in batch:
            if centred:
                one, two, three, four = two - four / 2, one - three / 2, two + four / 2, one + three / 2
            corners.append((min(one, three), min(two, four), max(one, three), max(two, four)))
        for c, line in enumerate(scores[b]):
            numbers = [Fraction(int(p) - 128, 4) for p in line]
            order = sorted(range(len(numbers)), key=lambda i: (-numbers[i], i))
            kept: list[int] = []
            for i in order:
                if score is not None and numbers[i] <= Fraction(float(np.float32(score))):
                    continue
                if len(kept) < keep and not any(beyond(corners[i], corners[j], overlap) for j in kept):
                    kept.append(i)
            rows += [[b, c, i] for i in kept] + [[-1, -1, -1]] * (min(keep, len(line)) - len(kept))
    return rows


def beyond(one: Any, two: Any, overlap: float) -> bool:
    height = max(min(one[2], two[2]) - max(one[0], two[0]), Fraction(0))
    width = max(min(one[3], two[3]) - max(one[1], two[1]), Fraction(0))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, two)]
    return height * width > Fraction(float(np.float32(overlap))) * (sum(areas) - height * width)


@pytest.mark.sweep
@pytest.mark.parametrize(("shape", "keep", "overlap", "score", "centred"), [
    ((1, 1, 12), 5, 0.5, None, False), ((2, 3, 9), 4, 0.25, 0.0, False), ((1, 2, 10), 20, 0.3, 10.0, True),
    ((1, 1, 6), 3, 0.0, None, True),
])  # fmt: skip
def test_the_boxes_are_those_of_exact_ratios(
    shape: tuple[int, int, int], keep: int, overlap: float, score: float | None, centred: bool
) -> None:
    compiled_ = model(shape, keep, overlap, score, centred)
    for case in range(4):
        spread = 40 if case % 2 else 256  # close together, so that many overlap and some by just the threshold
        boxes = RANDOM.integers(0, spread, (shape[0], shape[2], 4)).astype(np.uint8)
        scores = RANDOM.integers(100, 160 if case else 104, shape).astype(np.uint8)
        expected = selected(boxes, scores, keep, overlap, score, centred)
        np.testing.assert_array_equal(results(compiled_, {"b": boxes, "p": scores})["y"], expected)


def test_boxes_need_a_grid_and_a_count() -> None:
    free = model((1, 1, 4), 2, 0.5, None, False)
    free.graph.node.insert(1, node("Sigmoid", ["boxes"], ["changed"]))
    free.graph.node[-1].input[0] = "changed"
    with pytest.raises(Unsupported, match="no exact test"):
        compiled(free)
    with pytest.raises(Unsupported, match="no box is asked for"):
        compiled(model((1, 1, 4), 0, 0.5, None, False))
