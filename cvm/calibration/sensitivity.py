"""Which tensors cost the outputs most, and which of them have to be finer to reach a signal-to-noise ratio.

The quantisers of one group of tensors alone are put into the float graph; what they change in the outputs is the noise
of the group. Noises of different groups are nearly independent and so nearly add up: the group with the greatest noise
is the first to get more bits. The estimates decide only which tensors these are; the caller measures the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.graph import QuantizedGraph
from cvm.reference import Reference

__all__ = ["Group", "Sensitivity", "Widened", "decibels_of", "least_count", "noise_of"]

Group: TypeAlias = tuple[str, ...]
"""Tensors that share a quantiser."""

_RUNS = 4
"""Runs of the data that the noise of every group is measured on."""

_Run: TypeAlias = dict[str, npt.NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Widened:
    """Tensors that share a quantiser and got more bits; ``alone_db`` is the SQNR of the outputs with only them rounded.

    It was measured with the bits that they had before; infinite where they change no output.
    """

    tensors: Group
    alone_db: float


class Sensitivity:
    """The noise that quantisers add to the real outputs of ``source``, on the first runs of ``inputs``.

    Noise is the sum of squared differences over the sum of squares, of the output where this is greatest.
    """

    def __init__(self, source: QuantizedGraph, inputs: Mapping[str, npt.ArrayLike], cycles: bool) -> None:
        self._source, self._inputs, self._cycles = source, inputs, cycles
        self._names = [name for name in source.outputs if source.tensors[name].dtype == "scalar"]
        self._wanted = self._runs(source)

    def noise(self, graph: QuantizedGraph) -> float:
        """The noise of a graph with quantisers."""
        return max((self._noise(name, self._runs(graph)) for name in self._names), default=0.0)

    def ordered(
        self, calibrated: QuantizedGraph, groups: Sequence[Group], on_group: Callable[[int], None] | None = None
    ) -> list[Widened]:
        """The groups by their own noise in ``calibrated``, the greatest first.

        ``on_group`` is told how many are done.
        """
        found = []
        for done, group in enumerate(groups, start=1):
            tensors = dict(self._source.tensors) | {name: calibrated.tensors[name] for name in group}
            noise = self.noise(replace(self._source, tensors=MappingProxyType(tensors)))
            found.append((noise, Widened(group, decibels_of(noise))))
            if on_group is not None:
                on_group(done)
        return [item for _, item in sorted(found, key=lambda pair: -pair[0])]

    def _runs(self, graph: QuantizedGraph) -> list[_Run]:
        reference = Reference(graph, pseudo_quantize=True)
        return list(islice(reference.runs(self._inputs, cycles=self._cycles), _RUNS))

    def _noise(self, name: str, runs: Sequence[_Run]) -> float:
        return noise_of([(wanted[name], given[name]) for wanted, given in zip(self._wanted, runs, strict=True)])


def noise_of(pairs: Sequence[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]) -> float:
    """The sum of squared differences over the sum of squares of what was wanted; pairs are (wanted, given) of a run."""
    noise = sum(float(np.square(wanted - given).sum()) for wanted, given in pairs)
    signal = sum(float(np.square(wanted).sum()) for wanted, _ in pairs)
    return noise / signal if signal else (math.inf if noise else 0.0)


def decibels_of(noise: float) -> float:
    """A noise as a signal-to-noise ratio in decibels."""
    if noise == math.inf:
        return -math.inf
    return -10.0 * math.log10(noise) if noise else math.inf


def least_count(most: int, enough: Callable[[int], bool]) -> int:
    """The least count in [0, most] that is enough, by bisection; ``most`` where none is.

    More is taken to be no worse: where that does not hold, the count is one that is enough and whose half was not.
    """
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low
