"""A small program of one decode step with random weights, for pages and tests of `cvm generate`."""

from __future__ import annotations

import string
from fractions import Fraction

import numpy as np

from cvm.program import Output, Program, ProgramBuilder
from cvm.quantization import LinearQuantizer

__all__ = ["CHARACTERS", "CONTEXT", "decode_step"]

CHARACTERS = "\n ,.'" + string.ascii_letters
"""The vocabulary: the token of a character is its index."""
CONTEXT = 64

_LARGEST = 2000


def decode_step(size: int = len(CHARACTERS), context: int = CONTEXT, width: int = 12) -> Program:
    """A recurrent model with a memory of ``width`` codes and a position that counts up to ``context``.

    memory' = clip(round((400 * embedding[token] + 2 * mixing * memory) / 2^9)), logits = head * memory' / 2^5, with the
    scale 1/64. The weights depend on ``size`` and ``width`` alone.
    """
    drawn = np.random.default_rng(size)
    embedding, mixing, head = (drawn.integers(-127, 128, (rows, width)) for rows in (size, width, size))
    builder = ProgramBuilder()
    token = builder.input("token", (1,), 0, size - 1)
    memory = builder.state("memory", builder.constant(np.zeros((1, width), np.int8), "empty"), -127, 127)
    position = builder.state("position", builder.constant([0], "begin"), 0, context)
    (row,) = builder.add("take", [builder.constant(embedding, "embedding"), token], {"axis": 0})
    (mixed,) = builder.add("dense", [memory, builder.constant(mixing, "mixing")])
    one, two, zero, five, nine, factor = (builder.parameter([number]) for number in (1, 2, 0, 5, 9, 400))
    kept = {"rounding": "half_up", "lo": -127, "hi": 127}
    (new,) = builder.add("requantize", [row, mixed, factor, two, zero, nine], kept, "memory_next")
    (sums,) = builder.add("dense", [new, builder.constant(head, "head")])
    ends = {"rounding": "half_up", "lo": -_LARGEST, "hi": _LARGEST}
    (logits,) = builder.add("requantize", [sums, one, zero, five], ends, "logits")
    (after,) = builder.add("broadcast_add", [position, builder.constant([1], "one")])
    (after,) = builder.add("clip", [after], {"a_min": 0, "a_max": context})
    builder.update("memory", new)
    builder.update("position", after)
    scale = LinearQuantizer((Fraction(1, 64),), (Fraction(0),), -_LARGEST, _LARGEST)
    return builder.build([Output("logits", logits, scale)])
