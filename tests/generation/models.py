"""A decode step that gives chosen logits, and the choice of tokens in plain Python with exact fractions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from cvm.generation.settings import MODULUS, MULTIPLIER
from cvm.program import Output, Program, ProgramBuilder
from cvm.quantization import LinearQuantizer

__all__ = ["drawn", "given_logits", "kept", "next_random", "quantizer"]


def quantizer(scale: Fraction, lo: int, hi: int) -> LinearQuantizer:
    """A quantiser with offset 0."""
    return LinearQuantizer((scale,), (Fraction(0),), lo, hi)


def given_logits(rows: Sequence[Sequence[int]], scale: Fraction, lo: int, hi: int) -> Program:
    """A decode step whose logits are row number t in its t-th cycle, whatever the token is."""
    table = np.array(rows)
    count, size = table.shape
    builder = ProgramBuilder()
    builder.input("token", (1,), 0, size - 1)
    turn = builder.state("turn", builder.constant([0], "begin"), 0, count)
    limits = builder.constant([[lo], [hi]] if size == 1 else [[lo] * size, [hi] * size], "limits")
    (rows_,) = builder.add("concatenate", [builder.constant(table, "rows"), limits], {"axis": 0})
    (logits,) = builder.add("take", [rows_, turn], {"axis": 0}, "logits")
    (after,) = builder.add("broadcast_add", [turn, builder.constant([1], "one")])
    (after,) = builder.add("clip", [after], {"a_min": 0, "a_max": count})
    builder.update("turn", after)
    return builder.build([Output("logits", logits, quantizer(scale, lo, hi))])


def next_random(state: int) -> int:
    """The next number of the generator."""
    return MULTIPLIER * state % MODULUS


def kept(logits: Sequence[int], k: int) -> set[int]:
    """The k tokens with the greatest logits, of equals those that come first."""
    return set(sorted(range(len(logits)), key=lambda token: (-logits[token], token))[:k])


def drawn(logits: Sequence[int], weights: Sequence[int], k: int | None, random: int) -> int:
    """The token that ``random`` draws; weights by the distance from the greatest logit, 0 beyond the table."""
    greatest, among = max(logits), kept(logits, len(logits) if k is None else k)
    found = [
        weights[greatest - logit] if token in among and greatest - logit < len(weights) else 0
        for token, logit in enumerate(logits)
    ]
    part, total = Fraction(random - 1, MODULUS - 1), sum(found)
    return sum(Fraction(sum(found[: token + 1]), total) <= part for token in range(len(logits)))
