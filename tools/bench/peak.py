"""The machine's peaks, by the code generator of the native executor: products of bytes in registers, bytes read."""

from __future__ import annotations

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cvm.executors.native.emit.ir import Code, Module, Scalar, V, typed, vector
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.tiles import ROWS, configure, product
from cvm.executors.native.runtime.jit import Loaded, compiled

__all__ = ["multiply_add_peak", "read_bandwidth"]

_ROUNDS = 20_000
_UNROLLED = 4
_STREAMED = 1 << 28
"""The bytes that are read to measure the memory, many times what caches hold."""
_LINES = 4
"""The streams that each thread reads side by side."""


def multiply_add_peak(machine: Machine, seconds: float = 0.3, threads: int = 1) -> float:
    """The most multiply-adds of bytes per second that threads reached: the best of many short runs of each thread."""
    accumulators = 4 if machine.tiles else machine.registers - 4
    each = ROWS * ROWS * 4 * ROWS if machine.tiles else 4 * machine.width
    loaded = Loaded(compiled(_on_tiles() if machine.tiles else _text(machine, accumulators), machine), machine)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded.address("peak"))
    end = time.perf_counter() + seconds

    def least(_: int) -> float:
        memory, best = (ctypes.c_int32 * (accumulators * machine.width + 32))(), float("inf")
        while True:
            start = time.perf_counter()
            function(ctypes.addressof(memory))
            now = time.perf_counter()
            best = min(best, now - start)
            if now >= end:
                return best

    with ThreadPoolExecutor(threads) as pool:
        rates = [1 / best for best in pool.map(least, range(threads))]
    return _ROUNDS * _UNROLLED * accumulators * each * sum(rates)


def read_bandwidth(machine: Machine, seconds: float = 0.5, threads: int = 1) -> float:
    """The most bytes per second that threads read from memory: the best of many reads of 256 MiB, each its share."""
    loaded = Loaded(compiled(_reading(machine), machine), machine)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(loaded.address("read"))
    memory = np.ones(_STREAMED, np.uint8)
    each = _STREAMED // threads // (64 * _LINES) * 64
    sums = np.zeros((threads, 64 * _LINES), np.uint8)

    def read(number: int) -> None:
        function(memory.ctypes.data + number * each * _LINES, each, sums[number].ctypes.data)

    best, end = float("inf"), time.perf_counter() + seconds
    with ThreadPoolExecutor(threads) as pool:
        while True:
            start = time.perf_counter()
            list(pool.map(read, range(threads)))
            now = time.perf_counter()
            best = min(best, now - start)
            if now >= end:
                return each * _LINES * threads / best


def _reading(machine: Machine) -> str:
    """``read(memory, n, sums)``: the sums of the vectors in streams of n bytes that lie side by side."""
    module = Module()
    memory, count, sums = V("ptr", "%memory"), V("i64", "%n"), V("ptr", "%sums")
    code = Code(module, "read", [memory, count, sums])
    type_, size = vector(32, machine.width), 4 * machine.width
    streams = [memory]
    for _ in range(_LINES - 1):
        streams.append(code.at(streams[-1], count))

    def body(index: V, totals: list[V]) -> list[V]:
        for offset in range(0, 64, size):
            totals = [
                code.binary("add", total, code.load(type_, code.at(code.at(stream, index), offset)))
                for total, stream in zip(totals, streams, strict=True)
            ]
        return totals

    for number, total in enumerate(code.loop(0, count, 64, body, [typed(type_, 0)] * _LINES)):
        code.store(total, code.at(sums, size * number))
    code.finish()
    return str(module)


def _on_tiles() -> str:
    """``peak(memory)`` on tile registers, all of them full: four tiles of sums, two by two."""
    module = Module()
    code = Code(module, "peak", [V("ptr", "%memory")])
    configure(code, [(ROWS, 4 * ROWS)] * 8)

    def body(_: Scalar) -> None:
        for sums in range(4 * _UNROLLED):
            product(code, sums % 4, 4 + sums % 4 // 2, 6 + sums % 2)

    code.each(0, _ROUNDS, body)
    code.call("void", "llvm.x86.tilerelease")
    code.finish()
    return str(module)


def _text(machine: Machine, accumulators: int) -> str:
    """``peak(memory)``: a loop of independent dot products whose operands are in registers, unknown to the compiler."""
    module = Module()
    memory = V("ptr", "%memory")
    code = Code(module, "peak", [memory])
    type_ = vector(32, machine.width)
    a, w = (code.load(type_, code.at(memory, 4 * machine.width * index)) for index in range(2))

    def body(index: V, totals: list[V]) -> list[V]:
        for _ in range(_UNROLLED):
            totals = [machine.dot4(code, total, a, w) for total in totals]
        return totals

    totals = code.loop(0, _ROUNDS, 1, body, [typed(type_, 0)] * accumulators)
    for index, total in enumerate(totals):
        code.store(total, code.at(memory, 4 * machine.width * index))
    code.finish()
    return str(module)
