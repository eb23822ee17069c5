"""FORMAL as an executor: `formal.executor` behind the executor contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

import formal.executor
from cvm.executors.base import Capture, Int32Array, RunResult, Watch, feeds, returned, windows
from formal.tensor import Tensor, elements

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["FormalExecutor"]


class FormalExecutor:
    """A verified program, computed by the reference. ``threads`` is accepted and ignored."""

    name = "formal"

    def __init__(self, verified: VerifiedProgram, threads: int | None = None) -> None:
        self._program = verified.program

    def run(
        self,
        inputs: Mapping[str, Int32Array],
        state: Mapping[str, Int32Array],
        capture: Capture = frozenset(),
        watch: Watch | None = None,
    ) -> RunResult:
        """See `cvm.executors.Executor.run`. ``watch`` is called when all tensors are computed."""
        program = self._program
        fed = feeds(program, inputs, state)
        names = returned(program, capture)
        tensors = formal.executor.run(
            program,
            {source.value.name: fed[source.value.name].ravel().tolist() for source in program.inputs},
            {source.value.name: fed[source.value.name].ravel().tolist() for source in program.state},
        )
        if watch is not None:
            watch(fed)
            for first, end in windows(program):
                shown = [value.name for node in program.nodes[first:end] for value in node.outputs]
                watch({name: _array(tensors[name]) for name in shown})
        values = {name: _array(tensors[name]) for name in sorted(names)}
        return RunResult(values, {kept.value.name: _array(tensors[kept.update]) for kept in program.state})

    def explain(self) -> tuple[str, ...]:
        """See `cvm.executors.Executor.explain`."""
        return tuple(
            f"{', '.join(value.name for value in node.outputs)} = {node.op}: Python integers, element by element"
            for node in self._program.nodes
        )


def _array(tensor: Tensor) -> Int32Array:
    return np.array(elements(tensor), np.int32).reshape(tensor.shape)
