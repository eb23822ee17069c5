"""One operation of a graph, and the table of the functions that evaluate operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.oracle.real import Number
from tools.exactness.elements import Budget, Elements, Index

__all__ = ["OPERATIONS", "Call", "Evaluate", "evaluates"]


@dataclass(frozen=True, slots=True)
class Call:
    """An operation with its operands, its attributes and the shapes of its results."""

    name: str
    operands: Mapping[str, Any]
    """`Elements` by parameter, or a tuple of them for an array of tensors."""
    attributes: Mapping[str, Any]
    shapes: tuple[tuple[int, ...], ...]
    budget: Budget

    def made(self, rule: Callable[[Index], Number], shape: tuple[int, ...] | None = None) -> Elements:
        """A tensor with a rule for its elements, by default of the shape of the first result."""
        return Elements(self.shapes[0] if shape is None else shape, rule, self.budget)


Evaluate: TypeAlias = Callable[[Call], tuple[Elements, ...]]

OPERATIONS: dict[str, Evaluate] = {}
"""The function of each operation, by name: from a call to its results."""


def evaluates(*names: str) -> Callable[[Callable[[Call], Elements | tuple[Elements, ...]]], Any]:
    """A decorator that enters a function for the named operations."""

    def enter(function: Callable[[Call], Elements | tuple[Elements, ...]]) -> Any:
        def evaluate(call: Call) -> tuple[Elements, ...]:
            found = function(call)
            return found if isinstance(found, tuple) else (found,)

        OPERATIONS.update(dict.fromkeys(names, evaluate))
        return function

    return enter
