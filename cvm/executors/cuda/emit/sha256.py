"""SHA-256 of the leaves of a tensor, one leaf for each thread.

A message is a byte 0 and a leaf: 1,024 bytes of the tensor, or what is left of it (``docs/commitments.md``, sections 2
and 3). So word i of a message holds the last byte of the leaf's word i - 1 and the first three of word i. The bit 1 of
the padding is the highest bit of a word behind the leaf; the last word of the last block is the length in bits.

Source: FIPS 180-4, sections 4.1.2, 5.1.1 and 6.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from cvm.executors.cuda.emit.samples import with_samples
from cvm.executors.cuda.emit.threads import Kernel
from cvm.executors.cuda.launch import TRIPLE
from cvm.executors.native.emit.fips180 import A, B, C, D, E, F, G, H, K
from cvm.executors.native.emit.ir import Code, Module, V, typed
from cvm.program.merkle import HASH_BYTES, LEAF_BYTES

__all__ = ["FUNCTION", "module_text"]

FUNCTION = "sha256_leaves"
WORD = 4
LEAF = LEAF_BYTES // WORD
"""The words of a whole leaf."""
BLOCK = 16
"""The words of a block of SHA-256."""
_BEGIN = (A, B, C, D, E, F, G, H)


def module_text() -> str:
    """The kernel ``sha256_leaves(data, words, digests)`` as a module.

    ``data`` are little-endian words, ``words`` their number (i64), at least 1; ``digests`` gets the 32 bytes of each
    leaf, one behind the other.
    """
    module = Module()
    code = Kernel(module, FUNCTION, 3)
    data, words, digests = code.arguments
    count = code.load("i64", words)
    leaves = code.binary("udiv", code.binary("add", count, LEAF - 1), LEAF)

    def leaf(index: V) -> None:
        first = code.binary("mul", index, LEAF)
        mine = code.call("i64", "llvm.smin.i64", code.binary("sub", count, first), typed("i64", LEAF))
        state = _digest(code, code.at(data, code.mul(first, WORD)), mine)
        target = code.at(digests, code.mul(index, HASH_BYTES))
        for number, word in enumerate(state):
            code.store(_swapped(code, word), code.at(target, WORD * number))

    code.elements(leaves, leaf)
    code.finish()
    with_samples(module)
    return f'target triple = "{TRIPLE}"\n{module}\n'


def _digest(code: Code, leaf: V, count: V) -> list[V]:
    """The state after all blocks of the message of a leaf of ``count`` words."""
    blocks = code.binary("udiv", code.binary("add", count, BLOCK + 2), BLOCK)
    bits = code.binary("add", code.binary("shl", code.cast("trunc", count, 32), 5), 8)
    last = code.binary("sub", blocks, 1)

    def block(number: V, carried: list[V]) -> list[V]:
        *state, before = carried
        final = code.compare("eq", number, last)
        schedule, start = [], code.binary("mul", number, BLOCK)
        for index in range(BLOCK):
            word = _word(code, leaf, count, code.binary("add", start, index))
            schedule.append(code.call("i32", "llvm.fshl.i32", before, word, typed("i32", 24)))
            before = word
        schedule[-1] = code.select(final, bits, schedule[-1])
        return [*_compressed(code, state, schedule), before]

    begin = [typed("i32", word) for word in _BEGIN]
    return code.loop(0, blocks, 1, block, [*begin, typed("i32", 0)])[: len(begin)]


def _word(code: Code, leaf: V, count: V, index: V) -> V:
    """Word ``index`` of a leaf, as its bytes follow each other, with the padding behind the leaf."""
    inside = code.compare("slt", index, count)
    near = code.call("i64", "llvm.smin.i64", index, code.binary("sub", count, 1))
    word = _swapped(code, code.load("i32", code.at(leaf, code.mul(near, WORD))))
    padding = code.select(code.compare("eq", index, count), typed("i32", -(2**31)), typed("i32", 0))
    return code.select(inside, word, padding)


def _swapped(code: Code, word: V) -> V:
    """A word with its bytes in reverse order."""
    high = code.binary("and", code.call("i32", "llvm.fshl.i32", word, word, typed("i32", 8)), 0x00FF00FF)
    low = code.binary("and", code.call("i32", "llvm.fshl.i32", word, word, typed("i32", 24)), 0xFF00FF00 - 2**32)
    return code.binary("or", high, low)


def _compressed(code: Code, state: Sequence[V], schedule: Sequence[V]) -> list[V]:
    """The state after one block, whose words are ``schedule``."""
    w = list(schedule)
    a, b, c, d, e, f, g, h = state
    for number, constant in enumerate(K):
        if number >= BLOCK:
            s0 = _mixed(code, w[1], (7, 18), 3)
            s1 = _mixed(code, w[14], (17, 19), 10)
            w = [*w[1:], _sum(code, w[0], s0, w[9], s1)]
        word = w[min(number, BLOCK - 1)]  # a new word is always the last of sixteen
        choice = code.binary("xor", g, code.binary("and", e, code.binary("xor", f, g)))
        first = _sum(code, h, _rotations(code, e, (6, 11, 25)), choice, typed("i32", constant), word)
        both = code.binary("or", code.binary("and", a, b), code.binary("and", c, code.binary("or", a, b)))
        second = _sum(code, _rotations(code, a, (2, 13, 22)), both)
        a, b, c, d, e, f, g, h = _sum(code, first, second), a, b, c, _sum(code, d, first), e, f, g
    return [_sum(code, *pair) for pair in zip(state, (a, b, c, d, e, f, g, h), strict=True)]


def _sum(code: Code, first: V, *others: V) -> V:
    total = first
    for other in others:
        total = code.binary("add", total, other)
    return total


def _rotated(code: Code, word: V, right: int) -> V:
    return code.call("i32", "llvm.fshl.i32", word, word, typed("i32", 32 - right))


def _rotations(code: Code, word: V, rights: Sequence[int]) -> V:
    total = _rotated(code, word, rights[0])
    for right in rights[1:]:
        total = code.binary("xor", total, _rotated(code, word, right))
    return total


def _mixed(code: Code, word: V, rights: Sequence[int], shift: int) -> V:
    return code.binary("xor", _rotations(code, word, rights), code.binary("lshr", word, shift))
