"""Reading the bytes that `cvm.program.preimage` writes: a fixed layout, read front to back, without trust in it.

Every length is compared with the bytes that are left before anything is read, so nothing larger than the input is ever
allocated. Each part has exactly one encoding, so the parts encode to the same bytes again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cvm.errors import Malformed
from cvm.limits import MAX_RANK
from cvm.program.merkle import HASH_BYTES
from cvm.program.model import Shape

__all__ = ["Cursor"]

_T = TypeVar("_T")


class Cursor:
    """Reads bytes part by part. All methods raise `Malformed` with a code that begins with ``step.``."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    @property
    def left(self) -> int:
        """The number of bytes that are not yet read."""
        return len(self._data) - self._offset

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        if size > self.left:
            raise self.malformed("truncated", f"{size} bytes are wanted, {self.left} are left")
        self._offset += size
        return self._data[self._offset - size : self._offset]

    def tag(self, tag: bytes) -> None:
        """Require exactly these bytes."""
        if self.take(min(len(tag), self.left)) != tag:
            raise self.malformed("tag", f"expected {tag!r}")

    def integer(self, size: int, signed: bool = False) -> int:
        """An integer of ``size`` bytes."""
        return int.from_bytes(self.take(size), "little", signed=signed)

    def u8(self) -> int:
        """An unsigned integer of 1 byte."""
        return self.integer(1)

    def u32(self) -> int:
        """An unsigned integer of 4 bytes."""
        return self.integer(4)

    def u64(self) -> int:
        """An unsigned integer of 8 bytes."""
        return self.integer(8)

    def i64(self) -> int:
        """A signed integer of 8 bytes."""
        return self.integer(8, signed=True)

    def flag(self) -> bool:
        """A byte that is 0 or 1, as a truth value."""
        value = self.u8()
        if value > 1:
            raise self.malformed("flag", f"expected 0 or 1, found {value}")
        return value == 1

    def root(self) -> bytes:
        """A hash."""
        return self.take(HASH_BYTES)

    def binary(self) -> bytes:
        """Bytes with their length before them."""
        return self.take(self.u32())

    def text(self) -> str:
        """A text: the length of its UTF-8 bytes, and these."""
        try:
            return self.binary().decode("utf-8")
        except UnicodeDecodeError:
            raise self.malformed("text", "a text is not UTF-8") from None

    def shape(self) -> Shape:
        """The rank and the extents of a tensor: 1 to 8 of them, each 1 or more."""
        rank = self.u8()
        extents = tuple(self.u64() for _ in range(rank)) if rank <= MAX_RANK else ()
        if not extents or min(extents) < 1:
            raise self.malformed("shape", f"expected 1 to {MAX_RANK} extents, each 1 or more")
        return extents

    def listed(self, item: Callable[[], _T], least: int) -> tuple[_T, ...]:
        """A list of items, each of at least ``least`` bytes."""
        count = self.u32()
        if count * least > self.left:
            raise self.malformed("truncated", f"{count} items are announced, {self.left} bytes are left")
        return tuple([item() for _ in range(count)])

    def roots(self) -> tuple[bytes, ...]:
        """A list of hashes."""
        return self.listed(self.root, HASH_BYTES)

    def end(self) -> None:
        """Require that everything has been read."""
        if self.left:
            raise self.malformed("trailing", f"{self.left} bytes follow the end")

    def malformed(self, code: str, message: str) -> Malformed:
        """An error at the bytes that were just read."""
        return Malformed(f"step.{code}", f"before byte {self._offset}: {message}")
