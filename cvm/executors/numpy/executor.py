"""The NumPy executor: plans every node once, then runs the steps and frees each tensor after its last reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cvm.executors.base import Capture, Int32Array, RunResult, Watch, checked_inputs, feeds, returned, windows
from cvm.executors.held import Held
from cvm.executors.numpy.held import Edits, HeldArrays
from cvm.executors.numpy.step import KERNELS, Array, PlannedNode
from cvm.program import Program
from cvm.program.model import Node

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["NumpyExecutor", "every_tensor"]


@dataclass(frozen=True, slots=True)
class _Scheduled:
    """A planned node with the names of the tensors that it reads, that it writes, and that are freed after it."""

    step: PlannedNode
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    frees: tuple[str, ...]


class NumpyExecutor:
    """A verified program as NumPy calls. ``threads`` is ignored: BLAS chooses threads, which change no result."""

    name = "numpy"

    def __init__(self, verified: VerifiedProgram, threads: int | None = None) -> None:
        self._program = verified.program
        steps = [KERNELS[node.op](call) for node, call in zip(verified.program.nodes, verified.calls, strict=True)]
        self._schedule = _scheduled(verified.program, steps)
        self._constants = _constants(verified.program, self._schedule)
        self._outputs = returned(verified.program, frozenset())

    def run(
        self,
        inputs: Mapping[str, Int32Array],
        state: Mapping[str, Int32Array],
        capture: Capture = frozenset(),
        watch: Watch | None = None,
    ) -> RunResult:
        """See `cvm.executors.Executor.run`."""
        fed = feeds(self._program, inputs, state)
        return self._run(fed, returned(self._program, capture), watch, None)

    def hold(self, state: Mapping[str, Int32Array], beside: Held | None = None) -> Held:
        """See `cvm.executors.held.Holding.hold`."""
        return HeldArrays(self, self._program, state, beside)

    def run_held(self, inputs: Mapping[str, Int32Array], state: Mapping[str, Int32Array], edits: Edits) -> RunResult:
        """Run on a state that ``edits`` may change in place. Its arrays are C-contiguous and known to be valid."""
        return self._run(checked_inputs(self._program, inputs) | dict(state), self._outputs, None, edits)

    def _run(
        self, fed: Mapping[str, Int32Array], names: frozenset[str], watch: Watch | None, edits: Edits | None
    ) -> RunResult:
        program = self._program
        shows = None if watch is None else _Shows(watch, fed, windows(program))
        updates = {kept.value.name: kept.update for kept in program.state}
        needed = names | set(updates.values())
        tensors: dict[str, Array] = {**self._constants, **fed}
        borrowed = _Issued([*self._constants.values(), *fed.values()])
        # Some BLAS libraries raise floating-point flags without a cause. No kernel computes anything that could.
        with np.errstate(all="ignore"):
            for index, scheduled in enumerate(self._schedule):
                if edits is None or not edits.edit(index, tensors):
                    _execute(scheduled, tensors)
                if shows is not None:
                    shows.after(index, scheduled, tensors)
                for name in scheduled.frees:
                    if name not in needed:
                        del tensors[name]
        values = {name: borrowed.independent(tensors[name]) for name in sorted(names)}
        if edits is not None:
            updates = {name: update for name, update in updates.items() if name not in edits.edited}
        return RunResult(values, {name: borrowed.independent(tensors[update]) for name, update in updates.items()})

    def explain(self) -> tuple[str, ...]:
        """See `cvm.executors.Executor.explain`."""
        nodes = zip(self._program.nodes, self._schedule, strict=True)
        return tuple(f"{', '.join(scheduled.writes)} = {node.op}: {scheduled.step.note}" for node, scheduled in nodes)


def every_tensor(
    verified: VerifiedProgram, inputs: Mapping[str, Int32Array], state: Mapping[str, Int32Array]
) -> dict[str, Array]:
    """All inputs, states and results of one run, in the narrowest integers that hold the intervals of the results.

    Each node is planned right before it runs. So only one node at a time has constants in the types that BLAS takes,
    which are four to eight times as large as the stored ones.
    """
    program = verified.program
    constants = {constant.name: constant for constant in program.constants}
    tensors: dict[str, Array] = dict(feeds(program, inputs, state))
    with np.errstate(all="ignore"):
        for node, call in zip(program.nodes, verified.calls, strict=True):
            step = KERNELS[node.op](call)
            reads = [  # every element is an int32, as the verifier has proven
                tensors[name].astype(np.int32, copy=False) if name in tensors else constants[name].array()
                for name in _read(node, step)
            ]
            for value, result in zip(node.outputs, step.run(reads), strict=True):
                tensors[value.name] = result.astype(_narrowest(value.lo, value.hi))
    return tensors


def _narrowest(lo: int, hi: int) -> type[np.integer[Any]]:
    """The narrowest type that holds all integers of an interval within 32 bits."""
    types = (np.int8, np.uint8, np.int16, np.uint16)
    return next((kind for kind in types if np.iinfo(kind).min <= lo and hi <= np.iinfo(kind).max), np.int32)


class _Shows:
    """Shows the results to a watch, one window at a time. The tensors of a window stay alive until they are shown."""

    def __init__(self, watch: Watch, fed: Mapping[str, Array], spans: Sequence[tuple[int, int]]) -> None:
        self._watch, self._ends = watch, {end - 1 for _, end in spans}
        self._held: dict[str, Array] = {}
        watch(fed)

    def after(self, index: int, scheduled: _Scheduled, tensors: Mapping[str, Array]) -> None:
        """Take the results of a step, and show those of a complete window."""
        self._held.update((name, tensors[name]) for name in scheduled.writes)
        if index in self._ends:
            held, self._held = self._held, {}
            self._watch(held)


def _execute(scheduled: _Scheduled, tensors: dict[str, Array]) -> None:
    """Run one step. It is a function of its own, so that no local name keeps a tensor in memory."""
    results = scheduled.step.run([tensors[name] for name in scheduled.reads])
    tensors.update(zip(scheduled.writes, map(np.ascontiguousarray, results), strict=True))


def _scheduled(program: Program, steps: list[PlannedNode]) -> list[_Scheduled]:
    """The steps in order, each with the tensors that it reads last and that are freed after it. Constants are kept."""
    reads = [_read(node, step) for node, step in zip(program.nodes, steps, strict=True)]
    writes = [tuple(value.name for value in node.outputs) for node in program.nodes]
    last: dict[str, int] = dict.fromkeys(_fed(program), -1)
    for index, (read, written) in enumerate(zip(reads, writes, strict=True)):
        last.update(dict.fromkeys((*read, *written), index))
    frees: list[list[str]] = [[] for _ in steps]
    kept = {constant.name for constant in program.constants}
    for name, index in last.items():
        if name not in kept and steps:
            frees[max(index, 0)].append(name)
    return [_Scheduled(*parts) for parts in zip(steps, reads, writes, map(tuple, frees), strict=True)]


def _read(node: Node, step: PlannedNode) -> tuple[str, ...]:
    """The names of the inputs that a step reads when it runs."""
    positions = range(len(node.inputs)) if step.reads is None else step.reads
    return tuple(node.inputs[position] for position in positions)


def _fed(program: Program) -> list[str]:
    return [value.name for value in (*(i.value for i in program.inputs), *(s.value for s in program.state))]


def _constants(program: Program, schedule: list[_Scheduled]) -> dict[str, Array]:
    """The elements of the constants that a run needs. Planning has used the others already."""
    used = {name for scheduled in schedule for name in scheduled.reads}
    used |= {output.value for output in program.outputs} | {state.update for state in program.state}
    return {constant.name: constant.array() for constant in program.constants if constant.name in used}


class _Issued:
    """The arrays with which a result must not share memory: borrowed arrays, and results that were already returned."""

    def __init__(self, borrowed: list[Array]) -> None:
        self._taken = {id(array) for array in borrowed}

    def independent(self, array: Array) -> Int32Array:
        """The array itself if it shares memory with none of these arrays, else a copy."""
        if array.base is not None or id(array) in self._taken:
            array = array.copy()
        self._taken.add(id(array))
        return array
