"""The emulator of CUDA kernels computes what instructions and intrinsics of LLVM compute."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from cvm.executors.cuda.emit.permutations import CLIPS
from tests.tools.emulated_kernels import (
    applied,
    packed,
    samples,
    unpacked,
    wrap,
)


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


def test_two_integers_are_clipped_to_bytes_below_two_others() -> None:
    a, b, below = (samples(32, 64, seed) for seed in range(3))
    line = f'  %r = call i32 asm "{CLIPS}", "=r,r,r,r"(i32 %x, i32 %y, i32 %z)'
    raw = applied(line, ["i32"] * 3, "i32", *[packed(one, 32) for one in (a, b, below)])
    for row, high, low, word in zip(raw, a, b, below, strict=True):
        assert row.tolist() == [min(max(low, 0), 255), min(max(high, 0), 255), *_bytes_of(word, "u")[:2]]


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
