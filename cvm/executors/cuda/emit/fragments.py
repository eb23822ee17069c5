"""Fragments of the tensor-core instruction m16n8k32: which elements of a matrix each thread of a warp holds.

A warp multiplies a matrix A of 16 rows and 32 columns by a matrix B of 32 rows and 8 columns, both of bytes, and adds
the product to a matrix C of 16 rows and 8 columns of 32 bits, modulo 2^32. Each thread holds four registers of A, two
of B and four of C; a register of A or B holds four neighbouring elements along the sums. Source: the PTX ISA, section
"Matrix Fragments for mma.m16n8k32".

`word` says which words of 64 bytes of a row a thread holds for two instructions. Those of A are loaded with ldmatrix,
one instruction for each, which puts the four words into the four neighbouring registers that the product takes. The
order of the columns is free. With `column`, the elements of C that a thread holds in some neighbouring tiles lie side
by side.
"""

from __future__ import annotations

from collections.abc import Sequence

from cvm.executors.native.emit.ir import Code, V

__all__ = ["COLUMNS", "DEPTH", "LANES", "MATRIX_ROW", "MEMBERS", "ROWS", "STEPS", "WORDS", "a_element", "a_row",
           "b_element", "c_element", "column", "load_a", "multiply", "shifted", "word"]  # fmt: skip

ROWS, COLUMNS, DEPTH = 16, 8, 32
"""The extents of the instruction: rows of A and C, columns of B and C, and elements along the sums."""
LANES = 32
"""The threads of a warp."""
MEMBERS = 4
"""The threads of a group: thread 4 g + t is member t of group g."""
WORDS = 16
"""The words of 64 bytes of a row, which the threads of a group read together, four words each."""
MATRIX_ROW = 16
"""The bytes that ldmatrix takes from each row of each of its four matrices of 8 rows."""
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
    return 8 * step + 4 * half + member


def a_row(lane: int, step: int) -> tuple[int, int]:
    """The row of A, and the piece of its 64 bytes, whose address thread ``lane`` gives to ldmatrix for ``step``.

    Threads 8 k to 8 k + 7 give the rows of the matrix that becomes register k.
    """
    matrix, row = divmod(lane, 8)
    return row + 8 * (matrix % 2), 2 * step + matrix // 2


def shifted(row: int, piece: int) -> int:
    """Where a piece of a row of 64 bytes lies in shared memory.

    The hardware serves eight rows together: each of their pieces must lie in banks of its own, and two neighbouring
    rows fill all banks.
    """
    return piece ^ row // 2 % 4


def column(group: int, tile: int, tiles: int) -> int:
    """Which column of ``tiles`` neighbouring tiles is column ``group`` of tile ``tile``.

    Member t of every group then holds the columns 2 * ``tiles`` * t and those behind it.
    """
    return tiles * group + tile


def load_a(code: Code, row: V) -> list[V]:
    """Load the fragment of A whose rows lie at the addresses ``row`` in shared memory: see `a_row`."""
    four = "{i32, i32, i32, i32}"
    found = code.call(four, "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3", row)
    return [code.value("i32", f"extractvalue {found}, {number}") for number in range(4)]


def multiply(code: Code, kinds: tuple[str, str], a: Sequence[V], b: Sequence[V], sums: Sequence[V]) -> list[V]:
    """Add the product of fragments of A and B to the fragment ``sums``. ``kinds`` are s8 or u8, of A and of B."""
    four = "{i32, i32, i32, i32}"
    name = ".".join(dict.fromkeys(kinds))  # two equal kinds are named once
    found = code.call(four, f"llvm.nvvm.mma.m16n8k32.row.col.{name}", *a, *b, *sums)
    return [code.value("i32", f"extractvalue {found}, {number}") for number in range(4)]
