"""Powers of two: what logarithmic quantisers (NNEF 1.0.1 section 4.9.5) make of constant tensors.

A code c stands for sign(c) * 2^(top - r - 1 + |c|). With 2^e the least power that occurs, every item is an integer
times 2^e: a tensor of powers of two is a tensor of integers.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.lowering.form import Known
from cvm.quantization import LogarithmicQuantizer
from cvm.quantization.rationals import Rationals

__all__ = ["known_power_codes", "known_powers", "power_code"]


def power_code(x: Fraction, quantizer: LogarithmicQuantizer) -> int:
    """The code of a number: sign(x) times the place of the nearest exponent, by round(log2 x) >= k <=> x^2 >= 2^(2k-1).

    Rounding and clamping the exponent commute, since rounding is monotone and keeps integers.
    """
    if x == 0:
        return 0
    square = x * x
    # 2^(n-1) < x^2 < 2^(n+1): round(log2 x) = floor((log2 x^2 + 1) / 2) is decided by one comparison.
    n = square.numerator.bit_length() - square.denominator.bit_length()
    doubled = n if square >= Fraction(2) ** n else n - 1
    exponent = (doubled + 1) // 2
    lowest = quantizer.top - quantizer.hi + 1
    place = min(max(exponent, lowest), quantizer.top) - lowest + 1
    return place if x > 0 else -place


def known_powers(values: Rationals, quantizer: LogarithmicQuantizer) -> Known:
    """The constant tensor that the quantiser makes of exact numbers."""
    codes = np.array([power_code(item, quantizer) for item in values.fractions()], dtype=object)
    return known_power_codes(codes.reshape(values.shape), quantizer)


def known_power_codes(codes: npt.NDArray[Any], quantizer: LogarithmicQuantizer) -> Known:
    """The constant tensor that codes of the quantiser stand for: integers times the least power that occurs."""
    items = [int(code) for code in codes.ravel().tolist()]
    least = min((abs(code) for code in items if code), default=1)
    integers = np.array([0 if c == 0 else 2 ** (abs(c) - least) * (1 if c > 0 else -1) for c in items], dtype=object)
    rank = codes.ndim
    scale = Rationals.scalar(quantizer.value(least), rank)
    return Known(integers.reshape(codes.shape), scale, Rationals.scalar(0, rank))
