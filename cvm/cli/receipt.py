"""``cvm receipt``: show, verify, compare and sign receipts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli.declaration import Command, Group
from cvm.cli.failures import Usage
from cvm.cli.options import Cycles, ExecutorName, Inputs, Json, Judge, Salt, Threads, judging
from cvm.cli.output import progress, say, show, table, write_file
from cvm.cli.verdicts import EXIT_CODES, PRINTED, render_folder, render_verdict, result_document
from cvm.errors import Invalid, Location

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.arrays import Array
    from cvm.audit import Judging
    from cvm.audit.batch import Finished
    from cvm.audit.receipt import Receipt
    from cvm.audit.verdict import Level

__all__ = ["GROUP"]

_FOLDER_FLOOR = 0.005
"""Seconds that FORMAL may take for each receipt of a folder, however short its runs are: there are many."""

_ReceiptFile = Annotated[Path, typer.Argument(metavar="RECEIPT", help="A receipt file.")]


def read_receipt(path: Path) -> Receipt:
    """The receipt in a file. Raises `CvmError`."""
    from cvm.audit import load_receipt

    try:
        return load_receipt(path)
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise Invalid("receipt.unreadable", message, Location(str(path))) from None


def show_receipt(receipt: _ReceiptFile, as_json: Json = False) -> int:
    """Show what a receipt claims, its id, its signatures, and what the host said of itself.

    Nothing is verified, except that the file is whole and canonical. The id is computed from the claim.
    """
    document = describe(read_receipt(receipt))
    return show(document, lambda console: _render_receipt(console, document), as_json)


def describe(receipt: Receipt) -> dict[str, Any]:
    """A receipt as a document."""
    claim, host = receipt.claim, receipt.host
    return {
        "id": receipt.id,
        "claim": {
            "program": claim.program.hex(),
            "op_set": claim.op_set,
            "limits": claim.limits,
            "gas": claim.gas,
            "runs": [
                {
                    "inputs": [root.hex() for root in run.inputs],
                    "before": [root.hex() for root in run.before],
                    "outputs": [root.hex() for root in run.outputs],
                    "after": [root.hex() for root in run.after],
                    "trace": None if run.trace is None else run.trace.hex(),
                }
                for run in claim.runs
            ],
        },
        "signatures": [{"key": item.key.hex(), "signature": item.signature.hex()} for item in receipt.signatures],
        "not_authenticated": {
            "executor": host.executor,
            "version": host.version,
            "machine": host.machine,
            "time": host.time,
        },
    }


def _render_receipt(console: Console, document: dict[str, Any]) -> None:
    claim = document["claim"]
    say(console, f"receipt   {document['id']}")
    say(console, f"program   {claim['program']}")
    say(console, f"op-set    {claim['op_set']}, limits {claim['limits']}, gas {claim['gas']} per run")
    for number, run in enumerate(claim["runs"][:PRINTED]):
        for what in ("inputs", "before", "outputs", "after"):
            for index, root in enumerate(run[what]):
                say(console, f"run {number:<5} {what.removesuffix('s')} {index}: {root}")
        if run["trace"] is not None:
            say(console, f"run {number:<5} trace: {run['trace']}")
    if len(claim["runs"]) > PRINTED:
        say(console, f"... {len(claim['runs'])} runs in all; --json shows every one")
    for item in document["signatures"]:
        say(console, f"signed by {item['key']} (not verified)")
    said = [value for value in document["not_authenticated"].values() if value]
    say(console, f"the host said (not authenticated): {', '.join(said) or 'nothing'}")


_Receipt = Annotated[Path, typer.Argument(metavar="RECEIPT", help="A receipt file, or a folder of receipts.")]
_Program = Annotated[
    list[Path],
    typer.Option("--program", metavar="PROGRAM", help="The program, or a model. For a folder: may be repeated."),
]
_Outputs = Annotated[
    Path | None,
    typer.Option("--outputs", metavar="FILE", help="Outputs that must be those of the receipt: a .npz file."),
]
_State = Annotated[
    Path | None,
    typer.Option("--state", metavar="FILE", help="The state that the first run began with, if not the initial one."),
]
_TraceFile = Annotated[
    list[Path],
    typer.Option(
        "--trace-file",
        metavar="FILE",
        help="A trace that must be that of a run of the receipt; its first op that differs is named. Repeatable.",
    ),
]
_Level = Annotated[
    str | None,
    typer.Option(
        "--level",
        metavar="structure|roots|outputs|trace|formal",
        help="How far to go; by default as far as the receipt claims anything.",
    ),
]
_Sample = Annotated[
    int | None,
    typer.Option("--sample", min=1, metavar="N", help="Level formal: FORMAL computes N elements of every tensor."),
]
_Resume = Annotated[
    Path | None,
    typer.Option("--resume", metavar="FILE", help="For a folder: note what is finished, and go on from there."),
]
_Jobs = Annotated[
    int | None,
    typer.Option("--jobs", min=1, metavar="N", help="For a folder: receipts at a time; by default all cores."),
]
_Ray = Annotated[
    str | None,
    typer.Option("--ray", metavar="ADDRESS", help="For a folder: let a Ray cluster do the work; HOST:PORT or auto."),
]


def verify_receipt(
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
    resume: _Resume = None,
    jobs: _Jobs = None,
    ray: _Ray = None,
    as_json: Json = False,
) -> int:
    """Recompute what a receipt claims: REPRODUCED, DIVERGED or CANNOT_RECOMPUTE.

    DIVERGED (exit code 1): the claim is false. CANNOT_RECOMPUTE (5): something is missing, the program or the inputs
    are not those that the receipt names, or the executor is wrong. Every digest is recomputed; none is believed. Nor is
    the executor: FORMAL, the reference, judges drawn elements of what it computes. At the levels structure and roots
    nothing is executed. In a folder, the inputs of NAME.receipt are in NAME.npz beside it, and each receipt finds its
    program among those given, by digest.
    """
    goal = _goal(level, sample, judge, salt)
    if receipt.is_dir():
        if inputs or outputs is not None or state is not None or trace_file:
            others = "-i, --outputs, --state and --trace-file are for one receipt"
            raise Usage(f"in a folder, inputs are found beside the receipts: {others}")
        asked = judging(judge, salt, _FOLDER_FLOOR)
        return _verify_folder(receipt, program, goal, sample, asked, executor, cycles, resume, jobs, ray, as_json)
    if len(program) != 1 or resume is not None or jobs is not None or ray is not None:
        raise Usage("one receipt has one program; --resume, --jobs and --ray are for a folder of receipts")
    if trace_file and goal not in (None, "trace", "formal"):
        raise Usage("a given trace is compared with a recomputed one: expected --level trace or formal")
    asked = judging(judge, salt)
    return _verify_one(
        receipt, program[0], inputs, outputs, state, trace_file, goal, sample, asked, executor, threads, cycles, as_json
    )


def _goal(level: str | None, sample: int | None, judge: int | None, salt: str | None) -> Level | None:
    """The level to reach (None: as far as the receipt claims anything). Raises `Usage` for options that it excludes."""
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


def _verify_one(
    path: Path,
    program: Path,
    inputs: list[str],
    outputs: Path | None,
    state: Path | None,
    traces: list[Path],
    level: Level | None,
    sample: int | None,
    asked: Judging,
    executor: str | None,
    threads: int | None,
    cycles: bool,
    as_json: bool,
) -> int:
    from cvm.audit import read_trace, verify
    from cvm.cli.feeds import read_inputs
    from cvm.cli.models import open_program

    receipt = read_receipt(path)
    verified = open_program(program)
    with progress("verifying", len(receipt.claim.runs)) as advance:
        verdict = verify(
            receipt,
            verified,
            read_inputs(inputs, verified.program.inputs) if inputs or not verified.program.inputs else None,
            outputs=None if outputs is None else _archive(outputs),
            state=None if state is None else _archive(state),
            traces=[read_trace(path) for path in traces],
            cycles=cycles,
            level=level,
            sample=sample,
            executor=executor,
            threads=threads,
            progress=advance,
            judging=asked,
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


def _archive(path: Path) -> dict[str, Array]:
    from cvm.arrays import npz_members, read_npz

    return {name: read_npz(path, name) for name in npz_members(path)}


def _verify_folder(
    folder: Path,
    programs: list[Path],
    level: Level | None,
    sample: int | None,
    asked: Judging,
    executor: str | None,
    cycles: bool,
    resume: Path | None,
    jobs: int | None,
    address: str | None,
    as_json: bool,
) -> int:
    from cvm.audit.batch import Order, receipts_in, verify_all
    from cvm.audit.batch.cluster import Cluster
    from cvm.audit.batch.processes import Processes
    from cvm.cli.models import open_program

    paths = receipts_in(folder)
    order = Order(
        programs=tuple(open_program(path).program.to_bytes() for path in programs),
        level=level,
        sample=sample,
        executor=executor,
        cycles=cycles,
        judging=asked,
    )
    found: list[Finished] = []
    scheduler = Processes(jobs) if address is None else Cluster(address, jobs)
    with progress("verifying", len(paths)) as advance:
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
        "salt": asked.salt,
        "results": [result_document(item) for item in found],
    }
    code = 1 if counts["DIVERGED"] else 5 if counts["CANNOT_RECOMPUTE"] else 0
    return show(document, lambda console: render_folder(console, document), as_json, code)


def diff(
    first: Annotated[Path, typer.Argument(metavar="A", help="A receipt file.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
    as_json: Json = False,
) -> int:
    """Compare what two receipts claim: each field that differs, first to last. The exit code is 1 if any does.

    Signatures and what the hosts say of themselves are not compared.
    """
    one, other = describe(read_receipt(first)), describe(read_receipt(second))
    differences = list(_differences("", one["claim"], other["claim"]))
    document = {"equal": not differences, "ids": [one["id"], other["id"]], "differences": differences}

    def render(console: Console) -> None:
        if not differences:
            say(console, f"EQUAL    {one['id']}")
            return
        say(console, f"DIFFER   {one['id']}, {other['id']}")
        rows = ((item["field"], item["first"], item["second"]) for item in differences[:PRINTED])
        table(console, ("field", "first", "second"), rows)
        if len(differences) > PRINTED:
            say(console, f"... and {len(differences) - PRINTED} more; --json shows every one")

    return show(document, render, as_json, 1 if differences else 0)


def _differences(name: str, one: Any, other: Any) -> list[dict[str, Any]]:
    """The leaves of two documents of one form that differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [item for key in one for item in _differences(f"{name}.{key}" if name else key, one[key], other[key])]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [item for index, (a, b) in pairs for item in _differences(f"{name}[{index}]", a, b)]
    if one == other:
        return []
    said: Callable[[Any], Any] = lambda value: f"{len(value)} items" if isinstance(value, list) else value  # noqa: E731
    return [{"field": name, "first": said(one), "second": said(other)}]


def sign(
    receipt: _ReceiptFile,
    key: Annotated[
        Path, typer.Option("--key", metavar="FILE", help="An Ed25519 private key: PEM, PKCS #8, not encrypted.")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to write it; by default in place.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Sign a receipt with an Ed25519 key, in place; `openssl genpkey -algorithm ed25519` makes one.

    The signature covers the claim's id. It says who vouches for the claim, not that the claim is true.
    """
    from cvm.audit import encode_receipt
    from cvm.audit import sign as signed_with
    from cvm.program.files import read_bytes

    try:
        pem = read_bytes(key, 2**16, "key")
    except OSError as error:
        raise Invalid("sign.key", f"cannot be read: {error.strerror or error}", Location(str(key))) from None
    signed = signed_with(read_receipt(receipt), pem)
    target = receipt if output is None else output
    write_file(target, encode_receipt(signed))
    keys = [item.key.hex() for item in signed.signatures]
    document = {"receipt": signed.id, "path": str(target), "signers": keys}

    def render(console: Console) -> None:
        say(console, f"receipt   {signed.id}")
        for item in keys:
            say(console, f"signed by {item}")
        say(console, f"wrote     {target}")

    return show(document, render, as_json)


GROUP = Group(
    "Show, verify, compare and sign receipts of runs.",
    {
        "show": Command(show_receipt, ("cvm receipt show result.receipt",)),
        "verify": Command(
            verify_receipt,
            (
                "cvm receipt verify result.receipt --program model.cvm -i photo.npy",
                "cvm receipt verify result.receipt --program model.cvm -i photo.npy --level formal --sample 100",
                "cvm receipt verify result.receipt --program model.cvm -i photo.npy --trace-file result.trace",
                "cvm receipt verify receipts/ --program model.cvm --resume audit.log",
                "cvm receipt verify receipts/ --program model.cvm --resume audit.log --ray 10.0.0.1:6379",
            ),
        ),
        "diff": Command(diff, ("cvm receipt diff mine.receipt theirs.receipt",)),
        "sign": Command(sign, ("cvm receipt sign result.receipt --key key.pem",)),
    },
)
