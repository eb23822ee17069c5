"""The attributes of ops: what an op declares of each, and the typed attributes of one call.

An attribute is an integer, a tuple of integers, one of some words, or a truth value. An op declares its attributes in a
subclass of `TypedAttributes`, each as an `Attribute`. These few kinds are checked here and not by a library: whoever
believes a verdict would have to believe the library too, and wait for its import at each start.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, NoReturn, TypeAlias

from cvm.limits import INT32_MAX, MAX_RANK

__all__ = ["ATTRIBUTE_MAX", "EXTENT", "EXTENTS", "EXTENT_PAIR", "INT32", "INTEGER", "INTEGERS", "PADDING",
           "PADDING_PAIR", "POSITIVE", "POSITIVES", "POSITIVE_PAIR", "PRECISION", "REQUIRED", "SHIFT", "TRUTH",
           "Attribute", "Integer", "Integers", "Kind", "Truth", "Typed", "TypedAttributes", "Word",
           "WrongAttribute"]  # fmt: skip

ATTRIBUTE_MAX = 4096
"""The document's ``max_attr``, inclusive; ``min_attr`` is 0 (formal/ERRATA.md)."""

Typed: TypeAlias = int | bool | str | tuple[int, ...]
REQUIRED: Final = object()
"""The default of an attribute that must be given."""


class Kind(ABC):
    """What an attribute may be. ``str`` gives it in words."""

    @abstractmethod
    def typed(self, value: object) -> Typed | None:
        """The value in the type that executors read; None for a value that is not of this kind."""


class Integer(Kind):
    """An integer from ``least`` to ``most``. Truth values and integers of NumPy are none."""

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def __str__(self) -> str:
        return f"an integer from {self.least} to {self.most}"

    def typed(self, value: object) -> int | None:
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        return int(value) if self.least <= value <= self.most else None


class Integers(Kind):
    """A tuple or a list of ``shortest`` to ``longest`` integers; with ``repeats``, also one integer for all of them."""

    def __init__(self, item: Integer, shortest: int, longest: int, repeats: bool = False) -> None:
        self.item, self.shortest, self.longest, self.repeats = item, shortest, longest, repeats

    def __str__(self) -> str:
        count = f"{self.shortest}" if self.shortest == self.longest else f"{self.shortest} to {self.longest}"
        return f"a tuple of {count} integers from {self.item.least} to {self.item.most}"

    def typed(self, value: object) -> tuple[int, ...] | None:
        """See `Kind.typed`. A tuple of plain integers is returned itself, since many nodes may share a long one."""
        if self.repeats and isinstance(value, int):
            value = (value,) * self.longest
        if not isinstance(value, tuple | list) or not self.shortest <= len(value) <= self.longest:
            return None
        items = tuple(item for item in map(self.item.typed, value) if item is not None)
        if len(items) < len(value):
            return None
        return value if type(value) is tuple and all(type(item) is int for item in value) else items


class Word(Kind):
    """One of some words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def __str__(self) -> str:
        *others, last = map(repr, self.words)
        return f"{', '.join(others)} or {last}"

    def typed(self, value: object) -> str | None:
        return next((word for word in self.words if isinstance(value, str) and word == value), None)


class Truth(Kind):
    """True or False."""

    def __str__(self) -> str:
        return "True or False"

    def typed(self, value: object) -> bool | None:
        return value if isinstance(value, bool) else None


INTEGER = Integer(-INT32_MAX - 1, INT32_MAX)
"""Any integer of 32 bits, which every implementation can hold."""
INT32 = Integer(-INT32_MAX, INT32_MAX)
"""Any element of a tensor."""
POSITIVE = Integer(1, ATTRIBUTE_MAX)
PADDING = Integer(0, ATTRIBUTE_MAX)
EXTENT = Integer(1, INT32_MAX)
"""The extent of a dimension, or a factor of an extent."""
PRECISION = Integer(1, 32)
"""A CVM precision p: |x| <= 2^(p-1) - 1."""
SHIFT = Integer(1, 32)
"""The number of bits of a shift."""
INTEGERS = Integers(INTEGER, 0, MAX_RANK)
"""A TShape: up to 8 integers, since no tensor has more dimensions."""
EXTENTS = Integers(EXTENT, 1, MAX_RANK)
"""The shape of a tensor."""
POSITIVES = Integers(POSITIVE, 1, MAX_RANK)
"""One factor for each dimension."""
EXTENT_PAIR, POSITIVE_PAIR, PADDING_PAIR = (Integers(item, 2, 2) for item in (EXTENT, POSITIVE, PADDING))
TRUTH = Truth()


class Attribute:
    """One declared attribute: its kind, what it means, and its default. With the default None it may also be None."""

    def __init__(self, kind: Kind, what: str, default: Any = REQUIRED) -> None:
        self.kind, self.what, self.default, self.required = kind, what, default, default is REQUIRED


class WrongAttribute(ValueError):
    """An attribute ``name`` that is missing, unknown, or not of its kind; ``what`` says which."""

    def __init__(self, name: object, what: str) -> None:
        super().__init__(name, what)
        self.name, self.what = name, what


class TypedAttributes:
    """The typed attributes of one call. Immutable; iteration gives names and values in the declared order.

    A subclass declares its attributes as class variables of type `Attribute`; an instance has their values instead.
    This class itself has none.
    """

    declared: ClassVar[Mapping[str, Attribute]] = {}

    def __init_subclass__(cls) -> None:
        cls.declared = {name: item for name, item in vars(cls).items() if isinstance(item, Attribute)}

    def __init__(self, given: Mapping[str, object]) -> None:
        """Take the given values, and the defaults of the others. Raises `WrongAttribute`."""
        for name, item in self.declared.items():
            value = given.get(name, item.default)
            if value is REQUIRED:
                raise WrongAttribute(name, "it must be given")
            typed = item.kind.typed(value)
            if typed is None and not value is item.default is None:
                raise WrongAttribute(name, f"expected {item.kind}")
            self.__dict__[name] = typed
        known = ", ".join(self.declared) or "none"
        for name in given:
            if name not in self.declared:
                raise WrongAttribute(name, f"there is no such attribute, there are {known}")

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.__dict__.items())

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"attributes do not change: {name}")
