"""Operators as older opsets have them: the same codes as the newest form gives, and what NumPy says they mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from cvm.errors import CvmError, Invalid, Unsupported
from cvm.frontends.onnx.expansions import OLDER
from tests.frontends.onnx.making import compiled, made, results, sandwich

I64 = np.int64
X = np.random.default_rng(1).integers(-6, 7, (2, 3, 4)).astype(np.int32)


def ints(*items: int) -> Any:
    return np.array(items, I64)


OLD: list[tuple[str, int, dict[str, Any], dict[str, Any], Any]] = [
    ("Squeeze", 11, {"axes": [0]}, {}, lambda x: x[:1].squeeze(0)),
    ("Squeeze", 7, {}, {}, lambda x: x[:1].squeeze()),
    ("Unsqueeze", 7, {"axes": [0, 2]}, {}, lambda x: x[None, :, None]),
    ("ReduceSum", 7, {"axes": [1], "keepdims": 0}, {}, lambda x: x.sum(1)),
    ("ReduceSum", 12, {}, {}, lambda x: x.sum(keepdims=True)),
    ("ReduceMax", 11, {"axes": [-1]}, {}, lambda x: x.max(-1, keepdims=True)),
    ("ReduceL1", 9, {"axes": [0, 2]}, {}, lambda x: np.abs(x).sum((0, 2), keepdims=True)),
    ("ReduceProd", 9, {"axes": [2]}, {}, lambda x: x.prod(2, keepdims=True)),
    ("Slice", 7, {"starts": [1, -3], "ends": [1000, -1], "axes": [1, 2]}, {}, lambda x: x[:, 1:, -3:-1]),
    ("Slice", 9, {"starts": [0, 1], "ends": [1, 3]}, {}, lambda x: x[:1, 1:3]),
    ("Slice", 10, {}, {"s": ints(1), "e": ints(3), "a": ints(2)}, lambda x: x[:, :, 1:3]),
    ("Pad", 7, {"pads": [0, 1, 0, 1, 0, 2], "value": 3.0}, {},
     lambda x: np.pad(x, ((0, 1), (1, 0), (0, 2)), constant_values=3)),
    ("Pad", 10, {"pads": [0, 0, 2, 0, 0, 1], "mode": "reflect"}, {},
     lambda x: np.pad(x, ((0, 0), (0, 0), (2, 1)), mode="reflect")),
    ("Clip", 7, {"min": -2.0, "max": 3.0}, {}, lambda x: np.clip(x, -2, 3)),
    ("Clip", 10, {"min": 1.0}, {}, lambda x: np.maximum(x, 1)),
    ("Cast", 9, {"to": 3}, {}, lambda x: x),
    ("Tile", 9, {}, {"r": ints(1, 2, 1)}, lambda x: np.tile(x, (1, 2, 1))),
    ("Gather", 7, {"axis": 1}, {"i": ints(2, 0)}, lambda x: x[:, [2, 0]]),
    ("Flatten", 7, {"axis": 2}, {}, lambda x: x.reshape(6, 4)),
    ("ArgMax", 9, {"axis": 2, "keepdims": 0}, {}, lambda x: x.argmax(2)),
    ("Sum", 7, {}, {"b": np.arange(24, dtype=np.int32).reshape(2, 3, 4)}, lambda x: x + np.arange(24).reshape(2, 3, 4)),
    ("MatMul", 7, {}, {"b": np.arange(8, dtype=np.int32).reshape(4, 2)}, lambda x: x @ np.arange(8).reshape(4, 2)),
    ("Dropout", 7, {"ratio": 0.3}, {}, lambda x: x), ("Dropout", 10, {}, {}, lambda x: x),
    ("Scatter", 9, {"axis": 2}, {"i": np.zeros((2, 3, 1), I64), "u": np.full((2, 3, 1), 9, np.int32)},
     lambda x: np.concatenate([np.full((2, 3, 1), 9), x[:, :, 1:]], 2)),
]  # fmt: skip
"""Operators on int32: opset, attributes, constant operands, and what NumPy gives."""


def named(case: tuple[Any, ...]) -> str:
    """The operator, its opset, and the attributes and constants that tell it from the next case."""
    op, opset, attributes, constants, _ = case
    return "-".join([f"{op}{opset}", *(f"{name}={value}" for name, value in attributes.items()), *constants])


@pytest.mark.parametrize(("op", "opset", "attributes", "constants", "expected"), OLD, ids=map(named, OLD))
def test_older_forms_are_read(op: str, opset: int, attributes: Any, constants: Any, expected: Any) -> None:
    x = X[:1] if op == "Squeeze" else X
    node = helper.make_node(op, ["x", *constants], ["y"], **attributes)
    kind = "int64" if op == "ArgMax" else "int8" if op == "Cast" else "int32"
    model = made([node], {"x": ("int32", x.shape)}, {"y": kind}, constants, opset)
    found = results(model, {"x": x}, ranges={"x": (-6, 6)})["y"]
    wanted = np.asarray(expected(x))
    np.testing.assert_array_equal(found, wanted.reshape(wanted.shape or (1,)))


def test_parts_of_a_split_are_an_attribute_before_version_13() -> None:
    for attributes, widths in (({"axis": 2, "split": [1, 3]}, (1, 3)), ({"axis": 2}, (2, 2))):
        node = helper.make_node("Split", ["x"], ["a", "b"], **attributes)
        for opset in (7, 11, 12):
            model = made([node], {"x": ("int32", X.shape)}, {"a": "int32", "b": "int32"}, opset=opset)
            found = results(model, {"x": X})
            np.testing.assert_array_equal(found["a"], X[..., : widths[0]])
            np.testing.assert_array_equal(found["b"], X[..., widths[0] :])
    uneven = made([helper.make_node("Split", ["x"], ["a", "b"], axis=1)], {"x": ("int32", X.shape)},
                  {"a": "int32", "b": "int32"}, opset=11)  # fmt: skip
    with pytest.raises(Invalid, match="equal parts"):
        compiled(uneven)


@pytest.mark.sweep
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("opset", [7, 11, 12])
def test_a_softmax_before_version_13_is_of_all_axes_behind_as_one(axis: int, opset: int) -> None:
    if axis < 0 and opset < 11:
        return
    codes = np.random.default_rng(3).integers(-20, 21, (2, 3, 2)).astype(np.int8)
    model = sandwich("Softmax", [codes.shape], 1 / 128, {"axis": axis}, {})
    model.opset_import[0].version = opset
    # Dequantize and Quantize exist from version 10 on; what is older is the Softmax alone.
    model.opset_import[0].version = max(opset, 10)
    x = codes.astype(float).reshape(int(np.prod(codes.shape[: axis % 3])), -1) / 4
    powers = np.exp(x - x.max(1, keepdims=True))
    expected = np.clip(np.rint(powers / powers.sum(1, keepdims=True) * 128), -128, 127).reshape(codes.shape)
    assert np.abs(results(model, {"x0": codes})["y"] - expected).max() <= 1  # within the bound of the report
    newest = sandwich("Softmax", [codes.shape], 1 / 128, {"axis": 2}, {})
    if axis in (2, -1):
        np.testing.assert_array_equal(results(model, {"x0": codes})["y"], results(newest, {"x0": codes})["y"])


def test_a_hardmax_is_one_at_the_first_of_the_greatest() -> None:
    codes = np.array([[[3, 9, 9], [1, 2, 9]]], np.int8)
    for opset, attributes, expected in (
        (21, {"axis": -1}, [[[0, 1, 0], [0, 0, 1]]]), (11, {"axis": 1}, [[[0, 1, 0], [0, 0, 0]]]),
        (11, {"axis": 2}, [[[0, 1, 0], [0, 0, 1]]]),
    ):  # fmt: skip
        model = sandwich("Hardmax", [codes.shape], 1, attributes, {})
        model.opset_import[0].version = opset
        np.testing.assert_array_equal(results(model, {"x0": codes})["y"], expected)


def test_older_resampling_takes_the_item_before() -> None:
    x = np.arange(12, dtype=np.int32).reshape(1, 1, 3, 4)
    scales = np.float32([1, 1, 2, 3])
    wanted = x.repeat(2, 2).repeat(3, 3)
    for op, opset in (("Upsample", 9), ("Resize", 10)):
        node = helper.make_node(op, ["x", "s"], ["y"], mode="nearest")
        model = made([node], {"x": ("int32", x.shape)}, {"y": "int32"}, {"s": scales}, opset)
        np.testing.assert_array_equal(results(model, {"x": x})["y"], wanted)
    node = helper.make_node("Upsample", ["x"], ["y"], scales=scales.tolist())
    model = made([node], {"x": ("int32", x.shape)}, {"y": "int32"}, opset=7)
    np.testing.assert_array_equal(results(model, {"x": x})["y"], wanted)
    node = helper.make_node("Resize", ["x", "r", "s"], ["y"], coordinate_transformation_mode="tf_half_pixel_for_nn",
                            nearest_mode="floor")  # fmt: skip
    fixed = {"r": np.float32([]), "s": np.float32([1, 1, 1, 0.5])}
    model = made([node], {"x": ("int32", x.shape)}, {"y": "int32"}, fixed, 11)
    np.testing.assert_array_equal(results(model, {"x": x})["y"], x[..., 1::2])  # floor((i + 1/2) * 2)
    node = helper.make_node("Resize", ["x", "s"], ["y"])
    model = made([node], {"x": ("int32", x.shape)}, {"y": "int32"}, {"s": np.float32([1, 1, 0.7, 1])}, 10)
    with pytest.raises(Unsupported, match="opset 11"):
        compiled(model)


def test_linear_resampling_of_integers_truncates() -> None:
    x = np.array([[[[0, 7, -3, 4]]]], np.int8)
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear",
                            coordinate_transformation_mode="asymmetric")  # fmt: skip
    model = made([node], {"x": ("int8", x.shape)}, {"y": "int8"}, {"s": np.float32([1, 1, 1, 2])})
    # halves: 3.5, 2, 0.5, and the edge
    assert results(model, {"x": x})["y"].ravel().tolist() == [0, 3, 7, 2, -3, 0, 4, 4]


def test_top_k_and_batch_normalisation_of_older_opsets() -> None:
    node = helper.make_node("TopK", ["x"], ["v", "i"], axis=2, k=2)
    model = made([node], {"x": ("int32", X.shape)}, {"v": "int32", "i": "int64"}, opset=7)
    order = np.argsort(-X, axis=2, kind="stable")[:, :, :2]
    np.testing.assert_array_equal(results(model, {"x": X})["i"], order)
    constants = {"s": np.float32([1, 2]), "b": np.float32([0, 1]), "m": np.float32([0.5, 0]), "v": np.float32([3, 1])}
    newest = sandwich("BatchNormalization", [(1, 2, 4)], 0.25, {}, constants)
    codes = np.arange(-4, 4, dtype=np.int8).reshape(1, 2, 4)
    expected = results(newest, {"x0": codes})["y"]
    nodes = [node for node in newest.graph.node if node.op_type == "BatchNormalization"]
    nodes[0].attribute.append(helper.make_attribute("spatial", 1))
    function = helper.make_function(
        "old", "Norm", ["x", *constants], ["y"], [helper.make_node("BatchNormalization", ["x", *constants], ["y"],
                                                                  spatial=1)], [helper.make_opsetid("", 7)],
    )  # fmt: skip
    nodes[0].op_type, nodes[0].domain = "Norm", "old"
    del nodes[0].attribute[:]
    newest.functions.append(function)
    np.testing.assert_array_equal(results(newest, {"x0": codes})["y"], expected)
    newest.functions[0].node[0].attribute[0].i = 0
    with pytest.raises(Unsupported, match="spatial"):
        compiled(newest)


def test_each_table_of_older_forms_is_in_order() -> None:
    for forms in OLDER.values():
        assert [before for before, _ in forms] == sorted(before for before, _ in forms)


def test_what_older_versions_need_is_asked_for_and_opsets_below_7_are_refused() -> None:
    x: Any = {"x": ("int32", (2, 3, 4))}
    for op, opset, part in (
        ("Unsqueeze", 11, "axes"), ("Pad", 10, "pads"), ("Slice", 9, "starts"), ("Upsample", 7, "scales"),
    ):  # fmt: skip
        with pytest.raises(Invalid, match=part):
            compiled(made([helper.make_node(op, ["x"], ["y"])], x, {"y": "int32"}, opset=opset))
    add = helper.make_node("Add", ["x", "c"], ["y"], broadcast=1, axis=1)
    with pytest.raises(CvmError) as found:
        compiled(made([add], x, {"y": "int32"}, {"c": np.arange(3, dtype=np.int32)}, opset=6))
    assert found.value.code == "onnx.opset"
