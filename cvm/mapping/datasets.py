"""Data sets: items in an order, as chunks of stacked arrays. Their forms are in `cvm.mapping.files` and `tables`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from cvm.arrays import Array
from cvm.errors import Invalid, Location
from cvm.program.model import Input
from cvm.records import dataclass

__all__ = ["Chunk", "Dataset", "chosen", "numbered"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some items, one after the other."""

    begin: int
    """The number of the first one."""
    names: tuple[str, ...]
    arrays: Mapping[str, Array]
    """For each input, the arrays of all these items, stacked along a new first axis."""


class Dataset(Protocol):
    """Items in an order, each with an array for every input of a program."""

    source: str
    """The file or folder."""
    expected: str
    """What makes an item, in words."""

    @property
    def names(self) -> Sequence[str]:
        """The names of all items, which are different and can be names of files."""

    def chunks(self, size: int) -> Iterator[Chunk]:
        """All items in order, ``size`` at a time. Raises `CvmError` for an item that cannot be read."""


def numbered(count: int) -> list[str]:
    """The names of items that have none: their numbers from 0, all with the same number of digits."""
    digits = len(str(max(count - 1, 0)))
    return [str(number).zfill(digits) for number in range(count)]


def chosen(names: Sequence[str], inputs: Sequence[Input], where: Path, what: str) -> dict[str, str]:
    """For each input, the name of its array: its own name, or the only name if there is one input.

    Raises `Invalid` (``map.inputs``) for an input without an array; ``what`` says what an array is there.
    """
    wanted = [item.value.name for item in inputs]
    if len(names) == len(wanted) == 1:
        return {wanted[0]: names[0]}
    missing = [name for name in wanted if name not in names]
    if missing:
        message = f"there is no {what} for the input {missing[0]!r}; there are {', '.join(names)[:200] or 'none'}"
        raise Invalid("map.inputs", message, Location(str(where)))
    return {name: name for name in wanted}
