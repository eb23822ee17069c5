"""What the parser makes of a module: kernels as blocks of instructions, and the variables of the module."""

from __future__ import annotations

from dataclasses import dataclass, field

from tools.cuda_emulator.kinds import VOID, Array, Type

__all__ = ["CONSTANT", "GLOBAL", "LOCAL", "SHARED", "Block", "Function", "Instruction", "Module", "Operand", "Variable"]

GLOBAL, SHARED, CONSTANT, LOCAL = 1, 3, 4, 5
"""The memories. An address has the memory in bits 60 to 62, the allocation in bits 40 to 59, then the offset."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A value that an instruction made before (``name``), or a constant (``value``, one entry for all threads)."""

    type: Type
    name: str | None = None
    value: Array | None = None

    @property
    def known(self) -> int:
        """The number that a constant scalar is."""
        assert self.value is not None
        return int(self.value[0])


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. ``word`` is the predicate of a comparison, the operation of an atomic, or the called function.

    ``kind`` is the type that a load, an alloca or a getelementptr names. ``labels`` are the targets of a branch, or the
    blocks that a phi's operands come from; ``numbers`` the lanes of a shuffle, or the fields of an aggregate.
    """

    op: str
    type: Type
    result: str | None
    operands: tuple[Operand, ...]
    text: str
    word: str = ""
    flags: frozenset[str] = frozenset()
    kind: Type = VOID
    align: int = 1
    labels: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()


@dataclass(slots=True)
class Block:
    """A basic block: its label, and its instructions; the phis are the first ones, the last one is a terminator."""

    label: str
    instructions: list[Instruction] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel. ``aligned`` are the alignments that it expects of its addresses."""

    name: str
    parameters: tuple[str, ...]
    aligned: tuple[int, ...]
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the module, with its address. ``content`` are the bytes of a constant; None for shared memory."""

    name: str
    address: int
    size: int
    dynamic: bool
    content: bytes | None


@dataclass(frozen=True, slots=True)
class Module:
    """The kernels and variables of a module, by name."""

    functions: dict[str, Function]
    variables: dict[str, Variable]
