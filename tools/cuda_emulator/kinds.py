"""The types of LLVM IR, and the arrays that hold their values.

A value is an array whose first axis is the thread: n entries, or one entry that all threads share. A vector has its
lanes in a second axis. A struct is a tuple of values. An i1 is a truth value; any other integer of up to 64 bits is
held, sign-extended, in the next signed integer of NumPy; a wider one is a Python integer >= 0. A pointer is an int64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["DOUBLE", "PTR", "VOID", "Array", "Type", "Value", "container", "integer", "pointer", "vector_of"]

Array: TypeAlias = npt.NDArray[Any]
Value: TypeAlias = Any
"""An `Array`, or a tuple of values."""


@dataclass(frozen=True, slots=True)
class Type:
    """A type: ``int``, ``double``, ``ptr``, ``vector``, ``array``, ``struct`` or ``void``.

    ``bits`` belongs to integers, ``space`` to pointers, ``count`` to vectors and arrays; ``parts`` are the type of the
    elements, or the types of the fields.
    """

    kind: str
    bits: int = 0
    count: int = 0
    parts: tuple[Type, ...] = ()
    space: int = 0

    def __str__(self) -> str:
        match self.kind:
            case "int":
                return f"i{self.bits}"
            case "ptr":
                return f"ptr addrspace({self.space})" if self.space else "ptr"
            case "vector":
                return f"<{self.count} x {self.parts[0]}>"
            case "array":
                return f"[{self.count} x {self.parts[0]}]"
            case "struct":
                return "{ " + ", ".join(map(str, self.parts)) + " }"
        return self.kind

    @property
    def element(self) -> Type:
        """The type of one lane; of a scalar, the type itself."""
        return self.parts[0] if self.kind == "vector" else self

    @property
    def lanes(self) -> int:
        """The number of lanes; 1 for a scalar."""
        return self.count if self.kind == "vector" else 1

    @property
    def width(self) -> int:
        """The number of bits of one lane."""
        element = self.element
        return element.bits if element.kind == "int" else 64

    @property
    def size(self) -> int:
        """The number of bytes in memory."""
        if self.kind == "vector":
            return (self.count * self.width + 7) // 8
        if self.kind == "array":
            return self.count * self.parts[0].size
        return (self.width + 7) // 8


VOID, DOUBLE, PTR = Type("void"), Type("double"), Type("ptr")


def integer(bits: int) -> Type:
    """The integer type of so many bits."""
    return Type("int", bits)


def pointer(space: int) -> Type:
    """A pointer to an address space."""
    return Type("ptr", space=space)


def vector_of(count: int, element: Type) -> Type:
    """<count x element>."""
    return Type("vector", count=count, parts=(element,))


@cache
def container(type_: Type) -> np.dtype[Any]:
    """The NumPy type that holds one lane."""
    element = type_.element
    if element.kind == "double":
        return np.dtype(np.float64)
    if element.kind == "ptr":
        return np.dtype(np.int64)
    if element.bits == 1:
        return np.dtype(np.bool_)
    for bits in (8, 16, 32, 64):
        if element.bits <= bits:
            return np.dtype(f"int{bits}")
    return np.dtype(object)
