"""The extreme slacks of the steps of a row with two accumulators. Only those slacks that matter are computed exactly.

The gap lemma (`cvm.quantization.fixed_point`) needs an extreme over all steps k of floor((base_k + factor * slack_k) /
divisor), where slack_k is the least or the greatest residue of an arithmetic progression. Bounds of all slacks take
little time (`modular.bounds_of_least_residue`). They leave few steps, mostly one, that could give the extreme. Only the
slacks of these steps are computed.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np
import numpy.typing as npt

from cvm.quantization.modular import ResidueBounds, bounds_of_least_residue, least_residue
from cvm.records import dataclass

__all__ = ["Slacks"]

Integers = npt.NDArray[np.object_]


@dataclass(frozen=True, eq=False, slots=True)
class Slacks:
    """An extreme residue of (offset - k * denominator + step * i) mod modulus over 0 <= i < count, for each step k.

    The greatest residue is modulus - 1 minus the least residue of the negated progression. With ``greatest``,
    ``bounds`` and ``known`` (least residues by index) belong to the negated progression.
    """

    k: Integers
    offset: int
    denominator: int
    count: int
    step: int
    greatest: bool
    bounds: ResidueBounds
    known: dict[int, int] = field(default_factory=dict)

    @staticmethod
    def least_of(k: Integers, offset: int, denominator: int, count: int, modulus: int, step: int) -> Slacks:
        """Slacks that are least residues."""
        bounds = bounds_of_least_residue(count, modulus, step, offset - k * denominator)
        return Slacks(k, offset, denominator, count, step, False, bounds)

    @staticmethod
    def greatest_of(k: Integers, offset: int, denominator: int, count: int, modulus: int, step: int) -> Slacks:
        """Slacks that are greatest residues."""
        bounds = bounds_of_least_residue(count, modulus, -step, -1 - offset + k * denominator)
        return Slacks(k, -1 - offset, -denominator, count, -step, True, bounds)

    def lower(self) -> Integers:
        """A lower bound of each slack."""
        return self._slacks(self.bounds.upper() if self.greatest else self.bounds.lower())

    def upper(self) -> Integers:
        """An upper bound of each slack."""
        return self._slacks(self.bounds.lower() if self.greatest else self.bounds.upper())

    def exact(self, steps: npt.NDArray[np.intp]) -> Integers:
        """The slacks of some steps, by index."""
        unknown = np.array([step for step in steps.tolist() if step not in self.known], dtype=np.intp)
        if unknown.size:
            start = self.offset - self.k[unknown] * self.denominator
            found = least_residue(self.count, self.bounds.modulus, self.step, start)
            self.known.update(zip(unknown.tolist(), found.tolist(), strict=True))
        residues = np.array([self.known[step] for step in steps.tolist()], dtype=object)
        return self.bounds.modulus - 1 - residues if self.greatest else residues

    def least_quotient(self, base: Integers, factor: int, divisor: int) -> int:
        """The least floor((base + factor * slack) / divisor) over all steps; ``factor`` and ``divisor`` > 0."""
        least = ((base + factor * self.upper()) // divisor).min()
        decisive = np.flatnonzero((base + factor * self.lower()) // divisor < least)
        quotients = (base[decisive] + factor * self.exact(decisive)) // divisor
        return int(min([least, *quotients]))

    def greatest_quotient(self, base: Integers, factor: int, divisor: int) -> int:
        """The greatest floor((base + factor * slack) / divisor) over all steps; ``factor`` and ``divisor`` > 0."""
        greatest = ((base + factor * self.lower()) // divisor).max()
        decisive = np.flatnonzero((base + factor * self.upper()) // divisor > greatest)
        quotients = (base[decisive] + factor * self.exact(decisive)) // divisor
        return int(max([greatest, *quotients]))

    def _slacks(self, bound: Integers) -> Integers:
        """The slacks for these least residues. Residues that are known exactly replace the given ones."""
        for step, residue in self.known.items():
            bound[step] = residue
        return self.bounds.modulus - 1 - bound if self.greatest else bound
