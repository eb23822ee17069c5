"""Float products on one thread.

OpenBLAS, which NumPy's wheels carry, gives a product of a few million terms to all processors, and its threads then
wait for the next one without rest. The reference computes thousands of such products with other steps between them: on
two processors that doubles the processor time, and beside other work the time on the clock as well.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

__all__ = ["one_thread", "openblas"]

_FOLDERS = ("../numpy.libs", ".dylibs")
"""Where wheels of NumPy keep their OpenBLAS, seen from the package: on Linux and Windows, and on macOS."""


@cache
def openblas() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """The functions that get and set the number of threads of NumPy's own OpenBLAS; None where there is none."""
    for folder in _FOLDERS:
        for file in sorted((Path(np.__file__).parent / folder).glob("*openblas*")):
            try:
                library = ctypes.CDLL(str(file))
                return library.scipy_openblas_get_num_threads64_, library.scipy_openblas_set_num_threads64_
            except (OSError, AttributeError):
                continue
    return None


class _Users:
    """Those who want one thread now. The first of them sets it; the last one restores what was."""

    def __init__(self) -> None:
        self.lock, self.count, self.before = threading.Lock(), 0, 1

    def change(self, by: int) -> None:
        found = openblas()
        if found is None:
            return
        get, put = found
        with self.lock:
            if by > 0 and self.count == 0:
                self.before = get()
                put(1)
            self.count += by
            if by < 0 and self.count == 0:
                put(self.before)


_USERS = _Users()


@contextmanager
def one_thread() -> Iterator[None]:
    """Within, NumPy's OpenBLAS computes each product on the thread that asks for it, in the whole process."""
    _USERS.change(1)
    try:
        yield
    finally:
        _USERS.change(-1)
