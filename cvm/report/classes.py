"""Classes: the class that the program and the float reference give to each sample, and which of the two is right.

The class of a run is the index of the greatest item of the output that holds the scores; of equal items, the first.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Location
from cvm.graph import QuantizedGraph
from cvm.records import dataclass

__all__ = ["Changed", "ClassMeter", "Classes", "Correctness", "check_labels", "scores_output"]


@dataclass(frozen=True, slots=True)
class Changed:
    """A run to which the program and the float reference give different classes.

    The pairs of scores are those of the reference's class and of the program's class.
    """

    sample: int
    cycle: int | None
    label: int | None
    float_class: int
    program_class: int
    float_scores: tuple[float, float]
    program_scores: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Correctness:
    """Counts of runs, by whether the float reference, the program, both or neither give the label's class."""

    both: int
    float_only: int
    program_only: int
    neither: int

    @property
    def runs(self) -> int:
        """All runs that have a label."""
        return self.both + self.float_only + self.program_only + self.neither

    @property
    def float_right(self) -> int:
        """Runs that the float reference gets right."""
        return self.both + self.float_only

    @property
    def program_right(self) -> int:
        """Runs that the program gets right."""
        return self.both + self.program_only


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of all runs that were judged."""

    output: str
    classes: int
    runs: int
    agreeing: int
    ties: int
    """How many runs have several classes with the greatest score of the program; the first of these counts."""
    changed: tuple[Changed, ...]
    correctness: Correctness | None
    """None without labels."""

    @property
    def confusion(self) -> tuple[tuple[int | None, int, int, int], ...]:
        """The changed runs, counted: label, reference's class, program's class, number; the most frequent first."""
        counts = Counter((item.label, item.float_class, item.program_class) for item in self.changed)
        rows = ((*key, count) for key, count in counts.items())
        return tuple(sorted(rows, key=lambda row: (-row[3], row[0] if row[0] is not None else -1, row[1], row[2])))


def scores_output(graph: QuantizedGraph, wish: str | None) -> str | None:
    """The output whose items are the scores of classes: the one that ``wish`` names, or the only possible one.

    Raises `Invalid` (``report.classes``) if ``wish`` names no output of real numbers along one axis.
    """
    fitting = [name for name in graph.outputs if _scores(graph, name)]
    if wish is None:
        return fitting[0] if len(fitting) == 1 == len(graph.outputs) else None
    if wish not in fitting:
        listed = ", ".join(map(repr, fitting)) or "none"
        message = f"no output {wish!r} has real numbers along a single axis; outputs that have: {listed}"
        raise Invalid("report.classes", message, Location(tensor=wish))
    return wish


def _scores(graph: QuantizedGraph, name: str) -> bool:
    tensor = graph.tensors[name]
    return tensor.dtype == "scalar" and sum(extent > 1 for extent in tensor.shape) == 1


def check_labels(
    labels: npt.NDArray[Any], samples: int | None, cycles: int | None, classes: int
) -> npt.NDArray[np.int64]:
    """The labels as an array of shape (samples,), or (samples, cycles) if every cycle has one.

    A single sample without a batch axis (``samples`` None) has a label of shape () or (1,), or one per cycle. Raises
    `Invalid` (``report.labels``) for labels that are no classes of these samples.
    """
    if labels.dtype.kind not in "iu":
        raise Invalid("report.labels", f"labels are integers, found an array of dtype {labels.dtype}")
    per_sample: list[tuple[int, ...]] = [(), (1,)] if samples is None else [(samples,)]
    per_cycle = [] if cycles is None else [(cycles,) if samples is None else (samples, cycles)]
    if labels.shape not in per_sample + per_cycle:
        expected = " or ".join(str(list(shape)) for shape in per_sample + per_cycle)
        raise Invalid("report.labels", f"expected labels of shape {expected}, found {list(labels.shape)}")
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        index = np.argwhere(outside)[0].tolist()
        message = f"expected labels in [0, {classes - 1}], found {int(labels[tuple(index)])} at {index}"
        raise Invalid("report.labels", message)
    rows = (1 if samples is None else samples,)
    return labels.astype(np.int64).reshape(rows if labels.shape in per_sample else (*rows, cycles or 1))


class ClassMeter:
    """A counter of classes that takes the scores of program and reference run by run.

    If there are labels for whole samples of several cycles, only the last cycle is judged; else every run is.
    """

    def __init__(self, output: str, classes: int, cycles: int | None, labels: npt.NDArray[np.int64] | None) -> None:
        self._output, self._classes, self._cycles, self._labels = output, classes, cycles, labels
        self._last_only = cycles is not None and labels is not None and labels.ndim == 1
        self._runs = self._ties = 0
        self._changed: list[Changed] = []
        self._right: Counter[tuple[bool, bool]] = Counter()

    def add(self, sample: int, cycle: int, reals: npt.NDArray[np.float64], program: npt.NDArray[np.float64]) -> None:
        """Judge one run, from its scores as real numbers."""
        if self._last_only and cycle + 1 != self._cycles:
            return
        scores = [array.reshape(-1) for array in (reals, program)]
        float_class, program_class = (int(array.argmax()) for array in scores)
        self._runs += 1
        self._ties += int(np.count_nonzero(scores[1] == scores[1][program_class]) > 1)
        label = self._label(sample, cycle)
        if label is not None:
            self._right[float_class == label, program_class == label] += 1
        if float_class != program_class:
            pairs = [(float(array[float_class]), float(array[program_class])) for array in scores]
            which = cycle if self._cycles is not None else None
            self._changed.append(Changed(sample, which, label, float_class, program_class, pairs[0], pairs[1]))

    def _label(self, sample: int, cycle: int) -> int | None:
        if self._labels is None:
            return None
        return int(self._labels[sample] if self._labels.ndim == 1 else self._labels[sample, cycle])

    def result(self) -> Classes:
        """The counts over all runs so far."""
        right, changed = self._right, tuple(self._changed)
        correctness = Correctness(right[True, True], right[True, False], right[False, True], right[False, False])
        return Classes(
            self._output,
            self._classes,
            self._runs,
            self._runs - len(changed),
            self._ties,
            changed,
            correctness if self._labels is not None else None,
        )
