"""`normalize`: sums of rows once, codes by integers of fixed point, and exact comparisons where these leave a choice.

With V = r^2 Q + e 2^shift, a code is floor(u + 1/2) for u = (m / k) z + c / k and z = t r / sqrt(V), but for ties. An
estimate of 2^F (u + 1/2) has a proven error; where both ends of its interval have the same floor, and no integer lies
between them, that is the code. Else the code is found from the root of a square, in Python integers.

|z| <= sqrt(n): n Q >= t^2 for each statistic, because a square is at most the sum of all, and Samuelson's inequality
bounds (n x - S_1)^2 by (n - 1) (n S_2 - S_1^2).
"""

from __future__ import annotations

import math

import numpy as np

from cvm.blocks import boxes
from cvm.bounds import require_fits
from cvm.executors.numpy.blocks import BLOCK_ELEMENTS, aligned, parameter, part
from cvm.executors.numpy.step import Array, PlannedNode, plans, single
from cvm.ops.axes import normal
from cvm.ops.declaration import Call
from cvm.records import dataclass

__all__: list[str] = []

_FACTOR = 30
"""Bits of a factor m / k, about."""
_ERROR = 2**33 + 2**31 + 4
"""A product of a factor, whose magnitude is at most 2^31 and whose error is less than 1, and of an element of z, whose
magnitude is at most 2^31 and whose error is less than 4, differs by less from that of what they stand for."""


@plans("normalize")
def plan_normalize(call: Call) -> PlannedNode:
    """clip(round((m t / sqrt(Q + e 2^shift / r^2) + c) / k), lo, hi)."""
    a, shape = call.attributes, call.shapes[0]
    axes = tuple(sorted(normal(a.axes, len(shape))))
    n = math.prod(shape[axis] for axis in axes)
    require_fits((n * call.ranges[0].magnitude()) ** 2, 62, "the sum of the squares of a row, times n")
    m, c, k = (aligned(parameter(call, position).astype(object), len(shape)) for position in (1, 2, 3))
    r, e = (int(parameter(call, position)[0]) for position in (4, 5))
    exact = Exact(m, c, k, r, a.rounding == "half_up")
    factors = Factors.of(m, c, k, n)

    def run(X: Array) -> Array:
        S_1, S_2 = _sums(X, axes)
        Q = S_2 if a.statistic == "square_sum" else n * S_2
        Q = Q - S_1 * S_1 if a.statistic == "variance" else Q
        V = r * r * Q.astype(object) + e * 2**a.shift
        roots = Roots.of(V, r)
        Y = np.empty(shape, np.int32)
        for box in boxes(shape, BLOCK_ELEMENTS):
            t = X[box].astype(np.int64)
            t = t if a.statistic == "square_sum" else n * t
            t = t - part(S_1, box) if a.statistic == "variance" else t
            ends = factors.codes(roots.scaled(t, factors.fraction, box), box)
            least, largest = (np.clip(q, a.lo, a.hi) for q in ends)
            exact.decide(least, largest, t, V, box)
            np.copyto(Y[box], least, casting="same_kind")
        return Y

    return single(run, f"{a.statistic} of {n}, {a.rounding}, fixed point with exact ties", reads=(0,))


def _sums(X: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """The sums of rows and of their squares, with extents of 1 along ``axes``."""
    n = math.prod(X.shape[axis] for axis in axes)
    require_fits(n * max(-int(X.min()), int(X.max())) ** 2, 62, "the sum of the squares of a row")
    S_1 = np.zeros(tuple(1 if axis in axes else extent for axis, extent in enumerate(X.shape)), np.int64)
    S_2 = np.zeros_like(S_1)
    for box in boxes(X.shape, BLOCK_ELEMENTS):
        x = X[box].astype(np.int64)
        rows = tuple(slice(0, 1) if axis in axes else cut for axis, cut in enumerate(box))
        S_1[rows] += x.sum(axis=axes, keepdims=True)
        S_2[rows] += (x * x).sum(axis=axes, keepdims=True)
    return S_1, S_2


@dataclass(frozen=True, slots=True)
class Roots:
    """r / sqrt(V) of each row in fixed point: it lies in [root, root + 1) / 2^places, and 2^29.5 < root < 2^31."""

    root: Array
    places: Array

    @staticmethod
    def of(V: Array, r: int) -> Roots:
        """The roots of rows, from integers: floor(sqrt(x)) = floor(sqrt(floor(x)))."""
        square = r * r
        root, places = np.empty(V.shape, np.int64), np.empty(V.shape, np.int64)
        known: dict[int, tuple[int, int]] = {}
        for index, v in np.ndenumerate(V):
            if v not in known:
                g = (61 - square.bit_length() + v.bit_length()) // 2
                known[v] = math.isqrt((square << 2 * g) // v), g
            root[index], places[index] = known[v]
        return Roots(root, places)

    def scaled(self, t: Array, fraction: int, box: tuple[slice, ...]) -> Array:
        """The integers 2^fraction z with an error of less than 4 and a magnitude of at most 2^31.

        ``fraction`` is so small that sqrt(n) 2^fraction < 2^31. |t| < 2^32, since n max |x| and |S_1| are below 2^31.
        The error of the root is below 2^-29.5 of it and so below 3 in the result, the shift drops less than 1. A shift
        to the left gives no more than 2^fraction |z|.
        """
        require_fits((2**32 - 1) * (2**31 - 1), 63, "a numerator times a root")
        shift = part(self.places, box) - fraction
        product = t * part(self.root, box)
        return np.asarray((product << np.maximum(-shift, 0)) >> np.clip(shift, 0, 63))


@dataclass(frozen=True, slots=True)
class Factors:
    """m / k and c / k + 1/2 in fixed point, for an estimate of 2^F (u + 1/2)."""

    fraction: int
    """The bits of z after the point."""
    factor: Array
    """floor(2^places m / k) with a magnitude of at most 2^31."""
    shift: Array
    """What takes factor * z to F bits after the point; at most 63, where nothing but the sign is left."""
    error: Array
    offset: Array | None
    """floor(2^F (c / k + 1/2)), at most 2^61; None where F is negative: then there is no estimate."""
    F: int

    @staticmethod
    def of(m: Array, c: Array, k: Array, n: int) -> Factors:
        """The factors for rows of n elements; m, c and k are Python integers."""
        fraction = 31 - math.isqrt(n).bit_length()
        shape = np.broadcast_shapes(m.shape, k.shape)
        pairs = list(zip(np.broadcast_to(m, shape).flat, np.broadcast_to(k, shape).flat, strict=True))
        places = [_FACTOR - abs(a).bit_length() + b.bit_length() if a else None for a, b in pairs]
        largest = int((abs(2 * c + k) // (2 * k) + 1).max())
        F = min([61 - largest.bit_length(), *(s + fraction for s in places if s is not None)])
        factor = [0 if s is None else (a << s) // b if s >= 0 else a // (b << -s)
                  for (a, b), s in zip(pairs, places, strict=True)]  # fmt: skip
        shift = [0 if s is None else min(63, s + fraction - F) for s in places]
        error = [(_ERROR >> s) + 3 for s in shift]
        of_m, by, wrong = (np.array(items, np.int64).reshape(shape) for items in (factor, shift, error))
        offset = ((2 * c + k) * 2**F // (2 * k)).astype(np.int64) if F >= 0 else None
        return Factors(fraction, of_m, by, wrong, offset, F)

    def codes(self, z: Array, box: tuple[slice, ...]) -> tuple[Array, Array]:
        """The least and the largest code that there may be before they are clipped; equal only if there is no tie."""
        if self.offset is None:
            return np.full(z.shape, -(2**31)), np.full(z.shape, 2**31)
        require_fits(2**62 + 2**61 + 2 * _ERROR, 63, "an estimate with its error")
        estimate = ((part(self.factor, box) * z) >> part(self.shift, box)) + part(self.offset, box)
        error = part(self.error, box)
        return (estimate - error) >> self.F, (estimate + error) >> self.F


@dataclass(frozen=True, slots=True)
class Exact:
    """The codes of u in Python integers."""

    m: Array
    c: Array
    k: Array
    r: int
    upward: bool

    def decide(self, least: Array, largest: Array, t: Array, V: Array, box: tuple[slice, ...]) -> None:
        """Set ``least`` to the codes, which lie in [least, largest], where these differ."""
        index = np.nonzero(least != largest)
        if not index[0].size:
            return
        m, c, k, of_row = (np.broadcast_to(part(x, box), t.shape)[index] for x in (self.m, self.c, self.k, V))
        left = 2 * self.r * m * t[index].astype(object)
        found = map(self._code, left, 2 * c + k, 2 * k, of_row)
        least[index] = np.clip(np.array(list(found), object), least[index], largest[index]).astype(np.int64)

    def _code(self, left: int, above: int, divisor: int, V: int) -> int:
        """floor((left / sqrt(V) + above) / divisor), one less for an odd code that a tie gives if ties go to even.

        The floor of left / sqrt(V) is enough, since above is an integer. It is found from its square.
        """
        square = left * left
        root = math.isqrt(square // V)
        whole = root * root * V == square
        if left < 0:
            root = -root if whole else -root - 1
        code, rest = divmod(root + above, divisor)
        return code - 1 if whole and rest == 0 and code % 2 and not self.upward else code
