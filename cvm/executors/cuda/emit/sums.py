"""Contractions in their plain form: one thread for each pixel and channel, one product after the other.

Sums are modulo 2^32, so their order is free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from cvm.executors.cuda.emit.channels import Place, place_of, stored, whole
from cvm.executors.cuda.emit.threads import Kernel, Shapes, covering, digits
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.sums import ROWS, TAPS, Contraction, Depthwise, WindowSums
from cvm.executors.native.emit.elements import load
from cvm.executors.native.emit.ir import Module, Scalar, V, typed, vector

__all__ = ["emit_contraction", "emit_depthwise", "emit_windows"]

BYTE = Format(8, signed=False)
_Summed = TypeVar("_Summed", Contraction, Depthwise)


def emit_contraction(module: Module, name: str, kernel: Contraction, alignments: Sequence[int]) -> Shapes:
    """Write the kernel (input, weights, [start of sums,] reads.., output)."""
    return _by_channel(module, name, kernel, _total)


def _by_channel(
    module: Module,
    name: str,
    kernel: _Summed,
    summed: Callable[[Kernel, _Summed, Sequence[Scalar], Place], V],
) -> Shapes:
    """Write a kernel with one thread for each pixel and channel; ``summed`` writes the sum of one."""
    first = 3 if kernel.starts else 2
    code = Kernel(module, name, first + len(kernel.reads) + 1)
    extents = (kernel.images, kernel.rows, kernel.columns, kernel.channels)

    def element(number: V) -> None:
        index = digits(code, number, extents)
        place = place_of(code, kernel.segments, index[-1])
        total = summed(code, kernel, index, place)
        stored(code, kernel, code.arguments[first:-1], code.arguments[-1], tuple(index), place, total)

    code.elements(math.prod(extents), element)
    code.finish()
    return (covering(name, math.prod(extents)),)


def _start(code: Kernel, starts: bool, place: Place) -> V:
    """The value that the sum of a channel starts with."""
    if not starts:
        return typed("i32", 0)
    return code.load("i32", code.at(code.arguments[2], code.binary("mul", place.index(code), 4)))


def _total(code: Kernel, kernel: Contraction, index: Sequence[Scalar], place: Place) -> V:
    """The sum of all products of one pixel and channel, in as many passes as weights have digits."""
    size = kernel.input.bytes
    source = code.arguments[0]
    strides = (kernel.source.image, kernel.source.row, kernel.source.column)
    for number, stride in zip(index[:3], strides, strict=True):
        source = code.at(source, code.mul(number, stride * size))
    weights = code.at(code.arguments[1], code.binary("mul", place.block, 4 * kernel.step_words))
    weights = code.at(weights, code.binary("mul", place.lane, 4))
    step = code.binary("mul", place.lanes, 4)
    start = _start(code, kernel.starts, place)
    last = max((number for number, shift in enumerate(kernel.shifts) if shift), default=0)
    total = start if last == 0 else typed("i32", 0)
    words = kernel.step_words // len(kernel.shifts)
    for number, shift in enumerate(kernel.shifts):
        if shift:
            total = code.binary("shl", total, shift)
            if number == last:
                total = code.binary("add", total, start)
        total = _taps(code, kernel, source, code.at(weights, code.binary("mul", step, number * words)), step, total)
    return total


def _taps(code: Kernel, kernel: Contraction, source: V, weights: V, step: V, total: V, depth: int = 0) -> V:
    """Add the products of all taps. ``step`` is the distance from the weights of one step to those of the next."""
    if depth == len(kernel.taps):
        return _run(code, kernel, source, weights, step, total)
    count, apart = kernel.taps[depth]
    steps = math.prod(n for n, _ in kernel.taps[depth + 1 :]) * kernel.steps

    def tap(index: V, now: list[V]) -> list[V]:
        at = code.at(source, code.mul(index, apart * kernel.input.bytes))
        packed = code.at(weights, code.binary("mul", code.binary("mul", index, steps), step))
        return [_taps(code, kernel, at, packed, step, now[0], depth + 1)]

    return code.loop(0, count, 1, tap, [total])[0]


def _run(code: Kernel, kernel: Contraction, source: V, weights: V, step: V, total: V) -> V:
    """Add the products of one run, ``per`` elements for each step."""
    size, per = kernel.input.bytes, kernel.per
    # A dot product of bytes multiplies what is stored; the start of the sums subtracts the bias.
    format_ = BYTE if per == 4 else kernel.input
    weight = Format(32 // per)

    def some(index: Scalar, count: int, total: V) -> V:
        read = code.at(source, code.mul(index, per * size))
        packed = code.at(weights, code.binary("mul", whole(index), step))
        for number in range(count):
            x = load(code, format_, code.at(read, number * size), 1)
            w = load(code, weight, code.at(packed, number * weight.bytes), 1)
            total = code.binary("add", total, code.binary("mul", x, w))
        return total

    done, rest = divmod(kernel.run, per)
    (total,) = code.loop(0, done, 1, lambda index, now: [some(index, per, now[0])], [total])
    return some(done, rest, total) if rest else total


def emit_depthwise(module: Module, name: str, kernel: Depthwise, alignments: Sequence[int]) -> Shapes:
    """Write the kernel (input, weights, [start of sums,] reads.., output)."""
    return _by_channel(module, name, kernel, _window)


def _window(code: Kernel, kernel: Depthwise, index: Sequence[Scalar], place: Place) -> V:
    """The sum of all products of one window: column by column, in each all digits of the weights of all rows."""
    source = code.arguments[0]
    strides = (kernel.source.image, kernel.source.row, kernel.step * kernel.source.column, 1)
    for number, stride in zip(index, strides, strict=True):
        source = code.at(source, code.mul(number, stride))
    column = kernel.parts * kernel.groups
    weights = code.at(code.arguments[1], code.binary("mul", place.block, kernel.window[1] * column * ROWS))
    weights = code.at(weights, code.binary("mul", place.lane, ROWS))
    group = code.binary("mul", place.lanes, ROWS)

    def products(tap: Scalar, now: Sequence[V]) -> list[V]:
        at = code.at(source, code.mul(tap, kernel.taps[1]))
        (total,) = now
        for row in range(kernel.window[0]):
            x = load(code, BYTE, code.at(at, kernel.row(row) * kernel.taps[0]), 1)
            for part in range(kernel.parts):
                number = code.add(code.mul(tap, column), part * kernel.groups + row // ROWS)
                packed = code.at(weights, code.binary("mul", group, number))
                w = code.cast("sext", code.load(vector(8, 1), code.at(packed, row % ROWS)), 32)
                total = code.binary("add", total, code.binary("mul", x, w))
        return [total]

    total = [_start(code, kernel.starts, place)]
    if kernel.window[0] * kernel.window[1] > TAPS:
        return code.loop(0, kernel.window[1], 1, products, total)[0]
    for tap in range(kernel.window[1]):
        total = products(tap, total)
    return total[0]


def emit_windows(module: Module, name: str, kernel: WindowSums, alignments: Sequence[int]) -> Shapes:
    """Write the kernel (input, factor, sums): the bytes of each window added up, times the factor."""
    code = Kernel(module, name, 3)
    source, factor, target = code.arguments
    extents = (kernel.images, kernel.rows, kernel.columns)

    def element(number: V) -> None:
        at = source
        strides = (kernel.source.image, kernel.source.row, kernel.source.column)
        for index, stride in zip(digits(code, number, extents), strides, strict=True):
            at = code.at(at, code.mul(index, stride))
        total = _over(code, [*kernel.taps, (kernel.run, 1)], at, typed("i32", 0),
                      lambda here, now: code.binary("add", now, load(code, BYTE, here, 1)))  # fmt: skip
        product = code.binary("mul", total, code.load("i32", factor))
        code.store(product, code.at(target, code.mul(number, 4)))

    code.elements(math.prod(extents), element)
    code.finish()
    return (covering(name, math.prod(extents)),)


def _over(code: Kernel, loops: Sequence[tuple[int, int]], at: V, total: V, body: Callable[[V, V], V]) -> V:
    """``body(address, total)``, which returns the next total, at every index of loops (count, distance in bytes)."""
    if not loops:
        return body(at, total)
    count, apart = loops[0]
    return code.loop(
        0, count, 1, lambda index, now: [_over(code, loops[1:], code.at(at, code.mul(index, apart)), now[0], body)],
        [total],
    )[0]  # fmt: skip
