"""The machine's multiply-add peak: products of bytes in registers, by the code generator of the native executor."""

from __future__ import annotations

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor

from cvm.executors.native.emit.ir import Code, Module, Scalar, V, typed, vector
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.tiles import ROWS, configure, product
from cvm.executors.native.runtime.jit import Loaded, compiled

__all__ = ["multiply_add_peak"]

_ROUNDS = 20_000
_UNROLLED = 4


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
