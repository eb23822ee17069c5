"""What rounding models see of one region, and what they are.

A model gives the stages of its computation, as pairs of words and arrays; the last stage are the codes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.comparison.arithmetic import nearest_even
from cvm.comparison.regions import Coded, Region, Regions
from cvm.records import dataclass

__all__ = ["ROUNDED", "F", "Model", "Numbers", "Stages"]

Array = npt.NDArray[Any]
F = np.float32


Stages: TypeAlias = "list[tuple[str, Array]]"
ROUNDED = "rounded half to even, plus zero point, clipped: the code"


@dataclass(frozen=True, eq=False, slots=True)
class Numbers:
    """The numbers of one region on one sample, in the layout of the graph."""

    region: Region
    real: Mapping[str, Array]
    """The real numbers of the tensors around the region, in float64."""
    regions: Regions

    def codes(self, operand: Coded) -> Array:
        """The codes of an operand, less its zero point."""
        return nearest_even(self.real[operand.tensor] / operand.scale)

    @property
    def result(self) -> Array:
        """The exact result of the operation before rounding, nearly: in float64."""
        return self.real[self.region.result]

    @property
    def scale(self) -> float:
        """The scale of the place."""
        return float(self.region.scale)

    def accumulator(self) -> tuple[Array, Array]:
        """The integer sum, and the scale of its unit."""
        unit = self.region.unit
        assert unit is not None
        return nearest_even(self.result / unit), unit

    def bias(self) -> Array:
        """The stored bias in units of the accumulator, in a shape that fits it; 0 if there is none."""
        region = self.region
        unit = region.unit
        if region.bias is None or unit is None:
            return np.array(0)
        stored = self.real[region.bias]
        if region.operation.name in ("conv", "deconv"):
            stored = stored.reshape(1, -1, *[1] * (self.result.ndim - 2))
        return nearest_even(stored / unit)

    def clipped(self, steps: Array) -> Array:
        """Codes from steps of the scale: plus the zero point, clipped."""
        codes: Array = np.clip(steps + self.region.zero, self.region.lo, self.region.hi)
        return codes


@dataclass(frozen=True, slots=True)
class Model:
    """A rounding model."""

    name: str
    source: str
    """Where the engine's own code says so."""
    stages: Callable[[Numbers], Stages]
