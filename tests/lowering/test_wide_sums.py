"""Functions of sums that have too many values for a table lower exactly: piecewise linear ones, however they go on."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest

from cvm.frontends import nnef
from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph
from cvm.lowering import lower
from cvm.quantization import LinearQuantizer
from cvm.quantization.reals import code, gelu, gelu_sigmoid, gelu_tanh, rational
from cvm.session import Session
from tests.lowering.documents import Document
from tests.lowering.properties import Cases, check, drawn, exhaustively


def wide(document: Document, channels: int = 3) -> str:
    """A convolution of 16 bits, with a bias: its sums have some 2^24 values."""
    x = document.external((1, 4, 2, 2))
    document.quantise(x, bits=16)
    weights = document.variable((channels, 4, 1, 1))
    bias = document.variable((1, channels), quantised=False)
    return document.apply(f"conv({x}, {weights}, {bias}, padding = [])", quantised=False)


def normalised(document: Document) -> str:
    """The convolution after a batch normalisation, whose coefficients are roots."""
    mean, variance = (document.variable((1, 3), low, 2.0, quantised=False) for low in (-1.0, 0.5))
    call = f"batch_normalization({wide(document)}, {mean}, {variance}, 0.25, 1.5, epsilon = 0.001)"
    return document.apply(call, quantised=False)


def alpha(document: Document) -> str:
    """Slopes per channel, beyond 1 and below 0 too."""
    return document.variable((1, 3), -1.5, 2.0, quantised=document.random.random() < 0.5)


def quantised(call: str, random: Random) -> None:
    document = Document(random)
    x = (wide if random.random() < 0.7 else normalised)(document)
    a = alpha(document) if "{a}" in call else ""
    y = document.apply(call.format(x=x, a=a), -1.0, 2.0)
    check(document, y)


def going_on(call: str, then: str, random: Random) -> None:
    """The result has no quantiser: the next operation takes the exact numbers."""
    document = Document(random)
    x = wide(document)
    other = document.external((1, 3, 2, 2))
    a = alpha(document) if "{a}" in call else ""
    y = document.apply(call.format(x=x, a=a), quantised=False)
    check(document, document.apply(then.format(y=y, x=x, other=other), -1.0, 2.0))


CALLS = {
    "leaky": "leaky_relu({x}, alpha = 0.1)",
    "steep": "leaky_relu({x}, alpha = 1.5)",
    "falling": "leaky_relu({x}, alpha = -0.5)",
    "prelu": "prelu({x}, {a})",
    "abs": "abs({x})",
}
BENDS = CALLS | {"sign": "sign({x})", "relu": "relu({x})", "clamp": "clamp({x}, -0.3, 0.4)", "max": "max({x}, 0.2)"}
FUNCTIONS = {
    name: f"{name}({{x}})"
    for name in (
        "sigmoid",
        "tanh",
        "exp",
        "softplus",
        "sqr",
        "silu",
        "elu",
        "selu",
        "gelu",
        "atan",
        "cosh",
        "floor",
        "ceil",
        "round",
    )
} | {
    "softabs": "softabs({x}, epsilon = 0.25)",
    "elu of negative alpha": "elu({x}, alpha = -0.5)",
}
CLAMPED = {"relu": "relu({x})", "clamp": "clamp({x}, -0.4, 0.7)"}
DOMAINS = {"sqrt": "sqrt({x})", "log": "log({x})", "log2": "log2({x})", "rsqrt": "rsqrt({x})"}


def function(call: str, random: Random) -> None:
    document = Document(random)
    x = (wide if random.random() < 0.7 else normalised)(document)
    if random.random() < 0.3:
        x = document.apply(random.choice(list(CLAMPED.values())).format(x=x), quantised=False)
    y = document.apply(call.format(x=x))
    document.quantise(y, *random.choice([(-1.0, 1.0), (-0.2, 2.0), (0.0, 1.0)]), random.choice([2, 4, 4, 8]))
    check(document, y)


def function_of_a_domain(call: str, random: Random) -> None:
    document = Document(random)
    x = document.apply(f"clamp({wide(document)}, 0.125, 0.875)", quantised=False)
    check(document, document.apply(call.format(x=x), 0.0, 2.0))


NEXT = {"sum": "add({y}, {other})", "mean": "mean_reduce({y}, axes = [2, 3])", "difference": "sub({y}, {x})"}
CASES: Cases = {name: partial(quantised, call) for name, call in CALLS.items()} | {
    f"{name} {what}": partial(going_on, call, then) for name, call in BENDS.items() for what, then in NEXT.items()
}

CASES |= {name: partial(function, call) for name, call in FUNCTIONS.items()}
CASES |= {name: partial(function_of_a_domain, call) for name, call in DOMAINS.items()}

test_a_few_documents = drawn(CASES, 2)
test_many_documents = exhaustively(CASES)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["none", "tanh", "sigmoid"])
def test_every_gelu_turns_where_it_is_least(kind: str) -> None:
    """Codes of 2^20 numbers from -5 to 5, at both ends, around the least value and at random, against exact ones."""
    source = LinearQuantizer((Fraction(10, 2**20),), (Fraction(-5),), 0, 2**20 - 1)
    result = LinearQuantizer((Fraction(1, 100),), (Fraction(-1, 5),), 0, 255)
    tensors = {
        "x": GraphTensor("x", (1, 600), "external", quantizer=source),
        "y": GraphTensor("y", (1, 600), "computed", quantizer=result),
    }
    operation = GraphOperation("gelu", {"x": "x"}, {"approximate": kind}, ("y",))
    program = lower(QuantizedGraph("g", ("x",), ("y",), tensors, (operation,)))
    random = Random(kind)
    least = [round((x + 5) / 10 * 2**20) + n for x in (-0.7518, -0.7525, -0.7512) for n in range(-50, 50)]
    codes = [0, 2**20 - 1, *least, *(random.randrange(2**20) for _ in range(298))]
    found = Session(program, executor="numpy").run({"x": np.array([codes])}, codes=True)["y"]
    real = {"none": gelu, "tanh": gelu_tanh, "sigmoid": gelu_sigmoid}[kind]
    numbers = [real(rational(Fraction(10 * q, 2**20) - 5)) for q in codes]
    assert found.tolist() == [[code(number, result) for number in numbers]]


def test_a_sum_goes_on_after_relu() -> None:
    document = Document(Random(2))
    names = [document.external((4,)) for _ in range(2)]
    for name in names:
        document.quantisers[name] = "linear_quantize(min = -1.0, max = 1.1, bits = 16)"
    relu = document.apply(f"relu({document.apply(f'add({names[0]}, {names[1]})', quantised=False)})", quantised=False)
    check(document, document.apply(f"sum_reduce({relu}, axes = [0])"))


@pytest.mark.parametrize("bound", ["0.0", "0.5"])
def test_a_bend_at_an_integer_clips_the_sum(bound: str, tmp_path: Path) -> None:
    """The sum stays one term: there is no comparison, and only the result is requantised."""
    document = Document(Random(1))
    x = document.external((1, 2))
    document.quantisers[x] = (
        "zero_point_linear_quantize(zero_point = 0, scale = 0.5, bits = 24, signed = true, symmetric = false)"
    )
    y = document.apply(f"mul({document.apply(f'max({x}, {bound})', quantised=False)}, 0.75)", quantised=False)
    z = document.apply(f"add({y}, {document.external((1, 2))})")
    document.write(tmp_path, z)
    ops = [node.op for node in lower(nnef.load(tmp_path)).nodes]
    assert ops == ["broadcast_max", "requantize"]
    check(document, z)
