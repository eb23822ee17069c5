"""Matrix products (NNEF 1.0.1 sections 4.7 and 4.9.2) of constants and computed tensors give exactly the codes."""

from __future__ import annotations

from random import Random

import numpy as np

from tests.lowering.documents import Document
from tests.lowering.properties import Cases, check, drawn, exhaustively


def side(document: Document, shape: tuple[int, ...], constant: bool) -> str:
    if constant:
        name = document.variable(shape, quantised=document.random.random() < 0.7)
        # Floats of 20 binary places: a float near 0 has so many that no sum of 64 bits holds it, and is refused.
        document.stored[name] = (np.round(document.stored[name] * 2.0**20) / 2.0**20).astype(np.float32)
        return name
    return document.external(shape)


def product(random: Random, constants: tuple[bool, bool], rank: int) -> None:
    document = Document(random)
    rows, count, columns = (random.randint(1, 4) for _ in range(3))
    batches: list[tuple[int, ...]] = [(), ()]
    for _ in range(rank - 2):
        extent = random.randint(1, 3)
        pair = random.choice([(extent, extent), (extent, 1), (1, extent)])
        batches = [(*batch, n) for batch, n in zip(batches, pair, strict=True)]
    turned = random.random() < 0.5, random.random() < 0.5
    a = (*batches[0], count, rows) if turned[0] else (*batches[0], rows, count)
    b = (*batches[1], columns, count) if turned[1] else (*batches[1], count, columns)
    x, y = side(document, a, constants[0]), side(document, b, constants[1])
    if constants != (True, True) and random.random() < 0.2:
        name = y if constants[0] else x
        other = document.apply(f"neg({name})", quantised=False)
        x, y = (x, other) if constants[0] else (other, y)
    flags = ", ".join(f"transpose{s} = {str(t).lower()}" for s, t in zip("AB", turned, strict=True))
    check(document, document.apply(f"matmul({x}, {y}, {flags})"))


def linear(random: Random) -> None:
    document = Document(random)
    rows, count, columns = (random.randint(1, 4) for _ in range(3))
    x = document.external((rows, count))
    w = side(document, (columns, count), random.random() < 0.5)
    bias = side(document, (random.choice([1, rows]), columns), random.random() < 0.5)
    check(document, document.apply(f"linear({x}, {w}, {bias})"))


def sum_times_constant(random: Random) -> None:
    document = Document(random)
    rows, count, columns = (random.randint(1, 4) for _ in range(3))
    x = document.apply(f"add({document.external((rows, count))}, {document.external((rows, count))})", quantised=False)
    check(document, document.apply(f"matmul({x}, {document.variable((count, columns))})"))


CASES: Cases = {
    "constant right": lambda random: product(random, (False, True), random.randint(2, 4)),
    "constant left": lambda random: product(random, (True, False), random.randint(2, 4)),
    "both computed": lambda random: product(random, (False, False), random.randint(2, 4)),
    "linear": linear,
    "sum of two tensors": sum_times_constant,
}

test_a_few_documents = drawn(CASES)
test_many_documents = exhaustively(CASES)
