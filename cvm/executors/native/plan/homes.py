"""Homes: where tensors lie, as views of buffers, and the packed constants of a network."""

from __future__ import annotations

from dataclasses import field
from hashlib import sha256
from typing import Literal

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.plan.memory import SLACK, aligned
from cvm.executors.native.plan.view import View
from cvm.records import dataclass

__all__ = ["Buffer", "Constants", "Home"]

FIRST = 2**16
"""The least number of bytes that are set aside for constants."""


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory: a part of the arena (``size`` bytes), the constants, or the ``index``-th array of the caller.

    ``first`` and ``last`` are the numbers of the first and of the last step that use it.
    """

    kind: Literal["arena", "constants", "array"]
    size: int = 0
    index: int = 0
    first: int = 2**62
    last: int = -1

    def used(self, step: int) -> None:
        """Record that a step uses the buffer."""
        self.first, self.last = min(self.first, step), max(self.last, step)


@dataclass(frozen=True, slots=True)
class Home:
    """Where a tensor lies: a buffer, a view whose strides count elements, and the format of the elements.

    ``border`` (rows, columns) is the width of the frame around every map; all its elements hold the code of zero.
    ``pitch`` holds the strides of rows and of columns, since a view has no stride for an axis of extent 1.
    """

    buffer: Buffer
    view: View
    format: Format
    border: tuple[int, int] = (0, 0)
    pitch: tuple[int, int] = (0, 0)

    def map_strides(self) -> tuple[int, int, int, int]:
        """The strides of a map (N, C, H, W), which hold in its border too. No axis may have several factors."""
        n, c, h, w = (self.view.stride(axis) or 0 for axis in range(4))
        return (n, c, h, w) if self.border == (0, 0) else (n, c, *self.pitch)

    def at(self, moved: int = 0) -> tuple[Buffer, int]:
        """The buffer, and the offset in bytes of the element that lies ``moved`` elements behind the view's first."""
        return self.buffer, (self.view.offset + moved) * self.format.bytes


@dataclass(slots=True)
class Constants:
    """All packed constants of a network. Equal ones are stored once; each starts at a multiple of 64 bytes.

    They are written where the network will read them: at an address that is a multiple of 64, with `SLACK` bytes behind
    them. ``expected`` is the number of bytes for which there is room at once.
    """

    expected: int = 0
    buffer: Buffer = field(default_factory=lambda: Buffer("constants"))
    _data: npt.NDArray[np.uint8] = field(default_factory=lambda: aligned(0))
    _size: int = 0
    _offsets: dict[tuple[int, bytes], int] = field(default_factory=dict)
    """The offset of each stored constant, by its length and SHA-256."""

    def add(self, data: bytes) -> tuple[Buffer, int]:
        """Store the bytes unless equal ones are stored already. Return the buffer and their offset in it."""
        key = (len(data), sha256(data).digest())
        if key not in self._offsets:
            first = self._size + -self._size % 64
            self._size = first + len(data)
            if self._size + SLACK > self._data.size:
                before, self._data = self._data, aligned(max(2 * self._size, self.expected, FIRST) + SLACK)
                self._data[:first] = before[:first]
            self._data[first : self._size] = np.frombuffer(data, np.uint8)
            self._offsets[key] = first
        return self.buffer, self._offsets[key]

    def home(self, values: npt.NDArray[np.generic], format_: Format) -> Home:
        """Store a constant tensor in row-major order, and return its home."""
        _, offset = self.add(format_.stored(values).tobytes())
        view = View.ordered(values.shape, range(values.ndim))
        return Home(self.buffer, View(offset // format_.bytes, view.axes), format_)

    def bytes(self) -> memoryview:
        """The bytes of all constants: the memory itself, not a copy."""
        return self._data[: self._size].data
