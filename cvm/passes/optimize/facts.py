"""Facts about a verified program that passes need: which node computes a value, which nodes read it, and whether it
must be kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from cvm import ops
from cvm.program.model import Constant, Node
from cvm.program.verifier import VerifiedProgram
from cvm.records import dataclass

__all__ = ["PERMUTATIONS", "Facts"]

PERMUTATIONS = frozenset({"transpose", "reshape", "flatten", "squeeze", "expand_dims"})
"""The ops whose result has every element of the operand once, in some order."""


@dataclass(frozen=True, eq=False)
class Facts:
    """A verified program with indices by value: the node that computes it, and the nodes that read it."""

    verified: VerifiedProgram

    @cached_property
    def constants(self) -> Mapping[str, Constant]:
        """The constants by name."""
        return {constant.name: constant for constant in self.verified.program.constants}

    @cached_property
    def indices(self) -> Mapping[str, int]:
        """The index of the node that computes each value."""
        return {value.name: index for index, node in enumerate(self.verified.program.nodes) for value in node.outputs}

    @cached_property
    def readers(self) -> Mapping[str, tuple[int, ...]]:
        """The indices of the nodes that read a value, in order, each once."""
        found: dict[str, list[int]] = {}
        for index, node in enumerate(self.verified.program.nodes):
            for name in dict.fromkeys(node.inputs):
                found.setdefault(name, []).append(index)
        return {name: tuple(indices) for name, indices in found.items()}

    @cached_property
    def public(self) -> frozenset[str]:
        """The values that are outputs of the program, or the value or the update of a state."""
        program = self.verified.program
        states = (name for state in program.state for name in (state.initial, state.update))
        return frozenset({*(output.value for output in program.outputs), *states})

    @cached_property
    def named(self) -> frozenset[str]:
        """The values that are public, or hold the codes of a tensor of the document."""
        tensors = (item.value for item in self.verified.program.provenance.exactness)
        return self.public | (frozenset(tensors) & self.verified.shapes.keys())

    @cached_property
    def kept(self) -> frozenset[str]:
        """The values that are kept even if no node reads them: public ones, and the tensors of the document.

        A tensor that only has the elements of another value in another order is not kept, since no code is lost.
        """
        nodes = self.verified.program.nodes
        moved = {node.outputs[0].name for node in nodes if node.op in PERMUTATIONS}
        return self.public | (self.named - moved)

    def node(self, name: str) -> Node | None:
        """The node that computes a value; None if no node does."""
        index = self.indices.get(name)
        return None if index is None else self.verified.program.nodes[index]

    def gas(self, name: str) -> int:
        """The gas of the node that computes a value."""
        index = self.indices[name]
        return ops.get(self.verified.program.nodes[index].op).gas(self.verified.calls[index])

    def dies_with(self, name: str, readers: frozenset[int]) -> bool:
        """Whether nothing needs the value if the nodes with these indices no longer read it."""
        return name in self.indices and name not in self.kept and readers.issuperset(self.readers.get(name, ()))
