"""Layer normalisations that are written out: one operation with the same codes, unless something within is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from cvm.errors import Unsupported
from cvm.frontends import onnx as front
from tests.frontends.onnx.making import compiled, made, results, sandwich

node = helper.make_node
RANDOM = np.random.default_rng(3)
SCALE, OFFSET = RANDOM.normal(size=8).astype(np.float32), RANDOM.normal(size=8).astype(np.float32)
EPSILON = np.float32(1e-5)
CODES = RANDOM.integers(-20, 20, (2, 3, 8)).astype(np.int8)


def written(form: str, axes: tuple[int, int] = (-1, 2), outputs: Any = None) -> onnx.ModelProto:
    """(x - mean) / sqrt(mean((x - mean)^2) + epsilon) * scale + offset, as exporters write it."""
    nodes = [node("DequantizeLinear", ["x", "q", "z"], ["r"]), node("ReduceMean", ["r"], ["m"], axes=[axes[0]]),
             node("Sub", ["r", "m"], ["d"]), node("Sub", ["r", "m"], ["e"])]  # fmt: skip
    nodes.append(node("Mul", ["d", "d"], ["p"]) if form == "product" else node("Pow", ["d", "two"], ["p"]))
    nodes += [node("ReduceMean", ["p"], ["v"], axes=[axes[1]]), node("Add", ["eps", "v"], ["a"]),
              node("Sqrt", ["a"], ["s"])]  # fmt: skip
    if form == "inverse":
        nodes += [node("Reciprocal", ["s"], ["i"]), node("Mul", ["i", "d"], ["n"])]
    elif form == "one":
        nodes += [node("Div", ["one", "s"], ["i"]), node("Mul", ["e", "i"], ["n"])]
    else:
        nodes.append(node("Div", ["e", "s"], ["n"]))
    if form == "plain":
        nodes.append(node("QuantizeLinear", ["n", "t", "z"], ["y"]))
    else:
        nodes += [node("Mul", ["g", "n"], ["w"]), node("Add", ["w", "b"], ["o"]),
                  node("QuantizeLinear", ["o", "t", "z"], ["y"])]  # fmt: skip
    constants = {"q": np.float32(0.25), "t": np.float32(0.1), "z": np.int8(0), "two": np.float32(2), "eps": EPSILON,
                 "one": np.float32(1), "g": SCALE, "b": OFFSET}  # fmt: skip
    return made(nodes, {"x": ("int8", CODES.shape)}, outputs or {"y": "int8"}, constants, opset=13)


def operations(model: onnx.ModelProto) -> list[str]:
    return [item.name for item in front.loads(model.SerializeToString()).graph.operations]


@pytest.mark.parametrize("form", ["product", "power", "inverse", "one", "plain"])
def test_written_out_layer_normalisations_are_one_operation(form: str) -> None:
    constants = {"g": np.ones(8, np.float32)} if form == "plain" else {"g": SCALE, "b": OFFSET}
    whole = sandwich("LayerNormalization", [CODES.shape], 0.1, {"epsilon": float(EPSILON)}, constants)
    model = written(form)
    assert operations(model).count("layer_normalization") == 1
    assert "sqrt" not in operations(model)
    np.testing.assert_array_equal(results(model, {"x": CODES})["y"], results(whole, {"x0": CODES})["y"])


def test_what_is_read_elsewhere_or_of_other_axes_is_left_as_it_is() -> None:
    assert "sqrt" in operations(written("power", (-1, 1)))
    model = written("power")
    model.graph.node.extend([node("QuantizeLinear", ["m", "q", "z"], ["u"])])
    model.graph.output.extend(made([], {}, {"u": "int8"}).graph.output)
    assert "layer_normalization" not in operations(model)
    with pytest.raises(Unsupported, match="cvm quantize"):
        compiled(model)
