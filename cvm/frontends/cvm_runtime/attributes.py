"""Attributes in the notation of cvm-runtime: strings, whose syntax and range depend on the attribute.

The syntax is exactly what the library's reader accepts, which differs from type to type:

* An integer is decimal, may have a sign and leading zeros, and fits 32 bits; spaces may stand around it.
* An integer or None is such an integer, directly followed by an ``L`` or not, or ``None`` without spaces before it.
* A bool is true, false, 1 or 0 in any case, without spaces.
* A tuple is a list of integers of 64 bits between ``(`` or ``[`` and ``)`` or ``]``, which need not match, and may end
  with a comma. An ``L`` may follow an item, after spaces or none; then the comma or the bracket must follow at once.
  A bare integer is a tuple of one item; it has neither a plus sign nor an ``L``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from cvm.errors import Invalid
from cvm.records import dataclass

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

_SPACES = r"[ \t\n\v\f\r]*+"
_NUMBER = "[+-]?[0-9]++"
_ITEM = f"{_SPACES}{_NUMBER}{_SPACES}L?"
_INTEGER = re.compile(f"{_SPACES}({_NUMBER}){_SPACES}")
_OPTIONAL = re.compile(f"(?:None|{_SPACES}({_NUMBER})L?){_SPACES}")
_BARE = re.compile(f"{_SPACES}(-?[0-9]++){_SPACES}")
_TUPLE = re.compile(rf"{_SPACES}[(\[]{_SPACES}(?:{_ITEM}(?:,{_ITEM})*+(?:,{_SPACES})?)?[)\]]{_SPACES}")
_DIGITS = 19
"""The most digits of an integer of 64 bits."""
_IGNORED = re.compile("__.+__", re.DOTALL)
"""The names of attributes that the library passes on to other readers."""


def _number(text: str, bits: int) -> int:
    """The signed integer of ``bits`` bits that a sign and digits stand for. Raises ValueError."""
    digits = text.lstrip("+-0") or "0"
    value = int(digits[: _DIGITS + 1]) * (-1 if text.startswith("-") else 1)
    if len(digits) > _DIGITS or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(f"an integer of {bits} bits")
    return value


def integer(text: str) -> int:
    """Parse an integer. Like the other parsers, it raises ValueError whose message says what is expected."""
    found = _INTEGER.fullmatch(text)
    if found is None:
        raise ValueError("an integer of 32 bits")
    return _number(found[1], 32)


def integer_or_none(text: str) -> int | None:
    """Parse an integer, or None."""
    found = _OPTIONAL.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        return None if found[1] is None else _number(found[1], 32)
    except ValueError:
        raise ValueError("an integer of 32 bits, or None") from None


def boolean(text: str) -> bool:
    """Parse a logical value."""
    found = {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
    if found is None:
        raise ValueError("true, false, 1 or 0, without spaces")
    return found


def integers(text: str) -> tuple[int, ...]:
    """Parse a tuple of integers."""
    if _BARE.fullmatch(text) is None and _TUPLE.fullmatch(text) is None:
        raise ValueError("a tuple of integers of 64 bits")
    try:
        return tuple(_number(item, 64) for item in re.findall(_NUMBER, text))
    except ValueError:
        raise ValueError("a tuple of integers of 64 bits") from None


def choice(*names: str) -> Callable[[str], str]:
    """A parser that accepts one of the given names."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return text

    return parse


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of an op of the library.

    ``default`` is the text for an attribute that is not given; None: the attribute is required. The value, or every
    item of a tuple, lies in [least, most]; the length of a tuple is one of ``lengths``, or any where ``lengths`` is
    empty.
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
            raise _wrong(op, name[:80], f"there is no such attribute; the attributes are {listed}")
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
    """A value in the notation of the library."""
    if isinstance(value, tuple):
        return f"({', '.join(map(str, value))}{',' if len(value) == 1 else ''})"
    return str(value)
