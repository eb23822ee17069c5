"""Inputs and outputs of a program in words: what to pass, and what a run returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Literal

from cvm.program.model import ProgramParts, Shape
from cvm.quantization import LinearQuantizer, Quantizer
from cvm.quantization.exact import nearest_float
from cvm.records import dataclass

__all__ = ["Port", "inputs_of", "outputs_of"]

_ROUNDING = {"half_up": "ties up", "half_even": "ties to even", "toward_zero": "truncated"}


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output: its name, its shape, and what its integers stand for."""

    name: str
    shape: Shape
    dtype: Literal["real", "int32"]
    """"real" if codes stand for real numbers, which an input takes and `Result.real` returns; else "int32"."""
    codes: tuple[int, int]
    """The interval of the integers: for an input the allowed one, for an output the proven one."""
    real: tuple[float, float] | None
    """The real numbers of the least and the greatest code, each the nearest float64; None without a quantiser."""
    quantizer: str | None
    """The quantiser in words."""

    def __repr__(self) -> str:
        codes = f"codes {self.codes[0]}..{self.codes[1]}"
        if self.real is None:
            return f"{self.name} {list(self.shape)} int32 {codes}"
        return (
            f"{self.name} {list(self.shape)} real {self.real[0]:.6g} to {self.real[1]:.6g}, {codes}: {self.quantizer}"
        )


def inputs_of(program: ProgramParts) -> tuple[Port, ...]:
    """The inputs of a program, in its order."""
    return tuple(
        _port(item.value.name, item.value.shape, (item.value.lo, item.value.hi), item.quantizer)
        for item in program.inputs
    )


def outputs_of(
    program: ProgramParts, shapes: Mapping[str, Shape], ends: Mapping[str, tuple[int, int]]
) -> tuple[Port, ...]:
    """The outputs of a program, in its order.

    ``shapes`` and ``ends``, the least and the greatest code, are by the names of the values.
    """
    return tuple(_port(item.name, shapes[item.value], ends[item.value], item.quantizer) for item in program.outputs)


def _port(name: str, shape: Shape, codes: tuple[int, int], quantizer: Quantizer | None) -> Port:
    if quantizer is None:
        return Port(name, shape, "int32", codes, None, None)
    ends = [value for code in codes for value in _values(quantizer, code)]
    return Port(name, shape, "real", codes, (nearest_float(min(ends)), nearest_float(max(ends))), _words(quantizer))


def _values(quantizer: Quantizer, code: int) -> Iterator[Fraction]:
    """The real number of a code, in every channel."""
    if isinstance(quantizer, LinearQuantizer):
        yield from (quantizer.value(code, channel) for channel in range(len(quantizer.scale)))
    else:
        yield quantizer.value(code)


def _words(quantizer: Quantizer) -> str:
    if not isinstance(quantizer, LinearQuantizer):
        return f"powers of two from 2^{quantizer.top - quantizer.hi + 1} to 2^{quantizer.top}, their negatives, and 0"
    rounding = _ROUNDING[quantizer.rounding]
    if quantizer.axis is not None:
        least, most = nearest_float(min(quantizer.scale)), nearest_float(max(quantizer.scale))
        return f"{len(quantizer.scale)} scales along axis {quantizer.axis}, {least:.6g} to {most:.6g}, {rounding}"
    (scale,), (offset,) = quantizer.scale, quantizer.offset
    zero = -offset / scale
    if zero.denominator == 1:
        return f"scale {nearest_float(scale):.6g}, zero point {zero.numerator}, {rounding}"
    return f"scale {nearest_float(scale):.6g}, offset {nearest_float(offset):.6g}, {rounding}"
