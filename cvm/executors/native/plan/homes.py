"""Homes: where tensors lie, as views of buffers, and the packed constants of a network."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.plan.view import View

__all__ = ["Buffer", "Constants", "Home"]


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory: a part of the arena (``size`` bytes), the constants, or the ``index``-th array of the caller."""

    kind: Literal["arena", "constants", "array"]
    size: int = 0
    index: int = 0
    first: int = 2**62
    last: int = -1

    def used(self, step: int) -> None:
        """Note that a step uses the buffer."""
        self.first, self.last = min(self.first, step), max(self.last, step)


@dataclass(frozen=True, slots=True)
class Home:
    """Where a tensor lies: a buffer, a view whose strides count elements, and the format of the elements.

    ``border`` rows and columns around every map hold the code of zero; ``pitch`` is the stride of its rows and columns,
    which a view does not have for an axis of extent 1.
    """

    buffer: Buffer
    view: View
    format: Format
    border: tuple[int, int] = (0, 0)
    pitch: tuple[int, int] = (0, 0)

    def map_strides(self) -> tuple[int, int, int, int]:
        """The strides of a map (N, C, H, W) whose axes are ordinary ones, as far as its border."""
        n, c, h, w = (self.view.stride(axis) or 0 for axis in range(4))
        return (n, c, h, w) if self.border == (0, 0) else (n, c, *self.pitch)

    def at(self, moved: int = 0) -> tuple[Buffer, int]:
        """The buffer and the byte offset of the view's first element, or of one ``moved`` elements further."""
        return self.buffer, (self.view.offset + moved) * self.format.bytes


@dataclass(slots=True)
class Constants:
    """All packed constants of a network, each distinct one once, on multiples of 64 bytes."""

    buffer: Buffer = field(default_factory=lambda: Buffer("constants"))
    _data: bytearray = field(default_factory=bytearray)
    _known: dict[tuple[int, bytes], int] = field(default_factory=dict)
    """Offsets by length and SHA-256."""

    def add(self, data: bytes) -> tuple[Buffer, int]:
        """Add the bytes unless they are there, and return where they are."""
        key = (len(data), sha256(data).digest())
        if key not in self._known:
            self._data.extend(bytes(-len(self._data) % 64))
            self._known[key] = len(self._data)
            self._data.extend(data)
        return self.buffer, self._known[key]

    def home(self, values: npt.NDArray[np.generic], format_: Format) -> Home:
        """A constant tensor, row-major."""
        _, offset = self.add(format_.stored(values).tobytes())
        view = View.ordered(values.shape, range(values.ndim))
        return Home(self.buffer, View(offset // format_.bytes, view.axes), format_)

    def bytes(self) -> bytearray:
        """All constants, not copied."""
        return self._data
