"""Arithmetic of integers: the function of each instruction, on arrays.

An operation whose result LLVM leaves open (a shift beyond the width, an overflow where ``nsw`` says that there is none,
a division by zero) raises a `Conflict` of kind ``poison``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tools.cuda_emulator.kinds import Array, Type, container
from tools.cuda_emulator.module import Instruction
from tools.cuda_emulator.shadows import Conflict

__all__ = ["Pure", "binary", "compared", "narrowed", "refuse", "signed", "unsigned"]

Pure = Callable[..., Any]
"""From the values of the operands to the value of the result."""

EXACT = (8, 16, 32, 64)


def refuse(wrong: Array, message: str) -> None:
    """Raise the defect of a result that is left open, if any entry is wrong."""
    if wrong.any():
        flat = wrong.reshape(wrong.shape[0], -1).any(axis=1)
        raise Conflict("poison", int(np.argmax(flat)), message)


def unsigned(a: Array, bits: int) -> Array:
    """The number that the bits are without a sign: in an unsigned type, or as Python integers."""
    if a.dtype == object:
        return a
    if a.dtype == np.bool_:
        return a.view(np.uint8)
    found: Array = a.view(f"u{a.dtype.itemsize}") if a.dtype.kind == "i" else a
    return found if bits in EXACT else found & found.dtype.type((1 << bits) - 1)


def narrowed(a: Array, bits: int) -> Array:
    """An array whose low ``bits`` bits count, in the form that its type has."""
    if a.dtype == object:
        wide: Array = a % (1 << bits)
        return wide
    if bits in EXACT and a.dtype.itemsize * 8 == bits:
        return a.view(f"i{a.dtype.itemsize}")
    shift = a.dtype.type(a.dtype.itemsize * 8 - bits)
    found: Array = (a.view(f"i{a.dtype.itemsize}") << shift) >> shift
    return found


def signed(a: Array, bits: int) -> Array:
    """The signed number, also of Python integers."""
    if a.dtype != object:
        return a
    half = 1 << bits - 1
    return (a + half) % (2 * half) - half


_RING: dict[str, Pure] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor,
}  # fmt: skip
_BITS: dict[str, Pure] = {
    "add": np.logical_xor, "sub": np.logical_xor, "xor": np.logical_xor, "mul": np.logical_and, "and": np.logical_and,
    "or": np.logical_or,
}  # fmt: skip


def binary(instruction: Instruction) -> Pure | None:
    """The function of a binary instruction on integers; None if there is none."""
    op, bits = instruction.op, instruction.type.width
    if bits == 1:
        return _BITS.get(op)
    plain = _plain(op, bits)
    checks = [_CHECKS[op, flag] for flag in sorted(instruction.flags) if (op, flag) in _CHECKS]
    if plain is None or not checks:
        return plain

    def checked(a: Array, b: Array) -> Array:
        result: Array = plain(a, b)
        for check, flag in checks:
            refuse(check(a, b, result, bits), f"the result is not {flag}")
        return result

    return checked


def _plain(op: str, bits: int) -> Pure | None:
    exact = bits in EXACT
    if op in _RING:
        ring = _RING[op]
        return ring if exact or (op in ("and", "or", "xor")) else lambda a, b: narrowed(ring(a, b), bits)
    if op in _SHIFTS:
        shift = _SHIFTS[op]

        def shifted(a: Array, b: Array) -> Array:
            count = unsigned(b, bits)
            refuse(np.asarray(count >= bits, bool), f"a shift by {bits} bits or more")
            return narrowed(shift(a, b, bits), bits)

        return shifted
    if op in _DIVISIONS:
        division = _DIVISIONS[op]

        def divided(a: Array, b: Array) -> Array:
            refuse(np.asarray(b == 0, bool), "a division by zero")
            return narrowed(division(a, b, bits), bits)

        return divided
    return None


_SHIFTS: dict[str, Pure] = {
    "shl": lambda a, b, bits: a << b,
    "lshr": lambda a, b, bits: unsigned(a, bits) >> unsigned(b, bits),
    "ashr": lambda a, b, bits: signed(a, bits) >> b,
}


def _quotient(a: Array, b: Array, bits: int) -> Array:
    a, b = signed(a, bits), signed(b, bits)
    refuse(np.asarray((a == -(1 << bits - 1)) & (b == -1), bool), "a quotient that does not fit")
    return (a - _remainder(a, b, bits)) // b


def _remainder(a: Array, b: Array, bits: int) -> Array:
    a, b = signed(a, bits), signed(b, bits)
    rest = a % b  # it has the sign of b, or is zero; C's remainder has the sign of a
    return np.where((rest != 0) & ((a < 0) != (b < 0)), rest - b, rest)


_DIVISIONS: dict[str, Pure] = {
    "udiv": lambda a, b, bits: unsigned(a, bits) // unsigned(b, bits),
    "urem": lambda a, b, bits: unsigned(a, bits) % unsigned(b, bits),
    "sdiv": _quotient,
    "srem": _remainder,
}


def _product_overflows(a: Array, b: Array, result: Array, bits: int) -> Array:
    if bits <= 32:
        return np.asarray(a.astype(np.int64) * b != result, bool)
    near = np.abs(a.astype(np.float64) * b) < 2.0**62  # far from the end: the product fits
    if bits == 64 and near.all():
        return ~near
    return np.asarray(signed(a.astype(object), bits) * signed(b.astype(object), bits) != signed(result, bits), bool)


def _unsigned_product_overflows(a: Array, b: Array, result: Array, bits: int) -> Array:
    a, b = (unsigned(x, bits).astype(object) for x in (a, b))
    return np.asarray(a * b != unsigned(result, bits), bool)


_CHECKS: dict[tuple[str, str], tuple[Pure, str]] = {
    ("add", "nsw"): (lambda a, b, r, bits: ((signed(a, bits) < 0) == (signed(b, bits) < 0))
                     & ((signed(r, bits) < 0) != (signed(a, bits) < 0)), "nsw"),
    ("sub", "nsw"): (lambda a, b, r, bits: ((signed(a, bits) < 0) != (signed(b, bits) < 0))
                     & ((signed(r, bits) < 0) != (signed(a, bits) < 0)), "nsw"),
    ("mul", "nsw"): (_product_overflows, "nsw"),
    ("shl", "nsw"): (lambda a, b, r, bits: (signed(r, bits) >> b) != signed(a, bits), "nsw"),
    ("add", "nuw"): (lambda a, b, r, bits: unsigned(r, bits) < unsigned(a, bits), "nuw"),
    ("sub", "nuw"): (lambda a, b, r, bits: unsigned(a, bits) < unsigned(b, bits), "nuw"),
    ("mul", "nuw"): (_unsigned_product_overflows, "nuw"),
    ("shl", "nuw"): (lambda a, b, r, bits: (unsigned(r, bits) >> unsigned(b, bits)) != unsigned(a, bits), "nuw"),
    ("or", "disjoint"): (lambda a, b, r, bits: (a & b) != 0, "disjoint"),
    ("udiv", "exact"): (lambda a, b, r, bits: r * b != a, "exact"),
    ("sdiv", "exact"): (lambda a, b, r, bits: r * b != a, "exact"),
    ("lshr", "exact"): (lambda a, b, r, bits: narrowed(r << b, bits) != a, "exact"),
    ("ashr", "exact"): (lambda a, b, r, bits: narrowed(r << b, bits) != a, "exact"),
}  # fmt: skip

_RELATIONS: dict[str, Pure] = {
    "eq": operator.eq, "ne": operator.ne, "gt": operator.gt, "ge": operator.ge, "lt": operator.lt, "le": operator.le,
}  # fmt: skip


def compared(word: str, type_: Type) -> Pure:
    """The function of an icmp."""
    relation, bits = _RELATIONS[word[-2:]], type_.width
    if container(type_).kind == "O":
        view = signed if word[0] == "s" else lambda a, bits: a
        return lambda a, b: np.asarray(relation(view(a, bits), view(b, bits)), bool)
    if word[0] == "u" or bits == 1:
        sign = -1 if word[0] == "s" else 1  # of an i1, "true" is -1
        return lambda a, b: (
            relation(unsigned(a, bits), unsigned(b, bits))
            if sign > 0
            else relation(-a.astype(np.int8), -b.astype(np.int8))
        )
    return lambda a, b: relation(a, b)
