"""Pooling operations: NNEF 1.0.1 section 4.9.3."""

from __future__ import annotations

import numpy as np

from cvm.reference.operations.filters import box
from cvm.reference.operations.sampling import maxima
from cvm.reference.operations.windows import down_windows, folded, require_coverage
from cvm.reference.registry import Array, Integers, Padding, operation

__all__ = ["avg_pool", "max_pool"]


@operation("4.9.3")
def max_pool_with_index(
    input: Array,
    size: Integers,
    border: str = "constant",
    padding: Padding = (),
    stride: Integers = (),
    dilation: Integers = (),
) -> tuple[Array, Array]:
    """The maximum of each window, and its index within the window."""
    return maxima(input, size, border, padding, stride, dilation)


@operation("4.9.3")
def max_pool(
    input: Array,
    size: Integers,
    border: str = "constant",
    padding: Padding = (),
    stride: Integers = (),
    dilation: Integers = (),
) -> Array:
    """The maximum of each window; a constant border takes part with its zeros, an ignored one does not."""
    windows = down_windows(input.shape, size, padding, stride, dilation)
    if border == "ignore":
        require_coverage(windows)
    return folded(input, windows, border, np.maximum, -np.inf if border == "ignore" else 0.0)


@operation("4.9.3")
def avg_pool(
    input: Array,
    size: Integers,
    border: str = "constant",
    padding: Padding = (),
    stride: Integers = (),
    dilation: Integers = (),
) -> Array:
    """``box(input, .., normalize = true)``."""
    return box(input, size, border, padding, stride, dilation, normalize=True)


@operation("4.9.3")
def l2_pool(
    input: Array,
    size: Integers,
    border: str = "constant",
    padding: Padding = (),
    stride: Integers = (),
    dilation: Integers = (),
) -> Array:
    """The root of the sum of squares of each window."""
    return np.sqrt(box(input * input, size, border, padding, stride, dilation))


@operation("4.9.3")
def rms_pool(
    input: Array,
    size: Integers,
    border: str = "constant",
    padding: Padding = (),
    stride: Integers = (),
    dilation: Integers = (),
) -> Array:
    """``sqrt(avg_pool(sqr(input), ..))``."""
    return np.sqrt(avg_pool(input * input, size, border, padding, stride, dilation))
