"""Operations on integers that NNEF does not have: they come from ONNX, WebNN and OpenVX.

Operands are float64, which holds integers up to 2^53 exactly. With another quantiser an operand need not be an integer
here; where only integers have a meaning (`bitwise`, `integer_pow`) it is first rounded half up.
"""

from __future__ import annotations

import numpy as np

from cvm.reference.operations.elementwise import round_half_up
from cvm.reference.registry import Array, aligned, operation

__all__: list[str] = []


@operation("integers")
def wrap(x: Array, lo: int, hi: int, overflow: str = "wrap") -> Array:
    """The integer in [lo, hi] that is x modulo hi - lo + 1; ``overflow`` tells lowering what to do
    where it is not x.
    """
    inside = (lo <= x) & (x <= hi)
    return np.where(inside, x, np.mod(x - lo, float(hi - lo + 1)) + lo)


@operation("integers")
def wrapping_quantize(x: Array, scale: float, lo: int, hi: int, rounding: str) -> Array:
    """The operand itself. Wrapping and rounding of codes depend on the quantiser, which the reference applies
    afterwards.
    """
    return x


@operation("integers")
def truncated_div(x: Array, y: Array) -> Array:
    """``x / y`` truncated toward zero, 0 where y is 0."""
    x, y = aligned(x, y)
    return np.where(y == 0, 0.0, np.trunc(x / np.where(y == 0, 1.0, y)))


@operation("integers")
def integer_pow(x: Array, y: Array, lo: int, hi: int) -> Array:
    """``x^y`` modulo hi - lo + 1 in [lo, hi]; for y < 0 it is 1 / x^-y truncated toward zero, and 0 for x = 0."""
    x, y = np.broadcast_arrays(*aligned(round_half_up(x), round_half_up(y)))
    size = hi - lo + 1
    items = [_power(int(base), int(exponent), size, lo) for base, exponent in zip(x.flat, y.flat, strict=True)]
    return np.array(items, dtype=np.float64).reshape(x.shape)


def _power(base: int, exponent: int, size: int, lo: int) -> int:
    if exponent >= 0:
        return (pow(base, exponent, size) - lo) % size + lo
    return base ** (exponent % 2) if abs(base) == 1 else 0


_BITS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@operation("integers")
def bitwise(x: Array, y: Array, kind: str) -> Array:
    """The bits of x and y in two's complement, joined by ``kind``: "and", "or" or "xor"."""
    x, y = (round_half_up(item).astype(np.int64) for item in aligned(x, y))
    result: Array = _BITS[kind](x, y).astype(np.float64)
    return result
