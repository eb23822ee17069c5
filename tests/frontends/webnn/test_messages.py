"""Refusals name calls and operands as who built the graph does, and say what to put where."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cvm import webnn

INTERNAL = re.compile(r"\b\w+_\d+\.\w+|\bconstant\.\d+")
"""Tensors inside of a call are called after its result, with a number or a word."""


def real(builder: Any, name: str, shape: tuple[int, ...] = (1, 4)) -> Any:
    ones = (1,) * len(shape)
    return builder.dequantize_linear(
        builder.input(name, ("int8", shape)), np.full(ones, 0.1, np.float32), np.zeros(ones, np.int8)
    )


def rounded(builder: Any, operand: Any) -> Any:
    ones = (1,) * operand.rank
    return builder.quantize_linear(operand, np.full(ones, 0.1, np.float32), np.zeros(ones, np.int8))


def product(builder: Any, label: str = "") -> Any:
    return builder.matmul(real(builder, "x"), real(builder, "w", (4, 4)), label=label)


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda b: rounded(b, b.softmax(product(b, "dense"), 1, label="act")),
        r"\[act\] softmax: .*nothing rounds the result 'dense_1' of \[dense\] matmul; put .* and softmax, or give",
    ),
    (
        lambda b: rounded(b, b.softmax(product(b), 1)),
        "softmax: .*it reads codes, but nothing rounds the result 'matmul_1' of matmul; put quantizeLinear",
    ),
    (
        lambda b: rounded(b, b.sin(b.conv2d(real(b, "x", (1, 2, 4, 4)), real(b, "w", (2, 2, 3, 3))), label="act")),
        "combinations of codes; here there are .*, and nothing rounds the result 'conv2d_1' of conv2d; put",
    ),
    (
        lambda b: rounded(b, b.layer_normalization(b.exp(real(b, "x")), scale=b.reshape(real(b, "s"), [4]))),
        r"nothing rounds the result 'exp_1' of exp; put",
    ),
    (
        lambda b: rounded(b, b.batch_normalization(real(b, "x"), b.reshape(real(b, "m"), [4]), np.ones(4, np.float32))),
        "mean must be constant, but the result 'reshape_1' of reshape is computed; give it as a constant, or",
    ),
    (
        lambda b: rounded(b, b.div(real(b, "y"), product(b, "low"))),
        r"the result 'low_1' of \[low\] matmul(; put quantizeLinear| is not proven to differ from zero)",
    ),
    (
        lambda b: rounded(b, b.pow(real(b, "x"), b.reshape(real(b, "y", (4,)), [1, 4]))),
        "at the codes x = -128, .*fractional power; clamp its operand",
    ),
    (lambda b: b.relu(real(b, "x")), "as the output 'y'; give its quantizeLinear, .*calibration"),
    (
        lambda b: rounded(b, b.relu(b.input("x", ("float32", [1, 4])))),
        "relu reads it; read it through quantizeLinear and dequantizeLinear, or give build.*calibration",
    ),
]


@pytest.mark.parametrize(("build", "message"), REFUSED)
def test_a_refusal_names_the_call_and_says_what_to_put_where(build: Callable[[Any], Any], message: str) -> None:
    builder = webnn.MLGraphBuilder(webnn.ML().create_context(executor="numpy"))
    output = build(builder)
    with pytest.raises(webnn.NotSupportedError, match=message) as caught:
        builder.build({"y": output})
    assert not INTERNAL.search(caught.value.message), caught.value.message
    assert "graph.quant" not in caught.value.message
