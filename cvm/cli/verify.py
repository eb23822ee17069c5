"""``cvm receipt verify``: recompute the claim of a receipt, or of every receipt in a folder."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cvm.cli.failures import Usage
from cvm.cli.options import Codes, Cycles, ExecutorName, Inputs, Json, Judge, Salt, Threads, judging
from cvm.cli.output import printable, progress, show
from cvm.cli.verdicts import EXIT_CODES, render_folder, render_verdict, result_document
from cvm.records import dataclass

if TYPE_CHECKING:
    from cvm.audit import Judging
    from cvm.audit.batch import Finished
    from cvm.audit.verdict import Level

__all__ = ["command"]

_FOLDER_FLOOR = 0.005
"""The seconds that FORMAL may take for each receipt of a folder, however short its runs are: there are many."""

_Receipt = Annotated[Path, typer.Argument(metavar="RECEIPT", help="A receipt file, or a folder of receipts.")]
_Program = Annotated[
    list[Path],
    typer.Option("--program", metavar="PROGRAM", help="The program, or a model. For a folder: may be repeated."),
]
_Outputs = Annotated[
    Path | None,
    typer.Option("--outputs", metavar="FILE", help="A .npz file; its arrays must be the outputs of the receipt."),
]
_State = Annotated[
    Path | None,
    typer.Option("--state", metavar="FILE", help="The state before the first run, if not the initial one."),
]
_TraceFile = Annotated[
    list[Path],
    typer.Option(
        "--trace-file",
        metavar="FILE",
        help="A trace file that must belong to a run of the receipt; its first op that differs is named. Repeatable.",
    ),
]
_Level = Annotated[
    str | None,
    typer.Option(
        "--level",
        metavar="structure|roots|outputs|trace|formal",
        help="How far to verify; by default as far as the receipt claims anything.",
    ),
]
_Sample = Annotated[
    int | None,
    typer.Option("--sample", min=1, metavar="N", help="Level formal: FORMAL computes N elements of every tensor."),
]
_Signer = Annotated[
    list[str],
    typer.Option(
        "--signer",
        metavar="KEY",
        help="An Ed25519 public key that must have signed: 64 hexadecimal digits, or a PEM file. May be repeated.",
    ),
]
_Resume = Annotated[
    Path | None,
    typer.Option("--resume", metavar="FILE", help="For a folder: a log of finished receipts, from which to go on."),
]
_Jobs = Annotated[
    int | None,
    typer.Option("--jobs", min=1, metavar="N", help="For a folder: how many receipts at a time; by default all cores."),
]
_Ray = Annotated[
    str | None,
    typer.Option("--ray", metavar="ADDRESS", help="For a folder: let a Ray cluster do the work; HOST:PORT or auto."),
]


def command(
    receipt: _Receipt,
    program: _Program,
    inputs: Inputs = [],  # noqa: B006  (Typer makes a list of its own from it)
    outputs: _Outputs = None,
    state: _State = None,
    trace_file: _TraceFile = [],  # noqa: B006
    level: _Level = None,
    sample: _Sample = None,
    judge: Judge = None,
    salt: Salt = None,
    executor: ExecutorName = None,
    threads: Threads = None,
    cycles: Cycles = False,
    codes: Codes = False,
    signer: _Signer = [],  # noqa: B006
    resume: _Resume = None,
    jobs: _Jobs = None,
    ray: _Ray = None,
    as_json: Json = False,
) -> int:
    """Recompute the claim of a receipt: REPRODUCED, DIVERGED or CANNOT_RECOMPUTE.

    DIVERGED (exit code 1): the claim is false. CANNOT_RECOMPUTE (5): something is missing, the program or the inputs
    are not those that the receipt names, or the executor is wrong. No digest is believed; every one is recomputed.
    The executor is not believed either: FORMAL, the reference, judges drawn elements of its tensors. The levels
    structure and roots execute nothing. In a folder, the inputs of NAME.receipt are in NAME.npz beside it, and the
    digest in each receipt selects its program among those given.
    """
    asked = judging(judge, salt, _FOLDER_FLOOR if receipt.is_dir() else None)
    goal = _goal(level, sample, judge, salt)
    question = _Question(goal, sample, executor, cycles, codes, asked, tuple(map(_key, signer)))
    if receipt.is_dir():
        if inputs or outputs is not None or state is not None or trace_file:
            others = "-i, --outputs, --state and --trace-file are for one receipt"
            raise Usage(f"in a folder, inputs are found beside the receipts: {others}")
        return _verify_folder(receipt, program, question, resume, jobs, ray, as_json)
    if len(program) != 1 or resume is not None or jobs is not None or ray is not None:
        raise Usage("one receipt has one program; --resume, --jobs and --ray are for a folder of receipts")
    if trace_file and question.level not in (None, "trace", "formal"):
        raise Usage("a given trace is compared with a recomputed one: expected --level trace or formal")
    given = _Given(program[0], inputs, outputs, state, trace_file)
    return _verify_one(receipt, given, question, threads, as_json)


@dataclass(frozen=True, slots=True)
class _Question:
    """What to verify about a receipt, or about each receipt of a folder."""

    level: Level | None
    sample: int | None
    executor: str | None
    cycles: bool
    codes: bool
    judging: Judging
    signers: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _Given:
    """The files that belong to one receipt."""

    program: Path
    inputs: Sequence[str]
    outputs: Path | None
    state: Path | None
    traces: Sequence[Path]


def _key(words: str) -> bytes:
    """The public key of an option, which gives the key itself or its file. Raises `Invalid`."""
    from cvm.audit.signatures import public_key
    from cvm.errors import Invalid, Location
    from cvm.program.reading import read_bytes

    if re.fullmatch("[0-9a-fA-F]{64}", words):
        return public_key(words)
    try:
        return public_key(read_bytes(words, 2**16, "key").decode("utf-8", "replace"))
    except Invalid as error:
        raise error.at(file=words) from None
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        if re.fullmatch("[0-9a-fA-F]+", words):
            message += f"; a key has 64 hexadecimal digits, this has {len(words)}"
        raise Invalid("sign.key", message, Location(words)) from None


def _goal(level: str | None, sample: int | None, judge: int | None, salt: str | None) -> Level | None:
    """The level to reach (None: as far as the receipt claims anything). Raises `Usage` for options that exclude it."""
    from cvm.audit import LEVELS
    from cvm.audit.verdict import NOT_EXECUTED

    if level is not None and level not in LEVELS:
        raise Usage(f"expected one of {', '.join(LEVELS)}, found {level!r}")
    if sample is not None and level != "formal":
        raise Usage("--sample says how much FORMAL computes: expected --level formal")
    if (judge is not None or salt is not None) and level in NOT_EXECUTED:
        raise Usage(f"nothing is executed at level {level}: --judge and --salt are for the levels after it")
    if judge is not None and level == "formal":
        raise Usage("at level formal FORMAL computes every element, or those that --sample says: --judge has no effect")
    return next((known for known in LEVELS if known == level), None)


def _verify_one(path: Path, given: _Given, question: _Question, threads: int | None, as_json: bool) -> int:
    from cvm.audit import read_trace, verify
    from cvm.cli.feeds import read_archive, read_inputs, read_receipt
    from cvm.cli.models import open_program

    receipt = read_receipt(path)
    verified = open_program(given.program)
    inputs = verified.program.inputs
    known = bool(given.inputs) or not inputs
    if receipt.claim.program.hex() != verified.program.digest:
        known = False  # the files belong to another program, and need not fit this one
    with progress("verifying", len(receipt.claim.runs)) as advance:
        verdict = verify(
            receipt,
            verified,
            read_inputs(given.inputs, inputs, codes=question.codes) if known else None,
            outputs=None if given.outputs is None else read_archive(given.outputs),
            state=None if given.state is None else read_archive(given.state),
            traces=[read_trace(path) for path in given.traces],
            cycles=question.cycles,
            codes=True,
            level=question.level,
            sample=question.sample,
            executor=question.executor,
            threads=threads,
            progress=advance,
            judging=question.judging,
            signers=question.signers,
        )
    document = {
        "answer": verdict.answer,
        "level": verdict.level,
        "reason": verdict.reason,
        "checked": list(verdict.checked),
        "executor": verdict.executor,
        "judged": None if verdict.judged is None else verdict.judged.document(),
        "receipt": receipt.id,
        "program": verified.program.digest,
        "signers": list(verdict.signers),
    }
    code = EXIT_CODES[verdict.answer]
    return show(document, lambda console: render_verdict(console, verdict, document), as_json, code)


@contextmanager
def _counted(found: Sequence[Finished], total: int, log: Path | None) -> Iterator[None]:
    """If the work is interrupted, print how much of it is done and how it can go on."""
    try:
        yield
    except KeyboardInterrupt:
        done = f"cvm: {len(found)} of {total} receipts are verified"
        if log is None:
            print(f"{done}; with --resume FILE they would be noted there", file=sys.stderr)
        else:
            print(f"{done} and noted in {printable(str(log))}: the same command goes on from there", file=sys.stderr)
        raise


def _verify_folder(
    folder: Path,
    programs: list[Path],
    question: _Question,
    resume: Path | None,
    jobs: int | None,
    address: str | None,
    as_json: bool,
) -> int:
    from cvm.audit.batch import Order, receipts_in, verify_all
    from cvm.cli.models import open_program
    from cvm.workers.cluster import Cluster
    from cvm.workers.processes import Processes

    paths = receipts_in(folder)
    order = Order(
        programs=tuple(open_program(path).program.to_bytes() for path in programs),
        level=question.level,
        sample=question.sample,
        executor=question.executor,
        cycles=question.cycles,
        codes=question.codes,
        judging=question.judging,
        signers=question.signers,
    )
    found: list[Finished] = []
    scheduler = Processes(jobs) if address is None else Cluster(address, jobs)
    with _counted(found, len(paths), resume), progress("verifying", len(paths)) as advance:
        for finished in verify_all(folder, paths, order, resume, scheduler):
            found.append(finished)
            advance(len(found))
    found.sort(key=lambda item: item.path)
    counts = Counter[str](item.answer for item in found)
    document = {
        "receipts": len(found),
        "resumed": sum(item.resumed for item in found),
        "answers": {answer: counts[answer] for answer in EXIT_CODES},
        "executed": sum(item.executor is not None for item in found),
        "judged": sum(item.judged.elements for item in found if item.judged is not None),
        "salt": question.judging.salt,
        "results": [result_document(item) for item in found],
    }
    code = 1 if counts["DIVERGED"] else 5 if counts["CANNOT_RECOMPUTE"] else 0
    return show(document, lambda console: render_folder(console, document), as_json, code)
