"""Activation functions over inputs and outputs of many widths, per tensor and per channel, and softmax over axes."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from random import Random

import numpy as np
import pytest

from cvm.errors import Unsupported
from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph, declaration
from cvm.lowering import lower
from cvm.quantization import LinearQuantizer
from cvm.session import Session
from tests.lowering.documents import Document
from tests.lowering.properties import Cases, check, drawn, exhaustively


def activation(call: str, random: Random) -> None:
    document = Document(random)
    x = document.external((2, 3))
    if random.random() < 0.5:
        # Ranges per channel, as the Khronos tools write them.
        lows = [round(random.uniform(-2, -0.5), 3) for _ in range(3)]
        x = document.apply(f"copy({x})")
        document.quantisers[x] = (
            f"min_max_linear_quantize(min = {lows}, max = [1.5, 1.25, 2.0], bits = 6, signed = true, symmetric = false)"
        )
    y = document.apply(call.format(x=x))
    document.quantise(y, bits=random.choice([2, 8, 12, 16]))
    check(document, y)


def softmax(random: Random) -> None:
    document = Document(random)
    shape = tuple(random.randint(1, 3) for _ in range(3))
    x = document.external(shape, -3.0, 3.0)
    axes = random.sample(range(3), random.randint(1, 3))
    check(document, document.apply(f"softmax({x}, axes = {axes})"))


CALLS = {
    "gelu": "gelu({x})",
    "silu": "silu({x})",
    "selu": "selu({x})",
    "elu": "elu({x}, alpha = 0.7)",
    "softabs": "softabs({x}, epsilon = 0.01)",
    "prelu": "prelu({x}, 0.3)",
    "tanh": "tanh({x})",
    "softplus": "softplus({x})",
}
CASES: Cases = {name: partial(activation, call) for name, call in CALLS.items()} | {"softmax": softmax}

test_a_few_documents = drawn(CASES, 5)
test_many_documents = exhaustively(CASES)


@pytest.mark.parametrize(("kind", "half"), [("none", "0.345731230631"), ("tanh", "0.345714012594"), (None, None)])
def test_gelu_is_the_function_that_is_named(kind: str | None, half: str | None) -> None:
    """At 1/2, to 12 digits; without an attribute that of the Khronos tools."""
    fine = LinearQuantizer((Fraction(1, 10**4),), (Fraction(0),), 0, 2**16 - 1)
    codes = LinearQuantizer((Fraction(1, 2),), (Fraction(0),), 0, 1)
    tensors = {
        "x": GraphTensor("x", (2,), "external", quantizer=codes),
        "y": GraphTensor("y", (2,), "computed", quantizer=fine),
    }
    _, attributes = declaration("gelu").complete({}, {} if kind is None else {"approximate": kind})
    graph = QuantizedGraph("g", ("x",), ("y",), tensors, (GraphOperation("gelu", {"x": "x"}, attributes, ("y",)),))
    found = Session(lower(graph), executor="numpy").run({"x": np.array([0, 1])}, codes=True)["y"]
    expected = round(float(half or 0.5 / (1 + math.exp(-0.851))) * 10**4)
    assert found.tolist() == [0, expected]


def test_a_gelu_that_nobody_knows_is_refused() -> None:
    codes = LinearQuantizer((Fraction(1, 2),), (Fraction(0),), 0, 1)
    tensors = {
        name: GraphTensor(name, (2,), kind, quantizer=codes) for name, kind in (("x", "external"), ("y", "computed"))
    }
    operation = GraphOperation("gelu", {"x": "x"}, {"approximate": "cubic"}, ("y",))
    with pytest.raises(Unsupported, match="approximate is 'cubic'"):
        lower(QuantizedGraph("g", ("x",), ("y",), tensors, (operation,)))
