"""Extension ops: requantize in int64, block by block, and broadcast_greater."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cvm.blocks import boxes
from cvm.executors.numpy.blocks import BLOCK_ELEMENTS, aligned, parameter, part
from cvm.executors.numpy.codes import FloatCodes
from cvm.executors.numpy.step import Array, PlannedNode, plans, plans_functions, single
from cvm.ops.declaration import Call
from cvm.ops.ranges import Shape
from cvm.records import dataclass

__all__: list[str] = []


plans_functions({"broadcast_greater": lambda A, B: np.greater(A, B).astype(np.int32)})


@plans("requantize")
def plan_requantize(call: Call) -> PlannedNode:
    """clip(round((sum of m_i * x_i + c) / 2^s), lo, hi).

    The verifier has proven that every m_i * x_i, c, their sums in any order, and these sums plus 2^(s-1) fit in int64.
    """
    terms = (len(call.shapes) - 2) // 2
    shape = call.shapes[0]
    a = call.attributes
    *multipliers, offset, shift = (
        aligned(parameter(call, position).astype(np.int64), len(shape)) for position in range(terms, len(call.shapes))
    )
    floats = FloatCodes.of(call)
    if floats is not None:
        return single(_float_codes(floats, shape), f"float64, {terms} terms, {a.rounding}", reads=tuple(range(terms)))
    rounding = ROUNDINGS[a.rounding](offset, shift)
    factors = [None if bool((m == 1).all()) else m for m in multipliers]

    def run(*tensors: Array) -> Array:
        Y = np.empty(shape, np.int32)
        for box in boxes(shape, BLOCK_ELEMENTS):
            v = np.zeros(Y[box].shape, np.int64)
            for x, m in zip(tensors, factors, strict=True):
                v += _scaled(part(aligned(x, len(shape)), box), m, box)
            rounding.apply(v, box)
            np.clip(v, a.lo, a.hi, out=v)
            np.copyto(Y[box], v, casting="same_kind")
        return Y

    return single(run, f"int64, {terms} terms, {a.rounding}", reads=tuple(range(terms)))


def _float_codes(floats: FloatCodes, shape: Shape) -> Callable[..., Array]:
    """The function that computes codes in float64."""

    def run(*tensors: Array) -> Array:
        Y = np.empty(shape, np.int32)
        floats.write_all([aligned(x, len(shape)) for x in tensors], Y)
        return Y

    return run


def _scaled(x: Array, m: Array | None, box: Sequence[slice]) -> Array:
    if m is None:
        return x.astype(np.int64)
    return np.multiply(x, part(m, box), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class HalfUp:
    """floor(v / 2^s + 1/2) = (v + 2^(s-1)) >> s, and v where s = 0."""

    offset: Array
    shift: Array

    @staticmethod
    def of(offset: Array, shift: Array) -> HalfUp:
        """The rounding for the parameters c and s."""
        return HalfUp(offset + _half(shift), shift)

    def apply(self, v: Array, box: Sequence[slice]) -> None:
        """Add c and round, in place."""
        v += part(self.offset, box)
        v >>= part(self.shift, box)


@dataclass(frozen=True, slots=True)
class HalfEven:
    """The nearest integer, and of two equally near ones the even one.

    It is (v + 2^(s-1) - 1 + b) >> s, where b is bit s of v, and v where s = 0. Proof: let v = k * 2^s + r, so b = k mod
    2. The sum reaches (k + 1) * 2^s if and only if r > 2^(s-1), or r = 2^(s-1) and k is odd. It never exceeds v +
    2^(s-1).
    """

    offset: Array
    shift: Array
    addend: Array
    parity: Array

    @staticmethod
    def of(offset: Array, shift: Array) -> HalfEven:
        """The rounding for the parameters c and s."""
        return HalfEven(offset, shift, np.maximum(_half(shift) - 1, 0), np.minimum(shift, 1))

    def apply(self, v: Array, box: Sequence[slice]) -> None:
        """Add c and round, in place."""
        v += part(self.offset, box)
        odd = v >> part(self.shift, box)
        odd &= part(self.parity, box)
        v += part(self.addend, box)
        v += odd
        v >>= part(self.shift, box)


@dataclass(frozen=True, slots=True)
class TowardZero:
    """v / 2^s truncated: floor(v / 2^s) for v >= 0, and ceil(v / 2^s) = (v + 2^s - 1) >> s for v < 0."""

    offset: Array
    shift: Array
    remainder: Array

    @staticmethod
    def of(offset: Array, shift: Array) -> TowardZero:
        """The rounding for the parameters c and s."""
        return TowardZero(offset, shift, np.left_shift(1, shift) - 1)

    def apply(self, v: Array, box: Sequence[slice]) -> None:
        """Add c and round, in place."""
        v += part(self.offset, box)
        v += (v >> 63) & part(self.remainder, box)
        v >>= part(self.shift, box)


ROUNDINGS: dict[str, Callable[[Array, Array], HalfUp | HalfEven | TowardZero]] = {
    "half_up": HalfUp.of,
    "half_even": HalfEven.of,
    "toward_zero": TowardZero.of,
}


def _half(shift: Array) -> Array:
    """2^(s-1), and 0 where s = 0."""
    return np.where(shift > 0, np.left_shift(1, np.maximum(shift - 1, 0)), 0)
