"""Quotients, normalised rows and updated slices, as data."""

from __future__ import annotations

from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.loops import Loop
from cvm.records import dataclass

__all__ = ["Normalization", "Quotient", "Update"]


@dataclass(frozen=True, slots=True)
class Quotient:
    """clip(round(N / D), lo, hi) in loops: the strides and formats of x, y, m, w, c, e and the result, in this order.

    ``terms`` are those of numerator and divisor. Sums, and the divisor times the codes, fit ``bits`` bits. With
    ``doubt`` d, a float64 estimate of N / D is proven to be wrong by at most 2^-d wherever it is not clipped, and only
    codes whose estimate lies so near to half an integer are computed in these bits; without it, all codes are.
    """

    loops: tuple[Loop, ...]
    formats: tuple[Format, ...]
    terms: tuple[int, int]
    rounding: str
    lo: int
    hi: int
    bits: int
    doubt: int | None = None

    @property
    def units(self) -> int:
        """Parts that may run at the same time: the indices of the outermost loop, unless vectors run along it."""
        return self.loops[0].extent if len(self.loops) > 1 else 1

    @property
    def digits(self) -> int:
        """The bits of the greatest number that is counted up to: of codes from lo on, or of magnitudes."""
        most = max(abs(self.lo), abs(self.hi)) if self.rounding == "toward_zero" else self.hi - self.lo
        return most.bit_length()


@dataclass(frozen=True, slots=True)
class Normalization:
    """One kernel of `normalize`: loops over rows (``kept``) and along a row (``taken``).

    Strides and formats are those of X, m, c, k, r and e, then with ``doubt`` those of m / k and of c / k in float64
    (the bits, as INT64), then those of the result. ``count`` is the number of elements of a row. With ``doubt`` d, a
    float64 estimate of what is rounded is proven to be wrong by at most 2^-d, and only codes whose estimate lies so
    near to half an integer are decided by comparisons in 256 bits; without it, all codes are.
    """

    kept: tuple[Loop, ...]
    taken: tuple[Loop, ...]
    formats: tuple[Format, ...]
    statistic: str
    count: int
    shift: int
    half_even: bool
    lo: int
    hi: int
    doubt: int | None = None

    @property
    def units(self) -> int:
        """Parts that may run at the same time: the indices of the outermost loop over rows."""
        return self.kept[0].extent if self.kept else 1


@dataclass(frozen=True, slots=True)
class Update:
    """One kernel of `update_slice`: loops over X and over U, with the strides of the tensor and of the result.

    U fits where it begins at an index of at most ``last`` along the axis; ``stride`` is the stride of the result there.
    Without loops over X, the result is stored in the place of X.
    """

    kept: tuple[Loop, ...]
    replaced: tuple[Loop, ...]
    formats: tuple[Format, ...]
    last: int
    stride: int
