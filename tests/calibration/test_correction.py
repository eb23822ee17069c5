"""Bias correction: each channel has the mean that it has in the float graph, but for the rounding of its bias."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from cvm.calibration import Completer, Settings, calibrate
from cvm.calibration.correction import MOST_SAMPLES, fitting_samples
from cvm.errors import Invalid
from cvm.frontends import nnef
from cvm.frontends import onnx as front
from cvm.lowering import lower
from cvm.quantizing import decibels, quantize_completed, quantize_nnef
from cvm.reference import Reference
from cvm.session import Session
from tests.calibration.test_calibration import written
from tests.calibration.test_completion import FLOAT, IMAGE, ROWS, loaded, node, normal
from tests.frontends.onnx.making import made

F32 = np.float32
RANDOM = np.random.default_rng(21)
SETTINGS = Settings(weight_bits=3, per_channel=True, correct_bias="on")


def convolutions() -> onnx.ModelProto:
    """A bias of its own, none, one that two layers share, and a dense layer whose bias is an addition."""
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("Conv", "r w2", "d", pads=[1, 1, 1, 1]),
        node("Conv", "d w3 shared", "e", pads=[1, 1, 1, 1]),
        node("Conv", "e w3 shared", "f", pads=[1, 1, 1, 1]),
        node("Flatten", "f", "g"),
        node("MatMul", "g w4", "h"),
        node("Add", "h b4", "y"),
    ]
    constants = {
        "w": normal(3, 2, 3, 3), "b": normal(3), "w2": normal(3, 3, 3, 3), "w3": normal(3, 3, 3, 3),
        "shared": normal(3), "w4": normal(108, 4), "b4": normal(4),
    }  # fmt: skip
    return made(nodes, IMAGE, FLOAT, constants)


def means(graph: Any, data: dict[str, Any], name: str, axis: int, quantised: bool) -> np.ndarray:
    found = Reference(graph, pseudo_quantize=quantised).run(data, [name])[name]
    return np.moveaxis(found, axis, 0).reshape(found.shape[axis], -1).mean(axis=1)


def test_every_channel_has_the_mean_of_the_float_graph() -> None:
    """Before the correction it is off by whole steps, after it by the rounding of a float32."""
    graph = loaded(convolutions()).graph
    data = {"x": RANDOM.normal(size=(6, 1, 2, 6, 6))}
    found = Completer(graph, data, SETTINGS).calibration()
    plain = Completer(graph, data, replace(SETTINGS, correct_bias="off")).calibration()
    assert [item.tensor for item in found.corrected] == ["c", "d", "e", "f", "y.3"]
    assert [item.is_new for item in found.corrected] == [False, True, True, True, False]
    for item in found.corrected:
        axis = 2 if item.tensor != "y.3" else -1
        open_graph = opened(found.graph, item.tensor)
        wanted = means(graph, data, item.tensor, axis, False)
        after = np.abs(means(open_graph, data, item.tensor, axis, True) - wanted)
        before = np.abs(means(opened(plain.graph, item.tensor), data, item.tensor, axis, True) - wanted)
        assert after.max() < 1e-5 * max(1.0, np.abs(wanted).max())
        assert before.max() > 100 * after.max()


def opened(graph: Any, name: str) -> Any:
    """The graph with one tensor left unrounded."""
    tensors = dict(graph.tensors)
    tensors[name] = replace(tensors[name], quantizer=None)
    return replace(graph, tensors=tensors)


def test_quantisers_and_weights_are_the_same_and_shared_constants_stay() -> None:
    graph = loaded(convolutions()).graph
    data = {"x": RANDOM.normal(size=(4, 1, 2, 6, 6))}
    found = Completer(graph, data, SETTINGS).calibration()
    plain = Completer(graph, data, replace(SETTINGS, correct_bias="off")).calibration()
    assert found.tensors == plain.tensors
    changed = {item.bias for item in found.corrected}
    for name, tensor in graph.tensors.items():
        if tensor.data is not None and name not in changed:
            np.testing.assert_array_equal(tensor.data.values, found.graph.tensors[name].data.values)
    assert {name for name in changed if name in graph.tensors} == {"b", "b4"}


def test_the_program_has_the_corrected_bias_exactly() -> None:
    """Codes of a dense layer in rational arithmetic, the bias being the float32 that the correction chose."""
    model = made([node("Gemm", "x w b", "y")], ROWS, FLOAT, {"w": normal(6, 4), "b": normal(4)})
    data = {"x": RANDOM.normal(size=(5, 2, 6))}
    found = quantize_completed("m.onnx", loaded(model), data, SETTINGS)
    graph = found.calibration.graph
    (item,) = found.calibration.corrected
    bias = graph.tensors[item.bias].data.values.ravel()
    assert bias.dtype == F32
    assert not np.array_equal(bias, onnx.numpy_helper.to_array(model.graph.initializer[1]))
    quantizers = found.calibration.quantizers
    x, w, y = quantizers["x"], quantizers["w"], quantizers["y"]
    weights = graph.tensors["w"].data.values
    codes = Session(found.program, "numpy").run(data)["y"]
    for sample, given in zip(data["x"], codes, strict=True):
        for i, row in enumerate(sample):
            for j in range(4):
                total = Fraction(float(bias[j]))
                for k, number in enumerate(row):
                    a = x.offset[0] + x.scale[0] * clipped((Fraction(float(number)) - x.offset[0]) / x.scale[0], x)
                    total += a * w.scale[j] * clipped(Fraction(float(weights[k, j])) / w.scale[j], w)
                assert given[i, j] == clipped((total - y.offset[0]) / y.scale[0], y)


def clipped(steps: Fraction, quantizer: Any) -> int:
    return min(max(int((2 * steps + 1) // 2), quantizer.lo), quantizer.hi)


def test_a_graph_with_state_stays_as_it_is() -> None:
    nodes = [node("MatMul", "x w", "m"), node("Add", "m h", "s"), node("Tanh", "s", "n")]
    inputs = {"x": ("float32", (1, 4)), "h": ("float32", (1, 4))}
    model = made(nodes, inputs, {"n": "float32"}, {"w": normal(4, 4)})
    settings = front.Settings(floats=True, states={"h": "n"})
    graph = front.loads(model.SerializeToString(), settings).graph
    found = Completer(graph, {"x": RANDOM.normal(size=(3, 1, 4))}, SETTINGS, cycles=True).calibration()
    assert found.corrected == ()


def test_what_the_file_quantised_is_not_corrected() -> None:
    nodes = [
        node("DequantizeLinear", "wq s z", "w"),
        node("MatMul", "x w", "a"),
        node("Add", "a b", "y"),
    ]
    constants = {
        "wq": RANDOM.integers(-127, 128, (6, 5)).astype(np.int8), "s": np.array(0.1, F32), "z": np.array(0, np.int8),
        "b": normal(5),
    }  # fmt: skip
    graph = loaded(made(nodes, ROWS, FLOAT, constants)).graph
    assert Completer(graph, {"x": RANDOM.normal(size=(3, 2, 6))}, SETTINGS).calibration().corrected == ()


@pytest.mark.parametrize(("total", "fitting"), [(1, 1), (7, 7), (8, 6), (12, 9), (100, 16)])
def test_the_last_samples_are_held_apart(total: int, fitting: int) -> None:
    graph = loaded(made([node("Relu", "x", "y")], ROWS, FLOAT)).graph
    assert fitting_samples(graph, {"x": np.zeros((total, 2, 6))}, False) == slice(0, fitting)
    assert MOST_SAMPLES == 16


def test_a_bias_with_a_quantiser_is_corrected_in_its_codes(network: Any) -> None:
    """In a model of NNEF what is left of the shift is half a step of the bias, a unit of the accumulator."""
    graph, data = network
    settings = Settings(weight_bits=3, correct_bias="on")
    found = calibrate(graph, data, settings)
    assert found.corrected
    assert not any(item.is_new for item in found.corrected)
    plain = calibrate(graph, data, replace(settings, correct_bias="off"))
    first = found.corrected[0]
    wanted = means(graph, data, first.tensor, -1, False)
    after = np.abs(means(opened(found.graph, first.tensor), data, first.tensor, -1, True) - wanted)
    before = np.abs(means(opened(plain.graph, first.tensor), data, first.tensor, -1, True) - wanted)
    (*steps,) = map(float, found.graph.tensors[first.bias].quantizer.scale)
    assert after.max() <= max(steps) / 2 * (1 + 1e-9)
    assert before.max() > after.max()
    lower(found.graph)


def test_open_settings_are_closed_before_a_calibration(network: Any) -> None:
    graph, data = network
    with pytest.raises(Invalid, match="leave choices open") as caught:
        calibrate(graph, data, Settings(correct_bias="auto"))
    assert caught.value.code == "calibration.choice"
    open_settings = Settings(weight_bits=3, method="best", equalize="auto", correct_bias="auto")
    best = quantize_nnef(graph, data, open_settings)
    plain = quantize_nnef(graph, data, Settings(weight_bits=3, filter_method="mse"))
    (ratio,), (before,) = decibels(best, data).values(), decibels(plain, data).values()
    assert not best.settings.is_open
    assert ratio >= before - 0.01


@pytest.fixture
def network(tmp_path: Path) -> Any:
    """A dense layer of NNEF, and data."""
    body = """
        x = external(shape = [1, 3]); w = variable(shape = [2, 3], label = 'w');
        b = variable(shape = [1, 2], label = 'b'); m = linear(x, w, b); y = relu(m)
    """
    stored = {"w": RANDOM.normal(size=(2, 3)), "b": RANDOM.normal(size=(1, 2))}
    graph = nnef.load(written(tmp_path / "m", body, "y", stored))
    return graph, {"x": RANDOM.normal(size=(6, 1, 3))}
