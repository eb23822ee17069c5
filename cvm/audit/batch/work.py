"""The work on one receipt of a folder: the order, the files to read, and the answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import field, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cvm.audit.receipt import decode_receipt
from cvm.audit.spot_check import Judged, Judging
from cvm.audit.verify import LEVELS, Answer, Level, verify
from cvm.errors import CvmError
from cvm.executors import Executor, create
from cvm.limits import DEFAULT
from cvm.program.codec import decode
from cvm.program.reading import read_bytes
from cvm.program.verifier import verify as verify_program
from cvm.records import dataclass

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Finished", "Order", "Task", "Worker", "read_task"]

_MISSING = "-"


@lru_cache(maxsize=64)
def _program_digest(program: bytes) -> str:
    return decode(program).digest


@dataclass(frozen=True, slots=True)
class Order:
    """What to verify about every receipt."""

    programs: tuple[bytes, ...]
    """Canonical bytes of the programs."""
    level: Level | None = None
    sample: int | None = None
    executor: str | None = None
    cycles: bool = False
    codes: bool = False
    judging: Judging = field(default_factory=Judging)
    """How much of the executor's work FORMAL judges, for each receipt, and with which salt."""
    signers: tuple[bytes, ...] = ()
    """Keys that must have signed each receipt."""

    def options(self) -> dict[str, Any]:
        """The options by their names on the command line: orders with the same options get the same answers.

        The salt is no option in this sense: it only selects the judged elements.
        """
        from importlib.metadata import version

        return {
            "cvm": version("cvm"),
            "--program": sorted(map(_program_digest, self.programs)),
            "--level": self.level,
            "--sample": self.sample,
            "--executor": self.executor,
            "--cycles": self.cycles,
            "--codes": self.codes,
            "--judge": self.judging.count,
            "--signer": sorted(key.hex() for key in self.signers),
        }

    def identity(self) -> str:
        """A digest of the options, and the salt, with which workers judge."""
        options = json.dumps(self.options(), sort_keys=True)
        return f"{sha256(options.encode()).hexdigest()} {self.judging.salt}"

    def worker(self) -> Callable[[Task], Finished]:
        """A worker that verifies receipts, see `cvm.workers.Job`."""
        return Worker(self).finished


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer for one receipt."""

    path: str
    """The path of the receipt, relative to the folder, with slashes."""
    answer: Answer
    level: Level
    reason: str
    files: tuple[str, str]
    """SHA-256 of the receipt and of the inputs, in hexadecimal; ``-`` for a file that was not read."""
    resumed: bool = False
    executor: str | None = None
    """The executor that ran the program again; None: nothing was executed."""
    judged: Judged | None = None
    """What FORMAL judged of this executor; a difference is in the reason, not here."""


@dataclass(frozen=True, slots=True)
class Task:
    """A receipt and its inputs, read once, so that answers and digests are about the same bytes."""

    path: str
    receipt: bytes | None
    inputs: bytes | None
    problem: str = ""
    """Why a file could not be read; empty if all were read."""

    @property
    def digests(self) -> tuple[str, str]:
        """SHA-256 of both, in hexadecimal."""
        return _digest(self.receipt), _digest(self.inputs)


def read_task(folder: Path, path: str) -> Task:
    """Read a receipt and its inputs beside it; if a file cannot be read, the task says why."""
    receipt = folder / path
    try:
        data = read_bytes(receipt, DEFAULT.receipt_bytes, "receipt")
    except (CvmError, OSError) as error:
        return Task(path, None, None, _line(error))
    try:
        inputs = read_bytes(receipt.with_suffix(".npz"), DEFAULT.archive_bytes, "archive")
    except FileNotFoundError:
        return Task(path, data, None)
    except (CvmError, OSError) as error:
        return Task(path, data, None, _line(error))
    return Task(path, data, inputs)


class Worker:
    """Verifies receipts of the same few programs, on one thread; it verifies and compiles each program once."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._programs: dict[str, VerifiedProgram] = {}
        self._executors: dict[str, Executor] = {}
        for data in order.programs:
            verified = verify_program(decode(data))
            self._programs[verified.program.digest] = verified

    def finished(self, task: Task) -> Finished:
        """The answer for one receipt."""
        answer: Answer = "CANNOT_RECOMPUTE"
        level: Level = LEVELS[0]
        if task.receipt is None or task.problem:
            return Finished(task.path, answer, level, task.problem, task.digests)
        try:
            receipt = decode_receipt(task.receipt)
            verified = self._programs.get(receipt.claim.program.hex())
            if verified is None:
                reason = f"the receipt is of program {receipt.claim.program.hex()}, which is not among those given"
                return Finished(task.path, answer, level, reason, task.digests)
            verdict = verify(
                receipt,
                verified,
                _inputs(task.inputs, verified),
                cycles=self._order.cycles,
                codes=self._order.codes,
                level=self._order.level,
                sample=self._order.sample,
                executor=self._executor(verified),
                judging=self._order.judging,
                signers=self._order.signers,
            )
        except CvmError as error:
            return Finished(task.path, answer, level, _line(error), task.digests)
        judged = None if verdict.judged is None else replace(verdict.judged, difference=None)
        reason = _line(verdict.reason)
        return Finished(
            task.path, verdict.answer, verdict.level, reason, task.digests, executor=verdict.executor, judged=judged
        )

    def _executor(self, verified: VerifiedProgram) -> Executor:
        """The executor of a program, created for the first receipt of this program."""
        from cvm.executors import choose_executor

        digest = verified.program.digest
        if digest not in self._executors:
            self._executors[digest] = create(choose_executor(self._order.executor)[0], verified, 1)
        return self._executors[digest]


def _inputs(archive: bytes | None, verified: VerifiedProgram) -> dict[str, object] | None:
    from cvm.arrays import npz_arrays

    if not verified.program.inputs:
        return {}
    return None if archive is None else dict(npz_arrays(archive))


def _digest(data: bytes | None) -> str:
    return _MISSING if data is None else sha256(data).hexdigest()


def _line(reason: object) -> str:
    """A reason in one line, as the log needs it."""
    if isinstance(reason, OSError):
        reason = f"cannot be read: {reason.strerror or reason}"
    return " ".join(str(reason).split())
