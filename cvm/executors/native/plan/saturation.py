"""Products of bytes that saturate: which steps of a contraction are multiplied together, and which alone.

AVX2 multiplies two neighbouring bytes of an activation by two weights and clips the sum of both products to 16 bits. No
sum is clipped while the positive weights among the two add up to at most 128, and the negative ones to at least -128:
255 * 128 < 2^15. The same bounds let 16 bits hold such a sum over two steps, which is then widened to 32 bits once. So
steps are multiplied in pairs that keep these bounds in every channel, whatever their places in the window.

A step whose weights exceed the bounds by themselves is listed twice: once with what its weights have in excess, which
hardly ever keeps another step from its pair, and once alone, with the rest. A step without a partner is listed alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.records import dataclass

__all__ = ["Listed", "excess", "listed", "often_exceeded"]

Integers = npt.NDArray[np.signedinteger[Any]]
Bytes = npt.NDArray[np.int8]

MOST = 128
"""The largest sum of positive weights that times 255 fits in 16 bits, and the negative of the least one of negative
weights.
"""
CHANNELS, ELEMENTS = 16, 4
"""The channels and elements that AVX2 multiplies in one step: those of a block of two vectors."""
LOOKED_AT = 4
"""The most blocks of channels of a contraction whose steps are counted."""
WORTH = 4
"""Products of bytes are faster than those of 16 bits if at most one in this many steps has an excess."""
ROUNDS = 32
"""How many partners a step without one is offered. Later ones are hardly ever taken."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The steps of one block of channels in the order in which they are multiplied.

    ``steps`` are the numbers of the steps, and ``weights`` (steps, channels, 4) what each is multiplied by: first the
    ``pairs`` pairs, both steps one after the other, then the steps that are multiplied alone.
    """

    pairs: int
    steps: npt.NDArray[np.intp]
    weights: Bytes


def excess(weights: Bytes) -> Bytes:
    """What weights have in excess of what a saturating product takes: the first of each pair has all of it.

    The last axis has an even number of elements. Two weights of a byte that exceed the bounds have one sign, so the
    first of them can be made smaller by the whole excess, which is a weight of a byte itself.
    """
    first, second = weights[..., ::2], weights[..., 1::2]
    sums = np.add(first, second, dtype=np.int16)
    found = np.zeros_like(weights)
    found[..., ::2] = sums - sums.clip(-MOST, MOST)
    return found


def listed(weights: Bytes) -> list[Listed]:
    """The lists of several blocks. ``weights`` are (blocks, steps, channels, 4)."""
    more = excess(weights)
    over = np.asarray(more.any(axis=(2, 3)))
    within = np.where(over[:, :, None, None], more, weights)
    partner = _partners(within)
    found = []
    for number in range(len(weights)):
        first = np.flatnonzero(partner[number] > np.arange(weights.shape[1]))
        both = np.stack([first, partner[number, first]], axis=1).reshape(-1)
        alone, exceeds = np.flatnonzero(partner[number] < 0), np.flatnonzero(over[number])
        rest = weights[number].take(exceeds, axis=0) - more[number].take(exceeds, axis=0)
        parts = [within[number].take(both, axis=0), within[number].take(alone, axis=0), rest]
        found.append(Listed(len(first), np.concatenate([both, alone, exceeds]), np.concatenate(parts)))
    return found


def _partners(weights: Bytes) -> npt.NDArray[np.intp]:
    """For each block and step the step that is multiplied together with it, or -1.

    ``weights`` (blocks, steps, channels, 4) have no excess. Steps that are left meet as in a tournament: in each round
    every one has another partner. Those whose sums 16 bits hold stay together. First the step with the smallest weights
    meets the one with the largest, which more often fits than steps as they lie in the window: so a fortieth more steps
    are in pairs.
    """
    blocks, steps = weights.shape[:2]
    above, below = (chosen(weights, 0).view(np.uint8) for chosen in (np.maximum, np.minimum))
    sums = above[..., ::2] + above[..., 1::2], -(below[..., ::2] + below[..., 1::2])  # modulo 256, and at most 128
    taken = np.concatenate([part.reshape(blocks * steps, -1) for part in sums], axis=1)
    room = MOST - taken
    found = np.full(blocks * steps, -1, np.intp)
    sizes = taken.sum(axis=1, dtype=np.int64).reshape(blocks, steps)
    left = (sizes.argsort(axis=1, kind="stable") + np.arange(0, blocks * steps, steps)[:, None]).reshape(-1)
    for turn in range(ROUNDS):
        counts = np.bincount(left // steps, minlength=blocks)
        pairs, begin = counts // 2, counts.cumsum() - counts
        rank = np.arange(pairs.sum()) - (pairs.cumsum() - pairs).repeat(pairs) + (counts % 2).repeat(pairs)
        first, last = (part.repeat(pairs) for part in (begin, begin + counts - 1))
        circle = (counts - 1 + counts % 2).repeat(pairs)  # of an even number, the last one stands outside
        one = left[first + (turn + rank) % circle]
        other = left[np.where(rank == 0, last, first + (turn - rank) % circle)]
        fits = (taken.take(one, axis=0) <= room.take(other, axis=0)).all(axis=1)
        one, other = one[fits], other[fits]
        found[one], found[other] = other % steps, one % steps
        left = left[found[left] < 0]
    return found.reshape(blocks, steps)


def often_exceeded(weights: Integers) -> bool:
    """Whether so many steps of a contraction have an excess that 16-bit products are faster.

    ``weights`` (channels, elements, rows and columns of a window) are integers of any width. Those that no byte holds
    count as often exceeded.
    """
    if int(weights.min()) < -128 or int(weights.max()) > 127:
        return True
    blocks = -(-weights.shape[0] // CHANNELS)
    exceeded, steps = 0, 0
    for number in range(0, blocks, -(-blocks // LOOKED_AT)):
        block = weights[CHANNELS * number : CHANNELS * (number + 1)]
        runs = np.moveaxis(block, 1, -1).reshape(*block.shape[:1], *block.shape[2:3], -1)  # as they lie in memory
        gaps = [(0, 0)] * (runs.ndim - 1) + [(0, -runs.shape[-1] % ELEMENTS)]
        pairs = np.pad(runs, gaps).reshape(len(block), -1, ELEMENTS // 2, 2).sum(axis=3, dtype=np.int16)
        found = (abs(pairs) > MOST).any(axis=(0, 2))
        exceeded, steps = exceeded + int(np.count_nonzero(found)), steps + found.size
    return WORTH * exceeded > steps
