"""Statistics of every tensor of a graph over runs, for calibration and for ``cvm nnef run --statistics``."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from cvm.records import dataclass
from cvm.reference.evaluator import Reference
from cvm.reference.registry import Array

__all__ = ["Statistics", "statistics"]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Minimum, maximum, mean and sample standard deviation (divisor n - 1; 0 for n = 1) of the
    elements of one tensor.
    """

    min: float
    max: float
    mean: float
    std: float
    count: int

    @staticmethod
    def of(items: Array) -> Statistics:
        """The statistics of one array."""
        real = items.astype(np.float64)
        std = float(real.std(ddof=1)) if real.size > 1 else 0.0
        return Statistics(float(real.min()), float(real.max()), float(real.mean()), std, real.size)

    def __add__(self, other: Statistics) -> Statistics:
        """The statistics of the union of both collections of elements."""
        count, gap = self.count + other.count, other.mean - self.mean
        squares = self.std**2 * (self.count - 1) + other.std**2 * (other.count - 1)
        squares += gap**2 * self.count * other.count / count
        mean = self.mean + gap * other.count / count
        std = math.sqrt(squares / (count - 1))
        return Statistics(min(self.min, other.min), max(self.max, other.max), mean, std, count)


def statistics(
    reference: Reference, inputs: Mapping[str, npt.ArrayLike], cycles: bool = False
) -> dict[str, Statistics]:
    """Statistics by tensor, in order of introduction; inputs as for `Reference.run`, or `run_cycles` with ``cycles``.

    Only one run is in memory at a time. Raises `Invalid` where those methods do.
    """
    total: dict[str, Statistics] = {}
    with np.errstate(all="ignore"):
        for run in reference.runs(inputs, "all", cycles):
            for name, items in run.items():
                found = Statistics.of(items)
                total[name] = total[name] + found if name in total else found
    return {name: total[name] for name in reference.graph.tensors}
