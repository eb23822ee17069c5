"""Regions of interest (4.6) and the sliding windows of `tests.lowering.window_documents` (4.3, 4.9.2, 4.9.3)."""

from __future__ import annotations

from random import Random

import numpy as np
import numpy.typing as npt

from tests.lowering.documents import Document
from tests.lowering.draws.registry import DRAWS, Drawn
from tests.lowering.window_documents import OPERATIONS

DRAWS.update(OPERATIONS)


class Regions(Document):
    """A document whose input ``rois`` holds regions inside of the feature map, or nearly so, in quarters."""

    extents: tuple[int, ...] = ()
    rois: str = ""

    def feeds(self, count: int = 3) -> list[dict[str, npt.NDArray[np.int32]]]:
        found = super().feeds(count)
        for feed in found:
            for row in feed[self.rois]:
                for axis, extent in enumerate(self.extents):
                    start = self.random.randint(0, extent - 1)
                    row[axis] = 4 * start + self.random.randint(-1, 1) * (start > 0)
                    row[axis + len(self.extents)] = 4 * self.random.randint(start + 1, extent)
        return found


def _regions(random: Random, operation: str) -> Drawn:
    document = Regions(random)
    # Sums of samples over three axes need more than 32 bits and are refused.
    spatial = random.randint(1, 2 if operation == "avg_roi_align" else 3)
    document.extents = tuple(random.randint(1, 5) for _ in range(spatial))
    batch, count = random.randint(1, 3), random.randint(1, 3)
    x = document.external((batch, random.randint(1, 2), *document.extents))
    document.most_bits[x] = 8
    document.rois = document.external((count, 2 * spatial))
    document.quantisers[document.rois] = "linear_quantize(min = 0.0, max = 63.75, bits = 8)"
    document.fixed.add(document.rois)
    index = document.integers((count, 1), 0, batch - 1)
    size, rate = ([random.randint(1, 3) for _ in range(spatial)] for _ in range(2))
    method = random.choice(["symmetric", "asymmetric", "aligned"])
    arguments = f"{x}, {document.rois}, {index}, output_size = {size}"
    if operation == "roi_resample":
        arguments += f", method = '{method}'"
    elif operation.endswith("align"):
        arguments += f", sampling_rate = {rate}, resize_method = '{method}'"
    y = document.apply(f"{operation}({arguments})")
    document.most_bits[y] = 8
    return document, y


def _enter(operation: str) -> None:
    DRAWS[operation] = lambda random: _regions(random, operation)


for _operation in ("max_roi_pool", "avg_roi_pool", "roi_resample", "avg_roi_align", "max_roi_align"):
    _enter(_operation)
