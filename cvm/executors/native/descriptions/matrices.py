"""Products of computed matrices in batches, as data: a contraction whose weights are packed during the run."""

from __future__ import annotations

from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.loops import Loop
from cvm.executors.native.descriptions.sums import Contraction
from cvm.records import dataclass

__all__ = ["Matrices", "RowProducts"]


@dataclass(frozen=True, slots=True)
class Matrices:
    """Y = A B for matrices in batches. For each matrix of B, its elements are packed, then `product` reads them.

    ``outer`` are loops over the matrices of B, ``shared`` those over the matrices of A that share one; both have the
    strides of A, B and Y. ``along`` and ``across`` are the strides of B along the sums and from column to column; one
    of them is 1. With ``starts`` the sums of a column start with minus ``moved`` times the sum of its elements, since
    the dot product multiplies a + ``moved`` instead of a.
    """

    outer: tuple[Loop, ...]
    shared: tuple[Loop, ...]
    product: Contraction
    weights: Format
    along: int
    across: int
    moved: int

    @property
    def units(self) -> int:
        """The number of parts that may run at the same time: the extent of the outermost loop."""
        return self.outer[0].extent if self.outer else 1

    @property
    def packed(self) -> int:
        """The bytes of the packed elements of one matrix of B, without what sums start with."""
        last = self.product.segments[-1]
        return 4 * self.product.step_words * (last.start + last.count * last.channels)

    @property
    def room(self) -> int:
        """The bytes that a unit needs: packed elements, and what sums start with; a multiple of 64."""
        last = self.product.segments[-1]
        starts = 4 * (last.start + last.count * last.channels) if self.product.starts else 0
        return -(-(self.packed + starts) // 64) * 64


@dataclass(frozen=True, slots=True)
class RowProducts:
    """Y = A B for matrices in batches of which A has one row: what a decode step computes from a cache.

    ``loops`` go over the matrices of A, with the strides of A, B and Y, ``depth`` elements are summed for each of
    ``columns``. ``along`` and ``across`` are the strides of B along the sums and from column to column; one of them is
    1. ``step`` is the stride of Y. ``lane`` is the number of lanes of a dot product, which multiplies a + ``moved``
    instead of a.
    """

    loops: tuple[Loop, ...]
    depth: int
    columns: int
    along: int
    across: int
    step: int
    formats: tuple[Format, ...]
    lane: int
    moved: int

    @property
    def units(self) -> int:
        """The number of parts that may run at the same time: the extent of the outermost loop."""
        return self.loops[0].extent if self.loops else 1
