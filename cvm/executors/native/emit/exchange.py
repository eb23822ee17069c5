"""Exchanges: copies between tensors whose innermost axes differ, such as channels first and channels last.

One tensor holds bytes, the other wider integers; each has stride 1 along another axis. A block covers as many elements
as a vector has lanes along the axis of stride 1 of the wider integers, and four elements along the axis of stride 1 of
the bytes. The kernel packs four vectors into one vector of 32-bit words, each of which holds four bytes, or unpacks
such words.
"""

from __future__ import annotations

from collections.abc import Sequence

from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.loops import Exchange, Loop
from cvm.executors.native.emit.elements import load, store
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, typed, vector
from cvm.executors.native.emit.nest import moved, walked
from cvm.executors.native.emit.transposition import WIDTH

__all__ = ["emit_exchange", "exchange"]

WORD = 4
"""The number of bytes of one word."""
LEAST = 8
"""An exchange is used only if the axis that has stride 1 in the tensor of wider integers has at least this extent."""


def exchange(loops: Sequence[Loop], source: Format, target: Format) -> Exchange | None:
    """The exchange that copies the same elements as the loops, or None if these are no exchange.

    Between equal formats, a nest copies long axes faster (`transposition`).
    """
    if source == target and all(loop.extent >= WIDTH for loop in loops if 1 in loop.strides):
        return None
    for packs, bytes_ in ((True, target), (False, source)):
        if bytes_.bits != 8 or bytes_.signed:
            continue
        wide, narrow = (0, 1) if packs else (1, 0)
        along = [loop for loop in loops if loop.strides[wide] == 1 and loop.strides[narrow] != 1]
        across = [loop for loop in loops if loop.strides[narrow] == 1 and loop.strides[wide] not in (0, 1)]
        if len(along) == len(across) == 1 and along[0].extent >= LEAST and across[0].extent > 1:
            outer = tuple(
                sorted(
                    (loop for loop in loops if loop not in (along[0], across[0])),
                    key=lambda loop: -abs(loop.strides[1]),
                )
            )
            return Exchange(outer, along[0], across[0], source, target, packs)
    return None


def emit_exchange(module: Module, name: str, kernel: Exchange, width: int) -> None:
    """Write the function of an exchange: (source, target, first unit, end of units)."""
    source, target, lo, hi = V("ptr", "%source"), V("ptr", "%target"), V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [source, target, lo, hi])

    sizes = kernel.source.bytes, kernel.target.bytes
    convert = _pack if kernel.packs else _unpack
    whole_words = kernel.across.extent // WORD * WORD

    def plane(pointers: list[V]) -> None:
        """Write all blocks of the two inner loops."""

        def strip(index: Scalar, size: int) -> None:
            """Copy ``size`` elements along ``along``, and all elements along ``across``."""
            start = moved(code, pointers, kernel.along.strides, sizes, index)

            def word(first: Scalar, count: int) -> None:
                read, write = moved(code, start, kernel.across.strides, sizes, first)
                convert(code, kernel, read, write, count, size)

            code.each(0, whole_words, lambda first: word(first, WORD), step=WORD)
            if whole_words < kernel.across.extent:
                word(whole_words, kernel.across.extent - whole_words)

        code.strips(kernel.along.extent, width, strip)

    walked(code, kernel.outer, (lo, hi), [source, target], sizes, plane)
    code.finish()


def _pack(code: Code, kernel: Exchange, read: V, write: V, count: int, size: int) -> None:
    """Pack ``count`` vectors of ``size`` numbers into ``size`` words of ``count`` bytes."""
    words = typed(vector(32, size), 0)
    for number in range(count):
        values = load(code, kernel.source, code.at(read, number * kernel.across.strides[0] * kernel.source.bytes), size)
        if kernel.target.bias:
            values = code.binary("add", values, kernel.target.bias)
        byte = code.binary("shl", code.binary("and", values, 255), 8 * number)
        words = code.binary("or", words, byte)
    apart = kernel.along.strides[1]
    if apart == count and size > 1:  # the elements lie side by side, so one store writes those of all words
        every = code.bitcast(words, vector(8, WORD * size))
        places = [WORD * lane + byte for lane in range(size) for byte in range(count)]
        code.store(code.shuffle(every, every, places), write)
        return
    for lane in range(size):
        word, done = code.extract(words, lane), 0
        while done < count:
            piece = 1 << ((count - done).bit_length() - 1)
            part = code.cast("trunc", code.binary("lshr", word, 8 * done) if done else word, 8 * piece)
            code.store(part, code.at(write, lane * apart + done))
            done += piece


def _unpack(code: Code, kernel: Exchange, read: V, write: V, count: int, size: int) -> None:
    """Unpack ``size`` words of ``count`` bytes into ``count`` vectors of ``size`` numbers."""
    apart = kernel.along.strides[0]
    words = []
    for lane in range(size):
        word, done = V("i32", "0"), 0
        while done < count:
            piece = 1 << ((count - done).bit_length() - 1)
            part = code.cast("zext", code.load(vector(8 * piece, 1), code.at(read, lane * apart + done)), 32)
            word = part if not done else code.binary("or", word, code.binary("shl", part, 8 * done))
            done += piece
        words.append(word)
    whole = code.gathered(words)
    for number in range(count):
        byte = code.binary("and", code.binary("lshr", whole, 8 * number), 255)
        if kernel.source.bias:
            byte = code.binary("sub", byte, kernel.source.bias)
        at = code.at(write, number * kernel.across.strides[1] * kernel.target.bytes)
        store(code, kernel.target, byte, at)
