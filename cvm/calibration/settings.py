"""The settings of a calibration."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Literal, get_args

from cvm.errors import Invalid
from cvm.quantization.calibration import METHODS, Levels, Method
from cvm.records import dataclass

__all__ = ["CHOICES", "FORMS", "Choice", "Form", "RangeMethod", "Settings"]

Form = Literal["linear", "zero-point", "logarithmic"]
"""The form of quantisers: "linear" is ``linear_quantize`` of NNEF 1.0.1, whose codes begin at 0; "zero-point" is
``zero_point_linear_quantize`` of the Khronos tools, whose codes are signed; "logarithmic" is ``logarithmic_quantize``
for filters, and linear for all other tensors."""

FORMS: tuple[Form, ...] = get_args(Form)

RangeMethod = Method | Literal["best"]
"""A method for ranges; "best" takes the method of `METHODS` (without entropy) with the outputs nearest to the float
graph.
"""

Choice = Literal["auto", "on", "off"]
"""A choice about changing the numbers of a model before rounding: "auto" changes them where that helps on the data."""

CHOICES: tuple[Choice, ...] = get_args(Choice)

_POWER_BITS = 4
"""The default bits of an exponent: 4 bits reach down to 2^-15 of the greatest power; more bits add
only smaller powers.
"""

_WEIGHT_BITS = 8
"""The greatest default bits of filters: sums of wider products exceed the 32 bits of programs."""

_LEAST, _MOST = 2, 16

_OUTPUT_BITS = 12
"""The default bits of outputs that no operation reads: fewer would save nothing."""

_NARROW = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked choices of a calibration.

    Raises `Invalid` (``calibration.<rule>``): bits, method, form, percentile, per-channel, choice.

    ``output_bits`` are the bits of outputs that no operation reads and no further operation rounds (default ``bits``);
    ``filter_method`` is the method for the ranges of filters (default ``method``). ``bits_of`` are the bits of single
    tensors, by their names or by patterns of names as a shell has them; of several that fit, the last counts.
    """

    bits: int = 8
    weight_bits: int | None = None
    per_channel: bool = False
    method: RangeMethod = "minmax"
    percentile: float = 99.99
    form: Form = "linear"
    output_bits: int | None = None
    filter_method: Method | None = None
    equalize: Choice = "off"
    correct_bias: Choice = "off"
    bits_of: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        outputs = self.bits if self.output_bits is None else self.output_bits
        for bits in (self.bits, self.filter_bits, outputs, *(bits for _, bits in self.bits_of)):
            if not _LEAST <= bits <= _MOST:
                raise Invalid("calibration.bits", f"bits must be in {_LEAST}..{_MOST}, found {bits}")
        if self.method not in (*METHODS, "best"):
            raise Invalid("calibration.method", f"expected one of {', '.join(METHODS)}, best, found {self.method!r}")
        for choice in (self.equalize, self.correct_bias):
            if choice not in CHOICES:
                raise Invalid("calibration.choice", f"expected one of {', '.join(CHOICES)}, found {choice!r}")
        if self.form not in FORMS:
            raise Invalid("calibration.form", f"expected one of {', '.join(FORMS)}, found {self.form!r}")
        if not 0.0 < self.percentile <= 100.0:
            message = f"a percentile must be greater than 0 and at most 100, found {self.percentile}"
            raise Invalid("calibration.percentile", message)
        if self.per_channel and self.form == "logarithmic":
            message = "logarithmic_quantize has a single range per tensor; turn per-channel scales off"
            raise Invalid("calibration.per-channel", message)

    def named(self, tensors: Iterable[str]) -> dict[str, int]:
        """The bits that `bits_of` gives to some of the tensors.

        Raises `Invalid` (``calibration.bits``) for a name or a pattern that no tensor fits.
        """
        names, found = list(tensors), {}
        for pattern, bits in self.bits_of:
            fitting = [name for name in names if fnmatchcase(name, pattern)]
            if not fitting:
                raise Invalid("calibration.bits", f"no tensor has a name like {pattern!r}, which bits are given for")
            found.update(dict.fromkeys(fitting, bits))
        return found

    @property
    def accumulates(self) -> bool:
        """Whether an accumulator passes unrounded into a normalisation.

        It saves a rounding, which matters where bits are few. For wider accumulators the proofs of a normalisation take
        long, or find no form in 64 bits; there the result of the product is rounded first.
        """
        return self.bits <= _NARROW

    @property
    def signed(self) -> bool:
        """Whether codes are signed."""
        return self.form == "zero-point"

    @staticmethod
    def measured(bits: int = 8) -> Settings:
        """The settings of `cvm quantize` for ONNX and TFLite: scales per channel, wide outputs, other choices from
        data.
        """
        wide = max(bits, _OUTPUT_BITS)
        return Settings(
            bits, per_channel=True, method="best", output_bits=wide, equalize="auto", correct_bias="auto"
        )  # fmt: skip

    @property
    def is_open(self) -> bool:
        """Whether a choice is left to be made from data."""
        return self.method == "best" or "auto" in (self.equalize, self.correct_bias)

    @property
    def range_method(self) -> Method:
        """The method for the ranges of activations; for open settings, the first method that is tried."""
        return "minmax" if self.method == "best" else self.method

    @property
    def filter_bits(self) -> int:
        """The bits of a code of a filter."""
        if self.weight_bits is not None:
            return self.weight_bits
        return _POWER_BITS if self.form == "logarithmic" else min(self.bits, _WEIGHT_BITS)

    @property
    def filter_choices(self) -> tuple[object, ...]:
        """What the quantiser of a filter depends on, beside its numbers and its bits."""
        return self.per_channel, self.filter_method or self.range_method, self.percentile, self.form

    @property
    def filter_levels(self) -> Levels:
        """The levels of the quantiser of a filter."""
        return Levels("powers" if self.form == "logarithmic" else "symmetric", self.filter_bits)
