"""Float products on one thread.

OpenBLAS, which NumPy's wheels carry, divides a product of a few million terms among all processors. Between products
its threads keep their processors busy, since they ask again and again for the next one. The NumPy executor, the float
reference and rehearsals compute hundreds of such products with other steps between them. On two idle processors the
second thread saves 7 to 20 % of the time and doubles the processor time. On a processor that has other work, too, a
network takes six to eight times as long with it. The number of threads changes no result:
`cvm.executors.numpy.contraction` proves its products exact in any order.
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

_NAMES = tuple(f"{prefix}openblas_{{}}_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", ""))
"""The names under which OpenBLAS exports the functions, in the builds that NumPy comes with."""
_FOLDERS = ("../numpy.libs", ".dylibs")
"""Where wheels of NumPy keep their OpenBLAS, seen from the package: on Linux and Windows, and on macOS."""


@cache
def openblas() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """The functions that get and set the number of threads of NumPy's OpenBLAS; None where there is none."""
    for file in _files():
        try:
            library = ctypes.CDLL(file)
        except OSError:
            continue
        for name in _NAMES:
            get, put = (getattr(library, name.format(verb), None) for verb in ("get", "set"))
            if get is not None and put is not None:
                get.argtypes, get.restype, put.argtypes, put.restype = [], ctypes.c_int, [ctypes.c_int], None
                return get, put
    return None


def _files() -> Iterator[str]:
    """NumPy's own module, which finds what it is linked with where the system has one space of names; then OpenBLAS."""
    core = getattr(np, "_core", None)  # NumPy's own business: another version may have it elsewhere
    module = getattr(getattr(core, "_multiarray_umath", None), "__file__", None)
    if module is not None:
        yield module
    for folder in _FOLDERS:
        yield from map(str, sorted((Path(np.__file__).parent / folder).glob("*openblas*")))


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
    """Within, OpenBLAS computes each product on the thread that asks for it; another BLAS is left as it is.

    The number holds for the whole process. Blocks of several threads may overlap: the last one that ends restores it.
    """
    _USERS.change(1)
    try:
        yield
    finally:
        _USERS.change(-1)
