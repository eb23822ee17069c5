"""Where the tensors of a program are in C: the type of their elements, and their place in one arena.

An element has the narrowest type that holds the proven interval of its tensor. The arena is a union, so that every
access names the type of the element; C allows this for whatever was stored there before (C99, 6.5.2.3). Two tensors
share bytes only if one is dead before the other is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cvm.program.model import Constant, Shape
from cvm.records import dataclass

__all__ = ["ALIGNMENT", "TYPES", "CType", "Lifetime", "Place", "integer", "narrowest", "planned", "together"]

ALIGNMENT = 4
"""Every tensor begins at a multiple of so many bytes, the size of the widest element."""


@dataclass(frozen=True, slots=True)
class CType:
    """A type of C, and the member of the arena with elements of this type."""

    name: str
    member: str
    size: int
    lo: int
    hi: int


TYPES = (
    CType("int8_t", "s8", 1, -(2**7), 2**7 - 1),
    CType("uint8_t", "u8", 1, 0, 2**8 - 1),
    CType("int16_t", "s16", 2, -(2**15), 2**15 - 1),
    CType("uint16_t", "u16", 2, 0, 2**16 - 1),
    CType("int32_t", "s32", 4, -(2**31), 2**31 - 1),
    CType("int64_t", "s64", 8, -(2**63), 2**63 - 1),
)
"""From the narrowest to the widest; only constants that are parameters have the last one."""


def narrowest(lo: int, hi: int) -> CType:
    """The narrowest type that holds all integers from lo to hi."""
    return next(found for found in TYPES if found.lo <= lo and hi <= found.hi)


def integer(value: int, wide: bool = False) -> str:
    """An integer constant of C, of type int64_t if ``wide``, else of a type with at most 32 bits."""
    sign = "-" if value < 0 else ""
    if wide:
        return f"{sign}INT64_C({abs(value)})"
    return str(value) if abs(value) < 2**15 else f"{sign}INT32_C({abs(value)})"


@dataclass(frozen=True, slots=True)
class Place:
    """A stored tensor: its elements in C are ``array[start + i]`` for i from 0, in row-major order."""

    array: str
    start: int
    shape: Shape
    type: CType
    only: int | None = None
    """The only element, if the tensor is a constant with one element: it is written as a number."""

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    def element(self, index: str) -> str:
        """The element at a flat index, as C."""
        if self.start == 0:
            return f"{self.array}[{index}]"
        return f"{self.array}[{self.start}]" if index == "0" else f"{self.array}[{self.start} + {index}]"

    def read(self, index: str) -> str:
        """The element at a flat index, or the number that is the only one, as C."""
        return self.element(index) if self.only is None else integer(self.only)

    def load(self, index: str, wide: bool = False) -> str:
        """`read`, as an expression of type int32_t, or int64_t if ``wide``."""
        if self.only is not None:
            return integer(self.only, wide)
        if self.type.size == (8 if wide else 4):
            return self.element(index)
        return f"({'int64_t' if wide else 'int32_t'}){self.element(index)}"

    @staticmethod
    def constant(constant: Constant, array: str) -> Place:
        """The place of a constant: an array of its own, or a number."""
        lo, hi = min(constant.integers()), max(constant.integers())
        only = lo if math.prod(constant.shape) == 1 else None
        return Place(array, 0, constant.shape, narrowest(lo, hi), only)


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long a tensor is needed: from the step that makes it to the last one that reads it."""

    bytes: int
    first: int
    last: int


def together(lifetimes: Mapping[str, Lifetime], owners: Mapping[str, str]) -> dict[str, Lifetime]:
    """The lifetimes of places: a tensor with an owner is stored where its owner was, after it."""
    found = {name: need for name, need in lifetimes.items() if name not in owners}
    for name, owner in owners.items():
        found[owner] = Lifetime(found[owner].bytes, found[owner].first, max(found[owner].last, lifetimes[name].last))
    return found


def planned(lifetimes: Mapping[str, Lifetime]) -> tuple[dict[str, int], int]:
    """The offset of every tensor in the arena, in bytes, and the size of the arena.

    The largest tensors are placed first, each at the lowest offset where no tensor is that lives at the same time.
    """
    placed: dict[str, tuple[int, int]] = {}
    for name in sorted(lifetimes, key=lambda key: (-lifetimes[key].bytes, lifetimes[key].first, key)):
        mine = lifetimes[name]
        others = [placed[key] for key in placed if _overlap(mine, lifetimes[key])]
        begin = _lowest(mine.bytes, sorted(others))
        placed[name] = (begin, begin + mine.bytes)
    return {name: begin for name, (begin, _) in placed.items()}, _aligned(
        max((end for _, end in placed.values()), default=0)
    )


def _overlap(one: Lifetime, other: Lifetime) -> bool:
    return one.first <= other.last and other.first <= one.last


def _lowest(size: int, taken: Sequence[tuple[int, int]]) -> int:
    begin = 0
    for first, last in taken:
        if begin + size <= first:
            return begin
        begin = max(begin, _aligned(last))
    return begin


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
