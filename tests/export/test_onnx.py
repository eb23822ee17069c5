"""A float model of ONNX with the quantisers of calibration: other tools take it, and it means what cvm computes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import cvm
from cvm.calibration import Calibration, Completer, Settings
from cvm.errors import Unsupported
from cvm.export.onnx import quantized_model
from cvm.frontends import onnx as front
from cvm.quantizing import quantize_completed, quantized_onnx
from tests.calibration.test_completion import FLOAT, IMAGE, node, normal
from tests.frontends.onnx.making import made

DATA = {"x": np.random.default_rng(4).normal(size=(5, 1, 2, 6, 6)).astype(np.float32)}


def network(opset: int = 21) -> Any:
    """A convolution, a residual sum, a maximum over windows and a dense layer."""
    random = np.random.default_rng(12)
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("Conv", "r w2", "d", pads=[1, 1, 1, 1], group=3),
        node("Add", "d r", "s"),
        node("MaxPool", "s", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "p", "f"),
        node("Gemm", "f w3", "y", transB=1),
    ]
    shapes = {"w": (3, 2, 3, 3), "b": (3,), "w2": (3, 1, 3, 3), "w3": (4, 27)}
    constants = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    model = made(nodes, IMAGE, FLOAT, constants, opset)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 4)))
    return model


def calibrated(model: Any, **settings: Any) -> Calibration:
    graph = front.loads(model.SerializeToString(), front.Settings(floats=True)).graph
    return Completer(graph, DATA, Settings(**{"per_channel": True, **settings})).calibration()


def exported(model: Any, **settings: Any) -> Any:
    data = quantized_model(model.SerializeToString(), calibrated(model, **settings))
    found = onnx.load_model_from_string(data)
    onnx.checker.check_model(found, full_check=True)
    return found


@pytest.mark.parametrize("per_channel", [False, True])
def test_the_file_computes_what_the_program_of_it_computes(tmp_path: Path, per_channel: bool) -> None:
    """Beside the evaluator of the package onnx, in float32: the same codes, but where float32 is off by a tie."""
    model = exported(network(), per_channel=per_channel)
    file = tmp_path / "quantised.onnx"
    onnx.save(model, file)
    session = cvm.Session(cvm.compile(file))
    (output,) = session.program.outputs
    assert output.quantizer is not None
    step = float(output.quantizer.scale[0])
    for x in DATA["x"]:
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
        steps = np.abs(session.run({"x": x}).real(output.name) - wanted) / step
        assert steps.max() < 1.01
        assert (steps > 0.01).mean() <= 0.25


def test_every_quantiser_is_in_the_file_once() -> None:
    kinds = Counter(item.op_type for item in exported(network()).graph.node)
    roles = Counter(item.role for item in calibrated(network()).tensors)
    assert kinds["QuantizeLinear"] == roles["activation"]
    assert kinds["DequantizeLinear"] == roles["activation"] + roles["filter"]
    stored = {item.name: item for item in exported(network()).graph.initializer}
    assert not {"w", "w2", "w3"} & set(stored)
    assert stored["w_codes"].data_type == onnx.TensorProto.INT8
    assert list(stored["w_scale"].dims) == [3]
    assert stored["b"].data_type == onnx.TensorProto.FLOAT


def test_scales_are_float32_and_ranges_hold_zero() -> None:
    constants = {item.name: onnx.numpy_helper.to_array(item) for item in exported(network()).graph.initializer}
    for item in calibrated(network()).tensors:
        held = constants[f"{item.name}_scale"]
        assert held.dtype == np.float32
        assert all(float(scale) >= wanted for scale, wanted in zip(held.ravel(), item.quantizer.scale, strict=True))
        assert constants[f"{item.name}_zero"].min() >= 0


@pytest.mark.parametrize(("opset", "domain"), [(17, "com.microsoft"), (21, "")])
def test_codes_of_sixteen_bits(opset: int, domain: str) -> None:
    model = exported(network(opset), bits=16)
    found = [item for item in model.graph.node if item.op_type == "QuantizeLinear"]
    assert {item.domain for item in found} == {domain}
    types = {item.name: item.data_type for item in model.graph.initializer}
    assert {types[item.input[2]] for item in found} == {onnx.TensorProto.UINT16}


def test_what_the_file_cannot_hold_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"opset 12, and scales per axis are of opset 13; convert it first") as caught:
        exported(network(12))
    assert caught.value.code == "export.onnx.opset"
    with pytest.raises(Unsupported, match="codes of 7 bits have no type in ONNX: use --bits 8 or 16") as caught:
        exported(network(), bits=7)
    assert caught.value.code == "export.onnx.bits"
    gates = made(
        [node("LSTM", "x w r", " h", hidden_size=2)],
        {"x": ("float32", (3, 1, 2))},
        {"h": "float32"},
        {"w": normal(1, 8, 2), "r": normal(1, 8, 2)},
    )
    graph = front.loads(gates.SerializeToString(), front.Settings(floats=True)).graph
    found = Completer(graph, {"x": DATA["x"].ravel()[:24].reshape(4, 3, 1, 2)}, Settings()).calibration()
    with pytest.raises(Unsupported, match="inside of an operator, where the file cannot hold") as caught:
        quantized_model(gates.SerializeToString(), found)
    assert caught.value.code == "export.onnx.tensor"
    branch = helper.make_graph([node("Identity", "x", "z")], "b", [], [helper.make_tensor_value_info("z", 1, None)])
    nested = network()
    nested.graph.node.append(helper.make_node("If", ["q"], ["u"], then_branch=branch, else_branch=branch))
    with pytest.raises(Unsupported, match="If contains a graph"):
        quantized_model(nested.SerializeToString(), calibrated(network()))


def test_the_program_is_that_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "float.onnx"
    onnx.save(network(), file)
    loaded = front.load(file, {}, {}, floats=True)
    first = quantize_completed(file, loaded, DATA, Settings(per_channel=True))
    data, again = quantized_onnx(file, first)
    (tmp_path / "quantised.onnx").write_bytes(data)
    assert cvm.compile(tmp_path / "quantised.onnx").digest == again.program.digest
