"""The trial of a machine: every class of kernels is compared with the NumPy executor on extreme values.

It finds a processor, a hypervisor or a code generator that computes wrong results, before a user's network runs. The
result of the trial is stored with compiled code, so each machine is tried once per version of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.executors.base import Int32Array, returned
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.runtime import cache
from cvm.executors.native.runtime.distrust import Distrusted
from cvm.executors.native.runtime.networks import network_of
from cvm.limits import INT32_MAX
from cvm.program.build import ProgramBuilder
from cvm.program.model import Output
from cvm.program.verifier import VerifiedProgram, verify

__all__ = ["failure", "programs"]

Array = npt.NDArray[np.int64]
PASSED = b"passed"


def failure(machine: Machine) -> str | None:
    """The first class of kernels for which a machine gives wrong results, or None. Every machine is tried once."""
    name = cache.key(machine, ("trial",))
    if cache.read(name) == PASSED:
        return None
    for what, verified in programs():
        try:
            right = _agrees(machine, verified)
        except RuntimeError as error:  # the code generator cannot compile the code
            return f"{what}: {str(error).splitlines()[0]}"
        if not right:
            return what
    cache.write(name, PASSED)
    return None


def _agrees(machine: Machine, verified: VerifiedProgram) -> bool:
    from cvm.executors.numpy import NumpyExecutor

    numpy = NumpyExecutor(verified)
    try:
        network = network_of(verified, machine, 1, returned(verified.program, frozenset()))
    except Distrusted:
        return False
    for feed in _feeds(verified):
        found = {name: np.empty(shape, np.int32) for name, shape in network.left}
        done = network.run([*(feed[name] for name, _ in network.given), *found.values()])
        expected = numpy.run(feed, {}).values
        if not done or any(not np.array_equal(found[name], tensor) for name, tensor in expected.items()):
            return False
    return True


def _feeds(verified: VerifiedProgram) -> Iterator[dict[str, Int32Array]]:
    """Inputs of the greatest numbers, of the least, of both alternating, and of a pattern."""
    values = [source.value for source in verified.program.inputs]

    def filled(rule: Any) -> dict[str, Int32Array]:
        return {
            value.name: np.asarray(rule(np.arange(int(np.prod(value.shape))), value.lo, value.hi))
            .reshape(value.shape)
            .astype(np.int32)
            for value in values
        }

    yield filled(lambda k, lo, hi: np.full(k.shape, hi))
    yield filled(lambda k, lo, hi: np.full(k.shape, lo))
    yield filled(lambda k, lo, hi: np.where(k % 2 == 0, lo, hi))
    yield filled(lambda k, lo, hi: lo + (k * 7919 + k * k % 1009) % (hi - lo + 1))


def _weights(*shape: int, least: int, largest: int) -> Array:
    """Weights that contain runs of either extreme, and a pattern."""
    k = np.arange(int(np.prod(shape)))
    pattern = least + (k * 6007 + k * k % 911) % (largest - least + 1)
    return np.where(k % 7 < 3, largest, np.where(k % 7 < 5, least, pattern)).reshape(shape)


def programs() -> Iterator[tuple[str, VerifiedProgram]]:
    """Small programs, each with the name of the class of kernels that it tries."""
    bytes_ = (0, 255)
    yield "8-bit convolution", _convolution((1, 7, 9, 9), (37, 7, 3, 3), *bytes_, 128, padding=(1, 1))
    yield "convolution of many channels", _convolution((1, 72, 9, 9), (147, 72, 3, 3), *bytes_, 128, padding=(1, 1))
    yield "residual sum", _residual((1_500_000_001, 1_234_567_891, 99_999, 31))
    yield "residual sum of small numbers", _residual((5, -3, 1, 2))
    yield "8-bit convolution of signed codes", _convolution((2, 20, 8, 8), (20, 20, 1, 1), -128, 127, 128)
    yield "grouped convolution", _convolution((1, 12, 9, 9), (24, 6, 3, 3), -128, 127, 127, groups=2, stride=(2, 2))
    yield "convolution of wide weights", _convolution((1, 5, 7, 7), (18, 5, 3, 3), *bytes_, 30_000, dilation=(2, 2))
    yield (
        "convolution of weights with an offset",
        _convolution((2, 70, 7, 7), (37, 70, 3, 3), -128, 127, 55, least=-200, padding=(1, 1)),
    )
    yield "16-bit convolution", _convolution((1, 5, 6, 6), (17, 5, 3, 3), -3000, 3000, 3000, padding=(1, 1))
    yield "32-bit convolution", _convolution((1, 3, 6, 6), (9, 3, 3, 3), -(2**20), 2**20, 60, padding=(1, 1))
    for channels, size in ((150, 3), (16, 5), (33, 1)):
        shape = (1, channels, 11, 11)
        pad = (size // 2, size // 2)
        yield (
            f"depthwise convolution, {size} by {size}",
            _convolution(shape, (channels, 1, size, size), *bytes_, 128, padding=pad, groups=channels),
        )
    yield (
        "depthwise convolution of weights with an offset",
        _convolution((1, 70, 9, 9), (70, 1, 3, 3), *bytes_, 256, least=-20, padding=(1, 1), groups=70),
    )
    yield (
        "depthwise convolution with a row of weights beyond a byte",
        _convolution((1, 70, 9, 9), (70, 1, 3, 3), *bytes_, 128, least=-255, row=1, padding=(1, 1), groups=70),
    )
    yield "matrix product", _product(3, 50, 37)
    yield "matrix product of weights with an offset", _product(6, 150, 37, 0, 255)
    yield "matrix product of one row", _product(1, 200, 150)
    for rounding in ("half_up", "half_even", "toward_zero"):
        yield f"requantize, {rounding}", _requantization(rounding)
        yield f"requantize at the ends of its results, {rounding}", _ends_of_results(rounding)
    yield "ops by element", _elementwise()
    yield "windows, sums and maxima", _windows()
    yield "ops of op-set 2", _computed()


def _convolution(
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    lo: int,
    hi: int,
    magnitude: int,
    least: int | None = None,
    row: int | None = None,
    **attributes: Any,
) -> VerifiedProgram:
    """A convolution that returns its sums, and their codes after a requantize per channel, with and without a clip.

    Its weights lie in [least, magnitude - 1]. Without ``least``, they begin at -magnitude. Those of all rows but
    ``row``, if it is given, fit in a byte.
    """
    builder = ProgramBuilder()
    x = builder.input("x", shape, lo, hi)
    weights = _weights(*kernel, least=-magnitude if least is None else least, largest=magnitude - 1)
    if row is not None:
        weights = np.where(np.arange(kernel[2])[:, None] == row, weights, weights.clip(-128, 127))
    bias = builder.constant(np.arange(kernel[0]) * 37 - 200)
    return _codes(
        builder,
        lambda: builder.add("conv2d", [x, builder.constant(weights), bias], attributes)[0],
        (1, kernel[0], 1, 1),
    )


def _residual(last: tuple[int, ...]) -> VerifiedProgram:
    """The codes of a convolution and those of a pool, which a requantize adds.

    ``last`` holds its parameters: two multipliers, offset and shift.
    """
    builder = ProgramBuilder()
    x, y = builder.input("x", (1, 40, 5, 14), -128, 127), builder.input("y", (1, 64, 5, 14), -128, 127)
    (sums,) = builder.add("conv2d", [x, builder.constant(_weights(64, 40, 1, 1, least=-128, largest=127))])
    (other,) = builder.add("max_pool2d", [y], {"pool_size": (3, 3), "strides": (1, 1), "padding": (1, 1)})
    shift = 40 + builder.range(sums).magnitude().bit_length() - 20
    parameters = [2**29 + 7919 * np.arange(64).reshape(1, 64, 1, 1), np.full(1, -12345), np.full(1, shift)]
    attributes = {"lo": -128, "hi": 127, "rounding": "half_up"}
    (codes,) = builder.add("requantize", [sums, *map(builder.parameter, parameters)], attributes)
    numbers = [np.full(1, n) for n in last]
    (total,) = builder.add("requantize", [codes, other, *map(builder.parameter, numbers)], attributes)
    return verify(builder.build([Output("total", total)]))


def _product(rows: int, depth: int, columns: int, least: int = -128, largest: int = 127) -> VerifiedProgram:
    builder = ProgramBuilder()
    x = builder.input("x", (rows, depth), -128, 127)
    weights = builder.constant(_weights(columns, depth, least=least, largest=largest))
    return _codes(builder, lambda: builder.add("dense", [x, weights])[0], (1, columns))


def _codes(builder: ProgramBuilder, sums: Callable[[], str], channels: tuple[int, ...]) -> VerifiedProgram:
    """Sums, and their 8-bit codes in the arithmetic that most networks need and in the widest one.

    ``sums`` is called once for each result: sums with two readers would not be computed inside the kernel of their
    codes.
    """
    count = int(np.prod(channels))
    first = sums()
    bits = builder.range(first).magnitude().bit_length()
    multipliers = (2**26 + 7919 * np.arange(count) ** 2 % 2**26).reshape(channels)
    outputs = [Output("sums", first)]
    for name, more in (("codes", 0), ("wide codes", min(12, 35 - bits))):
        m = builder.parameter(multipliers << more)
        c = builder.parameter(np.arange(count).reshape(channels) * 7919)
        s = builder.parameter(np.full(channels, 26 + more + bits - 10))
        attributes = {"lo": -100, "hi": 120, "rounding": "half_up"}
        (codes,) = builder.add("requantize", [sums(), m, c, s], attributes)
        outputs.append(Output(name, codes))
    return verify(builder.build(outputs))


def _requantization(rounding: str) -> VerifiedProgram:
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
    return verify(builder.build(outputs))


def _ends_of_results(rounding: str) -> VerifiedProgram:
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
    return verify(builder.build(outputs))


def _elementwise() -> VerifiedProgram:
    builder = ProgramBuilder()
    most = INT32_MAX
    x = builder.input("x", (3, 21), -most, most)
    y = builder.input("y", (1, 21), -(2**15), 2**15)
    z = builder.input("z", (3, 1), -(2**15), 2**15)
    table = builder.constant(_weights(200, least=-most, largest=most))
    applied: list[tuple[str, list[str], dict[str, Any]]] = [
        ("broadcast_div", [x, z], {}), ("broadcast_max", [x, y], {}), ("broadcast_greater", [x, y], {}),
        ("broadcast_mul", [y, z], {}), ("broadcast_sub", [y, z], {}), ("abs", [x], {}), ("negative", [x], {}),
        ("cvm_precision", [x], {}), ("cvm_clip", [x], {"precision": 9}), ("relu", [x], {}),
        ("cvm_right_shift", [x], {"precision": 31, "shift_bit": 3}),
        ("cvm_left_shift", [x], {"precision": 31, "shift_bit": 30}), ("cvm_lut", [table, y], {}),
        ("take", [y, z], {"axis": 1}), ("transpose", [x], {}), ("tile", [y], {"reps": (2, 3)}),
        ("concatenate", [x, x], {"axis": 1}), ("slice", [x], {"begin": (2, 20), "end": (-4, 1), "strides": (-1, -3)}),
    ]  # fmt: skip
    outputs: list[Output] = []
    for number, (op, inputs, attributes) in enumerate(applied):
        (result,) = builder.add(op, inputs, attributes)
        outputs.append(Output(f"{op}_{number}", result))
    return verify(builder.build(outputs))


def _windows() -> VerifiedProgram:
    builder = ProgramBuilder()
    x = builder.input("x", (2, 19, 9, 9), -128, 127)
    boxes = builder.input("boxes", (2, 21, 6), -200, 200)
    pool = {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1), "ceil_mode": True}
    outputs = [Output("pool", builder.add("max_pool2d", [x], pool)[0])]
    for op in ("sum", "max"):
        outputs += [
            Output(f"{op}{axes}", builder.add(op, [x], {"axes": axes, "keepdims": True})[0])
            for axes in ((2, 3), (1,), (0, 3), ())
        ]
    count, rows = builder.add("get_valid_count", [boxes], {"score_threshold": 10})
    outputs += [Output("count", count), Output("rows", rows)]
    attributes = {"iou_threshold": 30, "max_output_size": 7, "force_suppress": True, "top_k": 15}
    outputs.append(Output("kept", builder.add("non_max_suppression", [rows, count], attributes)[0]))
    (wide,) = builder.add("broadcast_mul", [boxes, builder.constant(np.full((1, 1, 1), 2**22))])
    count, rows = builder.add("get_valid_count", [wide], {"score_threshold": -(2**29)})
    attributes = {"iou_threshold": 5, "max_output_size": -1, "force_suppress": True, "top_k": -1}
    outputs.append(Output("wide", builder.add("non_max_suppression", [rows, count], attributes)[0]))
    return verify(builder.build(outputs))


def _computed() -> VerifiedProgram:
    """Products, quotients in 64, 128 and 256 bits, rows of every statistic, and an updated slice."""
    builder = ProgramBuilder()
    x = builder.input("x", (2, 3, 17), -(2**15), 2**15)
    y = builder.input("y", (2, 3, 1), 0, INT32_MAX)
    at = builder.input("at", (1,), -2, 20)
    outputs: list[Output] = []

    def enter(op: str, inputs: list[str], attributes: dict[str, Any]) -> str:
        (result,) = builder.add(op, inputs, attributes)
        outputs.append(Output(f"{op}_{len(outputs)}", result))
        return result

    def one(number: int) -> str:
        return builder.parameter(np.array([number], np.int64))

    def per_item(*numbers: int) -> str:
        return builder.parameter(np.resize(np.array(numbers, np.int64), 17))

    quotients = (
        (0, -128, 127, "half_up"),
        (40, -(2**15), 2**15, "half_even"),
        (62, -INT32_MAX, INT32_MAX, "toward_zero"),
        (62, 1 - 2**30, 2**30, "half_up"),
    )
    for bits, lo, hi, rounding in quotients:
        factors = [per_item(1 << bits, -3), one(1), one((1 << bits) - 1), one(1 << bits)]
        enter("quotient", [x, y, *factors], {"terms": 1, "rounding": rounding, "lo": lo, "hi": hi})
    for statistic, rounding in (("variance", "half_even"), ("mean_square", "half_up"), ("square_sum", "half_up")):
        parameters = [per_item(3 * 2**30, -(2**31)), per_item(2**29, -1, 0), per_item(2**24, 12345), one(77), one(5)]
        attributes = {"axes": (2,), "statistic": statistic, "shift": 20, "rounding": rounding, "lo": -128, "hi": 127}
        enter("normalize", [x, *parameters], attributes)
    updated = enter("update_slice", [x, enter("max", [x], {"axes": (2,), "keepdims": True}), at], {"axis": 2})
    small = enter("clip", [updated], {"a_min": -99, "a_max": 99})
    enter("matmul", [small, small], {"transpose_b": True})
    return verify(builder.build(outputs))
