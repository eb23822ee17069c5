"""The types of NNEF expressions and the implicit casts between them.

Source: NNEF 1.0.1 section 3.3.1.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from cvm.records import dataclass

__all__ = [
    "INTEGER",
    "LOGICAL",
    "SCALAR",
    "STRING",
    "ArrayType",
    "DataType",
    "Primitive",
    "TensorType",
    "TupleType",
    "Type",
    "candidates",
    "castable",
    "common_type",
    "depth_of",
    "has_tensor",
    "is_attribute",
    "is_generic",
    "is_unbound",
    "substitute",
]

DataType: TypeAlias = Literal["integer", "scalar", "logical", "string", "?"]


@dataclass(frozen=True, slots=True)
class Primitive:
    """``integer``, ``scalar``, ``logical``, ``string``, or the generic ``?``."""

    name: DataType

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class TensorType:
    """``tensor<name>``; ``tensor<>``, the unbound tensor, when ``name`` is None."""

    name: DataType | None

    def __str__(self) -> str:
        return f"tensor<{self.name or ''}>"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """``item[]``; where ``item`` is None, the type of the empty array, which has no notation."""

    item: Type | None

    def __str__(self) -> str:
        return "[]" if self.item is None else f"{self.item}[]"


@dataclass(frozen=True, slots=True)
class TupleType:
    """``(first, second)``."""

    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


Type: TypeAlias = Primitive | TensorType | ArrayType | TupleType

INTEGER = Primitive("integer")
SCALAR = Primitive("scalar")
LOGICAL = Primitive("logical")
STRING = Primitive("string")


def castable(source: Type, target: Type) -> bool:
    """Whether ``source`` equals ``target`` or is implicitly cast to it."""
    match source, target:
        case ((Primitive(name) | TensorType(name)), TensorType(wanted)):
            return wanted is None or wanted == name
        case ArrayType(item), ArrayType(wanted_item):
            return item is None or (wanted_item is not None and castable(item, wanted_item))
        case TupleType(items), TupleType(wanted_items):
            return len(items) == len(wanted_items) and all(map(castable, items, wanted_items))
    return source == target


def common_type(first: Type, second: Type) -> Type | None:
    """The one of two types to which the other can be cast; None if there is none.

    Arrays and tuples are compared item by item, so ``([], [1])`` and ``([1], [])`` have a common type.
    """
    match first, second:
        case ArrayType(None), ArrayType():
            return second
        case ArrayType(), ArrayType(None):
            return first
        case ArrayType(a), ArrayType(b) if a is not None and b is not None:
            item = common_type(a, b)
            return None if item is None else ArrayType(item)
        case TupleType(a_items), TupleType(b_items) if len(a_items) == len(b_items):
            items = [common_type(a_item, b_item) for a_item, b_item in zip(a_items, b_items, strict=True)]
            return TupleType(tuple(item for item in items if item is not None)) if None not in items else None
    if castable(first, second):
        return second
    return first if castable(second, first) else None


def has_tensor(type_: Type) -> bool:
    """Whether the type is or contains a tensor type."""
    match type_:
        case TensorType():
            return True
        case ArrayType(item):
            return item is not None and has_tensor(item)
        case TupleType(items):
            return any(map(has_tensor, items))
    return False


def depth_of(type_: Type) -> int:
    """The depth to which arrays and tuples are nested in a type; 1 for a primitive or a tensor."""
    match type_:
        case ArrayType(item) if item is not None:
            return 1 + depth_of(item)
        case TupleType(items):
            return 1 + max(map(depth_of, items), default=0)
    return 1


def is_attribute(type_: Type) -> bool:
    """Whether the type contains no tensor type."""
    return not has_tensor(type_)


def is_generic(type_: Type) -> bool:
    """Whether the type contains ``?``."""
    match type_:
        case Primitive(name) | TensorType(name):
            return name == "?"
        case ArrayType(item):
            return item is not None and is_generic(item)
        case TupleType(items):
            return any(map(is_generic, items))


def is_unbound(type_: Type) -> bool:
    """Whether the type contains ``tensor<>``."""
    match type_:
        case TensorType(name):
            return name is None
        case ArrayType(item):
            return item is not None and is_unbound(item)
        case TupleType(items):
            return any(map(is_unbound, items))
    return False


def substitute(type_: Type, name: DataType) -> Type:
    """The type with ``?`` replaced by ``name``."""
    match type_:
        case Primitive("?"):
            return Primitive(name)
        case TensorType("?"):
            return TensorType(name)
        case ArrayType(item) if item is not None:
            return ArrayType(substitute(item, name))
        case TupleType(items):
            return TupleType(tuple(substitute(item, name) for item in items))
    return type_


def candidates(formal: Type, actual: Type) -> set[DataType]:
    """The data types that ``?`` may stand for when an expression of type ``actual`` is given for ``formal``."""
    match formal, actual:
        case Primitive("?"), Primitive(name):
            return {name}
        case TensorType("?"), (Primitive(name) | TensorType(name)) if name is not None:
            return {name}
        case ArrayType(item), ArrayType(actual_item) if item is not None and actual_item is not None:
            return candidates(item, actual_item)
        case TupleType(items), TupleType(actual_items) if len(items) == len(actual_items):
            return set().union(*map(candidates, items, actual_items))
    return set()
