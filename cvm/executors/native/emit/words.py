"""`requantize` of bytes in 16-bit lanes, which hold twice as many elements as those of 32 bits.

Let x be a stored byte, 0 <= x < 256. With k <= 257, x k fits in 16 bits, and one instruction gives the upper half of
its product with a multiplier M of 16 bits. Then

    code(x) = lo + min(max(min(floor(x k M / 2^16) + a, 2^16 - 1) - b, 0) >> S, hi - lo)

where a or b is 0, and both additions saturate. This is about (x k M / 2^16 + a - b) / 2^S, clipped to [lo, hi]. The
slope k M / 2^(16 + S) is a fraction of few bits, so it seldom is the program's; but an operand has at most 256 values,
and k, M, a and b are searched such that each of them has the program's code. Different k make the slopes denser than M
alone: of a thousand random multipliers, one or two have no such numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.expressions import Requantization
from cvm.executors.native.emit.ir import Code, V, lanes, vector
from cvm.executors.native.exact import Exact, Operand, exact, where
from cvm.records import dataclass

__all__ = ["Words", "in_words", "word_parameters"]

Integers = npt.NDArray[np.int64]
MOST = 2**16 - 1
"""The largest number of a lane."""
BYTES = 256
"""The most values of an operand, and the most results."""
TRIED = 2**17
"""The form is not tried if there are more values of operands in all channels than this."""
USUAL = 256
"""The factor k that is tried first: the multiplication is a shift."""
ADJUSTMENTS = (0, 1, -1, 2, -2)
"""The adjustments of the multiplier that are tried with the usual factor; with other factors only the first three."""
FAR = 2**20
"""More than any sum of two lanes."""
LEAST = 16
"""The fewest elements that are computed as even and odd ones."""


@dataclass(frozen=True, slots=True)
class Words:
    """k, M, a and b of each channel, in the order of the formula, and S."""

    parameters: tuple[Integers, Integers, Integers, Integers]
    shift: int


def word_parameters(
    multiplier: Operand, offset: Operand, shift: Operand, operands: tuple[int, int], bounds: tuple[int, int]
) -> Words | None:
    """The numbers for floor((m (x + y) + c) / 2^s) clipped to ``bounds``, for x = 0 .. n. ``operands`` are y and n.

    All arrays have one axis, the channels. Returns None if some channel has no such numbers.
    """
    m, c, s = (exact(array).reshape(-1, 1) for array in (multiplier, offset, shift))
    (start, last), (lo, hi) = operands, bounds
    channels, top = m.shape[0], hi - lo
    if not (0 <= last < BYTES and 0 <= top < BYTES and m.hull[0] >= 0 and channels * (last + 1) <= TRIED):
        return None
    x = exact(np.arange(last + 1, dtype=np.int64).reshape(1, -1))
    codes = ((m * (x + start) + c >> s) - lo).clip(0, top)
    moved = next((S for S in range(16 - max(top, 1).bit_length(), -1, -1) if _ideal(m, s, S, USUAL) <= MOST - 2), None)
    if moved is None:
        return None
    found = [np.zeros((channels, 1), np.int64) for _ in range(4)]
    left = np.arange(channels)
    for factor, adjustment in _candidates(last):
        tried = (_multiplier(m[left], s[left], moved, factor) + adjustment).clip(0, MOST)
        added, works = _offsets(tried * factor * x >> 16, codes[left], moved, top)
        here = left[works[:, 0]]
        numbers = (exact(factor), tried, added.larger(0), (-added).larger(0))
        for array, number in zip(found, numbers, strict=True):
            array[here] = number.broadcast(works.shape).int64()[works[:, 0]]
        left = left[~works[:, 0]]
        if not left.size:
            k, M, a, b = (array[:, 0] for array in found)
            return Words((k, M, a, b), moved)
    return None


def _candidates(last: int) -> Iterator[tuple[int, int]]:
    """Factors and adjustments in the order in which they are tried."""
    yield from ((USUAL, adjustment) for adjustment in ADJUSTMENTS)
    for factor in (257, *range(255, 223, -1)):
        if factor * last <= MOST:
            yield from ((factor, adjustment) for adjustment in ADJUSTMENTS[:3])


def _multiplier(m: Exact, s: Exact, moved: int, factor: int) -> Exact:
    """The integers nearest to m 2^(16 + S - s) / k."""
    half = (exact(factor) << s) >> 1
    return ((m << 16 + moved) + half) // (exact(factor) << s)


def _ideal(m: Exact, s: Exact, moved: int, factor: int) -> int:
    return _multiplier(m, s, moved, factor).hull[1]


def _offsets(products: Exact, codes: Exact, moved: int, top: int) -> tuple[Exact, npt.NDArray[np.bool_]]:
    """For each channel the offset nearest to 0 that gives all codes, and whether there is one that fits in a lane.

    A sum below 0 becomes 0, and one above `MOST` becomes `MOST`. So only an upper bound holds for the code 0, and only
    a lower bound for the last one.
    """
    least = where(codes > 0, (codes << moved) - products, -FAR).max(axis=1)
    most = where(codes < top, ((codes + 1) << moved) - 1 - products, FAR).min(axis=1)
    works = (least <= most) & (least <= MOST) & (most >= -MOST)
    return exact(0).larger(least).smaller(most.larger(least)), works


def in_words(code: Code, rule: Requantization, x: V, parameters: Sequence[V]) -> V:
    """Write the codes of elements x, in i32; ``parameters`` are k, M, a and b in i32, scalars if they are the same in
    all lanes.

    Then the even and the odd elements take turns: a word holds one of each, so no instruction needs to widen or narrow
    lanes.
    """
    count = lanes(x.type)
    stored = code.cast("trunc", code.binary("sub", x, rule.least) if rule.least else x, 8)
    words = [code.cast("trunc", parameter, 16) for parameter in parameters]
    if count >= LEAST and all(lanes(word.type) == 1 for word in words):
        words = [code.splat(word, count // 2) for word in words]
        pairs = code.bitcast(stored, vector(16, count // 2))
        halves = code.binary("and", pairs, 255), code.binary("lshr", pairs, 8)
        even, odd = (_codes(code, rule, half, words, count // 2) for half in halves)
        found = code.bitcast(code.binary("or", even, code.binary("shl", odd, 8)), stored.type)
    else:
        words = [code.splat(word, count) if lanes(word.type) < count else word for word in words]
        found = _codes(code, rule, code.cast("zext", stored, 16), words, max(count // 2, 8))
    return code.binary("add", code.cast("zext", found, 32), rule.lo)


def _codes(code: Code, rule: Requantization, x: V, words: Sequence[V], size: int) -> V:
    """The codes less ``rule.lo`` of stored bytes, in 16-bit lanes; ``size`` of them are a register."""
    factor, multiplier, added, subtracted = words
    product = _upper_halves(code, code.binary("mul", x, factor), multiplier, size)
    total = code.intrinsic("usub.sat", code.intrinsic("uadd.sat", product, added), subtracted)
    found = code.binary("lshr", total, rule.bits)
    return found if MOST >> rule.bits <= rule.hi - rule.lo else code.intrinsic("umin", found, rule.hi - rule.lo)


_UPPER = {32: "llvm.x86.avx512.pmulhu.w.512", 16: "llvm.x86.avx2.pmulhu.w", 8: "llvm.x86.sse2.pmulhu.w"}
"""The instruction that gives the upper halves of products of 16 bits, by the number of lanes. LLVM finds it by itself
only where it does not know that one of the operands has fewer bits.
"""


def _upper_halves(code: Code, a: V, b: V, size: int) -> V:
    """The upper halves of the products of unsigned 16-bit lanes, in one register or in two of ``size`` lanes."""
    count = lanes(a.type)
    if count == 1:
        wide = code.binary("mul", code.cast("zext", a, 32), code.cast("zext", b, 32))
        return code.cast("trunc", code.binary("lshr", wide, 16), 16)
    pieces = [[min(lane, count - 1) for lane in range(first, first + size)] for first in range(0, count, size)]
    found = [
        code.call(vector(16, size), _UPPER[size], *(code.shuffle(one, one, piece) for one in (a, b)))
        for piece in pieces
    ]
    return code.shuffle(found[0], found[-1], range(count))
