"""Elimination of common subexpressions: an op that is applied twice to the same operands is computed once."""

from __future__ import annotations

from typing import TypeAlias

from cvm.passes.optimize.draft import Draft, rewritten
from cvm.program import Program
from cvm.program.model import AttributeValue, Node, Shape
from cvm.program.verifier import VerifiedProgram

__all__ = ["common_subexpressions"]

COMMUTATIVE = frozenset({"broadcast_add", "broadcast_mul", "broadcast_max", "elemwise_add"})

_Key: TypeAlias = "tuple[str, tuple[str, ...], tuple[tuple[str, AttributeValue], ...]]"


def common_subexpressions(verified: VerifiedProgram) -> Program:
    """The program in which no op is applied twice to the same operands with the same attributes.

    An op is a function of its operands and attributes, so the second result equals the first. Constants with equal
    elements count as the same operand. The order of the operands of a commutative op does not count.
    """
    seen: dict[_Key, str] = {}

    def merge_constants(draft: Draft) -> None:
        found: dict[tuple[str, Shape, bytes], str] = {}
        for constant in verified.program.constants:
            first = found.setdefault((constant.kind, constant.shape, constant.data), constant.name)
            if first != constant.name:
                draft.alias(constant.name, first)

    def merge(draft: Draft, node: Node) -> bool:
        inputs = [draft.current(name) for name in node.inputs]
        if node.op in COMMUTATIVE:
            inputs.sort()
        (output,) = node.outputs
        first = seen.setdefault((node.op, tuple(inputs), tuple(sorted(node.attributes.items()))), output.name)
        if first == output.name:
            return False
        draft.alias(output.name, first)
        return True

    return rewritten(verified, merge, merge_constants)
