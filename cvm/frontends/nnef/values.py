"""Values of compile-time expressions, and the tensors and operations of a flat document.

A value is an integer, an exact scalar, a logical, a string, an `Array`, a tuple, or a `FlatTensor`. A primitive value
given for a tensor parameter stays a literal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from cvm.errors import Location
from cvm.frontends.nnef.syntax import Fragment
from cvm.frontends.nnef.types import DataType
from cvm.records import dataclass

__all__ = [
    "Array",
    "Dialect",
    "FlatGraph",
    "FlatOperation",
    "FlatTensor",
    "NeededDialect",
    "Value",
    "concrete",
    "data_type",
    "leaves",
]


class Array(tuple["Value", ...]):
    """An array; ``leaves`` is the number of primitive values and tensors in it, with repetitions."""

    leaves: int

    def __new__(cls, items: Iterable[Value] = ()) -> Array:
        """An array of the items."""
        array = super().__new__(cls, items)
        array.leaves = sum(map(leaves, array))
        return array

    @classmethod
    def of_literals(cls, items: Iterable[Value]) -> Array:
        """An array of primitive values, whose leaves need no counting."""
        array = super().__new__(cls, items)
        array.leaves = len(array)
        return array


@dataclass(eq=False, slots=True)
class FlatTensor:
    """A tensor of the flat document; it gets its name when it is assigned to an identifier of the graph.

    ``shape`` is None for the result of a custom operation, and where it depends on one.
    """

    dtype: DataType
    shape: tuple[int, ...] | None
    operation: str
    location: Location
    name: str = ""


Dialect: TypeAlias = Literal["auto", "1.0.1", "khronos"]
"""The dialects that a reader accepts: 1.0.1 alone, 1.0.1 with the Khronos additions, or whichever a model needs."""

NeededDialect: TypeAlias = Literal["1.0.1", "khronos"]
"""The dialect that a model is written in."""

Value: TypeAlias = "int | Fraction | bool | str | Array | tuple[Value, ...] | FlatTensor"


@dataclass(frozen=True, eq=False, slots=True)
class FlatOperation:
    """One invocation with concrete arguments, defaults included; results are tensors or arrays of tensors."""

    declaration: Fragment
    arguments: Mapping[str, Value]
    results: tuple[Value, ...]
    generic: DataType | None
    location: Location

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self.declaration.name


@dataclass(frozen=True, eq=False, slots=True)
class FlatGraph:
    """A flattened graph: external, constant, variable and all other operations in execution order.

    ``exported`` holds the tensors that have an identifier in the graph body, by name (section 3.3.4). ``dialect`` is
    the smaller of the two dialects that suffices for the document, ``allowed`` what its reader accepts. ``fragments``
    holds all declarations in force, of the document and of the library.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operations: tuple[FlatOperation, ...]
    exported: Mapping[str, FlatTensor]
    dialect: NeededDialect = "1.0.1"
    allowed: Dialect = "auto"
    fragments: Mapping[str, Fragment] = field(default_factory=dict)


def leaves(value: Any) -> int:
    """The number of primitive values and tensors in a value."""
    if isinstance(value, Array):
        return value.leaves
    return sum(map(leaves, value)) if isinstance(value, tuple) else 1


def concrete(value: Value) -> Any:
    """A value with arrays as plain tuples."""
    if type(value) is Array and value and isinstance(value[0], int | Fraction):
        return tuple(value)
    return tuple(map(concrete, value)) if isinstance(value, tuple) else value


def data_type(value: Value) -> DataType | None:
    """The data type of a tensor or literal; for an array, of its first element with one; None if there is none."""
    match value:
        case FlatTensor(dtype=dtype):
            return dtype
        case bool():
            return "logical"
        case int():
            return "integer"
        case Fraction():
            return "scalar"
        case str():
            return "string"
    return next((found for found in map(data_type, value) if found is not None), None)
