"""Where elements lie: homes as maps from indices to addresses, and when two loops visit the same addresses.

An axis of a view is a list of factors (extent, stride), outermost first. Different lists may describe the same map. So
they are merged: neighbours (n, k s) and (k, s) become one factor (n k, s), and factors of extent 1 are dropped. All
lists that describe one map have the same merged form.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.plan.homes import Home
from cvm.program.model import Node

__all__ = ["Array", "Factors", "Loops", "Unproven", "broadcast", "decoded", "extent", "loops_of", "merged", "moved",
           "offsets_of", "require", "stride", "visited"]  # fmt: skip

Array: TypeAlias = npt.NDArray[Any]
Factors: TypeAlias = "tuple[tuple[int, int], ...]"
Loops: TypeAlias = "list[tuple[int, tuple[int, ...]]]"
"""Loops: each has an extent, and for every tensor the number of elements by which an iteration moves the address."""


class Unproven(Exception):
    """The checker could not prove a claim; the message says why."""


def require(holds: bool, what: str) -> None:
    """Raise `Unproven` unless ``holds``."""
    if not holds:
        raise Unproven(what)


def merged(factors: Sequence[tuple[int, int]]) -> Factors:
    """The merged form of factors, which is the same for all lists that describe one map."""
    found: list[tuple[int, int]] = []
    for n, step in factors:
        if n > 1 and found and found[-1][1] == n * step:
            found[-1] = (found[-1][0] * n, step)
        elif n > 1:
            found.append((n, step))
    return tuple(found)


def extent(factors: Factors) -> int:
    """The extent of an axis."""
    return math.prod(n for n, _ in factors)


def stride(factors: Factors) -> int:
    """The stride of an axis that has one merged factor, or 0 if its extent is 1. Raises `Unproven` for other axes."""
    alone = merged(factors)
    require(len(alone) <= 1, "an axis has no single stride")
    return alone[0][1] if alone else 0


def broadcast(axes: Sequence[Factors], shape: Sequence[int]) -> tuple[Factors, ...]:
    """The axes of a view that is broadcast to a shape: aligned at the last axis, with stride 0 where it repeats."""
    padded = ((),) * (len(shape) - len(axes)) + tuple(axes)
    require(len(padded) == len(shape), "a tensor has more axes than the result")
    spread = tuple(((n, 0),) if extent(one) == 1 else merged(one) for one, n in zip(padded, shape, strict=True))
    require(all(extent(one) == n for one, n in zip(spread, shape, strict=True)), "a tensor does not broadcast")
    return tuple(merged(one) for one in spread)


def moved(node: Node, attributes: Any, axes: Sequence[Factors], like: Sequence[int]) -> tuple[int, list[Factors]]:
    """Return the view of the result of an op that only moves elements.

    The view is the number of elements by which the offset of the first element changes, and the factors of every axis.
    ``axes`` are those of the operand; ``like`` is the shape of the second operand of `slice_like`.
    """
    shape, found, offset = node.outputs[0].shape, [merged(axis) for axis in axes], 0
    rank = len(found)
    match node.op:
        case "transpose":
            order = [axis % rank for axis in attributes.axes] or list(reversed(range(rank)))
            return 0, [found[axis] for axis in order]
        case "repeat":
            found[attributes.axis % rank] += ((attributes.repeats, 0),)
        case "upsampling":
            found[2:] = [(*axis, (attributes.scale, 0)) for axis in found[2:]]
        case "tile":
            found = [()] * (len(attributes.reps) - rank) + found
            reps = (1,) * (len(found) - len(attributes.reps)) + tuple(attributes.reps)
            found = [((times, 0), *axis) for times, axis in zip(reps, found, strict=True)]
        case "slice" | "slice_like":
            named = {axis % rank for axis in attributes.axes} if node.op == "slice_like" else set()
            for axis in range(rank):
                if node.op == "slice":
                    given = (ends[axis] if axis < len(ends) else None
                             for ends in (attributes.begin, attributes.end, attributes.strides))  # fmt: skip
                    taken = range(extent(found[axis]))[slice(*_absolute(extent(found[axis]), *given))]
                else:
                    whole = axis not in (named or range(len(like)))
                    taken = range(extent(found[axis]) if whole else like[axis])
                if taken != range(extent(found[axis])):
                    step = stride(found[axis])
                    offset += taken.start * step
                    found[axis] = ((len(taken), taken.step * step),)
        case _:
            raise Unproven(f"{node.op} does not only move elements")
    require(tuple(map(extent, found)) == shape, "the view has another shape than the result")
    return offset, [merged(axis) for axis in found]


def _absolute(n: int, begin: int | None, end: int | None, step: int | None) -> tuple[int, int | None, int]:
    """The bounds of a slice as `range` takes them: the extent is added once to a negative bound, then it is clipped."""
    step = 1 if step is None else step
    least, most = (0, n) if step > 0 else (-1, n - 1)
    ends = [default if end is None else min(max(end + n * (end < 0), least), most)
            for end, default in ((begin, 0), (end, n))]  # fmt: skip
    return ends[0], None if ends[1] < 0 else ends[1], step


def visited(axes: Sequence[Sequence[Factors]], at: int) -> Loops:
    """Loops over all indices of several tensors at once. Each tensor is given by its axes; tensor ``at`` decides the
    order of the loops.

    Two lists of loops that are equal in this form visit the same combinations of addresses.
    """
    loops: Loops = []
    for parallel in zip(*axes, strict=True):
        left = [list(merged(factors)) for factors in parallel]
        while any(left):
            left = [factors or [(1, 0)] for factors in left]
            n = min(factors[-1][0] for factors in left)
            require(n > 1 and all(factors[-1][0] % n == 0 for factors in left), "views split an axis differently")
            loops.append((n, tuple(factors[-1][1] for factors in left)))
            for factors in left:
                count, step = factors.pop()
                if count > n:
                    factors.append((count // n, step * n))
    return loops_of(loops, at)


def loops_of(loops: Sequence[tuple[int, tuple[int, ...]]], at: int) -> Loops:
    """Loops sorted by their strides in tensor ``at``. Neighbours that visit the same addresses as one longer loop are
    merged.
    """
    found: Loops = []
    for n, steps in sorted((loop for loop in loops if loop[0] > 1), key=lambda one: (-abs(one[1][at]), one)):
        if found and found[-1][1] == tuple(n * step for step in steps):
            found[-1] = (found[-1][0] * n, steps)
        else:
            found.append((n, steps))
    return found


def offsets_of(first: int, loops: Iterable[tuple[int, int]]) -> Array:
    """The offsets that loops (extent, distance) visit from ``first`` on, those of the last loop side by side."""
    offsets = np.full((1,), first)
    for n, step in loops:
        offsets = (offsets[:, None] + step * np.arange(n)).reshape(-1)
    return offsets


def decoded(data: bytes | bytearray | memoryview, home: Home) -> Array:
    """The elements of a home in the constants. Axes along which they repeat have extent 1."""
    axes = [() if all(step == 0 for _, step in axis) else axis for axis in home.view.axes]
    offsets = offsets_of(home.view.offset, [factor for axis in axes for factor in axis])
    stored = np.frombuffer(data, home.format.dtype, len(data) // home.format.bytes)
    return _values(stored[offsets], home.format).reshape([extent(axis) for axis in axes])


def _values(stored: Array, format_: Format) -> Array:
    """The values of stored integers. Raises `Unproven` for 64-bit integers with a bias."""
    require(format_.bits < 64 or format_.bias == 0, "64-bit integers have a bias")
    return stored.astype(np.int64) - format_.bias
