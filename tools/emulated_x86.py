"""Machines with AVX-512 on an x86 processor without it, for tests: their instructions as functions of plain IR.

The code that the native executor emits for such a machine is plain IR but for a dozen instructions, which it calls as
intrinsics of LLVM. `emulated` gives each of them a body in plain IR, written from the definition of the instruction in
Intel's manual (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2). The module then compiles for
any processor, with the same addresses, loops and registers; only the time it takes says nothing.

Tile registers (the machine "amx") are not emulated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

from cvm.executors.native.emit.machine import MACHINES, Machine
from cvm.executors.native.runtime import cache, jit, networks, select

__all__ = ["emulated", "emulated_machines", "with_emulated_machines"]

_PREFIX = "llvm.x86.avx512."
_DECLARED = re.compile(rf"^declare (<[^>]+>) @({re.escape(_PREFIX)}[a-z0-9.]+)\(([^)]*)\).*$", re.MULTILINE)


def emulated(text: str) -> str:
    """The same module with a body for each declared instruction of AVX-512.

    Raises `KeyError` for an instruction that has no body here.
    """

    def defined(found: re.Match[str]) -> str:
        result, name, operands = found[1], found[2].removeprefix(_PREFIX), found[3].split(", ")
        types = [" ".join(operand.split()[:3]) for operand in operands]
        family = next((family for family in _BODIES if name.startswith(family)), name)
        body = _BODIES[family](result, types)
        named = ", ".join(f"{type_} %{'abc'[number]}" for number, type_ in enumerate(types))
        return f"define internal {result} @emulated.{name}({named}) alwaysinline {{\n{body}}}"

    return _DECLARED.sub(defined, text).replace(f"@{_PREFIX}", "@emulated.")


def _lanes(type_: str) -> int:
    return int(type_[1:].split()[0])


def _order(numbers: list[int]) -> str:
    return f"<{len(numbers)} x i32> <{', '.join(f'i32 {number}' for number in numbers)}>"


def _dot(unsigned: str, bits: int) -> Callable[[str, list[str]], str]:
    """VPDPBUSD and VPDPWSSD: to each 32-bit lane, add the products of its 4 pairs of bytes or 2 pairs of words."""

    def body(result: str, types: list[str]) -> str:
        per = 32 // bits
        small, wide = f"<{per * _lanes(result)} x i{bits}>", f"<{per * _lanes(result)} x i32>"
        lines = [
            f"%x = bitcast {types[1]} %b to {small}",
            f"%y = bitcast {types[2]} %c to {small}",
            f"%p = {unsigned} {small} %x to {wide}",
            f"%q = sext {small} %y to {wide}",
            f"%m = mul {wide} %p, %q",
        ]
        total = "%a"
        for part in range(per):
            order = _order([per * lane + part for lane in range(_lanes(result))])
            lines.append(f"%m{part} = shufflevector {wide} %m, {wide} poison, {order}")
            lines.append(f"%t{part} = add {result} {total}, %m{part}")
            total = f"%t{part}"
        return _lines(*lines, f"ret {result} {total}")

    return body


def _multiply_add(high: bool) -> Callable[[str, list[str]], str]:
    """VPMADD52LUQ and VPMADD52HUQ: add the lower or upper 52 bits of the product of 52-bit numbers."""

    def body(result: str, _: list[str]) -> str:
        count = _lanes(result)
        wide = f"<{count} x i128>"
        mask, shift = (_splat(count, kind, number) for kind, number in (("i128", 2**52 - 1), ("i128", 52)))
        return _lines(
            f"%x = zext {result} %b to {wide}",
            f"%y = zext {result} %c to {wide}",
            f"%p = and {wide} %x, {mask}",
            f"%q = and {wide} %y, {mask}",
            f"%m = mul {wide} %p, %q",
            f"%s = lshr {wide} %m, {shift}" if high else f"%s = add {wide} %m, zeroinitializer",
            f"%k = and {wide} %s, {mask}",
            f"%n = trunc {wide} %k to {result}",
            f"%t = add {result} %a, %n",
            f"ret {result} %t",
        )

    return body


def _splat(count: int, kind: str, number: int) -> str:
    return f"<{', '.join([f'{kind} {number}'] * count)}>"


def _upper_product(result: str, _: list[str]) -> str:
    """VPMULHUW: the upper halves of the products of unsigned words."""
    wide = f"<{_lanes(result)} x i32>"
    return _lines(
        f"%x = zext {result} %a to {wide}",
        f"%y = zext {result} %b to {wide}",
        f"%m = mul {wide} %x, %y",
        f"%s = lshr {wide} %m, {_splat(_lanes(result), 'i32', 16)}",
        f"%t = trunc {wide} %s to {result}",
        f"ret {result} %t",
    )


def _pack(signed: bool) -> Callable[[str, list[str]], str]:
    """VPACKSSDW and VPACKUSWB: in each 128 bits, the saturated lanes of the first operand, then of the second one."""

    def body(result: str, types: list[str]) -> str:
        wide, count = types[0], _lanes(types[0])
        kind, narrow = wide.split()[2][:-1], result.split()[2][:-1]
        bits = int(narrow[1:])
        lowest, highest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        lines = []
        for name in "ab":
            for step, clip, bound in (("l", "sgt", lowest), ("h", "slt", highest)):
                source, limit = (f"%{name}" if step == "l" else f"%{name}l"), _splat(count, kind, bound)
                lines.append(f"%{name}{step}c = icmp {clip} {wide} {source}, {limit}")
                kept = f"select <{count} x i1> %{name}{step}c, {wide} {source}, {wide} {limit}"
                lines.append(f"%{name}{step} = {kept}")
            lines.append(f"%{name}n = trunc {wide} %{name}h to <{count} x {narrow}>")
        in_128 = 128 // int(kind[1:])
        order = [
            from_ + lane
            for first in range(0, count, in_128)
            for from_ in (first, count + first)
            for lane in range(in_128)
        ]
        half = f"<{count} x {narrow}>"
        lines.append(f"%t = shufflevector {half} %an, {half} %bn, {_order(order)}")
        return _lines(*lines, f"ret {result} %t")

    return body


def _permuted(result: str, table: str, size: int, order: str) -> list[str]:
    """Lane i of the result is the byte of the table with the number in lane i of ``order``, modulo its size."""
    count = _lanes(result)
    lines = [f"%o = and {result} {order}, {_splat(count, 'i8', size - 1)}"]
    before = "poison"
    for lane in range(count):
        lines += [
            f"%o{lane} = extractelement {result} %o, i64 {lane}",
            f"%e{lane} = extractelement <{size} x i8> {table}, i8 %o{lane}",
            f"%r{lane} = insertelement {result} {before}, i8 %e{lane}, i64 {lane}",
        ]
        before = f"%r{lane}"
    return [*lines, f"ret {result} {before}"]


def _permute_one(result: str, _: list[str]) -> str:
    """VPERMB: (table, order)."""
    return _lines(*_permuted(result, "%a", _lanes(result), "%b"))


def _permute_two(result: str, _: list[str]) -> str:
    """VPERMI2B: (table, order, rest of the table)."""
    size = 2 * _lanes(result)
    joined = f"%j = shufflevector {result} %a, {result} %c, {_order(list(range(size)))}"
    return _lines(joined, *_permuted(result, "%j", size, "%b"))


def _shuffle(result: str, _: list[str]) -> str:
    """VPSHUFB: (table, order). In each 16 bytes, the byte with the number in the order, or 0 if its sign bit is set."""
    count = _lanes(result)
    lines = [
        f"%low = and {result} %b, {_splat(count, 'i8', 15)}",
        f"%row = add {result} %low, <{', '.join(f'i8 {lane // 16 * 16}' for lane in range(count))}>",
        *_permuted(result, "%a", count, "%row")[:-1],
        f"%negative = icmp slt {result} %b, zeroinitializer",
        f"%t = select <{count} x i1> %negative, {result} zeroinitializer, {result} %r{count - 1}",
    ]
    return _lines(*lines, f"ret {result} %t")


def _lines(*lines: str) -> str:
    return "".join(f"  {line}\n" for line in lines)


_BODIES: dict[str, Callable[[str, list[str]], str]] = {
    "vpdpbusd.": _dot("zext", 8),
    "vpdpwssd.": _dot("sext", 16),
    "vpmadd52l.uq.": _multiply_add(high=False),
    "vpmadd52h.uq.": _multiply_add(high=True),
    "packssdw.": _pack(signed=True),
    "packuswb.": _pack(signed=False),
    "permvar.qi.": _permute_one,
    "vpermi2var.qi.": _permute_two,
    "pshuf.b.": _shuffle,
    "pmulhu.w.": _upper_product,
}


def emulated_machines() -> tuple[Machine, ...]:
    """The machines of x86 that this processor is not and that can be emulated; none on other processors."""
    if not any(machine.name == "avx2" for machine in select.available()):
        return ()
    return tuple(
        machine for machine in MACHINES if machine not in select.available() and machine.packs and not machine.tiles
    )


@contextmanager
def with_emulated_machines() -> Iterator[None]:
    """Compile the emulated machines' code for this processor. What is compiled meanwhile is not kept in a cache."""
    strange, compiled = emulated_machines(), jit.compiled

    def compile_(text: str, machine: Machine) -> bytes:
        return compiled(emulated(text) if machine in strange else text, machine)

    def keep_nothing(*_: object, **__: object) -> None:
        pass

    with (
        mock.patch.object(jit, "compiled", compile_),
        mock.patch.object(networks, "compiled", compile_),
        mock.patch.object(cache, "write", keep_nothing),
    ):
        yield
