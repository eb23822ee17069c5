"""The emulator of CUDA kernels: what instructions compute, and that each planted defect is found by name."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.executors.cuda.device.protocol import Prepared
from tools.cuda_emulator import EmulatedDevice, KernelDefect, NotEmulated

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
    half = 2 ** (bits - 1)
    return (number + half) % (2 * half) - half


def cut(a: int, b: int) -> int:
    """The quotient rounded towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


BINARY: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, bits: a + b,
    "sub": lambda a, b, bits: a - b,
    "mul": lambda a, b, bits: a * b,
    "and": lambda a, b, bits: a & b,
    "or": lambda a, b, bits: a | b,
    "xor": lambda a, b, bits: a ^ b,
    "udiv": lambda a, b, bits: a % 2**bits // ((b % 2**bits) or 1),
    "urem": lambda a, b, bits: a % 2**bits % ((b % 2**bits) or 1),
    "sdiv": lambda a, b, bits: cut(a, b or 1),
    "srem": lambda a, b, bits: a - (b or 1) * cut(a, b or 1),
    "shl": lambda a, b, bits: a << b % bits,
    "lshr": lambda a, b, bits: a % 2**bits >> b % bits,
    "ashr": lambda a, b, bits: a >> b % bits,
}


@pytest.mark.parametrize("bits", [8, 16, 24, 32, 64, 128, 256])
@pytest.mark.parametrize("op", BINARY)
def test_binary_instructions_are_those_of_integers(op: str, bits: int) -> None:
    a, b = samples(bits, 96, 1), samples(bits, 96, 2)
    if op in ("udiv", "urem", "sdiv", "srem"):
        b = [n or 1 for n in b]
        a = [n if op[0] == "u" or m != -1 else max(n, 1 - 2 ** (bits - 1)) for n, m in zip(a, b, strict=True)]
    if op in ("shl", "lshr", "ashr"):
        b = [n % bits for n in b]
    raw = applied(f"  %r = {op} i{bits} %x, %y", [f"i{bits}"] * 2, f"i{bits}", packed(a, bits), packed(b, bits))
    assert unpacked(raw) == [wrap(BINARY[op](n, m, bits), bits) for n, m in zip(a, b, strict=True)]


INTRINSICS: dict[str, tuple[str, Callable[..., int]]] = {
    "smax": ("ii", lambda a, b, bits: max(a, b)),
    "smin": ("ii", lambda a, b, bits: min(a, b)),
    "umax": ("ii", lambda a, b, bits: max(a % 2**bits, b % 2**bits)),
    "umin": ("ii", lambda a, b, bits: min(a % 2**bits, b % 2**bits)),
    "abs": ("if", lambda a, bits: abs(a)),
    "ctlz": ("if", lambda a, bits: bits - (a % 2**bits).bit_length()),
    "cttz": ("if", lambda a, bits: (a & -a).bit_length() - 1 if a else bits),
    "ctpop": ("i", lambda a, bits: (a % 2**bits).bit_count()),
    "fshl": ("iii", lambda a, b, c, bits: ((a % 2**bits << bits | b % 2**bits) << c % bits) >> bits),
    "fshr": ("iii", lambda a, b, c, bits: (a % 2**bits << bits | b % 2**bits) >> c % bits),
    "sadd.sat": ("ii", lambda a, b, bits: min(max(a + b, -(2 ** (bits - 1))), 2 ** (bits - 1) - 1)),
    "usub.sat": ("ii", lambda a, b, bits: max(a % 2**bits - b % 2**bits, 0)),
}


@pytest.mark.parametrize(
    ("name", "bits"),
    [(name, bits) for name in INTRINSICS for bits in (8, 16, 32, 64)]
    + [(name, bits) for name in ("smax", "smin", "umax", "umin") for bits in (128, 256)],
)
def test_intrinsics_are_those_of_integers(name: str, bits: int) -> None:
    form, expected = INTRINSICS[name]
    operands = [samples(bits, 64, seed) for seed in range(form.count("i"))]
    arguments = [f"i{bits} %{v}" for v in "xyz"[: len(operands)]] + ["i1 false"] * form.count("f")
    line = f"  %r = call i{bits} @llvm.{name}.i{bits}({', '.join(arguments)})"
    raw = applied(line, [f"i{bits}"] * 3, f"i{bits}", *[packed(one, bits) for one in operands])
    assert unpacked(raw) == [wrap(expected(*row, bits), bits) for row in zip(*operands, strict=True)]


def _bytes_of(word: int, sign: str) -> list[int]:
    return (
        list((word % 2**32).to_bytes(4, "little"))
        if sign == "u"
        else [wrap(b, 8) for b in (word % 2**32).to_bytes(4, "little")]
    )


@pytest.mark.parametrize("signs", ["s.s", "u.u", "s.u", "u.s"])
def test_dot_products_of_bytes(signs: str) -> None:
    a, b, c = (samples(32, 64, seed) for seed in range(3))
    line = f"  %r = call i32 @llvm.nvvm.idp4a.{signs}(i32 %x, i32 %y, i32 %z)"
    raw = applied(line, ["i32"] * 3, "i32", *[packed(one, 32) for one in (a, b, c)])
    dots = [
        sum(map(operator.mul, _bytes_of(n, signs[0]), _bytes_of(m, signs[2]))) + k
        for n, m, k in zip(a, b, c, strict=True)
    ]
    assert unpacked(raw) == [wrap(dot, 32) for dot in dots]
    line = f"  %r = call i32 @llvm.nvvm.idp2a.{signs}(i32 %x, i32 %y, i1 true, i32 %z)"
    raw = applied(line, ["i32"] * 3, "i32", *[packed(one, 32) for one in (a, b, c)])
    halves = [[n % 2**16, n >> 16 & 0xFFFF] for n in a]
    if signs[0] == "s":
        halves = [[wrap(h, 16) for h in pair] for pair in halves]
    dots = [sum(map(operator.mul, h, _bytes_of(m, signs[2])[2:])) + k for h, m, k in zip(halves, b, c, strict=True)]
    assert unpacked(raw) == [wrap(dot, 32) for dot in dots]


def test_bytes_are_permuted_by_nibbles() -> None:
    a, b, selectors = samples(32, 64, 1), samples(32, 64, 2), samples(32, 64, 3)
    line = "  %r = call i32 @llvm.nvvm.prmt(i32 %x, i32 %y, i32 %z)"
    raw = applied(line, ["i32"] * 3, "i32", *[packed(one, 32) for one in (a, b, selectors)])
    for row, n, m, selector in zip(raw, a, b, selectors, strict=True):
        bytes_ = _bytes_of(n, "u") + _bytes_of(m, "u")
        nibbles = [selector >> 4 * k & 15 for k in range(4)]
        expected = [bytes_[k & 7] if k < 8 else 255 * (bytes_[k & 7] >> 7) for k in nibbles]
        assert row.tolist() == expected


def test_upper_halves_of_products() -> None:
    for bits, name in ((32, "i"), (64, "ll")):
        a, b = samples(bits, 64, 1), samples(bits, 64, 2)
        for mark in ("", "u"):
            word = name if not mark else f"u{name}"
            line = f"  %r = call i{bits} @llvm.nvvm.mulhi.{word}(i{bits} %x, i{bits} %y)"
            raw = applied(line, [f"i{bits}"] * 2, f"i{bits}", packed(a, bits), packed(b, bits))
            pairs = zip(a, b, strict=True)
            high = [(n * m if not mark else n % 2**bits * (m % 2**bits)) >> bits for n, m in pairs]
            assert unpacked(raw) == [wrap(n, bits) for n in high]


@pytest.mark.parametrize("word", ["eq", "ne", "sgt", "sge", "slt", "sle", "ugt", "uge", "ult", "ule"])
@pytest.mark.parametrize("bits", [8, 32, 64, 128])
def test_comparisons(word: str, bits: int) -> None:
    a, b = samples(bits, 64, 1), samples(bits, 64, 2)
    lines = f"  %q = icmp {word} i{bits} %x, %y\n  %r = zext i1 %q to i8"
    raw = applied(lines, [f"i{bits}"] * 2, "i8", packed(a, bits), packed(b, bits))
    relation = getattr(operator, word[-2:])
    numbers = [(n, m) if word[0] != "u" else (n % 2**bits, m % 2**bits) for n, m in zip(a, b, strict=True)]
    assert unpacked(raw) == [int(relation(n, m)) for n, m in numbers]


@pytest.mark.parametrize("bits", [8, 32, 64])
def test_widths_change_with_and_without_sign(bits: int) -> None:
    a = samples(bits, 64, 1)
    for op, to, expected in (
        ("sext", 2 * bits, lambda n: n),
        ("zext", 2 * bits, lambda n: n % 2**bits),
        ("trunc", bits // 2, lambda n: n),
    ):
        if to % 8:
            continue
        raw = applied(f"  %r = {op} i{bits} %x to i{to}", [f"i{bits}"], f"i{to}", packed(a, bits))
        assert unpacked(raw) == [wrap(expected(n), to) for n in a]


def test_vectors_and_their_lanes() -> None:
    a = packed(samples(128, 32, 1), 128)
    lines = """
  %d = bitcast i64 7 to <8 x i8>
  %e = extractelement <4 x i32> %x, i64 2
  %f = insertelement <4 x i32> %x, i32 %e, i64 0
  %g = shufflevector <4 x i32> %f, <4 x i32> %x, <4 x i32> <i32 0, i32 7, i32 2, i32 5>
  %h = mul <4 x i32> %g, splat (i32 3)
  %neg = icmp slt <4 x i32> %h, zeroinitializer
  %b = bitcast <4 x i1> %neg to i4
  %w = zext i4 %b to i32
  %s = select <4 x i1> %neg, <4 x i32> %h, <4 x i32> %x
  %k = bitcast <4 x i32> %s to <16 x i8>
  %l = extractelement <16 x i8> %k, i64 5
  %m = sext i8 %l to i32
  %n = insertelement <4 x i32> %s, i32 %w, i64 1
  %o9 = insertelement <4 x i32> %n, i32 %m, i64 3
  %r = add <4 x i32> %o9, <i32 0, i32 1, i32 2, i32 3>"""
    raw = applied(lines, ["<4 x i32>"], "<4 x i32>", a)
    x = a.view(np.int32)
    g = np.stack([x[:, 2], x[:, 3], x[:, 2], x[:, 1]], axis=1)
    h = g * np.int32(3)
    s = np.where(h < 0, h, x)
    w = ((h < 0) * [1, 2, 4, 8]).sum(axis=1)
    m = np.ascontiguousarray(s).view(np.int8)[:, 5]
    expected = np.stack([s[:, 0], w + 1, s[:, 2] + np.int32(2), m + 3], axis=1).astype(np.int32)
    assert np.array_equal(raw.view(np.int32), expected)


def test_a_fused_multiply_add_rounds_once() -> None:
    random = Random(3)
    rows = []
    for _ in range(400):
        a, b = (math.ldexp(random.uniform(-1, 1), random.randint(-40, 40)) for _ in range(2))
        near = -a * b * (1 + random.choice([0, 2.0**-52, -(2.0**-52), 2.0**-30]))
        rows.append((a, b, random.choice([near, random.uniform(-1, 1), 0.0, near * 2.0**60, 1e-300])))
    rows += [(1e-200, 1e-200, 5e-324), (1e300, 1e10, -1.0), (2.0**-600, 2.0**-474, 2.0**-1074), (0.0, 3.0, 0.1)]
    operands = [np.array(column) for column in zip(*rows, strict=True)]
    line = "  %r = call double @llvm.fma.f64(double %x, double %y, double %z)"
    raw = applied(line, ["double"] * 3, "double", *operands).view(np.float64)[:, 0]
    for (a, b, c), got in zip(rows, raw, strict=True):
        try:
            expected = float(Fraction(a) * Fraction(b) + Fraction(c))
        except OverflowError:
            expected = math.inf
        assert got == expected, (a, b, c)


def test_float64_and_integers() -> None:
    a = samples(64, 64, 1)
    raw = applied("  %r = sitofp i64 %x to double", ["i64"], "double", packed(a, 64)).view(np.float64)[:, 0]
    assert raw.tolist() == [float(n) for n in a]
    raw = applied("  %r = uitofp i64 %x to double", ["i64"], "double", packed(a, 64)).view(np.float64)[:, 0]
    assert raw.tolist() == [float(n % 2**64) for n in a]
    numbers = np.array([0.5, -0.5, 2.9, -2.9, 2.0**31 - 1, -(2.0**31)])
    raw = applied("  %r = fptosi double %x to i32", ["double"], "i32", numbers)
    assert unpacked(raw) == [0, 0, 2, -2, 2**31 - 1, -(2**31)]


# Control flow --------------------------------------------------------------------------------------------------------

COLLATZ = """
  %o = mul i32 %t, 4
  %p = getelementptr i8, ptr addrspace(1) %a0, i32 %o
  %q = getelementptr i8, ptr addrspace(1) %a1, i32 %o
  %start = load i32, ptr addrspace(1) %p, align 4
  br label %top
top:
  %n = phi i32 [ %start, %entry ], [ %m, %next ]
  %k = phi i32 [ 0, %entry ], [ %k1, %next ]
  %one = icmp eq i32 %n, 1
  br i1 %one, label %done, label %go
go:
  %low = and i32 %n, 1
  %odd = icmp ne i32 %low, 0
  br i1 %odd, label %up, label %down
up:
  %n3 = mul i32 %n, 3
  %u = add i32 %n3, 1
  br label %next
down:
  %d = lshr i32 %n, 1
  br label %next
next:
  %m = phi i32 [ %u, %up ], [ %d, %down ]
  %k1 = add nsw i32 %k, 1
  br label %top
done:
  store i32 %k, ptr addrspace(1) %q, align 4
  ret void"""


def test_threads_part_and_meet_again() -> None:
    starts, steps = np.arange(1, 97, dtype=np.int32), np.zeros(96, np.int32)
    launched(module(THREAD + COLLATZ), [starts], [steps], block=96)

    def length(n: int) -> int:
        return 0 if n == 1 else 1 + length(3 * n + 1 if n % 2 else n // 2)

    assert steps.tolist() == [length(int(n)) for n in starts]


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


@pytest.mark.parametrize("threads", [64, 128, 1 << 15])
def test_blocks_exchange_values_through_shared_memory(threads: int) -> None:
    x, y = np.arange(320, dtype=np.int32), np.zeros(320, np.int32)
    launched(module(THREAD + REVERSE, variables=SHARED), [x], [y], 64, (5, 1, 1), threads=threads)
    assert np.array_equal(y.reshape(5, 64), x.reshape(5, 64)[:, ::-1])


def test_dynamic_shared_memory_has_the_size_of_the_launch() -> None:
    variables = "@room = external addrspace(3) global [0 x i8], align 16\n"
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    launched(module(THREAD + REVERSE, variables=variables), [x], [y], 64, shared=256)
    assert np.array_equal(y, x[::-1])
    with pytest.raises(KernelDefect, match="outside"):
        launched(module(THREAD + REVERSE, variables=variables), [x], [y], 64, shared=252)


def test_a_block_has_its_index_in_three_directions() -> None:
    body = "  %x = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n  %y = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()\n"
    body += "  %z = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.z()\n  %nx = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()\n"
    body += "  %ny = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.y()\n  %h = mul i32 %z, %ny\n  %i = add i32 %h, %y\n"
    body += "  %j = mul i32 %i, %nx\n  %k = add i32 %j, %x\n  %o = mul i32 %k, 4\n  %w = mul i32 %z, 100\n"
    body += "  %v = add i32 %w, %x\n  %p = getelementptr i8, ptr addrspace(1) %a0, i32 %o\n"
    body += "  store i32 %v, ptr addrspace(1) %p, align 4\n  ret void"
    out = np.zeros((2, 3, 4), np.int32)
    launched(module(body, 1), [], [out], 1, (4, 3, 2))
    assert np.array_equal(out, np.arange(2)[:, None, None] * 100 + np.arange(4) + np.zeros((1, 3, 1), int))


def test_local_memory_and_constants() -> None:
    variables = '@table = private unnamed_addr constant [4 x i8] c"\\05\\\\\\22\\FF", align 1\n'
    body = (
        THREAD
        + """
  %room = alloca [4 x i32], align 16
  %i = and i32 %t, 3
  %g = getelementptr [4 x i8], ptr @table, i64 0, i32 %i
  %b = load i8, ptr %g, align 1
  %w = zext i8 %b to i32
  %o = mul i32 %i, 4
  %l = getelementptr i8, ptr %room, i32 %o
  store i32 %w, ptr %l, align 4
  %v = load i32, ptr %l, align 4
  %oo = mul i32 %t, 4
  %q = getelementptr i8, ptr addrspace(1) %a0, i32 %oo
  store i32 %v, ptr addrspace(1) %q, align 4
  ret void"""
    )
    out = np.zeros(32, np.int32)
    launched(module(body, 1, variables), [], [out])
    assert out.tolist() == [5, 92, 34, 255] * 8
    read = body.replace("  store i32 %w, ptr %l, align 4\n", "")
    assert "local memory" in found(module(read, 2, variables), "unwritten")
    store = body.replace("store i32 %w, ptr %l, align 4", "store i8 %b, ptr %g, align 1")
    found(module(store, 2, variables), "constant")


# Warps ---------------------------------------------------------------------------------------------------------------


def _products(signs: str, guard: str = "") -> str:
    """One warp multiplies A (16 x 32, by rows) and B (32 x 8, by columns), and adds C (16 x 8)."""
    a = ", ".join(f"i32 %m{k}" for k in range(4))
    lines = [SHARED, "declare { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3))"]
    lines.append("declare { i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x2.b16.p3(ptr addrspace(3))")
    mma = f"@llvm.nvvm.mma.m16n8k32.row.col.{signs}"
    lines.append(f"declare {{ i32, i32, i32, i32 }} {mma}({', '.join(['i32'] * 10)})")
    lines += ["declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()", "declare void @llvm.nvvm.barrier0()"]
    lines.append("define ptx_kernel void @k(ptr addrspace(1) %a0, ptr addrspace(1) %a1, ptr addrspace(1) %a2, "
                 "ptr addrspace(1) %a3) {\nentry:\n  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()")  # fmt: skip
    lines.append("""
  %o16 = mul i32 %t, 16
  %o8 = mul i32 %t, 8
  %pa = getelementptr i8, ptr addrspace(1) %a0, i32 %o16
  %pb = getelementptr i8, ptr addrspace(1) %a1, i32 %o8
  %va = load <4 x i32>, ptr addrspace(1) %pa, align 16
  %vb = load <2 x i32>, ptr addrspace(1) %pb, align 8
  %sb0 = getelementptr i8, ptr addrspace(3) @room, i32 512
  %sa = getelementptr i8, ptr addrspace(3) @room, i32 %o16
  %sb = getelementptr i8, ptr addrspace(3) %sb0, i32 %o8
  store <4 x i32> %va, ptr addrspace(3) %sa, align 16
  store <2 x i32> %vb, ptr addrspace(3) %sb, align 8
  call void @llvm.nvvm.barrier0()
  %matrix = lshr i32 %t, 3
  %row8 = and i32 %t, 7
  %lower = and i32 %matrix, 1
  %right = lshr i32 %matrix, 1
  %r1 = mul i32 %lower, 8
  %row = add i32 %r1, %row8
  %r2 = mul i32 %row, 32
  %r3 = mul i32 %right, 16
  %ra = add i32 %r2, %r3
  %la = getelementptr i8, ptr addrspace(3) @room, i32 %ra
  %ma = call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3) %la)
  %q2 = mul i32 %row8, 32
  %q3 = mul i32 %lower, 16
  %rb = add i32 %q2, %q3
  %lb = getelementptr i8, ptr addrspace(3) %sb0, i32 %rb
  %mb = call { i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x2.b16.p3(ptr addrspace(3) %lb)""")
    lines += [f"  %m{k} = extractvalue {{ i32, i32, i32, i32 }} %ma, {k}" for k in range(4)]
    lines += [f"  %n{k} = extractvalue {{ i32, i32 }} %mb, {k}" for k in range(2)]
    lines += ["  %g = lshr i32 %t, 2\n  %l = and i32 %t, 3\n  %g32 = mul i32 %g, 32\n  %l8 = mul i32 %l, 8",
              "  %oc = add i32 %g32, %l8\n  %oc8 = add i32 %oc, 256"]  # fmt: skip
    for k, name in enumerate(("%oc", "%oc8")):
        lines.append(f"  %pc{k} = getelementptr i8, ptr addrspace(1) %a2, i32 {name}")
        lines.append(f"  %pd{k} = getelementptr i8, ptr addrspace(1) %a3, i32 {name}")
        lines.append(f"  %c{k} = load <2 x i32>, ptr addrspace(1) %pc{k}, align 8")
        lines += [f"  %c{k}{i} = extractelement <2 x i32> %c{k}, i64 {i}" for i in range(2)]
    lines.append(guard)
    c = ", ".join(f"i32 %c{k}{i}" for k in range(2) for i in range(2))
    lines.append(f"  %d = call {{ i32, i32, i32, i32 }} {mma}({a}, i32 %n0, i32 %n1, {c})")
    for k in range(2):
        for i in range(2):
            lines.append(f"  %d{k}{i} = extractvalue {{ i32, i32, i32, i32 }} %d, {2 * k + i}")
        lines.append(f"  %w{k} = insertelement <2 x i32> poison, i32 %d{k}0, i64 0")
        lines.append(f"  %x{k} = insertelement <2 x i32> %w{k}, i32 %d{k}1, i64 1")
        lines.append(f"  store <2 x i32> %x{k}, ptr addrspace(1) %pd{k}, align 8")
    lines.append("  br label %done\ndone:\n  ret void\n}" if guard else "  ret void\n}")
    return "\n".join(lines)


@pytest.mark.parametrize("signs", ["s8", "u8", "s8.u8", "u8.s8"])
def test_a_warp_multiplies_matrices(signs: str) -> None:
    random = np.random.default_rng(1)
    kinds = [np.int8 if one == "s8" else np.uint8 for one in (signs.split(".") * 2)[:2]]
    a = random.integers(np.iinfo(kinds[0]).min, np.iinfo(kinds[0]).max, (16, 32), kinds[0], endpoint=True)
    b = random.integers(np.iinfo(kinds[1]).min, np.iinfo(kinds[1]).max, (32, 8), kinds[1], endpoint=True)
    c = random.integers(-(2**31), 2**31, (16, 8), np.int32)
    d = np.zeros((16, 8), np.int32)
    launched(_products(signs), [a, np.ascontiguousarray(b.T), c], [d])
    expected = a.astype(np.int64) @ b.astype(np.int64) + c
    assert np.array_equal(d, expected.astype(np.int32))


def test_a_product_of_matrices_in_divergent_code_is_found() -> None:
    guard = "  %some = icmp slt i32 %t, 31\n  br i1 %some, label %go, label %done\ngo:"
    arrays = [np.zeros(512, np.int8), np.zeros(256, np.int8), np.zeros(128, np.int32)]
    with pytest.raises(KernelDefect, match=r"divergent: thread 0 .* 31 do; kernel k, instruction: %d = call"):
        launched(_products("s8", guard), arrays, [np.zeros(128, np.int32)])


@pytest.mark.parametrize(("mode", "clamp"), [("bfly", 31), ("down", 31), ("up", 0), ("idx", 31)])
def test_threads_of_a_warp_exchange_values(mode: str, clamp: int) -> None:
    x = np.arange(100, 164, dtype=np.int32)
    line = f"  %r = call i32 @llvm.nvvm.shfl.sync.{mode}.i32(i32 -1, i32 %x, i32 5, i32 {clamp})"
    got = applied(line, ["i32"], "i32", x).view(np.int32)[:, 0]
    lane, warp = np.arange(64) % 32, np.arange(64) // 32 * 32
    source = {"bfly": lane ^ 5, "down": lane + 5, "up": lane - 5, "idx": 0 * lane + 5}[mode]
    source = np.where((source >= 0) & (source < 32), source, lane)
    assert np.array_equal(got, x[warp + source])


def test_warps_vote_and_fold() -> None:
    x = np.array(samples(32, 64, 5), np.int32)
    lines = "  %q = icmp sgt i32 %x, 1\n  %r = call i32 @llvm.nvvm.vote.ballot.sync(i32 -1, i1 %q)"
    got = applied(lines, ["i32"], "i32", x).view(np.uint32)[:, 0]
    bits = [sum(1 << k for k in range(32) if x[w + k] > 1) for w in (0, 32)]
    assert got.tolist() == [bits[0]] * 32 + [bits[1]] * 32
    folds = {"add": lambda v: v.sum(dtype=np.int32), "umax": lambda v: v.view(np.uint32).max().astype(np.int32)}
    for name, fold in folds.items():
        line = f"  %r = call i32 @llvm.nvvm.redux.sync.{name}(i32 %x, i32 -1)"
        got = applied(line, ["i32"], "i32", x).view(np.int32)[:, 0]
        assert got.tolist() == [int(fold(x[w : w + 32])) for w in (0, 32) for _ in range(32)]


def test_a_mask_that_leaves_threads_out_is_found() -> None:
    body = THREAD + "  %r = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 65535, i32 %t, i32 1, i32 31)\n  ret void"
    found(module(body), "divergent")


# Asynchronous copies -------------------------------------------------------------------------------------------------

COPIES = """
  %o = mul i32 %t, 16
  %s = getelementptr i8, ptr addrspace(3) @room, i32 %o
  %g = getelementptr i8, ptr addrspace(1) %a0, i32 %o
  call void @llvm.nvvm.cp.async.cg.shared.global.16(ptr addrspace(3) %s, ptr addrspace(1) %g)
  call void @llvm.nvvm.cp.async.commit.group()
  %s2 = getelementptr i8, ptr addrspace(3) %s, i32 512
  call void @llvm.nvvm.cp.async.cg.shared.global.16(ptr addrspace(3) %s2, ptr addrspace(1) %g)
  call void @llvm.nvvm.cp.async.commit.group()
  call void @llvm.nvvm.cp.async.wait.group(i32 1)
  call void @llvm.nvvm.barrier0()
  %w = sub i32 496, %o
  %r = getelementptr i8, ptr addrspace(3) @room, i32 %w
  %y = load <4 x i32>, ptr addrspace(3) %r, align 16
  %q = getelementptr i8, ptr addrspace(1) %a1, i32 %o
  store <4 x i32> %y, ptr addrspace(1) %q, align 16
  ret void"""


def test_copies_arrive_when_they_are_waited_for() -> None:
    x, y = np.arange(128, dtype=np.int32), np.zeros(128, np.int32)
    launched(module(THREAD + COPIES, variables=SHARED), [x], [y])
    assert np.array_equal(y.reshape(32, 4), x.reshape(32, 4)[::-1])


def test_a_copy_fills_what_it_does_not_read_with_zeros() -> None:
    body = (
        THREAD
        + """
  %o = mul i32 %t, 4
  %s = getelementptr i8, ptr addrspace(3) @room, i32 %o
  %g = getelementptr i8, ptr addrspace(1) %a0, i32 %o
  %n = urem i32 %t, 5
  call void @llvm.nvvm.cp.async.ca.shared.global.4.s(ptr addrspace(3) %s, ptr addrspace(1) %g, i32 %n)
  call void @llvm.nvvm.cp.async.wait.all()
  %y = load i32, ptr addrspace(3) %s, align 4
  %q = getelementptr i8, ptr addrspace(1) %a1, i32 %o
  store i32 %y, ptr addrspace(1) %q, align 4
  ret void"""
    )
    x, y = np.full((32, 4), 7, np.uint8), np.zeros((32, 4), np.uint8)
    write = "  %q = getelementptr i8, ptr addrspace(1) %a1, i32 %o\n  store i32 1, ptr addrspace(1) %q, align 4\n"
    begun = body.split("  call void @llvm.nvvm.cp.async.wait.all()")[0].replace("  %n =", write + "  %n =")
    found(module(begun.replace("%a0, i32 %o", "%a1, i32 0") + "  ret void", variables=SHARED), "race")
    launched(module(body, variables=SHARED), [x], [y])
    assert np.array_equal(y, 7 * (np.arange(4) < np.arange(32)[:, None] % 5))


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("wait.group(i32 1)", "wait.group(i32 2)", "pending copy"),
        ("  call void @llvm.nvvm.cp.async.wait.group(i32 1)\n", "", "pending copy"),
        ("%y = load <4 x i32>, ptr addrspace(3) %r", "%y = load <4 x i32>, ptr addrspace(3) %s2", "pending copy"),
        ("  call void @llvm.nvvm.barrier0()\n", "", "race"),
        ("i32 512\n", "i32 0\n", "pending copy"),
        ("i32 512\n", "i32 1008\n", "outside"),
        ("i32 512\n", "i32 510\n", "misaligned"),
    ],
)
def test_defects_of_copies_are_found(old: str, new: str, kind: str) -> None:
    assert old in COPIES
    found(module(THREAD + COPIES.replace(old, new), variables=SHARED), kind)


# Defects -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("  call void @llvm.nvvm.barrier0()\n", "", "race"),
        ("i8, ptr addrspace(3) @room, i32 %o", "i8, ptr addrspace(3) @room, i32 0", "race"),
        ("store i32 %x, ptr addrspace(3) %s", "store i32 5, ptr addrspace(3) @room", "race"),
        ("i32 252, %o", "i32 508, %o", "unwritten"),
        ("i32 252, %o", "i32 248, %o", "outside"),
        ("i32 252, %o", "i32 1272, %o", "outside"),
        ("i32 252, %o", "i32 254, %o", "misaligned"),
        ("ptr addrspace(1) %q, align 4", "ptr addrspace(1) %p, align 4", "constant"),
        ("ptr addrspace(1) %a1, i32 %oa", "ptr addrspace(1) %a1, i32 %o", "block race"),
        ("%x = load i32, ptr addrspace(1) %p", "%x = load i32, ptr addrspace(1) %q", "unwritten"),
        ("mul i32 %t, 4", "mul i32 %t, 32", "outside"),
        ("%y = load i32, ptr addrspace(3) %r", "%y = load i32, ptr addrspace(1) null", "outside"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("threads", [64, 1 << 15])
def test_defects_of_memory_are_found(old: str, new: str, kind: str, threads: int) -> None:
    assert old in REVERSE
    message = found(module(THREAD + REVERSE.replace(old, new), variables=SHARED), kind, 64, (4, 1, 1), threads)
    assert re.search(r"thread \d+ of block \(\d, 0, 0\)", message)


def test_a_barrier_that_orders_nothing_between_blocks_is_no_excuse() -> None:
    body = (
        THREAD
        + """
  %o = mul i32 %c, 4
  %p = getelementptr i8, ptr addrspace(1) %a1, i32 %o
  store i32 1, ptr addrspace(1) %p, align 4
  call void @llvm.nvvm.barrier0()
  %q = load i32, ptr addrspace(1) %a1, align 4
  ret void"""
    )
    for threads in (1, 8):
        assert "another block has written" in found(module(body), "block race", 1, (4, 1, 1), threads)


BARRIERS = {
    "divergent": """
  %few = icmp slt i32 %t, 40
  br i1 %few, label %in, label %out
in:
  call void @llvm.nvvm.barrier0()
  br label %out
out:
  ret void""",
    "two barriers": """
  %few = icmp slt i32 %t, 40
  br i1 %few, label %in, label %other
in:
  call void @llvm.nvvm.barrier0()
  br label %out
other:
  call void @llvm.nvvm.barrier0()
  br label %out
out:
  ret void""",
    "another count": """
  br label %top
top:
  %k = phi i32 [ 0, %entry ], [ %k1, %top ]
  call void @llvm.nvvm.barrier0()
  %k1 = add i32 %k, 1
  %far = icmp eq i32 %t, 5
  %n = select i1 %far, i32 3, i32 2
  %again = icmp slt i32 %k1, %n
  br i1 %again, label %top, label %out
out:
  ret void""",
}


@pytest.mark.parametrize("body", BARRIERS.values(), ids=BARRIERS)
def test_barriers_that_some_threads_leave_out_are_found(body: str) -> None:
    assert "of 64 threads of block (0, 0, 0) wait" in found(module(THREAD + body), "barrier", 64)


def test_a_barrier_in_code_that_whole_blocks_take_is_no_defect() -> None:
    body = THREAD + "  %odd = and i32 %c, 1\n  %few = icmp eq i32 %odd, 0\n" + BARRIERS["divergent"].split("\n", 2)[2]
    out = "  %o = mul i32 %c, 4\n  %q = getelementptr i8, ptr addrspace(1) %a0, i32 %o\n"
    out += "  store i32 %c, ptr addrspace(1) %q, align 4\n  ret void"
    result = np.zeros(8, np.int32)
    launched(module(body.replace("  ret void", out), 1), [], [result], 1, (8, 1, 1))
    assert result.tolist() == list(range(8))


POISON = {
    "shift": "  %r = shl i32 1, %x",
    "overflow": "  %n = add i32 %x, 2147483600\n  %r = add nsw i32 %n, %x",
    "unsigned": "  %r = sub nuw i32 %t, %x",
    "product": "  %n = add i32 %x, 65536\n  %r = mul nsw i32 %n, %n",
    "division": "  %n = sub i32 %x, 33\n  %r = sdiv i32 1, %n",
    "exact": "  %r = lshr exact i32 %x, 2",
    "disjoint": "  %r = or disjoint i32 %x, 3",
    "zeros": "  %n = sub i32 %x, 33\n  %r = call i32 @llvm.ctlz.i32(i32 %n, i1 true)",
    "float": "  %d = sitofp i32 %x to double\n  %e = fmul double %d, 1.0e9\n  %r = fptosi double %e to i32",
    "trunc": "  %n = mul i32 %x, 1000\n  %s = trunc nsw i32 %n to i8\n  %r = sext i8 %s to i32",
}


@pytest.mark.parametrize("lines", POISON.values(), ids=POISON)
def test_results_that_llvm_leaves_open_are_found(lines: str) -> None:
    with pytest.raises(KernelDefect) as caught:
        applied(lines, ["i32"], "i32", np.arange(10, 50, dtype=np.int32))
    assert caught.value.kind == "poison"


def test_atomic_operations_agree_with_each_other_only() -> None:
    body = (
        THREAD
        + """
  %first = icmp eq i32 %t, 0
  %u = atomicrmw add ptr addrspace(3) @room, i32 %t monotonic
  call void @llvm.nvvm.barrier0()
  %x = load i32, ptr addrspace(3) @room, align 4
  br i1 %first, label %go, label %done
go:
  %v = atomicrmw umax ptr addrspace(1) %a1, i32 %c monotonic
  br label %done
done:
  ret void"""
    )
    start = "store i32 0, ptr addrspace(3) @room, align 4"
    zero = f"  %z = icmp eq i32 %t, 1\n  br i1 %z, label %set, label %on\nset:\n  {start}\n  br label %on\non:\n"
    ready = body.replace("  %first", zero + "  call void @llvm.nvvm.barrier0()\n  %first")
    device = EmulatedDevice()
    address = device.allocate(4)
    device.upload(address, np.zeros(1, np.int32))
    code = device.load(module(ready, variables=SHARED))
    for _ in range(2):
        device.prepare(code, [Prepared("k", (6, 1, 1), 64, 0, (address, address))]).start()
    result = np.zeros(1, np.int32)
    device.download(address, result)
    assert result.tolist() == [5]
    found(module(body.replace("  %first", zero + "  %first"), variables=SHARED), "race", 64)
    found(module(ready.replace("  call void @llvm.nvvm.barrier0()\n  %x", "  %x"), variables=SHARED), "race", 64)
    used = ready.replace("i32 %c monotonic", "i32 %u monotonic")
    found(module(used, variables=SHARED), "order", 64)


def test_memory_that_is_promised_not_to_change_must_not() -> None:
    body = (
        THREAD
        + """
  %o = mul i32 %t, 4
  %p = getelementptr i8, ptr addrspace(1) %a1, i32 %o
  store i32 1, ptr addrspace(1) %p, align 4
  call void @llvm.nvvm.barrier0()
  %x = load i32, ptr addrspace(1) %p, align 4, !invariant.load !0
  ret void"""
    )
    found(module(body) + "\n!0 = !{}", "race")
    launched(module(body).replace(", !invariant.load !0", ""), [np.zeros(1)], [np.zeros(32, np.int32)])


def test_a_kernel_without_an_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.cuda_emulator.device.STEPS", 100)
    found(module("  br label %top\ntop:\n  br label %top"), "endless")


# What is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "  switch i32 3, label %a [ i32 0, label %a ]\na:\n  ret void",
        "  %p = inttoptr i64 5 to ptr addrspace(1)\n  ret void",
        "  %x = load volatile i32, ptr addrspace(1) %a0, align 4\n  ret void",
        "  %x = fadd contract double 1.0, 2.0\n  ret void",
        "  fence seq_cst\n  ret void",
        "  call void @llvm.nvvm.membar.cta()\n  ret void",
        "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 1)\n  ret void",
        "  %x = load float, ptr addrspace(1) %a0, align 4\n  ret void",
        "  unreachable",
    ],
)
def test_what_the_emulator_does_not_know_is_refused_by_name(body: str) -> None:
    with pytest.raises(NotEmulated, match="does not know"):
        launched(module(body), [np.zeros(4)], [np.zeros(4)])


def test_what_llvm_refuses_is_refused() -> None:
    with pytest.raises(Malformed, match="LLVM refuses"):
        EmulatedDevice().load(module("  %x = add i32 1, i64 2\n  ret void"))


def test_a_device_gives_and_takes_memory() -> None:
    device = EmulatedDevice(memory=1000)
    first = device.allocate(600)
    with pytest.raises(LimitExceeded):
        device.allocate(401)
    assert device.available == 400
    with pytest.raises(Invalid):
        device.upload(first + 600, np.zeros(1, np.uint8))
    device.upload(first, np.zeros(1, np.uint8))
    with pytest.raises(KernelDefect, match="byte 1 of allocation 1"):
        device.download(first, np.zeros(2, np.uint8))
    device.free(first)
    with pytest.raises(Invalid):
        device.free(first)
    assert device.available == 1000


@pytest.mark.parametrize("change", [{"grid": (0, 1, 1)}, {"block": 1025}, {"shared": 10**6}, {"addresses": (1, 2, 3)}])
def test_launches_that_no_device_takes_are_refused(change: dict[str, Any]) -> None:
    device = EmulatedDevice()
    address = device.allocate(4)
    launch = {"function": "k", "grid": (1, 1, 1), "block": 1, "shared": 0, "addresses": (address, address), **change}
    with pytest.raises(CvmError):
        device.prepare(device.load(module("  ret void")), [Prepared(**launch)]).start()
    with pytest.raises(Invalid, match="no kernel"):
        device.prepare(device.load(module("  ret void")), [Prepared("other", (1, 1, 1), 1, 0, ())])
