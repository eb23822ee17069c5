"""Attributes as cvm-runtime writes them: strings, whose syntax and range depend on the attribute.

An integer is decimal and fits 32 bits. A bool is true, false, 1 or 0 in any case. A tuple is ``(a, b)`` or ``[a, b]``,
with one comma more at the end if one likes and ``3L`` for 3, or a bare integer; ``None`` is none. Spaces may surround
any part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cvm.errors import Invalid

__all__ = [
    "Attribute",
    "Value",
    "boolean",
    "choice",
    "integer",
    "integer_or_none",
    "integers",
    "parse_attributes",
    "written",
]

Value: TypeAlias = "bool | int | str | tuple[int, ...] | None"

_INTEGER = re.compile(r"\s*([+-]?[0-9]{1,11})\s*", re.ASCII)
_ITEM = re.compile(r"\s*([+-]?[0-9]{1,11})L?\s*", re.ASCII)
_BRACKETS = {"(": ")", "[": "]"}
_LEAST, _MOST = -(2**31), 2**31 - 1
_IGNORED = re.compile("__.*__", re.DOTALL)
"""Names of attributes that the library leaves to others."""


def _matched(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.fullmatch(text)
    if found is None or not _LEAST <= int(found[1]) <= _MOST:
        raise ValueError("an integer of 32 bits")
    return int(found[1])


def integer(text: str) -> int:
    """An integer. Like the other parsers, raises ValueError that says what is expected."""
    return _matched(_INTEGER, text)


def integer_or_none(text: str) -> int | None:
    """An integer, or None."""
    if text.strip() == "None":
        return None
    try:
        return integer(text)
    except ValueError:
        raise ValueError("an integer of 32 bits, or None") from None


def boolean(text: str) -> bool:
    """A logical value."""
    found = {"true": True, "1": True, "false": False, "0": False}.get(text.strip().lower())
    if found is None:
        raise ValueError("true, false, 1 or 0")
    return found


def integers(text: str) -> tuple[int, ...]:
    """A tuple of integers."""
    inner = text.strip()
    try:
        if not inner or inner[0] not in _BRACKETS:
            return (_matched(_ITEM, inner),)
        if len(inner) < 2 or inner[-1] != _BRACKETS[inner[0]]:
            raise ValueError
        items = inner[1:-1].split(",")
        if not items[-1].strip():
            items.pop()
        return tuple(_matched(_ITEM, item) for item in items)
    except ValueError:
        raise ValueError("a tuple of integers of 32 bits") from None


def choice(*names: str) -> Callable[[str], str]:
    """A parser of one of the given names."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return text

    return parse


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of an op of the library.

    ``default`` is the text that stands for an absent one; None: it is required. The value, or every item of a tuple,
    lies in [least, most]; a tuple has one of ``lengths``, if there are any.
    """

    name: str
    parse: Callable[[str], Value]
    default: str | None = None
    least: int | None = None
    most: int | None = None
    lengths: tuple[int, ...] = ()

    def value(self, op: str, text: str) -> Value:
        """The value of a text. Raises `Invalid` (``cvm_runtime.attribute``)."""
        try:
            found = self.parse(text)
        except ValueError as error:
            raise _wrong(op, self.name, f"expected {error}, found {text[:80]!r}") from None
        items = found if isinstance(found, tuple) else (found,)
        if isinstance(found, tuple) and self.lengths and len(found) not in self.lengths:
            lengths = " or ".join(map(str, self.lengths))
            raise _wrong(op, self.name, f"expected {lengths} integers, found {text[:80]!r}")
        for item in items:
            if isinstance(item, int) and (
                (self.least is not None and item < self.least) or (self.most is not None and item > self.most)
            ):
                raise _wrong(op, self.name, f"expected integers in [{self.least}, {self.most}], found {item}")
        return found


def parse_attributes(op: str, declared: tuple[Attribute, ...], texts: Mapping[str, str]) -> dict[str, Value]:
    """The values of all attributes of an op, defaults included.

    Raises `Invalid` (``cvm_runtime.attribute``) for one that is unknown, missing, not of its syntax or out of range.
    """
    known = {item.name: item for item in declared}
    for name in texts:
        if name not in known and not (declared and _IGNORED.fullmatch(name)):
            listed = ", ".join(known) or "none"
            raise _wrong(op, name[:80], f"there is no such attribute; there are {listed}")
    values: dict[str, Value] = {}
    for name, item in known.items():
        text = texts.get(name, item.default)
        if text is None:
            raise _wrong(op, name, "it is required and missing")
        values[name] = item.value(op, text)
    return values


def _wrong(op: str, name: str, message: str) -> Invalid:
    return Invalid("cvm_runtime.attribute", f"{op}: attribute {name}: {message}")


def written(value: Value) -> str:
    """A value in the library's syntax."""
    if isinstance(value, tuple):
        return f"({', '.join(map(str, value))}{',' if len(value) == 1 else ''})"
    return str(value)
