"""Derivation of the shape and the precision of every entry; the shape must be the one that the document states."""

from __future__ import annotations

from cvm.errors import CvmError, Invalid
from cvm.frontends.cvm_runtime.graph import SHOWN, Graph
from cvm.frontends.cvm_runtime.operators import Use
from cvm.frontends.cvm_runtime.precisions import derived
from cvm.records import dataclass

__all__ = ["Inferred", "infer"]


@dataclass(frozen=True, eq=False, slots=True)
class Inferred:
    """A graph, for each node its use of an op (None for a variable), and the precision of every entry."""

    graph: Graph
    uses: tuple[Use | None, ...]
    precisions: tuple[int, ...]


def infer(graph: Graph, *, sound: bool = True) -> Inferred:
    """The shapes and precisions of all entries; ``sound`` as for `derived`.

    Raises `Invalid` (``cvm_runtime.*``, ``ops.*``) that names the node.
    """
    uses: list[Use | None] = []
    precisions: list[int] = []
    for node in graph.nodes:
        if node.operator is None:
            uses.append(None)
            precisions.append(graph.precisions[node.first])
            continue
        inputs = [graph.number(entry) for entry in node.inputs]
        try:
            use = node.operator.use(node.texts, tuple(graph.shapes[number] for number in inputs))
            for index, shape in enumerate(use.out_shapes):
                written = graph.shapes[node.first + index]
                if written != shape:
                    message = f"output {index} has shape {list(shape)}, the model says {list(written)}"
                    raise Invalid("cvm_runtime.shape", message)
            precisions += derived(use, tuple(precisions[number] for number in inputs), sound=sound)
        except CvmError as error:
            raise error.at(tensor=node.name[:SHOWN], op=node.operator.name) from None
        uses.append(use)
    return Inferred(graph, tuple(uses), tuple(precisions))
