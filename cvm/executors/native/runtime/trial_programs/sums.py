"""Programs of the trial whose kernels sum products, or make codes of such sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cvm.executors.native.runtime.trial_programs.building import extreme_weights
from cvm.program.build import ProgramBuilder
from cvm.program.model import Output
from cvm.program.program import Program

__all__ = ["convolution_of", "ends_of_results", "few_channels", "of_sums", "requantization", "residual"]

Shape = tuple[int, ...]
Integers = npt.NDArray[np.int64]


class OfSums(NamedTuple):
    """A class of kernels that sum products: the program for each epilogue, and the kinds of products that it tries.

    A machine whose products of bytes saturate multiplies bytes where few pairs of weights are large, or in groups, else
    words; it tries ``saturating``. A class that would try the code of another class once more has no kinds.
    """

    name: str
    kinds: tuple[str, ...]
    saturating: tuple[str, ...]
    made: Callable[[str], Program]


def of_sums() -> Iterator[OfSums]:
    """The classes of kernels that sum products."""
    bytes_ = (0, 255)
    small = (1, 5, 5, 8), (37, 5, 3, 3)
    yield OfSums("8-bit convolution", ("bytes",), ("words",), _convolution(small, bytes_, 128, padding=(1, 1)))
    made = _convolution(small, bytes_, 64, padding=(1, 1))
    yield OfSums("8-bit convolution of small weights", (), ("bytes",), made)
    wide = (1, 36, 7, 12), (147, 36, 3, 3)
    made = _convolution(wide, bytes_, 128, padding=(1, 1))
    yield OfSums("convolution of many channels", ("bytes",), ("words",), made)
    signed = (2, 20, 8, 8), (20, 20, 1, 1)
    made = _convolution(signed, (-128, 127), 128)
    yield OfSums("8-bit convolution of signed codes", ("bytes",), ("words",), made)
    made = _convolution(((1, 36, 5, 8), (48, 36, 3, 3)), bytes_, 128, seldom=9, padding=(1, 1))
    yield OfSums("8-bit convolution of few large weights", (), ("bytes", "listed"), made)
    grouped = (1, 12, 15, 15), (24, 6, 3, 3)
    made = _convolution(grouped, (-128, 127), 127, groups=2, stride=(2, 2))
    yield OfSums("grouped convolution", ("bytes",), ("listed",), made)
    squares = (1, 32, 12, 15), (80, 32, 3, 3)  # enough for every machine that computes in squares at all
    made = _convolution(squares, bytes_, 128, padding=(1, 1))
    yield OfSums("convolution in squares", ("squares",), ("squares",), made)
    large = (1, 3, 6, 7), (18, 3, 3, 3)
    made = _convolution(large, bytes_, 30_000, dilation=(2, 2))
    yield OfSums("convolution of wide weights", ("digits",), (), made)
    made = _convolution(grouped, bytes_, 30_000, groups=2)
    yield OfSums("grouped convolution of wide weights", ("digits",), ("digits",), made)
    offset = (2, 70, 7, 7), (37, 70, 3, 3)
    made = _convolution(offset, (-128, 127), 55, least=-200, padding=(1, 1))
    yield OfSums("convolution of weights with an offset", ("window sums",), (), made)
    words = (1, 5, 6, 6), (17, 5, 3, 3)
    made = _convolution(words, (-3000, 3000), 3000, padding=(1, 1))
    yield OfSums("16-bit convolution", ("words",), ("words",), made)
    integers = (1, 3, 6, 6), (9, 3, 3, 3)
    made = _convolution(integers, (-(2**20), 2**20), 60, padding=(1, 1))
    yield OfSums("32-bit convolution", ("integers",), ("integers",), made)
    yield from _depthwise()
    made = partial(_product, 6, 152, 37, least=0, largest=255)
    yield OfSums("matrix product of weights with an offset", ("window sums",), (), made)
    yield OfSums("matrix product", ("bytes",), (), partial(_product, 3, 50, 37))
    yield OfSums("matrix product of one row", ("row",), ("words",), partial(_product, 1, 200, 150))
    made = partial(_product, 1, 200, 150, least=-64, largest=63)
    yield OfSums("matrix product of one row by small weights", (), ("row",), made)
    made = partial(_product, 1, 200, 150, seldom=9)
    yield OfSums("matrix product of one row by few large weights", (), ("listed row",), made)


def _depthwise() -> Iterator[OfSums]:
    """The classes of depthwise convolutions. A machine whose products of bytes saturate multiplies pairs of rows in 16
    bits unless all weights are small.
    """
    for channels, size in ((134, 3), (16, 5), (33, 1)):
        shapes = (1, channels, 11, 11), (channels, 1, size, size)
        pad = (size // 2, size // 2)
        name, kinds = f"depthwise convolution, {size} by {size}", (f"depthwise {size}",)
        made = _convolution(shapes, (0, 255), 128, padding=pad, groups=channels)
        yield OfSums(name, kinds, (f"depthwise pairs {size}",), made)
        made = _convolution(shapes, (0, 255), 64, padding=pad, groups=channels)
        yield OfSums(f"{name}, of small weights", (), kinds, made)
    nine_bits = (1, 70, 9, 9), (70, 1, 3, 3)
    made = _convolution(nine_bits, (0, 255), 256, least=-20, padding=(1, 1), groups=70)
    yield OfSums("depthwise convolution of weights with an offset", ("depthwise digits",), ("depthwise pairs 3",), made)
    made = _convolution(nine_bits, (0, 255), 128, least=-255, row=1, padding=(1, 1), groups=70)
    yield OfSums("depthwise convolution with a row of weights beyond a byte", ("depthwise digits",), (), made)


def _convolution(*arguments: Any, **attributes: Any) -> Callable[[str], Program]:
    """A convolution (`convolution_of`) that has no epilogue yet."""
    return lambda epilogue: convolution_of(epilogue, *arguments, **attributes)


def convolution_of(
    epilogue: str,
    shapes: tuple[Shape, Shape],
    interval: tuple[int, int],
    magnitude: int,
    least: int | None = None,
    row: int | None = None,
    seldom: int | None = None,
    **attributes: Any,
) -> Program:
    """A convolution with one of `EPILOGUES`: its sums, or their codes after a requantize per channel.

    Its weights lie in [least, magnitude - 1]. Without ``least``, they begin at -magnitude. Those of all rows but
    ``row``, if it is given, fit in a byte. For ``seldom``, see `_seldom_large`.
    """
    builder = ProgramBuilder()
    shape, kernel = shapes
    x = builder.input("x", shape, *interval)
    weights = extreme_weights(*kernel, least=-magnitude if least is None else least, largest=magnitude - 1)
    if row is not None:
        weights = np.where(np.arange(kernel[2])[:, None] == row, weights, weights.clip(-128, 127))
    if seldom is not None:
        weights = _seldom_large(weights, np.arange(kernel[1])[:, None, None], seldom)
    bias = builder.constant(np.arange(kernel[0]) * 37 - 200)
    inputs = [x, builder.constant(weights), bias]
    return _codes(builder, lambda: builder.add("conv2d", inputs, attributes)[0], (1, kernel[0], 1, 1), epilogue)


def few_channels() -> Program:
    """The codes of depthwise convolutions whose vectors hold the channels of several pixels.

    The channels of these pixels lie side by side, or in every second place, or apart.
    """
    builder = ProgramBuilder()
    outputs = []
    for channels, size, stride in ((8, 17, 1), (88, 17, 2), (32, 9, 2), (16, 9, 2)):
        x = builder.input(f"x{channels}", (1, channels, size, size), 0, 255)
        inputs = [x, builder.constant(extreme_weights(channels, 1, 3, 3, least=-128, largest=127))]
        attributes: dict[str, Any] = {"padding": (1, 1), "groups": channels, "stride": (stride, stride)}
        (sums,) = builder.add("conv2d", inputs, attributes)
        m = builder.parameter((2**26 + 7919 * np.arange(channels)).reshape(1, channels, 1, 1))
        numbers = [builder.parameter(np.full(1, number)) for number in (-12345, 34)]
        (codes,) = builder.add("requantize", [sums, m, *numbers], {"lo": -100, "hi": 120, "rounding": "half_up"})
        if stride == 2:  # the store clips what a clip behind the codes clips
            (codes,) = builder.add("relu", [codes])
        outputs.append(Output(f"y{channels}", codes))
    return builder.build(outputs)


def residual(last: tuple[int, ...]) -> Program:
    """The codes of a convolution and those of a pool, which a requantize adds.

    ``last`` holds its parameters: two multipliers, offset and shift.
    """
    builder = ProgramBuilder()
    x, y = builder.input("x", (1, 40, 5, 14), -128, 127), builder.input("y", (1, 64, 5, 14), -128, 127)
    (sums,) = builder.add("conv2d", [x, builder.constant(extreme_weights(64, 40, 1, 1, least=-128, largest=127))])
    (other,) = builder.add("max_pool2d", [y], {"pool_size": (3, 3), "strides": (1, 1), "padding": (1, 1)})
    shift = 40 + builder.range(sums).magnitude().bit_length() - 20
    parameters = [2**29 + 7919 * np.arange(64).reshape(1, 64, 1, 1), np.full(1, -12345), np.full(1, shift)]
    attributes = {"lo": -128, "hi": 127, "rounding": "half_up"}
    (codes,) = builder.add("requantize", [sums, *map(builder.parameter, parameters)], attributes)
    numbers = [np.full(1, n) for n in last]
    (total,) = builder.add("requantize", [codes, other, *map(builder.parameter, numbers)], attributes)
    return builder.build([Output("total", total)])


def _product(
    rows: int, depth: int, columns: int, epilogue: str, least: int = -128, largest: int = 127, seldom: int | None = None
) -> Program:
    builder = ProgramBuilder()
    x = builder.input("x", (rows, depth), -128, 127)
    weights = extreme_weights(columns, depth, least=least, largest=largest)
    if seldom is not None:
        weights = _seldom_large(weights, np.arange(depth), seldom)
    factors = [x, builder.constant(weights)]
    return _codes(builder, lambda: builder.add("dense", factors)[0], (1, columns), epilogue)


def _seldom_large(weights: Integers, inputs: Integers, seldom: int) -> Integers:
    """Weights of which one of so many groups of four inputs keeps its own; those of the others are divided by four, so
    that steps fit together. ``inputs`` holds the number of each weight's input.
    """
    return np.where(inputs // 4 % seldom == 0, weights, weights // 4)


def _codes(builder: ProgramBuilder, sums: Callable[[], str], channels: tuple[int, ...], epilogue: str) -> Program:
    """Sums, or their 8-bit codes in the arithmetic that most networks need, or in the widest one.

    ``sums`` is called for each result: sums with two readers would not be computed inside the kernel of their codes.
    """
    first = sums()
    if epilogue == "sums":
        return builder.build([Output("sums", first)])
    count = int(np.prod(channels))
    bits = builder.range(first).magnitude().bit_length()
    more = 0 if epilogue == "codes" else 36 - bits  # multipliers of more than 31 bits
    m = builder.parameter((2**26 + 7919 * np.arange(count) ** 2 % 2**26).reshape(channels) << more)
    c = builder.parameter(np.arange(count).reshape(channels) * 7919)
    # A shift of more than 52 bits, for which there is no arithmetic but the widest.
    s = builder.parameter(np.full(channels, 16 + bits if epilogue == "codes" else 53))
    outputs: list[Output] = []
    for rounding in ("half_even", "toward_zero") if epilogue == "other roundings" else ("half_up",):
        values = sums() if outputs else first
        attributes = {"lo": -100, "hi": 120, "rounding": rounding}
        (codes,) = builder.add("requantize", [values, m, c, s], attributes)
        outputs.append(Output(rounding, codes))
    return builder.build(outputs)


def requantization(rounding: str) -> Program:
    """A requantize of two terms, with small and large shifts, and with ties."""
    builder = ProgramBuilder()
    x = builder.input("x", (1, 19, 5, 5), -(2**20), 2**20)
    y = builder.input("y", (1, 1, 5, 5), -(2**20), 2**20)
    outputs: list[Output] = []
    for shift in (0, 1, 12, 31, 40):
        m = builder.parameter(np.full((1, 1, 1, 1), max(1, 2**shift // 3)))
        n = builder.parameter(np.arange(-9, 10).reshape(1, 19, 1, 1))
        c, s = builder.parameter(np.full((1,), 5)), builder.parameter(np.full((1,), shift))
        attributes = {"lo": -(2**17), "hi": 2**17 + 5, "rounding": rounding}
        (result,) = builder.add("requantize", [x, y, m, n, c, s], attributes)
        outputs.append(Output(f"y{shift}", result))
    return builder.build(outputs)


def ends_of_results(rounding: str) -> Program:
    """A requantize whose sums, at the greatest and the least input, are the first sum of a result or one less."""
    builder = ProgramBuilder()
    x = builder.input("x", (1, 20, 2, 3), -(2**15), 2**15 - 1)
    channel = np.arange(20).reshape(1, 20, 1, 1)
    at = np.where(channel % 2 == 0, -(2**15), 2**15 - 1)
    outputs: list[Output] = []
    for multiplier, shift in ((4093, 14), (2**30 + 7, 37), (2**34 + 7, 40)):
        sums = multiplier * at
        begin = 0 if rounding == "toward_zero" else 2 ** (shift - 1)
        offset = (sums >> shift << shift) - sums - begin - channel // 2 % 2
        parameters = [np.full(1, multiplier), offset, np.full(1, shift)]
        attributes = {"lo": -(2**20), "hi": 2**20, "rounding": rounding}
        (result,) = builder.add("requantize", [x, *map(builder.parameter, parameters)], attributes)
        outputs.append(Output(f"y{shift}", result))
    return builder.build(outputs)
