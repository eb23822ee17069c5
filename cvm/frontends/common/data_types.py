"""Integer data types by their usual names, and the quantisers of scale 1 for the integers that the machine has."""

from __future__ import annotations

from fractions import Fraction

from cvm.limits import INT32_MAX
from cvm.quantization import LinearQuantizer

__all__ = ["EVERYTHING", "UNBOUNDED", "bounds", "is_float", "unit"]


def is_float(data_type: str) -> bool:
    """Whether tensors of a data type are real numbers."""
    return data_type.startswith(("float", "bfloat"))


def bounds(data_type: str) -> tuple[int, int]:
    """The least and the greatest integer of "bool" or of a data type like "int4" or "uint16"."""
    if data_type == "bool":
        return 0, 1
    signed = data_type.startswith("int")
    bits = int(data_type[3:] if signed else data_type[4:])
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def unit(lo: int, hi: int) -> LinearQuantizer:
    """The quantiser of scale 1 and offset 0 for integers in [lo, hi], clipped to machine integers."""
    return LinearQuantizer(
        (Fraction(1),), (Fraction(0),), max(lo, -INT32_MAX), min(hi, INT32_MAX), rounding="half_even"
    )


EVERYTHING = unit(-INT32_MAX, INT32_MAX)
"""The quantiser of scale 1 for all machine integers."""

UNBOUNDED = Fraction(2) ** 200
"""A bound beyond every number that is a 32-bit integer times a float scale."""
