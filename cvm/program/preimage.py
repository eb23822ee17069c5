"""The parts of preimages: the layouts of integers, texts, shapes and lists (docs/commitments.md, section 1)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import error, pack

from cvm.errors import Invalid
from cvm.program.model import Shape

__all__ = ["i64", "listed", "shape", "text", "u8", "u32", "u64"]


def _integer(value: int, size: int, signed: bool) -> bytes:
    try:
        return value.to_bytes(size, "little", signed=signed)
    except OverflowError:
        raise Invalid("program.integer", f"{value} does not fit in {8 * size} bits") from None


def u8(value: int) -> bytes:
    """An unsigned integer of 1 byte."""
    return _integer(value, 1, signed=False)


def u32(value: int) -> bytes:
    """An unsigned integer of 4 bytes."""
    return _integer(value, 4, signed=False)


def u64(value: int) -> bytes:
    """An unsigned integer of 8 bytes."""
    return _integer(value, 8, signed=False)


def i64(value: int) -> bytes:
    """A signed integer of 8 bytes."""
    return _integer(value, 8, signed=True)


def text(value: str) -> bytes:
    """The length of a text, in bytes, and its UTF-8 bytes."""
    try:
        encoded = value.encode("utf-8")
    except UnicodeEncodeError:
        raise Invalid("program.text", f"{value!r} holds a code point that UTF-8 has no form for") from None
    return u32(len(encoded)) + encoded


def shape(extents: Shape) -> bytes:
    """The rank and the extents of a tensor."""
    try:  # one call for all extents, since every tensor of a trace has a shape
        return pack(f"<B{len(extents)}Q", len(extents), *extents)
    except error:
        raise Invalid("program.integer", f"the shape {list(extents)} does not fit in its layout") from None


def listed(items: Sequence[bytes]) -> bytes:
    """The number of items, and the items."""
    return u32(len(items)) + b"".join(items)
