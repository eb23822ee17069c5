"""Non-maximum suppression, the last operation of TFLite detectors."""

from __future__ import annotations

import numpy as np

from cvm.reference.registry import Array, operation

__all__ = ["non_max_suppression"]


@operation("TFLite_Detection_PostProcess")
def non_max_suppression(boxes: Array, scores: Array, score_threshold: float, overlap: int, count: int) -> Array:
    """The indices of the boxes that are kept, by falling score; the rest of the ``count`` items are -1."""
    found = np.full((boxes.shape[0], count), -1, np.int64)
    for batch, (corners, values) in enumerate(zip(boxes, scores, strict=True)):
        order = np.argsort(-values, kind="stable")
        left = order[values[order] >= score_threshold]
        for place in range(count):
            if not left.size:
                break
            found[batch, place] = left[0]
            left = left[1:][_overlaps(corners[left[0]], corners[left[1:]]) < overlap / 100]
    return found


def _overlaps(box: Array, others: Array) -> Array:
    """The area of the intersection of a box with each other box, divided by the area of their union (0 if that is
    empty).
    """
    inner = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    intersection = np.maximum(inner, 0).prod(1)
    union = (box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(1) - intersection
    result: Array = np.where(union > 0, intersection / np.where(union > 0, union, 1), 0)
    return result
