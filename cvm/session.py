"""Session: a verified program, an executor, and the state that the program keeps from run to run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from cvm.arguments import checked_arrays, checked_path, expected
from cvm.errors import CvmError, Invalid, Location, Mismatch
from cvm.executors import (
    CONCURRENT,
    Capture,
    Executor,
    Int32Array,
    RunResult,
    Watch,
    choose_executor,
    cores,
    create,
    initial_state,
    keep,
    recall,
)
from cvm.executors.batching import Batching
from cvm.executors.held import Bound, Held, hold
from cvm.formats import diagnosed, refuse_folder
from cvm.inputs import Feed, Intake, Layout, OutOfRange, ambiguous, arrange, stacked
from cvm.outputs import Attached, Fresh, receiving

if TYPE_CHECKING:
    from os import PathLike

    from cvm.audit.receipt import Receipt
    from cvm.ports import Port
    from cvm.program import Program
    from cvm.program.model import Input, ProgramParts
    from cvm.program.reading import ReadFile
    from cvm.program.verifier import VerifiedProgram
    from cvm.quantization import Quantizer

__all__ = ["Observer", "Result", "Session", "Witness", "verified_of"]

_T = TypeVar("_T")
_R = TypeVar("_R")

SHARES = 8
"""How many shares of the inputs of one call each thread gets, so that no thread waits long for the last one."""

SINGLE = Layout()
"""The layout of one sample."""
ATTACHED = 16
"""For how many sets of output arrays a session remembers that it has checked them."""
PART = 16
"""How many inputs of `Session.run_many` each thread gets at least before progress is told."""


class Result(Mapping[str, Int32Array]):
    """The result of a run: int32 codes by the name of the output, then by the name of each captured tensor.

    Arrays are stacked as the inputs were. If an output and another captured tensor have one name, the name means the
    output.
    """

    def __init__(
        self, codes: Mapping[str, Int32Array], quantizers: Mapping[str, Quantizer], receipt: Receipt | None = None
    ) -> None:
        self._codes = dict(codes)
        self._quantizers = quantizers
        self.receipt = receipt
        """The receipt of the call, if it was asked for."""

    def __getitem__(self, name: str) -> Int32Array:
        try:
            return self._codes[name]
        except KeyError:
            raise KeyError(f"there is no tensor {name!r} in the result; there are {', '.join(self._codes)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._codes)

    def __len__(self) -> int:
        return len(self._codes)

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{name}: {list(array.shape)}' for name, array in self._codes.items())})"

    def _moved(self, arrays: Mapping[str, Int32Array]) -> Result:
        """Write the codes of some names into other arrays of their shapes, and hold these instead."""
        for name, array in arrays.items():
            if not np.may_share_memory(array, self._codes[name]):
                array[...] = self._codes[name]
            self._codes[name] = array
        return self

    def has_real(self, name: str) -> bool:
        """Whether the codes of ``name`` stand for real numbers."""
        return name in self._quantizers

    def real(self, name: str) -> npt.NDArray[np.float64]:
        """The real numbers that the codes of ``name`` stand for, each the nearest float64.

        Raises KeyError for an unknown name, and `Invalid` (``result.real``) for a tensor without a quantiser.
        """
        from cvm.quantization.exact import dequantize

        codes = self[name]
        if name not in self._quantizers:
            message = "its integers stand for no real numbers: there is no quantiser"
            raise Invalid("result.real", message, Location(tensor=name))
        return dequantize(codes, self._quantizers[name])


class Observer(Protocol):
    """Observes one run for a witness."""

    @property
    def watch(self) -> Watch | None:
        """A function that the executor calls with the tensors during the run; None if none is needed."""

    def end(self, result: RunResult) -> Any:
        """Called after the run with its result; returns a note for `Witness.keep`."""


class Witness(Protocol):
    """Observes every single run of a session."""

    def begin(self, feed: Feed, before: Mapping[str, Int32Array]) -> Observer:
        """Called before a run with its inputs and the state before it; returns the observer of the run.

        The state changes with the run: what is needed of it later must be read now. Runs of different samples may go on
        at the same time.
        """

    def keep(self, notes: Sequence[Any]) -> None:
        """Called after a call with the notes of all its runs, in order."""


def verified_of(program: object) -> VerifiedProgram:
    """The verified program that a caller passed. Raises `CvmError`, and `Invalid` (``argument.program``)."""
    return _verified_and_hash(program)[0]


def _verified_and_hash(program: object, file: ReadFile | None = None) -> tuple[VerifiedProgram, str | None]:
    """The verified program, and the SHA-256 of its file if it is one. ``file`` is the file if it was read before."""
    from cvm.program import Program
    from cvm.program.files import decoded
    from cvm.program.reading import ReadFile
    from cvm.program.verifier import VerifiedProgram, verify

    if isinstance(program, VerifiedProgram):
        return program, None
    if isinstance(program, Program):
        return verify(program), None
    if not isinstance(program, str | os.PathLike):
        raise expected("program", "a program (cvm.load, cvm.compile) or the path of a program file", program)
    path = checked_path(program, "a program")
    refuse_folder(path, "a program of cvm (.cvm)")
    try:
        return decoded(file or ReadFile(path))
    except CvmError as error:
        raise diagnosed(error, path, "a program of cvm (.cvm)", ("program",)) from None


def _file_of(program: object) -> ReadFile | None:
    """A program file that was read; None if it is none, or cannot be read."""
    if not isinstance(program, str | os.PathLike):
        return None
    from cvm.program.reading import ReadFile

    try:
        return ReadFile(program)
    except (CvmError, OSError, ValueError):  # `verified_of` says what is wrong
        return None


def _several(inputs: object) -> Iterable[Any]:
    """The inputs of many runs. Raises `Invalid` (``argument.inputs``) for an argument that holds none."""
    if isinstance(inputs, Mapping | np.ndarray) or not isinstance(inputs, Iterable):
        raise expected("inputs", "several inputs, each arrays by name: [{...}, {...}]; `run` takes one", inputs)
    return inputs


class Session:
    """A program ready to run, with the state that it keeps between runs.

    ``program`` is a program, or the path of a program file. ``executor`` names one of `cvm.executors.EXECUTORS` (None:
    the fastest that this machine has), or one of `cvm.executors.DEVICES`, which runs on the device with the number
    ``device`` (None: 0). ``threads`` is the number of threads for the executor; it never changes a byte.
    The program is verified once, here, unless it was verified already. Raises `Invalid` or `LimitExceeded` for one
    that is not valid, and for a file the errors of `cvm.load`.
    """

    def __init__(
        self,
        program: Program | VerifiedProgram | str | PathLike[str],
        executor: str | None = None,
        threads: int | None = None,
        device: int | None = None,
    ) -> None:
        if device is not None and (isinstance(device, bool) or not isinstance(device, int)):
            raise expected("device", "the number of a device", device)
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int)):
            raise expected("threads", "a number of threads", threads)
        if threads is not None and threads < 1:
            raise Invalid("session.threads", f"expected at least one thread, found {threads}")
        self._threads, self._device = threads or cores(), device
        self._file = program
        self._proven: VerifiedProgram | None = None
        self._parts: ProgramParts
        self._shapes: Mapping[str, tuple[int, ...]]
        self._digest: str | None
        file = _file_of(program) if executor in (None, "native") and device is None else None
        self._hash = file and file.hash
        if file is None or not self._start(executor, file.forget):
            self._open(program, executor, threads, file)
            if self._name == "native":
                self._start(executor)  # so that the memory of the program and of the compilation is free
        self._plain = [(item.value.name, item.value.shape) for item in self._parts.inputs]
        self._ambiguous = any(ambiguous(item.quantizer) for item in self._parts.inputs)
        self._quantizers = {out.name: out.quantizer for out in self._parts.outputs if out.quantizer is not None}
        self._single: Executor | None = None
        self._held: Held | None = None
        self._attached: dict[int, Attached] = {}
        self._fresh: Fresh | None = None
        self._batching = self._executor if isinstance(self._executor, Batching) and not self._parts.state else None

    def _start(self, executor: str | None, known: Callable[[], object] = lambda: None) -> bool:
        """Begin with what the cache knows of the program file. Returns False if this is not enough for a run."""
        recalled = self._hash and recall(self._hash, self._threads, lambda: self.verified, known)
        if not recalled:
            return False
        self._executor, started = recalled
        self._name, self._reason = "native", started.reason if executor is None else "asked for"
        self._parts, self._shapes, self._ends = started.parts, started.shapes, started.ends
        self._digest, self._gas, self._proven = started.digest, started.gas, None
        return True

    def _open(self, program: object, executor: str | None, threads: int | None, file: ReadFile | None) -> None:
        """Verify the program and make an executor."""
        verified, self._hash = _verified_and_hash(program, file)
        name, self._reason = choose_executor(executor)
        self._executor = create(name, verified, threads, self._device)
        self._name = self._executor.name
        self._proven, self._parts, self._shapes = verified, verified.program, verified.shapes
        self._ends = {out.value: verified.ranges[out.value].hull() for out in verified.program.outputs}
        self._digest, self._gas = None, verified.gas
        if self._hash is not None:
            keep(self._hash, self._threads, verified, self._executor)

    def __repr__(self) -> str:
        return f"Session({self.program!r} on {self._name})"

    def _repr_html_(self) -> str:
        """The program as HTML for notebooks, with its inputs and outputs."""
        from html import escape

        rows = [*(f"input {port!r}" for port in self.inputs), *(f"output {port!r}" for port in self.outputs)]
        said = "<br>".join(map(escape, [*rows, f"executor {self._name}"]))
        return f"<div>{self.program._repr_html_()}<p>{said}</p></div>"

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs: name, shape, dtype, codes, real range and quantiser of each."""
        from cvm.ports import inputs_of

        return inputs_of(self._parts)

    @property
    def declared(self) -> tuple[Input, ...]:
        """The inputs as the program declares them, with exact quantisers."""
        return self._parts.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """The outputs: name, shape, dtype, codes, real range and quantiser of each."""
        from cvm.ports import outputs_of

        return outputs_of(self._parts, self._shapes, self._ends)

    @property
    def program(self) -> Program:
        """The program."""
        return self.verified.program

    @property
    def digest(self) -> str:
        """The digest of the program."""
        return self._digest or self.program.digest

    @property
    def gas(self) -> int:
        """The metered cost of one run."""
        return self._gas

    @property
    def verified(self) -> VerifiedProgram:
        """The program with what was proven about it.

        A session that started from the cache reads the file now. Raises `Mismatch` (``session.program``) if the file
        has changed, and OSError if it is gone.
        """
        if self._proven is None:
            verified, found = _verified_and_hash(self._file)
            if found != self._hash:
                message = f"the session began with a file of the SHA-256 {self._hash}, which now has {found}"
                raise Mismatch("session.program", message, Location(os.fspath(cast("str", self._file))))
            self._proven = verified
        return self._proven

    @property
    def executor(self) -> str:
        """The name of the executor."""
        return self._name

    @property
    def state(self) -> dict[str, Int32Array]:
        """The state that the program keeps for the next run, by name, as copies."""
        return dict(self._holding())

    def reset(self) -> None:
        """Set the state to the initial one."""
        self._held = None

    def _holding(self) -> Held:
        """The state, held by the executor."""
        if self._held is None:
            self._held = self._begun(self._executor)
        return self._held

    def _begun(self, executor: Executor) -> Held:
        """The initial state, held by an executor."""
        return hold(executor, self._parts, initial_state(self._parts))

    @property
    def held(self) -> Held:
        """The state that the executor holds for the next run. After `reset` it is another object."""
        return self._holding()

    def bind(self, witness: Witness | None = None) -> Bound:
        """Fixed arrays of codes for the inputs and outputs of many runs, which go on from the session's state.

        It serves loops in which a run takes microseconds: write codes into ``inputs``, call ``run``, read ``outputs``.
        The arrays have the names that the program gives to these values. ``witness`` observes every run. After `reset`,
        bind again.
        """
        held = self._holding()
        bound = held.bound()
        if witness is None:
            return bound

        def run() -> None:
            observer = witness.begin(dict(bound.inputs), held)
            if observer.watch is None:
                bound.run()
            else:
                values = held.run(bound.inputs, watch=observer.watch).values
                for name, array in bound.outputs.items():
                    array[...] = values[name]
            witness.keep([observer.end(RunResult(dict(bound.outputs), {}))])

        return Bound(bound.inputs, bound.outputs, run)

    def share(self, other: Session) -> None:
        """Let the state be a part of another session's, tensor by tensor, so that a run of either changes both.

        If the executors store it in different forms it is copied, once. Raises ValueError if a tensor is declared
        otherwise there.
        """
        held = other.held
        state = {item.value.name: held[item.value.name] for item in self._parts.state}
        self._held = hold(self._executor, self._parts, state, held)

    def explain(self) -> tuple[str, ...]:
        """The executor and the reason for it, then one line per node: the chosen method, and its justification."""
        return (f"{self._name}: {self._reason}", *self._executor.explain())

    def run(
        self,
        inputs: Mapping[str, Any],
        capture: str | Iterable[str] | None = None,
        cycles: bool = False,
        witness: Witness | None = None,
        *,
        codes: bool = False,
        out_of_range: OutOfRange = "warn",
        receipt: bool | Literal["trace"] = False,
        out: Mapping[str, Int32Array] | None = None,
    ) -> Result:
        """Run on arrays by the names of the inputs.

        An input with a quantiser takes real numbers. It takes integers only with ``codes``, which says that they are
        its codes. (If each code stands for itself, integers need no ``codes``.) An input without a quantiser takes
        integers. ``out_of_range`` is for real numbers outside the range of an input: "clamp" takes the nearest code, as
        the document says, "warn" does so with one `ClampWarning` for the call, "refuse" raises `Invalid`
        (``input.range``).

        ``capture`` names tensors to return besides the outputs: values of the program, or tensors of the document,
        whose codes a value of another name may hold (`Exactness.value`). "all" returns all values. With ``cycles`` the
        arrays have a cycle axis, before the tensor's axes and after the batch's. Without a batch axis, a run begins
        with the state that the last run left, and leaves its own; with one, every sample begins with the initial
        state, and the session's state does not change. ``witness`` observes every single run, with all tensors if it
        asks for them. ``receipt`` adds a receipt of the call; "trace" lets it commit to every tensor of every run.

        ``out`` has an array for each output, by its name, that receives the codes: int32, C-contiguous, writable, with
        the shape that the result has, and with memory that no other array of the call shares. Repeated calls with the
        same arrays cost the least. If a run refuses its inputs, the arrays may hold anything. Raises `Invalid`.
        """
        if receipt:
            return self._with_receipt(inputs, capture, cycles, witness, receipt, codes, out_of_range, out)
        if capture is None and not cycles and witness is None and (codes or not self._ambiguous):
            if out is None and self._fresh and type(inputs) is dict and (made := self._fresh.outputs(inputs)):
                return Result(made, self._quantizers)
            if out is not None and type(out) is type(inputs) is dict:
                attached = self._attached.get(id(next(iter(out.values()), None)))
                if attached and (addresses := attached.addresses(inputs, out)):
                    return self._run_attached(attached, addresses, inputs, out)
            if self._are_plain(inputs):
                return self._run_plain(inputs) if out is None else self._run_plain_into(inputs, out)
        checked_arrays(inputs, [name for name, _ in self._plain])
        intake = Intake(codes, out_of_range)
        if self._batching is not None and not cycles and witness is None:
            return self._run_stacked(self._batching, inputs, capture, intake, out)
        layout, samples = arrange(self._parts, inputs, cycles, intake)
        intake.report()
        received = self._received(out, layout, inputs)
        return self._run_arranged(layout, samples, *self._wished(capture), witness)._moved(received)

    def _run_arranged(
        self,
        layout: Layout,
        samples: list[list[Feed]],
        wishes: dict[str, str] | Literal["all"],
        names: Capture,
        witness: Witness | None,
    ) -> Result:
        """Run every sample, and every cycle of each, one by one."""
        if layout.samples is None:
            seen = self._sequence(samples[0], self._executor, self._kept(), names, witness)
        else:
            sequences = self._each(lambda feeds: self._sample(feeds, names, witness), samples)
            seen = [item for sequence in sequences for item in sequence]
        if witness is not None:
            witness.keep([note for _, note in seen])
        return self._result([result for result, _ in seen], layout, wishes)

    def _with_receipt(
        self,
        inputs: Mapping[str, Any],
        capture: str | Iterable[str] | None,
        cycles: bool,
        witness: Witness | None,
        receipt: object,
        codes: bool,
        out_of_range: OutOfRange,
        out: Mapping[str, Int32Array] | None,
    ) -> Result:
        from cvm.audit.record import Recorder, host_facts

        if receipt not in (True, "trace"):
            raise expected("receipt", "False, True or 'trace'", receipt)
        if witness is not None:
            raise Invalid("argument.receipt", "a receipt is made by a witness of its own: give one of the two")
        recorder = Recorder(self.verified, receipt == "trace")
        result = self.run(inputs, capture, cycles, recorder, codes=codes, out_of_range=out_of_range, out=out)
        result.receipt = recorder.receipt(host_facts(self._name))
        return result

    def _are_plain(self, inputs: Mapping[str, Any]) -> bool:
        """Whether the inputs are int32 codes of one run in the shapes of the program and need no arranging."""
        if not isinstance(inputs, Mapping) or len(inputs) != len(self._plain):
            return False
        for name, shape in self._plain:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.dtype != np.int32 or array.shape != shape:
                return False
        return True

    def _run_plain(self, inputs: Mapping[str, Int32Array]) -> Result:
        """Run on plain inputs; the next call may be shorter (`Fresh`)."""
        if self._fresh is None:
            outputs = {output.value: (output.name, self._shapes[output.value]) for output in self._parts.outputs}
            alone = len(outputs) == len(self._parts.outputs)
            entry = self._batching.entry() if self._batching and alone else None
            self._fresh = None if entry is None else Fresh(entry, outputs)
        try:
            held = self._kept()
            result = self._executor.run(inputs, {}) if held is None else held.run(inputs)
        except Invalid:
            arrange(self._parts, inputs, intake=Intake(codes=True))  # raises an error that names the wrong code
            raise
        return self._single_result(result)

    def _run_plain_into(self, inputs: Mapping[str, Int32Array], out: Mapping[str, Int32Array]) -> Result:
        """Run on plain inputs with arrays for the outputs, which the next call may bring again."""
        received = self._received(out, SINGLE, inputs)
        values = {output.value: (output.name, received[output.name]) for output in self._parts.outputs}
        entry = self._batching and self._batching.entry()
        attached = Attached(entry, values) if entry and len(values) == len(received) else None
        addresses = attached and attached.addresses(inputs, received)
        if not attached or not addresses:
            return self._run_plain(inputs)._moved(received)
        if len(self._attached) >= ATTACHED:
            self._attached.clear()
        self._attached[id(next(iter(out.values())))] = attached
        return self._run_attached(attached, addresses, inputs, received)

    def _run_attached(
        self,
        attached: Attached,
        addresses: list[int],
        inputs: Mapping[str, Int32Array],
        out: Mapping[str, Int32Array],
    ) -> Result:
        if not attached.run(addresses):
            arrange(self._parts, inputs, intake=Intake(codes=True))  # raises an error that names the wrong code
            raise AssertionError("the check of the inputs contradicts itself")
        return Result(out, self._quantizers)

    def _received(
        self, out: Mapping[str, Int32Array] | None, layout: Layout, inputs: Mapping[str, Any]
    ) -> dict[str, Int32Array]:
        """The caller's arrays for the outputs by their names; none if there is no ``out``."""
        if out is None:
            return {}
        shapes = {output.name: layout.shape(self._shapes[output.value]) for output in self._parts.outputs}
        return receiving(out, shapes, inputs)

    def _single_result(self, result: RunResult) -> Result:
        """The outputs of one run."""
        return Result({output.name: result.values[output.value] for output in self._parts.outputs}, self._quantizers)

    def _run_stacked(
        self,
        executor: Batching,
        inputs: Mapping[str, Any],
        capture: str | Iterable[str] | None,
        intake: Intake,
        out: Mapping[str, Int32Array] | None,
    ) -> Result:
        """Run on arrays of one sample or of a batch; the executor deals the samples to its threads."""
        layout, stacks = stacked(self._parts, inputs, intake)
        intake.report(stacklevel=3)  # the caller of `run`
        wishes, names = self._wished(capture)
        samples = layout.samples or 1
        received = self._received(out, layout, inputs)
        into = {
            output.value: received[output.name].reshape(samples, *self._shapes[output.value])
            for output in (self._parts.outputs if received else ())
        }
        try:
            values = executor.run_batch(samples, stacks, names, into)
        except Invalid:
            arrange(self._parts, inputs, intake=intake)  # raises an error that names the wrong code
            raise
        if values is None:
            _, arranged = arrange(self._parts, inputs, intake=intake)
            sequences = self._each(lambda feeds: self._sample(feeds, names, None), arranged)
            results = [result for seen in sequences for result, _ in seen]
            return self._result(results, layout, wishes)._moved(received)
        joined = {name: array.reshape(layout.shape(array.shape[1:])) for name, array in values.items()}
        return self._labelled(joined, layout, wishes)._moved(received)

    def run_many(
        self,
        inputs: Iterable[Mapping[str, Any]],
        capture: str | Iterable[str] | None = None,
        progress: Callable[[int], None] | None = None,
        *,
        codes: bool = False,
        out_of_range: OutOfRange = "warn",
    ) -> list[Result]:
        """Run on each of ``inputs`` separately, as many at once as the session has threads; results in their order.

        Every run begins with the initial state, and the session's state does not change. ``progress`` is called, from
        this thread, with the number of finished inputs. ``codes`` and ``out_of_range`` are those of `run`; there is one
        warning for all inputs. Raises `Invalid` for the first input that is not valid, with its number.
        """
        given = list(_several(inputs))
        asked = _Many(self, *self._wished(capture), [Intake(codes, out_of_range) for _ in given])
        numbered = list(enumerate(given))
        results = (
            self._each(asked.one, numbered, progress)
            if self._batching is None
            else self._parts_of(asked.several, numbered, progress)
        )
        Intake(clamped=[item for intake in asked.intakes for item in intake.clamped]).report()
        return results

    def _parts_of(
        self,
        compute: Callable[[Sequence[_T]], list[_R]],
        items: Sequence[_T],
        progress: Callable[[int], None] | None = None,
    ) -> list[_R]:
        """``compute`` for all items: for parts of them, so that progress is told and few results exist in two forms."""
        size = max(self._threads * PART, len(items) // SHARES)
        results: list[_R] = []
        for start in range(0, len(items), size):
            results.extend(compute(items[start : start + size]))
            if progress is not None:
                progress(len(results))
        return results

    def _each(
        self, compute: Callable[[_T], _R], items: Sequence[_T], progress: Callable[[int], None] | None = None
    ) -> list[_R]:
        """``compute`` for every item, for several at once if the executor gains by it."""
        threads = min(self._threads, len(items)) if self._name in CONCURRENT else 1
        results: list[_R] = []
        size = max(1, len(items) // (SHARES * threads))
        shares = [items[start : start + size] for start in range(0, len(items), size)]

        def share(part: Sequence[_T]) -> list[_R]:
            return [compute(item) for item in part]

        def collect(parts: Iterable[list[_R]]) -> None:
            for part in parts:
                results.extend(part)
                if progress is not None:
                    progress(len(results))

        if threads <= 1:
            collect(map(share, shares))
            return results
        if self._single is None:
            self._single = create(self._name, self.verified, 1)
        from concurrent.futures import ThreadPoolExecutor  # imported here: it imports much, and few sessions need it

        with ThreadPoolExecutor(threads, thread_name_prefix="cvm-run") as pool:
            collect(pool.map(share, shares))
        return results

    def _sample(self, feeds: Sequence[Feed], capture: Capture, witness: Witness | None) -> list[tuple[RunResult, Any]]:
        """The runs of one sample, from the initial state on; other samples may run at the same time."""
        executor = self._single or self._executor
        held = self._begun(executor) if self._parts.state else None
        return self._sequence(feeds, executor, held, capture, witness)

    def _wished(self, capture: str | Iterable[str] | None) -> tuple[dict[str, str] | Literal["all"], Capture]:
        """The tensors asked for by name, and the values to capture for them."""
        wishes = self._captured(capture)
        return wishes, wishes if wishes == "all" else frozenset(wishes.values())

    def _captured(self, capture: str | Iterable[str] | None) -> dict[str, str] | Literal["all"]:
        """For each name that is asked for, the value that holds its codes."""
        if capture == "all":
            return "all"
        if capture is None:
            return {}
        names = [capture] if isinstance(capture, str) else capture
        if not isinstance(names, Iterable):
            raise expected("capture", "'all', a name or names of tensors", capture)
        tensors = {item.tensor: item.value for item in self.program.provenance.exactness}
        wishes = {name: name if name in self.verified.shapes else tensors.get(name, name) for name in names}
        for name, value in wishes.items():
            if not value:
                kept = "it is constant, or only another order of some value (--no-optimize keeps those)"
                message = f"the program has no value for the tensor {name!r}: {kept}"
                raise Invalid("executors.capture", message, Location(tensor=name))
        return wishes

    def _kept(self) -> Held | None:
        """The state, held by the executor; None if the program has none."""
        return self._holding() if self._parts.state else None

    def _sequence(
        self,
        feeds: Sequence[Feed],
        executor: Executor,
        held: Held | None,
        capture: Capture,
        witness: Witness | None,
    ) -> list[tuple[RunResult, Any]]:
        """Runs that pass their state on, each with the note of the witness."""
        seen: list[tuple[RunResult, Any]] = []
        for feed in feeds:
            observer = None if witness is None else witness.begin(feed, {} if held is None else held)
            watch = None if observer is None else observer.watch
            if held is None:
                result = executor.run(feed, {}, capture, watch)
            else:
                result = held.run(feed, capture, watch)
            seen.append((result, None if observer is None else observer.end(result)))
        return seen

    def _result(self, results: Sequence[RunResult], layout: Layout, wishes: dict[str, str] | Literal["all"]) -> Result:
        joined = {name: layout.join([result.values[name] for result in results]) for name in results[0].values}
        return self._labelled(joined, layout, wishes)

    def _labelled(
        self, joined: Mapping[str, Int32Array], layout: Layout, wishes: dict[str, str] | Literal["all"]
    ) -> Result:
        """The result of joined tensors by the names of values."""
        outputs = self._parts.outputs
        codes = {output.name: joined[output.value] for output in outputs}
        captured = {name: name for name in joined} if wishes == "all" else wishes
        codes |= {name: joined[value] for name, value in sorted(captured.items()) if name not in codes}
        shapes = self._shapes
        quantizers = {
            output.name: layout.quantizer(output.quantizer, shapes[output.value])
            for output in outputs
            if output.quantizer is not None
        }
        return Result(codes, quantizers)


class _Many:
    """The inputs of one call of `Session.run_many`: what is asked of each of them."""

    def __init__(
        self, session: Session, wishes: dict[str, str] | Literal["all"], names: Capture, intakes: Sequence[Intake]
    ) -> None:
        self.session, self.wishes, self.names, self.intakes = session, wishes, names, intakes
        self._trusting = any(intake.codes for intake in intakes) or not session._ambiguous

    def one(self, item: tuple[int, Mapping[str, Any]]) -> Result:
        """Run on one input, which may hold several samples."""
        layout, samples = self._opened(item)
        results = [result for feeds in samples for result, _ in self.session._sample(feeds, self.names, None)]
        return self.session._result(results, layout, self.wishes)

    def several(self, part: Sequence[tuple[int, Mapping[str, Any]]]) -> list[Result]:
        """Run on several inputs at once, if the executor can; else one by one."""
        executor = self.session._batching
        opened = [self._opened(item, self._trusting) for item in part]
        feeds = [feed for _, samples in opened for (feed,) in samples]
        try:
            values = None if executor is None else executor.run_samples(feeds, self.names)
        except Invalid:
            for item in part:
                self._opened(item)  # one of them raises an error that names the wrong code
            raise
        if values is None:
            return self.session._each(self.one, part)
        left = iter(values)
        made = [(layout, [RunResult(next(left), {}) for _ in samples]) for layout, samples in opened]
        return [self._result(layout, results) for layout, results in made]

    def _result(self, layout: Layout, results: Sequence[RunResult]) -> Result:
        if layout is SINGLE and not self.wishes:
            return self.session._single_result(results[0])
        return self.session._result(results, layout, self.wishes)

    def _opened(self, item: tuple[int, Mapping[str, Any]], trusting: bool = False) -> tuple[Layout, list[list[Feed]]]:
        """The layout and the codes of an input; ``trusting`` leaves the check of codes to the executor."""
        number, arrays = item
        session = self.session
        if trusting and session._are_plain(arrays):
            return SINGLE, [[cast("Feed", arrays)]]
        try:
            checked_arrays(arrays, [name for name, _ in session._plain])
            return arrange(session._parts, arrays, intake=self.intakes[number])
        except Invalid as error:
            error.message = f"number {number} of the {len(self.intakes)} inputs of run_many: {error.message}"
            raise
