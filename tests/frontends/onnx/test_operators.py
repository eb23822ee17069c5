"""Operators against the reference evaluator of the package onnx: integers equal, real numbers equal but for ties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import defs, helper
from onnx.reference import ReferenceEvaluator

from cvm.frontends.onnx.declarations import LAST, OPERATORS
from cvm.frontends.onnx.expansions import EXPANDED
from cvm.frontends.onnx.rules import RULES
from tests.frontends.onnx.making import compiled, made, results, sandwich

I64 = np.int64


def ints(*items: int) -> Any:
    return np.array(items, I64)


MOVED: list[tuple[str, tuple[int, ...], dict[str, Any], dict[str, Any]]] = [
    ("Slice", (4, 5), {}, {"s": ints(3, -1), "e": ints(-9, 1), "a": ints(0, 1), "t": ints(-2, -1)}),
    ("Slice", (4, 5), {}, {"s": ints(1), "e": ints(2**62), "a": ints(-1)}),
    ("Pad", (3, 4), {"mode": "reflect"}, {"p": ints(2, 1, 1, 3)}),
    ("Pad", (3, 4), {"mode": "edge"}, {"p": ints(2, 0, 0, 3)}),
    ("Pad", (3, 4), {"mode": "wrap"}, {"p": ints(2, 1, 1, 3)}),
    ("Pad", (3, 4), {}, {"p": ints(1, 2), "v": np.array(-7, np.int32), "a": ints(1)}),
    ("Transpose", (2, 3, 4), {"perm": [2, 0, 1]}, {}),
    ("Transpose", (2, 3), {}, {}),
    ("Expand", (3, 1), {}, {"s": ints(2, 1, 4)}),
    ("Tile", (2, 3), {}, {"r": ints(2, 2)}),
    ("Reshape", (2, 3, 4), {}, {"s": ints(0, -1, 2)}),
    ("Flatten", (2, 3, 4), {"axis": 2}, {}),
    ("Squeeze", (1, 3, 1), {}, {"a": ints(-1)}),
    ("Unsqueeze", (3, 2), {}, {"a": ints(0, -1)}),
    ("Gather", (4, 3), {"axis": 1}, {"i": np.array([[0, -1], [2, 1]], I64)}),
    ("Gather", (4, 3), {"axis": 0}, {"i": np.array(2, I64)}),
    ("GatherElements", (3, 4), {"axis": 1}, {"i": np.array([[0, -1], [3, 2], [1, 1]], I64)}),
    ("GatherND", (2, 3, 4), {"batch_dims": 1}, {"i": np.array([[[0]], [[2]]], I64)}),
    ("ScatterElements", (3, 4), {"axis": 1},
     {"i": np.array([[0, 3], [1, 2]], I64), "u": np.array([[9, 8], [7, 6]], np.int32)}),
    ("ScatterND", (4, 2), {}, {"i": np.array([[2], [-4]], I64), "u": np.array([[9, 8], [7, 6]], np.int32)}),
    ("DepthToSpace", (1, 8, 2, 3), {"blocksize": 2, "mode": "CRD"}, {}),
    ("DepthToSpace", (1, 8, 2, 3), {"blocksize": 2}, {}),
    ("SpaceToDepth", (1, 2, 4, 6), {"blocksize": 2}, {}),
    ("Trilu", (2, 3, 4), {"upper": 0}, {"k": ints(1)}),
    ("CumSum", (3, 4), {"exclusive": 1, "reverse": 1}, {"a": np.array(0, I64)}),
    ("ReduceSum", (2, 3, 4), {"keepdims": 0}, {"a": ints(-1, 0)}),
    ("ReduceProd", (2, 3), {"keepdims": 1}, {"a": ints(1)}),
    ("ReduceMax", (2, 3, 4), {"keepdims": 0}, {}),
    ("ReduceMin", (2, 3, 4), {}, {"a": ints(1)}),
    ("ReduceL1", (2, 3), {}, {"a": ints(0)}),
    ("ReduceSumSquare", (2, 3), {}, {"a": ints(1)}),
    ("ReduceSum", (2, 3), {"noop_with_empty_axes": 1}, {}),
    ("ArgMax", (4, 5), {"axis": 1, "keepdims": 0}, {}),
    ("ArgMin", (4, 5), {"axis": 0, "select_last_index": 1}, {}),
    ("Neg", (3, 4), {}, {}), ("Abs", (3, 4), {}, {}), ("Sign", (3, 4), {}, {}), ("Relu", (3, 4), {}, {}),
    ("Clip", (3, 4), {}, {"lo": np.array(-2, np.int32), "hi": np.array(3, np.int32)}),
    ("PRelu", (3, 4), {}, {"s": np.array([2, 0, -1, 3], np.int32)}),
    ("Mod", (3, 4), {}, {"m": np.array([3, -3, 5, -7], np.int32)}),
    ("Mod", (3, 4), {"fmod": 1}, {"m": np.array([3, -3, 5, -7], np.int32)}),
    ("MatMul", (2, 3, 4), {}, {"b": np.arange(8, dtype=np.int32).reshape(4, 2)}),
    ("MatMul", (4,), {}, {"b": np.arange(8, dtype=np.int32).reshape(4, 2)}),
    ("Max", (3, 4), {}, {"b": np.array([[1], [-2], [0]], np.int32), "c": np.array(0, np.int32)}),
    ("Sum", (3, 4), {}, {"b": np.array([[1], [-2], [0]], np.int32), "c": np.array(5, np.int32)}),
]  # fmt: skip
"""Operators on int32: shape of x, attributes, further operands."""


@pytest.mark.parametrize(("op", "shape", "attributes", "constants"), MOVED, ids=lambda item: str(item)[:24])
def test_integers_are_those_of_the_reference(op: str, shape: Any, attributes: Any, constants: Any) -> None:
    node = helper.make_node(op, ["x", *constants], ["y"], **attributes)
    kind = "int64" if op.startswith("Arg") else "int32"
    model = made([node], {"x": ("int32", shape)}, {"y": kind}, constants)
    x = np.random.default_rng(1).integers(-6, 7, shape).astype(np.int32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    found = results(model, {"x": x}, ranges={"x": (-6, 6)})["y"]
    np.testing.assert_array_equal(found, np.reshape(expected, np.shape(expected) or (1,)))


def test_a_computed_gather_is_that_of_the_reference() -> None:
    for op, source, at, attributes in (
        ("Gather", (4, 3), (2, 2), {"axis": 1}), ("GatherElements", (3, 4), (3, 2), {"axis": 1}),
        ("GatherND", (2, 3, 4), (2, 2, 2), {}),
    ):  # fmt: skip
        model = made(
            [helper.make_node(op, ["x", "i"], ["y"], **attributes)],
            {"x": ("int32", source), "i": ("int64", at)}, {"y": "int32"},
        )  # fmt: skip
        random = np.random.default_rng(2)
        data = {"x": random.integers(-99, 99, source).astype(np.int32), "i": random.integers(-2, 2, at)}
        (expected,) = ReferenceEvaluator(model).run(None, data)
        found = results(model, data, ranges={"x": (-99, 99), "i": (-2, 1)})["y"]
        np.testing.assert_array_equal(found, expected)


REAL: list[tuple[str, tuple[tuple[int, ...], ...], dict[str, Any], dict[str, Any]]] = [
    ("Conv", ((1, 2, 7),), {"pads": [1, 2], "strides": [2]}, {"w": np.float32([[[1, -2, 0.5], [0.25, 1, 1]]])}),
    ("Conv", ((1, 2, 5, 6),), {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
     {"w": np.arange(-8, 8, dtype=np.float32).reshape(2, 2, 2, 2) / 8, "b": np.float32([0.5, -0.25])}),
    ("Conv", ((1, 4, 5, 5),), {"group": 2, "dilations": [2, 1]},
     {"w": np.arange(-12, 12, dtype=np.float32).reshape(2, 2, 2, 3) / 16}),
    ("Conv", ((1, 1, 3, 4, 3),), {"pads": [1, 0, 1, 0, 1, 0]},
     {"w": np.arange(-4, 4, dtype=np.float32).reshape(1, 1, 2, 2, 2) / 4}),
    ("ConvTranspose", ((1, 2, 3, 4),), {"strides": [2, 2], "pads": [1, 0, 0, 1], "output_padding": [1, 0]},
     {"w": np.arange(-9, 9, dtype=np.float32).reshape(2, 1, 3, 3) / 16}),
    ("ConvTranspose", ((1, 2, 3, 3),), {"strides": [2, 2], "dilations": [1, 2]},
     {"w": np.arange(-8, 8, dtype=np.float32).reshape(2, 2, 2, 2) / 16, "b": np.float32([0.5, 1])}),
    ("AveragePool", ((1, 2, 5, 5),), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}, {}),
    ("AveragePool", ((1, 2, 5, 5),), {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1}, {}),
    ("AveragePool", ((1, 1, 6, 6),), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, {}),
    ("AveragePool", ((1, 2, 9),), {"kernel_shape": [4], "strides": [3]}, {}),
    ("MaxPool", ((1, 2, 6, 7),), {"kernel_shape": [2, 3], "strides": [2, 2], "pads": [1, 1, 0, 1], "ceil_mode": 1}, {}),
    ("MaxPool", ((1, 1, 7, 7),), {"kernel_shape": [2, 2], "dilations": [2, 3]}, {}),
    ("GlobalAveragePool", ((1, 3, 4, 5),), {}, {}), ("GlobalMaxPool", ((1, 3, 4, 5),), {}, {}),
    ("BatchNormalization", ((2, 3, 4),), {},
     {"s": np.float32([1, 0.5, 2]), "b": np.float32([0, 1, -1]), "m": np.float32([0.5, 0, 1]),
      "v": np.float32([3, 0.7, 2])}),
    ("Gemm", ((3, 4), (5, 4)), {"alpha": 0.25, "beta": 2.0, "transB": 1}, {"c": np.float32([1, 2, 3, 4, 5])}),
    ("Gemm", ((4, 3),), {"transA": 1}, {"b": np.arange(-6, 6, dtype=np.float32).reshape(4, 3) / 8}),
    ("MatMul", ((2, 3, 4), (2, 4, 2)), {}, {}), ("MatMul", ((2, 3, 4), (4, 2)), {}, {}),
    ("Add", ((2, 3), (3,)), {}, {}), ("Mul", ((2, 1), (3,)), {}, {}), ("Sub", ((2, 3), (2, 1)), {}, {}),
    ("Max", ((2, 3), (3,)), {}, {}), ("Mean", ((2, 3), (3,), (1, 1)), {}, {}),
    ("Resize", ((1, 1, 4, 5),), {"mode": "linear"}, {"r": np.float32([]), "f": np.float32([1, 1, 2, 1.5])}),
    ("Resize", ((1, 1, 4, 5),),
     {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
     {"r": np.float32([]), "f": np.float32([]), "n": ints(1, 1, 7, 3)}),
    ("Resize", ((1, 1, 4, 5),), {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
     {"r": np.float32([]), "f": np.float32([]), "n": ints(1, 1, 7, 9)}),
    ("Resize", ((1, 1, 5, 5),), {"mode": "cubic", "cubic_coeff_a": -0.5},
     {"r": np.float32([]), "f": np.float32([1, 1, 2, 1])}),
    ("ReduceMean", ((2, 3, 4),), {"keepdims": 0}, {"a": ints(1)}),
    ("LeakyRelu", ((3, 4),), {"alpha": 0.125}, {}), ("PRelu", ((3, 4),), {}, {"s": np.float32([0.5, 0.25, 2, 1])}),
    ("HardSigmoid", ((3, 40),), {}, {}), ("HardSwish", ((3, 40),), {}, {}), ("Elu", ((3, 40),), {}, {}),
    ("Selu", ((3, 40),), {}, {}), ("Celu", ((3, 40),), {"alpha": 2.0}, {}), ("Sigmoid", ((3, 40),), {}, {}),
    ("Tanh", ((3, 40),), {}, {}), ("Softsign", ((3, 40),), {}, {}), ("Softplus", ((3, 40),), {}, {}),
    ("Mish", ((3, 40),), {}, {}), ("ThresholdedRelu", ((3, 40),), {"alpha": 2.0}, {}),
    ("Shrink", ((3, 40),), {"lambd": 1.5, "bias": 0.5}, {}), ("Exp", ((3, 4),), {}, {}), ("Floor", ((3, 40),), {}, {}),
    ("Erf", ((3, 40),), {}, {}), ("Gelu", ((3, 40),), {}, {}), ("Gelu", ((3, 40),), {"approximate": "tanh"}, {}),
    ("LayerNormalization", ((2, 3, 8),), {}, {"s": np.float32([1, 0.5, 2, -1, 1, 1, 0.25, 3])}),
    ("LayerNormalization", ((2, 3, 4),), {"axis": 1, "epsilon": 0.5},
     {"s": np.float32([[1, 2, 0.5, 1]]), "b": np.arange(12, dtype=np.float32).reshape(3, 4) / 4}),
    ("InstanceNormalization", ((2, 3, 4, 3),), {}, {"s": np.float32([1, 0.5, 2]), "b": np.float32([0, 1, -1])}),
    ("ReduceL2", ((2, 3, 4),), {"keepdims": 0}, {"a": ints(2)}), ("ReduceLogSumExp", ((3, 4),), {}, {"a": ints(1)}),
    ("Round", ((3, 40),), {}, {}), ("Softmax", ((3, 2),), {"axis": 1}, {}),
]  # fmt: skip
"""Operators between DequantizeLinear and QuantizeLinear: shapes of inputs, attributes, constants."""


@pytest.mark.sweep
@pytest.mark.parametrize(("op", "shapes", "attributes", "constants"), REAL, ids=lambda item: str(item)[:24])
@pytest.mark.parametrize("scale", [pytest.param(0.25, marks=pytest.mark.long), 0.3])
def test_codes_are_those_of_the_reference_rounded(
    op: str, shapes: Any, attributes: Any, constants: Any, scale: float
) -> None:
    model = sandwich(op, shapes, scale, attributes, constants)
    random = np.random.default_rng(5)
    data = {f"x{i}": random.integers(-20, 21, shape).astype(np.int8) for i, shape in enumerate(shapes)}
    model.graph.output[0].name = "y"
    reference = made(
        list(model.graph.node)[:-1], {k: ("int8", v.shape) for k, v in data.items()}, {"result": "float32"}
    )
    reference.graph.initializer.extend(model.graph.initializer)
    (real,) = ReferenceEvaluator(reference).run(None, data)
    found = results(model, data)["y"]
    steps = np.asarray(real, np.float64) / np.float64(np.float32(scale))
    expected = np.clip(np.rint(steps), -128, 127)
    near = np.abs(np.abs(steps - np.floor(steps)) - 0.5) < 1e-4  # where floats may be on the wrong side
    assert not near.all()
    np.testing.assert_array_equal(found.ravel()[~near.ravel()], expected.ravel()[~near.ravel()])
    assert (np.abs(found.ravel() - steps.ravel())[near.ravel()] <= 0.5 + 1e-4).all()


def test_defaults_of_attributes_are_those_of_the_schemas() -> None:
    """A node without a float attribute gives the same program as one that states the schema's default."""
    tried = 0
    for op, shapes, attributes, constants in REAL:
        for name, attribute in defs.get_schema(op, 21).attributes.items():
            default = attribute.default_value
            if name in attributes or default.type != 1 or op in ("Resize",):
                continue
            stated = sandwich(op, shapes, 0.25, {**attributes, name: default.f}, constants)
            assert compiled(stated).digest == compiled(sandwich(op, shapes, 0.25, attributes, constants)).digest
            tried += 1
    assert tried >= 8


def test_groups_of_a_transposed_convolution_are_apart() -> None:
    weights = np.arange(-8, 8, dtype=np.float32).reshape(4, 1, 2, 2) / 16
    attributes = {"strides": [2, 2], "pads": [1, 0, 0, 1]}
    x = np.random.default_rng(8).integers(-20, 21, (1, 4, 3, 3)).astype(np.int8)
    whole = results(sandwich("ConvTranspose", [x.shape], 0.3, {**attributes, "group": 2}, {"w": weights}), {"x0": x})[
        "y"
    ]
    parts = [
        results(sandwich("ConvTranspose", [(1, 2, 3, 3)], 0.3, attributes, {"w": w}), {"x0": half})["y"]
        for w, half in zip(np.split(weights, 2), np.split(x, 2, axis=1), strict=True)
    ]
    np.testing.assert_array_equal(whole, np.concatenate(parts, axis=1))


def test_top_k_gives_values_and_places() -> None:
    for largest in (0, 1):
        node = helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=1, largest=largest)
        model = made([node], {"x": ("int32", (3, 6, 2))}, {"v": "int32", "i": "int64"}, {"k": ints(4)})
        x = np.random.default_rng(6).integers(-3, 4, (3, 6, 2)).astype(np.int32)
        found = results(model, {"x": x})
        order = np.argsort(-x if largest else x, axis=1, kind="stable")[:, :4]
        np.testing.assert_array_equal(found["i"], order)
        np.testing.assert_array_equal(found["v"], np.take_along_axis(x, order, 1))


def test_one_hot_and_split_are_those_of_the_reference() -> None:
    hot = helper.make_node("OneHot", ["x", "d", "v"], ["y"], axis=0)
    model = made(
        [hot], {"x": ("int32", (4,))}, {"y": "int32"}, {"d": np.array(3, I64), "v": np.array([5, 9], np.int32)}
    )
    x = np.array([0, -1, 2, 7], np.int32)
    found = results(model, {"x": x}, ranges={"x": (-3, 9)})["y"]
    np.testing.assert_array_equal(found, [[9, 5, 5, 5], [5, 5, 5, 5], [5, 9, 9, 5]])
    split = helper.make_node("Split", ["x"], ["a", "b", "c"], num_outputs=3)
    model = made([split], {"x": ("int32", (5,))}, {"a": "int32", "b": "int32", "c": "int32"})
    parts = results(model, {"x": np.arange(5)})
    assert [parts[name].tolist() for name in "abc"] == [[0, 1], [2, 3], [4]]


def test_every_declared_operator_has_a_rule_and_every_rule_is_declared() -> None:
    ruled = {name for (domain, name), item in OPERATORS.items() if item.kind in ("integer", "real", "boundary")}
    assert ruled == set(RULES) - {"BiasDequantizeLinear"}
    assert {key for key, item in OPERATORS.items() if item.kind == "written out"} == set(EXPANDED)


RUNTIME = ("LayerNormalization", "SimplifiedLayerNormalization")
"""Operators that ONNX Runtime implements in the domain of ONNX although ONNX does not define them there (any more)."""


def test_declared_operators_exist_in_the_versions_that_are_read() -> None:
    newest = min(LAST, defs.onnx_opset_version())
    for (domain, name), operator in OPERATORS.items():
        if not domain and operator.since <= newest and name not in RUNTIME:
            schema = defs.get_schema(name, newest)
            assert schema.since_version <= newest
            if operator.since < 13:
                assert defs.get_schema(name, max(operator.since, 1)).name == name
