"""The NumPy executor: plans every node once, then runs the steps and frees each tensor after its last reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from cvm.blas import one_thread
from cvm.bounds import narrowest
from cvm.executors.base import Capture, Int32Array, RunResult, Watch, checked_inputs, feeds, returned, windows
from cvm.executors.held import Held
from cvm.executors.numpy.held import Edits, HeldArrays
from cvm.executors.numpy.step import KERNELS, Array, PlannedNode
from cvm.program import Program
from cvm.program.model import Node
from cvm.records import dataclass

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["NumpyExecutor", "every_tensor"]


@dataclass(frozen=True, slots=True)
class _Scheduled:
    """A planned node with the names of the tensors that it reads, that it writes, and that are freed after it.

    ``index`` is the number of the node; a step that also computes the codes of the next node has the next one's.
    """

    index: int
    step: PlannedNode
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    frees: tuple[str, ...]


class NumpyExecutor:
    """A verified program as NumPy calls. ``threads`` is ignored: a run has one thread, of BLAS too (`cvm.blas`)."""

    name = "numpy"

    def __init__(self, verified: VerifiedProgram, threads: int | None = None) -> None:
        self._program = verified.program
        steps = [KERNELS[node.op](call) for node, call in zip(verified.program.nodes, verified.calls, strict=True)]
        items = [_Item(index, step, index) for index, step in enumerate(steps)]
        self._schedule = _scheduled(verified.program, items)
        joined = _joined(verified, items)
        self._joined = _scheduled(verified.program, joined)
        self._inside = frozenset(
            verified.program.nodes[item.first].outputs[0].name for item in joined if item.first < item.index
        )
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
        whole = shows is not None or not self._inside.isdisjoint(needed)
        with _computing():
            for scheduled in self._schedule if whole else self._joined:
                if edits is None or not edits.edit(scheduled.index, tensors):
                    _execute(scheduled, tensors)
                if shows is not None:
                    shows.after(scheduled.index, scheduled, tensors)
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


@contextmanager
def _computing() -> Iterator[None]:
    """One thread, and no warnings: some BLAS raise floating-point flags without a cause, and no kernel computes
    anything that could.
    """
    with np.errstate(all="ignore"), one_thread():
        yield


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
    with _computing():
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
    return narrowest(lo, hi, (np.int8, np.uint8, np.int16, np.uint16, np.int32))


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


@dataclass(frozen=True, slots=True)
class _Item:
    """A step that computes the results of node ``index`` from the inputs of node ``first``: the same, or the one whose
    sums it turns into codes.
    """

    index: int
    step: PlannedNode
    first: int


def _joined(verified: VerifiedProgram, items: Sequence[_Item]) -> list[_Item]:
    """The items, where a step and a requantize that alone reads its result are one step, if the step allows that."""
    nodes, found = verified.program.nodes, {item.index: item for item in items}
    uses = Counter(name for node in nodes for name in node.inputs)
    producer = {node.outputs[0].name: index for index, node in enumerate(nodes)}
    for index, (node, call) in enumerate(zip(nodes, verified.calls, strict=True)):
        first = producer.get(node.inputs[0])
        if node.op != "requantize" or len(call.shapes) != 3 + 1 or first is None or uses[node.inputs[0]] != 1:
            continue
        join = items[first].step.join
        if join is None or nodes[first].outputs[0].shape != call.shapes[0]:
            continue
        step = join(call)
        if step is not None:
            del found[first]
            found[index] = _Item(index, step, first)
    return [found[index] for index in sorted(found)]


def _scheduled(program: Program, items: Sequence[_Item]) -> list[_Scheduled]:
    """The steps in order, each with the tensors that it reads last and that are freed after it. Constants are kept."""
    reads = [_read(program.nodes[item.first], item.step) for item in items]
    writes = [tuple(value.name for value in program.nodes[item.index].outputs) for item in items]
    last: dict[str, int] = dict.fromkeys(_fed(program), -1)
    for place, (read, written) in enumerate(zip(reads, writes, strict=True)):
        last.update(dict.fromkeys((*read, *written), place))
    frees: list[list[str]] = [[] for _ in items]
    kept = {constant.name for constant in program.constants}
    for name, place in last.items():
        if name not in kept and items:
            frees[max(place, 0)].append(name)
    parts = zip(items, reads, writes, map(tuple, frees), strict=True)
    return [_Scheduled(item.index, item.step, *names) for item, *names in parts]


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
