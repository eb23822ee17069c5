"""Instructions that the threads of a warp execute together, and numbers of threads and blocks.

The layouts of the matrices of mma.m16n8k32 are those of the PTX ISA, section "Matrix fragments for mma.m16n8k32". With
g = lane / 4 and t = lane % 4:

* element i of A is at row g (for i in 0..3 and 8..11) or g + 8, and column 4t + i % 4 (+ 16 from i = 8 on),
* element i of B at row 4t + i % 4 (+ 16 from i = 4 on) and column g,
* element i of C and D at row g (+ 8 from i = 2 on) and column 2t + i % 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tools.cuda_emulator.access import read_bytes
from tools.cuda_emulator.arithmetic import unsigned
from tools.cuda_emulator.defects import unknown
from tools.cuda_emulator.group import WARP, Group
from tools.cuda_emulator.kinds import Array, Value
from tools.cuda_emulator.module import Instruction
from tools.cuda_emulator.shadows import Conflict

if TYPE_CHECKING:
    from tools.cuda_emulator.machine import Machine

__all__ = ["function"]

_LANE = np.arange(WARP)[:, None]
_A, _B, _C = np.arange(16), np.arange(8), np.arange(4)
A_ROW = _LANE // 4 + np.where(_A // 4 % 2 == 0, 0, 8)
A_COLUMN = _LANE % 4 * 4 + _A % 4 + np.where(_A >= 8, 16, 0)
B_ROW = _LANE % 4 * 4 + _B % 4 + np.where(_B >= 4, 16, 0)
B_COLUMN = _LANE // 4 + 0 * _B
C_ROW = _LANE // 4 + np.where(_C >= 2, 8, 0)
C_COLUMN = _LANE % 4 * 2 + _C % 2

_PRODUCT = re.compile(r"llvm\.nvvm\.mma\.m16n8k32\.row\.col\.([su])8(?:\.([su])8)?$")
_REGISTER = re.compile(r"llvm\.nvvm\.read\.ptx\.sreg\.(tid|ntid|ctaid|nctaid)\.([xyz])$")
_SHUFFLE = re.compile(r"llvm\.nvvm\.shfl\.sync\.(up|down|bfly|idx)\.i32$")
_VOTE = re.compile(r"llvm\.nvvm\.vote\.(all|any|uni|ballot)\.sync$")
_FOLD = re.compile(r"llvm\.nvvm\.redux\.sync\.(add|min|max|umin|umax|and|or|xor)$")
_MATRICES = re.compile(r"llvm\.nvvm\.ldmatrix\.sync\.aligned\.m8n8\.x([124])\.b16\.p3$")


def function(instruction: Instruction) -> Callable[..., Value] | None:
    """The function of a call of one of these; None if it is none."""
    word = instruction.word
    for pattern, make in _MAKERS:
        found = pattern.match(word)
        if found:
            return make(instruction, *found.groups())
    if word == "llvm.nvvm.read.ptx.sreg.laneid":
        return lambda machine, group: (group.threads % machine.block % WARP).astype(np.int32)
    if word == "llvm.nvvm.read.ptx.sreg.warpsize":
        return lambda machine, group: np.array([WARP], np.int32)
    return None


def _register(instruction: Instruction, name: str, axis: str) -> Callable[..., Value]:
    number = "xyz".index(axis)

    def read(machine: Machine, group: Group) -> Array:
        if name == "ctaid":
            return machine.block_index(group, number)
        if name == "tid" and number == 0:
            return (group.threads % machine.block).astype(np.int32)
        known = {"tid": 0, "ntid": machine.block if number == 0 else 1, "nctaid": machine.grid[number]}
        return np.array([known[name]], np.int32)

    return read


def _product(instruction: Instruction, a_sign: str, b_sign: str | None) -> Callable[..., Value]:
    signs = [np.dtype(np.int8 if sign == "s" else np.uint8) for sign in (a_sign, b_sign or a_sign)]

    def product(machine: Machine, group: Group, *registers: Array) -> tuple[Array, ...]:
        a, b, c = (_words(group, registers[i:j]) for i, j in ((0, 4), (4, 6), (6, 10)))
        count = len(a)
        left, right = np.empty((count, 16, 32), np.int32), np.empty((count, 32, 8), np.int32)
        left[:, A_ROW, A_COLUMN] = a.view(signs[0])
        right[:, B_ROW, B_COLUMN] = b.view(signs[1])
        total = c + (left @ right)[:, C_ROW, C_COLUMN]  # modulo 2^32
        return tuple(np.ascontiguousarray(total[:, :, i]).reshape(-1) for i in range(4))

    return product


def _words(group: Group, registers: tuple[Array, ...]) -> Array:
    """Registers by warp, lane and number."""
    return np.stack([group.by_warps(one) for one in registers], axis=-1)


def _whole(group: Group, mask: Array) -> None:
    if (mask != -1).any():
        raise Conflict("divergent", 0, "the mask of the instruction leaves threads of the warp out")
    group.by_warps(mask)


def _shuffle(instruction: Instruction, mode: str) -> Callable[..., Value]:
    lane = np.arange(WARP)

    def shuffled(machine: Machine, group: Group, mask: Array, value: Array, b: Array, c: Array) -> Array:
        _whole(group, mask)
        by, clamp = (group.by_warps(x) & 31 for x in (b, c))
        segment = group.by_warps(c) >> 8 & 31
        last, first = (lane & segment) | (clamp & ~segment), lane & segment
        source = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": first | (by & ~segment)}[mode]
        inside = source >= last if mode == "up" else source <= last
        source = np.where(inside, source, lane)
        return np.take_along_axis(group.by_warps(value), source, axis=1).reshape(-1)

    return shuffled


def _vote(instruction: Instruction, mode: str) -> Callable[..., Value]:
    def voted(machine: Machine, group: Group, mask: Array, value: Array) -> Array:
        _whole(group, mask)
        votes = group.by_warps(value)
        if mode == "ballot":
            bits = (votes.astype(np.uint32) << np.arange(WARP, dtype=np.uint32)).sum(axis=1, dtype=np.uint32)
            return np.repeat(bits.view(np.int32), WARP)
        every, some = votes.all(axis=1), votes.any(axis=1)
        return np.repeat({"all": every, "any": some, "uni": every | ~some}[mode], WARP)

    return voted


_FOLDS = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "umin": np.minimum, "umax": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def _fold(instruction: Instruction, mode: str) -> Callable[..., Value]:
    def folded(machine: Machine, group: Group, value: Array, mask: Array) -> Array:
        _whole(group, mask)
        values = np.ascontiguousarray(group.by_warps(value))
        if mode[0] == "u":
            values = unsigned(values, 32)
        found = _FOLDS[mode].reduce(values, axis=1, dtype=values.dtype)
        return np.repeat(found.view(np.int32), WARP)

    return folded


def _matrices(instruction: Instruction, count: str) -> Callable[..., Value]:
    """ldmatrix: rows of 16 bytes, whose addresses come from the lanes 8i .. 8i + 7 for the matrix i."""
    lane, matrices = np.arange(WARP), int(count)

    def loaded(machine: Machine, group: Group, addresses: Array) -> Value:
        rows = group.by_warps(addresses)
        found = []
        for matrix in range(matrices):
            mine = rows[:, 8 * matrix + lane // 4]
            if (mine & 15).any():
                raise Conflict("misaligned", int(np.argmax(mine & 15)), "a row of a matrix is no multiple of 16")
            raw = read_bytes(machine, group, (mine + lane % 4 * 4).reshape(-1), 4, 4)
            found.append(raw.view(np.int32).reshape(-1))
        return found[0] if matrices == 1 else tuple(found)

    if len(instruction.type.parts) not in (0, matrices):
        raise unknown("this result of ldmatrix", instruction.text)
    return loaded


_MAKERS: tuple[tuple[re.Pattern[str], Callable[..., Callable[..., Value]]], ...] = (
    (_PRODUCT, _product), (_REGISTER, _register), (_SHUFFLE, _shuffle), (_VOTE, _vote), (_FOLD, _fold),
    (_MATRICES, _matrices),
)  # fmt: skip
