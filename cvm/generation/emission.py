"""Writing ops in short form, and sums along a row: a long one is cut into blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.program import ProgramBuilder
from cvm.records import dataclass

__all__ = ["DENSE", "Blocks", "Emitter", "blocked", "cumulated"]

DENSE = 256
"""The longest row that one matrix sums: longer ones are cut into blocks."""


class Emitter:
    """Adds ops to a program under construction; methods take and return the names of values."""

    def __init__(self, builder: ProgramBuilder) -> None:
        self.builder = builder

    def constant(self, values: npt.ArrayLike, name: str) -> str:
        """A constant tensor."""
        return self.builder.constant(values, name)

    def parameters(self, *values: int) -> list[str]:
        """An int64 parameter of one element for each value."""
        return [self.builder.parameter(np.array([value], np.int64)) for value in values]

    def op(self, op: str, *inputs: str, name: str, **attributes: Any) -> str:
        """The result of an op that has one."""
        return self.builder.add(op, inputs, attributes, name)[0]

    def greater(self, a: str, b: str, name: str) -> str:
        """1 where a > b, else 0."""
        return self.op("broadcast_greater", a, b, name=name)

    def clip(self, x: str, lo: int, hi: int, name: str) -> str:
        """X within [lo, hi]."""
        return self.op("clip", x, a_min=lo, a_max=hi, name=name)

    def reshaped(self, x: str, shape: Sequence[int], name: str) -> str:
        """X in another shape; x itself if it has that shape."""
        if self.builder.shape(x) == tuple(shape):
            return x
        return self.op("reshape", x, target_shape=tuple(shape), name=name)

    def total(self, x: str, name: str) -> str:
        """The sum of a row: (1, n) becomes (1, 1)."""
        return self.op("sum", x, axes=(1,), keepdims=True, name=name)


def cumulated(emit: Emitter, x: str, name: str) -> str:
    """The sums of the first 1, 2, .., n elements of a row: (1, n)."""
    count = emit.builder.shape(x)[1]
    if count <= DENSE:
        return emit.op("dense", x, _triangle(emit, count, 0), name=name)
    blocks = blocked(emit, x, name)
    sums = emit.op("broadcast_add", blocks.within, blocks.before, name=name)
    sums = emit.reshaped(sums, (1, blocks.rows * blocks.width), name)
    return (
        sums if blocks.rows * blocks.width == count else emit.op("slice", sums, begin=(0, 0), end=(1, count), name=name)
    )


@dataclass(frozen=True, slots=True)
class Blocks:
    """The sums along a long row, which is cut into rows of equal width; zeros fill the last one."""

    rows: int
    width: int
    within: str
    """The sums of the first elements of each block: (rows, width)."""
    before: str
    """The sum of all elements before each block: (rows, 1)."""
    ends: str
    """The sum of all elements up to the end of each block: (1, rows)."""


def blocked(emit: Emitter, x: str, name: str) -> Blocks:
    """The sums along a row in blocks of about sqrt(n): products with a triangular matrix within and between them."""
    count = emit.builder.shape(x)[1]
    width = 1 << math.ceil(math.log2(count) / 2)
    rows = -(-count // width)
    if missing := rows * width - count:
        x = emit.op("concatenate", x, emit.constant(np.zeros((1, missing), np.int8), "none"), axis=1, name=name)
    blocks = emit.reshaped(x, (rows, width), name)
    within = emit.op("dense", blocks, _triangle(emit, width, 0), name=name)
    totals = emit.reshaped(emit.op("sum", blocks, axes=(1,), keepdims=True, name=name), (1, rows), name)
    before = emit.reshaped(emit.op("dense", totals, _triangle(emit, rows, -1), name=name), (rows, 1), name)
    ends = emit.op("dense", totals, _triangle(emit, rows, 0), name=name)
    return Blocks(rows, width, within, before, ends)


def _triangle(emit: Emitter, count: int, last: int) -> str:
    """Row i has ones up to column i + last."""
    return emit.constant(np.tri(count, count, last, dtype=np.int8), "triangle")
