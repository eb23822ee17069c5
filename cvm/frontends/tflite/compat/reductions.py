"""MEAN and SOFTMAX as TFLite's reference kernels compute them."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from cvm.frontends.tflite.call import Made, TfliteCall
from cvm.frontends.tflite.compat.codes import WHOLE, grid_of, integer, placed, rescaled, stepped, table
from cvm.frontends.tflite.compat.fixed_point import Multiplier, exp_on_negative_values, high_multiply, rounding_shift
from cvm.frontends.tflite.compat.registry import rule
from cvm.frontends.tflite.floats import binary64
from cvm.frontends.tflite.translation import TfliteTranslation

__all__: list[str] = []

_INTEGER_BITS = 5
"""Integer bits of the argument of the exponential function."""
_ACCUMULATOR_BITS = 12
"""Integer bits of the sum of exponentials, which has 31 - 12 fraction bits."""
_MOST_ITEMS = 2**12 - 1
"""The most elements of a row: the sum has 31 bits, and the kernel fails where over 511 elements are
near the maximum.
"""


@rule("MEAN")
def mean(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The sum of integers, scaled by one multiplier that includes the number of elements, and rounded twice."""
    source = call.operand()
    given, result = (grid_of(call, item, "int8", "uint8") for item in (source.tensor, call.result))
    axes = call.axes(call.integers(1, "the axes"), source.rank)
    if not axes:
        raise call.refuse("it has no axes, which is not computed as the reference kernel does")
    count = math.prod(source.shape[axis] for axis in axes)
    steps = stepped(translation, translation.name(source), given)
    total = translation.emit("sum_reduce", steps, axes=axes)
    factor = Multiplier.of(binary64(given.scale / result.scale)).over(count)
    name = rescaled(translation, total, [factor], result, (result.lo, result.hi))
    if not call.flag("KeepDims"):
        name = translation.reshape(name, [extent for axis, extent in enumerate(source.shape) if axis not in axes])
    return Made(name)


@rule("SOFTMAX")
def softmax(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Exponentials of the distances from the maximum, times the reciprocal of their sum, in fixed point."""
    source = call.operand()
    given, result = (grid_of(call, item, "int8", "uint8") for item in (source.tensor, call.result))
    axis = max(source.rank, 1) - 1
    items = source.shape[axis] if source.rank else 1
    if source.data_type != call.result.data_type or items > _MOST_ITEMS:
        message = f"from {source.data_type} to {call.result.data_type}, with rows of {items} items"
        raise call.refuse(f"{message}, it is not computed as the reference kernel does", "compile it without --compat")
    exponential = _exponentials(call, given.scale, call.number("Beta", 1.0))
    steps = stepped(translation, translation.name(source), given)
    greatest = translation.emit("max_reduce", steps, axes=(axis,))
    span = given.lo - given.hi
    distance = translation.emit("sub", steps, greatest, quantizer=integer(span, 0))
    terms = table(translation, distance, (span, 0), exponential, WHOLE)
    narrow = table(translation, distance, (span, 0), lambda d: rounding_shift(exponential(d), _ACCUMULATOR_BITS), WHOLE)
    total = translation.emit("sum_reduce", narrow, axes=(axis,), quantizer=integer(2**19, max(items, 2) * 2**19))
    scale, weight, most = _reciprocal(translation, total, items)
    product = _high(translation, terms, scale)
    # Each row has its own shift; a factor that is a power of two gives all rows the same one. No product is negative.
    wide = translation.emit("mul", translation.emit("mul", product, weight), Fraction(1, 2**most))
    name = translation.emit("add", wide, Fraction(given.lo - result.zero))
    return Made(placed(translation, name, result, (result.lo, result.hi)))


def _exponentials(call: TfliteCall, scale: Fraction, beta: Fraction) -> Callable[[int], int]:
    """e^(beta * scale * d) as a multiple of 2^-31, for a distance d <= 0 of codes; 0 where d is too far from 0."""
    real = min(binary64(binary64(beta * scale) * 2 ** (31 - _INTEGER_BITS)), Fraction(2**31 - 1))
    if real <= 1:
        raise call.refuse("its input has a scale that is too narrow for the reference kernel")
    factor = Multiplier.of(real)
    radius = (2**_INTEGER_BITS - 1) * 2 ** (31 - _INTEGER_BITS) // 2**factor.shift

    def exponential(distance: int) -> int:
        if distance < -radius:
            return 0
        return exp_on_negative_values(high_multiply(distance << factor.shift, factor.integer), _INTEGER_BITS)

    return exponential


def _high(translation: TfliteTranslation, a: str, b: str) -> str:
    """The product of integers over 2^31, rounded half up."""
    return translation.emit("mul", translation.emit("mul", a, b), Fraction(1, 2**31), quantizer=WHOLE)


def _reciprocal(translation: TfliteTranslation, total: str, items: int) -> tuple[str, str, int]:
    """The reciprocal of a sum of ``items`` terms, and the shift that belongs to it.

    With a sum S of b bits, x = S * 2^(32 - b) - 2^31, as a multiple of 2^-31, is in [0, 1), and three steps of Newton's
    method give 1 / (1 + x). Returned are this number, a power of two w for each sum, and the greatest shift m: the
    caller divides its product by 2^m / w.
    """
    spare = items.bit_length()
    bits = Fraction(12)
    count: str | Fraction = bits
    for power in range(20, 20 + spare):
        reached = translation.emit("ge", total, Fraction(2**power))
        less = translation.emit("select", reached, Fraction(-1), Fraction(0))
        count = translation.emit("add", less, count)
    headroom = translation.emit("copy", count, quantizer=integer(12 - spare, 12))
    power_of_two = table(translation, headroom, (12 - spare, 12), lambda h: 2**h, WHOLE)
    shifted = translation.emit("mul", total, power_of_two)
    # (x + 1) / 2, which the kernel computes as half of a sum that is even.
    half = translation.emit("mul", shifted, Fraction(1, 2), quantizer=integer(2**30, 2**31 - 1))
    x = translation.emit("mul", half, Fraction(-1010580540, 2**31), quantizer=WHOLE)
    x = translation.emit("add", x, Fraction(1515870810), quantizer=WHOLE)
    for _ in range(3):
        error = translation.emit("sub", Fraction(2**29), _high(translation, half, x), quantizer=WHOLE)
        step = translation.emit("mul", _high(translation, x, error), Fraction(4), quantizer=WHOLE)
        x = translation.emit("add", x, step, quantizer=WHOLE)
    scale = translation.emit("mul", x, Fraction(2), quantizer=WHOLE)
    most = 35 - (12 - spare)
    weight = table(translation, headroom, (12 - spare, 12), lambda h: 2 ** (h - (12 - spare)), WHOLE)
    return scale, weight, most
