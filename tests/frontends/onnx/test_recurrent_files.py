"""Recurrent networks as the quantiser of ONNX Runtime writes them: LSTM and GRU have no scales, all around them has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import cvm
from cvm.errors import Unsupported
from cvm.frontends import onnx as front
from tests.frontends.onnx.making import made

HIDDEN = 3
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
F32 = np.float32


def node(op: str, inputs: str, outputs: str, **attributes: int) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def written(folder: Path, op: str) -> Path:
    """A recurrent layer of floats between an input and a dense layer that are quantised."""
    random = np.random.default_rng(6)
    rows = GATES[op] * HIDDEN
    nodes = [
        node("QuantizeLinear", "x sx zx", "xq"),
        node("DequantizeLinear", "xq sx zx", "xd"),
        node(op, "xd w r b", "h", hidden_size=HIDDEN),
        node("Squeeze", "h one", "s"),
        node("QuantizeLinear", "s ss zs", "sq"),
        node("DequantizeLinear", "sq ss zs", "sd"),
        node("DequantizeLinear", "vq sv zv", "v"),
        node("MatMul", "sd v", "m"),
        node("QuantizeLinear", "m sm zm", "mq"),
        node("DequantizeLinear", "mq sm zm", "y"),
    ]
    constants = {
        "sx": F32(0.02), "zx": np.uint8(128), "ss": F32(1 / 127), "zs": np.uint8(128), "one": np.array([1]),
        "vq": random.integers(-127, 128, (HIDDEN, 2)).astype(np.int8), "sv": F32(0.01), "zv": np.int8(0),
        "sm": F32(0.03), "zm": np.uint8(120),
        "w": random.normal(size=(1, rows, 4)).astype(F32), "r": random.normal(size=(1, rows, HIDDEN)).astype(F32),
        "b": random.normal(size=(1, 2 * rows)).astype(F32),
    }  # fmt: skip
    path = folder / "m.onnx"
    onnx.save(made(nodes, {"x": ("float32", (4, 2, 4))}, {"y": "float32"}, constants), path)
    return path


@pytest.mark.parametrize("op", GATES)
def test_the_refusal_names_the_layer_and_the_command(tmp_path: Path, op: str) -> None:
    path = written(tmp_path, op)
    with pytest.raises(Unsupported) as caught:
        cvm.compile(path)
    error = caught.value
    inner = "Tanh" if op == "RNN" else "Sigmoid"
    assert error.code == "lowering.unquantized"
    assert error.message == (
        f"node number 2 (to 'h'), {op} (its {inner}): the file has no quantiser for a tensor that this"
        f" reads, and {op} cannot have one in ONNX; let `cvm quantize {path} -i DATA -o model.cvm` find scales for it;"
        " what the file quantises stays as it is"
    )


@pytest.mark.parametrize("op", GATES)
def test_calibration_keeps_the_scales_of_the_file(tmp_path: Path, op: str) -> None:
    path = written(tmp_path, op)
    data = np.random.default_rng(7).normal(size=(8, 4, 2, 4))
    found = cvm.quantize_program(path, {"x": data})
    before = front.load(path, floats=True).graph
    quantised = {name: item.quantizer for name, item in before.tensors.items() if item.quantizer is not None}
    assert len(quantised) >= 3
    assert {name: found.calibration.graph.tensors[name].quantizer for name in quantised} == quantised
    added = {item.name for item in found.calibration.tensors}
    assert added
    assert added.isdisjoint(quantised)
    assert all(name.startswith("h.") for name in added)
    (given,), (result,) = found.program.inputs, found.program.outputs
    assert given.quantizer == quantised["x"]
    assert result.quantizer == quantised["y"]
