"""Calibration: from the numbers of a tensor on real data to an exact quantiser.

* `Histogram` counts the numbers, in one pass and in bounded memory. Their order does not matter.
* `choose` returns the range that a method - minmax, percentile, mse, entropy - finds best for a `Levels`.
* `affine`, `symmetric` and `powers` make the exact quantiser of a range. Its parameters are short decimals.

Floats are used here only to choose a quantiser; the quantiser itself is exact.
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
