"""What users type: dictionaries of the specification, operators of Python, arrays for operands, lost contexts."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cvm import webnn


def started() -> tuple[webnn.MLContext, Any]:
    context = webnn.ML().create_context(executor="numpy")
    return context, webnn.MLGraphBuilder(context)


# Dictionaries


def test_options_are_keywords_or_one_dictionary_with_the_names_of_the_specification() -> None:
    found = []
    for form in range(4):
        _, builder = started()
        x = builder.input("x", {"dataType": "float32", "shape": [1, 5, 5, 2]})
        w = np.ones((3, 3, 3, 2), np.float32)
        if form == 0:
            y = builder.conv2d(x, w, padding=[1, 0, 1, 0], input_layout="nhwc", filter_layout="ohwi", label="c")
        elif form == 1:
            options = {"padding": [1, 0, 1, 0], "inputLayout": "nhwc", "filterLayout": "ohwi", "label": "c"}
            y = builder.conv2d(x, w, options)
        elif form == 2:
            y = builder.conv2d(x, w, {"padding": [1, 0, 1, 0], "input_layout": "nhwc"}, filterLayout="ohwi", label="c")
        else:
            y = builder.conv2d(
                input=x, filter=w, padding=[1, 0, 1, 0], inputLayout="nhwc", filterLayout="ohwi", label="c"
            )
        assert y.node is not None
        found.append((y.name, y.shape, y.node.attributes))
    assert all(item == found[0] for item in found)


SINGLE: list[Callable[[Any, Any], Any]] = [
    lambda b, x: b.averagePool2d(x, {"windowDimensions": [2, 2], "outputShapeRounding": "ceil"}),
    lambda b, x: b.clamp(x, {"minValue": 0, "maxValue": 6}),
    lambda b, x: b.argMax(x, 1, {"keepDimensions": True, "outputDataType": "int64"}),
    lambda b, x: b.reduceSum(x, {"axes": [1], "keepDimensions": True}),
    lambda b, x: b.softmax(x, 1, {"label": "s"}),
    lambda b, x: b.split(x, 2, {"axis": 2})[0],
    lambda b, x: b.pad(x, [0, 0, 1, 1], [0, 0, 1, 1], {"mode": "constant", "value": 1}),
    lambda b, x: b.resample2d(x, {"mode": "linear", "scales": [2, 2]}),
    lambda b, x: b.transpose(x, {"permutation": [0, 2, 3, 1]}),
    lambda b, x: b.instanceNormalization(x, {"scale": np.ones(2, np.float32), "epsilon": 0.5, "layout": "nchw"}),
    lambda b, x: b.cast(x, "float16", {}),
]


@pytest.mark.parametrize("call", SINGLE)
def test_every_shape_of_call_of_the_specification(call: Callable[[Any, Any], Any]) -> None:
    _, builder = started()
    assert isinstance(call(builder, builder.input("x", ("float32", [1, 2, 4, 4]))), webnn.MLOperand)


def test_options_that_there_are_not_or_that_are_given_twice_are_refused() -> None:
    _, builder = started()
    x = builder.input("x", ("float32", [1, 2, 4, 4]))
    for call, message in (
        (
            lambda: builder.clamp(x, {"minVal": 1}),
            r"\[?clamp: there is no option 'min_val'; the options are min_value, max_value",
        ),
        (lambda: builder.clamp(x, {"minValue": 1}, min_value=1), "'minValue' is given twice"),
        (lambda: builder.maxPool2d(x, {"window": [2, 2]}), "window_dimensions"),
        (lambda: builder.relu(x, alpha=1), "no option 'alpha'; the options are label"),
    ):
        with pytest.raises(webnn.MLTypeError, match=message):
            call()


def test_descriptors_of_tensors_say_what_may_be_done_with_them() -> None:
    context, _ = started()
    descriptors: list[Any] = [
        {"dataType": "int8", "shape": [2], "readable": True, "writable": True},
        webnn.MLTensorDescriptor("int8", (2,), readable=True, writable=True),
    ]
    for descriptor in descriptors:
        tensor = context.create_tensor(descriptor)
        assert (tensor.readable, tensor.writable, tensor.constant) == (True, True, False)
        context.write_tensor(tensor, b"\x01\xff")
        assert context.read_tensor(tensor).tolist() == [1, -1]
        array, buffer = np.zeros(2, np.int8), bytearray(3)
        context.read_tensor(tensor, array)
        context.readTensor(tensor, buffer)
        assert (array.tolist(), bytes(buffer)) == ([1, -1], b"\x01\xff\x00")
    for wrong in ({"dataType": "int8", "shape": [2], "readable": 1}, {"dataType": "int8", "dimensions": [2]}):
        with pytest.raises(webnn.MLTypeError):
            context.create_tensor(wrong)
    with pytest.raises(webnn.MLTypeError):  # of operands, which are neither readable nor writable
        webnn.MLGraphBuilder(context).input("x", {"dataType": "int8", "shape": [2], "readable": True})


def test_buffers_must_have_the_length_of_the_tensor() -> None:
    context, _ = started()
    tensor = context.create_tensor({"dataType": "int32", "shape": [2], "readable": True, "writable": True})
    context.write_tensor(tensor, (7).to_bytes(4, "little") + (-2).to_bytes(4, "little", signed=True))
    assert context.read_tensor(tensor).tolist() == [7, -2]
    outputs: list[Any] = [bytearray(7), bytes(8), np.zeros(2, np.int64), np.zeros(3, np.int32), [0, 0]]
    for output in outputs:
        with pytest.raises(webnn.MLTypeError, match="readTensor"):
            context.read_tensor(tensor, output)
    with pytest.raises(webnn.MLTypeError, match="7 bytes, not 8"):
        context.write_tensor(tensor, bytes(7))


def test_preferences_of_a_context_are_checked_and_change_nothing() -> None:
    ml: Any = webnn.ML()
    assert ml.createContext({"powerPreference": "low-power", "accelerated": True}).accelerated is False
    for wrong in ({"powerPreference": "lots"}, {"accelerated": 1}, {"deviceType": "gpu"}, "gpu"):
        with pytest.raises(webnn.MLTypeError, match="MLContextOptions"):
            ml.createContext(wrong)


# Lost


def test_a_context_is_lost_when_it_is_destroyed_and_takes_its_graphs_and_tensors_along() -> None:
    context, builder = started()
    x = builder.input("x", ("int8", [1]))
    graph = builder.build({"y": x + x})
    tensor = context.create_tensor(("int8", [1]))
    told: list[str] = []
    context.lost.add_done_callback(lambda future: told.append(future.result().message))
    assert not context.lost.done()
    context.destroy()
    context.destroy()
    assert told == ["the context was destroyed"]
    assert tensor.destroyed
    with pytest.raises(webnn.InvalidStateError):
        graph.run({"x": np.zeros(1, np.int8)})
    assert graph.program.nodes

    async def awaited() -> webnn.MLContextLostInfo:
        return await context.lost

    assert asyncio.run(awaited()) == webnn.MLContextLostInfo("the context was destroyed")


def test_a_task_may_wait_for_the_loss() -> None:
    context, _ = started()

    async def main() -> str:
        task = asyncio.ensure_future(context.lost)
        await asyncio.sleep(0)
        assert not task.done()
        context.destroy()
        return (await task).message

    assert asyncio.run(main()) == "the context was destroyed"


# Operators and arrays


def test_operators_of_python_are_the_calls_of_the_builder() -> None:
    context, builder = started()
    x, y = (builder.input(name, ("int32", [3]), value_range=(-100, 100)) for name in "xy")
    a, b = np.array([1, -2, 3], np.int32), np.array([4, 5, -6], np.int32)
    cases: dict[str, tuple[Any, Any]] = {
        "add": (x + y, a + b), "sub": (x - y, a - b), "mul": (x * y, a * b), "neg": (-x, -a), "abs": (abs(x), abs(a)),
        "number": (2 * x + 1 - y * 3, 2 * a + 1 - b * 3), "reflected": (7 - x, 7 - a),
        "array": (b + x * b, b + a * b), "less": (x < y, a < b), "least": (x <= 1, a <= 1),
        "greater": (x > np.array([0, 0, 3], np.int32), a > [0, 0, 3]), "most": (x >= y, a >= b),
    }  # fmt: skip
    graph = builder.build({name: operand for name, (operand, _) in cases.items()})
    found = context.compute(graph, {"x": a, "y": b})
    for name, (_, expected) in cases.items():
        np.testing.assert_array_equal(found[name], expected, name)


def test_real_operands_have_quotients_powers_and_products_of_matrices() -> None:
    context, builder = started()
    x = builder.input("x", ("float32", [2, 2]))
    w = np.array([[1, 2], [3, 4]], np.float32)
    sample = {"x": np.array([[1, 0.5], [2, 0.25]], np.float32)}
    outputs = {"quotient": x / 4, "inverse": 1 / x, "square": x**2, "product": x @ w, "left": w @ x}
    graph = builder.build(outputs, calibration=[sample])
    found, a = context.compute(graph, sample), sample["x"].astype(np.float64)
    for name, expected in {
        "quotient": a / 4,
        "inverse": 1 / a,
        "square": a**2,
        "product": a @ w,
        "left": w @ a,
    }.items():
        assert np.abs(found[name] - expected).max() <= graph.quantization_errors[name].max_error + 1e-6, name
        assert graph.quantization_errors[name].decibels > 30


def test_what_an_operator_cannot_do_is_refused() -> None:
    _, builder = started()
    x, f = builder.input("x", ("int8", [2])), builder.input("f", ("float32", [2]))
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: x + 2.5, "2.5 is no int8"),
        (lambda: x + 128, "128 is not in -128..127"),
        (lambda: x / 2, "div\\(\\) truncates"),
        (lambda: x + f, "float32"),
        (lambda: bool(x < 3), "no truth value"),
        (lambda: 0 < f < 1, "no truth value"),
        (lambda: f + np.zeros(2), "float64"),
    ]
    for call, message in calls:
        with pytest.raises(webnn.MLTypeError, match=message):
            call()
    for other in ("a", None, True):
        with pytest.raises(TypeError):
            x + other
    with pytest.raises(TypeError):
        f @ 2


def test_arrays_are_constants_wherever_an_operand_is_taken() -> None:
    context, builder = started()
    x = builder.input("x", ("int8", [2]))
    a = np.array([1, -1], np.int8)
    outputs = {
        "chosen": builder.where(np.array([True, False]), x, a),
        "joined": builder.concat([a, x], 0),
        "picked": builder.gather(x, np.array([-1, 0, 9], np.int32)),
        "slope": builder.prelu(x, slope=np.int8(3)),
    }
    found = context.compute(builder.build(outputs), {"x": np.array([5, -6], np.int8)})
    assert {name: items.tolist() for name, items in found.items()} == {
        "chosen": [5, -1], "joined": [1, -1, 5, -6], "picked": [-6, 5, -6], "slope": [5, -18],
    }  # fmt: skip
