"""Which nodes become one loop nest, and which tensors are stored.

A node that computes each element from the elements at the same index of other tensors is written into the loop of
the node that reads it, if nothing else reads it; so is the sum or the maximum that such a chain begins with. What is
stored are the tensors that are left: those with several readers, outputs, next states, and what ops that move or
select elements read and write.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field

from cvm.export.c.borders import Border, border
from cvm.program import Program
from cvm.program.model import Node
from cvm.program.verifier import VerifiedProgram
from cvm.records import dataclass

__all__ = ["FOLDS", "SAME_ORDER", "VIEWS", "Plan", "in_place", "is_pointwise", "plan", "tensor_operands"]

POINTWISE = frozenset(
    {
        "abs", "broadcast_add", "broadcast_div", "broadcast_greater", "broadcast_max", "broadcast_mul", "broadcast_sub",
        "clip", "cvm_clip", "cvm_left_shift", "cvm_precision", "cvm_right_shift", "elemwise_add", "elemwise_sub",
        "negative", "quotient", "relu", "requantize", "where",
    }
)  # fmt: skip
"""Ops whose element depends on the elements of their operands at the same index, up to broadcasting."""
TABLES = frozenset({"cvm_lut", "take"})
"""Ops that look an element up; pointwise in the indices, if they have no axis."""
VIEWS = frozenset({"slice", "slice_like", "transpose"})
"""Ops whose element is an element of the operand, at an index that is affine in theirs."""
SAME_ORDER = frozenset({"expand_dims", "flatten", "reshape", "squeeze"})
"""Ops that keep the order of all elements: their result is the operand under another shape."""
FOLDS = frozenset({"conv2d", "dense", "matmul", "max", "max_pool2d", "sum"})
"""Ops whose element is a sum or a maximum over many elements."""


@dataclass(slots=True)
class Plan:
    """What is written for which node."""

    inlined: set[str] = field(default_factory=set)
    """The values that are computed inside the loop of their only reader."""
    heads: dict[str, int] = field(default_factory=dict)
    """For values of chains that begin with a fold: the number of the fold's node."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Values that are another value under another shape."""
    live: set[int] = field(default_factory=set)
    """The numbers of the nodes whose results are needed."""
    borders: dict[str, Border] = field(default_factory=dict)
    """For results of conv2d: the constant border that their operand has, if it is not stored."""

    def stored(self, name: str) -> str:
        """The value whose storage a value has."""
        while name in self.aliases:
            name = self.aliases[name]
        return name

    def reads(self, node: Node, given: Mapping[str, Node]) -> Iterator[str]:
        """The stored values that the loops of a node read, also inside the chain that it ends.

        ``given`` has the node of each value.
        """
        for name in node.inputs:
            if name in self.inlined:
                yield from self.reads(given[name], given)
            else:
                yield self.stored(name)


def in_place(found: Plan, verified: VerifiedProgram, root: Node, given: Mapping[str, Node]) -> set[str]:
    """The stored tensors whose elements ``root``'s loops read only at the position at which they store an element.

    The result may take the place of one of them, if nothing reads it later. ``given`` has the node of each value.
    """
    same: set[str] = set()
    others: set[str] = set()

    def walk(node: Node) -> None:
        shape = verified.shapes[node.outputs[0].name]
        first = len(node.inputs) - len(tensor_operands(node))  # a table comes before the operands
        for position, operand in enumerate(node.inputs):
            at_same = is_pointwise(node) and position >= first and verified.shapes[operand] == shape
            if operand not in found.inlined:
                (same if at_same else others).add(found.stored(operand))
            elif at_same and is_pointwise(given[operand]):
                walk(given[operand])
            else:
                others.update(found.reads(given[operand], given))

    walk(root)
    return same - others


def is_pointwise(node: Node) -> bool:
    """Whether each element of the node's result is computed from elements of its operands at the same index."""
    return node.op in POINTWISE or (node.op in TABLES and "axis" not in node.attributes)


def tensor_operands(node: Node) -> tuple[str, ...]:
    """The operands that are read at the index of the result; a table is read at an index of its own."""
    if node.op in TABLES and "axis" not in node.attributes:
        return node.inputs[1:]
    if node.op == "slice_like":
        return node.inputs[:1]
    return node.inputs


def plan(verified: VerifiedProgram, traced: bool) -> Plan:
    """The plan of a program. If it is ``traced``, every tensor is stored."""
    program = verified.program
    found = Plan(live=_live(program, traced))
    uses = Counter(name for number in found.live for name in program.nodes[number].inputs)
    uses.update(item.value for item in program.outputs)
    uses.update(item.update for item in program.state)
    producer = {value.name: number for number, node in enumerate(program.nodes) for value in node.outputs}
    for number, node in enumerate(program.nodes):
        if number not in found.live:
            continue
        (name, *others) = (value.name for value in node.outputs)
        if node.op in SAME_ORDER and not traced:
            found.aliases[name] = node.inputs[0]
            continue
        if node.op in FOLDS:
            found.heads[name] = number
        around = border(verified, number, producer, uses, found.aliases) if node.op == "conv2d" and not traced else None
        if around is not None:
            found.borders[name] = around
            found.inlined.update(around.hidden)
        if others or traced or not (is_pointwise(node) or node.op in VIEWS):
            continue
        _inline(found, verified, producer, uses, node)
    return found


def _inline(found: Plan, verified: VerifiedProgram, producer: dict[str, int], uses: Counter[str], node: Node) -> None:
    """Decide which operands of a node are computed inside its loop."""
    nodes, shapes = verified.program.nodes, verified.shapes
    result = node.outputs[0].name
    for name in tensor_operands(node):
        number = producer.get(name)
        if number is None or uses[name] != 1 or name in found.aliases or len(nodes[number].outputs) > 1:
            continue
        kind = nodes[number]
        if not (is_pointwise(kind) or kind.op in VIEWS or kind.op in FOLDS):
            continue
        if node.op not in VIEWS and math.prod(shapes[name]) != math.prod(shapes[result]):
            continue  # it would be computed again for each element that it is broadcast to
        if name in found.heads:
            whole = node.op == "transpose" or (node.op not in VIEWS and shapes[name] == shapes[result])
            if result in found.heads or not whole:
                continue  # a loop nest has one fold, whose loops run over all elements of the result
            found.heads[result] = found.heads[name]
        found.inlined.add(name)


def _live(program: Program, traced: bool) -> set[int]:
    """The nodes whose results an output or a next state depends on; all nodes if every tensor is shown."""
    if traced:
        return set(range(len(program.nodes)))
    needed = {item.value for item in program.outputs} | {item.update for item in program.state}
    live = set()
    for number in range(len(program.nodes) - 1, -1, -1):
        node = program.nodes[number]
        if any(value.name in needed for value in node.outputs):
            live.add(number)
            needed.update(node.inputs)
    return live
