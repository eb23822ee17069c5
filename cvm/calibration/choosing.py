"""The choice of settings that are left open, by comparing the outputs on data.

A choice is tried in the float graph with quantisers. It is kept where the outputs come nearer to those of the float
graph: by at least 0.1 dB on the samples that are held apart, and not further away on all samples. So trying never makes
a result worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cvm.calibration.correction import apart_count, fitting_samples
from cvm.calibration.sensitivity import decibels_of, noise_of
from cvm.calibration.settings import Settings
from cvm.graph import QuantizedGraph
from cvm.reference import Reference, sample_count

if TYPE_CHECKING:
    from cvm.calibration.driver import Calibration

__all__ = ["Trial", "chosen_settings"]

_MOST_RUNS = 32
"""The most runs of each part of the samples on which outputs are compared."""

_LEAST_GAIN = 10.0**-0.01
"""A choice is kept if it multiplies the noise by at most this factor: -0.1 dB."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial: the settings that differ, the SQNR of the outputs on the samples held apart, and
    whether it was kept.
    """

    method: str
    equalized: bool
    corrected: bool
    apart_db: float
    kept: bool


def chosen_settings(
    make: Callable[[Settings], Calibration],
    source: QuantizedGraph,
    inputs: Mapping[str, npt.ArrayLike],
    settings: Settings,
    cycles: bool,
    on_step: Callable[[str], None] = lambda words: None,
) -> tuple[Settings, tuple[Trial, ...]]:
    """The settings with every open choice made, and the trials.

    ``make`` calibrates with settings; ``source`` is the float graph. Raises the errors of ``make`` and `Reference.run`.
    """
    if not settings.is_open:
        return settings, ()
    measured = _Measured(source, inputs, cycles)
    best = _closed(settings)
    on_step("measuring the outputs")
    found = make(best)
    noises = measured.noises(found.graph)
    trials = [_trial(best, found, noises, True)]
    for words, change in _candidates(settings):
        on_step(words)
        tried = change(best)
        found = make(tried)
        if (tried.equalize, tried.correct_bias) != (best.equalize, best.correct_bias) and not _changes(found, best):
            continue
        new = measured.noises(found.graph)
        is_better = new[1] <= noises[1] * _LEAST_GAIN and new[0] <= noises[0] and new != noises
        trials.append(_trial(tried, found, new, is_better))
        if is_better:
            best, noises = tried, new
    return best, tuple(trials)


def _closed(settings: Settings) -> Settings:
    """The settings of the first trial: plain ranges, and no optional change of the numbers."""
    filters = settings.filter_method
    if settings.method == "best" and filters is None:
        filters = "minmax" if settings.filter_bits >= _LEAST_PLAIN_BITS else "mse"
    return replace(
        settings,
        method=settings.range_method,
        filter_method=filters,
        equalize="off" if settings.equalize == "auto" else settings.equalize,
        correct_bias="off" if settings.correct_bias == "auto" else settings.correct_bias,
    )


_LEAST_PLAIN_BITS = 8
"""Filters with fewer bits start with the ranges of the least squared error, which mostly suit them
(docs/calibration.md).
"""


def _candidates(settings: Settings) -> Iterator[tuple[str, Callable[[Settings], Settings]]]:
    """The changes to try, in order; each is applied to the best settings so far."""
    if settings.method == "best":
        yield "trying ranges of the least squared error", lambda best: replace(best, method="mse")
        yield "trying ranges by percentile", lambda best: replace(best, method="percentile")
    if settings.method == "best" and settings.filter_method is None and settings.filter_bits < _LEAST_PLAIN_BITS:
        yield "trying plain ranges of filters", lambda best: replace(best, filter_method="minmax")
    if settings.equalize == "auto":
        yield "trying equalised channels", lambda best: replace(best, equalize="on")
    if settings.correct_bias == "auto":
        yield "trying corrected biases", lambda best: replace(best, correct_bias="on")


def _changes(found: Calibration, best: Settings) -> bool:
    """Whether the calibration changed the numbers in a way that the best settings so far do not."""
    return bool(found.corrected) if best.equalize == "on" else bool(found.rescaled or found.corrected)


def _trial(settings: Settings, found: Calibration, noises: tuple[float, float], kept: bool) -> Trial:
    return Trial(settings.method, bool(found.rescaled), bool(found.corrected), decibels_of(noises[1]), kept)


class _Measured:
    """The outputs of a float graph on some samples, for comparison with those of graphs with quantisers."""

    def __init__(self, source: QuantizedGraph, inputs: Mapping[str, npt.ArrayLike], cycles: bool) -> None:
        self._inputs, self._cycles = inputs, cycles
        self._names = [name for name in source.outputs if source.tensors[name].dtype == "scalar"]
        total = sample_count(source, inputs, cycles)
        fitting, apart = fitting_samples(source, inputs, cycles), apart_count(total)
        self._parts = (fitting, slice(total - apart, total)) if apart else (fitting,)
        self._wanted = [self._outputs(source, part) for part in self._parts]

    def noises(self, graph: QuantizedGraph) -> tuple[float, float]:
        """The noise of the output with the most noise: on all samples, and on the samples held apart."""
        given = [self._outputs(graph, part) for part in self._parts]
        whole = [pair for part in zip(self._wanted, given, strict=True) for pair in zip(*part, strict=True)]
        apart = list(zip(self._wanted[-1], given[-1], strict=True))
        return self._greatest(whole), self._greatest(apart)

    def _greatest(self, pairs: Sequence[tuple[dict[str, npt.NDArray[np.float64]], ...]]) -> float:
        return max((noise_of([(a[name], b[name]) for a, b in pairs]) for name in self._names), default=0.0)

    def _outputs(self, graph: QuantizedGraph, samples: slice) -> list[dict[str, npt.NDArray[np.float64]]]:
        reference = Reference(graph, pseudo_quantize=True)
        return list(islice(reference.runs(self._inputs, cycles=self._cycles, samples=samples), _MOST_RUNS))
