"""Contexts, tensors and graphs: their life, and what may be done when."""

import asyncio

import numpy as np
import pytest

import cvm
from cvm import webnn
from cvm.frontends.webnn.declarations import OPERATORS


def doubled(context: webnn.MLContext) -> webnn.MLGraph:
    builder = webnn.MLGraphBuilder(context)
    x = builder.input("x", ("int8", [3]))
    return builder.build({"y": builder.add(x, x)})


def test_tensors_carry_inputs_and_outputs() -> None:
    context = webnn.ML().create_context()
    graph = doubled(context)
    x = context.create_tensor(("int8", [3]), writable=True)
    y = context.create_tensor({"dataType": "int8", "shape": [3]}, readable=True)
    context.write_tensor(x, np.array([1, -2, 100], np.int8))
    context.dispatch(graph, {"x": x}, {"y": y})
    assert context.read_tensor(y).tolist() == [2, -4, -56]
    assert context.readTensor(y).dtype == np.int8
    for call in (lambda: context.read_tensor(x), lambda: context.write_tensor(y, np.zeros(3, np.int8))):
        with pytest.raises(webnn.MLTypeError):
            call()


def test_dispatch_takes_the_tensors_of_the_graph_once_each() -> None:
    context, other = webnn.ML().create_context(), webnn.ML().createContext()
    graph = doubled(context)
    x, y = (context.create_tensor(("int8", [3])) for _ in range(2))
    destroyed = context.create_tensor(("int8", [3]))
    destroyed.destroy()
    fixed = context.create_constant_tensor(("int8", [3]), np.zeros(3, np.int8))
    wrong = [
        ({"x": x}, {"y": x}),
        ({"x": x}, {}),
        ({"z": x}, {"y": y}),
        ({"x": context.create_tensor(("int8", [4]))}, {"y": y}),
        ({"x": context.create_tensor(("uint8", [3]))}, {"y": y}),
        ({"x": other.create_tensor(("int8", [3]))}, {"y": y}),
        ({"x": destroyed}, {"y": y}),
        ({"x": x}, {"y": fixed}),
    ]
    for inputs, outputs in wrong:
        with pytest.raises(webnn.MLTypeError):
            context.dispatch(graph, inputs, outputs)
    with pytest.raises(webnn.MLTypeError):
        other.dispatch(graph, {"x": x}, {"y": y})
    graph.destroy()
    with pytest.raises(webnn.InvalidStateError):
        context.dispatch(graph, {"x": x}, {"y": y})


def test_constant_tensors_are_constants_of_a_graph() -> None:
    context = webnn.ML().create_context()
    tensor = context.create_constant_tensor(("int8", [3]), np.array([1, 2, 3], np.int8))
    builder = webnn.MLGraphBuilder(context)
    graph = builder.build({"y": builder.mul(builder.input("x", ("int8", [3])), builder.constant(tensor))})
    assert context.compute(graph, {"x": np.array([5, 6, 7], np.int8)})["y"].tolist() == [5, 12, 21]
    builder = webnn.MLGraphBuilder(context)
    for bad in (context.create_tensor(("int8", [3])), webnn.ML().create_context().create_tensor(("int8", [3]))):
        with pytest.raises(webnn.MLTypeError):
            builder.constant(bad)
    tensor.destroy()
    with pytest.raises(webnn.MLTypeError):
        builder.constant(tensor)


def test_a_destroyed_context_does_nothing() -> None:
    context = webnn.ML().create_context()
    graph = doubled(context)
    context.destroy()
    for call in (
        lambda: context.create_tensor(("int8", [1])),
        lambda: context.compute(graph, {"x": np.zeros(3, np.int8)}),
        lambda: doubled(context),
    ):
        with pytest.raises(webnn.InvalidStateError):
            call()


def test_building_may_be_awaited_and_the_package_is_reached_from_cvm() -> None:
    context = cvm.webnn.ML().create_context()
    builder = webnn.MLGraphBuilder(context)
    graph = asyncio.run(builder.build_async({"y": builder.neg(builder.input("x", ("int8", [1])))}))
    assert graph.outputs == {"y": webnn.MLOperandDescriptor("int8", (1,))}


def test_support_limits_are_those_of_the_declarations_and_true() -> None:
    context = webnn.ML().create_context()
    limits = context.op_support_limits()
    assert limits == context.opSupportLimits()
    assert limits["conv2d"]["filter"] == {"dataTypes": ["float32", "float16"], "rankRange": {"min": 4, "max": 4}}
    assert limits["where"]["condition"]["dataTypes"] == ["uint8"]
    assert limits["preferredInputLayout"] == "nchw"
    assert "isNaN" not in limits
    for name, operator in OPERATORS.items():
        assert (name in limits) == (operator.kind != "refused")
    for data_type in limits["neg"]["input"]["dataTypes"]:
        if "float" not in data_type:
            builder = webnn.MLGraphBuilder(context)
            assert builder.build({"y": builder.neg(builder.input("x", (data_type, [2])))})


def test_every_operator_has_a_method_and_a_rule_or_a_refusal() -> None:
    from cvm.frontends.webnn.builder import snake_case
    from cvm.frontends.webnn.rules import RULES

    assert set(RULES) == {name for name, operator in OPERATORS.items() if operator.kind != "refused"}
    for name in OPERATORS:
        assert callable(getattr(webnn.MLGraphBuilder, snake_case(name)))


def test_unused_inputs_stay_inputs_of_the_graph() -> None:
    context = webnn.ML().create_context()
    builder = webnn.MLGraphBuilder(context)
    x, _, _ = (builder.input(name, (kind, [2])) for name, kind in (("x", "int8"), ("i", "int8"), ("f", "float32")))
    graph = builder.build({"y": builder.neg(x)})
    assert sorted(graph.inputs) == ["f", "i", "x"]
    feeds = {"x": np.array([1, 2], np.int8), "i": np.zeros(2, np.int8), "f": np.zeros(2, np.float32)}
    assert context.compute(graph, feeds)["y"].tolist() == [-1, -2]
