"""One allocation, or the same allocation for every block or thread: its bytes, and who touched them.

Every access is checked for its bounds, its alignment, and bytes that nobody has written. Memory that several threads
share has `Shadows`, too.
"""

from __future__ import annotations

import numpy as np

from tools.cuda_emulator.kinds import Array
from tools.cuda_emulator.shadows import Conflict, Shadows

__all__ = ["Memory"]

_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Memory:
    """``rows`` copies of an allocation of ``size`` bytes. ``traced``: threads may conflict there."""

    def __init__(self, name: str, size: int, rows: int = 1, traced: bool = True) -> None:
        self.name, self.size, self.rows = name, size, rows
        self.stride = -(-size // 16) * 16 or 16
        self.data = np.zeros(rows * self.stride, np.uint8)
        self.written = np.zeros(rows * self.stride, np.uint8)
        self.complete = False
        """Whether every byte has been written."""
        self.constant = np.zeros(0, np.uint8)
        """1 for bytes that no kernel may change; empty if there are none."""
        self.frozen = False
        """Whether no byte may be changed by a kernel."""
        self.pending = np.zeros(0, np.uint8)
        """1 for bytes that an asynchronous copy may still write; empty if there are none."""
        self.shadows = Shadows(self.place, self.data.size) if traced else None

    def check(self, offsets: Array, size: int, align: int) -> None:
        """Refuse offsets outside the allocation, and offsets that are no multiples of ``align``."""
        if np.minimum.reduce(offsets) < 0 or np.maximum.reduce(offsets) > self.size - size:
            entry = int(np.argmax((offsets < 0) | (offsets > self.size - size)))
            text = f"{size} bytes at offset {offsets[entry]} of {self.name}, which has {self.size} bytes"
            raise Conflict("outside", entry, text)
        if align > 1 and int(np.bitwise_or.reduce(offsets)) & align - 1:
            entry = int(np.argmax(offsets & align - 1 != 0))
            raise Conflict("misaligned", entry, f"offset {offsets[entry]} of {self.name} is no multiple of {align}")

    def places(self, offsets: Array, rows: Array | None) -> Array:
        """Where the bytes lie in `data`: rows are the copies that the threads have, None if there is one."""
        return offsets if rows is None else rows * self.stride + offsets

    def read(self, places: Array, size: int) -> Array:
        """The bytes at some places, as an array of (n, size). Refuses bytes that nobody wrote, or that are pending."""
        self.free_of_copies(places, size)
        if not self.complete:
            written = _take(self.written, places, size)
            if not written.all():
                entry = int(np.argmin(written.all(axis=1)))
                raise Conflict("unwritten", entry, f"{self.place(int(places[entry]))} has never been written")
        return _take(self.data, places, size)

    def write(self, places: Array, values: Array) -> None:
        """Store (n, size) bytes."""
        size = values.shape[1]
        if self.constant.size and _take(self.constant, places, size).any():
            entry = int(np.argmax(_take(self.constant, places, size).any(axis=1)))
            raise Conflict("constant", entry, f"{self.place(int(places[entry]))} is not to be changed by kernels")
        self.free_of_copies(places, size)
        _put(self.data, places, values)
        if not self.complete:
            _put(self.written, places, np.ones_like(values))

    def free_of_copies(self, places: Array, size: int) -> None:
        """Refuse bytes that an asynchronous copy may still write."""
        if self.pending.size and _take(self.pending, places, size).any():
            entry = int(np.argmax(_take(self.pending, places, size).any(axis=1)))
            message = f"an asynchronous copy to {self.place(int(places[entry]))} has not been waited for"
            raise Conflict("pending copy", entry, message)

    def expect(self, places: Array, size: int, pending: bool) -> None:
        """Mark bytes that an asynchronous copy will write, or has written."""
        if not self.pending.size:
            self.pending = np.zeros(self.data.size, np.uint8)
        _put(self.pending, places, np.full((places.size, size), pending, np.uint8))

    def fill(self, offset: int, content: Array, constant: bool) -> None:
        """Bytes that the host writes."""
        end = offset + content.size
        self.data[offset:end] = content
        self.written[offset:end] = 1
        if constant and not self.constant.size:
            self.constant = np.zeros(self.data.size, np.uint8)
        if self.constant.size:
            self.constant[offset:end] = constant
            self.frozen = bool(self.constant[: self.size].all())
        self.complete = self.complete or bool(self.written[: self.size].all())

    def place(self, place: int) -> str:
        """A place in words."""
        return f"byte {place % self.stride} of {self.name}"


def _words(data: Array, places: Array, size: int) -> Array | None:
    """The memory as rows of ``size`` bytes in machine words, if all places are multiples of it; else None."""
    if size not in (1, 2, 4, 8, 16) or (size > 1 and int(np.bitwise_or.reduce(places)) & size - 1):
        return None
    return data.view(_WORDS[min(size, 8)]).reshape(-1, max(size // 8, 1))


def _take(data: Array, places: Array, size: int) -> Array:
    """The bytes at some places: (n, size)."""
    words = _words(data, places, size)
    if words is None:
        return data[places[:, None] + np.arange(size)]
    return words.take(places // size if size > 1 else places, axis=0).view(np.uint8)


def _put(data: Array, places: Array, values: Array) -> None:
    """Store (n, size) bytes at some places."""
    size = values.shape[1]
    words = _words(data, places, size)
    if words is None:
        data[places[:, None] + np.arange(size)] = values
    else:
        words[places // size] = np.ascontiguousarray(values).view(words.dtype)
