"""Operations that few networks have: whole tensors of them, by the evaluator of `tests.oracle`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from cvm.graph import GraphOperation
from tests.oracle.operations import OPERATIONS
from tests.oracle.real import Number
from tests.oracle.tensors import Tensor, from_numbers
from tools.exactness.elements import Budget, Elements, Index

__all__ = ["whole"]


def whole(
    operation: GraphOperation, operands: Mapping[str, Any], shapes: tuple[tuple[int, ...], ...], budget: Budget
) -> tuple[Elements, ...]:
    """The results of an operation, computed together when the first element is asked for.

    Raises NotImplementedError for an operation that NNEF does not have.
    """
    if operation.name not in OPERATIONS:
        raise NotImplementedError("no exact evaluation of this operation is written")
    attributes = {name: _listed(item) for name, item in operation.attributes.items()}

    @cache
    def results() -> tuple[Tensor, ...]:
        found = OPERATIONS[operation.name](**{name: _tensor(x) for name, x in operands.items()}, **attributes)
        return tuple(found) if isinstance(found, list | tuple) else (found,)

    def result(number: int) -> Elements:
        def rule(d: Index) -> Number:
            return results()[number].item(*d)

        return Elements(shapes[number], rule, budget)

    return tuple(result(number) for number in range(len(shapes)))


def _listed(item: Any) -> Any:
    """An attribute with lists for arrays; the pairs in them stay tuples."""
    return list(item) if isinstance(item, tuple) else item


def _tensor(x: Any) -> Any:
    """All elements of an operand."""
    if isinstance(x, tuple):
        return [_tensor(item) for item in x]
    items = np.empty(x.shape, dtype=object)
    for index in product(*map(range, x.shape)):
        items[index] = x[index]
    return from_numbers(items)
