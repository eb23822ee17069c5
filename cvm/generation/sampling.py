"""The choice of a token from logits, in int32 ops.

*Greedy*: the first of the greatest logits.

*Drawn*: with the distance d_i of logit i from the greatest one, in codes, token i has the integer weight
w_i = round(2^30 * exp(-scale * d_i / temperature)), and 0 if it is not among the top k. For s from 1 to 2^31 - 2 from
the random generator and r = (s - 1) / (2^31 - 2), the token is the number of those i with
w_0 + .. + w_i <= r * (w_0 + .. + w_{V-1}). This comparison is exact: for whole numbers it is
ceil((2^31 - 2) * (w_0 + .. + w_i) / total) < s, one `quotient`.

Sums of up to 2^20 weights do not fit 32 bits. So weights are split into digits, which are summed one by one; the
quotient puts the sums together.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from cvm.errors import LimitExceeded, Location
from cvm.generation.emission import DENSE, Emitter, blocked, cumulated
from cvm.generation.settings import MODULUS, MULTIPLIER, SEEDS, Sampling
from cvm.generation.weights import WEIGHT_BITS, weights
from cvm.limits import INT32_MAX
from cvm.records import dataclass

__all__ = ["MOST_VOCABULARY", "advanced", "chosen"]

MOST_VOCABULARY = 2**20
"""The most tokens of a vocabulary."""

_SHORT = 255 * 256
"""Vocabularies up to this size have weights of two digits of 15 bits, larger ones of three of 10 bits: the sums of one
digit over all blocks, the zeros that fill the last one counted, fit 31 bits."""


def advanced(emit: Emitter, state: str) -> str:
    """The next number of the random generator: MULTIPLIER * s mod MODULUS, from 1 to MODULUS - 1, as is s.

    The product has 61 bits: `quotient` and `requantize` compute with 127 and 64 bits inside.
    """
    a, zero, p, minus = emit.parameters(MULTIPLIER, 0, MODULUS, -MODULUS)
    whole = emit.op(
        "quotient", state, state, a, zero, zero, p, terms=1, rounding="toward_zero", lo=0, hi=MULTIPLIER, name="random"
    )
    lo, hi = SEEDS
    return emit.op("requantize", state, whole, a, minus, zero, zero, rounding="half_up", lo=lo, hi=hi, name="random")


def chosen(emit: Emitter, logits: str, scale: Fraction, sampling: Sampling, random: str | None) -> str:
    """The token that follows from a row of logits, (1, V); ``random`` is not used if the choice is greedy: (1,).

    Raises `LimitExceeded` (``limit.logits``, ``limit.weights``).
    """
    if sampling.greedy:
        return _greatest(emit, logits)
    assert random is not None
    size = emit.builder.shape(logits)[1]
    lo, hi = emit.builder.range(logits).hull()
    if hi - lo > INT32_MAX:
        message = f"logits from {lo} to {hi} are too far apart: expected a quantiser of at most 31 bits"
        raise LimitExceeded("limit.logits", message, Location(tensor=logits))
    table = weights(scale / sampling.temperature, hi - lo)
    none = len(table)
    greatest = emit.op("max", logits, axes=(1,), keepdims=True, name="greatest")
    distance = emit.op("broadcast_sub", greatest, logits, name="distance")
    distance = emit.clip(distance, 0, none, "distance")
    if sampling.top_k is not None and sampling.top_k < size:
        cut = _first if size <= DENSE else _nearest
        kept = cut(emit, distance, none, sampling.top_k)
        dropped = emit.constant(np.full((1, size), none), "dropped")
        distance = emit.op("where", kept, distance, dropped, name="distance")
    return _drawn(emit, distance, [*table, 0], random)


def _greatest(emit: Emitter, logits: str) -> str:
    """The index of the first of the greatest elements: the largest of V - i among them, from V."""
    size = emit.builder.shape(logits)[1]
    greatest = emit.op("max", logits, axes=(1,), keepdims=True, name="greatest")
    less = emit.greater(greatest, logits, "less")
    places = emit.constant(np.arange(size, 0, -1).reshape(1, size), "places")
    none = emit.constant(np.zeros((1, size), np.int8), "none")
    place = emit.op("max", emit.op("where", less, none, places, name="place"), axes=(1,), name="place")
    index = emit.op("broadcast_sub", emit.constant([size], "size"), place, name="index")
    return emit.clip(index, 0, size - 1, "token")


def _first(emit: Emitter, distance: str, most: int, k: int) -> str:
    """1 for the k least distances, of equals those that come first, else 0: fewer than k others come before it."""
    size = emit.builder.shape(distance)[1]
    factor, index = emit.constant([[size]], "size"), emit.constant(np.arange(size).reshape(1, size), "index")
    key = emit.op("broadcast_mul", distance, factor, name="key")
    key = emit.op("broadcast_add", key, index, name="key")
    before = emit.greater(key, emit.reshaped(key, (size, 1), "key"), "before")
    rank = emit.op("sum", before, axes=(0,), keepdims=True, name="rank")
    return emit.greater(emit.constant([[k]], "k"), rank, "kept")


def _nearest(emit: Emitter, distance: str, most: int, k: int) -> str:
    """As `_first`, for long rows: the distance of the k-th is found bit by bit, and equals are counted.

    ``limit`` is the greatest number with fewer than k distances below it.
    """
    candidates, one = emit.constant([[k]], "k"), emit.constant([[1]], "one")
    limit = emit.constant([[0]], "zero")
    for bit in reversed(range(most.bit_length())):
        power = emit.constant([[1 << bit]], "power")
        tried = emit.op("broadcast_add", limit, power, name="tried")
        count = emit.total(emit.greater(tried, distance, "below"), "count")
        more = emit.op("broadcast_mul", emit.greater(candidates, count, "more"), power, name="more")
        limit = emit.op("broadcast_add", limit, more, name="limit")
    below, above = emit.greater(limit, distance, "below"), emit.greater(distance, limit, "above")
    tied = emit.op("broadcast_sub", one, emit.op("elemwise_add", below, above, name="other"), name="tied")
    tied = emit.clip(tied, 0, 1, "tied")
    room = emit.op("broadcast_sub", candidates, emit.total(below, "count"), name="room")
    after = emit.greater(cumulated(emit, tied, "order"), room, "after")
    left = emit.clip(emit.op("elemwise_sub", tied, after, name="kept"), 0, 1, "kept")
    return emit.op("elemwise_add", below, left, name="kept")


def _drawn(emit: Emitter, distance: str, table: list[int], random: str) -> str:
    """The token with the share of all weights in which the random number lies.

    In a long row the block is found first, by the sums up to the ends of the blocks, and then the token in this block.
    """
    size = emit.builder.shape(distance)[1]
    bits = 15 if size <= _SHORT else 10
    shifts = range(0, WEIGHT_BITS, bits)[::-1]
    digits, totals = [], []
    for shift in shifts:
        items = np.array(table) >> shift
        if shift != shifts[0]:
            items &= (1 << bits) - 1
        digit = emit.op("cvm_lut", emit.constant(items, "weights"), distance, name="weight")
        total = emit.total(digit, "total")
        if shift == shifts[0]:
            # The greatest logit has the distance 0 and is never cut: this states what the interval does not show.
            total = emit.clip(total, 1 << bits, size << bits, "total")
        digits.append(digit)
        totals.append(total)
    share = _Share(totals, tuple(1 << shift for shift in shifts), emit.reshaped(random, (1, 1), "random"))
    if size <= DENSE:
        index = _passed(emit, [cumulated(emit, digit, "sum") for digit in digits], share)
        return emit.clip(index, 0, size - 1, "token")
    blocks = [blocked(emit, digit, "sum") for digit in digits]
    rows, width = blocks[0].rows, blocks[0].width
    row = emit.clip(_passed(emit, [item.ends for item in blocks], share), 0, rows - 1, "block")
    sums = []
    for item in blocks:
        parts = (emit.op("take", part, row, axis=0, name="sum") for part in (item.within, item.before))
        sums.append(emit.op("broadcast_add", *parts, name="sum"))
    place = _passed(emit, sums, share)
    first = emit.op("broadcast_mul", row, emit.constant([width], "width"), name="index")
    return emit.clip(emit.op("elemwise_add", first, place, name="index"), 0, size - 1, "token")


@dataclass(frozen=True, slots=True)
class _Share:
    """What sums of weights are compared with: digits of the total, what each digit counts, and the random number."""

    totals: Sequence[str]
    parts: Sequence[int]
    random: str


def _passed(emit: Emitter, sums: Sequence[str], share: _Share) -> str:
    """How many of the sums, given in digits, have a share of the total that is not above the random number: (1,)."""
    factors = [SEEDS[1] * part for part in share.parts]
    parameters = emit.parameters(*factors, *share.parts, *share.parts, -1, 0)
    ends = emit.op(
        "quotient", *sums, *share.totals, *share.totals, *parameters,
        terms=2 * len(sums), rounding="toward_zero", lo=0, hi=SEEDS[1], name="share",
    )  # fmt: skip
    return emit.op("sum", emit.greater(share.random, ends, "passed"), axes=(1,), name="index")
