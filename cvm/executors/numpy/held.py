"""State in arrays that updated slices are written into, where nothing reads the old state afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cvm.executors.base import Capture, Executor, Int32Array, RunResult, Watch
from cvm.executors.held import Copied, Held
from cvm.program import Program
from cvm.program.appends import Append, appends
from cvm.program.model import ProgramParts

__all__ = ["Edits", "HeldArrays"]

Array = npt.NDArray[Any]


class _Runs(Executor, Protocol):
    """The executor whose state is held."""

    def run_held(self, inputs: Mapping[str, Int32Array], state: Mapping[str, Int32Array], edits: Edits) -> RunResult:
        """Run on a state that ``edits`` may change in place."""


class Edits:
    """The slices that a run has written into the state, with what stood there before."""

    def __init__(
        self, program: ProgramParts, possible: Mapping[int, tuple[str, Append]], alone: frozenset[str]
    ) -> None:
        self._program, self._possible, self._alone = program, possible, alone
        self._before: list[tuple[Array, tuple[slice, ...], Array]] = []
        self.edited: set[str] = set()
        """The states whose arrays hold the next state already."""

    def edit(self, number: int, tensors: dict[str, Array]) -> bool:
        """Compute a node by writing a slice into a state, if it is such a node and nothing needs the old state."""
        if number not in self._possible:
            return False
        name, append = self._possible[number]
        state = tensors[name]
        others = [array for known, array in tensors.items() if known != name]
        if name not in self._alone and any(np.may_share_memory(state, other) for other in others):
            return False
        node = self._program.nodes[number]
        start = append.start(int(tensors[append.index][0]))
        where = (slice(None),) * append.axis + (slice(start, start + append.count),)
        self._before.append((state, where, state[where].copy()))
        state[where] = tensors[node.inputs[1]]
        self.edited.add(name)
        tensors[node.outputs[0].name] = state
        return True

    def undo(self) -> None:
        """Write back what stood there."""
        for state, where, before in reversed(self._before):
            state[where] = before


class HeldArrays(Held):
    """The state as int32 arrays, whose appended rows are written in place. If a run fails, they are written back."""

    def __init__(self, executor: _Runs, program: Program, state: Mapping[str, Int32Array], beside: Held | None) -> None:
        super().__init__(program, state, beside)
        self._executor, self._copied = executor, Copied(executor, program, {}, self)
        reads = Counter(name for node in program.nodes for name in node.inputs)
        last = {name: number for number, node in enumerate(program.nodes) for name in node.inputs}
        needed = {item.value for item in program.outputs} | {item.update for item in program.state}
        found = {name: append for name, append in appends(program).items() if name not in needed}
        self._possible = {item.node: (name, item) for name, item in found.items() if last[name] == item.node}
        self._alone = frozenset(name for name in found if reads[name] == 1)

    def run(
        self, inputs: Mapping[str, Int32Array], capture: Capture = frozenset(), watch: Watch | None = None
    ) -> RunResult:
        """See `cvm.executors.held.Held.run`."""
        if capture or watch is not None:
            return self._copied.run(inputs, capture, watch)
        with self.storage.lock:
            arrays = self.storage.arrays
            edits = Edits(self.program, self._possible, self._alone)
            try:
                result = self._executor.run_held(inputs, {name: arrays[name] for name in self.shapes}, edits)
            except BaseException:
                edits.undo()
                raise
            arrays.update(result.state)
            self.storage.changed()
        return RunResult(result.values, {})
