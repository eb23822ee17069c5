"""Fragments of the tensor-core instruction m16n8k32: which elements of a matrix each thread of a warp holds.

A warp multiplies a matrix A of 16 rows and 32 columns by a matrix B of 32 rows and 8 columns, both of bytes, and adds
the product to a matrix C of 16 rows and 8 columns of 32 bits, modulo 2^32. Each thread holds four registers of A, two
of B and four of C; a register of A or B holds four neighbouring elements along the sums. Source: the PTX ISA, section
"Matrix Fragments for mma.m16n8k32".

The order of the elements along the sums is free, as long as A and B have the same one. `word` uses this freedom: the
four words that a thread holds of 64 bytes of a row lie side by side, so that one load of 16 bytes fetches them for two
instructions. The order of the columns is free too. With `column`, the elements of C that a thread holds in some
neighbouring tiles lie side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

from cvm.executors.native.emit.ir import Code, V

__all__ = ["COLUMNS", "DEPTH", "LANES", "MEMBERS", "ROWS", "STEPS", "WORDS", "a_element", "b_element", "c_element",
           "column", "multiply", "word"]  # fmt: skip

ROWS, COLUMNS, DEPTH = 16, 8, 32
"""The extents of the instruction: rows of A and C, columns of B and C, and elements along the sums."""
LANES = 32
"""The threads of a warp."""
MEMBERS = 4
"""The threads of a group: thread 4 g + t is member t of group g."""
WORDS = 16
"""The words of 64 bytes of a row, which the threads of a group read together, four words each."""
STEPS = 2
"""The instructions that multiply 64 bytes of every row."""


def a_element(lane: int, register: int, byte: int) -> tuple[int, int]:
    """The row and the column of A that a byte of a register of a thread holds."""
    group, member = divmod(lane, MEMBERS)
    return group + 8 * (register % 2), 4 * member + byte + 16 * (register // 2)


def b_element(lane: int, register: int, byte: int) -> tuple[int, int]:
    """The row and the column of B that a byte of a register of a thread holds."""
    group, member = divmod(lane, MEMBERS)
    return 4 * member + byte + 16 * register, group


def c_element(lane: int, register: int) -> tuple[int, int]:
    """The row and the column of C that a register of a thread holds."""
    group, member = divmod(lane, MEMBERS)
    return group + 8 * (register // 2), 2 * member + register % 2


def word(member: int, step: int, half: int) -> int:
    """Which word of 64 bytes instruction ``step`` takes as the words 4 * ``half`` + ``member`` of its 8 words."""
    return 4 * member + 2 * step + half


def column(group: int, tile: int, tiles: int) -> int:
    """Which column of ``tiles`` neighbouring tiles is column ``group`` of tile ``tile``.

    Member t of every group then holds the columns 2 * ``tiles`` * t and those behind it.
    """
    return tiles * group + tile


def multiply(code: Code, kinds: tuple[str, str], a: Sequence[V], b: Sequence[V], sums: Sequence[V]) -> list[V]:
    """Add the product of fragments of A and B to the fragment ``sums``. ``kinds`` are s8 or u8, of A and of B."""
    four = "{i32, i32, i32, i32}"
    name = ".".join(dict.fromkeys(kinds))  # two equal kinds are named once
    found = code.call(four, f"llvm.nvvm.mma.m16n8k32.row.col.{name}", *a, *b, *sums)
    return [code.value("i32", f"extractvalue {found}, {number}") for number in range(4)]
