"""Calls that the specification allows or throws at: the web platform tests, and cases of our own."""

import math
from collections import Counter
from itertools import count
from typing import Any

import numpy as np
import pytest

from cvm import webnn
from cvm.frontends.webnn.builder import snake_case
from cvm.frontends.webnn.declarations import section
from tools import webnn_conformance as replay

ARRAYS = {"Uint16Array": "uint16", "BigInt64Array": "int64", "BigUint64Array": "uint64"}

BUILT = "Throw if an operand-yielding method is called on a built MLGraphBuilder"
EXPECTED = {
    # What its title says and its record does not: integers have no softmax.
    "[softmax] Throw if the input is not a non-floating point data.": "TypeError",
    # It is recorded that something is thrown; the specification says what.
    BUILT: "InvalidStateError",
}


def builder(**options: Any) -> webnn.MLGraphBuilder:
    return webnn.MLGraphBuilder(webnn.ML().create_context(**options))


def assert_explained(error: webnn.MLTypeError, call: replay.Case) -> None:
    """The message has the label, the operator and the section, the code and the location the operator and the rule."""
    op = call["op"]
    last = call["args"][-1] if call["args"] else None
    label = last.get("label") if isinstance(last, dict) else None
    message, code = error.message, error.code.split(".")
    assert error.location.op == op or code[1] == "MLOperandDescriptor"
    assert code[:2] in (["webnn", op], ["webnn", "MLOperandDescriptor"])
    assert len(code) == 3
    assert f"(WebNN {section(code[1])})" in message
    assert not label or f"[{label}] {op}: " in message
    if error.location.tensor is not None:
        assert f"{op}: {error.location.tensor}: " in message


def verdict(call: replay.Case, **options_of_context: Any) -> tuple[str, list[webnn.MLOperand]]:
    """ "ok" or the name of the error, and the results."""
    own, other = builder(**options_of_context), builder()
    names = (f"x{i}" for i in range(99))

    def resolved(value: Any) -> Any:
        if isinstance(value, list):
            return [resolved(item) for item in value]
        if isinstance(value, dict) and "operand" in value:
            home = other if value.get("fromAnotherBuilder") else own
            return home.input(next(names), (value["dataType"], value["shape"]))
        return replay.number(value)

    try:
        if call["op"] == "input":
            found = own.input(*call["args"])
        elif call["op"] == "constant" and "buffer" not in call["args"][1]:
            descriptor, wrong = call["args"][0], "doesn't match" in call["test"]  # the buffer is not recorded
            kind = descriptor["dataType"] if hasattr(np, descriptor["dataType"]) else "int8"
            found = own.constant(descriptor, np.zeros(math.prod(descriptor["shape"]) + wrong, kind))
        elif call["op"] == "constant":
            descriptor, buffer = call["args"]
            kind = ARRAYS.get(buffer["buffer"], buffer["buffer"].removesuffix("Array").lower())
            found = own.constant(descriptor, np.zeros(buffer["length"], kind))
        else:
            positional, options = list(call["args"]), {}
            if positional and (positional[-1] is None or _is_options(positional[-1])):
                options = {snake_case(key): resolved(value) for key, value in (positional.pop() or {}).items()}
            arguments = list(map(resolved, positional))
            if call["test"] == BUILT:
                own.build({"built": own.neg(own.input("other", ("int8", [1])))})
            found = getattr(own, call["op"])(*arguments, **options)
    except webnn.InvalidStateError:
        return "InvalidStateError", []
    except webnn.MLTypeError as error:
        assert_explained(error, call)
        return "TypeError", []
    except TypeError as error:  # Python's own, for an argument that is left out
        if "required positional argument" not in str(error):
            raise
        return "TypeError", []
    return "ok", found if isinstance(found, list) else [found]


def _is_options(value: Any) -> bool:
    return isinstance(value, dict) and "operand" not in value


@pytest.mark.skipif(not replay.files("validation"), reason="../shared/webnn is not there")
def test_calls_are_allowed_or_refused_as_the_platform_tests_say() -> None:
    counts: Counter[str] = Counter()
    for path in replay.files("validation"):
        for call in replay.cases(path):
            if "conflict" in call:
                # Scales of a lower rank, which the specification of 2026 has not any more.
                assert (verdict(call)[0], call["expect"]) == ("TypeError", "ok")
                assert verdict(call, strict_scale_rank=False)[0] == "ok"
                counts["conflicts"] += 1
            else:
                found, results = verdict(call)
                assert found == EXPECTED.get(call["test"], call["expect"]), call
                shapes = [list(operand.shape) for operand in results]
                if found == "ok" and "expectedShape" in call:
                    assert shapes[0] == call["expectedShape"], call
                for place, shape in (call.get("expectedShapes") or {}).items():
                    assert shapes[int(place)] == shape, call
                if found == "ok" and call.get("expectedDataType"):
                    assert results[0].data_type == call["expectedDataType"], call
                counts["as expected"] += 1
    assert counts == {"as expected": 1354, "conflicts": 4}


def recurrent(b: webnn.MLGraphBuilder, op: str, **options: Any) -> Any:
    """A call of hidden size 5, of 3 rows and 4 inputs, and 2 steps."""

    def real(*shape: int) -> webnn.MLOperand:
        return b.input(f"x{next(NUMBERS)}", ("float32", shape))

    rows = 15 if op.startswith("gru") else 20
    if op.endswith("_cell"):
        states = [real(3, 5)] * (1 if op == "gru_cell" else 2)
        return getattr(b, op)(real(3, 4), real(rows, 4), real(rows, 5), *states, 5, **options)
    d = 2 if options.get("direction") == "both" else 1
    return getattr(b, op)(real(2, 3, 4), real(d, rows, 4), real(d, rows, 5), 2, 5, **options)


NUMBERS = count()


@pytest.mark.parametrize(
    ("op", "options", "shapes"),
    [
        ("gru", {}, [(1, 3, 5)]),
        ("gru", {"return_sequence": True, "direction": "both"}, [(2, 3, 5), (2, 2, 3, 5)]),
        ("gru", {"activations": ["relu", "tanh"], "layout": "rzn", "reset_after": False}, [(1, 3, 5)]),
        ("lstm", {}, [(1, 3, 5)] * 2),
        ("lstm", {"return_sequence": True, "direction": "backward"}, [(1, 3, 5), (1, 3, 5), (2, 1, 3, 5)]),
        ("gru_cell", {"layout": "rzn"}, [(3, 5)]),
        ("lstm_cell", {"layout": "ifgo", "activations": ["relu"] * 3}, [(3, 5)] * 2),
    ],
)
def test_recurrent_networks_are_validated_and_refused_at_build(op: str, options: Any, shapes: Any) -> None:
    b = builder()
    found = recurrent(b, op, label="rnn", **options)
    results = found if isinstance(found, list) else [found]
    assert [item.shape for item in results] == shapes
    with pytest.raises(webnn.NotSupportedError, match=r"\[rnn\].*write the steps out with gemm, sigmoid and tanh"):
        b.build({"y": results[-1]})


@pytest.mark.parametrize("op", ["gru", "gru_cell", "lstm", "lstm_cell"])
@pytest.mark.parametrize(
    "options",
    [
        {"layout": "nchw"},
        {"activations": ["tanh"]},
        {"activations": "tanh"},
        {"activations": ["elu"] * 3},
        {"activations": 3},
    ],
)
def test_options_of_recurrent_networks_are_checked(op: str, options: Any) -> None:
    with pytest.raises(webnn.MLTypeError):
        recurrent(builder(), op, **options)


def test_an_error_is_both_type_and_value_error_and_names_label_operand_rule_and_section() -> None:
    b = builder()
    x, w = b.input("x", ("float32", [1, 8, 4, 4])), b.input("w", ("float32", [4, 3, 3, 3]))
    with pytest.raises(webnn.MLTypeError) as caught:
        b.conv2d(x, w, label="conv#1")
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)
    message = str(caught.value)
    for part in ("[conv#1]", "conv2d", "filter", "3 input channels", "8.9.10", "webnn.conv2d.channels"):
        assert part in message


@pytest.mark.parametrize(
    "call",
    [
        lambda b, x: b.add(x, 3),
        lambda b, x: b.add(x, builder().input("y", ("int8", [2, 3]))),
        lambda b, x: b.add(x, b.input("y", ("uint8", [2, 3]))),
        lambda b, x: b.add(x, b.input("y", ("int8", [2, 2]))),
        lambda b, x: b.reshape(x, [5]),
        lambda b, x: b.reshape(x, [6, True]),
        lambda b, x: b.reshape(x, "6"),
        lambda b, x: b.reshape(x, [-6, -1]),
        lambda b, x: b.expand(x, [2**20, 2**20, 2, 3]),
        lambda b, x: b.tile(x, [2**31, 2**31]),
        lambda b, x: b.transpose(x, permutation=[0, 0]),
        lambda b, x: b.transpose(x, permutation=[0]),
        lambda b, x: b.clamp(x, min_value=3, max_value=2),
        lambda b, x: b.clamp(x, min_value="3"),
        lambda b, x: b.concat([], 0),
        lambda b, x: b.split(x, [1, 1], axis=1),
        lambda b, x: b.split(x, 2, axis=1),
        lambda b, x: b.slice(x, [0, 0], [2, 4]),
        lambda b, x: b.arg_max(x, 2),
        lambda b, x: b.arg_max(x, 0, output_data_type="int8"),
        lambda b, x: b.reduce_sum(x),
        lambda b, x: b.cumulative_sum(x, 0),
        lambda b, x: b.cast(x, "int4"),
        lambda b, x: b.relu(x, label=3),
        lambda b, x: b.pad(x, [1, 1], [3, 3], mode="reflection"),
        lambda b, x: b.pad(x, [1, 1], [1, 1], mode="mirror"),
        lambda b, x: b.input("x", ("int8", [1])),
        lambda b, x: b.input("", ("int8", [1])),
        lambda b, x: b.input("y", ("int8", [0])),
        lambda b, x: b.input("y", ("int16", [1])),
        lambda b, x: b.input("y", {"dataType": "int8", "dimensions": [1]}),
        lambda b, x: b.input("y", ("int8", [1]), value_range=(-129, 0)),
        lambda b, x: b.input("y", ("float32", [1]), value_range=(0, 1)),
        lambda b, x: b.constant(("int8", [2]), np.zeros(3, np.int8)),
        lambda b, x: b.constant(("int8", [2]), np.zeros(2, np.uint8)),
        lambda b, x: b.constant(("int8", [2]), b"123"),
        lambda b, x: b.constant(("int8", [2]), [1, 300]),
        lambda b, x: b.constant(np.zeros(2, np.complex64)),
        lambda b, x: b.build({}),
        lambda b, x: b.build({"x": x}),
        lambda b, x: b.build({"": b.neg(x)}),
        lambda b, x: b.build({"y": builder().neg(x)}),
    ],
)
def test_what_breaks_a_rule_is_a_type_error(call: Any) -> None:
    b = builder()
    with pytest.raises(webnn.MLTypeError):
        call(b, b.input("x", ("int8", [2, 3])))


def test_a_builder_builds_once() -> None:
    b = builder()
    y = b.neg(b.input("x", ("int8", [2])))
    b.build({"y": y})
    for call in (lambda: b.build({"y": y}), lambda: b.neg(y), lambda: b.input("z", ("int8", [1]))):
        with pytest.raises(webnn.InvalidStateError):
            call()


def test_scales_have_the_rank_of_what_they_scale_and_are_positive_unless_asked_otherwise() -> None:
    def quantised(scale: Any, **options: Any) -> webnn.MLOperand:
        b = builder(**options)
        zero = b.constant(np.zeros(np.shape(scale), np.int8))
        return b.quantize_linear(b.input("x", ("float32", [2, 4])), b.constant(np.array(scale, np.float32)), zero)

    assert quantised([[0.5, 0.25]]).shape == (2, 4)
    for scale in ([0.5], [[0.5, 0.5, 0.5]], [[-0.5]], [[0.0]], [[np.inf]]):
        with pytest.raises(webnn.MLTypeError):
            quantised(scale)
    assert quantised([0.5], strict_scale_rank=False).data_type == "int8"
    assert quantised([[-0.5]], allow_negative_scale=True).data_type == "int8"
    with pytest.raises(webnn.MLTypeError):
        quantised([[0.0]], allow_negative_scale=True)


def test_methods_have_the_names_of_the_specification_too() -> None:
    b = builder()
    x = b.input("x", ("int8", [1, 1, 4, 4]))
    first = b.maxPool2d(x, windowDimensions=[2, 2], outputShapeRounding="ceil")
    assert first.shape == b.max_pool2d(x, window_dimensions=[2, 2], output_shape_rounding="ceil").shape
    assert b.argMax(x, 1, keepDimensions=True).dataType == "int32"
    with pytest.raises(AttributeError):
        b.lstmm  # noqa: B018
