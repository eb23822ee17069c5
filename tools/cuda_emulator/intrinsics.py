"""The intrinsics of LLVM and of NVIDIA that need no other thread: the function of each, on arrays."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from tools.cuda_emulator.arithmetic import Pure, narrowed, refuse, signed, unsigned
from tools.cuda_emulator.floats import fused
from tools.cuda_emulator.kinds import Array
from tools.cuda_emulator.module import Instruction

__all__ = ["IGNORED", "intrinsic"]

IGNORED = re.compile(r"llvm\.(lifetime\.(start|end)|prefetch|assume|nvvm\.prefetch)\b.*")
"""Intrinsics that change no value. A prefetch may have any address."""

_TYPED = re.compile(r"llvm\.([a-z.]+?)\.(?:v(\d+))?([if]\d+)$")


def intrinsic(instruction: Instruction) -> Pure | None:
    """The function of a call; None if it is none of these."""
    name = instruction.word
    if name in _NAMED:
        return _NAMED[name]
    found = _TYPED.match(name)
    if not found:
        return None
    if found[1] in _FLOATS and found[3] == "f64":
        return _FLOATS[found[1]]
    make = _INTEGERS.get(found[1]) if found[3][0] == "i" else None
    return make(int(found[3][1:])) if make else None


def _ordered(choose: Pure, with_sign: bool) -> Callable[[int], Pure]:
    def made(bits: int) -> Pure:
        if with_sign:
            return choose if bits <= 64 else lambda a, b: choose(signed(a, bits), signed(b, bits)) % (1 << bits)
        return lambda a, b: narrowed(choose(unsigned(a, bits), unsigned(b, bits)), bits)

    return made


def _absolute(bits: int) -> Pure:
    def absolute(a: Array, poison: Array) -> Array:
        if poison[0]:
            refuse(a == -(1 << bits - 1), "the magnitude of the least integer")
        return narrowed(np.abs(a), bits)

    return absolute


def _length(a: Array, bits: int) -> Array:
    """The number of bits without leading zeros."""
    number = unsigned(a, bits)
    if a.dtype == object:
        return np.array([int(x).bit_length() for x in number.reshape(-1)], object).reshape(a.shape)
    wide = number.astype(np.uint64)
    upper, lower = wide >> np.uint64(32), wide & np.uint64(2**32 - 1)
    # A float64 holds 32 bits exactly, and frexp returns its exponent.
    lengths = [np.frexp(half.astype(np.float64))[1] for half in (upper, lower)]
    return np.where(upper > 0, lengths[0] + 32, lengths[1]).astype(a.dtype)


def _leading_zeros(bits: int) -> Pure:
    def zeros(a: Array, poison: Array) -> Array:
        if poison[0]:
            refuse(np.asarray(a == 0, bool), "the leading zeros of zero")
        return narrowed(bits - _length(a, bits), bits)

    return zeros


def _trailing_zeros(bits: int) -> Pure:
    def zeros(a: Array, poison: Array) -> Array:
        if poison[0]:
            refuse(np.asarray(a == 0, bool), "the trailing zeros of zero")
        return narrowed(np.where(a == 0, bits, _length(a & -a, bits) - 1).astype(a.dtype), bits)

    return zeros


def _ones(bits: int) -> Pure:
    return lambda a: sum((unsigned(a, bits) >> k & 1 for k in range(bits)), np.zeros_like(a)).astype(a.dtype)


def _funnel(left: bool) -> Callable[[int], Pure]:
    """fshl, fshr: the upper or the lower half of two numbers, side by side, after a shift."""

    def made(bits: int) -> Pure:
        def shifted(a: Array, b: Array, count: Array) -> Array:
            high, low, by = (unsigned(x, bits) for x in (a, b, count))
            by = by % by.dtype.type(bits)
            back = by.dtype.type(bits) - by if left else by
            up = by if left else by.dtype.type(bits) - by
            # A shift by all bits gives zero here; NumPy leaves it open.
            upper = np.where(up == bits, 0, high << up % bits).astype(high.dtype)
            lower = np.where(back == bits, 0, low >> back % bits).astype(high.dtype)
            return narrowed(upper | lower, bits)

        return shifted

    return made


def _saturated(op: Callable[[Any, Any], Any], with_sign: bool) -> Callable[[int], Pure]:
    def made(bits: int) -> Pure:
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if with_sign else (0, (1 << bits) - 1)

        def saturated(a: Array, b: Array) -> Array:
            wide = object if bits > 32 else np.int64
            numbers = [(x if with_sign else unsigned(x, bits)).astype(wide) for x in (a, b)]
            return narrowed(_wrapped(np.clip(op(*numbers), low, high), bits).astype(a.dtype), bits)

        return saturated

    return made


def _wrapped(a: Array, bits: int) -> Array:
    half = 1 << bits - 1
    found: Array = (a + half) % (2 * half) - half
    return found


def _reduced(fold: Pure) -> Callable[[int], Pure]:
    def made(bits: int) -> Pure:
        return lambda a: narrowed(reduce(fold, [a[:, lane] for lane in range(a.shape[1])]), bits)

    return made


def _reversed(bits: int) -> Pure:
    return lambda a: a.byteswap()


_INTEGERS: dict[str, Callable[[int], Pure]] = {
    "smax": _ordered(np.maximum, True), "smin": _ordered(np.minimum, True), "umax": _ordered(np.maximum, False),
    "umin": _ordered(np.minimum, False), "abs": _absolute, "ctlz": _leading_zeros, "cttz": _trailing_zeros,
    "ctpop": _ones, "fshl": _funnel(True), "fshr": _funnel(False), "bswap": _reversed,
    "sadd.sat": _saturated(lambda a, b: a + b, True), "ssub.sat": _saturated(lambda a, b: a - b, True),
    "uadd.sat": _saturated(lambda a, b: a + b, False), "usub.sat": _saturated(lambda a, b: a - b, False),
    "vector.reduce.add": _reduced(lambda a, b: a + b), "vector.reduce.or": _reduced(lambda a, b: a | b),
    "vector.reduce.and": _reduced(lambda a, b: a & b), "vector.reduce.smax": _reduced(np.maximum),
    "vector.reduce.smin": _reduced(np.minimum),
}  # fmt: skip

_FLOATS: dict[str, Pure] = {
    "fabs": np.abs, "sqrt": np.sqrt, "fma": fused, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "rint": np.rint, "nearbyint": np.rint, "roundeven": np.rint, "minnum": np.fmin, "maxnum": np.fmax,
}  # fmt: skip


def _dots(a: Array, b: Array, total: Array, kinds: str) -> Array:
    """Add the products of four bytes; ``kinds`` says which operand has signs."""
    sides = [np.ascontiguousarray(x).view("i1" if kind == "s" else "u1").reshape(-1, 4).astype(np.int32)
             for x, kind in zip((a, b), kinds, strict=True)]  # fmt: skip
    found: Array = total + (sides[0] * sides[1]).sum(axis=1, dtype=np.int32)
    return found


def _dot_of_bytes(kinds: str) -> Pure:
    return lambda a, b, total: _dots(a, b, total, kinds)


def _dot_of_halves(kinds: str) -> Pure:
    """Add the products of two 16-bit numbers and two bytes, the upper ones or the lower ones."""

    def dot(a: Array, b: Array, upper: Array, total: Array) -> Array:
        halves = np.ascontiguousarray(a).view("i2" if kinds[0] == "s" else "u2").reshape(-1, 2).astype(np.int32)
        bytes_ = np.ascontiguousarray(b).view("i1" if kinds[1] == "s" else "u1").reshape(-1, 4).astype(np.int32)
        start = 2 if upper[0] else 0
        found: Array = total + (halves * bytes_[:, start : start + 2]).sum(axis=1, dtype=np.int32)
        return found

    return dot


def _permuted(a: Array, b: Array, selector: Array) -> Array:
    """prmt.b32: each byte of the result is one of the eight bytes of two words, or its sign eight times."""
    both = max(len(a), len(b), len(selector))
    words = [np.ascontiguousarray(np.broadcast_to(x, (both,))).view(np.uint8).reshape(both, 4) for x in (a, b)]
    bytes_, select = np.concatenate(words, axis=1), np.broadcast_to(selector, (both,))
    result = np.zeros((both, 4), np.uint8)
    for place in range(4):
        nibble = select >> 4 * place & 15
        found = bytes_[np.arange(both), nibble & 7]
        result[:, place] = np.where(nibble & 8, np.where(found & 128, 255, 0), found)
    return result.view(np.int32).reshape(both)


def _high_product(bits: int, with_sign: bool) -> Pure:
    def high(a: Array, b: Array) -> Array:
        wide = object if bits == 64 else np.int64 if with_sign else np.uint64
        numbers = [(x if with_sign else unsigned(x, bits)).astype(wide) for x in (a, b)]
        return narrowed(_wrapped((numbers[0] * numbers[1] >> bits).astype(object), bits).astype(a.dtype), bits)

    return high


def _packed(a: Array, b: Array, below: Array) -> Array:
    """cvt.pack.sat.u8.s32.b32: two integers, clipped to bytes, below the lower half of a word."""
    high, low = (np.clip(x, 0, 255).astype(np.uint32) for x in (a, b))
    found: Array = (unsigned(below, 32).astype(np.uint32) << np.uint32(16) | high << np.uint32(8) | low).view(np.int32)
    return found


_NAMED: dict[str, Pure] = {
    'asm "cvt.pack.sat.u8.s32.b32 $0, $1, $2, $3;" "=r,r,r,r"': _packed,
    **{f"llvm.nvvm.idp4a.{x}.{y}": _dot_of_bytes(x + y) for x in "su" for y in "su"},
    **{f"llvm.nvvm.idp2a.{x}.{y}": _dot_of_halves(x + y) for x in "su" for y in "su"},
    "llvm.nvvm.prmt": _permuted,
    "llvm.nvvm.mulhi.i": _high_product(32, True), "llvm.nvvm.mulhi.ui": _high_product(32, False),
    "llvm.nvvm.mulhi.ll": _high_product(64, True), "llvm.nvvm.mulhi.ull": _high_product(64, False),
    "llvm.nvvm.add.rn.d": np.add, "llvm.nvvm.mul.rn.d": np.multiply, "llvm.nvvm.div.rn.d": np.divide,
    "llvm.nvvm.sqrt.rn.d": np.sqrt, "llvm.nvvm.fma.rn.d": fused,
}  # fmt: skip
