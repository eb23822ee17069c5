"""The costs that cvm-runtime computes for a model: gas, storage, and their limits, exactly.

Gas is the sum over ops of the elements of the result times the weight of the op, plus five per element of a variable or
result. Storage is the sum over storage indices of four bytes per element of the largest tensor of that index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from cvm.errors import LimitExceeded
from cvm.frontends.cvm_runtime.graph import Graph
from cvm.frontends.cvm_runtime.inference import Inferred
from cvm.frontends.cvm_runtime.operators import Use
from cvm.records import dataclass

__all__ = ["STORAGE", "Metering", "meter", "storage_bytes"]

STORAGE = 2**32
"""The most bytes of storage of a model."""
WEIGHT = 2**30
OPS = 2**40
MEMORY = 2**40
PER_ELEMENT = 5
"""The memory cost per element."""
PER_BATCH = 20
"""The cost of each batch of a suppression, independent of how many boxes it holds."""
PER_TERM = 3
"""The cost of a multiplication and addition in a convolution or a dense layer."""


@dataclass(frozen=True, slots=True)
class Metering:
    """The costs of a model. ``heaviest`` is the largest weight of an op."""

    ops: int
    memory: int
    heaviest: int
    storage: int

    @property
    def gas(self) -> int:
        """The result of CVMAPIGetGasFromModel.

        Raises `LimitExceeded` (``limit.cvm_runtime.weight``, ``.ops``, ``.memory``) where that function fails. Such a
        model can be loaded all the same.
        """
        for name, found, bound in (
            ("weight", self.heaviest, WEIGHT),
            ("ops", self.ops, OPS),
            ("memory", self.memory, MEMORY),
        ):
            if found > bound:
                raise LimitExceeded(f"limit.cvm_runtime.{name}", f"the {name} of the model, {found}, exceeds {bound}")
        return self.ops + self.memory


def meter(inferred: Inferred) -> Metering:
    """The costs of a model."""
    graph = inferred.graph
    memory = PER_ELEMENT * sum(map(math.prod, graph.shapes))
    paid = [(_weight(use), math.prod(use.out_shapes[0])) for use in inferred.uses if use is not None]
    ops = sum(weight * elements for weight, elements in paid)
    return Metering(ops, memory, max((weight for weight, _ in paid), default=0), storage_bytes(graph))


def storage_bytes(graph: Graph) -> int:
    """The result of CVMAPIGetStorageSize."""
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
