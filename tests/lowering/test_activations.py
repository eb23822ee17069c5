"""Activation functions over inputs and outputs of many widths, per tensor and per channel, and softmax over axes."""

from __future__ import annotations

from functools import partial
from random import Random

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

test_a_few_documents = drawn(CASES, 8)
test_many_documents = exhaustively(CASES)
