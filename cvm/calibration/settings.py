"""The settings of a calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from cvm.errors import Invalid
from cvm.quantization.calibration import METHODS, Levels, Method

__all__ = ["FORMS", "Form", "Settings"]

Form = Literal["linear", "zero-point", "logarithmic"]
"""How quantisers are written: ``linear_quantize`` of NNEF 1.0.1, whose codes begin at 0; ``zero_point_linear_quantize``
of the Khronos tools, whose codes have a sign; or ``logarithmic_quantize`` for filters, linear for all else."""

FORMS: tuple[Form, ...] = get_args(Form)

_POWER_BITS = 4
"""Of exponents, unless said otherwise: they reach down to 2^-15 of the greatest; more reach further, none is finer."""

_WEIGHT_BITS = 8
"""At most, of filters, unless said otherwise: sums of wider products leave the 32 bits of programs."""

_LEAST, _MOST = 2, 16

_NARROW = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """The choices, checked. Raises `Invalid` (``calibration.<rule>``: bits, method, form, percentile, per-channel)."""

    bits: int = 8
    weight_bits: int | None = None
    per_channel: bool = False
    method: Method = "minmax"
    percentile: float = 99.99
    form: Form = "linear"

    def __post_init__(self) -> None:
        for bits in (self.bits, self.filter_bits):
            if not _LEAST <= bits <= _MOST:
                raise Invalid("calibration.bits", f"bits must be in {_LEAST}..{_MOST}, found {bits}")
        if self.method not in METHODS:
            raise Invalid("calibration.method", f"expected one of {', '.join(METHODS)}, found {self.method!r}")
        if self.form not in FORMS:
            raise Invalid("calibration.form", f"expected one of {', '.join(FORMS)}, found {self.form!r}")
        if not 0.0 < self.percentile <= 100.0:
            message = f"a percentile must be greater than 0 and at most 100, found {self.percentile}"
            raise Invalid("calibration.percentile", message)
        if self.per_channel and self.form == "logarithmic":
            message = "logarithmic_quantize has one range for a whole tensor, none per channel"
            raise Invalid("calibration.per-channel", message)

    @property
    def accumulates(self) -> bool:
        """Whether an accumulator goes into a normalisation as it is.

        It saves a rounding, which counts for few bits. The proofs for a normalisation of wider accumulators take long,
        or find no form in 64 bits; there the result of the product is rounded first.
        """
        return self.bits <= _NARROW

    @property
    def signed(self) -> bool:
        """Whether codes have a sign."""
        return self.form == "zero-point"

    @property
    def filter_bits(self) -> int:
        """The bits of a code of a filter."""
        if self.weight_bits is not None:
            return self.weight_bits
        return _POWER_BITS if self.form == "logarithmic" else min(self.bits, _WEIGHT_BITS)

    @property
    def filter_levels(self) -> Levels:
        """The levels of a filter's quantiser."""
        return Levels("powers" if self.form == "logarithmic" else "symmetric", self.filter_bits)
