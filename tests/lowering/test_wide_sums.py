"""Functions of sums that have too many values for a table lower exactly: piecewise linear ones, however they go on."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

import pytest

from cvm.frontends import nnef
from cvm.lowering import lower
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
NEXT = {"sum": "add({y}, {other})", "mean": "mean_reduce({y}, axes = [2, 3])", "difference": "sub({y}, {x})"}
CASES: Cases = {name: partial(quantised, call) for name, call in CALLS.items()} | {
    f"{name} {what}": partial(going_on, call, then) for name, call in BENDS.items() for what, then in NEXT.items()
}

test_a_few_documents = drawn(CASES, 3)
test_many_documents = exhaustively(CASES)


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
