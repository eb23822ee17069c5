"""The choice of settings that are left open, by comparing the outputs on data.

A choice is tried in the float graph with quantisers. It is kept where the outputs come nearer to those of the float
graph: by at least 0.1 dB on the samples that are held apart, and not further away on all samples. So trying never makes
a result worse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy.typing as npt

from cvm.calibration.correction import apart_count, fitting_samples
from cvm.calibration.observing import Run
from cvm.calibration.sensitivity import decibels_of, noise_of
from cvm.calibration.settings import Settings
from cvm.graph import QuantizedGraph
from cvm.records import dataclass
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
    outputs: Callable[[], Sequence[Run]] = lambda: (),
) -> tuple[Settings, tuple[Trial, ...]]:
    """The settings with every open choice made, and the trials.

    ``make`` calibrates with settings; ``source`` is the float graph, and ``outputs`` gives its outputs in every run, if
    ``make`` has measured them. Raises the errors of ``make`` and `Reference.run`.
    """
    if not settings.is_open:
        return settings, ()
    best = _closed(settings)
    on_step("measuring the outputs")
    found = make(best)
    measured = _Measured(source, inputs, cycles, outputs())
    noises = measured.noises(found.graph)
    measured.keep()
    trials = [_trial(best, found, noises, True)]
    for words, change in _candidates(settings):
        on_step(words)
        tried = change(best)
        found = make(tried)
        if (tried.equalize, tried.correct_bias) != (best.equalize, best.correct_bias) and not _changes(found, best):
            continue
        new = measured.noises(found.graph, noises)
        is_better = new[1] <= noises[1] * _LEAST_GAIN and new[0] <= noises[0] and new != noises
        trials.append(_trial(tried, found, new, is_better))
        if is_better:
            best, noises = tried, new
            measured.keep()
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
    """The outputs of a float graph on some samples, for comparison with those of graphs with quantisers.

    The reference of the best graph so far is kept, so that the next ones share its rounded weights.
    """

    def __init__(
        self, source: QuantizedGraph, inputs: Mapping[str, npt.ArrayLike], cycles: bool, outputs: Sequence[Run]
    ) -> None:
        self._inputs, self._cycles = inputs, cycles
        self._names = [name for name in source.outputs if source.tensors[name].dtype == "scalar"]
        self._best = self._last = None if outputs else Reference(source, pseudo_quantize=True)
        total = sample_count(source, inputs, cycles)
        fitting, apart = fitting_samples(source, inputs, cycles), apart_count(total)
        self._parts = (fitting, slice(total - apart, total)) if apart else (fitting,)
        if outputs:
            length = len(outputs) // total
            runs = [outputs[part.start * length : part.stop * length] for part in self._parts]
            self._wanted = [list(islice(part, _MOST_RUNS)) for part in runs]
        else:
            self._wanted = [self._outputs(part) for part in self._parts]

    def noises(self, graph: QuantizedGraph, best: tuple[float, float] | None = None) -> tuple[float, float]:
        """The noise of the output with the most noise: on all samples, and on the samples held apart.

        The first is infinite, and not measured, if the second is too great to be better than the ``best`` noises.
        """
        self._last = Reference(graph, pseudo_quantize=True)
        given = [self._outputs(self._parts[-1])]
        apart = self._greatest([self._wanted[-1]], given)
        if best is not None and apart > best[1] * _LEAST_GAIN:
            return math.inf, apart
        given = [*(self._outputs(part) for part in self._parts[:-1]), *given]
        return self._greatest(self._wanted, given), apart

    def keep(self) -> None:
        """Keep the reference of the last graph, which is the best one."""
        self._best = self._last

    def _greatest(self, wanted: Sequence[list[Run]], given: Sequence[list[Run]]) -> float:
        pairs = [pair for part in zip(wanted, given, strict=True) for pair in zip(*part, strict=True)]
        return max((noise_of([(a[name], b[name]) for a, b in pairs]) for name in self._names), default=0.0)

    def _outputs(self, samples: slice) -> list[Run]:
        assert self._last is not None
        runs = self._last.runs(self._inputs, cycles=self._cycles, samples=samples)
        return list(islice(runs, _MOST_RUNS))
