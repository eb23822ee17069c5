"""The trial of a machine: every class of kernels is compared with the NumPy executor on extreme values.

It finds a processor, a hypervisor or a code generator that computes wrong results, before a user's network runs. The
result of the trial is stored with compiled code, so each machine is tried once per version of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.executors.base import Int32Array, returned
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.runtime import cache
from cvm.executors.native.runtime.classes import EPILOGUES
from cvm.executors.native.runtime.distrust import Distrusted
from cvm.executors.native.runtime.networks import network_of
from cvm.limits import INT32_MAX
from cvm.program.build import ProgramBuilder
from cvm.program.model import Output
from cvm.program.verifier import VerifiedProgram, verify

__all__ = ["CLASSES", "Class", "agrees", "failure", "programs"]

Array = npt.NDArray[np.int64]
Shape = tuple[int, ...]
PASSED = b"passed"
AT_ONCE = 3
"""How many classes are tried at the same time: Python works for one of them at a time, and so does the generator."""


def failure(machine: Machine, used: frozenset[str] | None = None) -> str | None:
    """The first class of kernels for which a machine gives wrong results, or None. Every class is tried once.

    ``used`` are the kinds of kernels (`cvm.executors.native.runtime.classes`) to try; None stands for all. If no class
    tries one of them, all are tried.
    """
    whole = cache.key(machine, ("trial",))
    if used is None and cache.read(whole) == PASSED:
        return None
    known = frozenset().union(*(one.kinds for one in CLASSES))
    needed = [one for one in CLASSES if used is None or used - known or used & one.kinds]
    wrong = next((said for said in _at_once(partial(_failure, machine), needed) if said is not None), None)
    if used is None and wrong is None:
        cache.write(whole, PASSED)
    return wrong


def _at_once(tell: Callable[[Class], str | None], classes: Sequence[Class]) -> Iterator[str | None]:
    """What ``tell`` says of each class, in order.

    Some classes are planned and checked while the code generator, which does not hold Python's lock, works for others.
    """
    with ThreadPoolExecutor(AT_ONCE) as threads:
        try:
            told = [threads.submit(tell, one).result for one in classes]
        except RuntimeError:  # the system has no more threads
            threads.shutdown(cancel_futures=True)
            told = [partial(tell, one) for one in classes]
        try:
            for result in told:
                yield result()
        finally:
            threads.shutdown(cancel_futures=True)


def _failure(machine: Machine, one: Class) -> str | None:
    """What is said of a class if the machine gives wrong results for it; else None."""
    name = cache.key(machine, ("trial", one.name))
    if cache.read(name) == PASSED:
        return None
    try:
        if not _agrees(machine, one.program()):
            return one.name
    except RuntimeError as error:  # the code generator cannot compile the code
        return f"{one.name}: {str(error).splitlines()[0]}"
    cache.write(name, PASSED)
    return None


def _agrees(machine: Machine, verified: VerifiedProgram) -> bool:
    try:
        network = network_of(verified, machine, 1, returned(verified.program, frozenset()))
    except Distrusted:
        return False

    def run(feed: Mapping[str, Int32Array]) -> dict[str, Int32Array] | None:
        found = {name: np.empty(shape, np.int32) for name, shape in network.left}
        done = network.run([*(feed[name] for name, _ in network.given), *found.values()])
        return found if done else None

    return agrees(verified, run)


def agrees(
    verified: VerifiedProgram, run: Callable[[Mapping[str, Int32Array]], Mapping[str, Int32Array] | None]
) -> bool:
    """Whether ``run`` gives the outputs of the NumPy executor for extreme inputs. None is no output."""
    from cvm.executors.numpy import NumpyExecutor

    numpy = NumpyExecutor(verified)
    for feed in _feeds(verified):
        found, expected = run(feed), numpy.run(feed, {}).values
        if found is None or any(not np.array_equal(found[name], tensor) for name, tensor in expected.items()):
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
    return ((one.name, one.program()) for one in CLASSES)


@dataclass(frozen=True, slots=True)
class Class:
    """A class of kernels: its name, the kinds of kernels that its program has, and the program."""

    name: str
    kinds: frozenset[str]
    program: Callable[[], VerifiedProgram]


def _classes() -> Iterator[Class]:
    for epilogue in EPILOGUES:
        for what, products, make in _sums():
            name = what if epilogue == EPILOGUES[0] else f"{what}, {epilogue}"
            yield Class(name, frozenset({f"{products}, {epilogue}"}), partial(make, epilogue))
    large = (1, 100, 11, 14), (100, 1, 11, 9)
    made = partial(_convolution, EPILOGUES[0], large, (0, 255), 128, groups=100)
    yield Class("depthwise convolution of large windows", frozenset({"depthwise loops"}), made)
    yield Class("depthwise convolution of few channels", frozenset({"depthwise pixels"}), _few_channels)
    for what, last in (("residual sum", (1_500_000_001, 1_234_567_891, 99_999, 31)),
                       ("residual sum of small numbers", (5, -3, 1, 2))):  # fmt: skip
        yield Class(what, frozenset({"residual"}), partial(_residual, last))
    for rounding in ("half_up", "half_even", "toward_zero"):
        kind = frozenset({f"requantize {rounding}"})
        yield Class(f"requantize, {rounding}", kind, partial(_requantization, rounding))
        yield Class(f"requantize at the ends of its results, {rounding}", kind, partial(_ends_of_results, rounding))
    yield Class("ops by element", frozenset({"elements"}), _elementwise)
    yield Class("ops by element in narrow lanes", frozenset({"narrow"}), _narrow)
    yield Class("ops that move elements", frozenset({"copies"}), _moved)
    yield Class("transposes by blocks", frozenset({"blocks"}), _transposed)
    yield Class("windows", frozenset({"pools"}), _pools)
    for op, what in (("sum", "sums"), ("max", "maxima")):
        for bits, spans in ((8, SPANS[:2]), (16, SPANS[2:4]), (32, SPANS[4:])):
            yield Class(f"{what} of {bits} bits", frozenset({f"{op} {bits}"}), partial(_reductions, op, spans))
    yield Class("detections", frozenset({"detections"}), _detections)
    yield Class("products of computed matrices", frozenset({"computed", "matrices"}), _matrices)
    yield Class("ops of op-set 2", frozenset({"computed"}), _computed)


def _sums() -> Iterator[tuple[str, str, Callable[[str], VerifiedProgram]]]:
    """The classes of kernels that sum products: the name, the kind of products, and the program for each epilogue."""

    def convolution(*arguments: Any, **attributes: Any) -> Callable[[str], VerifiedProgram]:
        return lambda epilogue: _convolution(epilogue, *arguments, **attributes)

    bytes_ = (0, 255)
    small = (1, 7, 9, 9), (37, 7, 3, 3)
    yield "8-bit convolution", "bytes", convolution(small, bytes_, 128, padding=(1, 1))
    wide = (1, 72, 9, 12), (147, 72, 3, 3)
    yield "convolution of many channels", "bytes", convolution(wide, bytes_, 128, padding=(1, 1))
    signed = (2, 20, 8, 8), (20, 20, 1, 1)
    yield "8-bit convolution of signed codes", "bytes", convolution(signed, (-128, 127), 128)
    grouped = (1, 12, 9, 9), (24, 6, 3, 3)
    yield "grouped convolution", "bytes", convolution(grouped, (-128, 127), 127, groups=2, stride=(2, 2))
    large = (1, 5, 7, 7), (18, 5, 3, 3)
    yield "convolution of wide weights", "digits", convolution(large, bytes_, 30_000, dilation=(2, 2))
    offset = (2, 70, 7, 7), (37, 70, 3, 3)
    made = convolution(offset, (-128, 127), 55, least=-200, padding=(1, 1))
    yield "convolution of weights with an offset", "window sums", made
    words = (1, 5, 6, 6), (17, 5, 3, 3)
    yield "16-bit convolution", "words", convolution(words, (-3000, 3000), 3000, padding=(1, 1))
    integers = (1, 3, 6, 6), (9, 3, 3, 3)
    yield "32-bit convolution", "integers", convolution(integers, (-(2**20), 2**20), 60, padding=(1, 1))
    for channels, size in ((150, 3), (16, 5), (33, 1)):
        shapes = (1, channels, 11, 11), (channels, 1, size, size)
        pad = (size // 2, size // 2)
        made = convolution(shapes, bytes_, 128, padding=pad, groups=channels)
        yield f"depthwise convolution, {size} by {size}", f"depthwise {size}", made
    nine_bits = (1, 70, 9, 9), (70, 1, 3, 3)
    made = convolution(nine_bits, bytes_, 256, least=-20, padding=(1, 1), groups=70)
    yield "depthwise convolution of weights with an offset", "depthwise digits", made
    made = convolution(nine_bits, bytes_, 128, least=-255, row=1, padding=(1, 1), groups=70)
    yield "depthwise convolution with a row of weights beyond a byte", "depthwise digits", made
    yield "matrix product of weights with an offset", "window sums", partial(_product, 6, 152, 37, least=0, largest=255)
    yield "matrix product", "bytes", partial(_product, 3, 50, 37)
    yield "matrix product of one row", "row", partial(_product, 1, 200, 150)


def _convolution(
    epilogue: str,
    shapes: tuple[Shape, Shape],
    interval: tuple[int, int],
    magnitude: int,
    least: int | None = None,
    row: int | None = None,
    **attributes: Any,
) -> VerifiedProgram:
    """A convolution with one of `EPILOGUES`: its sums, or their codes after a requantize per channel.

    Its weights lie in [least, magnitude - 1]. Without ``least``, they begin at -magnitude. Those of all rows but
    ``row``, if it is given, fit in a byte.
    """
    builder = ProgramBuilder()
    shape, kernel = shapes
    x = builder.input("x", shape, *interval)
    weights = _weights(*kernel, least=-magnitude if least is None else least, largest=magnitude - 1)
    if row is not None:
        weights = np.where(np.arange(kernel[2])[:, None] == row, weights, weights.clip(-128, 127))
    bias = builder.constant(np.arange(kernel[0]) * 37 - 200)
    inputs = [x, builder.constant(weights), bias]
    return _codes(builder, lambda: builder.add("conv2d", inputs, attributes)[0], (1, kernel[0], 1, 1), epilogue)


def _few_channels() -> VerifiedProgram:
    """The codes of depthwise convolutions whose vectors hold the channels of several pixels.

    The channels of these pixels lie side by side, or in every second place, or apart.
    """
    builder = ProgramBuilder()
    outputs = []
    for channels, size, stride in ((8, 17, 1), (88, 17, 2), (32, 9, 2), (16, 9, 2)):
        x = builder.input(f"x{channels}", (1, channels, size, size), 0, 255)
        inputs = [x, builder.constant(_weights(channels, 1, 3, 3, least=-128, largest=127))]
        attributes: dict[str, Any] = {"padding": (1, 1), "groups": channels, "stride": (stride, stride)}
        (sums,) = builder.add("conv2d", inputs, attributes)
        m = builder.parameter((2**26 + 7919 * np.arange(channels)).reshape(1, channels, 1, 1))
        numbers = [builder.parameter(np.full(1, number)) for number in (-12345, 34)]
        (codes,) = builder.add("requantize", [sums, m, *numbers], {"lo": -100, "hi": 120, "rounding": "half_up"})
        if stride == 2:  # the store clips what a clip behind the codes clips
            (codes,) = builder.add("relu", [codes])
        outputs.append(Output(f"y{channels}", codes))
    return verify(builder.build(outputs))


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


def _product(
    rows: int, depth: int, columns: int, epilogue: str, least: int = -128, largest: int = 127
) -> VerifiedProgram:
    builder = ProgramBuilder()
    x = builder.input("x", (rows, depth), -128, 127)
    weights = builder.constant(_weights(columns, depth, least=least, largest=largest))
    return _codes(builder, lambda: builder.add("dense", [x, weights])[0], (1, columns), epilogue)


def _codes(
    builder: ProgramBuilder, sums: Callable[[], str], channels: tuple[int, ...], epilogue: str
) -> VerifiedProgram:
    """Sums, or their 8-bit codes in the arithmetic that most networks need or in the widest one.

    ``sums`` is called for each result: sums with two readers would not be computed inside the kernel of their codes.
    """
    first = sums()
    if epilogue == "sums":
        return verify(builder.build([Output("sums", first)]))
    count = int(np.prod(channels))
    bits = builder.range(first).magnitude().bit_length()
    more = 0 if epilogue == "codes" else min(12, 35 - bits)
    m = builder.parameter((2**26 + 7919 * np.arange(count) ** 2 % 2**26).reshape(channels) << more)
    c = builder.parameter(np.arange(count).reshape(channels) * 7919)
    s = builder.parameter(np.full(channels, 26 + more + bits - 10))
    outputs = []
    roundings = {"half_up": first} if epilogue == "codes" else {"half_up": first, "half_even": sums()}
    for rounding, values in roundings.items():
        attributes = {"lo": -100, "hi": 120, "rounding": rounding}
        (codes,) = builder.add("requantize", [values, m, c, s], attributes)
        outputs.append(Output(rounding, codes))
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
    codes = builder.input("codes", (1, 130), -9, 300)
    (bytes_,) = builder.add("clip", [builder.input("bytes", (3, 100), -500, 500)], {"a_min": -100, "a_max": 155})
    few, many = (builder.constant(np.arange(n) * 37 % 120 - 9) for n in (97, 31))
    (short,) = builder.add("slice", [bytes_], {"begin": (0, 7), "end": (3, 67), "strides": (1, 1)})
    table, longer = (builder.constant(_weights(n, least=-most, largest=most)) for n in (200, 257))
    applied: list[tuple[str, list[str], dict[str, Any]]] = [
        ("broadcast_div", [x, z], {}), ("broadcast_max", [x, y], {}), ("broadcast_greater", [x, y], {}),
        ("broadcast_mul", [y, z], {}), ("broadcast_sub", [y, z], {}), ("abs", [x], {}), ("negative", [x], {}),
        ("cvm_precision", [x], {}), ("cvm_clip", [x], {"precision": 9}), ("relu", [x], {}),
        ("cvm_right_shift", [x], {"precision": 31, "shift_bit": 3}),
        ("cvm_left_shift", [x], {"precision": 31, "shift_bit": 30}), ("cvm_lut", [table, y], {}),
        ("take", [y, z], {"axis": 1}), ("cvm_lut", [longer, codes], {}), ("cvm_lut", [table, codes], {}),
        ("take", [bytes_, few], {"axis": 1}), ("take", [short, many], {"axis": 1}),
    ]  # fmt: skip
    return _each(builder, applied)


SPANS = ((-128, 127), (0, 255), (-30_000, 30_000), (0, 65_535), (-(2**17), 2**17))
"""Intervals of all formats in which elements are stored."""


def _stored(builder: ProgramBuilder, shape: tuple[int, ...], spans: Sequence[tuple[int, int]]) -> list[str]:
    """Tensors of several intervals that lie in the formats of these: copies of inputs, which lie in 32 bits."""
    given = [builder.input(f"x{number}", shape, *span) for number, span in enumerate(spans)]
    limits = ({"a_min": lo, "a_max": hi} for lo, hi in spans)
    return [builder.add("clip", [x], limit)[0] for x, limit in zip(given, limits, strict=True)]


def _narrow() -> VerifiedProgram:
    builder = ProgramBuilder()
    applied: list[tuple[str, list[str], dict[str, Any]]] = []
    codes, positive, words, _ = _stored(builder, (3, 150), SPANS[:4])
    for x in (codes, positive, words):
        applied += [
            ("abs", [x], {}), ("negative", [x], {}), ("relu", [x], {}), ("cvm_precision", [x], {}),
            ("clip", [x], {"a_min": -99, "a_max": 77}), ("cvm_right_shift", [x], {"precision": 7, "shift_bit": 2}),
            ("cvm_left_shift", [x], {"precision": 9, "shift_bit": 2}), ("broadcast_max", [x, codes], {}),
            ("broadcast_greater", [x, codes], {}), ("where", [positive, x, codes], {}),
            ("broadcast_mul", [x, codes], {}), ("broadcast_add", [x, codes], {}), ("broadcast_sub", [codes, x], {}),
        ]  # fmt: skip
    return _each(builder, applied)


def _transposed() -> VerifiedProgram:
    builder = ProgramBuilder()
    applied: list[tuple[str, list[str], dict[str, Any]]] = []
    for x in _stored(builder, (75, 37), SPANS):
        (turned,) = builder.add("transpose", [x])
        beside = builder.constant(np.zeros((1, 75), np.int32))
        applied += [("concatenate", [turned, beside], {"axis": 0}), ("negative", [turned], {})]
    return _each(builder, applied)


def _moved() -> VerifiedProgram:
    builder = ProgramBuilder()
    x = builder.input("x", (3, 21), -INT32_MAX, INT32_MAX)
    y = builder.input("y", (1, 21), -(2**15), 2**15)
    z = builder.input("z", (2, 19, 9, 9), -128, 127)
    (wider,) = builder.add("max_pool2d", [z], {"pool_size": (1, 1), "strides": (1, 1), "padding": (0, 0)})
    return _each(builder, [
        ("transpose", [x], {}), ("tile", [y], {"reps": (2, 3)}), ("concatenate", [x, x], {"axis": 1}),
        ("slice", [x], {"begin": (2, 20), "end": (-4, 1), "strides": (-1, -3)}),
        ("reshape", [x], {"target_shape": (21, 3)}),
        ("transpose", [wider], {"axes": (0, 2, 3, 1)}),
    ])  # fmt: skip


def _each(builder: ProgramBuilder, applied: Sequence[tuple[str, list[str], dict[str, Any]]]) -> VerifiedProgram:
    """A program that returns the result of every op: its name, inputs and attributes."""
    outputs: list[Output] = []
    for number, (op, inputs, attributes) in enumerate(applied):
        (result,) = builder.add(op, inputs, attributes)
        outputs.append(Output(f"{op}_{number}", result))
    return verify(builder.build(outputs))


def _pools() -> VerifiedProgram:
    builder = ProgramBuilder()
    x = builder.input("x", (2, 19, 9, 9), -128, 127)
    y = builder.input("y", (2, 20, 9, 9), -128, 127)
    (same,) = builder.add("conv2d", [y, builder.constant(np.eye(20, dtype=np.int32).reshape(20, 20, 1, 1))], {})
    (words,) = builder.add("clip", [same], {"a_min": -128, "a_max": 127})  # channels beside each other, in bytes
    pool = {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1), "ceil_mode": True}
    return _each(builder, [("max_pool2d", [x], pool), ("max_pool2d", [words], pool)])


def _reductions(op: str, spans: Sequence[tuple[int, int]]) -> VerifiedProgram:
    """Sums or maxima of tensors that lie in the formats of intervals."""
    builder = ProgramBuilder()
    applied: list[tuple[str, list[str], dict[str, Any]]] = []
    for stored in _stored(builder, (19, 300), spans):
        applied += [(op, [stored], {"axes": axes, "keepdims": False}) for axes in ((0,), (1,))]
    lo, hi = spans[0]
    (maps,) = builder.add("clip", [builder.input("maps", (2, 19, 9, 9), lo, hi)], {"a_min": lo, "a_max": hi})
    applied += [(op, [maps], {"axes": axes, "keepdims": True}) for axes in ((2, 3), (1,), (0, 2), (0, 3), ())]
    return _each(builder, applied)


def _detections() -> VerifiedProgram:
    builder = ProgramBuilder()
    boxes = builder.input("boxes", (2, 21, 6), -200, 200)
    outputs: list[Output] = []
    count, rows = builder.add("get_valid_count", [boxes], {"score_threshold": 10})
    outputs += [Output("count", count), Output("rows", rows)]
    attributes = {"iou_threshold": 30, "max_output_size": 7, "force_suppress": True, "top_k": 15}
    outputs.append(Output("kept", builder.add("non_max_suppression", [rows, count], attributes)[0]))
    (wide,) = builder.add("broadcast_mul", [boxes, builder.constant(np.full((1, 1, 1), 2**22))])
    count, rows = builder.add("get_valid_count", [wide], {"score_threshold": -(2**29)})
    attributes = {"iou_threshold": 5, "max_output_size": -1, "force_suppress": True, "top_k": -1}
    outputs.append(Output("wide", builder.add("non_max_suppression", [rows, count], attributes)[0]))
    return verify(builder.build(outputs))


def _matrices() -> VerifiedProgram:
    """Products of computed matrices in bytes, 16 and 32 bits, whose elements lie side by side in rows or in columns."""
    builder = ProgramBuilder()
    outputs: list[Output] = []
    for bits, ends, others in (
        (8, (-120, 135), (-128, 127)),
        (16, (0, 255), (-200, 200)),
        (32, (-(2**16), 9), (0, 99)),
    ):
        for transposed, columns in ((True, 21), (False, 37)):
            x = builder.input(f"x{len(outputs)}", (4, 5, 70), *ends)
            w = builder.input(f"w{len(outputs)}", (2, columns, 70) if transposed else (2, 70, columns), *others)
            (result,) = builder.add("matmul", [x, w], {"transpose_b": transposed})
            outputs.append(Output(f"{bits} bits, {columns} columns", result))
    for transposed in (True, False):
        x = builder.input(f"row{transposed}", (4, 1, 96), -120, 135)
        w = builder.input(f"of{transposed}", (2, 96, 96), -128, 127)
        (w,) = builder.add("clip", [w], {"a_min": -128, "a_max": 127})
        (result,) = builder.add("matmul", [x, w], {"transpose_b": transposed})
        outputs.append(Output(f"one row, {transposed}", result))
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


CLASSES = tuple(_classes())
"""All classes of kernels, those of most networks first."""
