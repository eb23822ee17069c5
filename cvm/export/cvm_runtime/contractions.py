"""Convolutions and dense layers with operands of more than 8 bits, as sums of layers with operands of at most 8 bits.

A tensor is x = sum of x_i * 2^(b i) with digits x_i of at most 8 bits, and so are the weights; the layer is the sum of
the layers of all pairs of digits, times powers of two. An unsigned byte takes two digits. Weights in +-254 are the sum
of two tensors of 8 bits. A sum of n products has bl(n) bits more than a product, which bounds the digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cvm.bounds import holding, magnitude
from cvm.export.cvm_runtime.expressions import LibraryExpressions
from cvm.ops import precision
from cvm.passes.legalize.expressions import Expression, Unprovable
from cvm.passes.legalize.integers import balanced

__all__ = ["contraction"]

OPERAND = 8
"""The most bits of an operand."""
LARGEST = 32
_BYTE = 2 ** (OPERAND - 1) - 1
_BASES = range(1, OPERAND)

Part = tuple[int, Expression]
"""A power of two, and the digit that it multiplies."""


def contraction(op: str) -> Callable[..., Expression]:
    """The rule that exports conv2d or dense."""

    def rule(
        made: LibraryExpressions,
        x: Expression,
        w: Expression,
        bias: Expression | None = None,
        *,
        label: str,
        **attributes: Any,
    ) -> Expression:
        operands = (x, w) if bias is None else (x, w, bias)
        if _fits(operands):
            return made.plain(op, *operands, label=label, **attributes)
        sums: dict[int, Expression] = {}
        for power, digit in _digits(made, x, label):
            for other, weights in _digits(made, w, label):
                part = made.plain(op, digit, weights, label=label, **attributes)
                if not _fits((digit, weights)):
                    raise Unprovable(f"{op}: a sum of {math.prod(w.shape[1:])} products of digits exceeds 32 bits")
                known = sums.get(power + other)
                sums[power + other] = part if known is None else made.total("broadcast_add", known, part, label)
        found = _joined(made, sums, label)
        if bias is None:
            return found
        spread = made.reshaped(bias, (*bias.shape, 1, 1), label) if op == "conv2d" else bias
        return made.total("broadcast_add", found, spread, label)

    return rule


def _bits(x: Expression) -> int:
    return precision(x.lo, x.hi)


def _fits(operands: tuple[Expression, ...]) -> bool:
    """Whether the library accepts the operands, and the result has at most 32 bits by its precision rule."""
    x, w, *bias = map(_bits, operands)
    if max(x, w) > OPERAND:
        return False
    products = x + w + math.prod(operands[1].shape[1:]).bit_length()
    return (max(products, *bias) + 1 if bias else products) <= LARGEST


def _digits(made: LibraryExpressions, x: Expression, label: str) -> list[Part]:
    """The digits of a tensor, of at most 8 bits each: as few as possible, with the smallest base that needs no more."""
    if _bits(x) <= OPERAND:
        return [(0, x)]
    if x.elements is not None:
        return [(power, made.constant(items, narrow=False)) for power, items in _constant_digits(x.elements)]
    least = next(n for n in range(2, LARGEST) if _top(x, _BASES[-1] * (n - 1)) <= _BYTE)
    base = next(b for b in _BASES if _top(x, b * (least - 1)) <= _BYTE)
    found: list[Part] = []
    for index in range(least - 1):
        low, x = made.tensors.split(x, base)
        found.append((base * index, low))
    return [*found, (base * (least - 1), x)]


def _top(x: Expression, shift: int) -> int:
    """An upper bound of abs(x) after ``shift`` bits of digits have been removed; it is at most 1 too large."""
    return (max(abs(x.lo), abs(x.hi)) >> shift) + 1


def _constant_digits(items: Any) -> list[tuple[int, Any]]:
    items = holding(items, 2 * magnitude(items))
    if magnitude(items) <= 2 * _BYTE:
        near = np.clip(items, -_BYTE, _BYTE)
        return [(0, near), (0, items - near)]
    base = _BASES[-1]
    found = []
    power = 0
    while magnitude(items) > _BYTE:
        digit = balanced(items, base)
        found.append((power, digit))
        items = (items - digit) >> base
        power += base
    return [(index, digit) for index, digit in [*found, (power, items)] if digit.any()]


def _joined(made: LibraryExpressions, sums: dict[int, Expression], label: str) -> Expression:
    """The sum of all parts times their powers of two, by Horner's rule."""
    powers = sorted(sums)
    found = sums[powers[-1]]
    for below, power in zip(reversed(powers[:-1]), reversed(powers[1:]), strict=True):
        found = made.total("broadcast_add", made.raised(found, power - below, label), sums[below], label)
    return made.raised(found, powers[0], label)
