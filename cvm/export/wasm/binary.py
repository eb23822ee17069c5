"""Numbers, names and lists in the binary format of WebAssembly."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["PAGE", "Cursor", "item", "listed", "signed", "text", "unsigned"]

PAGE = 2**16
"""The unit in which memory is given."""


def unsigned(value: int) -> bytes:
    """A number >= 0 as LEB128."""
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def signed(value: int) -> bytes:
    """An i32, given by its value modulo 2^32, as signed LEB128."""
    value = (value + 2**31) % 2**32 - 2**31
    digits = bytearray()
    while not -64 <= value < 64:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value & 127)
    return bytes(digits)


def item(content: bytes) -> bytes:
    """Bytes behind their length."""
    return unsigned(len(content)) + content


def text(value: str) -> bytes:
    """A name."""
    return item(value.encode())


def listed(items: Sequence[bytes]) -> bytes:
    """Items behind their number."""
    return unsigned(len(items)) + b"".join(items)


class Cursor:
    """Reads items from bytes, one after the other. Raises IndexError beyond their end."""

    def __init__(self, content: bytes, at: int = 0) -> None:
        self._content, self._at = content, at

    def done(self) -> bool:
        """Whether everything has been read."""
        return self._at >= len(self._content)

    def byte(self) -> int:
        """One byte."""
        self._at += 1
        return self._content[self._at - 1]

    def take(self, count: int) -> bytes:
        """``count`` bytes."""
        if self._at + count > len(self._content):
            raise IndexError("the bytes end early")
        self._at += count
        return self._content[self._at - count : self._at]

    def rest(self) -> bytes:
        """All bytes that are left."""
        return self.take(len(self._content) - self._at)

    def text(self) -> str:
        """A name."""
        return self.take(self.unsigned()).decode()

    def unsigned(self) -> int:
        """A number in LEB128."""
        return self._leb128()[0]

    def signed(self) -> int:
        """A number in signed LEB128."""
        value, bits = self._leb128()
        return value - (1 << bits) if value >> bits - 1 else value

    def _leb128(self) -> tuple[int, int]:
        """A number in LEB128, and how many bits its bytes hold."""
        value, bits = 0, 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << bits
            bits += 7
            if byte < 128:
                return value, bits
