"""What settings leave open is chosen by the outputs: nothing is worse for being tried, and all trials are said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cvm.calibration import Completer, Settings, chosen_settings
from cvm.errors import Invalid
from cvm.quantizing import decibels, quantize_completed, random_inputs
from tests.calibration.test_completion import FLOAT, ROWS, convolutional, gated, loaded, node, normal, normalised
from tests.calibration.test_correction import convolutions
from tests.calibration.test_equalization import dense, depthwise
from tests.frontends.onnx.making import made

MODELS = {
    "convolutional": convolutional, "gated": gated, "normalised": normalised, "convolutions": convolutions,
    "dense": dense, "depthwise": depthwise,
}  # fmt: skip

OPEN = Settings(per_channel=True, method="best", equalize="auto", correct_bias="auto")


def worst(found: Any, data: Any) -> float:
    return min(value for value in decibels(found, data).values() if value is not None)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "count", "bits"),
    [
        (name, count, bits)
        for name in MODELS
        for count in (4, 16)
        for bits in (4, 8)
        if (name, bits) != ("normalised", 8)
    ],
)
def test_the_outputs_are_never_worse_than_without(name: str, count: int, bits: int) -> None:
    model = MODELS[name]()
    data = random_inputs(loaded(model).graph, count, 3)
    plain_settings = Settings(bits, per_channel=True, filter_method="mse" if bits < 8 else None)
    plain = quantize_completed("m.onnx", loaded(model), data, plain_settings)
    found = quantize_completed("m.onnx", loaded(model), data, replace(OPEN, bits=bits))
    assert worst(found, data) >= worst(plain, data) - 0.05  # codes near ties, which float64 decides otherwise
    assert not found.settings.is_open
    kept = [item for item in found.trials if item.kept]
    assert [item.apart_db for item in kept] == sorted(item.apart_db for item in kept)
    last = kept[-1]
    assert (last.method, last.equalized, last.corrected) == (
        found.settings.method, bool(found.calibration.rescaled), bool(found.calibration.corrected),
    )  # fmt: skip


def test_closed_settings_are_taken_as_they_are() -> None:
    model = gated()
    data = random_inputs(loaded(model).graph, 4, 3)
    settings = Settings(per_channel=True)
    graph = loaded(model).graph
    made_of = Completer(graph, data, settings).alike
    assert chosen_settings(lambda s: made_of(s).calibration(), graph, data, settings, False) == (settings, ())
    found = quantize_completed("m.onnx", loaded(model), data, settings)
    assert found.trials == ()
    assert found.settings == settings


def test_what_is_chosen_is_the_program_of_these_settings() -> None:
    model = convolutions()
    data = random_inputs(loaded(model).graph, 9, 3)
    found = quantize_completed("m.onnx", loaded(model), data, replace(OPEN, weight_bits=3))
    again = quantize_completed("m.onnx", loaded(model), data, found.settings)
    assert again.program.digest == found.program.digest
    assert again.calibration.corrected == found.calibration.corrected


def test_the_steps_are_told_and_what_changes_nothing_is_no_trial() -> None:
    model = made([node("Sigmoid", "x", "y")], ROWS, FLOAT)
    data = random_inputs(loaded(model).graph, 4, 3)
    graph, said = loaded(model).graph, []
    make = Completer(graph, data, OPEN).alike
    _, trials = chosen_settings(lambda s: make(s).calibration(), graph, data, OPEN, False, said.append)
    assert len(said) == 5
    assert [(item.equalized, item.corrected) for item in trials] == [(False, False)] * 3


# Outputs that nothing else reads


def bits_of(model: Any, **settings: Any) -> dict[str, int]:
    data = random_inputs(loaded(model).graph, 3, 1)
    found = quantize_completed("m.onnx", loaded(model), data, Settings(per_channel=True, **settings))
    return {item.name: (item.quantizer.hi - item.quantizer.lo).bit_length() for item in found.calibration.tensors}


def test_outputs_that_nothing_reads_have_the_bits_that_are_said() -> None:
    model = made([node("MatMul", "x w", "m"), node("Relu", "m", "y")], ROWS, FLOAT, {"w": normal(6, 3)})
    assert bits_of(model) == {"x": 8, "w": 8, "y": 8}
    assert bits_of(model, output_bits=16) == {"x": 8, "w": 8, "y": 16}
    assert bits_of(model, output_bits=4) == {"x": 8, "w": 8, "y": 4}


def test_an_output_that_is_read_elsewhere_has_those_of_all() -> None:
    nodes = [node("MatMul", "x w", "m"), node("MatMul", "m v", "y")]
    model = made(nodes, ROWS, {"m": "float32", "y": "float32"}, {"w": normal(6, 3), "v": normal(3, 3)})
    assert bits_of(model, output_bits=16) == {"x": 8, "w": 8, "v": 8, "m": 8, "m.2": 8, "y": 16}


def test_a_softmax_and_a_normalisation_have_those_of_all() -> None:
    model = made([node("Softmax", "x", "y", axis=1)], ROWS, FLOAT)
    assert set(bits_of(model, output_bits=16).values()) == {8}


def test_an_input_that_only_becomes_an_output_has_the_bits_of_outputs() -> None:
    model = made([node("Transpose", "x", "y")], ROWS, FLOAT)
    assert set(bits_of(model, output_bits=16).values()) == {16}


def test_choices_are_checked() -> None:
    for settings in ({"equalize": "perhaps"}, {"correct_bias": ""}):
        with pytest.raises(Invalid) as caught:
            Settings(**settings)
        assert caught.value.code == "calibration.choice"
    with pytest.raises(Invalid) as caught:
        Settings(output_bits=40)
    assert caught.value.code == "calibration.bits"
    assert np.isfinite(Settings.measured(12).bits)
