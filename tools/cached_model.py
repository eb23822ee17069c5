"""A small language model with a cache, as programs that read any number of tokens at once: for pages and tests."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cvm.program import Output, Program, ProgramBuilder
from cvm.quantization import LinearQuantizer

__all__ = ["CONTEXT", "SIZE", "cached"]

SIZE, WIDTH, CONTEXT = 23, 40, 90
_MOST = 2000


def cached(
    tokens: int,
    last_only: bool = False,
    shift: int = 7,
    context: int = CONTEXT,
    step: int = 0,
    size: int = SIZE,
    width: int = WIDTH,
) -> Program:
    """Token number t has the logits head * round(sum of the embeddings of tokens 0..t / 2^shift).

    With ``last_only`` there are no logits but those of the last token. ``step`` is what the position counts, if it is
    not the number of tokens, ``size`` the number of tokens in the vocabulary, and
    ``width`` the length of an embedding.
    """
    drawn = np.random.default_rng(7)
    embedding, head = drawn.integers(-100, 101, (size, width)), drawn.integers(-100, 101, (size, width))
    builder = ProgramBuilder()
    token = builder.input("token", (tokens,), 0, size - 1)
    memory = builder.state("memory", builder.constant(np.zeros((context, width), np.int8), "empty"), -100, 100)
    position = builder.state("position", builder.constant([0], "begin"), 0, context)
    (rows,) = builder.add("take", [builder.constant(embedding, "embedding"), token], {"axis": 0})
    (new,) = builder.add("update_slice", [memory, rows, position], {"axis": 0}, "memory_next")
    (reached,) = builder.add("broadcast_add", [builder.constant(np.arange(1, tokens + 1)[:, None], "own"), position])
    (seen,) = builder.add("broadcast_greater", [reached, builder.constant([np.arange(context)], "places")])
    (sums,) = builder.add("matmul", [seen, new], {"transpose_a": False, "transpose_b": False})
    one, zero, five, by = (builder.parameter([number]) for number in (1, 0, 9, shift))
    (mean,) = builder.add("requantize", [sums, one, zero, by], {"rounding": "half_up", "lo": -127, "hi": 127})
    (sums,) = builder.add("dense", [mean, builder.constant(head, "head")])
    ends = {"rounding": "half_up", "lo": -_MOST, "hi": _MOST}
    (logits,) = builder.add("requantize", [sums, one, zero, five], ends, "logits")
    if last_only:
        (logits,) = builder.add("slice", [logits], {"begin": (tokens - 1, 0), "end": (tokens, size)}, "last")
    (after,) = builder.add("broadcast_add", [position, builder.constant([step or tokens], "step")])
    (after,) = builder.add("clip", [after], {"a_min": 0, "a_max": context})
    builder.update("memory", new)
    builder.update("position", after)
    scale = LinearQuantizer((Fraction(1, 64),), (Fraction(0),), -_MOST, _MOST)
    return builder.build([Output("logits", logits, scale)])
