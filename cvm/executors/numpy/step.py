"""Planning: every node becomes a step once, before anything runs.

A plan looks at a call - shapes, attributes, proven ranges, and thereby the values of constants - and chooses the
method. What it chose runs on arrays alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy.typing as npt

from cvm.limits import INT32_MAX
from cvm.ops.declaration import Call
from cvm.ops.ranges import Exact, Range, Shape

__all__ = ["KERNELS", "Array", "Plan", "PlannedNode", "fits_int32", "known", "plans", "single"]

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One planned node.

    ``run`` takes the inputs at the positions ``reads`` (None: all), C-contiguous, and must not write to them; the
    others were used up in planning. It keeps nothing of the call, whose ranges are as large as the constants. Its
    results may be the inputs themselves or views of them, with any strides; a view is of all its elements, so that it
    keeps no larger array alive. ``note`` says which method and why.
    """

    run: Callable[[Sequence[Array]], tuple[Array, ...]]
    note: str
    reads: tuple[int, ...] | None = None


Plan: TypeAlias = Callable[[Call], PlannedNode]

KERNELS: dict[str, Plan] = {}
"""The plan of every op, by name."""


def plans(name: str) -> Callable[[Plan], Plan]:
    """Enter the plan of the op ``name`` into `KERNELS` (a decorator)."""

    def enter(plan: Plan) -> Plan:
        if name in KERNELS:
            raise ValueError(f"op {name} has two plans")
        KERNELS[name] = plan
        return plan

    return enter


def single(function: Callable[..., Array], note: str, reads: tuple[int, ...] | None = None) -> PlannedNode:
    """A step with one result: ``function`` of the arrays."""
    return PlannedNode(lambda arrays: (function(*arrays),), note, reads)


def known(bounds: Range, shape: Shape) -> Array | None:
    """The elements of a tensor whose range leaves no choice (a constant), else None."""
    if isinstance(bounds, Exact):
        return bounds.lo if bounds.shape == shape else None
    return bounds.lo if bounds.shape == shape and bool((bounds.lo == bounds.hi).all()) else None


def fits_int32(*integers: int) -> bool:
    """Whether all the integers are legal elements of a tensor."""
    return all(-INT32_MAX <= integer <= INT32_MAX for integer in integers)
