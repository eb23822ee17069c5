"""Tables of up to 257 entries, and rows of up to 128 bytes, whose entries are picked by permuting bytes of vectors."""

from __future__ import annotations

from cvm.executors.native.descriptions.expressions import TABLE, Formula, FormulaStep
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.emit.elements import decoded
from cvm.executors.native.emit.ir import Code, V, lanes, typed, vector

__all__ = ["permuted", "permutes", "picked"]

WHOLE = 64
"""The bytes of a vector."""


def permutes(formula: Formula) -> bool:
    """Whether a formula picks bytes in this way. Then it is best computed for 64 elements at a time."""
    return any(step.op in ("permute", "shuffle", "pick") for step in formula.steps)


def permuted(code: Code, step: FormulaStep, table: V, index: V) -> V:
    """The entries at clipped indices. ``table`` has the lowest bytes of `TABLE` stored entries, then the second bytes,
    and so on; the entry after them, if there is one, is a number of the step.

    A step ``permute`` takes instructions that pick among 128 bytes, a step ``shuffle`` those that pick among 16.
    """
    extent, format_, *last = step.static
    assert isinstance(extent, int)
    assert isinstance(format_, Format)
    count = lanes(index.type)
    clipped = code.intrinsic("smin", code.intrinsic("smax", index, 0), extent - 1)
    narrow = code.cast("trunc", clipped, 8)
    bytes_ = _bytes if step.op == "permute" else _shuffled
    planes = [bytes_(code, code.at(table, TABLE * plane), narrow, extent) for plane in range(format_.bytes)]
    while len(planes) > 1:  # bytes 0 and 2, then bytes 1 and 3, then both
        half = len(planes) // 2
        planes = [_in_turn(code, planes[number], planes[number + half]) for number in range(half)]
    stored = code.bitcast(planes[0], vector(format_.bits, count))
    if last:
        (entry,) = last
        assert isinstance(entry, int)
        beyond = code.compare("sge", clipped, TABLE)
        stored = code.select(beyond, typed(stored.type, entry), stored)
    return decoded(code, format_, stored)


def picked(code: Code, format_: Format, row: V, extent: int, index: V) -> V:
    """The elements at some indices, 0 .. ``extent`` - 1, of a row of up to 128 bytes. It reads 64 bytes, or 128."""
    count = lanes(index.type)
    narrow = code.cast("trunc", index, 8)
    wide = narrow if count == WHOLE else code.shuffle(narrow, narrow, [lane % count for lane in range(WHOLE)])
    if extent > WHOLE:
        found = _half(code, row, wide)
    else:
        kind = vector(8, WHOLE)
        found = code.call(kind, "llvm.x86.avx512.permvar.qi.512", code.load(kind, row), wide)
    return decoded(code, format_, found if count == WHOLE else code.shuffle(found, found, range(count)))


def _bytes(code: Code, plane: V, index: V, extent: int) -> V:
    """One byte for each lane of an index of 8 bits."""
    count = lanes(index.type)
    kind = vector(8, WHOLE)
    if count == 1:
        wide = code.value(kind, f"insertelement {kind} poison, {index}, i64 0")
    else:
        wide = index if count == WHOLE else code.shuffle(index, index, [lane % count for lane in range(WHOLE)])
    found = _half(code, plane, wide)
    if extent > TABLE // 2:
        above = _half(code, code.at(plane, TABLE // 2), wide)
        found = code.select(code.compare("slt", wide, 0), above, found)
    return found if count == WHOLE else code.shuffle(found, found, range(count))


_SHUFFLES = {16: "llvm.x86.ssse3.pshuf.b.128", 32: "llvm.x86.avx2.pshuf.b", 64: "llvm.x86.avx512.pshuf.b.512"}
"""The instruction that picks bytes within each 16 bytes of a vector, by the number of bytes."""
ROW = 16
"""The bytes among which it picks."""


def _shuffled(code: Code, plane: V, index: V, extent: int) -> V:
    """One byte for each lane of an index of 8 bits: the byte that each row of 16 entries has at the lowest four bits,
    then the choice between two rows by bit 4, between two pairs of rows by bit 5, and so on.
    """
    count = lanes(index.type)
    size = max(count, ROW)
    wide = code.splat(index, size) if count == 1 else index
    if 1 < count < size:
        wide = code.shuffle(index, index, [lane % count for lane in range(size)])
    place = code.binary("and", wide, ROW - 1)
    found = []
    for first in range(0, min(extent, TABLE), ROW):
        row = code.load(vector(8, ROW), code.at(plane, first))
        rows = code.shuffle(row, row, [lane % ROW for lane in range(size)])
        found.append(code.call(vector(8, size), _SHUFFLES[size], rows, place))
    for bit in range(4, 8):
        if len(found) > 1:
            odd = code.compare("slt", code.binary("shl", wide, 7 - bit), 0)
            pairs = zip(found[::2], [*found[1::2], found[-1]], strict=False)
            found = [code.select(odd, high, low) if low is not high else low for low, high in pairs]
    return found[0] if count == size else code.shuffle(found[0], found[0], range(count))


def _half(code: Code, plane: V, index: V) -> V:
    """The bytes of 128 entries at the lower seven bits of an index."""
    kind = vector(8, WHOLE)
    low, high = (code.load(kind, code.at(plane, at), 1) for at in (0, WHOLE))
    return code.call(kind, "llvm.x86.avx512.vpermi2var.qi.512", low, index, high)


def _in_turn(code: Code, a: V, b: V) -> V:
    count = lanes(a.type)
    if count == 1:
        return code.gathered([a, b])
    return code.shuffle(a, b, [index for lane in range(count) for index in (lane, count + lane)])
