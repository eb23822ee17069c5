"""From runs to receipts: a witness of a session that notes the roots of what it sees."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cvm.audit.hashing import tensor_roots
from cvm.audit.receipt import Claim, Host, Receipt, Run
from cvm.audit.trace import Trace, trace_of
from cvm.executors import Capture, Int32Array, RunResult
from cvm.inputs import Feed
from cvm.program.commitments import tensor_root
from cvm.program.model import Program

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Observation", "Recorder", "host_facts", "observed", "observed_trace"]


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of one run."""

    run: Run
    trace: Trace | None
    """The log that the run's trace root commits to, if it was taken."""


class Recorder:
    """Notes the runs of one program: ``session.run(inputs, witness=recorder)``, then `receipt`.

    With ``trace`` it asks for every tensor of a run and hashes them when the run has ended; those of one run are in
    memory at a time. With ``keep_traces`` it keeps the logs as well, 32 bytes for each tensor of each run.
    """

    def __init__(self, verified: VerifiedProgram, trace: bool = False, keep_traces: bool = False) -> None:
        self._verified = verified
        self._traced = trace or keep_traces
        self._keeps_traces = keep_traces
        self._runs: list[Run] = []
        self._traces: list[Trace] = []

    @property
    def capture(self) -> Capture:
        """What it wants to see."""
        return "all" if self._traced else frozenset()

    def look(self, feed: Feed, before: Mapping[str, Int32Array], result: RunResult) -> Observation:
        """What is noted of one run."""
        seen = observed(self._verified.program, feed, before, result, self._traced)
        return seen if self._keeps_traces else replace(seen, trace=None)

    def keep(self, notes: Sequence[Observation]) -> None:
        """Take the notes of runs."""
        self._runs.extend(note.run for note in notes)
        self._traces.extend(note.trace for note in notes if note.trace is not None)

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The trace of each run so far, if they are kept."""
        return tuple(self._traces)

    def claim(self) -> Claim:
        """What is claimed of the runs so far. Raises `Invalid` (``receipt.runs``) if there are none."""
        program = self._verified.program
        digest = bytes.fromhex(program.digest)
        return Claim(digest, program.op_set, program.limits, self._verified.gas, tuple(self._runs))

    def receipt(self, host: Host | None = None) -> Receipt:
        """The receipt of the runs so far; without ``host`` it says nothing of this machine."""
        return Receipt(self.claim(), Host() if host is None else host)


def observed(
    program: Program, feed: Feed, before: Mapping[str, Int32Array], result: RunResult, traced: bool
) -> Observation:
    """What a run shows; ``traced``: the result holds every tensor."""
    values = result.values
    roots = (
        tensor_roots(values)
        if traced
        else tensor_roots({**feed, **{item.value: values[item.value] for item in program.outputs}})
    )
    trace = trace_of(program, roots) if traced else None
    run = Run(
        inputs=tuple(roots[item.value.name] for item in program.inputs),
        before=tuple(tensor_root(before[item.value.name]) for item in program.state),
        outputs=tuple(roots[item.value] for item in program.outputs),
        after=tuple(tensor_root(result.state[item.value.name]) for item in program.state),
        trace=None if trace is None else trace.root,
    )
    return Observation(run, trace)


def observed_trace(program: Program, result: RunResult) -> Trace:
    """The trace of a run that captured everything."""
    return trace_of(program, tensor_roots(result.values))


def host_facts(executor: str, time: str = "") -> Host:
    """What this host says of itself."""
    from importlib.metadata import version

    return Host(executor, f"cvm {version('cvm')}", f"{platform.system()} {platform.machine()}", time)
