"""Removal of neutral ops, which return one of their operands unchanged for all elements in the proven ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from cvm.ops import Range
from cvm.passes.optimize.clamps import clamp_of
from cvm.passes.optimize.draft import Draft, rewritten
from cvm.program import Program
from cvm.program.model import Node
from cvm.program.verifier import VerifiedProgram

__all__ = ["neutral_ops"]

Test: TypeAlias = "Callable[[Sequence[Range]], bool]"


def neutral_ops(verified: VerifiedProgram) -> Program:
    """The program without ops that are proven to return an operand that has the shape of the result.

    Each is proven by a comparison of the proven ranges of its operands (see the table `NEUTRAL`).
    """
    return rewritten(verified, _rule)


def _rule(draft: Draft, node: Node) -> bool:
    (output,) = node.outputs
    names = [draft.current(name) for name in node.inputs]
    index = _operand(draft, node, names)
    if index is None or draft.shape(names[index]) != output.shape:
        return False
    draft.alias(output.name, names[index])
    return True


def _operand(draft: Draft, node: Node, names: Sequence[str]) -> int | None:
    """The index of an operand that is proven to equal the result; None if there is no such operand."""
    clamp = clamp_of(node)
    ranges = [draft.range(name) for name in names]
    if clamp is not None:
        lo, hi = ranges[0].hull()
        return 0 if clamp[0] <= lo and hi <= clamp[1] else None
    return next((index for index, holds in NEUTRAL.get(node.op, {}).items() if holds(ranges)), None)


def _always(bounds: Range, value: int) -> bool:
    return bounds.hull() == (value, value)


def _at_least(x: Range, other: Range) -> bool:
    """Whether every element of x is proven to be at least the element of ``other`` that it is combined with."""
    return x.hull()[0] >= other.hull()[1]


def _nonzero(bounds: Range) -> bool:
    return bool(((bounds.lo > 0) | (bounds.hi < 0)).all())


NEUTRAL: Mapping[str, Mapping[int, Test]] = {
    # op: {index of an operand: the condition under which it is the result}
    "abs": {0: lambda r: r[0].hull()[0] >= 0},
    "elemwise_add": {0: lambda r: _always(r[1], 0), 1: lambda r: _always(r[0], 0)},
    "elemwise_sub": {0: lambda r: _always(r[1], 0)},
    "broadcast_add": {0: lambda r: _always(r[1], 0), 1: lambda r: _always(r[0], 0)},
    "broadcast_sub": {0: lambda r: _always(r[1], 0)},
    "broadcast_mul": {0: lambda r: _always(r[1], 1), 1: lambda r: _always(r[0], 1)},
    "broadcast_div": {0: lambda r: _always(r[1], 1)},
    "broadcast_max": {0: lambda r: _at_least(r[0], r[1]), 1: lambda r: _at_least(r[1], r[0])},
    "where": {1: lambda r: _nonzero(r[0]), 2: lambda r: _always(r[0], 0)},
}
"""The conditions that prove that an operand is the result. For clips and relu, see `clamp_of`."""
