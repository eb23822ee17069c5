"""The dependencies between the nodes of a graph: order, cycles, elements written twice, [static] data, views.

A node writes a box of a root tensor. A node that reads a box of that tensor gets it assembled from the boxes that other
nodes wrote, and from the previous contents of the tensor elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from cvm.frontends.openvx.errors import InvalidGraph, InvalidScope, MultipleWriters, NotAllocated
from cvm.frontends.openvx.graph import OpenvxNode, RecordedGraph
from cvm.frontends.openvx.objects import Box, Tensor
from cvm.records import dataclass

__all__ = ["Piece", "Write", "ordered", "pieces", "require_static", "writes"]


@dataclass(frozen=True, eq=False, slots=True)
class Write:
    """One write: a node writes a box of a tensor."""

    node: OpenvxNode
    tensor: Tensor
    box: Box


def writes(graph: RecordedGraph) -> dict[Tensor, list[Write]]:
    """The writes of all nodes, by root tensor. Raises `MultipleWriters` where boxes overlap."""
    found: dict[Tensor, list[Write]] = {}
    for node in graph.nodes:
        for parameter, tensor in node.tensors():
            if not parameter.output:
                continue
            others = found.setdefault(tensor.root, [])
            for other in others:
                if intersection(other.box, tensor.box) is not None:
                    message = f"{parameter.name} is written by {other.node.label!r} too"
                    raise MultipleWriters("graph.writers", message, node.location(parameter.name), node.label)
            others.append(Write(node, tensor.root, tensor.box))
    return found


def require_static(graph: RecordedGraph, written: dict[Tensor, list[Write]]) -> None:
    """Raise `NotAllocated` for a [static] tensor without data, or one that a node of the graph writes."""
    for node in graph.nodes:
        for parameter, tensor in node.tensors():
            if not parameter.static:
                continue
            reason = ""
            if tensor.virtual:
                reason = "is virtual, and [static]"
            elif tensor.root in written:
                reason = "is [static], and a node writes it"
            elif not tensor.initialised:
                reason = "is [static] and has no data: set it before the graph is verified"
            if reason:
                raise NotAllocated(
                    "tensor.static", f"{parameter.name} {reason}", node.location(parameter.name), node.label
                )


def ordered(graph: RecordedGraph, written: dict[Tensor, list[Write]]) -> list[OpenvxNode]:
    """The nodes in an order in which each follows the nodes whose results it reads; ties keep the order of creation.

    Raises `InvalidGraph` for a cycle, `InvalidScope` for a part of a virtual tensor that no node writes.
    """
    needs: dict[OpenvxNode, list[OpenvxNode]] = {}
    for node in graph.nodes:
        sources: list[OpenvxNode] = []
        for parameter, tensor in node.tensors():
            if parameter.output or parameter.static:
                continue
            found = pieces(tensor.box, written.get(tensor.root, []))
            sources += [piece.write.node for piece in found if piece.write]
            if tensor.virtual and any(piece.write is None for piece in found):
                message = f"{parameter.name} is a virtual tensor of which nodes write nothing, or only a part"
                raise InvalidScope("tensor.virtual", message, node.location(parameter.name), node.label)
        needs[node] = sources
    done: dict[OpenvxNode, None] = {}
    pending = list(graph.nodes)
    while pending:
        ready = [node for node in pending if all(source in done for source in needs[node])]
        if not ready:
            labels = ", ".join(node.label for node in pending)
            raise InvalidGraph("graph.cycle", f"nodes wait for each other: {labels}", pending[0].location())
        done[ready[0]] = None
        pending.remove(ready[0])
    return list(done)


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """A box of a tensor: written by one node, by no node (None), or consisting of two parts along a dimension."""

    box: Box
    write: Write | None
    parts: tuple[Piece, Piece] | None = None
    dimension: int = 0


def pieces(box: Box, written: Sequence[Write]) -> list[Piece]:
    """The pieces of which a box consists, each written by one node or by none."""
    whole = assembled(box, written)
    found, pending = [], [whole]
    while pending:
        piece = pending.pop()
        if piece.parts:
            pending += piece.parts
        else:
            found.append(piece)
    return found


def assembled(box: Box, written: Sequence[Write]) -> Piece:
    """The piece for a box: it is split in two at the borders of writes until one node, or none, has
    written each part.
    """
    inside = [write for write in written if intersection(write.box, box) is not None]
    if not inside:
        return Piece(box, None)
    for dimension, (start, end) in enumerate(box):
        for write in inside:
            for border in write.box[dimension]:
                if start < border < end:
                    sides = (
                        (*box[:dimension], ends, *box[dimension + 1 :]) for ends in ((start, border), (border, end))
                    )
                    first, second = (assembled(side, inside) for side in sides)
                    return Piece(box, None, (first, second), dimension)
    (write,) = inside  # the boxes of writes do not overlap, and no border of one lies inside of this box
    return Piece(box, write)


def intersection(first: Box, second: Box) -> Box | None:
    """The intersection of two boxes."""
    common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(first, second, strict=True))
    return common if all(start < end for start, end in common) else None
