"""Quantisation as an operation (NNEF 1.0.1 sections 4.9.5 and 7.2) and logarithmic weights, code by code."""

from __future__ import annotations

from random import Random

from tests.lowering.documents import Document
from tests.lowering.properties import Cases, check, drawn, exhaustively


def constant_range(random: Random) -> None:
    document = Document(random)
    x = document.external((2, 3))
    low, bits = random.uniform(-1, 0.3), random.choice([1, 3, 8])
    high = low + random.uniform(0.2, 1.5)
    y = document.apply(f"linear_quantize({x}, min = {low:.4f}, max = {high:.4f}, bits = {bits})", quantised=False)
    check(document, document.apply(f"mul({y}, 0.7)"))


def computed_range(random: Random) -> None:
    document = Document(random)
    shape = (random.randint(1, 2), random.randint(1, 3), random.randint(1, 3))
    x = document.external(shape)
    axes = random.choice([[0, 1, 2], [0, 2], [2]])
    high = document.apply(f"max_reduce({x}, axes = {axes})", quantised=random.random() < 0.3)
    low = "0.0"
    if random.random() < 0.5:
        low = document.apply(f"min_reduce({x}, axes = {axes})", quantised=random.random() < 0.3)
    bits = random.choice([2, 4, 8])
    y = document.apply(f"linear_quantize({x}, min = {low}, max = {high}, bits = {bits})", quantised=False)
    check(document, document.apply(f"copy({y})"))


def logarithmic(random: Random) -> None:
    document = Document(random)
    x = document.external((2, 5))
    if random.random() < 0.5:
        x = document.apply(f"add({x}, {document.external((2, 5))})", quantised=False)
    y = document.apply(
        f"logarithmic_quantize({x}, max = {random.uniform(0.1, 2):.3f}, bits = {random.randint(1, 4)})", quantised=False
    )
    check(document, document.apply(f"copy({y})"))


def logarithmic_weights(random: Random) -> None:
    document = Document(random)
    kind = random.choice(["conv", "linear", "linear"])
    bits = random.randint(2, 5) if kind == "linear" else random.randint(2, 4)
    if kind == "conv":
        x, w = document.external((1, 2, 4, 4)), document.variable((3, 2, 3, 3))
        call = f"conv({x}, {w}, 0.1)"
    else:
        x, w = document.external((2, 5)), document.variable((3, 5))
        call = f"linear({x}, {w}, 0.25)"
    document.quantisers[w] = f"logarithmic_quantize(max = {random.uniform(0.3, 1.5):.3f}, bits = {bits})"
    check(document, document.apply(call))


def quotient(random: Random) -> None:
    document = Document(random)
    x, y = document.external((2, 3)), document.external((2, 3), 0.2, 1.0)
    document.quantisers[y] = "linear_quantize(min = 0.11, max = 1.3, bits = 8)"
    a = document.apply(f"add({x}, {document.external((2, 3))})", quantised=False)
    b = document.apply(f"sum_reduce({y}, axes = [1])", quantised=False)
    check(document, document.apply(f"div({a}, {b})"))


CASES: Cases = {
    "constant range": constant_range,
    "computed range": computed_range,
    "logarithmic": logarithmic,
    "logarithmic weights": logarithmic_weights,
    "quotient": quotient,
}

test_a_few_documents = drawn(CASES, 5)
test_many_documents = exhaustively(CASES)
