"""What is decided at run time: scatters at computed indices, and dynamic quantisation on the grid of calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import cvm
from cvm.errors import Unsupported
from cvm.frontends import onnx as front
from tests.frontends.onnx.making import compiled, made, results

node = helper.make_node
RANDOM = np.random.default_rng(23)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_are_scattered_to_computed_indices(axis: int) -> None:
    """Negative indices count from the end, the last of equal ones stays, and those that do not exist write nothing."""
    model = made([node("ScatterElements", ["x", "i", "u"], ["y"], axis=axis)],
                 {"x": ("int8", (3, 4)), "i": ("int64", (3, 4)), "u": ("int8", (3, 4))}, {"y": "int8"})  # fmt: skip
    for _ in range(8):
        data, updates = RANDOM.integers(-128, 128, (2, 3, 4)).astype(np.int8)
        indices = RANDOM.integers(-6, 6, (3, 4))
        expected, extent = data.copy(), data.shape[axis]
        for place in np.ndindex(3, 4):
            target = list(place)
            target[axis] = indices[place] + (extent if indices[place] < 0 else 0)
            if 0 <= target[axis] < extent:
                expected[tuple(target)] = updates[place]
        found = results(model, {"x": data, "i": indices, "u": updates}, ranges={"i": (-9, 9)})["y"]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_slices_are_scattered_to_computed_indices(depth: int) -> None:
    shape = (3, 2, 4)
    model = made([node("ScatterND", ["x", "i", "u"], ["y"])],
                 {"x": ("int8", shape), "i": ("int64", (5, depth)), "u": ("int8", (5, *shape[depth:]))},
                 {"y": "int8"})  # fmt: skip
    for _ in range(8):
        data = RANDOM.integers(-128, 128, shape).astype(np.int8)
        updates = RANDOM.integers(-128, 128, (5, *shape[depth:])).astype(np.int8)
        indices = RANDOM.integers(-4, 5, (5, depth))
        expected = data.copy()
        for row, update in zip(indices, updates, strict=True):
            target = [i + n if i < 0 else i for i, n in zip(row, shape, strict=False)]
            if all(0 <= i < n for i, n in zip(target, shape, strict=False)):
                expected[tuple(target)] = update
        found = results(model, {"x": data, "i": indices, "u": updates}, ranges={"i": (-9, 9)})["y"]
        np.testing.assert_array_equal(found, expected)


def test_scatters_with_a_reduction_are_refused() -> None:
    model = made([node("ScatterND", ["x", "i", "u"], ["y"], reduction="add")],
                 {"x": ("int8", (3,)), "i": ("int64", (2, 1)), "u": ("int8", (2,))}, {"y": "int8"})  # fmt: skip
    with pytest.raises(Unsupported, match="reduction"):
        compiled(model)


def dynamic(op: str, zeros: Any) -> tuple[onnx.ModelProto, Any]:
    """A product as ONNX Runtime's quantize_dynamic writes it; and the function of floats that it stands for."""
    rows = op == "MatMulInteger"
    weights = RANDOM.integers(-100, 100, (6, 5) if rows else (4, 2, 3, 3)).astype(np.int8)
    zero, scale = np.asarray(zeros, np.int8), np.float32(0.02)
    shape = (3, 6) if rows else (1, 2, 5, 5)
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node(op, ["q", "w", "z", "wz"], ["p"]),
        node("Cast", ["p"], ["f"], to=1),
        node("Mul", ["s", "ws"], ["both"]),
        node("Mul", ["f", "both"], ["y"]),
    ]
    constants = {"w": weights, "wz": zero, "ws": scale}
    model = made(nodes, {"x": ("float32", shape)}, {"y": "float32"}, constants)
    real = (weights.astype(np.float64) - zero) * scale

    def floats(x: Any) -> Any:
        if rows:
            return x @ real
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
        return np.einsum("nchwij,dcij->ndhw", windows, real)

    return model, floats


@pytest.mark.parametrize(
    ("op", "zeros"), [("MatMulInteger", 3), ("MatMulInteger", [1, -2, 0, 3, 4]), ("ConvInteger", 0)]
)
def test_dynamic_quantisation_has_the_grid_of_calibration(op: str, zeros: Any, tmp_path: Path) -> None:
    model, floats = dynamic(op, zeros)
    file = tmp_path / "dynamic.onnx"
    file.write_bytes(model.SerializeToString())
    shape = [extent.dim_value for extent in model.graph.input[0].type.tensor_type.shape.dim]
    data = RANDOM.uniform(-1, 1, (16, *shape))
    found = cvm.quantize_program(file, {"x": data})
    assert {item.role for item in found.calibration.tensors} == {"activation"}  # weights stay the file's codes
    for item in data:
        wanted = floats(item if item.ndim == len(shape) else item[0])
        error = np.abs(cvm.Session(found.program, "numpy").run({"x": item}, out_of_range="clamp").real("y") - wanted)
        assert error.max() < 0.03 * np.abs(floats(data.reshape(-1, *shape[1:]))).max()
    with pytest.raises(Unsupported, match="its scales depend on the data"):
        front.loads(model.SerializeToString())
