"""The constant tensors of a lowering, kept in as few bytes as their codes take."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import replace

import numpy as np

from cvm.lowering.forms.form import Known

__all__ = ["KnownTensors"]

_MANY = 2**12
"""Items of an array that is worth narrowing."""
_WIDTHS = (np.int8, np.int16, np.int32)
_NARROW = (*_WIDTHS, np.uint8, np.uint16)


class KnownTensors(MutableMapping[str, Known]):
    """Constant tensors by name. Codes of 64 bits are kept in 8, 16 or 32 where these hold them all.

    Codes that are narrow when they are entered are kept as they are, without a copy. What is read has 64 bits again. So
    only the tensors that an operation computes with take eight bytes for each item.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[Known, bool]] = {}

    def __setitem__(self, name: str, known: Known) -> None:
        narrow = known if known.codes.dtype in _NARROW else _narrow(known)
        self._held[name] = known if narrow is None else narrow, narrow is not None

    def __getitem__(self, name: str) -> Known:
        known, narrowed = self._held[name]
        return replace(known, codes=known.codes.astype(np.int64)) if narrowed else known

    def __delitem__(self, name: str) -> None:
        del self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, name: object) -> bool:
        return name in self._held


def _narrow(known: Known) -> Known | None:
    """The tensor with narrower codes; None where that saves nothing."""
    codes = known.codes
    if codes.dtype != np.int64 or codes.size < _MANY:
        return None
    lo, hi = int(codes.min()), int(codes.max())
    for width in _WIDTHS:
        if np.iinfo(width).min <= lo and hi <= np.iinfo(width).max:
            return replace(known, codes=codes.astype(width))
    return None
