"""Quantisers: which integer code stands for which real number, exactly.

Every linear quantiser of every front end has one form. Code ``q`` in ``[lo, hi]`` stands for the real number
``offset + scale * q``; a real number ``x`` gets the code ``clamp(round((x - offset) / scale), lo, hi)``. Scales and
offsets are exact rationals (`fractions.Fraction`), taken from the decimal text of the document.

Source: NNEF 1.0.1 sections 4.9.5 and 7.1; the quantisers of the current Khronos tools for the other two.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from cvm.errors import Invalid

__all__ = ["LinearQuantizer", "Rounding"]

Rounding = Literal["half_up", "half_even", "toward_zero"]


@dataclass(frozen=True, slots=True)
class LinearQuantizer:
    """An exact linear quantiser, per tensor or per index of one axis.

    ``scale`` (each > 0) and ``offset`` hold one rational, or one per index of ``axis``; ``axis`` is None exactly when
    there is one of each.
    """

    scale: tuple[Fraction, ...]
    offset: tuple[Fraction, ...]
    lo: int
    hi: int
    axis: int | None = None
    rounding: Rounding = "half_up"

    def __post_init__(self) -> None:
        if len(self.scale) != len(self.offset) or not self.scale:
            raise Invalid("quantization.lists", "scale and offset must have the same number of items, at least one")
        if self.axis is None and len(self.scale) != 1:
            raise Invalid("quantization.axis", "several scales need the axis that they belong to")
        if any(scale <= 0 for scale in self.scale):
            raise Invalid("quantization.scale", "a scale must be greater than zero")
        if not self.lo < self.hi:
            raise Invalid("quantization.codes", f"no code range: [{self.lo}, {self.hi}]")

    @property
    def per_tensor(self) -> bool:
        """Whether one scale and one offset serve the whole tensor."""
        return self.axis is None

    @staticmethod
    def linear(minimum: Fraction, maximum: Fraction, bits: int) -> LinearQuantizer:
        """``linear_quantize(min, max, bits)``: codes 0 .. 2^bits - 1 from ``minimum`` to ``maximum``.

        Raises `Invalid` unless minimum < maximum and 1 <= bits <= 31.
        """
        if not 1 <= bits <= 31:
            raise Invalid("quantization.bits", f"bits must be in 1..31, found {bits}")
        if not minimum < maximum:
            raise Invalid("quantization.range", f"min must be less than max, found {minimum} and {maximum}")
        steps = 2**bits - 1
        return LinearQuantizer(((maximum - minimum) / steps,), (minimum,), 0, steps)
