"""Products of bytes that saturate: how much of a pair of weights they take, and how many pairs are larger.

AVX2 multiplies two neighbouring bytes of an activation by two weights and clips the sum of both products to 16 bits. No
sum is clipped while the sum of the two weights lies in [-128, 128]: 255 * 128 < 2^15. What is more than that, the
excess, is multiplied apart. Two weights in [-128, 127] whose sum lies beyond these bounds have one sign. So the first
of them can be made smaller by the whole excess, which is a weight of a byte itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["excess", "often_exceeded"]

Integers = npt.NDArray[np.signedinteger[Any]]

MOST = 128
"""The largest sum of two weights, and the negative of the least, that times 255 fits in 16 bits."""
CHANNELS, ELEMENTS = 16, 4
"""The channels and elements that AVX2 multiplies in one step: those of a block of two vectors."""
LOOKED_AT = 4
"""The most blocks of channels of a contraction whose steps are counted."""
WORTH = 5
"""Products of bytes are faster than those of 16 bits if at most one in this many steps is made again for its excess."""


def excess(weights: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """What weights have in excess of what a saturating product takes: the first of each pair has all of it.

    The last axis has an even number of elements.
    """
    first, second = weights[..., ::2], weights[..., 1::2]
    sums = np.add(first, second, dtype=np.int16)
    found = np.zeros_like(weights)
    found[..., ::2] = sums - sums.clip(-MOST, MOST)
    return found


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
