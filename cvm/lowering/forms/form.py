"""The forms of a real tensor during lowering: exact expressions in int32 tensors of the program.

A `LinearForm` is sum_i factor_i * X_i + constant, clamped to [lower, upper] if these are given. The X_i are values of
the program; factors and constants are exact rationals per tensor, channel or position. Linear operations only rewrite
the form. Ops are emitted for a tensor that carries a quantiser, and then one ``requantize`` is enough in most cases. A
`SurdForm` is the result of a batch normalisation. A `TableForm` is the result of any other function of values with few
codes, or the meaning of codes of a logarithmic quantiser. A `Known` tensor is constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.blocks import blocks
from cvm.bounds import narrowest
from cvm.lowering.forms.emission import Value
from cvm.quantization import LinearQuantizer
from cvm.quantization.exact import quantize_rationals, round_fraction
from cvm.quantization.rationals import Rationals, condensed, core
from cvm.quantization.reals import Real
from cvm.records import dataclass

__all__ = [
    "Form",
    "Known",
    "LinearForm",
    "Shape",
    "SurdForm",
    "TableForm",
    "Term",
    "code_form",
    "constant_of",
    "known_codes",
    "nearest_zero",
    "requantized",
    "scale_and_offset",
]

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Term:
    """``factor`` times a value of the program. Both broadcast to the shape of the form."""

    value: Value
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

    def ends(self) -> tuple[Fraction, Fraction]:
        """A lower and an upper bound of the numbers, from the proven intervals of the values. A clamp is ignored."""
        low, high = min(self.constant.fractions()), max(self.constant.fractions())
        for term in self.terms:
            ends = term.value.range.hull()
            products = [factor * end for factor in set(term.factor.fractions()) for end in ends]
            low, high = low + min(products), high + max(products)
        return low, high

    def at_least(self, bound: Fraction) -> LinearForm:
        """The maximum of this form and ``bound``, as a form."""
        lower, upper = _raised(self.lower, self.upper, bound)
        return replace(self, lower=lower, upper=upper)


def _raised(lower: Fraction | None, upper: Fraction | None, bound: Fraction) -> tuple[Fraction, Fraction | None]:
    """The clamp of max(x, bound), for an x that is clamped to [lower, upper]. Its upper bound is at least the lower."""
    lower = bound if lower is None else max(lower, bound)
    return lower, None if upper is None else max(upper, lower)


@dataclass(frozen=True, eq=False, slots=True)
class SurdForm:
    """min(max(offset + (sum of terms + origin) / sqrt(radicand), lower), upper), a real tensor of ``shape``.

    Factors, origin, offset and the positive radicand are exact rationals per tensor or channel.
    """

    shape: Shape
    terms: tuple[Term, ...]
    origin: Rationals
    offset: Rationals
    radicand: Rationals
    lower: Fraction | None = None
    upper: Fraction | None = None

    @property
    def clamped(self) -> bool:
        """Whether a clamp is pending."""
        return self.lower is not None or self.upper is not None

    def at_least(self, bound: Fraction) -> SurdForm:
        """The maximum of this form and ``bound``, as a form."""
        lower, upper = _raised(self.lower, self.upper, bound)
        return replace(self, lower=lower, upper=upper)

    def moved(self, value: Callable[[Value], Value], items: Callable[[Rationals], Rationals], shape: Shape) -> SurdForm:
        """The form after items have been moved: ``value`` moves values of the program, ``items`` moves coefficients."""
        terms = tuple(Term(value(term.value), items(term.factor)) for term in self.terms)
        origin, offset, radicand = (items(item) for item in (self.origin, self.offset, self.radicand))
        return SurdForm(shape, terms, origin, offset, radicand, self.lower, self.upper)


@dataclass(frozen=True, eq=False, slots=True)
class TableForm:
    """numbers[X], a real tensor of ``shape``: each element of ``value``, in [0, len(numbers)), indexes ``numbers``."""

    shape: Shape
    value: Value
    numbers: Sequence[Real]


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

    @staticmethod
    def of(values: Rationals) -> Known:
        """The constant tensor of these numbers, which are given in its full shape."""
        rank = values.numerators.ndim
        scale = Rationals.scalar(Fraction(1, values.denominator), rank)
        return Known(values.numerators, scale, Rationals.scalar(0, rank))

    def rationals(self) -> Rationals:
        """The real numbers, in the full shape of the tensor."""
        items = condensed(self.codes)
        numerators = np.broadcast_to(core(items).astype(object), items.shape)
        return Rationals(numerators) * self.scale + self.offset

    def expanded(self, rank: int) -> Rationals:
        """The real numbers with trailing axes of extent 1, up to ``rank``: NNEF aligns shapes at the first axis."""
        return self.rationals().with_trailing_axes(rank - self.codes.ndim)

    def centred(self) -> tuple[npt.NDArray[Any], Rationals]:
        """The codes minus the integer nearest to the code of zero, and the real offset that remains.

        scale * codes + offset = scale * centred + rest, where |rest| <= scale / 2 and rest = 0 if zero is a code.
        """
        zero = nearest_zero(self.scale, self.offset)
        rest = self.offset + self.scale * Rationals(zero)
        if self.codes.dtype.kind in "iu" and self.codes.dtype.itemsize < 8 and not (abs(zero) >= 2**30).any():
            return _less(self.codes, zero.astype(np.int64)), rest.reduced()
        narrow = self.codes.dtype.kind in "iu" and not (abs(zero) >= 2**31).any()
        if narrow and max(abs(int(self.codes.min())), abs(int(self.codes.max()))) < 2**31:
            codes = self.codes.astype(np.int64, copy=False)
            return codes - zero.astype(np.int64) if zero.any() else codes, rest.reduced()
        return self.codes.astype(object) - zero, rest.reduced()


def _less(codes: npt.NDArray[Any], zero: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Codes of at most 32 bits minus integers below 2^30, in the narrowest signed type, computed in 64 bits."""
    least, most = int(codes.min()) - int(zero.max()), int(codes.max()) - int(zero.min())
    width = narrowest(least, most)
    if not zero.any():
        return codes.astype(width, copy=False)
    found, zeros = np.empty(codes.shape, width), np.broadcast_to(zero, codes.shape)
    for block in blocks(codes.shape):
        found[block] = codes[block].astype(np.int64) - zeros[block]
    return found


Form: TypeAlias = LinearForm | SurdForm | TableForm
"""The form of a computed tensor."""


def nearest_zero(scale: Rationals, offset: Rationals) -> npt.NDArray[Any]:
    """round(-offset / scale), for each item: the integer nearest to the code of zero."""
    if offset.is_zero():
        return np.zeros(np.broadcast_shapes(offset.shape, scale.shape), dtype=object)
    quotient = -offset / scale
    items = [round_fraction(item, "half_up") for item in quotient.fractions()]
    return np.array(items, dtype=object).reshape(quotient.shape)


def code_form(value: Value, shape: Shape, quantizer: LinearQuantizer) -> LinearForm:
    """The real tensor scale * code + offset, where ``value`` holds codes of ``quantizer``."""
    scale, offset = scale_and_offset(quantizer, len(shape))
    return LinearForm(shape, (Term(value, scale),), offset)


def scale_and_offset(quantizer: LinearQuantizer, rank: int) -> tuple[Rationals, Rationals]:
    """Scale and offset of a quantiser as arrays of ``rank`` that broadcast to its tensor."""
    extents = [1] * rank
    if quantizer.axis is not None:
        extents[quantizer.axis] = len(quantizer.scale)
    return Rationals.of(quantizer.scale, extents), Rationals.of(quantizer.offset, extents)


def known_codes(codes: npt.NDArray[Any], quantizer: LinearQuantizer) -> Known:
    """The constant tensor that codes of a quantiser stand for."""
    return Known(codes, *scale_and_offset(quantizer, codes.ndim))


def constant_of(form: LinearForm) -> Known:
    """A form without terms as a constant tensor of its shape."""
    return Known.of(form.constant.broadcast(form.shape))


def requantized(known: Known, shape: Shape, quantizer: LinearQuantizer) -> Known:
    """The constant, broadcast to ``shape`` and quantised. If it holds codes of ``quantizer`` already, they are kept."""
    scale, offset = scale_and_offset(quantizer, len(shape))
    if known.shape == shape and known.scale.equals(scale) and known.offset.equals(offset):
        lo, hi = int(known.codes.min()), int(known.codes.max())
        if quantizer.lo <= lo and hi <= quantizer.hi:
            return known_codes(known.codes, quantizer)
    return known_codes(quantize_rationals(known.rationals().broadcast(shape), quantizer), quantizer)
