"""Element-wise operators as TFLite's reference kernels compute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from cvm.frontends.tflite.call import Made, Operand, TfliteCall
from cvm.frontends.tflite.compat.codes import WHOLE, Grid, clip_of, grid_of, placed, rescaled, stepped, table
from cvm.frontends.tflite.compat.fixed_point import Multiplier, high_multiply, rounding_shift
from cvm.frontends.tflite.compat.registry import rule
from cvm.frontends.tflite.floats import binary32, binary64, exp32, round_away, tanh32
from cvm.frontends.tflite.rules.elementwise import aligned
from cvm.frontends.tflite.tensors import FLOATS
from cvm.frontends.tflite.translation import TfliteTranslation

__all__: list[str] = []

_LEFT = {"int8": 20, "uint8": 20, "int16": 15}
"""The bits by which ADD and SUB shift their operands to the left before they scale them."""
_NEAR_1 = Fraction(10007, 10000)
"""An upper bound of 2^0.001."""


def _grids(call: TfliteCall, count: int, *data_types: str) -> tuple[list[Grid], Grid]:
    """The grids of the operands and of the result, all of one data type: int8, uint8 or one of ``data_types``."""
    tensors = [*(call.operand(i).tensor for i in range(count)), call.result]
    *operands, result = (grid_of(call, tensor, "int8", "uint8", *data_types) for tensor in tensors)
    if len({tensor.data_type for tensor in tensors}) > 1:
        raise call.refuse("its operands and its result have different data types", "compile it without --compat")
    return operands, result


@rule("ADD", "SUB")
def add(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Scale each operand times 2^20 to half of the wider scale, round twice; then scale and round the sum.

    Codes of 16 bits are shifted by 15 bits instead. Where all scales are powers of two, an older kernel adds them.
    """
    x, y = call.operand(0), call.operand(1)
    (first, second), result = _grids(call, 2, "int16")
    left = _LEFT[call.result.data_type]
    names, planar = aligned(translation, call, x, y)
    if call.result.data_type == "int16" and _are_powers(call, (first, second, result)):
        return Made(_shifted_sum(translation, call, names, (first, second), result), planar)
    twice = 2 * max(first.scale, second.scale)
    sides = []
    for operand, name, grid in ((x, names[0], first), (y, names[1], second)):
        factor = Multiplier.of(binary64(grid.scale / twice))
        sides.append(_shifted(translation, operand, name, grid, factor, left))
    total = translation.emit("add" if call.operator.op == "ADD" else "sub", *sides)
    factor = Multiplier.of(binary64(twice / binary64(2**left * result.scale)))
    if factor.shift > 0:
        raise call.refuse("its result has a scale that is too narrow for the reference kernel")
    return Made(rescaled(translation, total, [factor], result, clip_of(call, result)), planar)


def _are_powers(call: TfliteCall, grids: Sequence[Grid]) -> bool:
    """Whether the kernel for 16 bits is the one for zero points of 0 and scales that are powers of two.

    TFLite takes a scale for a power of two if its binary logarithm, a float, is within 0.001 of an integer. Raises
    `Unsupported` for a scale that is this near to a power of two but is none.
    """
    if not call.flag("PotScaleInt16", True) or any(grid.zero for grid in grids):
        return False
    ratios = [grid.scale / Fraction(2) ** _exponent(grid.scale) for grid in grids]
    near = [not _NEAR_1 < ratio < 2 / _NEAR_1 for ratio in ratios]
    if all(near) and any(ratio != 1 for ratio in ratios):
        raise call.refuse("a scale is nearly a power of two", "compile it without --compat")
    return all(near)


def _exponent(scale: Fraction) -> int:
    """The greatest n with 2^n <= scale."""
    n = scale.numerator.bit_length() - scale.denominator.bit_length()
    return n if Fraction(2) ** n <= scale else n - 1


def _shifted_sum(
    translation: TfliteTranslation, call: TfliteCall, names: Sequence[str], grids: Sequence[Grid], result: Grid
) -> str:
    """The sum of codes, one of which has the scale of the result; the other is shifted to that scale and rounded."""
    shifts = [_exponent(result.scale) - _exponent(grid.scale) for grid in grids]
    if call.operand(0).shape != call.operand(1).shape or min(shifts) < 0 or all(shifts):
        raise call.refuse("the reference kernel does not take its shapes or its scales", "compile it without --compat")
    sides = [
        table(translation, name, (grid.lo, grid.hi), partial(rounding_shift, exponent=shift), WHOLE)
        if shift
        else stepped(translation, name, grid)
        for name, grid, shift in zip(names, grids, shifts, strict=True)
    ]
    total = translation.emit("add" if call.operator.op == "ADD" else "sub", *sides)
    return placed(translation, total, result, clip_of(call, result))


def _shifted(
    translation: TfliteTranslation, operand: Operand, name: str, grid: Grid, factor: Multiplier, left: int
) -> str:
    def scaled(code: int) -> int:
        return factor.times((code - grid.zero) << left)

    if operand.values is None:
        return table(translation, name, (grid.lo, grid.hi), scaled, WHOLE)
    shape = translation.shape(name)
    items = np.array([scaled(int(code)) for code in operand.values.ravel()], np.int64).reshape(operand.shape or (1,))
    if len(shape) != items.ndim:
        items = items.reshape((1,) * (len(shape) - items.ndim) + items.shape)
    if items.shape != shape:
        items = np.moveaxis(items, -1, 1)
    return translation.constant(np.ascontiguousarray(items), items.shape)


@rule("MUL")
def mul(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The product of integers, scaled by one multiplier that is computed in 32-bit floats."""
    x, y = call.operand(0), call.operand(1)
    (first, second), result = _grids(call, 2, "int16")
    names, planar = aligned(translation, call, x, y)
    steps = [stepped(translation, name, grid) for name, grid in zip(names, (first, second), strict=True)]
    product = translation.emit("mul", *steps)
    factor = Multiplier.of(binary32(binary32(first.scale * second.scale) / result.scale))
    return Made(rescaled(translation, product, [factor], result, clip_of(call, result)), planar)


@rule("PRELU")
def prelu(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """One multiplier where x is not negative; elsewhere the product with the slope has another multiplier."""
    x, slope = call.operand(0), call.operand(1)
    (given, alpha), result = _grids(call, 2)
    names, planar = aligned(translation, call, x, slope)
    step, by = (stepped(translation, name, grid) for name, grid in zip(names, (given, alpha), strict=True))
    positive = Multiplier.of(binary32(given.scale / result.scale))
    negative = Multiplier.of(binary32(binary32(given.scale * alpha.scale) / result.scale))
    whole = (result.lo, result.hi)
    sides = [
        translation.emit("copy", rescaled(translation, item, [factor], result, whole), quantizer=result.quantizer)
        for item, factor in ((step, positive), (translation.emit("mul", step, by), negative))
    ]
    return Made(translation.emit("select", translation.emit("ge", step, Fraction(0)), *sides), planar)


@rule("QUANTIZE")
def quantize(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Codes converted to another grid by one multiplier and rounded twice; floats are
    rounded once, on input.
    """
    source = call.operand()
    (name,), planar = aligned(translation, call, source)
    if source.data_type in FLOATS:
        return Made(translation.emit("copy", name), planar)
    types = ("int8", "uint8", "int16", "int32")
    given, result = grid_of(call, source.tensor, *types), grid_of(call, call.result, *types)
    factor = Multiplier.of(binary64(given.scale / result.scale))
    return Made(
        rescaled(translation, stepped(translation, name, given), [factor], result, (result.lo, result.hi)), planar
    )


# Tables


def _by_table(
    translation: TfliteTranslation, call: TfliteCall, function: Callable[[Grid, Grid], Callable[[int], int]]
) -> Made:
    """A table over the codes; ``function`` gives the unclipped result as a function of code - zero point."""
    (given,), result = _grids(call, 1)
    (name,), planar = aligned(translation, call, call.operand())
    inner = function(given, result)

    def clipped(code: int) -> int:
        return min(max(inner(code - given.zero) + result.zero, result.lo), result.hi)

    return Made(table(translation, name, (given.lo, given.hi), clipped, result.quantizer), planar)


@rule("LOGISTIC", "TANH")
def function_of_floats(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """A table of 32-bit floats: the number of a code, the function of it, divided by the scale."""
    logistic = call.operator.op == "LOGISTIC"

    def function(given: Grid, result: Grid) -> Callable[[int], int]:
        inverse = binary32(1 / result.scale)

        def code(step: int) -> int:
            number = binary32(given.scale * step)
            value = _logistic(number) if logistic else tanh32(number)
            return round_away(binary32(value * inverse))

        return code

    return _by_table(translation, call, function)


def _logistic(number: Fraction) -> Fraction:
    """1 / (1 + e^-x), each step rounded to 32 bits. Below -88, e^-x exceeds all floats; above 80, adding it to 1 gives
    1.
    """
    if number < -80:
        return Fraction(0)
    return binary32(1 / binary32(1 + exp32(-min(number, Fraction(80)))))


_CLIPS: dict[str, tuple[int, int | None]] = {"RELU": (0, None), "RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1)}


@rule(*_CLIPS)
def relu(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Codes converted to another grid by one multiplier, clipped to the codes of the bounds."""
    low, high = _CLIPS[call.operator.op]

    def function(given: Grid, result: Grid) -> Callable[[int], int]:
        factor = Multiplier.of(binary32(given.scale / result.scale))
        ends = [None if end is None else round_away(binary32(end / result.scale)) for end in (low, high)]
        lo, hi = (0 if ends[0] is None else ends[0]), (2**31 if ends[1] is None else ends[1])
        return lambda step: min(max(factor.times(step), lo), hi)

    return _by_table(translation, call, function)


@rule("LEAKY_RELU")
def leaky_relu(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """One multiplier where x is not negative, another where it is."""
    alpha = call.number("Alpha")

    def function(given: Grid, result: Grid) -> Callable[[int], int]:
        if alpha < 0:
            raise call.refuse("a negative alpha is not computed as the reference kernel does")
        positive = Multiplier.of(binary32(given.scale / result.scale))
        negative = Multiplier.of(binary32(binary32(given.scale * alpha) / result.scale))
        return lambda step: (positive if step >= 0 else negative).times(step)

    return _by_table(translation, call, function)


@rule("HARD_SWISH")
def hard_swish(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """X * clip(x + 3, 0, 6) / 6 in fixed point of 16 bits."""

    def function(given: Grid, result: Grid) -> Callable[[int], int]:
        fine = binary32(given.scale / 128)
        outer = Multiplier.of(binary32(fine / result.scale))
        inner = Multiplier.of(binary32(fine / Fraction(3, 32768)))
        if outer.shift > 0:
            raise call.refuse("its result has a scale that is too narrow for the reference kernel")
        return lambda step: _swish(step * 128, outer, inner)

    return _by_table(translation, call, function)


def _swish(fine: int, outer: Multiplier, inner: Multiplier) -> int:
    value = high_multiply(fine, _narrow(outer.integer), 16)
    gate = fine
    if inner.shift > 0:
        gate = _saturated(gate << (inner.shift - 1))
    gate = high_multiply(gate, _narrow(inner.integer), 16)
    if inner.shift > 0:
        gate = _saturated(gate << 1)
    if inner.shift < 0:
        gate = rounding_shift(gate, -inner.shift)
    gate = (gate + 2**15) >> 1
    product = gate * value
    truncated = abs(product) // 2**15 * (1 if product >= 0 else -1)
    return rounding_shift(truncated, -outer.shift)


def _narrow(integer: int) -> int:
    """A multiplier of 31 bits rounded to 15 bits."""
    return 2**15 - 1 if integer >= 2**31 - 1 - 2**15 else (integer + 2**15) >> 16


def _saturated(x: int) -> int:
    return min(max(x, -(2**15)), 2**15 - 1)
