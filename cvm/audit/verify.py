"""Verification of receipts: everything is recomputed, and no stored digest is believed.

An answer is reached at one of five levels, each of which includes those before it:

``structure``  the program has the digest that the receipt names, and op-set, limits profile, gas, number of tensors and
               signatures are those of the program and of the claim
``roots``      the given inputs (and outputs) have the roots that the receipt names
``outputs``    outputs and state, recomputed, have the roots that the receipt names
``trace``      every tensor of every run has the root that the receipt commits to
``formal``     FORMAL, the reference, gives the same: all of it, or a given number of elements of every tensor

The answers: REPRODUCED. DIVERGED: the claim is false; the named program gives something else on the named inputs.
CANNOT_RECOMPUTE: something is missing, or the program or the inputs at hand are not those that the receipt names, or
the executor is wrong. At the first two levels nothing is executed, so REPRODUCED says only that no field
contradicts the program and the arrays at hand: `Verdict.words` says so in other words.

The executor that runs the program again is not trusted, since it may be the one that made the claim: FORMAL judges
drawn elements of its tensors (`cvm.audit.spot_check`) before any answer that depends on the executor is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cvm.audit.receipt import Receipt, Roots, Run
from cvm.audit.record import Observation, Observer
from cvm.audit.spot_check import Judged, Judging, SpotCheck
from cvm.audit.trace import Trace
from cvm.audit.verdict import LEVELS, Answer, Behind, Finding, Level, Verdict, cannot, diverged
from cvm.errors import CvmError, Invalid, Location
from cvm.executors import Executor, Int32Array, create, initial_state
from cvm.inputs import Feed, Intake, arrange
from cvm.limits import PROFILES
from cvm.program.commitments import tensor_root
from cvm.program.model import Output
from cvm.quantization import LinearQuantizer
from cvm.records import dataclass

if TYPE_CHECKING:
    from cvm.agreement import Difference
    from cvm.program.verifier import VerifiedProgram

__all__ = ["LEVELS", "Answer", "Level", "Verdict", "codes_of_state", "strongest_level", "verify"]

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class _Task:
    """A receipt and the program, arrays and settings that it is verified with."""

    receipt: Receipt
    verified: VerifiedProgram
    samples: Sequence[Sequence[Feed]] | None
    outputs: Arrays | None
    state: Mapping[str, Int32Array]
    executor: str | Executor | None
    threads: int | None
    sample: int | None
    traces: Sequence[Trace]
    """Given traces, which must belong to runs of the receipt."""
    traced: bool
    """Whether re-executing includes the traces."""
    progress: Callable[[int], None]
    judging: Judging
    signers: Sequence[bytes]
    """Keys that must have signed the claim."""
    behind: Behind = field(default_factory=Behind)

    @property
    def given(self) -> Sequence[Sequence[Feed]]:
        """The inputs of the runs. Ends the verification if there are none."""
        if self.samples is None:
            raise cannot("no inputs are given")
        return self.samples


def strongest_level(receipt: Receipt) -> Level:
    """The level at which all that ``receipt`` claims is recomputed."""
    return "trace" if receipt.traced else "outputs"


def verify(
    receipt: Receipt,
    verified: VerifiedProgram,
    inputs: Mapping[str, Any] | None = None,
    *,
    outputs: Arrays | None = None,
    state: Arrays | None = None,
    traces: Sequence[Trace] = (),
    cycles: bool = False,
    codes: bool = False,
    level: Level | None = None,
    sample: int | None = None,
    executor: str | Executor | None = None,
    threads: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
    judging: Judging | None = None,
    signers: Sequence[bytes] = (),
) -> Verdict:
    """Verify ``receipt`` with the program and with arrays of the inputs that its runs are said to have had.

    ``cycles`` and ``codes`` say what the arrays are, as for `Session.run`; real numbers out of range are clipped.
    ``outputs`` are arrays by the names of the outputs, codes or real numbers. ``state`` is the state before the first
    run, if not the initial state. ``traces`` must belong to runs of the receipt, which are found by their inputs and
    state; if a trace differs, its first op that differs is named. ``level`` is how far to go (None: until everything
    that is claimed or given is recomputed). ``sample`` lets FORMAL compute N elements of every tensor instead of
    all. ``executor`` is a name, or an executor made for this program. ``progress`` receives the number of each run that
    was executed again. ``judging`` says how much FORMAL judges, and with which salt (None: within the budget, with
    a fresh salt). ``signers`` are public keys that must have signed the claim. Raises `Invalid` for arrays that no run
    can have, and for ``traces`` at a level without traces (``verify.level``).
    """
    goal = level or ("trace" if traces else strongest_level(receipt))
    deep = LEVELS.index(goal) >= LEVELS.index("trace")
    if traces and not deep:
        raise Invalid("verify.level", f"a given trace is compared at level trace and above, not at level {goal}")
    if receipt.claim.program.hex() != verified.program.digest:
        inputs = state = None  # they are for another program; the answer will be that this program is not at hand
    samples = None if inputs is None else arrange(verified.program, inputs, cycles, Intake(codes))[1]
    begin, traced = codes_of_state(verified, state), (receipt.traced or bool(traces)) and deep
    asked = Judging() if judging is None else judging
    work = (executor, threads, sample, traces, traced, progress, asked, signers)
    task = _Task(receipt, verified, samples, outputs, begin, *work)
    return _recomputed(task, goal)


def _recomputed(task: _Task, goal: Level) -> Verdict:
    """The verdict of all levels up to the goal, one after the other."""
    for step in LEVELS[: LEVELS.index(goal) + 1]:
        try:
            _CHECKS[step](task, goal)
        except Finding as finding:
            return task.behind.verdict(finding.answer, step, finding.reason)
        task.behind.checked.append(step)
    return task.behind.verdict("REPRODUCED", goal, _said(task, goal))


def _said(task: _Task, goal: Level) -> str:
    count = len(task.receipt.claim.runs)
    runs = f"{count} run{'' if count == 1 else 's'}"
    if task.receipt.traced and not task.traced:
        return f"{runs}; the trace was not asked for"
    return runs


def codes_of_state(verified: VerifiedProgram, state: Arrays | None) -> Mapping[str, Int32Array]:
    """The codes of the state before the first run. Raises `Invalid` (``state.names``, ``state.type``)."""
    if state is None:
        return initial_state(verified.program)
    names = {item.value.name for item in verified.program.state}
    if set(state) != names:
        raise Invalid("state.names", f"expected the state {sorted(names)}, found {sorted(state)}")
    for name, array in state.items():
        if array.dtype.kind not in "iu" or (array.size and not -(2**31) < array.min() <= array.max() < 2**31):
            raise Invalid("state.type", f"expected codes, found dtype {array.dtype}", Location(tensor=name))
    return {name: array.astype(np.int32) for name, array in state.items()}


# Structure


def _structure(task: _Task, goal: Level) -> None:
    claim, program = task.receipt.claim, task.verified.program
    if claim.op_set != program.op_set:
        raise cannot(f"the receipt is of op-set {claim.op_set}; the program is of op-set {program.op_set}")
    if claim.limits not in PROFILES:
        raise cannot(f"there is no limits profile {claim.limits!r}")
    if claim.program.hex() != program.digest:
        raise cannot(f"the receipt is of program {claim.program.hex()}, the program at hand is {program.digest}")
    for what, found, expected in (
        ("limits profile", claim.limits, program.limits),
        ("gas", claim.gas, task.verified.gas),
    ):
        if found != expected:
            raise diverged(f"the {what} is {expected}, the receipt says {found}")
    for number, run in enumerate(claim.runs):
        for what, roots, declared in (
            ("inputs", run.inputs, program.inputs),
            ("tensors of state before", run.before, program.state),
            ("outputs", run.outputs, program.outputs),
            ("tensors of state after", run.after, program.state),
        ):
            if len(roots) != len(declared):
                raise diverged(f"run {number} has {len(declared)} {what}, the receipt names {len(roots)}")
    for trace in task.traces:
        if trace.program != claim.program:
            raise cannot(f"a given trace is of program {trace.program.hex()}, the receipt of {claim.program.hex()}")
    _signatures(task)


def _signatures(task: _Task) -> None:
    from cvm.audit.signatures import is_genuine

    for signature in task.receipt.signatures:
        if not is_genuine(task.receipt.claim, signature):
            raise diverged(f"the signature by {signature.key.hex()} is not one of this claim")
        task.behind.signers.append(signature.key.hex())
    for key in task.signers:
        if key.hex() not in task.behind.signers:
            found = ", ".join(task.behind.signers) or "nobody"
            raise cannot(f"the receipt is not signed by {key.hex()}; it is signed by {found}")


# Roots of what is given


def _roots(task: _Task, goal: Level) -> None:
    claim, program = task.receipt.claim, task.verified.program
    runs = [(index, feed) for feeds in task.given for index, feed in enumerate(feeds)]
    if len(runs) != len(claim.runs):
        raise cannot(f"the receipt is of {len(claim.runs)} runs, the inputs are those of {len(runs)}")
    began = [task.state, initial_state(program)]
    for number, ((index, feed), run) in enumerate(zip(runs, claim.runs, strict=True)):
        for item, root in zip(program.inputs, run.inputs, strict=True):
            if tensor_root(feed[item.value.name]) != root:
                raise cannot(f"run {number}: the input {item.value.name!r} is not the one that the receipt names")
        if index == 0:
            before = began[min(number, 1)]
            for kept, root in zip(program.state, run.before, strict=True):
                if tensor_root(before[kept.value.name]) != root:
                    raise cannot(f"run {number} began with another state {kept.value.name!r} than the one at hand")
    for index, trace in enumerate(task.traces):
        if not any(_is_of(trace, run) for run in claim.runs):
            raise cannot(f"given trace {index} is of other inputs or another state than any run of the receipt")
    if task.outputs is not None:
        _compare_outputs(task, task.outputs)


def _compare_outputs(task: _Task, given: Arrays) -> None:
    claim, program = task.receipt.claim, task.verified.program
    names = {output.name for output in program.outputs}
    if not set(given) <= names:
        raise cannot(f"there is no output {min(set(given) - names)!r}")
    for index, output in enumerate(program.outputs):
        if output.name in given:
            tensors = _split(output, task.verified.shapes[output.value], given[output.name], len(claim.runs))
            for number, (tensor, run) in enumerate(zip(tensors, claim.runs, strict=True)):
                if tensor_root(tensor) != run.outputs[index]:
                    message = f"run {number}: the given output {output.name!r} is not the one that the receipt names"
                    raise diverged(message)


def _split(
    output: Output, shape: tuple[int, ...], array: npt.NDArray[Any], runs: int
) -> Iterator[npt.NDArray[np.int32]]:
    """The codes of an output, run by run, from an array that holds those of all runs, as codes or real numbers."""
    from cvm.quantization.exact import dequantize, quantize

    where = f"the given output {output.name!r}"
    try:
        array = array.reshape(runs, *shape)
    except ValueError:
        raise diverged(f"{where} has shape {list(array.shape)}, not {runs} times {list(shape)} elements") from None
    if array.dtype.kind == "f":
        if output.quantizer is None:
            raise diverged(f"{where} holds real numbers, and its codes stand for none")
        quantizer = output.quantizer
        if isinstance(quantizer, LinearQuantizer) and quantizer.axis is not None:
            quantizer = replace(quantizer, axis=quantizer.axis + 1)
        try:
            codes = quantize(array, quantizer, Location(tensor=output.name))
        except CvmError as error:
            raise diverged(f"{where}: {error.message}") from None
        if not np.array_equal(dequantize(codes, quantizer), array.astype(np.float64)):
            raise diverged(f"{where} holds real numbers that no codes stand for")
        array = codes
    elif array.dtype.kind not in "iu" or not -(2**31) < int(array.min()) <= int(array.max()) < 2**31:
        raise diverged(f"{where} holds what no int32 tensor can")
    return iter(array.astype(np.int32))


# Re-execution


def _executor(task: _Task) -> Executor:
    """The executor that was asked for."""
    from cvm.executors import choose_executor

    if task.executor is None or isinstance(task.executor, str):
        return create(choose_executor(task.executor)[0], task.verified, task.threads)
    return task.executor


def _executed(task: _Task, made: Executor, check: SpotCheck | None) -> Iterator[tuple[int, Run, Observation]]:
    """Execute every run again: its number, the receipt's claim and the results. ``check`` records each."""
    program = task.verified.program
    number = 0
    for feeds in task.given:
        state = task.state if number == 0 else initial_state(program)
        for feed in feeds:
            observer = Observer(program, feed, state, task.traced)
            start = perf_counter()
            result = made.run(feed, state, watch=observer.watch)
            observation = observer.end(result)
            if check is not None:
                check.note(number, feed, state, result, perf_counter() - start)
            yield number, task.receipt.claim.runs[number], observation
            state = result.state
            number += 1
            task.progress(number)


def _outputs(task: _Task, goal: Level) -> None:
    """Run everything again. If FORMAL contradicts the executor, no answer depends on it, not even DIVERGED."""
    executor = _executor(task)
    task.behind.executor = executor.name
    check = None
    if executor.name != "formal":
        identity, count, ordinary = task.receipt.claim.id(), len(task.receipt.claim.runs), not task.traced
        check = SpotCheck(task.verified, executor, task.judging, identity, count, ordinary)
    try:
        for number, claimed, found in _executed(task, executor, check):
            _compare(task, number, claimed, found)
    except Finding:
        _judge(task, check, latest_first=True)
        raise
    if goal != "formal":  # at this level FORMAL itself computes every element, or a sample of every tensor
        _judge(task, check)


def _judge(task: _Task, check: SpotCheck | None, latest_first: bool = False) -> None:
    """Let FORMAL judge the runs so far. Ends the verification if the executor is wrong."""
    if check is None:
        return
    task.behind.judged = judged = check.judged(latest_first)
    if judged.difference is not None:
        raise _wrong_executor(task, judged.difference)


def _wrong_executor(task: _Task, difference: Difference) -> Finding:
    """The finding that the executor does not compute what the program means: the claim remains undecided."""
    advice = "nothing follows for the claim; verify it with another executor (--executor)"
    return cannot(f"the executor {task.behind.executor} is wrong: {difference.error().message}; {advice}")


def _compare(task: _Task, number: int, claimed: Run, seen: Observation) -> None:
    """Compare a run with the claim about it."""
    program, found = task.verified.program, seen.run
    state = [item.value.name for item in program.state]
    for what, names, said, roots in (
        ("state before it", state, claimed.before, found.before),
        ("input", [item.value.name for item in program.inputs], claimed.inputs, found.inputs),
        ("output", [item.name for item in program.outputs], claimed.outputs, found.outputs),
        ("state after it", state, claimed.after, found.after),
    ):
        _compare_roots(number, what, names, said, roots)
    if seen.trace is not None:
        for given in task.traces:
            if _is_of(given, claimed):
                _compare_traces(task, number, given, seen.trace)
    if found.trace is not None and claimed.trace is not None and found.trace != claimed.trace:
        raise diverged(f"run {number}: the trace is {found.trace.hex()}, the receipt says {claimed.trace.hex()}")


def _compare_roots(number: int, what: str, names: Sequence[str], claimed: Roots, found: Roots) -> None:
    for name, said, seen in zip(names, claimed, found, strict=True):
        if said != seen:
            message = f"run {number}: the {what} {name!r} has root {seen.hex()}, the receipt says {said.hex()}"
            raise diverged(message)


def _is_of(trace: Trace, run: Run) -> bool:
    """Whether a trace belongs to a run: both have the same inputs and state before."""
    return (trace.inputs, trace.before) == (run.inputs, run.before)


def _compare_traces(task: _Task, number: int, given: Trace, found: Trace) -> None:
    index = found.first_difference(given)
    if index is None:
        return
    nodes = task.verified.program.nodes
    if index == len(nodes):
        raise diverged(f"run {number}: the given trace has {len(given.steps)} ops, the program {len(nodes)}")
    names = ", ".join(repr(value.name) for value in nodes[index].outputs)
    made = ", ".join(root.hex() for root in found.steps[index])
    if index == len(given.steps):
        said = "ends before it"
    else:
        said = f"says {', '.join(root.hex() for root in given.steps[index]) or 'nothing'}"
    message = f"op {index}, the {nodes[index].op} that gives {names}, is the first that differs"
    raise diverged(f"run {number}: {message}: it leaves the root {made}, the given trace {said}")


def _trace(task: _Task, goal: Level) -> None:
    """Require traces; they were compared when the runs were re-executed."""
    for number, run in enumerate(task.receipt.claim.runs):
        named = run.trace is not None or any(_is_of(trace, run) for trace in task.traces)
        if not named and (goal == "trace" or task.receipt.traced):
            raise cannot(f"the receipt names no trace of run {number}")


def _formal(task: _Task, goal: Level) -> None:
    from cvm.agreement import judge

    if task.sample is None:
        task.behind.executor = "formal"
        for number, claimed, found in _executed(task, create("formal", task.verified), None):
            _compare(task, number, claimed, found)
        return
    executor, salt = _executor(task), task.judging.salt
    agreement = judge(task.verified, executor, task.given, task.sample, state=task.state, salt=salt)
    task.behind.judged = Judged(
        agreement.elements, agreement.tensors, agreement.tensors, agreement.runs, salt, agreement.difference
    )
    if agreement.difference is not None:
        raise _wrong_executor(task, agreement.difference)


_CHECKS: Mapping[Level, Callable[[_Task, Level], None]] = {
    "structure": _structure,
    "roots": _roots,
    "outputs": _outputs,
    "trace": _trace,
    "formal": _formal,
}
