"""Verification of folders of receipts: many processes, and a log to go on from after an interruption.

The inputs of ``NAME.receipt`` are in ``NAME.npz`` beside it. A receipt finds its program among those given by the
digest that is computed from each of them.

The log is text. Its first line names the format and what was asked for; every other line holds one result and the
SHA-256 of the files that it is about. Each line begins with SHA-256 of the line before it and its own words, so a
log that was edited, or is that of another question, is refused; a last line without an end, which a kill leaves, is
dropped. A result is taken from the log only while the files still have the bytes that it names.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast, get_args

from cvm.audit.codec import decode_receipt
from cvm.audit.verify import LEVELS, Answer, Level, verify
from cvm.errors import CvmError, Invalid, LimitExceeded, Location, Malformed
from cvm.executors import EXECUTORS, Executor, create
from cvm.limits import DEFAULT
from cvm.program.codec import decode
from cvm.program.files import read_bytes
from cvm.program.verifier import verify as verify_program

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Finished", "Order", "receipts_in", "verify_all"]

_FORMAT = "cvm-audit-log 1"
_MISSING = "-"


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked of every receipt."""

    programs: tuple[bytes, ...]
    """Canonical bytes of the programs."""
    level: Level | None = None
    sample: int | None = None
    executor: str | None = None
    cycles: bool = False

    def identity(self) -> str:
        """A digest of all that decides an answer."""
        from importlib.metadata import version

        programs = sorted(sha256(program).hexdigest() for program in self.programs)
        words = (version("cvm"), self.level, self.sample, self.executor, self.cycles, *programs)
        return sha256("\n".join(map(str, words)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer for one receipt."""

    path: str
    """Of the receipt, relative to the folder, with slashes."""
    answer: Answer
    level: Level
    reason: str
    files: tuple[str, str]
    """SHA-256 of the receipt and of the inputs, in hexadecimal; ``-`` for a file that is not there."""
    resumed: bool = False


def receipts_in(folder: Path) -> list[str]:
    """The receipts of a folder and the folders in it, as relative paths with slashes, in order."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.receipt") if path.is_file())


def verify_all(
    folder: Path, paths: Sequence[str], order: Order, log: Path | None = None, jobs: int | None = None
) -> Iterator[Finished]:
    """Verify the receipts at ``paths``, in ``jobs`` processes (None: one per core); results come as they are found.

    With ``log``, results that it holds are taken from it and new ones are added. Raises `Malformed` (``audit.log``)
    for a log that is damaged, and `Invalid` for one that answers another question (``audit.log``), where there is
    nothing to verify (``audit.none``), and for an unknown executor (``executors.unknown``).
    """
    if not paths:
        raise Invalid("audit.none", "there are no receipts here (files *.receipt)", Location(str(folder)))
    if order.executor is not None and order.executor not in EXECUTORS:
        raise Invalid("executors.unknown", f"there is no executor {order.executor!r}; there are {', '.join(EXECUTORS)}")
    if log is None:
        yield from _verified(folder, paths, order, jobs)
        return
    known = _read_log(log, order)
    left = []
    for path in paths:
        finished = known.results.get(path)
        if finished is not None and finished.files == _digests(folder, path):
            yield finished
        else:
            left.append(path)
    with _appending(log, known.length) as file:
        chain = known.chain
        if known.length == 0:
            chain = _append(file, "", _first_words(order))
        for finished in _verified(folder, left, order, jobs):
            if finished.path.isprintable():  # what would break a line is verified again each time
                chain = _append(file, chain, _words(finished))
            yield finished


# The work of one process

_programs: dict[str, VerifiedProgram] = {}
_executors: dict[str, Executor] = {}
"""By digest; an executor is made when the first receipt of its program comes."""
_order: Order | None = None


def _prepare(order: Order) -> None:
    """Verify the programs once per process; an interruption is the parent's to handle."""
    global _order
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _order = order
    for data in order.programs:
        verified = verify_program(decode(data))
        _programs[verified.program.digest] = verified


def _verified(folder: Path, paths: Sequence[str], order: Order, jobs: int | None) -> Iterator[Finished]:
    if not paths:
        return
    count = min(jobs or os.cpu_count() or 1, len(paths))
    # Fresh processes: a fork would copy the threads' locks of BLAS in whatever state they are.
    with ProcessPoolExecutor(count, get_context("spawn"), _prepare, (order,)) as pool:
        futures = [pool.submit(_answer, os.fspath(folder), path) for path in paths]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool:
            raise LimitExceeded("limit.memory", "a process was ended from outside: memory may be exhausted") from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _answer(folder: str, path: str) -> Finished:
    """Verify one receipt."""
    assert _order is not None
    files = _digests(Path(folder), path)
    answer: Answer = "CANNOT_RECOMPUTE"
    level: Level = LEVELS[0]
    try:
        receipt = decode_receipt(read_bytes(Path(folder, path), DEFAULT.receipt_bytes, "receipt"))
        verified = _programs.get(receipt.claim.program.hex())
        if verified is None:
            reason = f"the receipt is of program {receipt.claim.program.hex()}, which is not among those given"
            return Finished(path, answer, level, reason, files)
        inputs = _inputs(Path(folder, path), verified)
        verdict = verify(
            receipt,
            verified,
            inputs,
            cycles=_order.cycles,
            level=_order.level,
            sample=_order.sample,
            executor=_executor(verified),
        )
    except CvmError as error:
        return Finished(path, answer, level, _line(str(error)), files)
    except OSError as error:
        return Finished(path, answer, level, _line(f"cannot be read: {error.strerror or error}"), files)
    return Finished(path, verdict.answer, verdict.level, _line(verdict.reason), files)


def _executor(verified: VerifiedProgram) -> Executor:
    from cvm.session import choose_executor

    digest = verified.program.digest
    if digest not in _executors:
        assert _order is not None
        _executors[digest] = create(choose_executor(_order.executor)[0], verified, 1)
    return _executors[digest]


def _inputs(path: Path, verified: VerifiedProgram) -> dict[str, object] | None:
    from cvm.arrays import npz_members, read_npz

    archive = path.with_suffix(".npz")
    if not verified.program.inputs:
        return {}
    if not archive.exists():
        return None
    return {name: read_npz(archive, name) for name in npz_members(archive)}


def _digests(folder: Path, path: str) -> tuple[str, str]:
    receipt = folder / path
    return _digest(receipt), _digest(receipt.with_suffix(".npz"))


def _digest(path: Path) -> str:
    try:
        return sha256(read_bytes(path, DEFAULT.archive_bytes, "archive")).hexdigest()
    except (OSError, CvmError):
        return _MISSING


def _line(text: str) -> str:
    """Text as a part of a line."""
    return " ".join(text.split())


# The log


@dataclass(frozen=True, slots=True)
class _Log:
    """What a log says: results by path, the hash that the next line continues, and the bytes that are whole lines."""

    results: dict[str, Finished]
    chain: str
    length: int


def _first_words(order: Order) -> str:
    return f"{_FORMAT} {order.identity()}"


def _words(item: Finished) -> str:
    return "\t".join([item.answer, item.level, *item.files, item.path, item.reason])


def _linked(chain: str, words: str) -> str:
    return sha256(f"{chain}\n{words}".encode("utf-8", "surrogateescape")).hexdigest()


def _read_log(path: Path, order: Order) -> _Log:
    try:
        data = read_bytes(path, DEFAULT.receipt_bytes, "log")
    except FileNotFoundError:
        return _Log({}, "", 0)
    except OSError as error:
        raise Invalid("audit.log", f"cannot be read: {error.strerror or error}", Location(str(path))) from None
    except CvmError as error:
        raise error.at(file=str(path)) from None
    length = data.rfind(b"\n") + 1
    chain, results = "", dict[str, Finished]()
    for number, line in enumerate(data[:length].decode("utf-8", "surrogateescape").split("\n")[:-1], 1):
        link, _, words = line.partition(" ")
        if link != _linked(chain, words):
            raise Malformed("audit.log", "this line does not continue the log", Location(str(path), line=number))
        chain = link
        if number > 1:
            finished = _finished(words, Location(str(path), line=number))
            results[finished.path] = finished
        elif words != _first_words(order):
            message = "the log is of other programs or options, or of another version: name another file"
            raise Invalid("audit.log", message, Location(str(path)))
    return _Log(results, chain, length)


def _finished(words: str, where: Location) -> Finished:
    parts = words.split("\t")
    if len(parts) != 6 or parts[0] not in get_args(Answer) or parts[1] not in LEVELS:
        raise Malformed("audit.log", "this line holds no result", where)
    answer, level, receipt, inputs, path, reason = parts
    return Finished(path, cast(Answer, answer), cast(Level, level), reason, (receipt, inputs), resumed=True)


def _appending(path: Path, length: int) -> IO[bytes]:
    """The log, open behind its last whole line."""
    try:
        file = open(path, "r+b" if length else "wb")  # noqa: SIM115 - the caller closes it
    except OSError as error:
        raise Invalid("audit.log", f"cannot be written: {error.strerror or error}", Location(str(path))) from None
    file.truncate(length)
    file.seek(length)
    return file


def _append(file: IO[bytes], chain: str, words: str) -> str:
    """Add a line, and give what the next one continues."""
    link = _linked(chain, words)
    file.write(f"{link} {words}\n".encode("utf-8", "surrogateescape"))
    file.flush()
    return link
