"""Loop nests and exchanges of axes, as data."""

from __future__ import annotations

from dataclasses import dataclass

from cvm.executors.native.descriptions.expressions import Formula
from cvm.executors.native.descriptions.formats import Format

__all__ = ["Exchange", "Loop", "Nest"]


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop: its extent, and the stride in elements of every tensor: of those read in order, then of the one
    written.
    """

    extent: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Nest:
    """A formula in loops: the loops from the outermost to the innermost, the formats of the tensors read and written,
    and the formula.
    """

    loops: tuple[Loop, ...]
    formats: tuple[Format, ...]
    formula: Formula

    @property
    def units(self) -> int:
        """Parts that may run at the same time: the indices of the outermost loop, unless vectors run along it."""
        return self.loops[0].extent if len(self.loops) > 1 else 1

    @property
    def copies(self) -> bool:
        """Whether stored integers are copied as they are."""
        return not self.formula.steps and self.formats[0] == self.formats[1]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A copy in ``outer`` loops around ``along`` (of stride 1 in the tensor of wide numbers) and ``across`` (of stride
    1 in the tensor of bytes).

    Strides are those of the source, then those of the target. ``packs`` says that the target is the tensor of bytes.
    """

    outer: tuple[Loop, ...]
    along: Loop
    across: Loop
    source: Format
    target: Format
    packs: bool

    @property
    def units(self) -> int:
        """Parts that may run at the same time."""
        return self.outer[0].extent if self.outer else 1
