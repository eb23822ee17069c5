"""The constant tensors of a lowering, stored in the narrowest integers that hold their codes."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import replace

import numpy as np

from cvm.bounds import narrowest
from cvm.lowering.forms.form import Known

__all__ = ["KnownTensors"]

_MANY = 2**12
"""Arrays of fewer items than this are not narrowed."""
_NARROW = (np.int8, np.int16, np.int32, np.uint8, np.uint16)


class KnownTensors(MutableMapping[str, Known]):
    """Constant tensors by name. Codes of 64 bits are stored in 8, 16 or 32 bits if all of them fit.

    Codes that are narrow already are stored without a copy. A tensor that is read has 64 bits again. So only the
    tensors with which an operation computes take eight bytes per item.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[Known, bool]] = {}

    def __setitem__(self, name: str, known: Known) -> None:
        narrow = known if known.codes.dtype in _NARROW else _narrow(known)
        self._held[name] = known if narrow is None else narrow, narrow is not None

    def __getitem__(self, name: str) -> Known:
        known, narrowed = self._held[name]
        return replace(known, codes=known.codes.astype(np.int64)) if narrowed else known

    def held(self, name: str) -> Known:
        """The tensor with codes as they are stored, of 8 bits or more."""
        return self._held[name][0]

    def __delitem__(self, name: str) -> None:
        del self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, name: object) -> bool:
        return name in self._held


def _narrow(known: Known) -> Known | None:
    """The tensor with narrower codes; None if that saves no memory."""
    codes = known.codes
    if codes.dtype != np.int64 or codes.size < _MANY:
        return None
    width = narrowest(int(codes.min()), int(codes.max()))
    return None if width is np.int64 else replace(known, codes=codes.astype(width))
