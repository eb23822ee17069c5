"""Narrowing and widening of lanes by instructions that work within 128 bits: those of x86, and of WebAssembly."""

from __future__ import annotations

from cvm.executors.native.emit.ir import Code, V, lanes, typed, vector

__all__ = ["in_order", "joined_lanes", "repeated", "to_bytes", "to_words", "unpacked", "widened"]

_PACKS = {
    16: ("llvm.x86.avx512.packssdw.512", "llvm.x86.avx512.packuswb.512"),
    8: ("llvm.x86.avx2.packssdw", "llvm.x86.avx2.packuswb"),
    4: ("llvm.x86.sse2.packssdw.128", "llvm.x86.sse2.packuswb.128"),
}
"""The names of the two pack instructions, by the number of 32-bit lanes of a register."""


_NARROWED = ("llvm.wasm.narrow.signed.v8i16.v4i32", "llvm.wasm.narrow.unsigned.v16i8.v8i16")


def _names(code: Code, lane: int) -> tuple[str, str]:
    return _NARROWED if code.widens else _PACKS[lane]


def to_words(code: Code, a: V, b: V) -> V:
    """Two vectors of i32 as one of i16, saturated. Each 128 bits hold four lanes of a, then four lanes of b."""
    lane = lanes(a.type)
    return code.call(vector(16, 2 * lane), _names(code, lane)[0], a, b)


def in_order(code: Code, words: list[V]) -> list[V]:
    """The words of one or two vectors that `to_words` made of interleaved channels, in the order of the channels.

    One vector is in order. Of two vectors, the first has the first eight channels of every sixteen, in 128 bits, and
    the second has the others.
    """
    count = lanes(words[0].type)
    if len(words) == 1:
        return words
    order = [one * count + 8 * block + k for block in range(count // 8) for one in (0, 1) for k in range(8)]
    return [code.shuffle(words[0], words[1], order[half : half + count]) for half in (0, count)]


def to_bytes(code: Code, a: V, b: V) -> V:
    """Two vectors of i16 as bytes, saturated to [0, 255]. Each 128 bits hold eight lanes of a, then eight of b."""
    lane = lanes(a.type) // 2
    return code.call(vector(8, 4 * lane), _names(code, lane)[1], a, b)


def unpacked(code: Code, a: V, b: V, per: int, half: int) -> V:
    """Interleave a and b: elements of a and b alternate, taken from the lower (``half`` = 0) or upper (1) half of every
    ``per`` elements.
    """
    count = lanes(a.type)
    indices = []
    for block in range(0, count, per):
        for k in range(per // 2):
            first = block + k + half * per // 2
            indices += [first, first + count]
    return code.shuffle(a, b, indices)


def widened(code: Code, row: V, lane: int) -> list[V]:
    """Widen the bytes of two or four interleaved vectors of ``lane`` channels to one or two vectors of 16-bit words.

    Each vector of words holds the channels of two vectors, in the order that `to_words` gives.
    """
    if lanes(row.type) == 2 * lane:
        return [code.cast("zext", row, 16)]
    halves = [unpacked(code, row, typed(row.type, 0), 16, half) for half in (0, 1)]
    return [code.bitcast(half, vector(16, 2 * lane)) for half in halves]


def repeated(code: Code, value: V, count: int) -> V:
    """The lanes of a vector again and again, until there are ``count``."""
    own = lanes(value.type)
    return value if own == count else code.shuffle(value, value, [k % own for k in range(count)])


def joined_lanes(code: Code, pieces: list[V]) -> V:
    """The lanes of all pieces, one piece after the other. Their number is a power of two."""
    while len(pieces) > 1:
        if lanes(pieces[0].type) == 1:
            return code.gathered(pieces)
        every = range(2 * lanes(pieces[0].type))
        pieces = [code.shuffle(pieces[k], pieces[k + 1], every) for k in range(0, len(pieces), 2)]
    return pieces[0]
