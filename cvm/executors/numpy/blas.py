"""The number of threads of NumPy's BLAS.

OpenBLAS wakes its threads for every matrix product, and these threads spin between products: a network of many small
products takes several times the processor time on two threads that it takes on one. Code that runs beside other work
therefore asks for one thread. The number of threads changes no result (`cvm.executors.numpy.contraction`).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

__all__ = ["one_thread"]

_NAMES = tuple(f"{prefix}openblas_{{}}_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", ""))
"""The names under which OpenBLAS exports the functions, in the builds that NumPy comes with."""

_lock = threading.Lock()
_inside = 0
_before = 0


@contextmanager
def one_thread() -> Iterator[None]:
    """Let BLAS use one thread within the block; another BLAS than OpenBLAS is left as it is.

    The number holds for the whole process. Blocks of several threads may overlap: the last one that ends restores it.
    """
    global _before, _inside
    ask, tell = _functions()
    if ask is None or tell is None:
        yield
        return
    with _lock:
        _inside += 1
        if _inside == 1:
            _before = ask()
            tell(1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                tell(_before)


@cache
def _functions() -> tuple[Any, Any]:
    """The functions of OpenBLAS that ask for and tell the number of threads; (None, None) if there are none."""
    try:
        library = ctypes.CDLL(np._core._multiarray_umath.__file__)  # type: ignore[attr-defined]
    except (AttributeError, OSError, TypeError):
        return None, None
    for name in _NAMES:
        ask, tell = (getattr(library, name.format(verb), None) for verb in ("get", "set"))
        if ask is not None and tell is not None:
            ask.argtypes, ask.restype, tell.argtypes, tell.restype = [], ctypes.c_int, [ctypes.c_int], None
            return ask, tell
    return None, None
