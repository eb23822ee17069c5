"""Operands of every kind: codes, sums, products, pending clamps, tables, parts with ranges of their own, constants."""

from __future__ import annotations

import numpy as np

from tests.lowering.documents import Document

__all__ = ["CODED", "KINDS", "LINEAR", "broadcast", "operand", "shape_of", "stored"]

KINDS = ("input", "input", "input", "scaled", "moved", "sum", "clamped", "table", "parts", "variable", "stored")
LINEAR = tuple(kind for kind in KINDS if kind not in ("clamped", "table"))
"""Sums, which need no table whatever the width of their codes."""
CODED = ("input", "input", "scaled", "moved")
"""One integer with one factor, if its quantiser is for the whole tensor."""


def operand(
    document: Document,
    shape: tuple[int, ...],
    kinds: tuple[str, ...] = KINDS,
    low: float = -1.0,
    high: float = 1.0,
    bits: int = 16,
) -> str:
    """The name of a tensor with numbers in about [low, high]; codes of at most so many bits."""
    random = document.random
    kind = random.choice(kinds)
    if kind == "variable":
        return document.variable(shape, low, high)
    if kind == "stored":
        return stored(document, shape, low, high)
    if kind == "parts" and shape:
        return _parts(document, shape, low, high, bits)
    x = document.external(shape, low, high)
    document.quantise_within(x, low, high, min(bits, 8) if kind == "table" else bits)
    if kind == "sum":
        y = document.external(shape, low, high)
        document.quantise_within(y, low, high, bits)
        return document.apply(f"add({x}, {y})", quantised=False)
    calls = {
        "scaled": "mul({x}, 0.75)",
        "moved": f"add({{x}}, {abs(high) / 8!r})",
        "clamped": f"clamp({{x}}, {low / 2!r}, {high / 2!r})",
        "table": "tanh({x})" if low < 0 else "sqrt({x})",
    }
    if kind not in calls:
        return x
    return document.apply(calls[kind].format(x=x), quantised=False)


def _parts(document: Document, shape: tuple[int, ...], low: float, high: float, bits: int) -> str:
    random = document.random
    axes = [axis for axis, extent in enumerate(shape) if extent > 1]
    if not axes:
        return operand(document, shape, ("input",), low, high, bits)
    axis = random.choice(axes)
    first = random.randint(1, shape[axis] - 1)
    parts = []
    for extent in (first, shape[axis] - first):
        parts.append(document.external((*shape[:axis], extent, *shape[axis + 1 :]), low, high))
        document.quantise_within(parts[-1], low, high, bits)
    return document.apply(f"concat([{', '.join(parts)}], axis = {axis})", quantised=False)


def stored(document: Document, shape: tuple[int, ...], low: float = -1.0, high: float = 1.0) -> str:
    """An unquantised variable of floats with 12 binary places: with more of them no sum of 64 bits might hold it."""
    name = document.variable(shape, low, high, quantised=False)
    document.stored[name] = (np.round(document.stored[name] * 4096) / 4096).astype(np.float32)
    return name


def shape_of(document: Document, least: int = 1, most: int = 4, extent: int = 4) -> tuple[int, ...]:
    """A shape of a random rank."""
    random = document.random
    return tuple(random.randint(1, extent) for _ in range(random.randint(least, most)))


def broadcast(document: Document, rank: int = 3) -> list[tuple[int, ...]]:
    """Two shapes that broadcast, aligned at the first dimension; a scalar among them at times."""
    random = document.random
    whole = shape_of(document, 1, rank)
    cut = whole[: random.randint(1, len(whole))]
    other = tuple(extent if random.random() < 0.6 else 1 for extent in cut)
    pair = [whole, random.choice([whole, other, other])]
    if random.random() < 0.3:
        pair[0] = tuple(extent if random.random() < 0.7 or i >= len(pair[1]) else 1 for i, extent in enumerate(whole))
        if pair[1] == other:
            pair[1] = cut
    random.shuffle(pair)
    return pair
