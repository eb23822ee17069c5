"""`requantize` in float64, where that is exact.

Let v = m x + C with C = c + 2^(s-1) - lo 2^s, so that the code is lo + clip(floor(v / 2^s), 0, hi - lo). Suppose that
|C| + (hi - lo + 1) 2^s <= 2^53 and |m| <= 2^53. Then x, m / 2^s and C / 2^s are float64 numbers, since scaling by a
power of two is exact, and the code that is computed with them is the true one:

* If |m x| <= 2^53 and |v| <= 2^53, the product and the sum are integers times 2^-s that float64 holds.
* Otherwise v / 2^s is at least hi - lo + 1 or below 0: if |m x| > 2^53, then |v| > 2^53 - |C| >= (hi - lo + 1) 2^s.
  Rounding keeps the order of numbers, and 0 and hi - lo + 1 are float64 numbers. So what is computed lies on the same
  side of the same end, and is clipped to it.

With several terms, the sum of all |m_i x_i| and |C| must be at most 2^53; then all numbers are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from cvm.blocks import boxes
from cvm.executors.numpy.blocks import aligned, parameter, part
from cvm.executors.numpy.step import Array
from cvm.ops.declaration import Call
from cvm.records import dataclass

__all__ = ["FLOAT_ELEMENTS", "FloatCodes", "unbuffered"]

LIMIT = 2**53
SMALLEST_BUFFER = 16
"""The smallest buffer that NumPy allows, in elements."""
MOST_PARAMETERS = 2**16
"""Parameters of more elements are not proven; they stay in int64."""
FLOAT_ELEMENTS = 2**17
"""Elements of one block: its numbers in float64 stay in the cache."""
MOST_CODES = 2**31 - 1
"""The most codes, less one, that are computed as numbers from 0 on in int32."""


@dataclass(frozen=True, slots=True)
class FloatCodes:
    """The parameters of a requantize in float64, with the rank of the result: m_i / 2^s, C / 2^s, hi - lo and lo."""

    factors: tuple[Array, ...]
    addend: Array
    span: int
    lo: int

    @staticmethod
    def of(call: Call) -> FloatCodes | None:
        """The parameters of a call, or None if float64 is not proven to be exact."""
        terms, rank, a = (len(call.shapes) - 2) // 2, len(call.shapes[0]), call.attributes
        *multipliers, offset, shift = (
            aligned(parameter(call, position), rank) for position in range(terms, len(call.shapes))
        )
        span, most = a.hi - a.lo, max(int(shift.max()), 0)
        if a.rounding != "half_up" or span > MOST_CODES or most > 52 or min(shift.min(), 0) < 0:
            return None
        if any(_magnitude(m) > LIMIT for m in (*multipliers, offset)):
            return None
        if math.prod(np.broadcast_shapes(shift.shape, offset.shape)) > MOST_PARAMETERS:
            return None
        if abs(a.lo) << most > 4 * LIMIT or (terms == 1 and (span + 1) << most > LIMIT):
            return None  # the sums below exceed the limit where the shift is the largest; otherwise, 64 bits hold them
        shifts, offsets = (array.astype(np.int64) for array in np.broadcast_arrays(shift, offset))
        powers = np.left_shift(1, shifts)
        moved = offsets + powers // 2 - a.lo * powers
        if terms == 1:
            exact = bool((abs(moved) + (span + 1) * powers <= LIMIT).all())
        else:
            sizes = zip(multipliers, call.ranges[:terms], strict=True)
            exact = sum(_magnitude(m) * x.magnitude() for m, x in sizes) + int(abs(moved).max()) <= LIMIT
        if not exact:
            return None
        scale = np.ldexp(1.0, -shift.astype(np.int32))
        factors = tuple(m.astype(np.float64) * scale for m in multipliers)
        return FloatCodes(factors, moved.astype(np.float64) * scale, span, a.lo)

    @property
    def by_channel(self) -> bool:
        """Whether all parameters have extent 1 along all axes but axis 1."""
        arrays = (*self.factors, self.addend)
        return all(n == 1 for array in arrays for axis, n in enumerate(array.shape) if axis != 1)

    def within(self, box: Sequence[slice]) -> FloatCodes:
        """The parameters of a box of the result."""
        factors = tuple(part(m, box) for m in self.factors)
        return FloatCodes(factors, part(self.addend, box), self.span, self.lo)

    def write_all(self, tensors: Sequence[Array], codes: Array) -> None:
        """Write the codes of tensors of the shape of ``codes``, block by block. A term may have extents of 1."""
        work = np.empty(min(codes.size, FLOAT_ELEMENTS))
        for box in boxes(codes.shape, FLOAT_ELEMENTS):
            target = codes[box]
            self.within(box).write([part(x, box) for x in tensors], work[: target.size].reshape(target.shape), target)

    def write(self, tensors: Sequence[Array], work: Array, codes: Array) -> None:
        """Write the codes of integers, in any type that holds them; ``work`` is float64 of the same shape."""
        np.copyto(work, tensors[0])
        with unbuffered():
            work *= self.factors[0]
            for x, m in zip(tensors[1:], self.factors[1:], strict=True):
                work += x.astype(np.float64) * m
            work += self.addend
        # Between hi - lo and hi - lo + 1 all numbers have the same floor, so the clip may end at any of them.
        np.clip(work, 0.0, self.span + 0.5, out=work)
        np.copyto(codes, work, casting="unsafe")
        if self.lo:
            codes += self.lo


@contextmanager
def unbuffered() -> Iterator[None]:
    """Let NumPy work without buffers, for operands of one type.

    Where an operand is broadcast along rows shorter than a buffer, NumPy copies all operands through buffers, which
    takes more than twice the time.
    """
    before = np.setbufsize(SMALLEST_BUFFER)
    try:
        yield
    finally:
        np.setbufsize(before)


def _magnitude(array: Array) -> int:
    return max(-int(array.min()), int(array.max()))
