"""The work on one chunk: a program, verified and compiled once per worker, run on each item from its initial state."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import field
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from cvm.arrays import Array, npz_bytes
from cvm.errors import ClampWarning, CvmError, Invalid
from cvm.inputs import OutOfRange
from cvm.records import dataclass

if TYPE_CHECKING:
    from cvm.session import Result, Session

__all__ = ["Answer", "MapJob", "MapTask"]


@dataclass(frozen=True, slots=True)
class MapTask:
    """The items of one chunk."""

    names: tuple[str, ...]
    arrays: Mapping[str, Array]
    """For each input, the arrays of all items, stacked along a new first axis."""


@dataclass(slots=True)
class Answer:
    """The results of one chunk."""

    items: int
    outputs: dict[str, Array]
    """For each output, the arrays of all items, stacked along a new first axis."""
    receipts: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    """For each item, by name: its receipt, and its inputs as codes, a ``.npz`` file."""
    clamped: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MapJob:
    """What to do with every item."""

    program: bytes
    """The canonical bytes of the program."""
    digest: str
    item_bytes: int
    """The bytes of the inputs and outputs of one item."""
    executor: str | None = None
    codes: bool = False
    """Whether outputs are codes (int32), and not the real numbers that they stand for (float64)."""
    input_codes: bool = False
    """Whether integers for an input with a quantiser are its codes; else they are refused."""
    out_of_range: OutOfRange = "warn"
    receipts: bool = False
    trace: bool = False
    """Whether receipts commit to every tensor."""

    def identity(self) -> str:
        """A digest of everything that decides about a result: program, options, and the version of cvm."""
        from importlib.metadata import version

        words = (
            version("cvm"),
            self.digest,
            self.codes,
            self.input_codes,
            self.out_of_range,
            self.receipts,
            self.trace,
        )
        return sha256(repr(words).encode()).hexdigest()

    def worker(self) -> Callable[[MapTask], Answer | CvmError]:
        """Verify and compile the program; see `cvm.workers.Job`."""
        from cvm.executors import choose_executor
        from cvm.program.codec import decode
        from cvm.session import Session

        session = Session(decode(self.program), choose_executor(self.executor)[0], 1)
        return lambda task: self._answer(session, task)

    def _answer(self, session: Session, task: MapTask) -> Answer | CvmError:
        """The results of a chunk, or the error of the first item that is refused, which names it."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ClampWarning)
            try:
                answer = self._results(session, task)
            except CvmError as error:
                return self._named(session, task, error)
        answer.clamped = [
            f"items {task.names[0]} to {task.names[-1]}: {item.message}"
            for item in caught
            if issubclass(item.category, ClampWarning)
        ]
        return answer

    def _results(self, session: Session, task: MapTask) -> Answer:
        if not self.receipts:
            result = self._run(session, task.arrays)
            return Answer(len(task.names), {name: self._output(result, name) for name in result})
        answer = Answer(len(task.names), {})
        parts: dict[str, list[Array]] = {}
        for number, name in enumerate(task.names):
            result, answer.receipts[name] = self._with_receipt(session, task, number)
            for output in result:
                parts.setdefault(output, []).append(self._output(result, output))
        answer.outputs = {output: np.concatenate(arrays) for output, arrays in parts.items()}
        return answer

    def _run(self, session: Session, arrays: Mapping[str, Array]) -> Result:
        return session.run(arrays, codes=self.input_codes, out_of_range=self.out_of_range)

    def _with_receipt(self, session: Session, task: MapTask, number: int) -> tuple[Result, tuple[bytes, bytes]]:
        """The result of one item, with a batch axis of 1; and its receipt with its inputs as codes."""
        from cvm.audit import encode_receipt
        from cvm.inputs import Intake, arrange

        intake = Intake(self.input_codes, self.out_of_range)
        item = {name: array[number : number + 1] for name, array in task.arrays.items()}
        _, ((feed,),) = arrange(session.program, item, intake=intake)
        intake.report()
        stacked = {name: array[np.newaxis] for name, array in feed.items()}
        result = session.run(stacked, codes=True, receipt="trace" if self.trace else True)
        assert result.receipt is not None
        return result, (encode_receipt(result.receipt), npz_bytes(feed))

    def _output(self, result: Result, name: str) -> Array:
        return result[name] if self.codes or not result.has_real(name) else result.real(name)

    def _named(self, session: Session, task: MapTask, error: CvmError) -> CvmError:
        """The error of the first item that is refused on its own."""
        for number, name in enumerate(task.names):
            try:
                self._run(session, {key: array[number] for key, array in task.arrays.items()})
            except Invalid as found:
                found.message = f"item {name}: {found.message}"
                return found
        return error
