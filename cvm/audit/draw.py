"""The order in which elements of runs are drawn for FORMAL to judge, and the work that each of them takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from cvm.agreement import drawn_indices
from cvm.audit.costs import gas
from cvm.records import dataclass

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["HEAVY", "Draw", "draws", "shuffled", "terms"]

HEAVY = 2**20
"""An element of this many terms or more is never drawn: FORMAL would take about a second for it."""
ELEMENT = 16
"""The fixed work for an element besides its terms, in units of a term."""
_WHOLE_BATCH = ("get_valid_count", "non_max_suppression")
"""The ops for which one element takes as much work as its whole batch."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One element: the run, the node, the output of the node, and the number of the element in row-major order."""

    run: int
    node: int
    output: int
    element: int


def terms(verified: VerifiedProgram) -> list[int]:
    """For each node, FORMAL's work for one element of its outputs, counted in terms of a sum."""
    found = []
    for node, cost in zip(verified.program.nodes, gas(verified), strict=True):
        if node.op in _WHOLE_BATCH:
            parts = node.outputs[0].shape[0]
        else:
            parts = sum(math.prod(value.shape) for value in node.outputs)
        found.append(-(-cost // parts) + ELEMENT)
    return found


def draws(verified: VerifiedProgram, seed: str, runs: Sequence[int]) -> Iterator[Draw]:
    """All elements of these runs in random order, each once: every round has one element of every tensor of one run.

    Elements of `HEAVY` or more terms are left out.
    """
    costs = terms(verified)
    outputs = [
        (number, index, math.prod(value.shape))
        for number, node in enumerate(verified.program.nodes)
        if costs[number] < HEAVY
        for index, value in enumerate(node.outputs)
    ]
    targets = [outputs[index] for index in shuffled(len(outputs), f"{seed}/tensors")]
    orders: dict[tuple[int, int, int], Iterator[int]] = {}
    for visit in range(max((size for *_, size in targets), default=0)):
        for run in runs:
            for number, output, size in targets:
                if visit < size:
                    key = (run, number, output)
                    if key not in orders:
                        orders[key] = drawn_indices(size, f"{seed}/{run}/{number}/{output}")
                    yield Draw(run, number, output, next(orders[key]))


def shuffled(count: int, seed: str) -> list[int]:
    """The numbers below ``count`` in random order."""
    return sorted(range(count), key=lambda index: sha256(f"{seed}/{index}".encode()).digest())
