"""The comparison: a program against the float reference of its model, run by run, tensor by tensor.

Only one run is in memory at a time; only the counters of `cvm.report.measures` are kept between runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cvm.errors import Invalid
from cvm.executors import Executor, initial_state
from cvm.graph import QuantizedGraph
from cvm.inputs import Intake, Layout, stream
from cvm.program.verifier import VerifiedProgram
from cvm.records import dataclass
from cvm.reference import Reference
from cvm.report.classes import Classes, ClassMeter, check_labels, scores_output
from cvm.report.constants import Stored, stored_tensors
from cvm.report.measures import Measures, Meter
from cvm.report.network import drops
from cvm.report.pairing import Absent, Pair, Source, pairs
from cvm.report.ruler import Ruler, ruler

__all__ = ["Comparison", "Measured", "compare"]

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """A tensor of the model that the program computes, and its measures."""

    number: int
    """The index of the tensor among the tensors of the model."""
    pair: Pair
    measures: Measures
    drop: float | None
    """Decibels that this operation loses: the lowest SQNR of the measured tensors that it reads, minus its own.
    None if it reads none, or if a ratio is not defined."""

    @property
    def used(self) -> float:
        """The used part of the proven range, between 0 and 1."""
        (least, greatest), (lo, hi) = self.measures.code_range, self.pair.interval
        return (greatest - least) / (hi - lo) if hi > lo else 1.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison: all that a report shows."""

    verified: VerifiedProgram
    graph: QuantizedGraph
    source: Source
    executor: str
    samples: int
    cycles: int | None
    tensors: tuple[Measured, ...]
    """In the order of the model; `worst_first` for people."""
    stored: tuple[Stored, ...]
    """Variables with a quantiser, and how quantising them on load changes them."""
    absent: tuple[Absent, ...]
    """All other tensors of the model: every tensor of the model is in exactly one of the three."""
    classes: Classes | None

    def worst_first(self) -> list[Measured]:
        """Tensors by SQNR: undefined ratios first, equal tensors last; ties keep the order of the model."""
        return sorted(self.tensors, key=lambda item: _badness(item.measures.sqnr))


def _badness(sqnr: float | None) -> float:
    return -math.inf if sqnr is None else sqnr


def compare(
    verified: VerifiedProgram,
    graph: QuantizedGraph,
    source: Source,
    executor: Executor,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    *,
    clip: bool = False,
    cycles: bool = False,
    labels: np.ndarray[Any, Any] | None = None,
    scores: str | None = None,
    progress: Callable[[int], Progress] | None = None,
) -> Comparison:
    """Run both on every sample: ``arrays`` as for a session, by the names of the inputs; integers are codes.

    ``source`` is the result of `check_source`. Real numbers reach the reference unchanged, and codes as the numbers
    that they stand for. With ``clip``, the reference clips every tensor to the range of its quantiser, as a model of
    ONNX or WebNN means it (`Reference`); then rounding alone is measured. With ``cycles``, state is kept along the
    cycle axis and is initial for every sample. ``scores`` is the output to take classes from, as in `scores_output`.
    ``progress`` is called with the number of runs and returns a function, which is called with the number of finished
    runs after each. Raises `Invalid` or `Mismatch`.
    """
    found, absent = pairs(verified, graph)
    layout, feeds = stream(verified.program, arrays, cycles, Intake(codes=True))
    meters = _Meters(found, _judge(graph, found, layout, labels, scores))
    advance = (lambda done: None) if progress is None else progress((layout.samples or 1) * (layout.cycles or 1))
    reference, real_inputs = Reference(graph, clip=clip), _real_inputs(graph, arrays, layout)
    names, values = [pair.tensor.name for pair in found], frozenset(pair.value for pair in found)
    done = 0
    for sample, sequence in enumerate(feeds):
        reference.reset()
        state = initial_state(verified.program)
        for cycle, feed in enumerate(sequence):
            result = executor.run(feed, state, values)
            state = result.state
            reals = next(reference.runs({name: runs[sample, cycle] for name, runs in real_inputs.items()}, names))
            meters.add(sample, cycle, reals, result.values)
            done += 1
            advance(done)
    tensors = meters.result(graph)
    classes = None if meters.judge is None else meters.judge.meter.result()
    stored = stored_tensors(graph, {item.tensor.name for item in absent})
    named = {item.tensor.name for item in stored}
    gone = tuple(item for item in absent if item.tensor.name not in named)
    samples, length = layout.samples or 1, layout.cycles
    return Comparison(verified, graph, source, executor.name, samples, length, tensors, stored, gone, classes)


def _real_inputs(
    graph: QuantizedGraph, arrays: Mapping[str, np.ndarray[Any, Any]], layout: Layout
) -> dict[str, np.ndarray[Any, Any]]:
    """The inputs of the reference by name, with sample and cycle as the first two axes."""
    found = {}
    for name in graph.inputs:
        tensor, array = graph.tensors[name], np.asarray(arrays[name])
        array = array.astype(np.bool_) if tensor.dtype == "logical" else array
        found[name] = array.reshape(layout.samples or 1, layout.cycles or 1, *tensor.shape)
    return found


@dataclass(frozen=True, slots=True)
class _Judge:
    """The output whose items are scores, its quantiser, and the counter of classes."""

    pair: Pair
    ruler: Ruler
    meter: ClassMeter


def _judge(
    graph: QuantizedGraph,
    found: Sequence[Pair],
    layout: Layout,
    labels: np.ndarray[Any, Any] | None,
    scores: str | None,
) -> _Judge | None:
    """The judge of the output that holds scores of classes, if there is one. Raises `Invalid` if labels need one."""
    name = scores_output(graph, scores)
    pair = next((pair for pair in found if pair.tensor.name == name), None)
    if pair is None:
        if labels is None and scores is None:
            return None
        listed = ", ".join(map(repr, graph.outputs))
        message = f"labels need one output whose items are the scores of classes; name it: the outputs are {listed}"
        raise Invalid("report.classes", message)
    tensor = pair.tensor
    count = math.prod(tensor.shape)
    checked = None if labels is None else check_labels(labels, layout.samples, layout.cycles, count)
    meter = ClassMeter(tensor.name, count, layout.cycles, checked)
    return _Judge(pair, ruler(tensor.quantizer, tensor.shape, pair.interval), meter)


class _Meters:
    """The meters of the tensors, one for each, and the counter of classes."""

    def __init__(self, found: Sequence[Pair], judge: _Judge | None) -> None:
        self._meters = [(pair, Meter(ruler(pair.tensor.quantizer, pair.tensor.shape, pair.interval))) for pair in found]
        self.judge = judge

    def add(
        self,
        sample: int,
        cycle: int,
        reals: Mapping[str, np.ndarray[Any, Any]],
        values: Mapping[str, np.ndarray[Any, Any]],
    ) -> None:
        """Count one run: the reference's arrays by tensor, and the codes by value."""
        for pair, meter in self._meters:
            real = reals[pair.tensor.name]
            meter.add(real, values[pair.value].reshape(real.shape), sample)
        if self.judge is not None:
            pair = self.judge.pair
            program = self.judge.ruler.values(values[pair.value].reshape(-1), 0)
            self.judge.meter.add(sample, cycle, reals[pair.tensor.name], program)

    def result(self, graph: QuantizedGraph) -> tuple[Measured, ...]:
        """The tensors as measured so far."""
        measured = [(pair, meter.result()) for pair, meter in self._meters]
        lost = drops(graph, {pair.tensor.name: measures.sqnr for pair, measures in measured})
        numbers = {name: number for number, name in enumerate(graph.tensors)}
        return tuple(
            Measured(numbers[pair.tensor.name], pair, measures, lost[pair.tensor.name]) for pair, measures in measured
        )
