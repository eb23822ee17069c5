"""Quantised graphs of NNEF and TFLite as models of ONNX: other engines compute what the program of the file does."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import cvm
from cvm.calibration import Settings, calibrate
from cvm.errors import Unsupported
from cvm.export.onnx import graph_model, halves_rounded_otherwise
from cvm.export.onnx.operations import RULES
from cvm.frontends import nnef, tflite
from cvm.frontends import onnx as onnx_front
from cvm.graph import GraphBuilder, QuantizedGraph, declarations
from cvm.lowering import lower
from cvm.quantization import LinearQuantizer, Rounding
from cvm.quantizing import Quantized, decibels, graph_onnx, quantize_completed, quantize_nnef, random_inputs
from tests.calibration.test_calibration import written

SHARED = Path(__file__).resolve().parents[3] / "shared"
BODIES: dict[str, list[str]] = {
    "[1,2,6,6]": [
        (
            "c = conv(x, w, b, stride = [2,2]); n = batch_normalization(c, m, v, o, s, epsilon = 0.01);"
            " p = max_pool(n, size = [1,1,3,3], border = 'ignore', padding = [(0,0),(0,0),(1,1),(1,1)]); y = relu(p);"
        ),
        (
            "a = avg_pool(x, size = [1,1,2,2], border = 'constant'); l = leaky_relu(a, alpha = 0.25);"
            " y = mean_reduce(l, axes = [2,3]);"
        ),
        (
            "a = slice(x, axes = [2,3], begin = [1,-3], end = [0,0]); t = transpose(a, axes = [0,2,3,1]);"
            " y = concat([t, t], axis = 1);"
        ),
        "a = pad(x, padding = [(0,0),(0,0),(1,0),(0,2)]); i = min(a, 0.5); y = max(i, -0.25);",
        "a = add(x, q); r = reshape(a, shape = [1,72]); l = linear(r, f, g); y = sigmoid(l);",
    ],
    "[2,6]": [
        "m = matmul(x, k, transposeB = true); y = softmax(m, axes = [1]);",
        "a = clamp(x, -0.5, 0.5); t = tanh(a); u = unsqueeze(t, axes = [2]); y = sum_reduce(u, axes = [1]);",
        "a = abs(x); b = add(a, 1.0); c = log(b); d = mul(c, x); e = sqrt(b); y = sub(d, e);",
        "e = elu(x); q = sqr(e); y = min_reduce(q, axes = [0]);",
    ],
}
STORED = {"w": (4, 2, 3, 3), "b": (1, 4), "m": (1, 4), "v": (1, 4), "o": (1, 4), "s": (1, 4), "q": (1, 2), "f": (5, 72),
          "g": (1, 5), "k": (3, 6)}  # fmt: skip
CASES = [(shape, body) for shape, bodies in BODIES.items() for body in bodies]


def network(folder: Path, shape: str, body: str) -> Path:
    """A model of NNEF with the stored tensors that its body names."""
    random = np.random.default_rng(5)
    names = [name for name in STORED if any(f" {name}{mark}" in body for mark in ",)")]
    stored = {name: random.normal(size=STORED[name]) for name in names}
    if "v" in stored:
        stored["v"] = np.abs(stored["v"]) + 0.1
    lines = [f"{name} = variable(shape = {list(STORED[name])}, label = '{name}')" for name in names]
    return written(folder, "; ".join([f"x = external(shape = {shape})", *lines, body]), "y", stored)


def require_same(made: Quantized, data: dict[str, npt.NDArray[Any]], run: Any = None) -> onnx.ModelProto:
    """Another engine gives the codes of the program of the file, up to ties that float32 misses."""
    content, again = graph_onnx(made)
    model = onnx.load_model_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    evaluate = run(content) if run else ReferenceEvaluator(model).run
    session = cvm.Session(again.program, threads=1)
    for i in range(len(next(iter(data.values())))):
        feed = {name: array[i].astype(np.float32) for name, array in data.items()}
        found = session.run({name: array.astype(np.float64) for name, array in feed.items()}, out_of_range="clamp")
        for output, wanted in zip(again.program.outputs, evaluate(None, feed), strict=True):
            assert output.quantizer is not None
            steps = np.abs(found.real(output.name) - wanted) / float(output.quantizer.scale[0])
            assert steps.max() < 1.01
            assert (steps > 0.01).mean() <= 0.05
    ratios = decibels(again, data)
    assert all(ratio is None or ratio > 20 for ratio in ratios.values())
    return model


def made_of(folder: Path, shape: str, body: str) -> tuple[Quantized, dict[str, npt.NDArray[Any]]]:
    graph = nnef.load(network(folder, shape, body))
    data = random_inputs(graph, 6, 2)
    return quantize_nnef(graph, data, Settings()), data


@pytest.mark.parametrize(("shape", "body"), CASES)
def test_models_of_nnef_leave_as_onnx(tmp_path: Path, shape: str, body: str) -> None:
    require_same(*made_of(tmp_path / "m", shape, body))


@pytest.mark.parametrize(("shape", "body"), CASES)
def test_onnx_runtime_computes_the_same(tmp_path: Path, shape: str, body: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    require_same(
        *made_of(tmp_path / "m", shape, body), lambda content: runtime.InferenceSession(content, options).run
    )  # fmt: skip


@pytest.mark.parametrize("name", ["mlperf_tiny/kws_ref_model", "mlperf_tiny/kws_ref_model_float32"])
def test_models_of_tflite_leave_as_onnx(name: str) -> None:
    path = SHARED / "gallery" / f"{name}.tflite"
    if not path.exists():
        pytest.skip(f"../shared/gallery/{name}.tflite is not there")
    loaded = tflite.load(path, floats=True)
    data = random_inputs(loaded.graph, 2, 0)
    made = quantize_completed(path, loaded, data, Settings(per_channel=True))
    content, again = graph_onnx(made)
    (before,), (after,) = decibels(made, data).values(), decibels(again, data).values()
    assert before is not None
    assert after is not None
    assert after >= before - 0.1
    model = onnx.load_model_from_string(content)
    real = {name: made.source.tensors[name].quantizer for name in data}
    (given,) = data
    quantizer = real[given]
    feed = data[given].astype(np.float32)
    if quantizer is not None:
        feed = ((feed + float(quantizer.offset[0] / quantizer.scale[0])) * float(quantizer.scale[0])).astype(np.float32)
    (wanted,) = ReferenceEvaluator(model).run(None, {given: feed[0]})
    found = cvm.Session(again.program, threads=1).run({given: feed[0].astype(np.float64)}, out_of_range="clamp")
    np.testing.assert_allclose(found.real(again.program.outputs[0].name), wanted, atol=1 / 256 + 1e-6)


def averaged(rounding: Rounding) -> QuantizedGraph:
    """A convolution of stored codes and the average behind it, with scales that no power of two is."""
    random = np.random.default_rng(4)

    def grid(scale: float, lo: int, hi: int, offset: int = 0) -> LinearQuantizer:
        exact = Fraction(float(np.float32(scale)))
        return LinearQuantizer((exact,), (-exact * offset,), lo, hi, rounding=rounding)

    scales = tuple(Fraction(float(item)) for item in random.uniform(0.001, 0.01, 4).astype(np.float32))
    weights = LinearQuantizer(scales, (Fraction(0),) * 4, -128, 127, axis=0)
    builder = GraphBuilder("the test")
    x = builder.external("x", (1, 3, 8, 8), grid(0.1, -128, 127, 3))
    w = builder.constant(random.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8), (4, 3, 3, 3), weights)
    y = builder.emit("conv", x, w, wish="c", quantizer=grid(0.07, -128, 127, -8))
    z = builder.emit("avg_pool", y, size=(1, 1, 8, 8), quantizer=grid(0.07, -128, 127, -8), wish="average")
    return builder.finish("net", [x], [y, z])


def test_codes_that_are_stored_stay_and_averages_round_halves_to_even() -> None:
    graph = averaged("half_even")
    model = onnx.load_model_from_string(graph_model(graph))
    stored = {item.name: item for item in model.graph.initializer}
    dequantised = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    weights = stored[dequantised["constant"]]
    assert weights.data_type == onnx.TensorProto.INT8
    data = random_inputs(graph, 40, 1)
    real = (data["x"] - 3) * float(np.float32(0.1))
    again = cvm.Session(lower(onnx_front.loads(model.SerializeToString()).graph), threads=1)
    for rounding in ("half_even", "half_up"):
        given = averaged(rounding)
        session = cvm.Session(lower(given), threads=1)
        different = dict.fromkeys(given.outputs, 0)
        for codes, numbers in zip(data["x"], real, strict=True):
            before, after = session.run({"x": codes}, codes=True), again.run({"x": numbers})
            for name in given.outputs:
                steps = np.rint((before.real(name) - after.real(name)) / float(np.float32(0.07)))
                assert np.abs(steps).max() <= (name == "average" and rounding == "half_up")
                different[name] += int(np.count_nonzero(steps))
        assert (different["average"] > 0) == (rounding == "half_up")
        assert halves_rounded_otherwise(given) == (["average"] if rounding == "half_up" else [])


@pytest.mark.parametrize(
    ("shape", "body", "settings", "code", "what"),
    [
        ("[2,6]", "y = softmax(x, axes = [0,1]);", {}, "operation", "softmax: ONNX has no softmax over several axes"),
        ("[1,2,6,6]", "y = debox(x, size = [1,1,2,2]);", {}, "operation", "debox has no mapping to ONNX"),
        ("[2,6]", "y = add(x, 1.0);", {"bits": 7}, "bits", "use --bits 8 or 16; keep the program"),
        ("[2,6]", "y = matmul(x, k, transposeB = true);", {"form": "logarithmic"}, "form", "no logarithmic quantiser"),
    ],
)
def test_what_onnx_has_not_is_refused(
    tmp_path: Path, shape: str, body: str, settings: dict[str, Any], code: str, what: str
) -> None:
    graph = nnef.load(network(tmp_path / "m", shape, body))
    found = calibrate(graph, random_inputs(graph, 4, 0), Settings(**settings))
    with pytest.raises(Unsupported, match=what) as caught:
        graph_model(found.graph)
    assert caught.value.code == f"export.onnx.{code}"
    assert caught.value.location.tensor


def test_every_rule_is_of_an_operation() -> None:
    assert set(RULES) <= set(declarations())
