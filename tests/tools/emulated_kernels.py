"""Kernels for the tests of the emulator: short modules, and what runs them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cvm.executors.cuda.device.protocol import Prepared
from tools.cuda_emulator import EmulatedDevice, KernelDefect

Array = npt.NDArray[Any]

THREAD = "  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n  %c = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n"
SHARED = "@room = internal addrspace(3) global [1024 x i8] undef, align 16\n"


def module(body: str, parameters: int = 2, variables: str = "") -> str:
    """A module with one kernel, ``k``, which declares what it calls."""
    calls = set(re.findall(r"call ([^@]*) @([\w.]+)\(((?:[^()]|\(\d\))*)\)", body))
    declared = set()
    for result, name, arguments in calls:
        types = re.findall(r"(?:^|, )(ptr addrspace\(\d\)|ptr|<[^>]*>|\w+)", arguments)
        declared.add(f"declare {result} @{name}({', '.join(types)})")
    names = ", ".join(f"ptr addrspace(1) %a{number}" for number in range(parameters))
    return "\n".join([variables, *sorted(declared), f"define ptx_kernel void @k({names}) {{\nentry:\n{body}\n}}"])


def launched(
    ir: str,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    block: int = 32,
    grid: tuple[int, int, int] = (1, 1, 1),
    shared: int = 0,
    threads: int = 1 << 15,
) -> None:
    """Run the kernel ``k`` on inputs, which it may not change, and fill the outputs."""
    device = EmulatedDevice(threads=threads)
    addresses = [device.allocate(array.nbytes) for array in (*inputs, *outputs)]
    for address, array in zip(addresses, inputs, strict=False):
        device.upload(address, array, constant=True)
    device.prepare(device.load(ir), [Prepared("k", grid, block, shared, tuple(addresses))]).start()
    for address, array in zip(addresses[len(inputs) :], outputs, strict=True):
        device.download(address, array)


def found(ir: str, kind: str, block: int = 32, grid: tuple[int, int, int] = (1, 1, 1), threads: int = 1 << 15) -> str:
    """The message of the defect that a kernel on two arrays of 1024 bytes, an input and an output, must have."""
    with pytest.raises(KernelDefect) as caught:
        launched(ir, [np.zeros(256, np.int32)], [np.zeros(256, np.int32)], block, grid, threads=threads)
    assert caught.value.kind == kind, str(caught.value)
    assert "kernel k" in str(caught.value) or kind in ("unwritten", "endless")
    return str(caught.value)


def applied(lines: str, types: Sequence[str], result: str, *operands: Array) -> Array:
    """Compute ``%r`` from ``%x``, ``%y``, ``%z``: thread i takes element i of each operand."""
    count = len(operands[0])
    body = [THREAD, "  %i = sext i32 %t to i64"]
    for number, (name, type_, array) in enumerate(zip("xyz", types, operands, strict=False)):
        body.append(f"  %o{number} = mul i64 %i, {array.nbytes // count}")
        body.append(f"  %p{number} = getelementptr i8, ptr addrspace(1) %a{number}, i64 %o{number}")
        body.append(f"  %{name} = load {type_}, ptr addrspace(1) %p{number}, align 1")
    size = _bytes(result)
    body += [lines, f"  %o = mul i64 %i, {size}"]
    body.append(f"  %p = getelementptr i8, ptr addrspace(1) %a{len(operands)}, i64 %o")
    body.append(f"  store {result} %r, ptr addrspace(1) %p, align 1\n  ret void")
    out = np.zeros((count, size), np.uint8)
    launched(module("\n".join(body), len(operands) + 1), operands, [out], block=count)
    return out


def _bytes(type_: str) -> int:
    if type_ == "double":
        return 8
    found = re.findall(r"\d+", type_)
    return math.prod(map(int, found)) // 8


def packed(numbers: Sequence[int], bits: int) -> Array:
    """Integers as rows of bytes."""
    size = bits // 8
    return np.frombuffer(b"".join((n % 2**bits).to_bytes(size, "little") for n in numbers), np.uint8).reshape(-1, size)


def unpacked(raw: Array) -> list[int]:
    """Rows of bytes as integers with a sign."""
    return [int.from_bytes(row.tobytes(), "little", signed=True) for row in raw]


def samples(bits: int, count: int, seed: int) -> list[int]:
    """Signed integers: the ends, powers of two and their neighbours, and others."""
    random, half = Random(seed), 2 ** (bits - 1)
    edges = [0, 1, -1, 2, -2, half - 1, -half, half // 2, 3, -7]
    numbers = [*edges, *(random.randrange(-half, half) for _ in range(9)), random.randrange(-300, 300)]
    return [wrap(random.choice(numbers), bits) for _ in range(count)]


def wrap(number: int, bits: int) -> int:
    half = 1 << bits - 1
    return (number + half) % (2 * half) - half


REVERSE = """
  %o = mul i32 %t, 4
  %ob = mul i32 %c, 256
  %oa = add i32 %o, %ob
  %p = getelementptr i8, ptr addrspace(1) %a0, i32 %oa
  %q = getelementptr i8, ptr addrspace(1) %a1, i32 %oa
  %x = load i32, ptr addrspace(1) %p, align 4
  %s = getelementptr i8, ptr addrspace(3) @room, i32 %o
  store i32 %x, ptr addrspace(3) %s, align 4
  call void @llvm.nvvm.barrier0()
  %w = sub i32 252, %o
  %r = getelementptr i8, ptr addrspace(3) @room, i32 %w
  %y = load i32, ptr addrspace(3) %r, align 4
  store i32 %y, ptr addrspace(1) %q, align 4
  ret void"""
