"""Activation functions: NNEF 1.0.1 section 4.9.1.

Each function is the document's formula, written so that float64 does not overflow where the formula has a limit.
"""

from __future__ import annotations

import math

import numpy as np

from cvm.reference.operations.reduction import reduced, sum_reduce
from cvm.reference.registry import Array, Integers, aligned, operation, unary

__all__ = ["erf", "sigmoid"]


def sigmoid(x: Array) -> Array:
    """``y = 1 / (1 + e^-x)``."""
    return 1.0 / (1.0 + np.exp(-x))


def erf(x: Array) -> Array:
    """The error function, ``2 / sqrt(pi)`` times the integral of ``e^-t^2`` from 0 to x."""
    return np.array([math.erf(item) for item in x.flat]).reshape(x.shape)


unary(
    "4.9.1",
    {
        "sigmoid": sigmoid,
        "relu": lambda x: np.maximum(x, 0.0),
        "tanh": np.tanh,
        "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
        "softsign": lambda x: x / (1.0 + np.abs(x)),
        "softplus": lambda x: np.logaddexp(x, 0.0),  # ln(e^x + 1)
        "erf": erf,
    },
)


@operation("4.9.1")
def prelu(x: Array, alpha: Array) -> Array:
    """``y = alpha * x`` where x < 0, else x."""
    x, alpha = aligned(x, alpha)
    return np.where(x < 0.0, alpha * x, x)


@operation("4.9.1")
def leaky_relu(x: Array, alpha: float) -> Array:
    """``prelu(x, alpha)``."""
    return np.where(x < 0.0, alpha * x, x)


@operation("4.9.1")
def elu(x: Array, alpha: float = 1.0) -> Array:
    """``y = e^x - 1`` where x < 0, else x; current Khronos tools multiply ``e^x - 1`` by alpha."""
    return np.where(x < 0.0, alpha * np.expm1(np.minimum(x, 0.0)), x)


@operation("4.9.1")
def softmax(x: Array, axes: Integers = (1,), accuracy: str = "default") -> Array:
    """``y = e / sum_reduce(e, axes)`` with ``e = exp(x - max_reduce(x, axes))``; ``accuracy``
    concerns programs alone.
    """
    e: Array = np.exp(x - reduced(np.max, x, axes))
    return e / sum_reduce(e, axes)


@operation("4.9.1")
def masked_softmax(x: Array, seen: Array, axes: Integers, below: float, added: bool) -> Array:
    """`softmax` of x where ``seen``. Where no item is, `softmax` of x if the mask is ``added``, else of equal numbers.

    Hidden items are ``below``, which is below all others; so they count nothing.
    """
    x, seen = aligned(x, seen)
    hidden = np.where(seen.astype(bool), x, -np.inf)
    none = np.isneginf(reduced(np.max, hidden, axes))
    return softmax(np.where(none, x if added else 0.0, hidden), axes)
