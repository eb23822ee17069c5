"""Exact integers at plan time: arrays that never wrap.

The planner prepares constants for machine code: it folds biases into offsets, scales multipliers, bounds sums. NumPy's
64-bit integers wrap in silence, and a wrapped constant gives wrong results. So constants are prepared with `Exact`
alone: every operation first bounds its result in Python integers, from the least and the largest element of its
operands. It uses 64 bits where the bound fits in them, and Python integers where it does not. `Exact.int64` returns the
elements as a NumPy array and raises OverflowError if one needs more bits.

`tools/lint_arithmetic.py` checks that the rest of the package does no such arithmetic without `Exact`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Exact", "Operand", "exact", "stacked", "where"]

Array: TypeAlias = npt.NDArray[Any]
Hull: TypeAlias = tuple[int, int]
LEAST, MOST = -(2**63), 2**63 - 1


class Exact:
    """An array of at least one integer, each of any size. Operations broadcast as NumPy's do."""

    __slots__ = ("_array", "_bound", "_hull")
    __array_ufunc__ = None  # so that NumPy's arrays leave mixed operations to this class, or refuse them

    def __init__(self, array: Array, hull: Hull | None = None, bound: Hull | None = None) -> None:
        """``bound`` is an interval that is proven to hold the elements, which may be wider than their hull."""
        self._array = array
        self._hull = hull
        self._bound = bound

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self._array.shape

    @property
    def hull(self) -> Hull:
        """Bounds of all elements: the least and the largest one. A slice may keep the bounds of the whole array."""
        if self._hull is None:
            self._hull = int(self._array.min()), int(self._array.max())
        return self._hull

    @property
    def bound(self) -> Hull:
        """An interval that holds all elements: the one that is known, or the hull."""
        return self._hull or self._bound or self.hull

    @property
    def magnitude(self) -> int:
        """The largest absolute value of an element."""
        lo, hi = self.hull
        return max(-lo, hi)

    def int64(self) -> npt.NDArray[np.int64]:
        """The elements in 64 bits. Raises OverflowError where one does not fit."""
        if not _fits(self.bound) and not _fits(self.hull):
            raise OverflowError(f"{self.hull} does not fit in 64 bits")
        return self._array.astype(np.int64, copy=False)

    def int32(self) -> npt.NDArray[np.int64]:
        """The elements modulo 2^32 as signed 32-bit integers, for machine code whose arithmetic is modulo 2^32."""
        residues = (self + 2**31) & (2**32 - 1)
        return (residues - 2**31).int64()

    def __add__(self, other: Operand) -> Exact:
        b = exact(other)
        return _applied(np.add, self, b, lambda x, y: (x[0] + y[0], x[1] + y[1]))

    def __sub__(self, other: Operand) -> Exact:
        b = exact(other)
        return _applied(np.subtract, self, b, lambda x, y: (x[0] - y[1], x[1] - y[0]))

    def __neg__(self) -> Exact:
        return exact(0) - self

    def __mul__(self, other: Operand) -> Exact:
        b = exact(other)
        return _applied(np.multiply, self, b, lambda x, y: _hull_of([m * n for m in x for n in y]))

    def __lshift__(self, other: Operand) -> Exact:
        """The elements times 2^other. Raises ValueError for a negative shift."""
        b = exact(other)
        _require_shifts(b)
        return _applied(np.left_shift, self, b, _left)

    def __rshift__(self, other: Operand) -> Exact:
        """floor(self / 2^other). Raises ValueError for a negative shift."""
        b = exact(other)
        _require_shifts(b)
        return _applied(np.right_shift, self, b, lambda x, y: (min(x[0], 0), max(x[1], 0)) if y[1] < 64 else _WIDE)

    def __floordiv__(self, other: Operand) -> Exact:
        """floor(self / other). Raises ZeroDivisionError if a divisor is 0."""
        b = exact(other)
        if b.hull[0] <= 0 <= b.hull[1] and bool((b._array == 0).any()):
            raise ZeroDivisionError("a divisor is 0")
        return _applied(np.floor_divide, self, b, lambda x, _: (min(x[0], -x[1]) - 1, max(-x[0], x[1]) + 1))

    def __and__(self, mask: int) -> Exact:
        """The lowest k bits of each element, for a mask 2^k - 1."""
        return _applied(np.bitwise_and, self, exact(mask), lambda _, __: (0, mask))

    def __abs__(self) -> Exact:
        return self.larger(-self)

    def larger(self, other: Operand) -> Exact:
        """The larger of the two operands, element by element."""
        return _applied(np.maximum, self, exact(other), lambda x, y: (max(x[0], y[0]), max(x[1], y[1])))

    def smaller(self, other: Operand) -> Exact:
        """The smaller of the two operands, element by element."""
        return _applied(np.minimum, self, exact(other), lambda x, y: (min(x[0], y[0]), min(x[1], y[1])))

    def clip(self, lo: Operand, hi: Operand) -> Exact:
        """The elements clipped to [lo, hi]; where lo > hi, ``hi`` wins."""
        return self.larger(lo).smaller(hi)

    def __lt__(self, other: Operand) -> npt.NDArray[np.bool_]:
        return _compared(np.less, self, exact(other))

    def __le__(self, other: Operand) -> npt.NDArray[np.bool_]:
        return _compared(np.less_equal, self, exact(other))

    def __gt__(self, other: Operand) -> npt.NDArray[np.bool_]:
        return _compared(np.greater, self, exact(other))

    def __ge__(self, other: Operand) -> npt.NDArray[np.bool_]:
        return _compared(np.greater_equal, self, exact(other))

    def __getitem__(self, index: Any) -> Exact:
        return Exact(self._array[index], self._hull if self._hull and _fits(self._hull) else None, self._bound)

    def sum(self, axis: int) -> Exact:
        """The sums along an axis, which is removed."""
        count = self.shape[axis]
        bound = (min(count * self.hull[0], 0), max(count * self.hull[1], 0))
        if _fits(bound) and self._array.dtype != object:
            return Exact(self._array.sum(axis=axis, dtype=np.int64))
        return Exact(np.asarray(self._objects().sum(axis=axis)))

    def max(self, axis: int) -> Exact:
        """The largest elements along an axis, which is kept with extent 1."""
        return Exact(np.asarray(self._array.max(axis=axis, keepdims=True)), self._hull, self._bound)

    def min(self, axis: int) -> Exact:
        """The least elements along an axis, which is kept with extent 1."""
        return Exact(np.asarray(self._array.min(axis=axis, keepdims=True)), self._hull, self._bound)

    def reshape(self, *shape: int) -> Exact:
        """The same elements in another shape."""
        return Exact(self._array.reshape(*shape), self._hull, self._bound)

    def broadcast(self, shape: Sequence[int]) -> Exact:
        """The array broadcast to a shape."""
        return Exact(np.broadcast_to(self._array, tuple(shape)), self._hull, self._bound)

    def _objects(self) -> Array:
        return self._array.astype(object)


Operand: TypeAlias = "Exact | Array | int"
_WIDE = (LEAST - 1, MOST + 1)
"""A hull beyond 64 bits, which makes `_applied` compute in Python integers."""


def exact(values: Operand) -> Exact:
    """Integers of any type as `Exact`. Raises TypeError for an array that does not hold integers."""
    if isinstance(values, Exact):
        return values
    if isinstance(values, int):
        return Exact(np.array(values, np.int64 if LEAST <= values <= MOST else object), (values, values))
    if values.dtype.kind not in "iuO":
        raise TypeError(f"Exact holds integers, found {values.dtype}")
    return Exact(values)


def stacked(parts: Sequence[Exact]) -> Exact:
    """The arrays concatenated along the first axis."""
    return Exact(np.concatenate([part._array for part in parts]))


def where(condition: npt.NDArray[np.bool_], a: Operand, b: Operand) -> Exact:
    """The elements of ``a`` where the condition holds, else those of ``b``."""
    first, second = exact(a), exact(b)
    hull = _hull_of([*first.hull, *second.hull])
    if _fits(hull):
        return Exact(np.where(condition, first.int64(), second.int64()), hull)
    return Exact(np.where(condition, first._objects(), second._objects()), hull)


def _hull_of(values: Sequence[int]) -> tuple[int, int]:
    return min(values), max(values)


def _fits(hull: tuple[int, int]) -> bool:
    return hull[0] >= LEAST and hull[1] <= MOST


def _require_shifts(shifts: Exact) -> None:
    if shifts.bound[0] < 0 and shifts.hull[0] < 0:
        raise ValueError(f"a shift is negative: {shifts.hull[0]}")


def _left(x: Hull, shift: Hull) -> Hull:
    """An interval of the elements of ``x`` times 2^shift, for shifts that are not negative."""
    return _WIDE if shift[1] >= 64 else _hull_of([m << max(n, 0) for m in x for n in shift])


_known, _hull = attrgetter("bound"), attrgetter("hull")


def _applied(
    operation: Callable[[Array, Array], Array], a: Exact, b: Exact, bound: Callable[[Hull, Hull], Hull]
) -> Exact:
    """Apply an operation in 64 bits if the operands and the result fit in them, else in Python integers.

    ``bound`` gives an interval of the result for intervals of the operands. The known ones are tried before the hulls,
    which take a pass over the elements.
    """
    for interval in (_known, _hull):
        x, y = interval(a), interval(b)
        found = bound(x, y) if _fits(x) and _fits(y) else _WIDE
        if _fits(found):
            return Exact(np.asarray(operation(a.int64(), b.int64())), None, found)
    return Exact(np.asarray(operation(a._objects(), b._objects()), object))


def _compared(operation: Callable[[Array, Array], Array], a: Exact, b: Exact) -> npt.NDArray[np.bool_]:
    if (_fits(a.bound) or _fits(a.hull)) and (_fits(b.bound) or _fits(b.hull)):
        return np.asarray(operation(a.int64(), b.int64()), bool)
    return np.asarray(operation(a._objects(), b._objects()), bool)
