"""Measures of one tensor: the distance of the numbers of its codes from those of the float reference.

All measures are float64, for people only: nothing that an executor computes depends on them. Counts are exact.

* Signal-to-quantisation-noise ratio, in decibels: SQNR = 10 log10(sum x^2 / sum (x - y)^2) over all elements of all
  runs. x is the number of the float reference, and y the number of the code (the nearest float64; with channels,
  offset + scale * code in float64, as in the reference). Infinite if all x = y; minus infinity if all x are 0 and not
  all y; not defined if a sum is beyond float64.
* Saturation: the share of codes that are the least, and the greatest, code of the quantiser. An activation with a floor
  at zero has many at the least code without any harm. `below` and `above` count the elements that clipping changed:
  their float is nearer to a code that the quantiser does not have.
* Used part of the proven range: (greatest code seen - least code seen) / (hi - lo) of the interval [lo, hi] that the
  verifier proved.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from cvm.records import dataclass
from cvm.report.ruler import Floats, Integers, Ruler

__all__ = ["Histogram", "Measures", "Meter", "decibels"]

_BLOCK = 2**17
"""How many elements are measured at once: so few that temporaries stay in the cache."""
_BINS = 1024


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of elements by code. Bin number i holds the ``width`` codes from ``first + i * width`` on.

    A real number counts where the nearest code would; ``below`` and ``above`` count those nearer to codes that the
    quantiser does not have.
    """

    first: int
    width: int
    float: tuple[int, ...]
    program: tuple[int, ...]
    below: int
    above: int


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of one tensor over all runs; the definitions stand in the module's docstring."""

    elements: int
    undefined: int
    """How many elements have a float that is NaN or infinite; these count in the code measures only."""
    differing: int
    """How many elements have a code whose number is not the float."""
    sqnr: float | None
    """In decibels; infinite if nothing differs, None if it is not defined."""
    mean_error: float
    """The mean of y - x: the average error of rounding."""
    max_error: float
    """The greatest |x - y|, and ``max_error_sample`` is the first sample that has it."""
    max_error_sample: int
    float_range: tuple[float, float]
    code_range: tuple[int, int]
    at_least: int
    """How many elements have the least code of the quantiser."""
    at_greatest: int
    histogram: Histogram

    @property
    def below(self) -> float:
        """The share of elements whose float is below the quantiser's range."""
        return self.histogram.below / self.elements

    @property
    def above(self) -> float:
        """The share of elements whose float is above the quantiser's range."""
        return self.histogram.above / self.elements


def decibels(signal: float, noise: float, equal: bool) -> float | None:
    """10 log10(signal / noise), with the conventions of this module."""
    if equal:
        return math.inf
    if not (math.isfinite(signal) and math.isfinite(noise) and noise > 0):
        return None
    return 10 * (math.log10(signal) - math.log10(noise)) if signal > 0 else -math.inf


class Meter:
    """Measures a tensor, from its float numbers and its codes, run by run. Memory does not grow with the runs."""

    def __init__(self, ruler: Ruler) -> None:
        self._ruler = ruler
        codes = ruler.hi - ruler.lo + 1
        self._width = -(-codes // _BINS)
        bins = -(-codes // self._width)
        self._float = np.zeros(bins + 2, np.int64)
        self._program = np.zeros(bins, np.int64)
        self._elements = self._undefined = self._differing = self._at_least = self._at_greatest = 0
        self._signal = self._noise = self._error = 0.0
        self._max_error, self._max_error_sample = 0.0, 0
        self._float_range = (math.inf, -math.inf)
        self._code_range = (ruler.hi, ruler.lo)

    def add(self, reals: npt.NDArray[np.generic], codes: Integers, sample: int = 0) -> None:
        """Count the elements of one run: arrays of one shape, the float (or logical or integer) one first."""
        assert reals.shape == codes.shape
        flat_reals, flat_codes = reals.reshape(-1), codes.reshape(-1)
        with np.errstate(all="ignore"):
            for start in range(0, flat_codes.size, _BLOCK):
                block = slice(start, start + _BLOCK)
                self._add(flat_reals[block].astype(np.float64, copy=False), flat_codes[block], start, sample)

    def _add(self, reals: Floats, codes: Integers, start: int, sample: int) -> None:
        ruler = self._ruler
        self._elements += codes.size
        self._at_least += int(np.count_nonzero(codes == ruler.lo))
        self._at_greatest += int(np.count_nonzero(codes == ruler.hi))
        least, greatest = self._code_range
        self._code_range = (min(least, int(codes.min())), max(greatest, int(codes.max())))
        self._program += np.bincount((codes.astype(np.int64) - ruler.lo) // self._width, minlength=self._program.size)
        positions = ruler.positions(reals, start)
        errors = ruler.values(codes, start) - reals
        finite = np.isfinite(reals)
        if not finite.all():
            self._undefined += int(reals.size - np.count_nonzero(finite))
            positions, reals, errors = positions[~np.isnan(reals)], reals[finite], errors[finite]
        self._float += np.bincount(self._bins(positions), minlength=self._float.size)
        if not reals.size:
            return
        self._float_range = (
            min(self._float_range[0], float(reals.min())),
            max(self._float_range[1], float(reals.max())),
        )
        self._differing += int(np.count_nonzero(errors))
        self._signal += float(np.square(reals).sum())
        self._noise += float(np.square(errors).sum())
        self._error += float(errors.sum())
        worst = float(np.abs(errors).max())
        if worst > self._max_error:
            self._max_error, self._max_error_sample = worst, sample

    def _bins(self, positions: Floats) -> npt.NDArray[np.int64]:
        """The bin of each position, counted from 1; positions outside the codes are in the first or the last bin."""
        codes = self._ruler.hi - self._ruler.lo + 1
        steps = np.clip(np.floor(positions + (0.5 - self._ruler.lo)), -1, codes)
        bins: npt.NDArray[np.int64] = np.floor_divide(steps, self._width).astype(np.int64) + 1
        bins[steps >= codes] = self._float.size - 1
        return bins

    def result(self) -> Measures:
        """The measures so far, of at least one run."""
        measured = self._elements - self._undefined
        equal = self._differing == 0 and measured > 0
        return Measures(
            elements=self._elements,
            undefined=self._undefined,
            differing=self._differing,
            sqnr=decibels(self._signal, self._noise, equal),
            mean_error=self._error / max(measured, 1),
            max_error=self._max_error,
            max_error_sample=self._max_error_sample,
            float_range=self._float_range,
            code_range=self._code_range,
            at_least=self._at_least,
            at_greatest=self._at_greatest,
            histogram=Histogram(
                self._ruler.lo,
                self._width,
                tuple(self._float[1:-1].tolist()),
                tuple(self._program.tolist()),
                int(self._float[0]),
                int(self._float[-1]),
            ),
        )
