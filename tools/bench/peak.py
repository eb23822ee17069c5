"""The machine's peaks, by the code generator of the native executor: products of bytes in registers, and reading.

python -m tools.bench.peak [--threads N]
"""

from __future__ import annotations

import argparse
import ctypes
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cvm.executors.native.emit.ir import Code, Module, Scalar, V, typed, vector
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.tiles import ROWS, configure, product
from cvm.executors.native.runtime.jit import Loaded, compiled
from cvm.executors.native.runtime.select import available

__all__ = ["multiply_add_peak", "read_peak"]

_ROUNDS = 20_000
_UNROLLED = 4
_MULTIPLY_FIRST = frozenset({"avx2", "generic"})
"""Machines that add the products by another instruction. The compiler would multiply equal operands once, so one of
them is read from the first-level cache for every product.
"""
_READ = 2**27
"""The bytes that a thread reads."""


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


def read_peak(machine: Machine, seconds: float = 1.0, threads: int = 1) -> float:
    """The most bytes per second that threads read from memory, each a part of its own of more bytes than caches hold.

    It is the best of several runs; vectors are added in registers, in four streams.
    """
    loaded = Loaded(compiled(_reading(machine), machine), machine)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(loaded.address("read"))
    memory = [np.ones(_READ + 64, np.uint8) for _ in range(threads)]
    result = [np.zeros(64, np.int32) for _ in range(threads)]
    best, end = float("inf"), time.perf_counter() + seconds
    with ThreadPoolExecutor(threads) as pool:
        while best == float("inf") or time.perf_counter() < end:
            start = time.perf_counter()
            list(pool.map(lambda one: function(memory[one].ctypes.data, result[one].ctypes.data), range(threads)))
            best = min(best, time.perf_counter() - start)
    return threads * _READ / best


def _reading(machine: Machine) -> str:
    """``read(memory, result)``: the sum of all vectors."""
    module = Module()
    memory, result = V("ptr", "%memory"), V("ptr", "%result")
    code = Code(module, "read", [memory, result])
    type_, size, part = vector(32, machine.width), 4 * machine.width, _READ // 4

    def body(index: V, totals: list[V]) -> list[V]:
        at = code.at(memory, index)
        found = []
        for stream, total in enumerate(totals):
            for step in range(4):
                here = code.load(type_, code.at(at, stream * part + step * size))
                total = code.binary("add", total, here)
            found.append(total)
        return found

    totals = code.loop(0, part, 4 * size, body, [typed(type_, 0)] * 4)
    total = totals[0]
    for other in totals[1:]:
        total = code.binary("add", total, other)
    code.store(total, result)
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

    def operand() -> V:
        return code.value(type_, f"load volatile {type_}, {memory}, align 4") if machine.name in _MULTIPLY_FIRST else a

    def body(index: V, totals: list[V]) -> list[V]:
        for _ in range(_UNROLLED):
            totals = [machine.dot4(code, total, operand(), w) for total in totals]
        return totals

    totals = code.loop(0, _ROUNDS, 1, body, [typed(type_, 0)] * accumulators)
    for index, total in enumerate(totals):
        code.store(total, code.at(memory, 4 * machine.width * index))
    code.finish()
    return str(module)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    threads, machine = parser.parse_args().threads, available()[0]
    print(f"{machine.name}, {threads} threads: {multiply_add_peak(machine, 1.0, threads) / 1e9:.1f} GMAC/s, "
          f"{read_peak(machine, 3.0, threads) / 1e9:.1f} GB/s read")  # fmt: skip


if __name__ == "__main__":
    main()
