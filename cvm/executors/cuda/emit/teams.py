"""Kernels in which some neighbouring threads, a team, compute one row together.

The teams of a block work in step, since all threads of a block wait for each other. A team without a row of its own
reads the last one, and must write nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cvm.executors.cuda.emit.threads import MOST_BLOCKS, THREADS, Kernel, Shape
from cvm.executors.native.emit.ir import Code, Scalar, V, typed
from cvm.records import dataclass

__all__ = ["LEAST", "Team", "fitting", "shape_of", "team"]

LEAST = 32
"""The least threads of a team: those of a warp."""
WORD = 8
"""The bytes that each thread has in shared memory for a value."""
Combine = Callable[[Code, V, V], V]


def fitting(elements: int) -> int:
    """The threads of a team for rows of so many elements: a power of two, so that each thread has a few elements."""
    size = LEAST
    while size < THREADS and 4 * size <= elements:
        size *= 2
    return size


def shape_of(name: str, rows: int, size: int) -> Shape:
    """The launch of a kernel for so many rows, with teams of ``size`` threads."""
    return Shape(name, (max(1, min(-(-rows // (THREADS // size)), MOST_BLOCKS)), 1, 1), THREADS)


@dataclass(frozen=True, slots=True)
class Team:
    """A team of ``size`` threads: this thread is the one numbered ``lane``. Without a row, ``present`` is false."""

    code: Kernel
    size: int
    lane: V
    present: V
    memory: V
    """The place of this thread in shared memory."""

    def each(self, count: int, body: Callable[[V, list[V]], Sequence[V]], carried: Sequence[V] = ()) -> list[V]:
        """Write a loop over the elements 0 .. count - 1 of the row that belong to this thread: see `Code.loop`."""
        end = self.code.select(self.present, typed("i64", count), 0)
        return self.code.loop(self.lane, end, self.size, body, carried)

    def combined(self, values: Sequence[V], combine: Combine) -> list[V]:
        """What the values of all threads of the team are together; all of them get it."""
        code = self.code
        places = [code.at(self.memory, number * WORD * THREADS) for number in range(len(values))]
        for value, place in zip(values, places, strict=True):
            code.store(value, place)
        code.barrier()
        distance = self.size // 2
        while distance:
            half = code.compare("ult", self.lane, distance)
            code.when(half, lambda apart=distance: self._fold(values, places, apart, combine))  # type: ignore[misc]
            code.barrier()
            distance //= 2
        first = code.binary("mul", code.binary("sub", typed("i64", 0), self.lane), WORD)
        found = [code.load(value.type, code.at(place, first)) for value, place in zip(values, places, strict=True)]
        code.barrier()
        return found

    def _fold(self, values: Sequence[V], places: Sequence[V], apart: int, combine: Combine) -> None:
        code = self.code
        for value, place in zip(values, places, strict=True):
            other = code.load(value.type, code.at(place, apart * WORD))
            code.store(combine(code, code.load(value.type, place), other), place)


def team(code: Kernel, rows: int, size: int, values: int, body: Callable[[Scalar, Team], None]) -> None:
    """Write ``body(row, team)`` for all rows. ``values`` is the most values that a team combines at once."""
    memory = code.shared(values * WORD * THREADS)
    thread = code.cast("zext", code.register("tid"), 64)
    lane, number = code.binary("and", thread, size - 1), code.binary("udiv", thread, size)
    mine = code.at(memory, code.binary("mul", thread, WORD))
    per = THREADS // size
    first, step = (code.cast("zext", code.register(which), 64) for which in ("ctaid", "nctaid"))

    def group(index: V, _: list[V]) -> list[V]:
        row = code.binary("add", code.binary("mul", index, per), number)
        present = code.compare("ult", row, rows)
        body(code.intrinsic("umin", row, rows - 1), Team(code, size, lane, present, mine))
        return []

    code.loop(first, -(-rows // per), step, group)
