"""Shared by the rules of the reference kernels: tensors as integers, rescaling, and tables.

The graph holds real numbers. An integer v of a kernel is the number v; a code q of a tensor with a scale is the number
(q - zero point) * scale, so a division by the scale gives an integer again, without rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from cvm.frontends.tflite.call import TfliteCall
from cvm.frontends.tflite.compat.fixed_point import Multiplier
from cvm.frontends.tflite.floats import binary32, round_away
from cvm.frontends.tflite.model import TfliteTensor
from cvm.frontends.tflite.tensors import quantizer_of
from cvm.frontends.tflite.translation import TfliteTranslation
from cvm.graph import Operand as Argument
from cvm.limits import INT32_MAX
from cvm.quantization import LinearQuantizer
from cvm.records import dataclass

__all__ = [
    "WHOLE",
    "Grid",
    "clip_of",
    "grid_of",
    "integer",
    "placed",
    "rescaled",
    "rescaled_once",
    "rounded_twice",
    "stepped",
    "table",
]

WHOLE = LinearQuantizer((Fraction(1),), (Fraction(0),), -INT32_MAX, INT32_MAX)
"""The quantiser of all machine integers, with ties rounded up."""


def integer(lo: int, hi: int) -> LinearQuantizer:
    """The quantiser of the integers in [lo, hi], with ties rounded up."""
    return LinearQuantizer((Fraction(1),), (Fraction(0),), lo, hi)


@dataclass(frozen=True, slots=True)
class Grid:
    """The scale, the zero point and the range of codes of a tensor."""

    scale: Fraction
    zero: int
    lo: int
    hi: int

    @property
    def quantizer(self) -> LinearQuantizer:
        """The quantiser with these codes."""
        return LinearQuantizer((self.scale,), (-self.scale * self.zero,), self.lo, self.hi)


def grid_of(call: TfliteCall, tensor: TfliteTensor, *data_types: str) -> Grid:
    """The grid of a tensor, whose data type must be one of ``data_types``. Raises `Unsupported`."""
    quantizer = quantizer_of(tensor)
    if quantizer is None or tensor.data_type not in data_types:
        what = f"{tensor.label} is of {tensor.data_type}{'' if quantizer else ' without a scale'}"
        message = f"{what}; the reference kernel is computed for {' and '.join(data_types)} with a scale"
        raise call.refuse(message, "compile it without --compat")
    zero = int(-quantizer.offset[0] / quantizer.scale[0])
    if not quantizer.lo <= zero <= quantizer.hi:
        raise call.invalid("quantization", f"{tensor.label} has the zero point {zero}, which is no code")
    return Grid(quantizer.scale[0], zero, quantizer.lo, quantizer.hi)


def clip_of(call: TfliteCall, grid: Grid) -> tuple[int, int]:
    """The range of codes that the fused activation of an operator clips to."""
    kind = call.integer("FusedActivationFunction")

    def code(number: int) -> int:
        return grid.zero + round_away(binary32(number / grid.scale))

    if kind not in _CLIPS:
        raise call.refuse(f"the reference kernel has no fused activation number {kind}", "compile it without --compat")
    low, high = _CLIPS[kind]
    lo = grid.lo if low is None else max(grid.lo, code(low))
    hi = grid.hi if high is None else min(grid.hi, code(high))
    if lo > hi:
        raise call.invalid("quantization", "the range of its fused activation contains no code")
    return lo, hi


def stepped(translation: TfliteTranslation, name: str, grid: Grid) -> str:
    """The integers q - zero point of a tensor with codes q; ``name`` may have the axes in any order."""
    return translation.emit("div", name, grid.scale)


def rescaled(
    translation: TfliteTranslation, x: str, factors: Sequence[Multiplier], grid: Grid, clip: tuple[int, int]
) -> str:
    """Integers times factors, rounded twice as the kernels do, plus the zero point and clipped: numbers of ``grid``."""
    # Where clipping leaves no code below the zero point, the correction for negative numbers changes nothing.
    return placed(translation, rounded_twice(translation, x, factors, clip[0] < grid.zero), grid, clip)


def rounded_twice(translation: TfliteTranslation, x: str, factors: Sequence[Multiplier], below_0: bool = True) -> str:
    """Numbers whose rounding half up equals integers times factors, rounded twice as the kernels do.

    There is one factor, or one for each index of axis 1. With M the integer of a factor and n its shift to the right,
    the first rounding gives y = floor((M x + 2^30) / 2^31), and the second, of ties away from zero, floor((y + 2^(n-1)
    - [y < 0]) / 2^n) for n > 0. As floor(floor(a) / b) = floor(a / b) for integers b > 0, both together are one
    rounding half up of (M x + 2^30 - 2^31 [y < 0]) / 2^(31 + n), which this function emits. Without ``below_0`` the
    term [y < 0] is omitted, and the result is right only from 0 on.
    """
    scale = [Fraction(item.integer << max(item.shift, 0), 2 ** (31 + item.right)) for item in factors]
    tie = [Fraction(1 if item.right else 0, 2**item.right) for item in factors]
    y = translation.emit("mul", x, _numbers(translation, scale))
    if any(tie):
        offset = [item / 2 for item in tie]
        if below_0:
            # [y < 0] = 1 - [x >= -t] for the greatest t with M t <= 2^30.
            least = [Fraction(-(2**30 // item.integer) if item.integer else -INT32_MAX) for item in factors]
            at_least = translation.emit("ge", x, _numbers(translation, least))
            bit = translation.emit("select", at_least, Fraction(1), Fraction(0))
            y = translation.emit("add", y, translation.emit("mul", bit, _numbers(translation, tie)))
            offset = [item / 2 - item for item in tie]
        y = translation.emit("add", y, _numbers(translation, offset))
    return y


def rescaled_once(
    translation: TfliteTranslation, x: str, factors: Sequence[Multiplier], grid: Grid, clip: tuple[int, int]
) -> str:
    """Sums of 64 bits times factors of 15 bits, rounded half up once: numbers of ``grid``, whose
    zero point must be 0.
    """
    y = translation.emit("mul", x, _numbers(translation, [item.narrow for item in factors]))
    return placed(translation, y, grid, clip)


def placed(translation: TfliteTranslation, steps: str, grid: Grid, clip: tuple[int, int]) -> str:
    """The numbers of ``grid`` at ``steps`` scales from its zero point, clipped to a range of codes."""
    numbers = translation.emit("mul", steps, grid.scale)
    low, high = ((end - grid.zero) * grid.scale for end in clip)
    return translation.emit("clamp", numbers, low, high)


def _numbers(translation: TfliteTranslation, items: Sequence[Fraction]) -> Argument:
    """A literal, or a constant with one number for each index of axis 1; at most 53 bits each, which float64 holds."""
    if len(set(items)) == 1:
        return items[0]
    return translation.constant(np.array([float(item) for item in items], np.float64), (1, len(items)))


def table(
    translation: TfliteTranslation,
    name: str,
    span: tuple[int, int],
    function: Callable[[int], int],
    quantizer: LinearQuantizer,
) -> str:
    """A table over the codes of a quantised tensor: code c gives the code ``function(c)`` of ``quantizer``."""
    codes = tuple(function(code) for code in range(span[0], span[1] + 1))
    return translation.emit("lookup", name, codes=codes, first=span[0], quantizer=quantizer)


_CLIPS: dict[int, tuple[int | None, int | None]] = {0: (None, None), 1: (0, None), 2: (-1, 1), 3: (0, 6)}
"""The activations that can be fused: none, RELU, RELU_N1_TO_1 and RELU6, by their numbers in the schema."""
