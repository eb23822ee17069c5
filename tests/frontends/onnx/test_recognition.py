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


@pytest.mark.sweep
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


def quantised(nodes: list[Any], shape: tuple[int, ...], constants: dict[str, Any], opset: int = 13) -> onnx.ModelProto:
    """DequantizeLinear of x gives r, QuantizeLinear of o gives y."""
    ends = [node("DequantizeLinear", ["x", "q", "z"], ["r"]), node("QuantizeLinear", ["o", "t", "z"], ["y"])]
    fixed = {"q": np.float32(0.25), "t": np.float32(0.1), "z": np.int8(0), "eps": EPSILON, **constants}
    return made([ends[0], *nodes, ends[1]], {"x": ("int8", shape)}, {"y": "int8"}, fixed, opset)


def by_moments(form: str, inverse: float = 0.125) -> onnx.ModelProto:
    """The variance as the mean of squares less the square of the mean, as TensorFlow's converters write it."""
    reduced = {"keepdims": 0}
    nodes = [node("ReduceSum", ["r", "axis"], ["s"], **reduced), node("Mul", ["s", "over"], ["m"]),
             node("Mul", ["r", "r"], ["p"]), node("ReduceSum", ["p", "axis"], ["t1"], **reduced),
             node("Mul", ["t1", "over"], ["w"]), node("Mul", ["m", "m"], ["k"]), node("Sub", ["w", "k"], ["v"]),
             node("Max", ["v", "none"], ["c"]), node("Unsqueeze", ["c", "axis"], ["u"]),
             node("Unsqueeze", ["m", "axis"], ["n"]), node("Add", ["u", "eps"], ["a"]), node("Sqrt", ["a"], ["h"]),
             node("Reciprocal", ["h"], ["i"]), node("Mul", ["i", "g"], ["f"])]  # fmt: skip
    if form == "centred":
        nodes += [node("Sub", ["r", "n"], ["d"]), node("Mul", ["d", "f"], ["e"]), node("Add", ["e", "b"], ["o"])]
    else:  # x * f + (b - m * f)
        nodes += [node("Mul", ["r", "f"], ["d"]), node("Mul", ["n", "f"], ["e"]), node("Sub", ["b", "e"], ["l"]),
                  node("Add", ["d", "l"], ["o"])]  # fmt: skip
    constants = {"over": np.float32(inverse), "none": np.float32(0), "axis": np.array([2]), "g": SCALE.reshape(1, 1, 8),
                 "b": OFFSET.reshape(1, 1, 8)}  # fmt: skip
    return quantised(nodes, CODES.shape, constants)


@pytest.mark.parametrize("form", ["centred", "moved"])
def test_the_variance_may_be_a_difference_of_moments(form: str) -> None:
    whole = sandwich("LayerNormalization", [CODES.shape], 0.1, {"epsilon": float(EPSILON)}, {"g": SCALE, "b": OFFSET})
    model = by_moments(form)
    assert operations(model).count("layer_normalization") == 1
    assert "sqrt" not in operations(model)
    np.testing.assert_array_equal(results(model, {"x": CODES})["y"], results(whole, {"x0": CODES})["y"])


def test_a_mean_that_is_not_exactly_one_is_left_as_it_is() -> None:
    assert "sqrt" in operations(by_moments("centred", 0.12500001))


def test_single_numbers_are_scale_and_offset() -> None:
    """The same program, whether the number is an item of a constant or half of the result."""
    nodes = [
        node("ReduceMean", ["r"], ["m"], axes=[2]),
        node("Sub", ["r", "m"], ["d"]),
        node("Mul", ["d", "d"], ["p"]),
        node("ReduceMean", ["p"], ["v"], axes=[2]),
        node("Add", ["v", "eps"], ["a"]),
        node("Sqrt", ["a"], ["s"]),
        node("Mul", ["d", "two"], ["e"]),
        node("Div", ["e", "s"], ["n"]),
        node("Mul", ["n", "half"], ["o"]),
    ]
    model = quantised(nodes, CODES.shape, {"two": np.float32(2), "half": np.float32(0.5)})  # fmt: skip
    assert operations(model).count("layer_normalization") == 1
    whole = sandwich("LayerNormalization", [CODES.shape], 0.1, {"epsilon": float(EPSILON)}, {"g": np.ones(8, "f")})
    np.testing.assert_array_equal(results(model, {"x": CODES})["y"], results(whole, {"x0": CODES})["y"])


def written_rms(form: str) -> onnx.ModelProto:
    """x / sqrt(mean(x^2) + epsilon) * scale, as exporters write it."""
    squared = node("Mul", ["r", "r"], ["p"]) if form == "root" else node("Pow", ["r", "two"], ["p"])
    nodes = [squared, node("ReduceMean", ["p"], ["v"], axes=[-1]), node("Add", ["v", "eps"], ["a"])]
    if form == "inverse":
        nodes += [node("Sqrt", ["a"], ["s"]), node("Reciprocal", ["s"], ["i"]), node("Mul", ["r", "i"], ["n"])]
    elif form == "one":
        nodes += [node("Sqrt", ["a"], ["s"]), node("Div", ["one", "s"], ["i"]), node("Mul", ["r", "i"], ["n"])]
    else:
        nodes += [node("Sqrt", ["a"], ["s"]), node("Div", ["r", "s"], ["n"])]
    nodes += [node("Cast", ["n"], ["c"], to=1), node("Mul", ["g", "c"], ["o"])]
    return quantised(nodes, CODES.shape, {"two": np.float32(2), "one": np.float32(1), "g": SCALE})


@pytest.mark.parametrize("op_set", [1, 2])
@pytest.mark.parametrize("form", ["inverse", "one", "root"])
def test_written_out_rms_normalisations_are_one_operation(form: str, op_set: int) -> None:
    whole = sandwich("SimplifiedLayerNormalization", [CODES.shape], 0.1, {"epsilon": float(EPSILON)}, {"g": SCALE})
    model = written_rms(form)
    assert operations(model).count("rms_normalization") == 1
    assert "sqrt" not in operations(model)
    wanted = results(whole, {"x0": CODES})["y"]
    np.testing.assert_array_equal(results(model, {"x": CODES}, op_set=op_set)["y"], wanted)
    if op_set == 2:
        assert [item.op for item in compiled(model, op_set=2).nodes] == ["normalize"]


def written_softmax(form: str) -> onnx.ModelProto:
    nodes = [node("ReduceMax", ["r"], ["m"], axes=[-1]), node("Max", ["m", "none"], ["k"]),
             node("Sub", ["r", "k"], ["d"])]  # fmt: skip
    nodes = nodes if form != "plain" else [node("Identity", ["r"], ["d"])]
    nodes += [node("Exp", ["d"], ["e"]), node("ReduceSum", ["e", "axis"], ["s"])]
    if form == "inverse":
        nodes += [node("Reciprocal", ["s"], ["i"]), node("Mul", ["i", "e"], ["o"])]
    else:
        nodes.append(node("Div", ["e", "s"], ["o"]))
    return quantised(nodes, (2, 3, 4), {"none": np.float32(-np.inf), "axis": np.array([2])})


@pytest.mark.parametrize("form", ["difference", "inverse", "plain"])
def test_softmax_written_out_is_one_operation(form: str) -> None:
    model, whole = written_softmax(form), sandwich("Softmax", [(2, 3, 4)], 0.1, {"axis": 2}, {})
    assert operations(model).count("softmax") == 1
    assert not {"exp", "max_reduce"} & set(operations(model))
    codes = CODES[..., :4]
    np.testing.assert_array_equal(results(model, {"x": codes})["y"], results(whole, {"x0": codes})["y"])


def test_exponentials_that_are_read_elsewhere_are_left_as_they_are() -> None:
    model = written_softmax("plain")
    model.graph.node.extend([node("QuantizeLinear", ["e", "q", "z"], ["u"])])
    model.graph.output.extend(made([], {}, {"u": "int8"}).graph.output)
    assert "softmax" not in operations(model)


def repeated(form: str) -> onnx.ModelProto:
    """Queries of four heads times keys of two, each of which is repeated for two queries."""
    nodes = [node("DequantizeLinear", ["x", "q", "z"], ["r"]), node("DequantizeLinear", ["k", "q", "z"], ["s"]),
             node("Unsqueeze", ["s", "two"], ["u"]), node("Expand", ["u", "wide"], ["e"])]  # fmt: skip
    if form == "flat":
        nodes += [node("Reshape", ["e", "one"], ["f"]), node("Transpose", ["f"], ["g"], perm=[0, 2, 1]),
                  node("Reshape", ["g", "turned"], ["h"]), node("Mul", ["h", "half"], ["t"])]  # fmt: skip
    else:
        perm = [0, 1, 3, 2] if form == "plain" else [0, 1, 2, 3]
        nodes += [node("Reshape", ["e", "heads"], ["f"]), node("Transpose", ["f"], ["h"], perm=perm),
                  node("Mul", ["half", "h"], ["t"])]  # fmt: skip
    nodes += [node("MatMul", ["r", "t"], ["o"]), node("QuantizeLinear", ["o", "w", "z"], ["y"])]
    constants = {"q": np.float32(0.25), "w": np.float32(2), "z": np.int8(0), "half": np.float32(0.5),
                 "two": np.array([2]), "wide": np.array([1, 2, 2, 3, 3]), "one": np.array([4, 3, 3]),
                 "turned": np.array([1, 4, 3, 3]), "heads": np.array([1, 4, 3, 3])}  # fmt: skip
    return made(nodes, {"x": ("int8", (1, 4, 5, 3)), "k": ("int8", (1, 2, 3, 3))}, {"y": "int8"}, constants)


@pytest.mark.parametrize("op_set", [1, 2])
@pytest.mark.parametrize("form", ["plain", "flat", "straight"])
def test_heads_that_are_repeated_are_multiplied_as_they_are(form: str, op_set: int) -> None:
    model = repeated(form)
    assert "tile" not in operations(model)
    x, k = RANDOM.integers(-99, 99, (1, 4, 5, 3)), RANDOM.integers(-99, 99, (1, 2, 3, 3))
    wide = k.repeat(2, axis=1)
    product = x @ (wide if form == "straight" else wide.swapaxes(2, 3))
    wanted = np.clip(np.rint(product / 64), -128, 127)
    found = results(model, {"x": x.astype(np.int8), "k": k.astype(np.int8)}, op_set)["y"]
    np.testing.assert_array_equal(found, wanted)
