"""``cvm check``: compare every tensor of several executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli.declaration import Command
from cvm.cli.failures import Usage
from cvm.cli.options import (
    BitOrder,
    Codes,
    Cycles,
    ExpectDigest,
    Inputs,
    Json,
    Judge,
    Model,
    NoOptimize,
    OutOfRangeRule,
    Salt,
    Threads,
    judging,
)
from cvm.cli.output import counted, progress, say, show, working

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.agreement import Agreement
    from cvm.audit import Judged, Judging
    from cvm.executors import Executor
    from cvm.inputs import Feed
    from cvm.program.verifier import VerifiedProgram

__all__ = ["agreement_document", "command", "default_executors", "judged_words", "render"]


_Executors = Annotated[
    str | None,
    typer.Option(
        "--executors",
        metavar="NAME,..",
        help="The executors to compare; by default formal, numpy and the one that `cvm run` uses on this machine.",
    ),
]
_Sample = Annotated[
    int | None,
    typer.Option(
        "--sample",
        min=1,
        metavar="N",
        help="FORMAL computes N elements of every tensor, each from its operands as the other executor gave them, "
        "instead of everything: for large programs.",
    ),
]


def command(
    program: Model,
    inputs: Inputs = [],  # noqa: B006  (Typer makes a list of its own from it)
    executors: _Executors = None,
    sample: _Sample = None,
    judge: Judge = None,
    salt: Salt = None,
    threads: Threads = None,
    cycles: Cycles = False,
    codes: Codes = False,
    out_of_range: OutOfRangeRule = "warn",
    expect_digest: ExpectDigest = None,
    bit_order: BitOrder = "lsb",
    no_optimize: NoOptimize = False,
    as_json: Json = False,
) -> int:
    """Run a program on several executors and compare every tensor, not only the outputs.

    Each executor also runs as `cvm run` does, without returning every tensor, and must give the same outputs. If
    formal is not among the executors, FORMAL judges drawn elements of the tensors on which they agree. The first
    difference is named by op, tensor, index and both values, and the exit code is 1.
    """
    from cvm.cli.feeds import read_inputs
    from cvm.cli.models import open_program
    from cvm.executors import create
    from cvm.inputs import Intake, arrange

    names = _names(executors, sample)
    if (judge is not None or salt is not None) and "formal" in names:
        raise Usage("formal computes every element: --judge and --salt are for --executors without formal")
    if judge is not None and sample is not None:
        raise Usage("--sample is for elements of every tensor of every run, --judge for elements in all: give one")
    asked = judging(judge, salt)
    verified = open_program(program, no_optimize, bit_order, expect_digest)
    intake = Intake(True, out_of_range)
    _, samples = arrange(
        verified.program, read_inputs(inputs, verified.program.inputs, bit_order, codes), cycles, intake
    )
    intake.report()
    with working("preparing the executors"):
        made = [create(name, verified, threads) for name in names]
    agreement, judged = _compared(verified, made, samples, sample, asked)
    compared = [*(["formal"] if sample is not None else []), *(executor.name for executor in made)]
    document = agreement_document(compared, agreement, sample, asked.salt, judged) | {"digest": verified.program.digest}
    return show(document, lambda console: render(console, document), as_json, 0 if document["agree"] else 1)


def _names(wish: str | None, sample: int | None) -> list[str]:
    """The names of the executors to run. With ``sample`` FORMAL does not run, but computes elements. Raises `Usage`."""
    names = default_executors() if wish is None else wish.split(",")
    if len(set(names)) != len(names):
        raise Usage(f"an executor is named twice in {wish!r}")
    if sample is not None:
        names = [name for name in names if name != "formal"]
    if len(names) < (2 if sample is None else 1):
        raise Usage(f"there is nothing to compare with {wish!r}: name two, as in --executors numpy,native")
    return names


def default_executors() -> list[str]:
    """FORMAL, NumPy, and the executor that runs use by default on this machine."""
    from cvm.executors import choose_executor

    return list(dict.fromkeys(["formal", "numpy", choose_executor()[0]]))


def _compared(
    verified: VerifiedProgram,
    made: Sequence[Executor],
    samples: Sequence[Sequence[Feed]],
    sample: int | None,
    asked: Judging,
) -> tuple[Agreement, Judged | None]:
    """The comparison of the executors and, if FORMAL is not among them, FORMAL's judgement of one of them.

    One is enough: FORMAL judges only if all executors gave the same integers for every tensor.
    """
    from cvm.agreement import compare, judge
    from cvm.audit.spot_check import spot_check

    with progress("comparing", sum(map(len, samples))) as advance:
        agreement = compare(verified.program, made, samples, advance) if len(made) > 1 else None
        if agreement is not None and agreement.difference is not None:
            return agreement, None
        if sample is not None:
            return judge(verified, made[0], samples, sample, advance, salt=asked.salt), None
    assert agreement is not None
    if any(executor.name == "formal" for executor in made):
        return agreement, None
    one = next((executor for executor in made if executor.name == "numpy"), made[0])  # NumPy compiles nothing
    with working("judging"):
        judged = spot_check(verified, one, samples, asked, bytes.fromhex(verified.program.digest))
    return replace(agreement, difference=judged.difference), judged


def agreement_document(
    names: Sequence[str],
    agreement: Agreement,
    sample: int | None = None,
    salt: str | None = None,
    judged: Judged | None = None,
) -> dict[str, Any]:
    """The comparison and its findings as a document."""
    difference = agreement.difference
    return {
        "agree": difference is None,
        "executors": list(names),
        "sample": sample,
        "salt": salt if sample is not None or judged is not None else None,
        "runs": agreement.runs,
        "tensors": agreement.tensors,
        "elements": agreement.elements,
        "judged": None if judged is None else judged.document(),
        "difference": None
        if difference is None
        else {
            "run": difference.run,
            "op": difference.op,
            "tensor": difference.tensor,
            "index": list(difference.index),
            "values": dict(difference.values),
        },
    }


def render(console: Console, document: dict[str, Any]) -> None:
    """Print for people whether the executors agree."""
    found = document["difference"]
    counts = f"{counted(document['runs'], 'run')}, {document['tensors']} tensors each, {document['elements']} elements"
    if document["sample"] is not None:
        counts += f", salt {document['salt']}"
    word = "AGREE" if found is None else "DIFFER"
    say(console, f"{word:<8} {', '.join(document['executors'])}: {counts}")
    if document["judged"] is not None:
        say(console, f"JUDGED   {judged_words(document['judged'])}")
    if found is None:
        return
    values = ", ".join(f"{name} has {value}" for name, value in found["values"].items())
    location = f"run {found['run']}, op {found['op']}, tensor {found['tensor']!r}, index {found['index']}"
    say(console, f"first difference: {location}: {values}")


def judged_words(judged: Mapping[str, Any]) -> str:
    """FORMAL's judgement in words, from its document."""
    from cvm.audit import Judged

    return str(Judged(**judged))


COMMAND = Command(
    command,
    (
        "cvm check model.cvm -i photo.npy",
        "cvm check large.cvm -i photo.npy --sample 100",
        "cvm check large.cvm -i photo.npy --executors numpy,native",
    ),
)
