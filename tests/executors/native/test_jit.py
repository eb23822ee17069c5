"""The writer of code and its compilation: loops run as often as they say, and what is no code is refused."""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Callable

import numpy as np
import pytest

from cvm.executors.native.emit.ir import Code, Module, Scalar, V, typed
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.runtime import jit
from cvm.executors.native.runtime.jit import Loaded, compiled
from tests.executors.native.comparison import MACHINES, NAMES

GENERIC = MACHINES[-1]
BOUNDS = [(0, 0), (0, 1), (0, 7), (3, 3), (5, 2), (2, 9), (-4, 3)]
STEPS = (1, 2, 3)


def run(emit: Callable[[Code, V, V, V], V], lo: int, hi: int, machine: Machine = GENERIC) -> int:
    """The i64 that code computes from two numbers that it learns when it runs."""
    module = Module()
    place, low, high = V("ptr", "%place"), V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, "test", [place, low, high])
    code.store(emit(code, place, low, high), place)
    code.finish()
    loaded = Loaded(compiled(str(module), machine), machine)
    result = np.zeros(1, np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(loaded.address("test"))(
        result.ctypes.data, lo, hi
    )
    return int(result[0])


@pytest.mark.parametrize("known", [(True, True), (False, False), (True, False), (False, True)])
def test_loops_run_for_every_number_below_the_end(known: tuple[bool, bool]) -> None:
    for lo, hi in BOUNDS:
        for step in STEPS:

            def emit(code: Code, place: V, low: V, high: V, lo: int = lo, hi: int = hi, step: int = step) -> V:
                bounds: tuple[Scalar, Scalar] = (lo if known[0] else low, hi if known[1] else high)

                def body(index: V, values: list[V], code: Code = code) -> list[V]:
                    total = code.binary("mul", values[0], 31)
                    return [code.binary("add", total, index), code.binary("add", values[1], 1)]

                first, second = code.loop(*bounds, step, body, [typed("i64", 7), typed("i64", 0)])
                return code.binary("add", code.binary("mul", second, 2**40), first)

            total, count = 7, 0
            for number in range(lo, hi, step):
                total, count = total * 31 + number, count + 1
            assert run(emit, lo, hi) == (count * 2**40 + total + 2**63) % 2**64 - 2**63


def test_loops_within_loops_and_conditions() -> None:
    def emit(code: Code, place: V, low: V, high: V) -> V:
        def outer(i: V, values: list[V]) -> list[V]:
            def inner(j: V, values: list[V]) -> list[V]:
                return [code.binary("add", values[0], code.binary("mul", i, j))]

            return code.loop(0, i, 1, inner, values)

        room = code.alloca("i64", 1)
        code.store(typed("i64", 0), room)
        code.when(code.compare("slt", low, high), lambda: code.store(typed("i64", 1000), room))
        total = code.loop(low, high, 1, outer, [typed("i64", 0)])[0]
        return code.binary("add", total, code.load("i64", room))

    for lo, hi in BOUNDS:
        expected = sum(i * j for i in range(lo, hi) for j in range(i)) + (1000 if lo < hi else 0)
        assert run(emit, lo, hi) == expected


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
def test_products_of_every_machine_are_sums_of_products(machine: Machine) -> None:
    """Also of extremes, where the machine does not say that it saturates."""
    for count in (machine.width, *machine.narrower):
        bytes_, words = (np.uint8, np.int8), (np.int16, np.int16)
        ways = ((machine.dot4, 4, bytes_), (machine.dot2, 2, words))
        ways += ((machine.tile_dot(4), 4, bytes_), (machine.tile_dot(2), 2, words))
        for dot, per, dtypes in ways:
            module = Module()
            pointers = [V("ptr", f"%p{k}") for k in range(3)]
            code = Code(module, "test", pointers)
            kind = f"<{count} x i32>"
            total, a, w = (code.load(kind, pointer) for pointer in pointers)
            code.store(dot(code, total, a, w), pointers[0])
            code.finish()
            loaded = Loaded(compiled(str(module), machine), machine)
            function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(loaded.address("test"))
            random = np.random.default_rng(0)
            for number in range(50):
                limits = [np.iinfo(dtype) for dtype in dtypes]
                left, right = (
                    random.choice(np.array([limit.min, limit.max]), (count, per))
                    if number % 2
                    else random.integers(limit.min, limit.max, (count, per), endpoint=True)
                    for limit in limits
                )
                if machine.saturates and per == 4:
                    right = right // 2
                start = random.integers(-(2**31), 2**31, count)
                expected = ((start + (left * right).sum(axis=1) + 2**31) % 2**32 - 2**31).astype(np.int32)
                found = start.astype(np.int32)
                arrays = [left.astype(dtypes[0]), right.astype(dtypes[1])]
                function(found.ctypes.data, *(array.ctypes.data for array in arrays))
                np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "text",
    ["this is no code", "define void @f() { ret i32 0 }", "define void @f() { %a = add i32 1, i64 2\n ret void }"],
)
def test_what_is_no_code_is_refused(text: str) -> None:
    with pytest.raises(RuntimeError):
        compiled(text, GENERIC)


def test_code_lives_as_long_as_what_loaded_it() -> None:
    """Many objects, made and dropped: each address belongs to its own code."""

    def emitted(value: int) -> bytes:
        module = Module()
        place = V("ptr", "%place")
        code = Code(module, "test", [place])
        code.store(typed("i64", value), place)
        code.finish()
        return compiled(str(module), GENERIC)

    objects = {value: Loaded(emitted(value), GENERIC) for value in range(20)}
    for value in range(0, 20, 2):
        del objects[value]
    result = np.zeros(1, np.int64)
    for value, loaded in objects.items():
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded.address("test"))(result.ctypes.data)
        assert result[0] == value


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the text of x86-64 processors is read")
@pytest.mark.parametrize(("size", "probes"), [(1000, False), (100_000, True)])
def test_a_function_with_a_large_frame_touches_every_page_of_the_stack(size: int, probes: bool) -> None:
    """Else a thread with a small stack would write behind the page that guards it, and nobody would notice."""
    module = Module()
    code = Code(module, "test", [V("i64", "%lo"), V("i64", "%hi")])
    room = code.alloca("i8", size)
    code.each(V("i64", "%lo"), V("i64", "%hi"), lambda index: code.store(typed("i8", 1), code.at(room, index)))
    code.finish()
    text = jit._target(GENERIC).emit_assembly(jit._llvm().parse_assembly(str(module)))
    assert bool(re.search(r"subq\s+\$4096, %rsp\s+movq\s+\$0, \(%rsp\)", text)) == probes
