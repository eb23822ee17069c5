"""The numbers at which a rising function reaches the steps of a quantiser, for all steps at once, by bisection in
float64.

For each step, the search finds a bracket of floats a < b. Enclosures in float64 (`cvm.quantization.many`) prove that
the function has not reached the step at a, and has reached it at b. A float is a rational number, so exact arithmetic
(`cvm.lowering.proofs.curves`) may continue with such a bracket. It also decides the steps that floats cannot decide.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from cvm.quantization import LinearQuantizer
from cvm.quantization.float_enclosures import FLOATS, FloatInterval, Floats, between
from cvm.quantization.many import enclosed, many_rationals, points, taken
from cvm.quantization.reals import Real, rational
from cvm.records import dataclass

__all__ = ["ABOVE", "BELOW", "BETWEEN", "OPEN", "Crossings"]

BELOW, BETWEEN, ABOVE, OPEN = -1, 0, 1, 2
"""The least number reaches the step; a number in a bracket reaches it first; no number does; floats cannot decide."""
_FINER = 2.0**-14
"""Brackets have this fraction of the requested width. So few of them contain an integer, and none must be computed
again for a unit that is a little smaller."""
_MOST_HALVINGS = 128


@dataclass(frozen=True, slots=True)
class Crossings:
    """The steps to the codes lo + 1 .. hi of one channel, with one item per step in each array.

    ``where`` says where the function reaches the step; ``below`` and ``reached`` are the ends of the bracket.
    """

    where: npt.NDArray[np.int8]
    below: Floats
    reached: Floats

    @staticmethod
    def of(
        function: Callable[[Real], Real],
        within: Callable[[Real], bool],
        ends: tuple[Fraction, Fraction],
        quantizer: LinearQuantizer,
        channel: int,
        width: Fraction,
    ) -> Crossings:
        """The crossings of ``function``, which rises on the numbers ``within``, and reaches no step at lower numbers.

        ``ends`` are the least and the greatest number. Brackets are at most ``width`` wide if floats are fine enough.
        """
        steps = _steps(quantizer, channel)
        nothing = rational(quantizer.value(quantizer.lo, channel) - quantizer.scale[channel])

        def valued(x: Real) -> Real:
            return function(x) if within(x) else nothing

        outer = many_rationals(ends)
        least, most = (tuple(end[i] for end in enclosed(2, lambda at: valued(taken(outer, at)))) for i in (0, 1))
        where = np.full(len(steps[0]), OPEN, np.int8)
        where[steps[1] < least[0]] = BELOW
        where[steps[0] > most[1]] = ABOVE
        first, last = float(outer[1][0]), float(outer[0][1])
        below, reached = np.full(where.shape, first), np.full(where.shape, last)
        search = _Search(valued, steps, below, reached)
        if first < last:  # both are numbers between the ends
            sides = search.sides(np.array([first, last]), (steps[0][:, None], steps[1][:, None]))
            where[(where == OPEN) & (sides[:, 0] < 0) & (sides[:, 1] > 0)] = BETWEEN
            search.halve(np.flatnonzero(where == BETWEEN), float(width) * _FINER)
        return Crossings(where, below, reached)


def _steps(quantizer: LinearQuantizer, channel: int) -> FloatInterval:
    """Enclosures of the steps, half-way between the numbers of neighbouring codes."""
    offset, scale = quantizer.offset[channel], quantizer.scale[channel]
    codes: Floats = np.arange(quantizer.lo + 1, quantizer.hi + 1, dtype=np.float64) - 0.5
    return FLOATS.add(between(offset, offset), FLOATS.mul((codes, codes), between(scale, scale)))


@dataclass(frozen=True, slots=True)
class _Search:
    """The brackets of all steps, which `halve` makes narrower."""

    valued: Callable[[Real], Real]
    steps: FloatInterval
    below: Floats
    reached: Floats

    def sides(self, xs: Floats, steps: FloatInterval) -> npt.NDArray[np.int8]:
        """1 if the function at a number of ``xs`` has reached its step, -1 if not, 0 if floats cannot decide."""
        distinct, inverse = np.unique(xs, return_inverse=True)
        low, high = enclosed(distinct.size, lambda at: self.valued(points(distinct[at])))
        passed = np.where(low[inverse] > steps[1], np.int8(1), np.int8(0))
        return np.where(high[inverse] < steps[0], np.int8(-1), passed)

    def halve(self, active: npt.NDArray[np.intp], width: float) -> None:
        """Halve the brackets of the steps ``active`` until they are ``width`` wide, or floats cannot decide."""
        for _ in range(_MOST_HALVINGS):
            low, high = self.below[active], self.reached[active]
            middle = low + (high - low) / 2
            wide = (high - low > width) & (low < middle) & (middle < high)
            active, middle = active[wide], middle[wide]
            if not active.size:
                return
            sides = self.sides(middle, (self.steps[0][active], self.steps[1][active]))
            self.reached[active[sides > 0]] = middle[sides > 0]
            self.below[active[sides < 0]] = middle[sides < 0]
            active = active[sides != 0]
