"""Bounds of arithmetic in integers of fixed width. NumPy does not check it: its results wrap silently.

A function that adds or multiplies such integers first states how large a result can become, in Python integers, by a
call of `require_fits` or `holding`. `tools/lint_arithmetic.py` finds functions that do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["SIGNED", "bits_of", "holding", "magnitude", "narrowest", "require_fits"]

Integers: TypeAlias = npt.NDArray[Any]
Width: TypeAlias = type[np.integer[Any]]

SIGNED: Sequence[Width] = (np.int8, np.int16, np.int32, np.int64)


def magnitude(items: Integers) -> int:
    """The largest absolute value of integers of any type, as a Python integer; 0 if there are none."""
    return max(-int(items.min()), int(items.max())) if items.size else 0


def bits_of(items: Integers) -> int | None:
    """The bits of a magnitude that the elements' type holds; None for Python integers, which have no limit."""
    if items.dtype == object:
        return None
    if items.dtype.kind not in "iu":
        raise TypeError(f"expected integers, found {items.dtype}")
    return 8 * items.dtype.itemsize - (items.dtype.kind == "i")


def require_fits(bound: int, bits: int | None, what: str) -> None:
    """Raise OverflowError unless a magnitude of at most ``bound`` is less than 2^bits; ``bits`` None means no limit."""
    if bits is not None and bound >> bits:
        raise OverflowError(f"{what}: {bound} does not fit in {bits} bits")


def holding(items: Integers, bound: int) -> Integers:
    """The integers as int64 if that holds them and magnitudes up to ``bound``, else as Python integers."""
    return items.astype(np.int64 if max(bound, magnitude(items)) < 2**63 else object, copy=False)


def narrowest(lo: int, hi: int, types: Sequence[Width] = SIGNED) -> Width:
    """The first of ``types`` that holds all integers in [lo, hi]. Raises OverflowError if none does."""
    for kind in types:
        if np.iinfo(kind).min <= lo and hi <= np.iinfo(kind).max:
            return kind
    raise OverflowError(f"{lo} to {hi} do not fit in {np.dtype(types[-1])}")
