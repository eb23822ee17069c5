"""What a plan is made of: buffers, homes of tensors in them, and calls of kernels on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.executors.native.emit.formats import Format
from cvm.executors.native.emit.ir import Module
from cvm.executors.native.view import View

if TYPE_CHECKING:
    from cvm.executors.native.claims import Claim

__all__ = ["Buffer", "Call", "Constants", "Emit", "Home", "Plan"]

Emit: TypeAlias = "Callable[[Module, str], None]"
"""Writes the function of a kernel under a name."""


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory: a part of the arena (``size`` bytes), the constants, or the ``place``-th array of the caller."""

    kind: Literal["arena", "constants", "array"]
    size: int = 0
    place: int = 0
    first: int = 2**62
    last: int = -1

    def used(self, step: int) -> None:
        """Note that a step needs it."""
        self.first, self.last = min(self.first, step), max(self.last, step)


@dataclass(frozen=True, slots=True)
class Home:
    """Where a tensor lies: a buffer, a view whose strides count elements, and the format of the elements.

    ``border`` rows and columns around every map hold the code of zero; ``pitch`` is how far its rows and columns are
    apart, which the view does not tell of a map of one row or column.
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


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel's function on places in buffers, in ``units`` parts; ``what`` it computes, and how.

    ``cost`` estimates its nanoseconds on one core: it decides how finely threads share it, and nothing else.
    """

    function: str
    arguments: tuple[tuple[Buffer, int], ...]
    units: int
    what: str
    note: str
    cost: float


@dataclass(slots=True)
class Constants:
    """All packed constants of a network, each distinct one once, on multiples of 64 bytes."""

    buffer: Buffer = field(default_factory=lambda: Buffer("constants"))
    _data: bytearray = field(default_factory=bytearray)
    _known: dict[tuple[int, bytes], int] = field(default_factory=dict)
    """Places by length and SHA-256."""

    def add(self, data: bytes) -> tuple[Buffer, int]:
        """The place of the bytes."""
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
        """All of them, which are not copied."""
        return self._data


@dataclass(frozen=True, slots=True)
class Plan:
    """A network ready for compilation: its functions by name, its calls in order, and its memory.

    ``arrays`` are the values that the caller's arrays hold: first those read, then (from ``written`` on) those written.
    ``ready`` tells of each of the latter after how many calls it holds its value. ``joined`` names, for each value that
    exists inside a kernel only, the value that this kernel computes. ``claims`` say what all of this is meant to do.
    """

    functions: dict[str, Emit]
    calls: tuple[Call, ...]
    offsets: dict[Buffer, int]
    arena: int
    constants: bytes | bytearray
    arrays: tuple[str, ...]
    written: int
    joined: dict[str, str]
    ready: dict[str, int]
    claims: tuple[Claim, ...] = ()
