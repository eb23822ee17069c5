"""Up and down-sampling: NNEF 1.0.1 section 4.3.4."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid
from cvm.reference.operations.filters import box
from cvm.reference.operations.windows import Sliding, sources
from cvm.reference.registry import Array, Integers, along, operation

__all__ = ["interpolated"]


@operation("4.3.4")
def nearest_downsample(input: Array, factor: Integers) -> Array:
    """``box(input, size = [1] * dims, stride = [1,1] + factor, padding = 0)``: every factor-th item."""
    return input[(slice(None), slice(None), *(slice(None, None, step) for step in factor))]


@operation("4.3.4")
def area_downsample(input: Array, factor: Integers) -> Array:
    """``box(input, size = [1,1] + factor, stride = [1,1] + factor, ..)``, normalised: the mean of blocks."""
    block = (1, 1, *factor)
    return box(input, block, Sliding(padding=[(0, 0)] * len(block), stride=block), normalize=True)


@operation("4.3.4")
def nearest_upsample(input: Array, factor: Integers) -> Array:
    """``debox(input, size = [1,1] + factor, stride = [1,1] + factor, padding = 0)``: every item repeated."""
    for axis, times in enumerate(factor, start=2):
        input = np.repeat(input, times, axis)
    return input


def interpolated(x: Array, axis: int, lower: npt.NDArray[np.int64], fraction: Array, border: str) -> Array:
    """(1 - u) * x~[j] + u * x~[j + 1] along one axis, for vectors of indices j and fractions u."""
    total = np.zeros(())
    for position, weight in ((lower, 1.0 - fraction), (lower + 1, fraction)):
        found, inside = sources(position, x.shape[axis], border)
        total = total + np.take(x, found, axis) * along(np.where(inside, weight, 0.0), axis, x.ndim)
    return total


@operation("4.3.4")
def multilinear_upsample(input: Array, factor: Integers, method: str = "symmetric", border: str = "replicate") -> Array:
    """Interpolation between j(i) and j(i) + 1 with weight u(i), one spatial dimension after the other.

    j + u is i / f for 'asymmetric', (i - (f - 1) / 2) / f for 'symmetric' and i * (x - 1) / (x*f - 1) for 'aligned',
    which for x = 1 copies the only item. All of them are computed as exact fractions.
    """
    for axis, f in enumerate(factor, start=2):
        extent = input.shape[axis]
        i = np.arange(extent * f)
        match method:
            case "asymmetric":
                numerator, denominator = i, f
            case "symmetric":
                numerator, denominator = 2 * i - (f - 1), 2 * f
            case "aligned":
                numerator, denominator = i * (extent - 1), max(extent * f - 1, 1)
            case _:
                raise Invalid("reference.method", f"there is no interpolation method {method!r}")
        input = interpolated(input, axis, numerator // denominator, numerator % denominator / denominator, border)
    return input
