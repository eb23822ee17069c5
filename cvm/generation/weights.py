"""The weights of tokens as integers: a table of the exponential, correctly rounded."""

from __future__ import annotations

from fractions import Fraction

from cvm.errors import LimitExceeded
from cvm.quantization.reals import exp, rational, rounded

__all__ = ["MOST_WEIGHTS", "WEIGHT_BITS", "weights"]

WEIGHT_BITS = 30
"""The greatest logit has the weight 2^WEIGHT_BITS."""
MOST_WEIGHTS = 2**18
"""The longest table."""

_GUARD = 64
_MARGIN = 2**20
"""More than the error of an item of a table, in units of the guard bits."""
_NEGLIGIBLE = 32
"""exp of less than -32 has a weight below 1/2."""


def weights(step: Fraction, most: int) -> list[int]:
    """round(2^WEIGHT_BITS * exp(-step * d)) for d = 0, 1, .. up to ``most``, as long as it is not 0; step > 0.

    An item is the product of the item before it and exp(-step), with guard bits. Each factor is off by at most one
    unit of them, and the product is cut, so that item d is off by at most 2 d units, fewer than `_MARGIN`. If this does
    not decide the rounding, the exponential is enclosed by as many digits as necessary: exp of a rational other than 0
    is irrational, hence no tie. Raises `LimitExceeded` (``limit.weights``) for more than `MOST_WEIGHTS` items.
    """
    bits, half = WEIGHT_BITS + _GUARD, 1 << (_GUARD - 1)
    ratio = 0 if step > _NEGLIGIBLE else rounded(rational(2**bits) * exp(rational(-step)))
    found = [1 << WEIGHT_BITS]
    item = 1 << bits
    while len(found) <= most:
        item = item * ratio >> bits
        low, high = ((item + margin + half) >> _GUARD for margin in (-_MARGIN, _MARGIN))
        if low != high:
            low = rounded(rational(2**WEIGHT_BITS) * exp(rational(-step * len(found))))
        if low == 0:
            return found
        if len(found) == MOST_WEIGHTS:
            message = (
                f"logits of scale and temperature {float(step):.3g} apart need a table of more than {MOST_WEIGHTS} "
                "weights: lower the temperature, or quantise the logits more coarsely"
            )
            raise LimitExceeded("limit.weights", message)
        found.append(low)
    return found
