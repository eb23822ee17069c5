"""Calibration evaluates the float graph once, and takes from that evaluation what further ones would give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cvm.calibration import Completer, Settings, choosing, chosen_settings, correction, equalization, observing
from cvm.calibration.observing import Measurements, measure
from cvm.graph import QuantizedGraph
from cvm.quantization.calibration import Histogram
from cvm.quantizing import decibels, quantize_completed, random_inputs
from cvm.reference import Reference
from tests.calibration.test_completion import convolutional, loaded
from tests.calibration.test_correction import convolutions
from tests.calibration.test_equalization import dense

OPEN = Settings(per_channel=True, method="best", equalize="auto", correct_bias="auto")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Reference]:
    """The reference of every run that is made while the test goes on."""
    found: list[Reference] = []
    cycle = Reference._cycle

    def counted(self: Reference, *arguments: Any) -> Any:
        found.append(self)
        return cycle(self, *arguments)

    monkeypatch.setattr(Reference, "_cycle", counted)
    return found


def is_float(graph: QuantizedGraph) -> bool:
    return all(tensor.quantizer is None for tensor in graph.tensors.values())


def test_everything_is_measured_as_the_whole_tensors_say() -> None:
    graph = loaded(convolutional()).graph
    data = random_inputs(graph, 5, 2)
    names = [name for name, item in graph.tensors.items() if item.kind != "constant" and len(item.shape) == 4]
    axes = dict.fromkeys(names, 1)
    seen = measure(graph, data, Measurements(tuple(names), axes, axes, 3))
    whole = Reference(graph).run(data, names)
    assert len(names) > 3
    for name in names:
        items = whole[name].reshape(5, *graph.tensors[name].shape)
        wanted = Histogram.of(items)
        found = seen.histograms[name]
        assert (found.min, found.max, found.exponent) == (wanted.min, wanted.max, wanted.exponent)
        assert np.array_equal(found.counts, wanted.counts)
        channels = np.moveaxis(items, 2, 0).reshape(items.shape[2], -1)
        assert np.array_equal(seen.magnitudes[name], np.abs(channels).max(axis=1))
        some = np.moveaxis(items[:3], 2, 0).reshape(items.shape[2], -1)
        np.testing.assert_allclose(seen.means[name], some.mean(axis=1), rtol=1e-12, atol=1e-12)
    for name in graph.outputs:
        assert np.array_equal(np.stack([run[name] for run in seen.outputs]).reshape(whole[name].shape), whole[name])


def test_large_outputs_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = loaded(convolutional()).graph
    data = random_inputs(graph, 3, 2)
    numbers = 3 * sum(int(np.prod(graph.tensors[name].shape)) for name in graph.outputs)
    for most, kept in ((numbers, 3), (numbers - 1, 0)):
        monkeypatch.setattr(observing, "_MOST_KEPT", most)
        assert len(measure(graph, data, Measurements()).outputs) == kept


@pytest.mark.parametrize("count", [3, 8])
def test_a_whole_calibration_runs_the_float_graph_once(count: int, runs: list[Reference]) -> None:
    """Ranges, trials, means and the final comparison share one run of each sample; equalised weights take a further
    one.
    """
    model = loaded(convolutions())
    data = random_inputs(model.graph, count, 3)
    made = quantize_completed("m.onnx", model, data, OPEN)
    decibels(made, data)
    assert len(made.trials) > 3
    per_graph = Counter(id(item.graph) for item in runs if is_float(item.graph))
    assert per_graph[id(model.graph)] == count
    assert sum(per_graph.values()) <= 2 * count


def test_a_comparison_with_the_outputs_at_hand_gives_the_same_ratios() -> None:
    model = loaded(convolutions())
    data = random_inputs(model.graph, 4, 3)
    made = quantize_completed("m.onnx", model, data, OPEN)
    assert made.measured is not None
    assert made.measured.runs
    assert decibels(made, data) == decibels(replace(made, measured=None), data)
    copies = {name: array.copy() for name, array in data.items()}
    assert decibels(made, copies) == decibels(made, data)
    others = random_inputs(model.graph, 5, 9)
    assert decibels(made, others) == decibels(replace(made, measured=None), others)


def test_what_is_worse_on_the_samples_apart_is_not_run_on_the_others(
    monkeypatch: pytest.MonkeyPatch, runs: list[Reference]
) -> None:
    """And the choice is the one that all samples would give."""
    graph = loaded(dense()).graph
    data = random_inputs(graph, 16, 3)
    settings = Settings(4, per_channel=True, method="best")

    def choose() -> Any:
        completer = Completer(graph, data, settings)
        return chosen_settings(lambda item: completer.alike(item).calibration(), graph, data, settings, False)

    found, short = choose(), len(runs)
    noises = choosing._Measured.noises
    monkeypatch.setattr(choosing._Measured, "noises", lambda self, graph, best=None: noises(self, graph))
    runs.clear()
    assert choose() == found
    rejected = sum(not item.kept for item in found[1])
    assert rejected
    assert len(runs) - short in range(12, 12 * rejected + 1, 12)


def test_many_changes_are_verified_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verification takes as long as the graph is, and a deep network has as many biases."""
    verified: list[QuantizedGraph] = []

    def counted(modules: tuple[Any, ...]) -> Iterator[None]:
        for module in modules:
            verify = module.verify
            monkeypatch.setattr(
                module, "verify", lambda graph, stage, verify=verify: (verified.append(graph), verify(graph, stage))[1]
            )
        yield

    next(counted((correction, equalization)))
    graph = loaded(convolutions()).graph
    data = random_inputs(graph, 8, 3)
    found = Completer(graph, data, Settings(4, per_channel=True, correct_bias="on")).calibration()
    assert len(found.corrected) > 2
    assert len(verified) == 1
    verified.clear()
    graph = loaded(dense()).graph
    found = Completer(graph, random_inputs(graph, 4, 3), Settings(equalize="on")).calibration()
    assert found.rescaled
    assert len(verified) == 1
