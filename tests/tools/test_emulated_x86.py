"""The machines with AVX-512 are tried on every x86 processor, with their instructions as plain IR."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.runtime import trial
from cvm.executors.native.runtime.jit import Loaded, compiled
from cvm.executors.native.runtime.select import available
from tools import emulated_x86
from tools.emulated_x86 import emulated, emulated_machines, with_emulated_machines

ROOT = Path(__file__).parents[2]
HOST = next((machine for machine in available() if machine.name in {"amx", "ifma512", "avx2"}), None)
needs_x86 = pytest.mark.skipif(HOST is None, reason="this processor is no x86 processor with AVX2")

STRANGE = [pytest.param(machine, id=machine.name) for machine in emulated_machines()] or [
    pytest.param(None, marks=pytest.mark.skip("this processor has the instructions of all machines, or is no x86"))
]

Lanes = list[int]


def signed(number: int, bits: int) -> int:
    number %= 2**bits
    return number - 2**bits if number >= 2 ** (bits - 1) else number


def dot(bits: int, a_is_signed: bool) -> Callable[..., Lanes]:
    def result(total: Lanes, a: Lanes, b: Lanes) -> Lanes:
        per = 32 // bits
        out = []
        for lane, begin in enumerate(total):
            part = range(lane * per, lane * per + per)
            left = [signed(a[k], bits) if a_is_signed else a[k] % 2**bits for k in part]
            out.append(begin + sum(x * signed(b[k], bits) for x, k in zip(left, part, strict=True)))
        return out

    return result


def packed(bits: int, lowest: int, highest: int) -> Callable[..., Lanes]:
    def result(a: Lanes, b: Lanes) -> Lanes:
        in_128, out = 128 // bits, []
        for begin in range(0, len(a), in_128):
            for source in (a, b):
                out += [min(max(signed(x, bits), lowest), highest) for x in source[begin : begin + in_128]]
        return out

    return result


def multiply_add(shift: int) -> Callable[..., Lanes]:
    mask = 2**52 - 1
    return lambda total, a, b: [
        t + ((x & mask) * (y & mask) >> shift & mask) for t, x, y in zip(total, a, b, strict=True)
    ]


def permuted(table: Lanes, order: Lanes, *rest: Lanes) -> Lanes:
    whole = sum(rest, table)
    return [whole[number % len(whole)] for number in order]


def shuffled(table: Lanes, order: Lanes) -> Lanes:
    return [0 if number % 256 >= 128 else table[lane // 16 * 16 + number % 16] for lane, number in enumerate(order)]


INSTRUCTIONS: dict[str, tuple[int, list[int], Callable[..., Lanes]]] = {
    # name: bits of a lane of the result, bits of a lane of each operand as the definition sees it, the definition
    "vpdpbusd.512": (32, [32, 8, 8], dot(8, a_is_signed=False)),
    "vpdpbusd.256": (32, [32, 8, 8], dot(8, a_is_signed=False)),
    "vpdpwssd.512": (32, [32, 16, 16], dot(16, a_is_signed=True)),
    "vpmadd52l.uq.512": (64, [64, 64, 64], multiply_add(0)),
    "vpmadd52h.uq.512": (64, [64, 64, 64], multiply_add(52)),
    "packssdw.512": (16, [32, 32], packed(32, -(2**15), 2**15 - 1)),
    "packuswb.512": (8, [16, 16], packed(16, 0, 255)),
    "permvar.qi.512": (8, [8, 8], permuted),
    "vpermi2var.qi.512": (8, [8, 8, 8], lambda a, order, b: permuted(a, order, b)),
    "pshuf.b.512": (8, [8, 8], shuffled),
    "pmulhu.w.512": (16, [16, 16], lambda a, b: [x * y >> 16 for x, y in zip(a, b, strict=True)]),
}

TYPE_OF_OPERANDS = {"vpdpbusd": 32, "vpdpwssd": 32}
"""The bits of a lane in which LLVM names operands whose lanes the definition divides."""


def module(name: str, result: int, operands: list[int]) -> str:
    """A function (out, operands..) that calls the instruction once."""
    size = int(name.rpartition(".")[2])
    as_named = TYPE_OF_OPERANDS.get(name.partition(".")[0])
    types = [f"<{size // (as_named or bits)} x i{as_named or bits}>" for bits in operands]
    made = f"<{size // result} x i{result}>"
    loads = "".join(f"  %v{k} = load {type_}, ptr %p{k}, align 1\n" for k, type_ in enumerate(types))
    given = ", ".join(f"{type_} %v{k}" for k, type_ in enumerate(types))
    pointers = ", ".join(f"ptr %p{k}" for k in range(len(types)))
    return (
        f"define void @f(ptr %out, {pointers}) {{\n{loads}  %r = call {made} @llvm.x86.avx512.{name}({given})\n"
        f"  store {made} %r, ptr %out, align 1\n  ret void\n}}\n"
        f"declare {made} @llvm.x86.avx512.{name}({', '.join(types)})\n"
    )


@needs_x86
@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_an_emulated_instruction_gives_what_its_definition_says(name: str) -> None:
    result, operands, definition = INSTRUCTIONS[name]
    size, random = int(name.rpartition(".")[2]), Random(name)
    text = module(name, result, operands)
    assert HOST is not None
    codes = [compiled(emulated(text), HOST)]
    if HOST.name != "avx2":
        codes.append(compiled(text, HOST))  # the instruction itself
    for code in codes:
        library = Loaded(code, HOST)
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (1 + len(operands)))(library.address("f"))
        for _ in range(40):
            given = [
                [
                    random.choice((0, 1, 2**bits - 1, 2 ** (bits - 1), random.getrandbits(bits)))
                    for _ in range(size // bits)
                ]
                for bits in operands
            ]
            arrays = [np.array(lanes, f"uint{bits}") for lanes, bits in zip(given, operands, strict=True)]
            out = np.zeros(size // result, f"uint{result}")
            call(out.ctypes.data, *(array.ctypes.data for array in arrays))
            assert out.tolist() == [lane % 2**result for lane in definition(*given)]


def test_every_instruction_that_machines_call_has_a_body() -> None:
    called = set()
    for path in (ROOT / "cvm" / "executors" / "native").rglob("*.py"):
        called |= set(re.findall(r"llvm\.x86\.avx512\.([a-z0-9.]+)", path.read_text(encoding="utf-8")))
    assert len(called) >= 7
    for name in called:
        assert any(name.startswith(family) or family.startswith(name) for family in emulated_x86._BODIES), name


@pytest.mark.parametrize("machine", STRANGE)
def test_a_machine_that_this_processor_is_not_passes_a_part_of_its_trial(machine: Machine) -> None:
    with with_emulated_machines():
        assert trial.failure(machine, frozenset({"bytes, codes"})) is None


@pytest.mark.long
@pytest.mark.parametrize("machine", STRANGE)
def test_a_machine_that_this_processor_is_not_passes_its_trial(machine: Machine) -> None:
    with with_emulated_machines():
        assert trial.failure(machine) is None


@pytest.mark.parametrize("machine", STRANGE[:1])
def test_a_wrong_instruction_fails_the_trial(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dot product takes its bytes as signed ones: the check can fail."""
    monkeypatch.setitem(emulated_x86._BODIES, "vpdpbusd.", emulated_x86._dot("sext", 8))
    with with_emulated_machines():
        assert trial.failure(machine, frozenset({"bytes, codes"})) is not None
