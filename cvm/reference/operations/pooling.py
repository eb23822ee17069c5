"""Pooling operations: NNEF 1.0.1 section 4.9.3."""

from __future__ import annotations

import numpy as np

from cvm.reference.operations.filters import box
from cvm.reference.operations.sampling import maxima
from cvm.reference.operations.windows import (
    AS_DECLARED,
    Sliding,
    down_windows,
    folded,
    require_coverage,
    sliding_operation,
)
from cvm.reference.registry import Array, Integers

__all__ = ["avg_pool", "max_pool"]


@sliding_operation("4.9.3")
def max_pool_with_index(input: Array, size: Integers, sliding: Sliding = AS_DECLARED) -> tuple[Array, Array]:
    """The maximum of each window, and its index within the window."""
    return maxima(input, size, sliding)


@sliding_operation("4.9.3")
def max_pool(input: Array, size: Integers, sliding: Sliding = AS_DECLARED) -> Array:
    """The maximum of each window; a constant border takes part with its zeros, an ignored one does not."""
    windows = down_windows(input.shape, size, sliding)
    if sliding.border == "ignore":
        require_coverage(windows)
    return folded(input, windows, sliding.border, np.maximum, -np.inf if sliding.border == "ignore" else 0.0)


@sliding_operation("4.9.3")
def avg_pool(input: Array, size: Integers, sliding: Sliding = AS_DECLARED) -> Array:
    """``box(input, .., normalize = true)``."""
    return box(input, size, sliding, normalize=True)


@sliding_operation("4.9.3")
def l2_pool(input: Array, size: Integers, sliding: Sliding = AS_DECLARED) -> Array:
    """The root of the sum of squares of each window."""
    return np.sqrt(box(input * input, size, sliding))


@sliding_operation("4.9.3")
def rms_pool(input: Array, size: Integers, sliding: Sliding = AS_DECLARED) -> Array:
    """``sqrt(avg_pool(sqr(input), ..))``."""
    return np.sqrt(avg_pool(input * input, size, sliding))
