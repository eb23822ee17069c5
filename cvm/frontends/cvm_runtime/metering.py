"""What cvm-runtime charges for a model: gas, storage, and their limits, to the last unit.

Gas is the elements that ops give, each times the weight of its op, and five for every element of a variable or result.
Storage is what the numbers of the storage plan take, four bytes per element of the largest tensor of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cvm.errors import LimitExceeded
from cvm.frontends.cvm_runtime.graph import Graph
from cvm.frontends.cvm_runtime.inference import Inferred
from cvm.frontends.cvm_runtime.operators import Use

__all__ = ["STORAGE", "Metering", "meter", "storage_bytes"]

STORAGE = 2**32
"""Bytes of storage of a model, at most."""
WEIGHT = 2**30
OPS = 2**40
MEMORY = 2**40
PER_ELEMENT = 5
"""Memory cost of an element."""
PER_BATCH = 20
"""Of each batch of a suppression, whatever the number of its boxes."""
PER_TERM = 3
"""Of a product of a convolution or a dense layer, and its sum."""


@dataclass(frozen=True, slots=True)
class Metering:
    """The costs of a model. ``heaviest`` is the largest weight of an op."""

    ops: int
    memory: int
    heaviest: int
    storage: int

    @property
    def gas(self) -> int:
        """What CVMAPIGetGasFromModel gives.

        Raises `LimitExceeded` (``limit.cvm_runtime.weight``, ``.ops``, ``.memory``) where that fails. Such a model can
        be loaded all the same.
        """
        for name, found, bound in (
            ("weight", self.heaviest, WEIGHT),
            ("ops", self.ops, OPS),
            ("memory", self.memory, MEMORY),
        ):
            if found > bound:
                raise LimitExceeded(f"limit.cvm_runtime.{name}", f"the {name} to pay for, {found}, exceeds {bound}")
        return self.ops + self.memory


def meter(inferred: Inferred) -> Metering:
    """The costs of a model."""
    graph = inferred.graph
    memory = PER_ELEMENT * sum(map(math.prod, graph.shapes))
    paid = [(_weight(use), math.prod(use.out_shapes[0])) for use in inferred.uses if use is not None]
    ops = sum(weight * elements for weight, elements in paid)
    return Metering(ops, memory, max((weight for weight, _ in paid), default=0), storage_bytes(graph))


def storage_bytes(graph: Graph) -> int:
    """What CVMAPIGetStorageSize gives."""
    largest: dict[int, int] = {}
    for number, shape in zip(graph.storage, graph.shapes, strict=True):
        largest[number] = max(largest.get(number, 0), math.prod(shape))
    return 4 * sum(largest.values())


def _weight(use: Use) -> int:
    """The weight of an op: the cost of one element of its first result."""
    weigh = _WEIGHTS.get(use.operator.name)
    return 1 if weigh is None else weigh(use)


def _products(use: Use) -> int:
    return math.prod(use.shapes[1][1:]) * PER_TERM + (len(use.shapes) > 2)


_WEIGHTS: Mapping[str, Callable[[Use], int]] = {
    "conv2d": _products,
    "dense": _products,
    "max_pool2d": lambda use: math.prod(use.values["pool_size"]),
    "sum": lambda use: math.prod(use.shapes[0]) // math.prod(use.out_shapes[0]),
    "non_max_suppression": lambda use: PER_BATCH * use.shapes[0][0],
}
