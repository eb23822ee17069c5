"""The table of operations: one vectorised function per operation of chapter 4, by name.

A function has the document's parameter names. Tensor parameters arrive as arrays (literals as arrays of rank 0, arrays
of tensors as sequences), scalar attributes as floats, all other attributes as the graph holds them. It returns one
array per declared result; for a result that is an array of tensors, one array per tensor. It quantises nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from cvm.records import dataclass

__all__ = [
    "OPERATIONS", "Array", "Function", "Integers", "Operation", "Padding", "aligned", "along", "binary", "operation",
    "unary",
]  # fmt: skip

Array: TypeAlias = npt.NDArray[Any]
"""float64 for scalar tensors, bool for logical and int64 for integer ones."""

Integers: TypeAlias = Sequence[int]
"""An attribute of type ``integer[]``."""

Padding: TypeAlias = Sequence[tuple[int, int]]
"""An attribute of type ``(integer,integer)[]``."""

Function: TypeAlias = "Callable[..., Array | tuple[Array, ...]]"
_Function = TypeVar("_Function", bound="Callable[..., Array | tuple[Array, ...]]")


@dataclass(frozen=True, slots=True)
class Operation:
    """The function of one operation and the section that defines it."""

    section: str
    function: Function


OPERATIONS: dict[str, Operation] = {}
"""All operations by name, filled when the modules of `cvm.reference.operations` are imported."""


def operation(section: str, *names: str) -> Callable[[_Function], _Function]:
    """Register a function for the named operations of a section; without names, for the operation of the function's
    name.
    """

    def register(function: _Function) -> _Function:
        for name in names or (function.__name__,):
            if name in OPERATIONS:
                raise AssertionError(f"two functions for {name}")
            OPERATIONS[name] = Operation(section, function)
        return function

    return register


def unary(section: str, functions: Mapping[str, Callable[[Array], Any]]) -> None:
    """Register operations of one tensor ``x`` by name: the formula of each is its function of arrays."""

    def of_array(function: Callable[[Array], Any]) -> Function:
        return lambda x: np.asarray(function(x))

    for name, function in functions.items():
        operation(section, name)(of_array(function))


def binary(section: str, functions: Mapping[str, Callable[[Array, Array], Any]]) -> None:
    """Register operations of two tensors ``x`` and ``y``, which broadcast, by name."""

    def of_arrays(function: Callable[[Array, Array], Any]) -> Function:
        return lambda x, y: np.asarray(function(*aligned(x, y)))

    for name, function in functions.items():
        operation(section, name)(of_arrays(function))


def aligned(*tensors: Array) -> tuple[Array, ...]:
    """The tensors reshaped to one rank by trailing axes of extent 1: NNEF broadcasts from axis 0 on (4.2.2)."""
    rank = max(tensor.ndim for tensor in tensors)
    return tuple(tensor.reshape(tensor.shape + (1,) * (rank - tensor.ndim)) for tensor in tensors)


def along(values: npt.ArrayLike, axis: int, rank: int) -> Array:
    """A vector as an array of ``rank`` that runs along ``axis`` and has extent 1 along all other axes."""
    vector = np.asarray(values)
    return vector.reshape([-1 if dimension == axis else 1 for dimension in range(rank)])
