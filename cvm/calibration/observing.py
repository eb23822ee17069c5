"""What calibration takes from one evaluation of a float graph: every further evaluation would cost as much again.

A tensor is measured as soon as it is computed, and need not stay in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError
from cvm.graph import QuantizedGraph
from cvm.quantization.calibration import Histogram
from cvm.records import dataclass
from cvm.reference import Reference, Watching, run_count

__all__ = ["Measurements", "Run", "Seen", "channel_mean", "histogram_of", "measure"]

Floats: TypeAlias = npt.NDArray[np.float64]
Run: TypeAlias = Mapping[str, Floats]
"""The outputs of one run, by name."""

_MOST_KEPT = 2**23
"""The most numbers of outputs that are kept for comparisons; of larger outputs, these compute their own."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """What to measure: histograms of tensors; and for tensors with an axis of channels, the greatest magnitude of each
    channel, and its mean over the first ``samples``.
    """

    histograms: tuple[str, ...] = ()
    magnitudes: Mapping[str, int] = field(default_factory=dict)
    means: Mapping[str, int] = field(default_factory=dict)
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """What was measured, by tensor; and the outputs of all runs, or of none if they are large."""

    histograms: dict[str, Histogram] = field(default_factory=dict)
    magnitudes: dict[str, Floats] = field(default_factory=dict)
    means: dict[str, Floats] = field(default_factory=dict)
    outputs: list[Run] = field(default_factory=list)


def measure(
    graph: QuantizedGraph,
    inputs: Mapping[str, npt.ArrayLike],
    what: Measurements,
    cycles: bool = False,
    on_run: Callable[[int], None] | None = None,
    within: slice = slice(None),
) -> Seen:
    """Evaluate the graph once and measure. ``on_run`` is called with the number of runs that are done.

    ``within`` selects samples. Means are taken of samples, so a graph with state has none. Raises `Invalid` as
    `Reference.runs`, and (``calibration.real``) if a tensor whose histogram is wanted becomes NaN or infinite.
    """
    seen, done = Seen(), 0

    def show(name: str, array: npt.NDArray[Any]) -> None:
        if name in histograms:
            new = histogram_of(array, name)
            seen.histograms[name] = seen.histograms[name] + new if name in seen.histograms else new
        if name in what.magnitudes:
            greatest = _greatest(array, what.magnitudes[name])
            seen.magnitudes[name] = np.maximum(seen.magnitudes.get(name, greatest), greatest)
        if name in what.means and done < what.samples:
            mean = channel_mean([array], what.means[name])
            before = seen.means.get(name, np.zeros(len(mean)))
            seen.means[name] = before + (mean - before) / (done + 1)

    histograms = frozenset(what.histograms)
    watching = Watching(histograms.union(what.magnitudes, what.means), show)
    numbers = sum(prod(graph.tensors[name].shape) for name in graph.outputs) * run_count(graph, inputs, cycles)
    for run in Reference(graph, pseudo_quantize=True).runs(inputs, None, cycles, within, watching):
        if numbers <= _MOST_KEPT:
            seen.outputs.append(run)
        done += 1
        if on_run is not None:
            on_run(done)
    return seen


def histogram_of(items: npt.NDArray[Any], name: str) -> Histogram:
    """The histogram of the items of a tensor. Raises `Invalid` with its name if one is NaN or infinite."""
    try:
        return Histogram.of(items)
    except CvmError as error:
        raise error.at(tensor=name) from None


def channel_mean(arrays: list[npt.NDArray[Any]], axis: int) -> Floats:
    """The mean of each channel over all other axes and all arrays."""
    others = tuple(i for i in range(arrays[0].ndim) if i != axis)
    found: Floats = np.mean([array.mean(axis=others) for array in arrays], axis=0)
    return found


def _greatest(array: npt.NDArray[Any], axis: int) -> Floats:
    """The greatest magnitude of each channel; NaN where one of its numbers is."""
    others = tuple(i for i in range(array.ndim) if i != axis)
    found: Floats = np.maximum(array.max(axis=others), -array.min(axis=others))
    return found
