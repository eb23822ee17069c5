"""Memory for constants and arenas."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["SLACK", "aligned"]

SLACK = 64 * 8
"""The bytes behind the arena and the constants. Kernels may read, but do not use, up to 64 elements behind a tensor."""


def aligned(size: int) -> npt.NDArray[np.uint8]:
    """Zeroed bytes whose address is a multiple of 64. Large memory that is not written takes none."""
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]
