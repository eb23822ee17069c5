"""Loop nests and exchanges of axes, as data."""

from __future__ import annotations

from dataclasses import dataclass

from cvm.executors.native.descriptions.expressions import Formula
from cvm.executors.native.descriptions.formats import Format

__all__ = ["Exchange", "Loop", "Nest"]


@dataclass(frozen=True, slots=True)
class Loop:
    """An extent, and by how many elements every tensor moves: those read in order, then the one written."""

    extent: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops from the outermost to the innermost, the formats of the tensors read and written, and the formula."""

    loops: tuple[Loop, ...]
    formats: tuple[Format, ...]
    formula: Formula

    @property
    def units(self) -> int:
        """Parts that may run at the same time: the outermost loop where it is not the vectors'."""
        return self.loops[0].extent if len(self.loops) > 1 else 1

    @property
    def copies(self) -> bool:
        """Whether stored integers are copied as they are."""
        return not self.formula.steps and self.formats[0] == self.formats[1]


@dataclass(frozen=True, slots=True)
class Exchange:
    """``outer`` loops around ``along`` (dense among the wide numbers) and ``across`` (dense among the bytes).

    Strides are those of the source, then of the target; ``packs`` says that the target is the one of bytes.
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
