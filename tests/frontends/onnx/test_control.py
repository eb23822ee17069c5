"""Functions of the model and control flow: inlined and unrolled where they are known, refused where they are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from cvm.errors import CvmError, Invalid, LimitExceeded, Unsupported
from tests.frontends.onnx.making import compiled, made, results

X: Any = {"x": ("int32", (2, 3))}
DATA = {"x": np.array([[1, -2, 3], [4, 5, -6]], np.int32)}


def tensor(name: str, kind: int = TensorProto.INT32) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, None)


def body(
    nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: list[str], constants: Any = None
) -> onnx.GraphProto:
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    return helper.make_graph(nodes, "body", inputs, [tensor(name) for name in outputs], stored)


def same(model: onnx.ModelProto, data: Any = None, **settings: Any) -> None:
    data = DATA if data is None else data
    expected = ReferenceEvaluator(model).run(None, data)
    found = results(model, data, ranges={"x": (-6, 6)}, **settings)
    for value, wanted in zip(model.graph.output, expected, strict=True):
        np.testing.assert_array_equal(found[value.name], np.reshape(wanted, np.shape(wanted) or (1,)))


def refused(model: onnx.ModelProto, kind: type[CvmError], code: str, *parts: str) -> None:
    with pytest.raises(kind) as found:
        compiled(model)
    assert found.value.code == code, found.value
    for part in parts:
        assert part in str(found.value)


# If


def branches() -> dict[str, onnx.GraphProto]:
    then = body([helper.make_node("Add", ["x", "two"], ["inner"]), helper.make_node("Neg", ["inner"], ["r"])], [],
                ["r"], {"two": np.int32(2)})  # fmt: skip
    other = body([helper.make_node("Mul", ["x", "x"], ["inner"])], [], ["inner"])
    return {"then_branch": then, "else_branch": other}


@pytest.mark.parametrize("chosen", [True, False])
def test_the_branch_of_a_constant_condition_is_taken(chosen: bool) -> None:
    node = helper.make_node("If", ["c"], ["y"], **branches())
    same(made([node], X, {"y": "int32"}, {"c": np.array(chosen)}))
    # The condition may be computed from shapes.
    shape = [helper.make_node("Size", ["x"], ["n"]), helper.make_node("Greater", ["n", "k"], ["c"])]
    same(made([*shape, node], X, {"y": "int32"}, {"k": np.int64(5 if chosen else 6)}))


def test_a_branch_may_give_what_stands_outside() -> None:
    outside = body([], [], ["x"])
    node = helper.make_node("If", ["c"], ["y"], then_branch=outside, else_branch=branches()["else_branch"])
    model = made([node], X, {"y": "int32"}, {"c": np.array(True)})
    np.testing.assert_array_equal(results(model, DATA)["y"], DATA["x"])


def test_two_uses_of_the_same_branches_have_names_of_their_own() -> None:
    nodes = [
        helper.make_node("If", ["c"], ["a"], **branches()), helper.make_node("If", ["d"], ["b"], **branches()),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ]  # fmt: skip
    same(made(nodes, X, {"y": "int32"}, {"c": np.array(True), "d": np.array(True)}))


def test_a_condition_of_the_data_is_refused_by_node() -> None:
    node = helper.make_node("If", ["c"], ["y"], name="branch", **branches())
    model = made([node], {**X, "c": ("bool", ())}, {"y": "int32"})
    refused(model, Unsupported, "onnx.operator", "'branch'", "'c'", "Where")


# Loop and Scan


def counting(condition: bool = True) -> onnx.GraphProto:
    """Carried: s + x * i; collected: s."""
    nodes = [
        helper.make_node("Cast", ["i"], ["j"], to=TensorProto.INT32), helper.make_node("Mul", ["x", "j"], ["m"]),
        helper.make_node("Add", ["s", "m"], ["t"]), helper.make_node("Identity", ["t"], ["u"]),
    ]  # fmt: skip
    inputs = [tensor("i", TensorProto.INT64), tensor("k", TensorProto.BOOL), tensor("s")]
    if condition:
        nodes.append(helper.make_node("Less", ["i", "most"], ["going"]))
    else:
        nodes.append(helper.make_node("Identity", ["k"], ["going"]))
    graph = body(nodes, inputs, ["going", "t", "u"], {"most": np.int64(2)})
    graph.output[0].CopyFrom(tensor("going", TensorProto.BOOL))
    return graph


@pytest.mark.parametrize(("most", "condition"), [(5, True), (2, True), (3, False), (1, False)])
def test_a_loop_is_unrolled(most: int, condition: bool) -> None:
    node = helper.make_node("Loop", ["n", "c", "x"], ["last", "each"], body=counting(condition))
    fixed = {"n": np.int64(most), "c": np.array(True)}
    model = made([node], X, {"last": "int32", "each": "int32"}, fixed)
    last, each = ReferenceEvaluator(model).run(None, DATA)
    found = results(model, DATA, ranges={"x": (-6, 6)})
    np.testing.assert_array_equal(found["last"], last)
    # One item per iteration along a new axis (ONNX, Loop); the reference evaluator joins them along the first.
    np.testing.assert_array_equal(found["each"], np.reshape(each, (-1, 2, 3)))


def test_a_loop_without_iterations_gives_what_goes_in() -> None:
    node = helper.make_node("Loop", ["n", "", "x"], ["last", "each"], body=counting(False))
    model = made([node], X, {"last": "int32"}, {"n": np.int64(0)})
    np.testing.assert_array_equal(results(model, DATA)["last"], DATA["x"])
    refused(made([node], X, {"last": "int32", "each": "int32"}, {"n": np.int64(0)}), Unsupported, "onnx.unsupported")


@pytest.mark.parametrize("count", [2**62, pytest.param(10**6, marks=pytest.mark.long)])
def test_hostile_counts_of_a_loop_end_at_once(count: int) -> None:
    node = helper.make_node("Loop", ["n", "", "x"], ["last", "each"], body=counting(False))
    refused(made([node], X, {"last": "int32"}, {"n": np.int64(count)}), LimitExceeded, "limit.expansion")


@pytest.mark.slow
def test_hostile_loops_end_at_once() -> None:
    endless = counting(False)
    node = helper.make_node("Loop", ["", "c", "x"], ["last", "each"], body=endless)
    refused(made([node], X, {"last": "int32"}, {"c": np.array(True)}), LimitExceeded, "limit.expansion")
    node = helper.make_node("Loop", ["", "", "x"], ["last", "each"], body=endless)
    refused(made([node], X, {"last": "int32"}), Invalid, "onnx.node.inputs")
    nested = counting(False)
    for _ in range(4):
        inner = helper.make_node("Loop", ["many", "", "s"], ["t", "u"], body=nested)
        inputs = [tensor("i", TensorProto.INT64), tensor("k", TensorProto.BOOL), tensor("s")]
        nodes = [inner, helper.make_node("Identity", ["k"], ["going"])]
        nested = body(nodes, inputs, ["going", "t", "u"])
        for number, node in enumerate(nested.node):
            node.name = str(number)
    try:
        node = helper.make_node("Loop", ["many", "", "x"], ["last", "each"], body=nested)
        compiled(made([node], X, {"last": "int32"}, {"many": np.int64(60)}))
    except (LimitExceeded, Invalid):
        return
    pytest.fail("a loop of loops is not bounded")


def test_loops_whose_count_is_data_are_refused_by_node() -> None:
    node = helper.make_node("Loop", ["n", "", "x"], ["last", "each"], body=counting(False), name="turn")
    refused(made([node], {**X, "n": ("int64", ())}, {"last": "int32"}), Unsupported, "onnx.operator", "'turn'", "'n'")
    graph = counting(False)
    graph.node[-1].CopyFrom(helper.make_node("Cast", ["flag"], ["going"], to=TensorProto.BOOL))
    node = helper.make_node("Loop", ["n", "c", "x"], ["last", "each"], body=graph, name="turn")
    model = made([node], {**X, "flag": ("int32", ())}, {"last": "int32"}, {"n": np.int64(3), "c": np.array(True)})
    refused(model, Unsupported, "onnx.operator", "'turn'", "iteration 1")


@pytest.mark.parametrize(("axis", "back"), [(0, 0), (1, 1)])
def test_a_scan_is_unrolled(axis: int, back: int) -> None:
    nodes = [helper.make_node("Add", ["s", "item"], ["t"]), helper.make_node("Mul", ["t", "item"], ["u"])]
    graph = body(nodes, [tensor("s"), tensor("item")], ["t", "u"])
    start = np.zeros(3 if axis == 0 else 2, np.int32)
    node = helper.make_node("Scan", ["start", "x"], ["last", "each"], body=graph, num_scan_inputs=1,
                            scan_input_axes=[axis], scan_input_directions=[back])  # fmt: skip
    model = made([node], X, {"last": "int32", "each": "int32"}, {"start": start})
    state, each = start, []
    items = list(np.moveaxis(DATA["x"], axis, 0))[:: -1 if back else 1]
    for item in items:
        state = state + item
        each.append(state * item)
    found = results(model, DATA, ranges={"x": (-6, 6)})
    np.testing.assert_array_equal(found["last"], state)
    np.testing.assert_array_equal(found["each"], np.stack(each))


# Functions


def with_functions(nodes: list[onnx.NodeProto], *functions: onnx.FunctionProto) -> onnx.ModelProto:
    model = made(nodes, X, {"y": "int32"})
    model.functions.extend(functions)
    model.opset_import.append(helper.make_opsetid("own", 1))
    return model


def function(name: str, nodes: list[onnx.NodeProto], attributes: Any = (), **more: Any) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["b"], nodes, opsets, attributes, **more)


def call(name: str, source: str, result: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(name, [source], [result], domain="own", name=f"to {result}", **attributes)


def test_functions_of_the_model_are_inlined() -> None:
    twice = function("Twice", [helper.make_node("Add", ["a", "a"], ["b"])])
    quad = function("Quad", [call("Twice", "a", "m"), call("Twice", "m", "b")])
    model = with_functions([call("Quad", "x", "h"), call("Twice", "h", "y")], twice, quad)
    np.testing.assert_array_equal(results(model, DATA, ranges={"x": (-6, 6)})["y"], DATA["x"] * 8)


def test_attributes_of_a_call_reach_the_nodes() -> None:
    inner = helper.make_node("Transpose", ["a"], ["b"])
    inner.attribute.append(helper.make_attribute("perm", [0, 1]))
    inner.attribute[0].ref_attr_name = "order"
    turned = function("Turned", [inner], ["order"])
    model = with_functions([call("Turned", "x", "y", order=[1, 0])], turned)
    np.testing.assert_array_equal(results(model, DATA)["y"], DATA["x"].T)
    refused(with_functions([call("Turned", "x", "y")], turned), Invalid, "onnx.node.attribute", "order")
    stray = made([inner], {"a": ("int32", (2, 3))}, {"b": "int32"})
    refused(stray, Invalid, "onnx.node.attribute", "refers")


def test_a_function_may_hold_control_flow_and_quantisers() -> None:
    choice = helper.make_node("If", ["yes"], ["b"], **{
        key: body([helper.make_node(op, ["a"], ["r"])], [], ["r"]) for key, op in
        (("then_branch", "Neg"), ("else_branch", "Abs"))
    })  # fmt: skip
    yes = helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True)))
    model = with_functions([call("Choice", "x", "h"), call("Choice", "h", "y")], function("Choice", [yes, choice]))
    np.testing.assert_array_equal(results(model, DATA)["y"], DATA["x"])
    nodes = [helper.make_node("QuantizeLinear", ["a", "s"], ["q"]),
             helper.make_node("DequantizeLinear", ["q", "s"], ["b"])]  # fmt: skip
    scale = helper.make_node("Constant", [], ["s"], value=numpy_helper.from_array(np.float32(2)))
    model = made([call("Grid", "x", "r"), helper.make_node("Cast", ["r"], ["y"], to=TensorProto.INT32)],
                 {"x": ("float32", (3,))}, {"y": "int32"})  # fmt: skip
    model.functions.append(function("Grid", [scale, *nodes]))
    assert results(model, {"x": np.float32([1, 5, 7])})["y"].tolist() == [0, 4, 8]


def test_hostile_functions_are_refused() -> None:
    itself = function("Twice", [call("Twice", "a", "b")])
    refused(with_functions([call("Twice", "x", "y")], itself), Invalid, "onnx.node.function", "itself", "'to y'")
    pair = [function("One", [call("Two", "a", "b")]), function("Two", [call("One", "a", "b")])]
    refused(with_functions([call("One", "x", "y")], *pair), Invalid, "onnx.node.function", "itself")
    twice = [helper.make_node("Identity", ["a"], ["b"])]
    doubling = [
        function("F0", twice),
        *(function(f"F{i}", [call(f"F{i - 1}", "a", "m"), call(f"F{i - 1}", "m", "b")]) for i in range(1, 40)),
    ]
    refused(with_functions([call("F39", "x", "y")], *doubling), LimitExceeded, "limit.expansion")
    deep = [function("F0", twice), *(function(f"F{i}", [call(f"F{i - 1}", "a", "b")]) for i in range(1, 100))]
    refused(with_functions([call("F99", "x", "y")], *deep), LimitExceeded, "limit.nesting")
    twin = function("Twice", twice)
    refused(with_functions([call("Twice", "x", "y")], twin, twin), Invalid, "onnx.function")
    more = helper.make_node("Twice", ["x", "x"], ["y"], domain="own")
    refused(with_functions([more], twin), Invalid, "onnx.node.function")
    loose = function("Twice", [helper.make_node("Identity", ["nowhere"], ["b"])])
    refused(with_functions([call("Twice", "x", "y")], loose), Invalid, "onnx.order", "nowhere", "Twice")
