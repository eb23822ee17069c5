"""From runs to receipts: a witness of a session that records the roots of the tensors that it sees."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from cvm.audit.hashing import LITTLE, tensor_roots
from cvm.audit.receipt import Claim, Host, Receipt, Run
from cvm.audit.state_roots import StateRoots, changed_leaves
from cvm.audit.trace import Trace, trace_of
from cvm.executors import Int32Array, RunResult, Watch
from cvm.executors.held import Held
from cvm.inputs import Feed
from cvm.program import Program
from cvm.program.appends import appends
from cvm.program.leaves import fast_hasher
from cvm.records import dataclass

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Observation", "Observer", "Recorder", "host_facts"]


class States:
    """The roots of the state that runs of a program have left, so that a run hashes only what it changes.

    Of state that an executor holds, the trees are kept; of state in arrays, which no run changes, the roots.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._appends = appends(program)
        self._constants = {item.name: item for item in program.constants}
        self._trees: WeakKeyDictionary[Held, tuple[int, StateRoots, dict[str, bytes]]] = WeakKeyDictionary()
        self.arrays: dict[str, tuple[Int32Array, bytes]] = {}
        """The arrays that a run left, with their roots, by name."""

    def before(self, feed: Feed, held: Held) -> tuple[dict[str, bytes], dict[str, int]]:
        """The roots of a held state, and the first index that the next run replaces in each state it appends to."""
        _, roots = self.trees(held)
        starts = {}
        indices = {name: self._index(name, feed, held) for name in {item.index for item in self._appends.values()}}
        for name, append in self._appends.items():
            index = indices[append.index]
            if index is not None:
                starts[name] = append.start(index)
        return roots, starts

    def trees(self, held: Held) -> tuple[StateRoots, dict[str, bytes]]:
        """The trees and the roots of a held state."""
        known = self._trees.get(held)
        if known is None or known[0] != held.version:
            trees = StateRoots(held.shapes)
            if 4 * sum(map(math.prod, held.shapes.values())) >= LITTLE:
                fast_hasher()  # it is used from now on
            for name in held:
                trees.replace([trees.read(held, name)])
            known = held.version, trees, {name: trees.root(name) for name in held}
            self._trees[held] = known
        return known[1:]

    def known(self, held: Held, trees: StateRoots, roots: dict[str, bytes]) -> None:
        """Note the trees and the roots of a held state, which the caller has computed."""
        self._trees[held] = held.version, trees, roots

    def _index(self, name: str, feed: Feed, held: Held) -> int | None:
        """The element that a value holds in the next run; None if it is computed in the run."""
        if name in self._constants:
            return int(self._constants[name].stored().reshape(-1)[0])
        source: Mapping[str, Int32Array] = held if name in held.shapes else feed
        return int(source[name].reshape(-1)[0]) if name in source else None

    def after(self, held: Held, starts: Mapping[str, int]) -> dict[str, bytes]:
        """The roots of the state that a run has left, which replaced slices from the indices ``starts`` on."""
        _, trees, roots = self._trees[held]
        changed = []
        for item in self._program.state:
            name = item.value.name
            if name in starts:
                append = self._appends[name]
                changed.append(
                    trees.read(held, name, changed_leaves(append.shape, append.axis, starts[name], append.count))
                )
            elif item.update != name:
                changed.append(trees.read(held, name))
        trees.replace(changed)
        roots = roots | {name: trees.root(name) for name, _, _ in changed}
        self.known(held, trees, roots)
        return roots


@dataclass(frozen=True, slots=True)
class Observation:
    """The roots of one run, as an `Observer` computed them."""

    run: Run
    trace: Trace | None
    """The log that the run's trace root commits to, if it was taken."""


class Observer:
    """Observes one run: hashes its inputs and outputs and, if ``traced``, every tensor as it is shown.

    No tensor is kept, so no more tensors are in memory than an executor shows at once. The log is recorded if
    ``kept``.
    """

    def __init__(
        self,
        program: Program,
        feed: Feed,
        before: Mapping[str, Int32Array],
        traced: bool,
        kept: bool = True,
        known: States | None = None,
    ) -> None:
        self._program, self._feed, self._before = program, feed, before
        self._traced, self._kept = traced, kept
        self._known = States(program) if known is None else known
        self._roots: dict[str, bytes] = {}
        self._starts: dict[str, int] = {}
        if isinstance(before, Held):
            if not traced:
                self._roots, self._starts = self._known.before(feed, before)
            return
        for name, array in before.items():
            found = self._known.arrays.get(name)  # read once: runs of other samples may note theirs meanwhile
            if found is not None and found[0] is array:
                self._roots[name] = found[1]

    @property
    def watch(self) -> Watch | None:
        """The watch that an executor calls with its tensors; None if no trace was asked for."""
        return self._see if self._traced else None

    def _see(self, tensors: Mapping[str, Int32Array]) -> None:
        self._roots.update(tensor_roots(tensors))

    def end(self, result: RunResult) -> Observation:
        """The observation of the run, which has ended with ``result``."""
        program = self._program
        ends = {**self._feed, **{item.value: result.values[item.value] for item in program.outputs}}
        if not isinstance(self._before, Held):  # the roots of a held state are known: it has changed since
            ends.update(self._before)
        roots = self._roots | tensor_roots({name: ends[name] for name in ends if name not in self._roots})
        trace = trace_of(program, roots) if self._traced else None
        after = self._after(result, roots)
        run = Run(
            inputs=tuple(roots[item.value.name] for item in program.inputs),
            before=tuple(roots[item.value.name] for item in program.state),
            outputs=tuple(roots[item.value] for item in program.outputs),
            after=tuple(after[item.value.name] for item in program.state),
            trace=None if trace is None else trace.root,
        )
        return Observation(run, trace if self._kept else None)

    def _after(self, result: RunResult, roots: Mapping[str, bytes]) -> dict[str, bytes]:
        """The roots of the state that the run has left."""
        held = self._before
        if isinstance(held, Held):
            if not self._traced:
                return self._known.after(held, self._starts)
            updates = {item.value.name: item.update for item in self._program.state}
            unseen = {name: held[name] for name, update in updates.items() if update not in roots}
            return {name: roots[update] for name, update in updates.items() if update in roots} | tensor_roots(unseen)
        after = tensor_roots(result.state)
        self._known.arrays.update({name: (result.state[name], after[name]) for name in after})
        return after


class Recorder:
    """Records the runs of one program: ``session.run(inputs, witness=recorder)``, then `receipt`.

    With ``trace`` every tensor of a run is hashed as it is made. With ``keep_traces`` the logs are kept as well, 32
    bytes for each tensor of each run.
    """

    def __init__(self, verified: VerifiedProgram, trace: bool = False, keep_traces: bool = False) -> None:
        self._verified = verified
        self._traced = trace or keep_traces
        self._keeps_traces = keep_traces
        self._runs: list[Run] = []
        self._traces: list[Trace] = []
        self.states = States(verified.program)

    def begin(self, feed: Feed, before: Mapping[str, Int32Array]) -> Observer:
        """The observer of the run that starts from these inputs and this state."""
        return Observer(self._verified.program, feed, before, self._traced, self._keeps_traces, self.states)

    def keep(self, notes: Sequence[Observation]) -> None:
        """Keep the observations of runs."""
        self._runs.extend(note.run for note in notes)
        self._traces.extend(note.trace for note in notes if note.trace is not None)

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The trace of each run so far, if they are kept."""
        return tuple(self._traces)

    def claim(self) -> Claim:
        """The claim about the runs so far. Raises `Invalid` (``receipt.runs``) if there are none."""
        program = self._verified.program
        digest = bytes.fromhex(program.digest)
        return Claim(digest, program.op_set, program.limits, self._verified.gas, tuple(self._runs))

    def receipt(self, host: Host | None = None) -> Receipt:
        """The receipt of the runs so far; without ``host`` it says nothing of this machine."""
        return Receipt(self.claim(), Host() if host is None else host)


def host_facts(executor: str, time: str = "") -> Host:
    """The facts that this host states about itself."""
    from importlib.metadata import version

    return Host(executor, f"cvm {version('cvm')}", f"{platform.system()} {platform.machine()}", time)
