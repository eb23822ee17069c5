"""Session: a verified program, an executor, and the state that the program keeps from run to run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Location
from cvm.executors import Capture, Int32Array, RunResult, create, initial_state
from cvm.executors.base import returned
from cvm.inputs import Feed, Layout, arrange
from cvm.program.model import Program

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram
    from cvm.quantization import LinearQuantizer

__all__ = ["Result", "Session", "Witness", "choose_executor"]


def choose_executor(wish: str | None = None) -> tuple[str, str]:
    """The name of the executor to use, and why that one."""
    if wish is not None:
        return wish, "asked for"
    return "numpy", "the fastest executor of this version"


class Result(Mapping[str, Int32Array]):
    """What a run gave: int32 codes by the name of the output, then by the name of each captured tensor.

    Arrays are stacked as the inputs were. Where an output and another captured tensor share a name, the name is the
    output's.
    """

    def __init__(self, codes: Mapping[str, Int32Array], quantizers: Mapping[str, LinearQuantizer]) -> None:
        self._codes = dict(codes)
        self._quantizers = quantizers

    def __getitem__(self, name: str) -> Int32Array:
        return self._codes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._codes)

    def __len__(self) -> int:
        return len(self._codes)

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{name}: {list(array.shape)}' for name, array in self._codes.items())})"

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


class Witness(Protocol):
    """Who is shown every single run of a session."""

    @property
    def capture(self) -> Capture:
        """The tensors that it wants to see besides the outputs."""

    def saw(self, feed: Feed, before: Mapping[str, Int32Array], result: RunResult) -> None:
        """Called after each run, with its inputs, the state that it began with, and what it left."""


def _both(one: Capture, other: Capture) -> Capture:
    return "all" if one == "all" or other == "all" else one | other


class Session:
    """A program ready to run, with the state that it keeps between runs.

    ``executor`` names one of `cvm.executors.EXECUTORS` (None: the fastest that this machine has); ``threads`` is for
    the executor to use and never changes a byte. The program is verified once, here, unless it comes verified. Raises
    `Invalid` or `LimitExceeded` for a program that is not valid.
    """

    def __init__(
        self, program: Program | VerifiedProgram, executor: str | None = None, threads: int | None = None
    ) -> None:
        from cvm.program.verifier import verify

        if threads is not None and threads < 1:
            raise Invalid("session.threads", f"expected at least one thread, found {threads}")
        self._verified = verify(program) if isinstance(program, Program) else program
        self._name, self._reason = choose_executor(executor)
        self._executor = create(self._name, self._verified, threads)
        self._state = initial_state(self.program)

    @property
    def program(self) -> Program:
        """The program."""
        return self._verified.program

    @property
    def executor(self) -> str:
        """The name of the executor."""
        return self._name

    @property
    def state(self) -> dict[str, Int32Array]:
        """What the program keeps for the next run, by name, as copies."""
        return {name: array.copy() for name, array in self._state.items()}

    def reset(self) -> None:
        """Forget the runs so far: the state is the initial one."""
        self._state = initial_state(self.program)

    def explain(self) -> tuple[str, ...]:
        """Which executor and why, then one line per node: the method chosen for it, and what justifies it."""
        return (f"{self._name}: {self._reason}", *self._executor.explain())

    def run(
        self,
        inputs: Mapping[str, Any],
        capture: str | Iterable[str] | None = None,
        cycles: bool = False,
        witness: Witness | None = None,
    ) -> Result:
        """Run on arrays by the names of the inputs; integers are codes, floats are real numbers (`cvm.inputs`).

        ``capture`` names tensors to return besides the outputs, or is "all". With ``cycles`` the arrays have a cycle
        axis, before the tensor's and after the batch's. Without a batch axis, runs begin with the state that the last
        one left and leave theirs; with one, every sample begins with the initial state and the session's stays as it
        is. ``witness`` is shown every single run, with all that it asks for; receipts are made so (`cvm.audit`).
        Raises `Invalid`.
        """
        layout, samples = arrange(self.program, inputs, cycles)
        names = self._captured(capture)
        if layout.samples is None:
            results, self._state = self._sequence(samples[0], self._state, names, witness)
        else:
            sequences = (self._sequence(feeds, initial_state(self.program), names, witness)[0] for feeds in samples)
            results = [result for sequence in sequences for result in sequence]
        return self._result(results, layout, names)

    def _captured(self, capture: str | Iterable[str] | None) -> Capture:
        if capture is None:
            return frozenset()
        if isinstance(capture, str):
            return "all" if capture == "all" else frozenset({capture})
        return frozenset(capture)

    def _sequence(
        self, feeds: Sequence[Feed], state: dict[str, Int32Array], capture: Capture, witness: Witness | None
    ) -> tuple[list[RunResult], dict[str, Int32Array]]:
        """Runs that hand their state on, and the state that the last one leaves."""
        results = []
        for feed in feeds:
            result = self._executor.run(feed, state, capture if witness is None else _both(capture, witness.capture))
            if witness is not None:
                witness.saw(feed, state, result)
                result = self._without(result, capture)
            results.append(result)
            state = result.state
        return results, state

    def _without(self, result: RunResult, capture: Capture) -> RunResult:
        """The result without what was captured for a witness only."""
        kept = returned(self.program, capture)
        return RunResult({name: result.values[name] for name in result.values if name in kept}, result.state)

    def _result(self, results: Sequence[RunResult], layout: Layout, capture: Capture) -> Result:
        joined = {name: layout.join([result.values[name] for result in results]) for name in results[0].values}
        outputs = self.program.outputs
        codes = {output.name: joined[output.value] for output in outputs}
        codes |= {name: joined[name] for name in joined if name not in codes and (capture == "all" or name in capture)}
        shapes = self._verified.shapes
        quantizers = {
            output.name: layout.quantizer(output.quantizer, shapes[output.value])
            for output in outputs
            if output.quantizer is not None
        }
        return Result(codes, quantizers)
