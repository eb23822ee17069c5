"""Groups: which nodes one kernel computes.

An elementwise node joins the kernel of an operand if the operand has the node's shape and no other reader. The last
node of a group, its root, names the group. A group contains at most one contraction, whose sums the later nodes of the
group read from registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping

from cvm.ops.declaration import Call
from cvm.program import Program
from cvm.program.model import Node
from cvm.records import dataclass

__all__ = ["POINTWISE", "Groups", "contracts", "group"]

POINTWISE = frozenset({
    "broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_div", "broadcast_max", "broadcast_greater",
    "elemwise_add", "elemwise_sub", "negative", "abs", "relu", "clip", "cvm_clip", "cvm_precision",
    "cvm_right_shift", "cvm_left_shift", "where", "requantize", "take", "cvm_lut",
})  # fmt: skip
"""Ops that compute each element from a few others."""
MOST_GROUPS = 4096
"""The most groups of one convolution. Each group gets a call; a convolution of more groups is computed one element at
a time.
"""


def contracts(node: Node, call: Call, constants: Container[str]) -> bool:
    """Whether a node is a contraction: a convolution or a product of matrices with constant weights and bias."""
    if node.op not in ("conv2d", "dense") or any(name not in constants for name in node.inputs[1:]):
        return False
    return node.op == "dense" or call.attributes.groups <= MOST_GROUPS


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a program.

    ``joined`` are the values that exist only inside the kernel of a later node. ``sums`` maps the result of a root to
    the contraction in its group, ``producer`` every value to the node that computes it.
    """

    joined: frozenset[str]
    sums: Mapping[str, Node]
    producer: Mapping[str, Node]


def group(program: Program, kept: frozenset[str], contracts: Callable[[Node], bool]) -> Groups:
    """Group the nodes. Values in ``kept`` must exist in memory; ``contracts`` says which nodes are contractions."""
    uses = Counter(name for node in program.nodes for name in node.inputs)
    producer = {value.name: node for node in program.nodes for value in node.outputs}
    joined: set[str] = set()
    sums: dict[str, Node] = {}
    for node in program.nodes:
        result = node.outputs[0]
        if contracts(node):
            sums[result.name] = node
        if node.op not in POINTWISE:
            continue
        for index, name in enumerate(node.inputs):
            source = producer.get(name)
            if source is None or uses[name] != 1 or name in kept or not (source.op in POINTWISE or name in sums):
                continue
            if source.outputs[0].shape != result.shape or (index == 0 and node.op in ("take", "cvm_lut")):
                continue
            if name in sums:
                if result.name in sums:
                    continue
                sums[result.name] = sums[name]
            joined.add(name)
    return Groups(frozenset(joined), {name: node for name, node in sums.items() if name not in joined}, producer)
