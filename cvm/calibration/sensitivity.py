"""Sensitivity: which tensors cost the outputs most, and which need more bits to reach a signal-to-noise ratio.

The quantisers of a single group of tensors are put into the float graph; the change of the outputs is the noise of that
group. The noises of different groups are nearly independent, so they nearly add up: the group with the greatest noise
is the first to get more bits. These estimates only order the groups; the caller measures the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.graph import QuantizedGraph
from cvm.records import dataclass
from cvm.reference import Reference

__all__ = ["Group", "Sensitivity", "Widened", "decibels_of", "least_count", "noise_of"]

Group: TypeAlias = tuple[str, ...]
"""A group: the names of tensors that share a quantiser."""

_RUNS = 4
"""The number of runs on which the noise of every group is measured."""

_Run: TypeAlias = dict[str, npt.NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Widened:
    """A group of tensors that got more bits; ``alone_db`` is the SQNR of the outputs with only this group rounded.

    It was measured with the bits before widening; it is infinite where the group changes no output.
    """

    tensors: Group
    alone_db: float


class Sensitivity:
    """Measures the noise that quantisers add to the real outputs of ``source``, on the first runs of ``inputs``.

    The noise of an output is the sum of its squared differences over the sum of its squares; the greatest one counts.
    """

    def __init__(self, source: QuantizedGraph, inputs: Mapping[str, npt.ArrayLike], cycles: bool) -> None:
        self._source, self._inputs, self._cycles = source, inputs, cycles
        self._names = [name for name in source.outputs if source.tensors[name].dtype == "scalar"]
        self._plain = self._last = Reference(source, pseudo_quantize=True)
        self._wanted = self._runs(self._plain)

    def noise(self, graph: QuantizedGraph) -> float:
        """The noise of a graph with quantisers.

        Within `cvm.reference.sharing`, it shares the stored tensors of the source and of the last graph, which are kept
        for this.
        """
        self._last = Reference(graph, pseudo_quantize=True)
        runs = self._runs(self._last)
        return max((self._noise(name, runs) for name in self._names), default=0.0)

    def ordered(
        self, calibrated: QuantizedGraph, groups: Sequence[Group], on_group: Callable[[int], None] | None = None
    ) -> list[Widened]:
        """The groups ordered by their own noise in ``calibrated``, the greatest first.

        ``on_group`` is called with the number of groups that are done.
        """
        found = []
        for done, group in enumerate(groups, start=1):
            tensors = dict(self._source.tensors) | {name: calibrated.tensors[name] for name in group}
            noise = self.noise(replace(self._source, tensors=MappingProxyType(tensors)))
            found.append((noise, Widened(group, decibels_of(noise))))
            if on_group is not None:
                on_group(done)
        return [item for _, item in sorted(found, key=lambda pair: -pair[0])]

    def _runs(self, reference: Reference) -> list[_Run]:
        return list(islice(reference.runs(self._inputs, cycles=self._cycles), _RUNS))

    def _noise(self, name: str, runs: Sequence[_Run]) -> float:
        return noise_of([(wanted[name], given[name]) for wanted, given in zip(self._wanted, runs, strict=True)])


def noise_of(pairs: Sequence[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]) -> float:
    """The sum of squared differences over the sum of squares of the wanted numbers; pairs are
    (wanted, given) of a run.
    """
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

    A greater count is assumed to be at least as good. Where that is false, the result is a count that is enough, but
    perhaps not the least one.
    """
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low
