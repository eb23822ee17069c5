"""Narrowing and widening within 128 bits, as the instructions of x86 do it."""

from __future__ import annotations

from cvm.executors.native.emit.ir import Code, V, lanes, typed, vector

__all__ = ["to_bytes", "to_words", "unpacked", "widened"]

_PACKS = {
    16: ("llvm.x86.avx512.packssdw.512", "llvm.x86.avx512.packuswb.512"),
    8: ("llvm.x86.avx2.packssdw", "llvm.x86.avx2.packuswb"),
    4: ("llvm.x86.sse2.packssdw.128", "llvm.x86.sse2.packuswb.128"),
}
"""The names of both instructions by the number of 32-bit lanes of a register."""


def to_words(code: Code, a: V, b: V) -> V:
    """Two vectors of i32 as i16, saturated: of every 128 bits the four of a, then the four of b."""
    lane = lanes(a.type)
    return code.call(vector(16, 2 * lane), _PACKS[lane][0], a, b)


def to_bytes(code: Code, a: V, b: V) -> V:
    """Two vectors of i16 as bytes, saturated to [0, 255]: of every 128 bits the eight of a, then the eight of b."""
    lane = lanes(a.type) // 2
    return code.call(vector(8, 4 * lane), _PACKS[lane][1], a, b)


def unpacked(code: Code, a: V, b: V, per: int, half: int) -> V:
    """The lower (0) or upper (1) halves of every ``per`` elements of a and b, their elements alternating."""
    count = lanes(a.type)
    indices = []
    for block in range(0, count, per):
        for k in range(per // 2):
            first = block + k + half * per // 2
            indices += [first, first + count]
    return code.shuffle(a, b, indices)


def widened(code: Code, row: V, lane: int) -> list[V]:
    """The bytes of two or four vectors of ``lane`` channels as one or two vectors of words, in the order of `to_words`:
    each holds what two of the vectors hold, if these are interleaved.
    """
    if lanes(row.type) == 2 * lane:
        return [code.cast("zext", row, 16)]
    halves = [unpacked(code, row, typed(row.type, 0), 16, half) for half in (0, 1)]
    return [code.bitcast(half, vector(16, 2 * lane)) for half in halves]
