"""Executors that compute many independent runs in one call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy.typing as npt

from cvm.executors.base import Capture, Int32Array
from cvm.records import dataclass

__all__ = ["Batching", "Entry", "address"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A run on memory.

    ``given`` are the names and shapes of the inputs, ``left`` the names of the values that are outputs. ``run`` takes
    the addresses of C-contiguous int32 arrays of all these, in this order. It returns False, having written nothing, if
    an element of an input is outside its interval.
    """

    given: tuple[tuple[str, tuple[int, ...]], ...]
    left: tuple[str, ...]
    run: Callable[[list[int]], bool]


_addressof, _from_buffer = ctypes.addressof, ctypes.c_char.from_buffer  # looking them up takes as long as calling them


def address(array: npt.NDArray[Any]) -> int:
    """The address of the first element. Arrays that Python may write tell it in a third of the time of others."""
    try:
        return _addressof(_from_buffer(array))  # type: ignore[arg-type]  # NumPy says so from Python 3.12 on
    except (BufferError, TypeError, ValueError):  # the array is read-only
        return int(array.ctypes.data)


@runtime_checkable
class Batching(Protocol):
    """An executor that runs several samples of a program without state, and deals them to its threads by itself.

    All methods return None, without having run anything, if this executor has no such code for the program.
    """

    def entry(self) -> Entry | None:
        """The run of one sample on memory, for callers that check their arrays themselves."""

    def run_batch(
        self,
        samples: int,
        inputs: Mapping[str, Int32Array],
        capture: Capture = frozenset(),
        into: Mapping[str, Int32Array] | None = None,
    ) -> dict[str, Int32Array] | None:
        """Run all samples of a batch.

        ``inputs`` are C-contiguous arrays by the names of the inputs, with an axis of samples before those of the
        tensor. The result has arrays of this form for the program's outputs and for the values in ``capture``. Values
        in ``into`` are written into the arrays there, which must have that form and overlap no other array. Raises
        `Invalid` as `Executor.run` does; then the arrays in ``into`` may hold anything.
        """

    def run_samples(
        self, feeds: Sequence[Mapping[str, Int32Array]], capture: Capture = frozenset()
    ) -> list[dict[str, Int32Array]] | None:
        """Run on each of ``feeds``, the inputs of one run each. The results have arrays of their own."""
