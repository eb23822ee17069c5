"""Views: where the elements of a tensor lie in a buffer.

Each axis of a tensor is a tuple of factors (extent, stride), outermost first, whose extents multiply to the extent of
the axis. An index along the axis is written in the mixed radix of these extents, and its digits are multiplied by the
strides. An axis with one factor is an ordinary strided axis; an axis without factors has extent 1. Thanks to several
factors, a reshape, a flattened channels-last map, a repeat or a tile needs no copy: each is another view of the same
buffer. Strides count elements and may be 0 or negative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.records import dataclass

__all__ = ["Axis", "View", "refined"]

Axis: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class View:
    """Where each element of a tensor lies: ``offset`` plus the sum of digit * stride over the factors of all axes."""

    offset: int
    axes: tuple[Axis, ...]

    @staticmethod
    def strided(shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> View:
        """A view of ordinary axes, with one stride for each."""
        return View(offset, tuple(((n, s),) if n > 1 else () for n, s in zip(shape, strides, strict=True)))

    @staticmethod
    def ordered(shape: Sequence[int], order: Sequence[int]) -> View:
        """A view without gaps, whose axes lie in memory as ``order`` lists them, outermost first."""
        strides, step = [0] * len(shape), 1
        for axis in reversed(order):
            strides[axis] = step
            step *= shape[axis]
        return View.strided(shape, strides)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return tuple(math.prod(n for n, _ in axis) for axis in self.axes)

    def stride(self, axis: int) -> int | None:
        """The stride of an axis with one factor, 0 where the extent is 1, None for an axis with several factors."""
        factors = _joined(self.axes[axis])
        return None if len(factors) > 1 else factors[0][1] if factors else 0

    def transposed(self, axes: Sequence[int]) -> View:
        """The view with its axes permuted: axis i of the result is axis axes[i] of this one."""
        return View(self.offset, tuple(self.axes[axis] for axis in axes))

    def reshaped(self, shape: Sequence[int]) -> View | None:
        """A view of the same elements in another shape, row-major order kept.

        Returns None where an extent of the new shape would split a factor unevenly.
        """
        factors = list(_joined(tuple(factor for axis in self.axes for factor in axis)))
        axes: list[Axis] = []
        for extent in reversed(shape):
            taken: list[tuple[int, int]] = []
            while extent > 1:
                n, stride = factors.pop()
                if extent % n == 0:
                    taken.append((n, stride))
                    extent //= n
                elif n % extent == 0:
                    taken.append((extent, stride))
                    factors.append((n // extent, stride * extent))
                    extent = 1
                else:
                    return None
            axes.append(tuple(reversed(taken)))
        return View(self.offset, tuple(reversed(axes)))

    def sliced(self, axis: int, start: int, step: int, count: int) -> View | None:
        """A view of the indices start, start + step, .. (``count`` of them) along an axis.

        Returns None for an axis with several factors, unless the slice is the whole axis.
        """
        stride = self.stride(axis)
        if stride is None:
            whole = start == 0 and step == 1 and count == self.shape[axis]
            return self if whole else None
        return self._with(axis, ((count, stride * step),) if count > 1 else (), start * stride)

    def repeated(self, axis: int, times: int, each: bool) -> View:
        """The view with each element along an axis repeated ``times`` times (``each``), or with the axis tiled."""
        more: Axis = ((times, 0),) if times > 1 else ()
        return self._with(axis, (*self.axes[axis], *more) if each else (*more, *self.axes[axis]))

    def broadcast(self, shape: Sequence[int]) -> View:
        """The view broadcast to a shape: aligned at the last axis, with axes of extent 1 repeated."""
        axes = ((),) * (len(shape) - len(self.axes)) + self.axes
        spread = (((n, 0),) if n > 1 and not axis else axis for n, axis in zip(shape, axes, strict=True))
        return View(self.offset, tuple(spread))

    def expanded(self, axis: int) -> View:
        """The view with a new axis of extent 1 before ``axis``."""
        return View(self.offset, (*self.axes[:axis], (), *self.axes[axis:]))

    def positions(self) -> npt.NDArray[np.int64]:
        """The offset of every element in the buffer, row-major."""
        offsets = np.full(1, self.offset, np.int64)
        for axis in self.axes:
            for n, stride in axis:
                offsets = (offsets[:, None] + stride * np.arange(n)).ravel()
        return offsets

    def _with(self, axis: int, factors: Axis, moved: int = 0) -> View:
        return replace(self, offset=self.offset + moved, axes=(*self.axes[:axis], factors, *self.axes[axis + 1 :]))


def _joined(factors: Axis) -> Axis:
    """Merge neighbouring factors: (n, m * s), (m, s) becomes (n * m, s)."""
    joined: list[tuple[int, int]] = []
    for n, stride in factors:
        if n == 1:
            continue
        if joined and joined[-1][1] == n * stride:
            joined[-1] = (joined[-1][0] * n, stride)
        else:
            joined.append((n, stride))
    return tuple(joined)


def refined(axes: Sequence[Axis]) -> list[tuple[int, tuple[int, ...]]] | None:
    """Return loops over one axis that suit all given views of it: (extent, the stride in each view), outermost first.

    ``axes`` holds the axis as each view has it. Returns None where two views split the axis into extents that do not
    divide each other.
    """
    left = [list(_joined(axis)) for axis in axes]
    loops: list[tuple[int, tuple[int, ...]]] = []
    while any(left):
        if not all(left):
            return None
        extent = math.gcd(*(factors[-1][0] for factors in left))
        least = min(factors[-1][0] for factors in left)
        if extent != least:
            return None
        loops.append((extent, tuple(factors[-1][1] for factors in left)))
        for factors in left:
            n, stride = factors.pop()
            if n > extent:
                factors.append((n // extent, stride * extent))
    return loops[::-1]
