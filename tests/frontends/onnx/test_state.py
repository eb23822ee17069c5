"""Inputs that the program keeps as state: what an output was after one run is what the input is in the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import cvm
from cvm.errors import Invalid
from tests.frontends.onnx.making import compiled, made

node = helper.make_node
RANDOM = np.random.default_rng(5)


def running(scale_after: float = 0.5) -> onnx.ModelProto:
    """h' = Q(x + h / 2), as codes; the state is real, and rounded by the QuantizeLinear that reads it."""
    nodes = [node("QuantizeLinear", ["h", "s", "z"], ["hq"]), node("DequantizeLinear", ["hq", "s", "z"], ["hr"]),
             node("DequantizeLinear", ["x", "s", "z"], ["xr"]), node("Mul", ["hr", "half"], ["hh"]),
             node("Add", ["xr", "hh"], ["sum"]), node("QuantizeLinear", ["sum", "t", "z"], ["nq"]),
             node("DequantizeLinear", ["nq", "t", "z"], ["n"])]  # fmt: skip
    constants = {"s": np.float32(0.5), "t": np.float32(scale_after), "z": np.int8(3), "half": np.float32(0.5)}
    return made(nodes, {"x": ("int8", (1, 4)), "h": ("float32", (1, 4))}, {"n": "float32"}, constants)


def quantised(numbers: Any, scale: float) -> Any:
    return np.clip(np.rint(numbers / scale) + 3, -128, 127)


@pytest.mark.parametrize("scale", [0.5, 0.75])
def test_real_state_is_rounded_by_the_quantiser_that_reads_it(scale: float) -> None:
    program = compiled(running(scale), states={"h": "n"})
    assert [item.value.name for item in program.inputs] == ["x"]
    assert [item.value.name for item in program.state] == ["h"]
    session, kept = cvm.Session(program, "numpy"), np.zeros((1, 4))
    for _ in range(40):
        codes = RANDOM.integers(-128, 128, (1, 4)).astype(np.int8)
        before = (quantised(kept, 0.5) - 3) * 0.5
        kept = (quantised((codes.astype(float) - 3) * 0.5 + before / 2, scale) - 3) * scale
        np.testing.assert_array_equal(session.run({"x": codes}).real("n"), kept)
    session.reset()
    first = session.run({"x": np.full((1, 4), 7, np.int8)}).real("n")
    np.testing.assert_array_equal(first, (quantised(np.full((1, 4), 2.0), scale) - 3) * scale)


def test_integers_are_state_as_they_are() -> None:
    nodes = [node("Add", ["x", "h"], ["n"]), node("Mul", ["n", "x"], ["y"])]
    model = made(nodes, {"x": ("int8", (2, 3)), "h": ("int8", (2, 3))}, {"y": "int8", "n": "int8"})
    session, kept = cvm.Session(compiled(model, states={"h": "n"}), "numpy"), np.zeros((2, 3), np.int8)
    for _ in range(10):
        given = RANDOM.integers(-100, 100, (2, 3)).astype(np.int8)
        kept = given + kept
        found = session.run({"x": given})
        np.testing.assert_array_equal(found["n"], kept)
        np.testing.assert_array_equal(found["y"], given * kept)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ({"h": "x"}, "the state 'h' has no output 'x'; the outputs are 'n'"),
        ({"g": "n"}, "there is no input 'g'"),
        ({"x": "n"}, "the output 'n' is float32 \\[1, 4\\], the state 'x' int8 \\[1, 4\\]"),
    ],
)
def test_what_is_no_state(states: dict[str, str], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        compiled(running(), states=states)


def test_calibration_runs_through_the_cycles(tmp_path: Path) -> None:
    """The range of the state is that of all cycles, and the program follows the model."""
    weights = {"W": RANDOM.normal(size=(4, 4)).astype(np.float32) / 3}
    nodes = [node("MatMul", ["h", "W"], ["p"]), node("Add", ["p", "x"], ["s"]), node("Tanh", ["s"], ["n"])]
    model = made(nodes, {"x": ("float32", (1, 4)), "h": ("float32", (1, 4))}, {"n": "float32"}, weights)
    file = tmp_path / "running.onnx"
    file.write_bytes(model.SerializeToString())
    data = RANDOM.uniform(-1, 1, (60, 1, 4))
    found = cvm.quantize_program(file, {"x": data}, states={"h": "n"})
    assert [item.value.name for item in found.program.state] == ["h"]
    assert found.calibration.quantizers["h"] == found.calibration.quantizers["n"]
    session, kept = cvm.Session(found.program, "numpy"), np.zeros((1, 4))
    for item in data:
        kept = np.tanh(kept @ weights["W"] + item)
        assert np.abs(session.run({"x": item}).real("n") - kept).max() < 0.05
