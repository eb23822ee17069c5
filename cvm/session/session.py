"""The class `Session`: a verified program, an executor, and the state that the program keeps from run to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cvm.arguments import checked_arrays, expected
from cvm.errors import Invalid
from cvm.executors import Int32Array, RunResult, choose_executor, cores, create, keep, recall
from cvm.executors.batching import Batching
from cvm.executors.held import Bound, Held, hold
from cvm.inputs import Feed, Intake, Layout, OutOfRange, arrange, stacked
from cvm.outputs import Attached, Fresh, receiving
from cvm.session.aside import Making, begin
from cvm.session.encoded import Encoded
from cvm.session.naming import Captured, Naming
from cvm.session.opening import Source
from cvm.session.plain import PlainInputs
from cvm.session.result import Result
from cvm.session.samples import SINGLE, Many, Samples, sequence
from cvm.session.witness import Witness

if TYPE_CHECKING:
    from os import PathLike

    from cvm.ports import Port
    from cvm.program import Program
    from cvm.program.model import Input, ProgramParts
    from cvm.program.reading import ReadFile
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Session"]

ATTACHED = 16
"""For how many sets of output arrays a session remembers that it has checked them."""

EARLY = 2**33
"""The largest metered cost of a run that NumPy answers while machine code is made: a second, about."""


def _waits(verified: VerifiedProgram) -> bool:
    """Whether NumPy answers no run of the program while machine code is made."""
    return bool(verified.program.state) or verified.gas > EARLY


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

    If ``executor`` is None and the machine code of a program of at least 64 KiB is not stored yet, another process
    makes it where there are two cores. Meanwhile, NumPy answers the first run, if that is of a single sample; all else
    waits for the code. "native" makes the code here.
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
        self._parts: ProgramParts
        self._shapes: Mapping[str, tuple[int, ...]]
        self._digest: str | None
        self._making: Making | None = None
        self._source = Source(program)
        file = self._source.file() if executor in (None, "native") and device is None else None
        if file is None or not self._start(executor, file.forget):
            self._open(executor, threads, file)
        self._plain = PlainInputs(self._parts)
        self._naming = Naming(self._parts, self._shapes, self._source)
        self._samples = Samples(self._source, self._parts, self._executor, self._threads)
        self._held: Held | None = None
        self._attached: dict[int, Attached] = {}
        self._fresh: Fresh | None = None

    def _start(self, executor: str | None, known: Callable[[], object] = lambda: None) -> bool:
        """Begin with what the cache knows of the program file. Returns False if this is not enough for a run."""
        source = self._source
        recalled = source.hash and recall(source.hash, self._threads, lambda: source.verified, known)
        if not recalled:
            return False
        self._executor, started = recalled
        self._name, self._reason = "native", started.reason if executor is None else "asked for"
        self._parts, self._shapes, self._ends = started.parts, started.shapes, started.ends
        self._digest, self._gas = started.digest, started.gas
        source.forget()
        return True

    def _open(self, executor: str | None, threads: int | None, file: ReadFile | Encoded | None) -> None:
        """Verify the program and make an executor: NumPy's if another process makes machine code in the meantime."""
        making = None
        if file is not None and executor is None and not (isinstance(file, Encoded) and _waits(self._source.verified)):
            making = begin(file, self._threads)
        try:
            verified = self._source.read(file)
        except BaseException:
            if making is not None:
                making.stop()
            raise
        if making is None:
            self._compile(verified, executor, threads)
        elif _waits(verified):
            del verified
            self._source.forget()  # the other process holds the program, too
            self._await(making)
        else:
            self._use(verified, "numpy", threads)
            self._reason = "used until another process has made the machine code"
            self._making = making

    def _compile(self, verified: VerifiedProgram, executor: str | None, threads: int | None) -> None:
        """Make the executor that the caller asked for, here."""
        name, self._reason = choose_executor(executor)
        self._use(verified, name, threads)
        # Only what was decoded and verified within the limits for files may stand for a file.
        if self._source.named and self._source.hash is not None:
            keep(self._source.hash, self._threads, verified, self._executor)
            if self._name == "native":
                self._start(executor)  # so that the memory of the program and of the compilation is free

    def _use(self, verified: VerifiedProgram, name: str, threads: int | None) -> None:
        self._executor = create(name, verified, threads, self._device)
        self._name = self._executor.name
        self._parts, self._shapes = verified.program, verified.shapes
        self._ends = {out.value: verified.ranges[out.value].hull() for out in verified.program.outputs}
        self._digest, self._gas = None, verified.gas

    def _await(self, making: Making) -> None:
        """Wait for the process that makes the machine code, and load the code; if that failed, make it here."""
        making.wait()
        if not self._start(None):
            self._compile(self._source.verified, None, self._threads)

    def _settle(self) -> None:
        """Use machine code from now on, if NumPy has been used until now."""
        making = self._making
        if making is None:
            return
        with making.settling:
            if self._making is None:
                return
            self._await(making)
            self._samples = Samples(self._source, self._parts, self._executor, self._threads)
            self._making = None

    def _begin_run(self, inputs: object, whole: bool) -> None:
        """While the machine code is made, let NumPy answer the first run, if it is of a single sample; else settle.

        ``whole`` says that only the outputs are wanted. Inputs that are wrong use up the first run.
        """
        making = self._making
        if making is not None and whole and isinstance(inputs, Mapping):
            shapes = {item.value.name: item.value.shape for item in self._parts.inputs}
            single = all(getattr(inputs.get(name), "shape", None) == shape for name, shape in shapes.items())
            if single and making.take():
                return
        self._settle()

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
        return self._source.verified

    @property
    def executor(self) -> str:
        """The name of the executor: "numpy" while another process makes the machine code of the native one."""
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
        if self._making is not None:
            self._settle()
        if self._held is None:
            self._held = self._samples.begun(self._executor)
        return self._held

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
        self._settle()
        state = {item.value.name: held[item.value.name] for item in self._parts.state}
        self._held = hold(self._executor, self._parts, state, held)

    def explain(self) -> tuple[str, ...]:
        """The executor and the reason for it, then one line per node: the chosen method, and its justification."""
        self._settle()
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
        the document says, "warn" does so with one `ClampWarning` for the call, "refuse" raises ``input.range``.

        ``capture`` names tensors to return besides the outputs: values of the program, or tensors of the document,
        whose codes a value of another name may hold (`Exactness.value`). "all" returns all values. With ``cycles`` the
        arrays have a cycle axis, before the tensor's axes and after the batch's. Without a batch axis, a run goes on
        from the session's state; with one, every sample begins with the initial state, and the session's is kept.
        ``witness`` observes every run, or all tensors if it asks. ``receipt`` adds a receipt, "trace" one of tensors.

        ``out`` has an array for each output, by its name, that receives the codes: int32, C-contiguous, writable, with
        the shape that the result has, and with memory that no other array of the call shares. Repeated calls with the
        same arrays cost the least. If a run refuses its inputs, the arrays may hold anything. Raises `Invalid`.
        """
        if receipt:
            return self._with_receipt(inputs, capture, cycles, witness, receipt, codes, out_of_range, out)
        if self._making is not None:
            self._begin_run(inputs, capture is None and witness is None)
        if capture is None and not cycles and witness is None and (codes or not self._plain.ambiguous):
            if out is None and self._fresh and type(inputs) is dict and (made := self._fresh.outputs(inputs)):
                return Result(made, self._naming.quantizers)
            if out is not None and type(out) is type(inputs) is dict:
                attached = self._attached.get(id(next(iter(out.values()), None)))
                if attached and (addresses := attached.addresses(inputs, out)):
                    return self._run_attached(attached, addresses, inputs, out)
            if self._plain.fit(inputs):
                return self._run_plain(inputs) if out is None else self._run_plain_into(inputs, out)
        checked_arrays(inputs, self._plain.names)
        intake = Intake(codes, out_of_range)
        if self._samples.batching is not None and not cycles and witness is None:
            return self._run_stacked(self._samples.batching, inputs, capture, intake, out)
        layout, samples = arrange(self._parts, inputs, cycles, intake)
        intake.report()
        received = self._received(out, layout, inputs)
        return self._run_arranged(layout, samples, self._naming.captured(capture), witness)._moved(received)

    def _run_arranged(
        self,
        layout: Layout,
        samples: list[list[Feed]],
        captured: Captured,
        witness: Witness | None,
    ) -> Result:
        """Run every sample, and every cycle of each, one by one."""
        if layout.samples is None:
            seen = sequence(samples[0], self._executor, self._kept(), captured.values, witness)
        else:
            ran = self._samples.each(lambda feeds: self._samples.run(feeds, captured.values, witness), samples)
            seen = [item for runs in ran for item in runs]
        if witness is not None:
            witness.keep([note for _, note in seen])
        return self._naming.joined([result for result, _ in seen], layout, captured)

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

    def _run_plain(self, inputs: Mapping[str, Int32Array]) -> Result:
        """Run on plain inputs; the next call may be shorter (`Fresh`)."""
        if self._fresh is None:
            outputs = {output.value: (output.name, self._shapes[output.value]) for output in self._parts.outputs}
            alone = len(outputs) == len(self._parts.outputs)
            entry = self._samples.batching.entry() if self._samples.batching and alone else None
            self._fresh = None if entry is None else Fresh(entry, outputs)
        try:
            held = self._kept()
            result = self._executor.run(inputs, {}) if held is None else held.run(inputs)
        except Invalid:
            arrange(self._parts, inputs, intake=Intake(codes=True))  # raises an error that names the wrong code
            raise
        return self._naming.single(result)

    def _run_plain_into(self, inputs: Mapping[str, Int32Array], out: Mapping[str, Int32Array]) -> Result:
        """Run on plain inputs with arrays for the outputs, which the next call may bring again."""
        received = self._received(out, SINGLE, inputs)
        values = {output.value: (output.name, received[output.name]) for output in self._parts.outputs}
        entry = self._samples.batching and self._samples.batching.entry()
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
        return Result(out, self._naming.quantizers)

    def _received(
        self, out: Mapping[str, Int32Array] | None, layout: Layout, inputs: Mapping[str, Any]
    ) -> dict[str, Int32Array]:
        """The caller's arrays for the outputs by their names; none if there is no ``out``."""
        if out is None:
            return {}
        shapes = {output.name: layout.shape(self._shapes[output.value]) for output in self._parts.outputs}
        return receiving(out, shapes, inputs)

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
        captured = self._naming.captured(capture)
        samples = layout.samples or 1
        received = self._received(out, layout, inputs)
        into = {
            output.value: received[output.name].reshape(samples, *self._shapes[output.value])
            for output in (self._parts.outputs if received else ())
        }
        try:
            values = executor.run_batch(samples, stacks, captured.values, into)
        except Invalid:
            arrange(self._parts, inputs, intake=intake)  # raises an error that names the wrong code
            raise
        if values is None:
            _, arranged = arrange(self._parts, inputs, intake=intake)
            ran = self._samples.each(lambda feeds: self._samples.run(feeds, captured.values, None), arranged)
            results = [result for runs in ran for result, _ in runs]
            return self._naming.joined(results, layout, captured)._moved(received)
        joined = {name: array.reshape(layout.shape(array.shape[1:])) for name, array in values.items()}
        return self._naming.labelled(joined, layout, captured)._moved(received)

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
        self._settle()
        intakes = [Intake(codes, out_of_range) for _ in given]
        captured = self._naming.captured(capture)
        results = Many(self._parts, self._plain, self._naming, self._samples, captured, intakes).run(given, progress)
        Intake(clamped=[item for intake in intakes for item in intake.clamped]).report()
        return results

    def _kept(self) -> Held | None:
        """The state, held by the executor; None if the program has none."""
        return self._holding() if self._parts.state else None
