"""The time that each node of a program takes by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from cvm.executors import Int32Array, initial_state
from cvm.executors.numpy.step import KERNELS, Array

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["ROUNDS", "node_seconds"]

ROUNDS = 3


def node_seconds(
    verified: VerifiedProgram,
    feeds: Mapping[str, Int32Array],
    progress: Callable[[int], None] = lambda done: None,
) -> list[float]:
    """The seconds of each node, in execution order: the least of `ROUNDS` runs of the steps of the NumPy executor.

    ``feeds`` are the inputs of one run. The native executor fuses nodes into loops, so its nodes have no times of their
    own. ``progress`` receives the number of finished nodes, over all rounds.
    """
    program = verified.program
    steps = [KERNELS[node.op](call) for node, call in zip(program.nodes, verified.calls, strict=True)]
    last = {name: index for index, node in enumerate(program.nodes) for name in node.inputs}
    kept = {constant.name: constant.array() for constant in program.constants}
    best = [float("inf")] * len(steps)
    for number in range(ROUNDS):
        tensors: dict[str, Array] = {**kept, **initial_state(program), **feeds}
        for index, (node, step) in enumerate(zip(program.nodes, steps, strict=True)):
            read = node.inputs if step.reads is None else [node.inputs[position] for position in step.reads]
            seconds, results = _timed(step.run, [tensors[name] for name in read])
            best[index] = min(best[index], seconds)
            tensors.update(zip((value.name for value in node.outputs), results, strict=True))
            for name in {*node.inputs} - {*kept}:
                if last[name] == index:
                    del tensors[name]
            progress(number * len(steps) + index + 1)
    return best


def _timed(run: Callable[[Sequence[Array]], tuple[Array, ...]], arrays: Sequence[Array]) -> tuple[float, list[Array]]:
    with np.errstate(all="ignore"):  # as the executor does
        start = perf_counter()
        results = [np.ascontiguousarray(array) for array in run(arrays)]
        return perf_counter() - start, results
