"""Tree ensembles and linear models of ai.onnx.ml, against ONNX's reference evaluator and exact sums."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import cvm
from cvm.errors import Invalid, Unsupported
from cvm.frontends import onnx as front
from cvm.lowering import lower

RANDOM = np.random.default_rng(17)
FEATURES, SCALE = 6, 0.125
CODES = RANDOM.integers(-128, 128, (12, FEATURES)).astype(np.int8)
NUMBERS = CODES.astype(np.float32) * SCALE


def forest(trees: int, depth: int, modes: tuple[str, ...]) -> dict[str, list[Any]]:
    """Random trees; thresholds lie on the grid of the input, and beside it."""
    found: dict[str, list[Any]] = {key: [] for key in ("treeids", "nodeids", "featureids", "modes", "values",
                                                       "truenodeids", "falsenodeids")}  # fmt: skip
    for tree in range(trees):
        pending, count = [(0, 0)], 1
        while pending:
            node, level = pending.pop()
            leaf = level == depth or (level > 1 and RANDOM.random() < 0.3)
            children = (0, 0) if leaf else (count, count + 1)
            count += 0 if leaf else 2
            threshold = np.float32(RANDOM.integers(-100, 100) * SCALE + RANDOM.choice([0.0, 0.01]))
            row = (tree, node, int(RANDOM.integers(FEATURES)), "LEAF" if leaf else str(RANDOM.choice(modes)),
                   float(threshold), *children)  # fmt: skip
            for key, item in zip(found, row, strict=True):
                found[key].append(item)
            pending += [] if leaf else [(child, level + 1) for child in children]
    return found


def leaves_of(trees: dict[str, list[Any]]) -> list[tuple[int, int]]:
    every = zip(trees["treeids"], trees["nodeids"], trees["modes"], strict=True)
    return [(tree, node) for tree, node, mode in every if mode == "LEAF"]


def model_of(op: str, attributes: dict[str, Any], outputs: dict[str, int], version: int = 3) -> onnx.ModelProto:
    """DequantizeLinear of codes, and the operator."""
    nodes = [helper.make_node("DequantizeLinear", ["x", "scale"], ["real"]),
             helper.make_node(op, ["real"], list(outputs), domain="ai.onnx.ml", **attributes)]  # fmt: skip
    infos = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.INT8, CODES.shape)], infos,
                              [numpy_helper.from_array(np.float32(SCALE), "scale")])  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets)


def quantised(model: onnx.ModelProto, output: str, scale: float) -> onnx.ModelProto:
    """A real output rounded to int16."""
    model.graph.node.append(helper.make_node("QuantizeLinear", [output, "step", "zero"], [f"{output}_codes"]))
    model.graph.initializer.extend([numpy_helper.from_array(np.float32(scale), "step"),
                                    numpy_helper.from_array(np.int16(0), "zero")])  # fmt: skip
    kept = [item for item in model.graph.output if item.name != output]
    del model.graph.output[:]
    model.graph.output.extend([*kept, helper.make_tensor_value_info(f"{output}_codes", TensorProto.INT16, None)])
    return model


def run(model: onnx.ModelProto) -> dict[str, Any]:
    program = lower(front.loads(model.SerializeToString()).graph)
    found = cvm.Session(program, "numpy").run({"x": CODES})
    return {item.name: found[item.name] for item in program.outputs}


def reached(trees: dict[str, list[Any]]) -> list[list[tuple[int, int]]]:
    """The leaves of each row, by the comparisons of float32 numbers, which are exact."""
    compare = {"BRANCH_LEQ": np.less_equal, "BRANCH_LT": np.less, "BRANCH_GTE": np.greater_equal,
               "BRANCH_GT": np.greater, "BRANCH_EQ": np.equal, "BRANCH_NEQ": np.not_equal}  # fmt: skip
    index = {key: i for i, key in enumerate(zip(trees["treeids"], trees["nodeids"], strict=True))}
    rows = []
    for x in NUMBERS:
        leaves = []
        for tree in sorted(set(trees["treeids"])):
            at = index[tree, 0]
            while trees["modes"][at] != "LEAF":
                yes = compare[trees["modes"][at]](x[trees["featureids"][at]], np.float32(trees["values"][at]))
                at = index[tree, trees["truenodeids" if yes else "falsenodeids"][at]]
            leaves.append((tree, trees["nodeids"][at]))
        rows.append(leaves)
    return rows


ALL = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


@pytest.mark.sweep
@pytest.mark.parametrize(("trees", "depth", "modes", "spread"), [
    (1, 3, ("BRANCH_LEQ",), 1.0), (9, 5, ("BRANCH_LT",), 1.0), (20, 4, ALL, 1e-3), (3, 0, ("BRANCH_LEQ",), 1.0),
])  # fmt: skip
@pytest.mark.parametrize("function", ["SUM", "AVERAGE"])
def test_regressors_sum_leaves_exactly(
    trees: int, depth: int, modes: tuple[str, ...], spread: float, function: str
) -> None:
    """The code is that of the sum of rationals: thresholds that are met, and leaves of very different sizes."""
    forest_ = forest(trees, depth, modes)
    leaves = leaves_of(forest_)
    weights = {(leaf, k): np.float32(RANDOM.normal() * spread ** RANDOM.random()) for leaf in leaves for k in range(2)}
    base = [0.75, -0.1]
    attributes = {f"nodes_{key}": items for key, items in forest_.items()} | {
        "target_treeids": [leaf[0] for leaf, _ in weights], "target_nodeids": [leaf[1] for leaf, _ in weights],
        "target_ids": [k for _, k in weights], "target_weights": list(map(float, weights.values())),
        "n_targets": 2, "base_values": base, "aggregate_function": function,
    }  # fmt: skip
    if function == "AVERAGE":
        del attributes["base_values"]
        base = [0.0, 0.0]
    model = quantised(model_of("TreeEnsembleRegressor", attributes, {"y": TensorProto.FLOAT}), "y", 0.01)
    found = run(model)["y_codes"]
    step = Fraction(float(np.float32(0.01)))
    for row, chosen in zip(found, reached(forest_), strict=True):
        for k in range(2):
            total = sum(Fraction(float(weights[leaf, k])) for leaf in chosen) + Fraction(float(np.float32(base[k])))
            total = total / trees if function == "AVERAGE" else total
            assert row[k] == round(total / step)


@pytest.mark.parametrize("classes", [2, 3])
def test_classifiers_have_the_label_and_the_scores_of_the_reference(classes: int) -> None:
    forest_ = forest(7, 4, ("BRANCH_LEQ",))
    leaves = leaves_of(forest_)
    pairs = [(leaf, k) for leaf in leaves for k in range(classes)]
    weights = RANDOM.integers(-8, 9, len(pairs)) / 64
    attributes = {f"nodes_{key}": items for key, items in forest_.items()} | {
        "class_treeids": [leaf[0] for leaf, _ in pairs], "class_nodeids": [leaf[1] for leaf, _ in pairs],
        "class_ids": [k for _, k in pairs], "class_weights": [float(w) for w in weights],
        "classlabels_int64s": [10, 20, 30][:classes], "post_transform": "NONE",
    }  # fmt: skip
    model = model_of("TreeEnsembleClassifier", attributes, {"label": TensorProto.INT64, "s": TensorProto.FLOAT})
    label, scores = ReferenceEvaluator(model).run(None, {"x": CODES})
    found = run(quantised(model, "s", 2**-10))
    np.testing.assert_array_equal(found["label"], label)
    np.testing.assert_array_equal(found["s_codes"], np.rint(scores * 1024))


@pytest.mark.parametrize(("weights", "transform", "column", "low", "high"), [  # of ONNX Runtime 1.32.0
    ([0.25, 0.75], "NONE", 0, [0.75, 0.25], [0.25, 0.75]), ([0.25, 0.75], "NONE", 1, [0.0, 0.25], [0.0, 0.75]),
    ([0.25, 0.75], "LOGISTIC", 0, [0.4378, 0.5622], [0.3208, 0.6792]),
    ([0.25, 0.75], "SOFTMAX", 0, [0.75, 0.25], [0.25, 0.75]), ([-0.5, 0.75], "NONE", 0, [0.5, -0.5], [-0.75, 0.75]),
    ([-0.5, 0.25], "NONE", 1, [0.0, -0.5], [0.0, 0.25]),
    ([-0.5, 0.25], "LOGISTIC", 0, [0.6225, 0.3775], [0.4378, 0.5622]),
    ([-0.5, 0.25], "LOGISTIC", 1, [0.5, 0.3775], [0.5, 0.5622]),
])  # fmt: skip
def test_one_score_for_two_classes(
    weights: list[float], transform: str, column: int, low: list[float], high: list[float]
) -> None:
    attributes = {
        "nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0] * 3,
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.0] * 3, "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0], "class_treeids": [0, 0], "class_nodeids": [1, 2],
        "class_ids": [column, column], "class_weights": weights, "classlabels_int64s": [10, 20],
        "post_transform": transform,
    }  # fmt: skip
    model = model_of("TreeEnsembleClassifier", attributes, {"label": TensorProto.INT64, "s": TensorProto.FLOAT})
    found = run(quantised(model, "s", 2**-12))
    for numbers, label, scores in zip(NUMBERS, found["label"], found["s_codes"], strict=True):
        left = numbers[0] <= 0
        assert label == (10 if left else 20)
        assert np.abs(scores / 4096 - (low if left else high)).max() < 2e-4


def test_ensembles_of_the_fifth_version() -> None:
    """x0 <= 1, then x1 > 2 or x2 < -3; leaves for two targets."""
    modes = numpy_helper.from_array(np.array([0, 3, 1], np.uint8), "m")
    attributes = {
        "nodes_featureids": [0, 1, 2], "nodes_splits": numpy_helper.from_array(np.array([1, 2, -3], np.float32), "s"),
        "nodes_modes": modes, "nodes_truenodeids": [1, 0, 2], "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [2, 1, 3], "nodes_falseleafs": [0, 1, 1], "leaf_targetids": [0, 1, 0, 1],
        "leaf_weights": numpy_helper.from_array(np.array([0.5, 0.25, -1, 2], np.float32), "w"),
        "tree_roots": [0], "n_targets": 2, "aggregate_function": 1,
    }  # fmt: skip
    model = model_of("TreeEnsemble", attributes, {"y": TensorProto.FLOAT}, 5)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": CODES})
    np.testing.assert_array_equal(run(quantised(model, "y", 0.25))["y_codes"], expected * 4)


@pytest.mark.parametrize(("op", "attributes", "scale"), [
    ("Scaler", {"offset": [0.5], "scale": [2.0, 1, 0.5, 4, 0.25, 1]}, 0.0625),
    ("Binarizer", {"threshold": 1.5}, 1.0),
    ("LinearRegressor", {"coefficients": [0.5, -1, 2, 0.25, 0, 1] * 2, "intercepts": [0.5, -0.25], "targets": 2},
     0.03125),
])  # fmt: skip
def test_preparations_and_linear_models(op: str, attributes: dict[str, Any], scale: float) -> None:
    model = model_of(op, attributes, {"y": TensorProto.FLOAT})
    (expected,) = ReferenceEvaluator(model).run(None, {"x": CODES})
    np.testing.assert_array_equal(run(quantised(model, "y", scale))["y_codes"], np.rint(expected / scale))


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_rows_are_divided_by_their_norms(norm: str, tmp_path: Any) -> None:
    model = model_of("Normalizer", {"norm": norm}, {"y": TensorProto.FLOAT})
    (expected,) = ReferenceEvaluator(model).run(None, {"x": CODES})
    most = np.abs(expected).max()
    file = tmp_path / "rows.onnx"
    file.write_bytes(model.SerializeToString())
    program = cvm.quantize_program(file, {"x": CODES}).program
    assert np.abs(cvm.Session(program, "numpy").run({"x": CODES}).real("y") - expected).max() < 3 * most / 255


def test_features_are_chosen() -> None:
    model = model_of("ArrayFeatureExtractor", {}, {"y": TensorProto.FLOAT})
    model.graph.node[1].input.append("which")
    model.graph.initializer.append(numpy_helper.from_array(np.array([4, 0], np.int64), "which"))
    np.testing.assert_array_equal(run(quantised(model, "y", SCALE))["y_codes"], CODES[:, [4, 0]])


def test_linear_classifiers() -> None:
    weights = (RANDOM.integers(-8, 9, 3 * FEATURES) / 8).tolist()
    attributes = {"coefficients": weights, "intercepts": [0.5, 0.0, -0.5], "classlabels_ints": [4, 5, 6]}
    model = model_of("LinearClassifier", attributes, {"label": TensorProto.INT64, "s": TensorProto.FLOAT})
    scores = NUMBERS @ np.reshape(weights, (3, FEATURES)).T + [0.5, 0.0, -0.5]
    found = run(quantised(model, "s", 2**-6))
    np.testing.assert_array_equal(found["s_codes"], np.rint(scores * 64))
    np.testing.assert_array_equal(found["label"], np.array([4, 5, 6])[scores.argmax(axis=1)])


def test_maps_are_given_as_scores(tmp_path: Any) -> None:
    forest_ = forest(3, 2, ("BRANCH_LEQ",))
    leaves = leaves_of(forest_)
    attributes = {f"nodes_{key}": items for key, items in forest_.items()} | {
        "class_treeids": [leaf[0] for leaf in leaves], "class_nodeids": [leaf[1] for leaf in leaves],
        "class_ids": [1] * len(leaves), "class_weights": [0.125] * len(leaves),
        "classlabels_strings": ["no", "yes"],
    }  # fmt: skip
    model = model_of("TreeEnsembleClassifier", attributes, {"label": TensorProto.STRING, "s": TensorProto.FLOAT})
    model.graph.node.append(
        helper.make_node("ZipMap", ["s"], ["m"], domain="ai.onnx.ml", classlabels_strings=["n", "y"])
    )
    kind = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    del model.graph.output[:]
    model.graph.output.append(helper.make_value_info("m", helper.make_sequence_type_proto(kind)))
    file = tmp_path / "zipped.onnx"
    file.write_bytes(model.SerializeToString())
    found = cvm.quantize_program(file, {"x": CODES}).program
    assert [item.name for item in found.outputs] == ["s"]
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("label", TensorProto.INT64, None))
    with pytest.raises(Unsupported, match="labels are strings"):
        run(model)


@pytest.mark.parametrize(("change", "message"), [
    ({"nodes_truenodeids": [9, 0, 0]}, "names a node that its tree does not have"),
    ({"nodes_featureids": [9, 0, 0]}, "a feature that is none of 6"),
    ({"nodes_nodeids": [0, 1, 1]}, "node 1 of tree 0 is given twice"),
    ({"nodes_truenodeids": [0, 0, 0], "nodes_falsenodeids": [0, 0, 0]}, "every tree must have exactly one root"),
    ({"target_nodeids": [0, 2]}, "node 0 of tree 0 is no leaf"),
    ({"nodes_modes": ["BRANCH_LEQ", "LEAF"]}, "must have one item for each node"),
    ({"target_ids": [0, 5]}, "5 is none of 1"),
])  # fmt: skip
def test_trees_that_are_none(change: dict[str, Any], message: str) -> None:
    attributes = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.5, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0],
        "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0],
    }  # fmt: skip
    model = model_of("TreeEnsembleRegressor", attributes | change, {"y": TensorProto.FLOAT})
    with pytest.raises(Invalid, match=message):
        run(quantised(model, "y", 0.5))
