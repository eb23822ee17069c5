"""Canonical msgpack: a subset in which every document has exactly one encoding, and a reader for hostile input.

The subset has integers of at most 64 bits in their shortest form, UTF-8 strings, binaries, booleans, arrays, and maps
whose keys are strings in strictly ascending order of their UTF-8 bytes. It has no floats, no nil and no extensions; an
absent item is a missing key. Rationals are strings ``p/q`` in lowest terms with q >= 1.

The reader follows the structure that its caller expects: it checks the leading byte of each item before it parses
anything, and each length before it allocates memory. So no input can make it recurse, or allocate more than the size of
the input. It does not refuse an integer or a length in a longer form than necessary; its callers encode the document
again and compare the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from struct import Struct, error
from typing import Any, TypeAlias, TypeVar

import msgpack

from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.limits import require

__all__ = ["RATIONAL_DIGITS", "Listed", "Reader", "Tree", "pack", "packs_to", "pieces", "rational_text"]

Tree: TypeAlias = "int | bool | str | bytes | list[Tree] | Listed | Mapping[str, Tree]"
"""The data that can be packed."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A list whose items are made one by one while they are written, so that no second copy of a program is made."""

    count: int
    items: Iterable[Tree]


RATIONAL_DIGITS = 640
"""The most decimal digits of a numerator or denominator; every Python converts that many with any setting."""

_RATIONAL = re.compile(r"(-?(?:0|[1-9][0-9]*))/([1-9][0-9]*)", re.ASCII)

_T = TypeVar("_T")


_LEADING_BYTES = {
    "integer": ((0x00, 0x7F), (0xCC, 0xD3), (0xE0, 0xFF)),
    "map": ((0x80, 0x8F), (0xDE, 0xDF)),
    "array": ((0x90, 0x9F), (0xDC, 0xDD)),
    "string": ((0xA0, 0xBF), (0xD9, 0xDB)),
    "boolean": ((0xC2, 0xC3),),
    "binary": ((0xC4, 0xC6),),
}


def _kinds() -> tuple[str, ...]:
    """The kind of item that each leading byte announces."""
    kinds = ["an item that is not allowed (nil, float, extension)"] * 256
    for kind, spans in _LEADING_BYTES.items():
        for first, last in spans:
            kinds[first : last + 1] = [kind] * (last + 1 - first)
    return tuple(kinds)


_KINDS = _kinds()


_NUMBERS = {
    0xC0 + offset: Struct(">" + code)
    for offset, code in ((0x04, "B"), (0x05, "H"), (0x06, "I"), (0x0C, "B"), (0x0D, "H"), (0x0E, "I"), (0x0F, "Q"),
                        (0x10, "b"), (0x11, "h"), (0x12, "i"), (0x13, "q"), (0x19, "B"), (0x1A, "H"), (0x1B, "I"),
                        (0x1C, "H"), (0x1D, "I"), (0x1E, "H"), (0x1F, "I"))
}  # fmt: skip
"""The number that follows a leading byte: an integer, or a length."""

_BINARY = ((0xC4, 2**8), (0xC5, 2**16), (0xC6, 2**32))
APART = 2**12
"""A binary of at least this many bytes is a piece of its own and is not copied."""


def _pieces(tree: Tree, packer: msgpack.Packer, format_name: str) -> Iterator[bytes]:
    """The canonical bytes of ``tree`` in pieces; the last bytes remain in the packer."""
    if isinstance(tree, Mapping):
        packer.pack_map_header(len(tree))
        for key in sorted(tree):
            packer.pack(key)
            yield from _pieces(tree[key], packer, format_name)
    elif isinstance(tree, list):
        packer.pack_array_header(len(tree))
        for item in tree:
            yield from _pieces(item, packer, format_name)
    elif isinstance(tree, Listed):
        packer.pack_array_header(tree.count)
        for item in tree.items:
            yield from _pieces(item, packer, format_name)
            yield packer.bytes()
            packer.reset()
    elif type(tree) is bytes and len(tree) >= APART:
        lead = next((lead for lead, end in _BINARY if len(tree) < end), None)
        if lead is None:
            raise ValueError("a binary of 2^32 bytes or more")
        yield packer.bytes() + bytes([lead]) + _NUMBERS[lead].pack(len(tree))
        packer.reset()
        yield tree
    elif type(tree) in (int, bool, str, bytes):
        packer.pack(tree)
    else:
        message = f"a {format_name} holds integers, booleans, strings and bytes, found {tree!r}"
        raise Invalid(f"{format_name}.type", message)


def pieces(tree: Tree, format_name: str) -> Iterator[bytes]:
    """The canonical bytes of ``tree`` in pieces. Long binaries become pieces without a copy. Raises as `pack` does."""
    packer = msgpack.Packer(use_bin_type=True, strict_types=True, autoreset=False)
    try:
        yield from _pieces(tree, packer, format_name)
        yield packer.bytes()
    except CvmError:
        raise
    except OverflowError:
        raise Invalid(f"{format_name}.integer", "an integer does not fit in 64 bits") from None
    except UnicodeEncodeError:
        raise Invalid(f"{format_name}.text", "a string holds a code point that UTF-8 has no form for") from None
    except ValueError as found:
        raise LimitExceeded("limit.item", f"an item is too long for the format: {found}") from None


def pack(tree: Tree, format_name: str) -> bytes:
    """The canonical bytes of ``tree``.

    Raises `Invalid` for an integer of more than 64 bits, a string that is not UTF-8 or a type outside the subset, with
    a code that begins with ``format_name``, and `LimitExceeded` for an item that is too long for msgpack (2^32 bytes).
    """
    return b"".join(pieces(tree, format_name))


def packs_to(tree: Tree, data: bytes, format_name: str) -> bool:
    """Whether ``data`` are the canonical bytes of ``tree``; they are compared in pieces. Raises as `pack` does."""
    offset = 0
    for piece in pieces(tree, format_name):
        if not data.startswith(piece, offset):
            return False
        offset += len(piece)
    return offset == len(data)


def rational_text(value: Fraction) -> str:
    """A rational as ``p/q`` in lowest terms. Raises `LimitExceeded` beyond 640 digits."""
    bits = max(value.numerator.bit_length(), value.denominator.bit_length())
    if bits <= 4 * RATIONAL_DIGITS:  # this keeps the conversion below cheap
        try:
            text = f"{value.numerator}/{value.denominator}"
        except ValueError:  # it has more digits than this Python converts, so more than 640
            text = ""
        if text and max(len(part.lstrip("-")) for part in text.split("/")) <= RATIONAL_DIGITS:
            return text
    raise LimitExceeded("limit.rational", f"a rational has more than {RATIONAL_DIGITS} digits")


class Reader:
    """Reads canonical msgpack from front to back. For each item, the caller calls the method of the expected kind.

    All methods raise `Malformed` with a code that begins with ``format_name``: ``.truncated``, ``.type``, ``.text``,
    ``.rational``, ``.key``, ``.value`` or ``.trailing``; a list longer than ``items`` is `LimitExceeded`.
    """

    def __init__(self, data: bytes, format_name: str, items: int) -> None:
        self._data = data
        self._format = format_name
        self._items = items
        self._offset = 0

    @property
    def offset(self) -> int:
        """The number of bytes read."""
        return self._offset

    def kind(self) -> str:
        """The kind of the next item, which is not read."""
        if self._offset >= len(self._data):
            raise self._truncated()
        return _KINDS[self._data[self._offset]]

    def integer(self) -> int:
        """An integer of at most 64 bits."""
        self._expect("integer")
        lead = self._data[self._offset]
        if lead in _NUMBERS:
            return self._number()
        self._offset += 1
        return lead if lead < 0x80 else lead - 0x100

    def boolean(self) -> bool:
        """A boolean."""
        self._expect("boolean")
        self._offset += 1
        return self._data[self._offset - 1] == 0xC3

    def text(self) -> str:
        """A string."""
        self._expect("string")
        length = self._length(0x1F)
        try:
            return self._taken(length).decode("utf-8")
        except UnicodeDecodeError:
            raise self.malformed("text", "a string is not UTF-8") from None

    def binary(self) -> bytes:
        """A binary."""
        self._expect("binary")
        return self._taken(self._length(0))

    def choice(self, allowed: Iterable[str]) -> str:
        """A string that must be one of ``allowed``."""
        text = self.text()
        if text not in allowed:
            raise self.malformed("value", f"expected one of {', '.join(allowed)}, found {text!r}")
        return text

    def rational(self) -> Fraction:
        """A rational ``p/q`` in lowest terms."""
        text = self.text()
        match = _RATIONAL.fullmatch(text) if len(text) <= 2 * RATIONAL_DIGITS + 2 else None
        if match is None or max(len(part.lstrip("-")) for part in match.groups()) > RATIONAL_DIGITS:
            raise self.malformed("rational", f"expected p/q of at most {RATIONAL_DIGITS} digits, found {text[:80]!r}")
        numerator, denominator = int(match[1]), int(match[2])
        if gcd(numerator, denominator) != 1 or match[1] == "-0":
            raise self.malformed("rational", f"{text[:80]!r} is not in lowest terms")
        return Fraction(numerator, denominator)

    def array(self, item: Callable[[], _T]) -> tuple[_T, ...]:
        """An array; ``item`` reads each of its items."""
        return tuple([item() for _ in range(self.array_header())])

    def array_header(self) -> int:
        """The number of items of an array. The caller then reads the items."""
        return self._header("array", 1)

    def table(self, item: Callable[[], _T]) -> dict[str, _T]:
        """A map with any keys; ``item`` reads each value."""
        found: dict[str, _T] = {}
        for _ in range(self._header("map", 2)):
            key = self._key(found)
            found[key] = item()
        return found

    def record(self, fields: Mapping[str, Callable[[], Any]], optional: Iterable[str] = ()) -> dict[str, Any]:
        """A map whose keys are those of ``fields``; ``optional`` ones may be missing. Functions read the values."""
        found: dict[str, Any] = {}
        for _ in range(self._header("map", 2)):
            key = self._key(found)
            if key not in fields:
                raise self.malformed("key", f"there is no key {key[:80]!r} here; there are {', '.join(fields)}")
            found[key] = fields[key]()
        missing = [key for key in fields if key not in found and key not in optional]
        if missing:
            raise self.malformed("key", f"the key {missing[0]!r} is missing")
        return found

    def forget(self) -> None:
        """Release the data. Otherwise reference cycles of bound methods would keep it until they are collected."""
        self._data = b""

    def end(self) -> None:
        """Require that everything has been read."""
        left = len(self._data) - self.offset
        if left:
            raise self.malformed("trailing", f"{left} bytes follow the end")

    def malformed(self, code: str, message: str) -> Malformed:
        """An error about the item that was just read."""
        return Malformed(f"{self._format}.{code}", f"before byte {self.offset}: {message}")

    def _key(self, found: dict[str, Any]) -> str:
        key = self.text()
        if found and key <= next(reversed(found)):  # UTF-8 bytes have the same order as code points
            raise self.malformed("key", f"the key {key[:80]!r} is repeated or out of order")
        return key

    def _header(self, kind: str, least: int) -> int:
        """The length of an array or map whose entries take at least ``least`` bytes each."""
        self._expect(kind)
        count = self._length(0x0F)
        if count * least > len(self._data) - self._offset:
            raise self._truncated()
        require("items", count, self._items, f"before byte {self.offset}: items of one {kind}")
        return count

    def _length(self, within: int) -> int:
        """The length of an item. A leading byte of the short form contains it in the bits ``within``."""
        lead = self._data[self._offset]
        if lead in _NUMBERS:
            return self._number()
        self._offset += 1
        return lead & within

    def _number(self) -> int:
        """The number behind a leading byte."""
        form = _NUMBERS[self._data[self._offset]]
        try:
            (number,) = form.unpack_from(self._data, self._offset + 1)
        except error:
            raise self._truncated() from None
        self._offset += 1 + form.size
        return int(number)

    def _taken(self, length: int) -> bytes:
        """The next ``length`` bytes."""
        if length > len(self._data) - self._offset:
            raise self._truncated()
        self._offset += length
        return self._data[self._offset - length : self._offset]

    def _expect(self, kind: str) -> None:
        found = self.kind()
        if found != kind:
            raise self.malformed("type", f"expected {kind}, found {found}")

    def _truncated(self) -> Malformed:
        return self.malformed("truncated", f"the data ends too early ({len(self._data)} bytes)")
