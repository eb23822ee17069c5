"""Calibration: from the numbers that a tensor takes on real data to an exact quantiser.

* `Histogram` counts them, in one pass and in bounded memory, the same for every order of arrival.
* `choose` picks the range that a method - minmax, percentile, mse, entropy - finds best for a `Levels`.
* `affine`, `symmetric` and `powers` make the exact quantiser of a range, whose parameters are short decimals.

The floats here decide which quantiser is written, nothing else: what is written is exact.
"""

from cvm.quantization.calibration.histogram import Histogram
from cvm.quantization.calibration.levels import Levels
from cvm.quantization.calibration.quantizers import affine, decimal_above, multiples_of, power_above, powers, symmetric
from cvm.quantization.calibration.ranges import METHODS, Method, choose

__all__ = [
    "METHODS",
    "Histogram",
    "Levels",
    "Method",
    "affine",
    "choose",
    "decimal_above",
    "multiples_of",
    "power_above",
    "powers",
    "symmetric",
]
