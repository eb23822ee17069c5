"""Copies between tensors of one format whose innermost axes differ: blocks are transposed in registers.

``rows`` is the axis along which the target's elements lie side by side, ``columns`` the axis along which the source's
do. A block has as many rows as elements fit in 128 bits, and as many columns as fit in a vector. Its rows are loaded;
after each stage, every vector has the elements of two vectors of the stage before it in turn, within 128 bits. After
the last stage, each 128 bits are one column of the block, which is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cvm.executors.native.descriptions.loops import Loop, Nest
from cvm.executors.native.emit.ir import Code, Scalar, V, vector
from cvm.executors.native.emit.packs import unpacked
from cvm.records import dataclass

__all__ = ["WIDTH", "Blocks", "exchanged", "transposed"]

WIDTH = 16
"""The bytes of a column of a block."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The two axes of a copy by blocks: loops with the strides of source and target, and the position of ``columns``
    among the loops of the nest.
    """

    rows: Loop
    columns: Loop
    position: int

    @staticmethod
    def of(nest: Nest) -> Blocks | None:
        """The axes of a nest, or None if it is no copy that exchanges axes of at least one block's extents."""
        if not nest.copies or nest.formats[0].bits > 32:
            return None
        rows = nest.loops[-1]
        position = exchanged(nest, 0)
        return None if position is None or rows.strides[1] != 1 else Blocks(rows, nest.loops[position], position)


def exchanged(nest: Nest, number: int) -> int | None:
    """The position of the loop along which the elements of a tensor lie side by side that the innermost loop reads far
    apart; None if it does not, or if one of the two loops is shorter than a block.
    """
    least, inner = WIDTH // nest.formats[number].bytes, nest.loops[-1]
    if abs(inner.strides[number]) <= 1 or inner.extent < least:
        return None
    loops = enumerate(nest.loops[:-1])
    return next((at for at, loop in loops if loop.strides[number] == 1 and loop.extent >= least), None)


def transposed(
    code: Code, blocks: Blocks, size: int, width: int, pointers: Sequence[V], bounds: tuple[Scalar, Scalar]
) -> None:
    """Write the copy of the columns from ``bounds[0]`` to ``bounds[1]`` of elements of ``size`` bytes."""
    source, target = pointers
    least = WIDTH // size

    def strip(first: Scalar, count: int) -> None:
        """All rows of ``count`` neighbouring columns."""
        at = code.at(source, code.mul(first, size)), code.at(target, code.mul(first, blocks.columns.strides[1] * size))
        whole = blocks.rows.extent // least * least
        code.each(0, whole, lambda row: _block(code, blocks, size, count, at, row), step=least)
        if whole < blocks.rows.extent:  # the last rows again, with those before them that make a block
            _block(code, blocks, size, count, at, blocks.rows.extent - least)

    def column(index: Scalar) -> None:
        """One column, element by element."""
        at = code.at(source, code.mul(index, size)), code.at(target, code.mul(index, blocks.columns.strides[1] * size))

        def element(row: Scalar) -> None:
            value = code.load(vector(8 * size, 1), code.at(at[0], code.mul(row, blocks.rows.strides[0] * size)))
            code.store(value, code.at(at[1], code.mul(row, size)))

        code.each(0, blocks.rows.extent, element)

    done = _strips(code, bounds, 4 * width // size, strip)
    if least < 4 * width // size:
        done = _strips(code, (done, bounds[1]), least, strip)
    code.each(done, bounds[1], column)


def _strips(code: Code, bounds: tuple[Scalar, Scalar], count: int, strip: Callable[[Scalar, int], None]) -> Scalar:
    """Write strips of ``count`` columns as long as there are so many, and return the first column that is left."""
    first, end = bounds
    whole = code.mul(code.quotient(code.minus(end, first), count), count)
    done = code.add(first, whole)
    code.each(first, done, lambda index: strip(index, count), step=count)
    return done


def _block(code: Code, blocks: Blocks, size: int, count: int, at: tuple[V, V], row: Scalar) -> None:
    """Copy a block of ``count`` columns that begins at a row."""
    source, target = at
    per, apart = WIDTH // size, blocks.rows.strides[0] * size
    first = code.at(source, code.mul(row, apart))
    rows = [code.load(vector(8 * size, count), code.at(first, number * apart)) for number in range(per)]
    half = per // 2
    for _ in range(half.bit_length()):
        rows = [unpacked(code, rows[number], rows[number + half], per, part)
                for number in range(half) for part in (0, 1)]  # fmt: skip
    start = code.at(target, code.mul(row, size))
    for column in range(count):
        found = rows[column % per]
        lane = column // per * per
        part = found if count == per else code.shuffle(found, found, range(lane, lane + per))
        code.store(part, code.at(start, column * blocks.columns.strides[1] * size))
