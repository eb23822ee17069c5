"""Permutations of the bytes of words, and words of clipped bytes."""

from __future__ import annotations

from collections.abc import Sequence

from cvm.executors.native.emit.ir import Code, V

__all__ = ["clipped", "permuted", "transposed"]

PAIRS, QUADS = (0x5140, 0x7362), (0x5410, 0x7632)
"""Selectors: bytes of two words in turn (of the lower halves, of the upper halves), and pairs of bytes joined."""


def permuted(code: Code, a: V, b: V, selector: int) -> V:
    """Four of the bytes of two words: each digit of the selector, the lowest first, is the number of a byte.

    Bytes 0 to 3 are those of ``a``, 4 to 7 those of ``b``.
    """
    return code.call("i32", "llvm.nvvm.prmt", a, b, V("i32", str(selector)))


def transposed(code: Code, rows: Sequence[V]) -> list[V]:
    """Four words as a matrix of bytes, transposed: byte k of word n becomes byte n of word k."""
    pairs = [[permuted(code, rows[k], rows[k + 1], one) for one in PAIRS] for k in (0, 2)]
    return [permuted(code, pairs[0][half], pairs[1][half], one) for half in (0, 1) for one in QUADS]


CLIPS = "cvt.pack.sat.u8.s32.b32 $0, $1, $2, $3;"
"""The instruction of two integers: clipped to 0 .. 255, they become bytes 1 and 0, below two bytes of a third word."""


def clipped(code: Code, values: Sequence[V]) -> V:
    """Two or four integers of 32 bits, each clipped to 0 .. 255, as the bytes of a word, the first one lowest.

    LLVM has no intrinsic for the instruction. Source: the PTX ISA, section "cvt.pack".
    """
    word = V("i32", "0")
    for low, high in zip(values[-2::-2], values[::-2], strict=True):
        word = code.value("i32", f'call i32 asm "{CLIPS}", "=r,r,r,r"({high}, {low}, {word})')
    return word
