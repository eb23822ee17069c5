"""The parameters and index arithmetic that all sliding-window operations share: NNEF 1.0.1 section 4.3.

Letters are the document's: f is the size of the kernel, s the stride, d the dilation, p the padding before the data,
X the up-scaled and x the down-scaled extent. Tap j of window i reads the up-scaled index i*s + j*d - p.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import reduce, wraps
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid
from cvm.records import dataclass
from cvm.reference.registry import Array, Function, Integers, Padding, along, operation

__all__ = [
    "AS_DECLARED",
    "Sliding",
    "Window",
    "coverage",
    "down_windows",
    "extended",
    "extended_along",
    "folded",
    "require_coverage",
    "sliding_operation",
    "sources",
    "taps",
    "up_windows",
]


_SlidingFunction = TypeVar("_SlidingFunction", bound=Function)


@dataclass(frozen=True, slots=True)
class Sliding:
    """The attributes that all sliding-window operations share, with their defaults; empty lists are those of 4.3."""

    border: str = "constant"
    padding: Padding = ()
    stride: Integers = ()
    dilation: Integers = ()


AS_DECLARED = Sliding()
"""The defaults."""


def sliding_operation(section: str) -> Callable[[_SlidingFunction], _SlidingFunction]:
    """Register a function for the operation of its name, whose declaration has the attributes of `Sliding` in place of
    the parameter ``sliding``.
    """

    def register(function: _SlidingFunction) -> _SlidingFunction:
        @wraps(function)
        def apply(**given: Any) -> Array | tuple[Array, ...]:
            attributes = {name: given.pop(name) for name in Sliding.__slots__ if name in given}
            return function(**given, sliding=Sliding(**attributes))

        operation(section)(apply)
        return function

    return register


@dataclass(frozen=True, slots=True)
class Window:
    """One dimension that a kernel slides along."""

    f: int
    s: int
    d: int
    p: int
    X: int
    x: int

    @property
    def identity(self) -> bool:
        """Whether each window holds exactly the element at its own index."""
        return (self.f, self.s, self.p, self.x) == (1, 1, 0, self.X)

    def positions(self) -> npt.NDArray[np.int64]:
        """The up-scaled index that each tap of each window reads: an array of shape (x, f)."""
        return np.arange(self.x)[:, None] * self.s + np.arange(self.f) * self.d - self.p


def automatic_padding(X: int, x: int, s: int, reach: int) -> int:
    """The padding before the data where none is given; ``reach`` is the dilated size of the kernel.

    It is floor(t / 2) of the total t = (x - 1)*s + reach - X, or 0 where windows leave gaps and t is negative: there
    the formula alone would shift them by a negative padding, but the conformance cases and all tools begin at index 0.
    """
    return max((x - 1) * s + reach - X, 0) // 2


def down_windows(extents: Integers, size: Integers, sliding: Sliding) -> tuple[Window, ...]:
    """The windows of a basic operation on up-scaled extents."""
    windows = []
    for axis, (X, f) in enumerate(zip(extents, size, strict=True)):
        s, d, reach = _steps(sliding, axis, f)
        if sliding.padding:
            p, q = sliding.padding[axis]
            x = (p + X + q - reach) // s + 1
        else:
            x = -(-X // s)
            p = automatic_padding(X, x, s, reach)
        windows.append(Window(f, s, d, p, X, x))
    return tuple(windows)


def _steps(sliding: Sliding, axis: int, f: int) -> tuple[int, int, int]:
    """The stride and the dilation along an axis, and the extent that a dilated kernel of size f covers."""
    d = sliding.dilation[axis] if sliding.dilation else 1
    return sliding.stride[axis] if sliding.stride else 1, d, (f - 1) * d + 1


def up_windows(extents: Integers, size: Integers, sliding: Sliding, reference: Integers) -> tuple[Window, ...]:
    """The windows of a reverse operation on down-scaled extents; ``reference`` holds the up-scaled extents, or is
    empty.

    Automatic padding without a reference gives X = x*s, whose down-scaled extent is x again.
    """
    windows = []
    for axis, (x, f) in enumerate(zip(extents, size, strict=True)):
        s, d, reach = _steps(sliding, axis, f)
        if sliding.padding:
            p, q = sliding.padding[axis]
            X = reference[axis] if reference else (x - 1) * s + reach - (p + q)
        else:
            X = reference[axis] if reference else x * s
            p = automatic_padding(X, x, s, reach)
        windows.append(Window(f, s, d, p, X, x))
    return tuple(windows)


def sources(
    positions: npt.NDArray[np.int64], extent: int, border: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The index of the element that stands at each position of the extended input, and whether there is an element.

    Beyond the data, the borders 'constant' and 'ignore' have no element (the index is then 0). Reflections repeat
    periodically where a position lies further out than one reflection reaches.
    """
    inside = (positions >= 0) & (positions < extent)
    match border:
        case "constant" | "ignore":
            return np.where(inside, positions, 0), inside
        case "replicate":
            found = np.clip(positions, 0, extent - 1)
        case "reflect":
            period = max(2 * (extent - 1), 1)
            folded = positions % period
            found = np.minimum(folded, period - folded) if extent > 1 else np.zeros_like(positions)
        case "reflect-even":
            folded = positions % (2 * extent)
            found = np.minimum(folded, 2 * extent - 1 - folded)
        case _:
            raise Invalid("reference.border", f"there is no border mode {border!r}")
    return found, np.ones_like(inside)


def extended_along(x: Array, axis: int, first: int, last: int, border: str, fill: object = 0.0) -> Array:
    """The extended input at the positions ``first`` to ``last``, both included, of one axis."""
    extent = x.shape[axis]
    if first == 0 and last == extent - 1:
        return x
    if border not in ("constant", "ignore"):
        found, _ = sources(np.arange(first, last + 1), extent, border)
        return np.take(x, found, axis)
    shape = list(x.shape)
    shape[axis] = last + 1 - first
    result = np.full(shape, fill, x.dtype)
    begin, end = max(first, 0), min(last + 1, extent)
    if begin < end:
        lead = (slice(None),) * axis
        result[(*lead, slice(begin - first, end - first))] = x[(*lead, slice(begin, end))]
    return result


def _extended(x: Array, axis: int, window: Window, border: str, fill: object) -> Array:
    """The extended input along one axis, from the first tap of the first window to the last of the last."""
    last = (window.x - 1) * window.s + (window.f - 1) * window.d - window.p
    return extended_along(x, axis, -window.p, last, border, fill)


def extended(x: Array, windows: Sequence[Window], border: str, fill: object = 0.0) -> Array:
    """The extended input as far as windows reach in the trailing dimensions, with one window per dimension."""
    for axis, window in enumerate(windows, start=x.ndim - len(windows)):
        x = _extended(x, axis, window, border, fill)
    return x


def _tap(window: Window, j: int) -> slice:
    """The slice of the extended input that tap j of all windows reads."""
    return slice(j * window.d, j * window.d + (window.x - 1) * window.s + 1, window.s)


def taps(windows: Sequence[Window]) -> Iterator[tuple[slice, ...]]:
    """The slices of the extended input that each tap of all windows reads; taps in row-major order of the kernel."""
    return itertools.product(*([_tap(window, j) for j in range(window.f)] for window in windows))


def folded(
    x: Array, windows: Sequence[Window], border: str, combine: Callable[[Array, Array], Array], fill: object = 0.0
) -> Array:
    """All taps of each window combined, one dimension after another; sums and maxima are separable,
    so they allow it.
    """
    for axis, window in enumerate(windows):
        if not window.identity:
            reached, lead = _extended(x, axis, window, border, fill), (slice(None),) * axis
            x = reduce(combine, (reached[(*lead, _tap(window, j))] for j in range(window.f)))
    return x


def coverage(windows: Sequence[Window]) -> Array:
    """The number of taps of each window that lie on data and not in the border."""
    counts = np.ones((1,) * len(windows))
    for axis, window in enumerate(windows):
        positions = window.positions()
        inside = ((positions >= 0) & (positions < window.X)).sum(axis=1)
        counts = counts * along(inside.astype(np.float64), axis, len(windows))
    return counts


def require_coverage(windows: Sequence[Window]) -> None:
    """Raise `Invalid` where a window lies completely in the border: border 'ignore' leaves it
    nothing to compute from.
    """
    if not coverage(windows).all():
        raise Invalid("reference.empty-window", "a window lies in the border altogether, which border 'ignore' ignores")
