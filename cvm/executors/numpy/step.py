"""Planning: every node is planned once, before anything runs.

A plan is a function that chooses the method for a call from its shapes, attributes and proven ranges; the range of a
constant is its elements. The planned node then needs the arrays alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy.typing as npt

from cvm.limits import INT32_MAX
from cvm.ops.declaration import Call
from cvm.ops.ranges import Exact, Range, Shape
from cvm.records import dataclass

__all__ = ["KERNELS", "Array", "Plan", "PlannedNode", "fits_int32", "known", "plans", "plans_functions", "single"]

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One planned node.

    ``run`` takes the inputs with the indices ``reads`` (None: all) as C-contiguous arrays, and must not write to them;
    planning has used the others already. It must not refer to the call, whose ranges are as large as the constants. A
    result may be an input itself or a view of one, with any strides. A view must contain all elements of its array, so
    that it does not keep a larger array in memory. ``note`` says which method was chosen and why.

    ``join`` takes the call of a requantize that alone reads the result. It gives a node that computes the codes from
    the same inputs block by block, or None if it cannot.
    """

    run: Callable[[Sequence[Array]], tuple[Array, ...]]
    note: str
    reads: tuple[int, ...] | None = None
    join: Callable[[Call], PlannedNode | None] | None = None


Plan: TypeAlias = Callable[[Call], PlannedNode]

KERNELS: dict[str, Plan] = {}
"""The plan of every op, by name."""


def plans(name: str) -> Callable[[Plan], Plan]:
    """A decorator that enters the plan of the op ``name`` into `KERNELS`."""

    def enter(plan: Plan) -> Plan:
        if name in KERNELS:
            raise ValueError(f"op {name} has two plans")
        KERNELS[name] = plan
        return plan

    return enter


def single(function: Callable[..., Array], note: str, reads: tuple[int, ...] | None = None) -> PlannedNode:
    """A planned node with one result, which ``function`` computes from the arrays."""
    return PlannedNode(lambda arrays: (function(*arrays),), note, reads)


def plans_functions(functions: Mapping[str, Callable[..., Array]], note: str = "int32") -> None:
    """Enter plans of ops that one function of arrays computes in every call, by name."""
    for name, function in functions.items():
        plans(name)(partial(_of_function, function, note))


def _of_function(function: Callable[..., Array], note: str, call: Call) -> PlannedNode:
    return single(function, note)


def known(bounds: Range, shape: Shape) -> Array | None:
    """The elements of a tensor if its range admits one value for each (a constant), else None."""
    if isinstance(bounds, Exact):
        return bounds.lo if bounds.shape == shape else None
    return bounds.lo if bounds.shape == shape and bool((bounds.lo == bounds.hi).all()) else None


def fits_int32(*integers: int) -> bool:
    """Whether all the integers are legal elements of a tensor."""
    return all(-INT32_MAX <= integer <= INT32_MAX for integer in integers)
