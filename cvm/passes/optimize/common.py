"""Common subexpressions: an op that is applied twice to the same operands is computed once."""

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
    """The program in which each op is applied to the same operands with the same attributes once.

    An op is a function of its operands and attributes, so that the first result is the second as well. Constants with
    the same elements count as one. Operands of commutative ops count in any order.
    """
    seen: dict[_Key, str] = {}

    def merge_constants(draft: Draft) -> None:
        found: dict[tuple[str, Shape, bytes], str] = {}
        for constant in verified.program.constants:
            first = found.setdefault((constant.kind, constant.shape, constant.data), constant.name)
            if first != constant.name:
                draft.alias(constant.name, first)

    def merge(draft: Draft, node: Node) -> bool:
        inputs = [draft.now(name) for name in node.inputs]
        if node.op in COMMUTATIVE:
            inputs.sort()
        (output,) = node.outputs
        first = seen.setdefault((node.op, tuple(inputs), tuple(sorted(node.attributes.items()))), output.name)
        if first == output.name:
            return False
        draft.alias(output.name, first)
        return True

    return rewritten(verified, merge, merge_constants)
