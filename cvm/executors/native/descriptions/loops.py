"""Loop nests, exchanges of axes and reductions, as data."""

from __future__ import annotations

from typing import Literal

from cvm.executors.native.descriptions.expressions import Formula
from cvm.executors.native.descriptions.formats import Format
from cvm.records import dataclass

__all__ = ["Exchange", "Loop", "Nest", "Reduction"]


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop: its extent, and its stride in every tensor, in elements. The tensors read come first, in their order,
    then the tensor written.
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
        """The number of parts that may run at the same time: the extent of the outermost loop, or 1 if vectors run
        along it.
        """
        return self.loops[0].extent if len(self.loops) > 1 else 1

    @property
    def copies(self) -> bool:
        """Whether the kernel copies stored integers without decoding them."""
        return not self.formula.steps and self.formats[0] == self.formats[1]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A copy between a tensor of bytes and a tensor of wider integers that exchanges two axes.

    The ``outer`` loops go around the two axes: ``along`` has stride 1 in the tensor of wider integers, ``across`` in
    the tensor of bytes. Each loop has its stride in the source, then its stride in the target. With ``packs`` the
    target is the tensor of bytes.
    """

    outer: tuple[Loop, ...]
    along: Loop
    across: Loop
    source: Format
    target: Format
    packs: bool

    @property
    def units(self) -> int:
        """The number of parts that may run at the same time."""
        return self.outer[0].extent if self.outer else 1


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction: loops over the results (``kept``), and over the source elements of each result (``taken``).

    Each loop has the stride in the source, then the stride in the target.
    """

    kind: Literal["sum", "max"]
    kept: tuple[Loop, ...]
    taken: tuple[Loop, ...]
    source: Format
    target: Format

    @property
    def units(self) -> int:
        """The number of parts that may run at the same time."""
        return self.outer[0].extent if self.outer else 1

    @property
    def beside(self) -> bool:
        """Whether neighbouring results read neighbouring elements of the source, so that vectors of results can be
        computed.
        """
        most = self.kept[-1:]
        return bool(most) and most[0].strides[0] == 1 and (len(self.kept) > 1 or most[0].extent >= 4)

    @property
    def outer(self) -> tuple[Loop, ...]:
        """The loops over results, without the loop that vectors run along."""
        return self.kept[:-1] if self.beside else self.kept
