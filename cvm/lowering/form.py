"""What a real tensor is during lowering: an exact expression in int32 tensors of the program.

A `LinearForm` is sum_i factor_i * X_i + constant, clamped to [lower, upper] where given; X_i are values of the program,
factors and constants exact rationals per tensor, channel or position. Everything linear only rewrites the form; nothing
is emitted until a tensor that carries a quantiser is reached, and then it is one ``requantize``. A `SurdForm` is what
batch normalisation makes of a form with one term. A `Known` tensor is constant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.quantization.exact import round_fraction
from cvm.quantization.rationals import Rationals

__all__ = ["Form", "Known", "LinearForm", "Shape", "SurdForm", "Term"]

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Term:
    """``factor`` times a value of the program, whose shape is the form's or 1 along some axes."""

    value: str
    factor: Rationals


@dataclass(frozen=True, eq=False, slots=True)
class LinearForm:
    """min(max(sum of terms + constant, lower), upper), a real tensor of ``shape`` (rank >= 1)."""

    shape: Shape
    terms: tuple[Term, ...]
    constant: Rationals
    lower: Fraction | None = None
    upper: Fraction | None = None

    @property
    def rank(self) -> int:
        """The rank of the tensor."""
        return len(self.shape)

    @property
    def clamped(self) -> bool:
        """Whether a clamp is pending."""
        return self.lower is not None or self.upper is not None

    def at_least(self, bound: Fraction) -> LinearForm:
        """The greater of this and ``bound``, for a form without an upper bound below it."""
        return replace(self, lower=bound if self.lower is None else max(self.lower, bound))


@dataclass(frozen=True, eq=False, slots=True)
class SurdForm:
    """offset + (slope * X + origin) / sqrt(radicand): one value of the program, exact rationals per channel."""

    shape: Shape
    value: str
    slope: Rationals
    origin: Rationals
    offset: Rationals
    radicand: Rationals


@dataclass(frozen=True, eq=False, slots=True)
class Known:
    """A constant tensor: scale * codes + offset, with integer ``codes`` of full extent."""

    codes: npt.NDArray[Any]
    scale: Rationals
    offset: Rationals

    @property
    def shape(self) -> Shape:
        """The shape of the tensor (rank >= 1)."""
        return tuple(self.codes.shape)

    def rationals(self) -> Rationals:
        """The real numbers, at full extent."""
        return Rationals(self.codes.astype(object)) * self.scale + self.offset

    def expanded(self, rank: int) -> Rationals:
        """The real numbers of a tensor that is broadcast to ``rank``: NNEF aligns shapes at the first dimension."""
        values = self.rationals()
        return values.moved(lambda items: items.reshape(items.shape + (1,) * (rank - items.ndim)))

    def centred(self) -> tuple[npt.NDArray[Any], Rationals]:
        """Codes moved by the integer nearest to zero's code, and the real offset that remains.

        scale * codes + offset = scale * centred + rest, where |rest| <= scale / 2 and rest = 0 if zero is a code.
        """
        zero = nearest_zero(self.scale, self.offset)
        rest = self.offset + self.scale * Rationals(zero)
        return self.codes.astype(object) - zero, rest.reduced()


def nearest_zero(scale: Rationals, offset: Rationals) -> npt.NDArray[Any]:
    """round(-offset / scale): the integer nearest to the code of zero, per item."""
    quotient = -offset / scale
    items = [round_fraction(item, "half_up") for item in quotient.fractions()]
    return np.array(items, dtype=object).reshape(quotient.shape)


Form: TypeAlias = LinearForm | SurdForm
