"""Element-wise operations: NNEF 1.0.1 section 4.2.

The tables hold the formula of each operation, or the function of NumPy that computes it.
"""

from __future__ import annotations

import numpy as np

from cvm.reference.registry import Array, aligned, binary, operation, unary

__all__ = ["round_half_up"]


def round_half_up(x: Array) -> Array:
    """``y = floor(x + 0.5)``, exactly: the sum is not rounded, as it would be in float64."""
    below = np.floor(x)
    return below + (x - below >= 0.5)


unary(
    "4.2.1",
    {
        "copy": lambda x: x,
        "neg": lambda x: -x,
        "rcp": lambda x: 1.0 / x,
        "exp": np.exp,
        "log": np.log,  # the natural logarithm
        "abs": np.abs,
        "sign": np.sign,  # 1, 0 or -1
        "not": np.logical_not,
        "floor": np.floor,
        "ceil": np.ceil,
        "round": round_half_up,
        # of the Khronos tools
        "sin": np.sin,
        "cos": np.cos,
        "tan": np.tan,
        "asin": np.arcsin,
        "acos": np.arccos,
        "atan": np.arctan,
        "sinh": np.sinh,
        "cosh": np.cosh,
        "asinh": np.arcsinh,
        "acosh": np.arccosh,
        "atanh": np.arctanh,
    },
)
binary(
    "4.2.2",
    {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "div": lambda x, y: x / y,
        "pow": np.float_power,
        "lt": lambda x, y: x < y,
        "gt": lambda x, y: x > y,
        "le": lambda x, y: x <= y,
        "ge": lambda x, y: x >= y,
        "eq": lambda x, y: x == y,
        "ne": lambda x, y: x != y,
        "and": np.logical_and,
        "or": np.logical_or,
    },
)


@operation("4.2.3")
def select(condition: Array, true_value: Array, false_value: Array) -> Array:
    """The true value where the condition holds, the false value elsewhere."""
    return np.where(*aligned(condition, true_value, false_value))


# Section 4.2.4: simplifier operations

unary(
    "4.2.4",
    {
        "sqr": lambda x: x * x,
        "sqrt": np.sqrt,
        "rsqr": lambda x: 1.0 / (x * x),
        "rsqrt": lambda x: 1.0 / np.sqrt(x),
        "log2": np.log2,
    },
)
binary("4.2.4", {"min": np.minimum, "max": np.maximum})


@operation("4.2.4")
def clamp(x: Array, a: Array, b: Array) -> Array:
    """``y = max(min(x, b), a)``."""
    x, a, b = aligned(x, a, b)
    return np.maximum(np.minimum(x, b), a)
