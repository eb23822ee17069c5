"""Quantisers: exact maps between integer codes and real numbers.

The linear quantisers of all front ends have one form. Code ``q`` in ``[lo, hi]`` stands for the real number
``offset + scale * q``; a real number ``x`` gets the code ``clamp(round((x - offset) / scale), lo, hi)``. Scales and
offsets are exact rationals (`fractions.Fraction`), taken from the decimal text of the document.

Source: NNEF 1.0.1 sections 4.9.5 and 7.1; for `zero_point` and `min_max`, the quantisers of the current Khronos tools.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, TypeAlias

from cvm.errors import Invalid
from cvm.records import dataclass

__all__ = ["LinearQuantizer", "LogarithmicQuantizer", "Quantizer", "Rounding"]

Rounding = Literal["half_up", "half_even", "toward_zero"]


@dataclass(frozen=True, slots=True)
class LinearQuantizer:
    """An exact linear quantiser, per tensor or per index of one axis.

    ``scale`` (each > 0) and ``offset`` hold one rational, or one per index of ``axis``. ``axis`` is None if and only if
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

    def __repr__(self) -> str:
        scales = f"scale={self.scale[0]}, offset={self.offset[0]}"
        if self.axis is not None:
            scales = f"{len(self.scale)} scales from {min(self.scale)} to {max(self.scale)} along axis {self.axis}"
        return f"LinearQuantizer({scales}, codes {self.lo}..{self.hi}, {self.rounding})"

    @property
    def per_tensor(self) -> bool:
        """Whether there is one scale and one offset for the whole tensor."""
        return self.axis is None

    def value(self, code: int, index: int = 0) -> Fraction:
        """The number that a code stands for, under the scale and offset with index ``index``."""
        return self.offset[index] + self.scale[index] * code

    @staticmethod
    def linear(minimum: Fraction, maximum: Fraction, bits: int) -> LinearQuantizer:
        """``linear_quantize(min, max, bits)``: codes 0 .. 2^bits - 1 from ``minimum`` to ``maximum``.

        Raises `Invalid` unless minimum < maximum and 1 <= bits <= 31.
        """
        _require_bits(bits)
        if not minimum < maximum:
            raise Invalid("quantization.range", f"min must be less than max, found {minimum} and {maximum}")
        steps = 2**bits - 1
        return LinearQuantizer(((maximum - minimum) / steps,), (minimum,), 0, steps)

    @staticmethod
    def zero_point(
        zero_point: tuple[int, ...],
        scale: tuple[Fraction, ...],
        bits: int,
        signed: bool,
        symmetric: bool,
        axis: int | None = None,
    ) -> LinearQuantizer:
        """``zero_point_linear_quantize`` of the Khronos tools: code clamp(round(x / scale) + zero_point, lo, hi).

        ``zero_point`` and ``scale`` hold one item, or one per index of ``axis``. Raises `Invalid` for bits outside
        1..32 or a scale that is not positive.
        """
        offset = tuple(-s * z for s, z in zip(scale, zero_point, strict=True))
        return LinearQuantizer(scale, offset, *_code_range(bits, signed, symmetric), axis)

    @staticmethod
    def min_max(
        minimum: tuple[Fraction, ...],
        maximum: tuple[Fraction, ...],
        bits: int,
        signed: bool,
        symmetric: bool,
        axis: int | None = None,
    ) -> LinearQuantizer:
        """``min_max_linear_quantize`` of the Khronos tools: the codes of the range, from ``minimum`` to ``maximum``.

        Both hold one item, or one per index of ``axis``. Raises `Invalid` unless minimum < maximum and bits in 1..32.
        """
        if any(not low < high for low, high in zip(minimum, maximum, strict=True)):
            raise Invalid("quantization.range", "min must be less than max in every channel")
        _require_bits(bits, _MOST_BITS)
        lo = -(2 ** (bits - 1)) + symmetric if signed else 0
        steps = 2**bits - 1 - (signed and symmetric)
        if steps < 1:
            raise Invalid("quantization.codes", f"{bits} bits leave no codes")
        scale = tuple((high - low) / steps for low, high in zip(minimum, maximum, strict=True))
        # round((x - min) / scale) counts from the code lo, which stands for min.
        offset = tuple(low - s * lo for low, s in zip(minimum, scale, strict=True))
        return LinearQuantizer(scale, offset, lo, lo + steps, axis)


_MOST_BITS = 32
"""The most bits of the quantisers of the Khronos tools, which store biases as 32-bit codes."""


def _require_bits(bits: int, most: int = 31) -> None:
    if not 1 <= bits <= most:
        raise Invalid("quantization.bits", f"bits must be in 1..{most}, found {bits}")


def _code_range(bits: int, signed: bool, symmetric: bool) -> tuple[int, int]:
    _require_bits(bits, _MOST_BITS)
    if not signed:
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)) + symmetric, 2 ** (bits - 1) - 1


_MOST_TOP = 2**14
"""The largest exponent. Numbers of documents have at most 4,096 bits, so no document needs a larger one."""


@dataclass(frozen=True, slots=True)
class LogarithmicQuantizer:
    """``logarithmic_quantize(max, bits)``: sign(x) * 2^q, q = round(clamp(log2(abs(x)), top - r, top)), r = 2^bits - 1.

    ``top`` is ceil(log2(max)). The code of a number is sign(x) * (q - (top - r) + 1), an integer in [lo, hi] that grows
    with the number; zero, whose sign is 0, has the code 0. The sign does not count among the bits (section 4.9.5).
    """

    top: int
    bits: int

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 16:
            raise Invalid("quantization.bits", f"bits of a logarithm must be in 1..16, found {self.bits}")
        if abs(self.top) > _MOST_TOP:
            raise Invalid("quantization.top", f"the exponent of max must be within +-{_MOST_TOP}, found {self.top}")

    @staticmethod
    def of(maximum: Fraction, bits: int) -> LogarithmicQuantizer:
        """The quantiser of a document. Raises `Invalid` unless maximum > 0 and 1 <= bits <= 16."""
        if maximum <= 0:
            raise Invalid("quantization.range", f"max must be greater than zero, found {maximum}")
        top = maximum.numerator.bit_length() - maximum.denominator.bit_length()
        top += maximum > Fraction(2) ** top
        return LogarithmicQuantizer(top, bits)

    @property
    def axis(self) -> None:
        """None: there is one range for the whole tensor."""
        return None

    @property
    def per_tensor(self) -> bool:
        """True: there is one range for the whole tensor."""
        return True

    @property
    def hi(self) -> int:
        """The code of 2^top."""
        return int(2**self.bits)

    @property
    def lo(self) -> int:
        """The code of -2^top."""
        return -self.hi

    def value(self, code: int) -> Fraction:
        """The number that a code stands for."""
        if code == 0:
            return Fraction(0)
        power = Fraction(2) ** (self.top - self.hi + abs(code))
        return power if code > 0 else -power


Quantizer: TypeAlias = LinearQuantizer | LogarithmicQuantizer
