"""The first difference between two runs of one program on one input: the op, its output, 1 KiB of it, one element."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cvm.audit.dispute.evidence import Evidence
from cvm.audit.dispute.targets import auxiliary_count
from cvm.audit.trace import Trace
from cvm.errors import Invalid
from cvm.program.merkle import LEAF_BYTES
from cvm.records import dataclass

__all__ = ["Difference", "locate"]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of two runs, as precisely as the given evidence shows it."""

    op: int
    output: int
    """The index of the output among those of the op."""
    roots: tuple[bytes | None, bytes | None]
    """The two roots of that tensor; None if a trace has none."""
    leaf: int | None = None
    element: int | None = None
    """The number of the element, row-major."""
    values: tuple[int, int] | None = None
    steps: int | None = None
    """The number of steps that the element takes."""
    follows: int | None = None
    """The right value of the element, computed from the operands on which both agree."""


def locate(one: Evidence | Trace, other: Evidence | Trace) -> Difference | None:
    """The first difference of two runs; None if there is none.

    Two traces tell only the op; if both sides have all tensors, they also tell the element. Raises `Invalid`
    (``dispute.run``) for runs of different programs, inputs or states.
    """
    traces = tuple(item.trace if isinstance(item, Evidence) else item for item in (one, other))
    for what in ("program", "inputs", "before"):
        if getattr(traces[0], what) != getattr(traces[1], what):
            words = {"program": "programs", "inputs": "inputs", "before": "states before the run"}[what]
            raise Invalid("dispute.run", f"these are runs of different {words}: nothing that follows can be compared")
    found = _first(traces[0], traces[1])
    if found is None or not isinstance(one, Evidence) or not isinstance(other, Evidence):
        return found
    return _element(found, one, other)


def _first(one: Trace, other: Trace) -> Difference | None:
    """The first output on which two logs differ. An output that only one log has counts as a difference."""
    for op in range(max(len(one.steps), len(other.steps))):
        first, second = (trace.steps[op] if op < len(trace.steps) else () for trace in (one, other))
        for output in range(max(len(first), len(second))):
            roots = tuple(roots[output] if output < len(roots) else None for roots in (first, second))
            if roots[0] != roots[1]:
                return Difference(op, output, (roots[0], roots[1]))
    return None


def _element(found: Difference, one: Evidence, other: Evidence) -> Difference:
    """The first element on which two tensors differ, and its right value."""
    target = found.output + auxiliary_count(one.program.program.nodes[found.op].op)
    first, second = (item.tensor(found.op, target) for item in (one, other))
    element = int(np.argmax(first.reshape(-1) != second.reshape(-1)))
    course, _ = one.fold(found.op, target, element)
    follows = course.start
    for step in range(course.count):
        follows = course.step(step, follows)
    return replace(
        found,
        leaf=4 * element // LEAF_BYTES,
        element=element,
        values=(int(first.flat[element]), int(second.flat[element])),
        steps=course.count,
        follows=follows,
    )
