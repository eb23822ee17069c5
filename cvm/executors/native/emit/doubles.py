"""Estimates in float64: integers near a number, and whether the number is too near to half an integer to tell which.

Every operation here is one rounding of IEEE 754 to the nearest float64; none is fused with another. An estimate never
decides a code by itself: `rounded` says of which codes its proven error leaves a doubt, and the kernel computes these
in integers.
"""

from __future__ import annotations

import struct

from cvm.executors.native.emit.ir import Code, V, lanes, vector

__all__ = ["add", "add_halves", "constant", "divide", "double_of", "multiply", "root", "rounded", "spread", "subtract"]

_SHIFTED = 1.5 * 2.0**52
"""A number whose sum with a small number is an integer, and has it modulo 2^51 in its low bits."""


def kind(count: int) -> str:
    """The type of ``count`` float64 numbers."""
    return "double" if count == 1 else f"<{count} x double>"


def constant(value: float, count: int = 1) -> V:
    """A float64 constant, the same in all lanes."""
    text = f"0x{struct.pack('>d', value).hex().upper()}"
    return V(kind(count), text if count == 1 else f"splat (double {text})")


def spread(code: Code, a: V, count: int) -> V:
    """A scalar in ``count`` lanes."""
    if count == 1 or a.type[0] == "<":
        return a
    first = code.value(kind(count), f"insertelement {kind(count)} poison, {a}, i64 0")
    return code.shuffle(first, first, [0] * count)


def double_of(code: Code, x: V) -> V:
    """The float64 numbers nearest to integers of up to 64 bits."""
    type_ = kind(lanes(x.type))
    return code.value(type_, f"sitofp {x} to {type_}")


def add_halves(code: Code, x: V) -> V:
    """A float64 near an i128 >= 0, from its halves, since a conversion of 128 bits would be a library call."""
    high, low = code.cast("trunc", code.binary("lshr", x, 64), 64), code.cast("trunc", x, 64)
    parts = [code.value("double", f"uitofp {half} to double") for half in (high, low)]
    return add(code, multiply(code, parts[0], constant(2.0**64)), parts[1])


def add(code: Code, a: V, b: V) -> V:
    """The sum of two numbers, rounded once."""
    return code.value(a.type, f"fadd {a}, {b.text}")


def subtract(code: Code, a: V, b: V) -> V:
    """The difference of two numbers, rounded once."""
    return code.value(a.type, f"fsub {a}, {b.text}")


def multiply(code: Code, a: V, b: V) -> V:
    """The product of two numbers, rounded once."""
    return code.value(a.type, f"fmul {a}, {b.text}")


def divide(code: Code, a: V, b: V) -> V:
    """The quotient of two numbers, rounded once."""
    return code.value(a.type, f"fdiv {a}, {b.text}")


def root(code: Code, a: V) -> V:
    """The square root, rounded once."""
    return code.call(a.type, "llvm.sqrt.f64", a)


def rounded(code: Code, estimate: V, lo: int, hi: int, doubt: int) -> tuple[V, V]:
    """The integers nearest to an estimate clipped to [lo, hi], in i32, and whether any lane is in doubt.

    A lane is in doubt if the clipped estimate lies 2^-doubt or less from half an integer. |lo| and |hi| are below 2^31,
    so the integer and its distance are exact.
    """
    count = lanes(estimate.type)
    value = estimate
    for end, predicate in ((lo, "ogt"), (hi, "olt")):
        bound = constant(float(end), count)
        inside = code.value(vector(1, count), f"fcmp {predicate} {value}, {bound.text}")
        value = code.value(value.type, f"select {inside}, {value}, {bound}")
    moved = add(code, value, constant(_SHIFTED, count))
    nearest = subtract(code, moved, constant(_SHIFTED, count))
    suffix = "f64" if count == 1 else f"v{count}f64"
    distance = code.call(value.type, f"llvm.fabs.{suffix}", subtract(code, value, nearest))
    threshold = constant(0.5 - 2.0**-doubt, count)
    doubtful = code.value(vector(1, count), f"fcmp oge {distance}, {threshold.text}")
    codes = code.cast("trunc", code.bitcast(moved, vector(64, count)), 32)
    if count == 1:
        return codes, doubtful
    bits = code.value(f"i{count}", f"bitcast {doubtful} to i{count}")
    return codes, code.compare("ne", bits, 0)
