"""Element-wise operations: NNEF 1.0.1 section 4.2."""

from __future__ import annotations

import numpy as np

from cvm.reference.registry import Array, aligned, operation

__all__ = ["round_half_up"]

# 4.2.1 Unary operations


@operation("4.2.1")
def copy(x: Array) -> Array:
    """``y = x``."""
    return x


@operation("4.2.1")
def neg(x: Array) -> Array:
    """``y = -x``."""
    return -x


@operation("4.2.1")
def rcp(x: Array) -> Array:
    """``y = 1 / x``."""
    return 1.0 / x


@operation("4.2.1")
def exp(x: Array) -> Array:
    """``y = e^x``."""
    return np.exp(x)


@operation("4.2.1")
def log(x: Array) -> Array:
    """``y = ln x``."""
    return np.log(x)


@operation("4.2.1", "abs")
def absolute(x: Array) -> Array:
    """``y = x`` if x >= 0, else ``-x``."""
    return np.abs(x)


@operation("4.2.1")
def sign(x: Array) -> Array:
    """1, 0 or -1, as x is positive, zero or negative."""
    return np.sign(x)


@operation("4.2.1", "not")
def not_(x: Array) -> Array:
    """``y = !x``."""
    return np.logical_not(x)


@operation("4.2.1")
def floor(x: Array) -> Array:
    """The largest integer that is not greater than x."""
    return np.floor(x)


@operation("4.2.1")
def ceil(x: Array) -> Array:
    """The smallest integer that is not less than x."""
    return np.ceil(x)


@operation("4.2.1", "round")
def round_half_up(x: Array) -> Array:
    """``y = floor(x + 0.5)``, exactly: the sum is not rounded, as it would be in float64."""
    below = np.floor(x)
    return below + (x - below >= 0.5)


# 4.2.2 Binary operations


@operation("4.2.2")
def add(x: Array, y: Array) -> Array:
    """``z = x + y``."""
    x, y = aligned(x, y)
    return x + y


@operation("4.2.2")
def sub(x: Array, y: Array) -> Array:
    """``z = x - y``."""
    x, y = aligned(x, y)
    return x - y


@operation("4.2.2")
def mul(x: Array, y: Array) -> Array:
    """``z = x * y``."""
    x, y = aligned(x, y)
    return x * y


@operation("4.2.2")
def div(x: Array, y: Array) -> Array:
    """``z = x / y``."""
    x, y = aligned(x, y)
    return np.true_divide(x, y)


@operation("4.2.2", "pow")
def power(x: Array, y: Array) -> Array:
    """``z = x ^ y``."""
    x, y = aligned(x, y)
    return np.float_power(x, y)


@operation("4.2.2")
def lt(x: Array, y: Array) -> Array:
    """``z = x < y``."""
    x, y = aligned(x, y)
    return np.less(x, y)


@operation("4.2.2")
def gt(x: Array, y: Array) -> Array:
    """``z = x > y``."""
    x, y = aligned(x, y)
    return np.greater(x, y)


@operation("4.2.2")
def le(x: Array, y: Array) -> Array:
    """``z = x <= y``."""
    x, y = aligned(x, y)
    return np.less_equal(x, y)


@operation("4.2.2")
def ge(x: Array, y: Array) -> Array:
    """``z = x >= y``."""
    x, y = aligned(x, y)
    return np.greater_equal(x, y)


@operation("4.2.2")
def eq(x: Array, y: Array) -> Array:
    """``z = (x == y)``."""
    x, y = aligned(x, y)
    return np.equal(x, y)


@operation("4.2.2")
def ne(x: Array, y: Array) -> Array:
    """``z = (x != y)``."""
    x, y = aligned(x, y)
    return np.not_equal(x, y)


@operation("4.2.2", "and")
def and_(x: Array, y: Array) -> Array:
    """``z = x && y``."""
    x, y = aligned(x, y)
    return np.logical_and(x, y)


@operation("4.2.2", "or")
def or_(x: Array, y: Array) -> Array:
    """``z = x || y``."""
    x, y = aligned(x, y)
    return np.logical_or(x, y)


# 4.2.3 Select operation


@operation("4.2.3")
def select(condition: Array, true_value: Array, false_value: Array) -> Array:
    """The true value where the condition holds, the false value elsewhere."""
    return np.where(*aligned(condition, true_value, false_value))


# 4.2.4 Simplifier operations


@operation("4.2.4")
def sqr(x: Array) -> Array:
    """``y = x ^ 2``."""
    return x * x


@operation("4.2.4")
def sqrt(x: Array) -> Array:
    """``y = x ^ 0.5``."""
    return np.sqrt(x)


@operation("4.2.4")
def rsqr(x: Array) -> Array:
    """``y = x ^ -2``."""
    return 1.0 / (x * x)


@operation("4.2.4")
def rsqrt(x: Array) -> Array:
    """``y = x ^ -0.5``."""
    return 1.0 / np.sqrt(x)


@operation("4.2.4")
def log2(x: Array) -> Array:
    """``y = ln x / ln 2``."""
    return np.log2(x)


@operation("4.2.4", "min")
def minimum(x: Array, y: Array) -> Array:
    """``z = x`` where x < y, else ``y``."""
    x, y = aligned(x, y)
    return np.minimum(x, y)


@operation("4.2.4", "max")
def maximum(x: Array, y: Array) -> Array:
    """``z = x`` where x > y, else ``y``."""
    x, y = aligned(x, y)
    return np.maximum(x, y)


@operation("4.2.4")
def clamp(x: Array, a: Array, b: Array) -> Array:
    """``y = max(min(x, b), a)``."""
    x, a, b = aligned(x, a, b)
    return np.maximum(np.minimum(x, b), a)
