"""``cvm check``: do the executors agree on every tensor?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli.declaration import Command
from cvm.cli.failures import Usage
from cvm.cli.options import BitOrder, Cycles, Inputs, Json, Model, NoOptimize, Threads
from cvm.cli.output import progress, say, show

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.agreement import Agreement
    from cvm.executors import Executor

__all__ = ["agreement_document", "command"]


def command(
    program: Model,
    inputs: Inputs = [],  # noqa: B006  (Typer makes a list of its own from it)
    executors: Annotated[
        str, typer.Option("--executors", metavar="NAME,..", help="The executors to compare.")
    ] = "formal,numpy",
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample",
            min=1,
            metavar="N",
            help="FORMAL computes N elements of every tensor, each from its operands as the other executor gave them, "
            "instead of everything: for large programs.",
        ),
    ] = None,
    threads: Threads = None,
    cycles: Cycles = False,
    bit_order: BitOrder = "lsb",
    no_optimize: NoOptimize = False,
    as_json: Json = False,
) -> int:
    """Run a program on several executors and compare every tensor, not only the outputs.

    The first difference is named: op, tensor, index and both values. The exit code is 1 then.
    """
    from cvm.agreement import compare, judge
    from cvm.cli.feeds import read_inputs
    from cvm.cli.models import open_program
    from cvm.executors import create
    from cvm.inputs import arrange

    names = executors.split(",")
    if len(set(names)) != len(names):
        raise Usage(f"an executor is named twice in {executors!r}")
    if sample is not None:
        names = [name for name in names if name != "formal"]
    if len(names) < (2 if sample is None else 1):
        raise Usage(f"there is nothing to compare with {executors!r}")
    verified = open_program(program, no_optimize, bit_order)
    made: list[Executor] = [create(name, verified, threads) for name in names]
    _, samples = arrange(verified.program, read_inputs(inputs, verified.program.inputs, bit_order), cycles)
    with progress("comparing", sum(map(len, samples))) as advance:
        agreement = compare(verified.program, made, samples, advance) if len(made) > 1 else None
        if sample is not None and (agreement is None or agreement.difference is None):
            agreement = judge(verified, made[0], samples, sample, advance)
            made.insert(0, create("formal", verified))
    assert agreement is not None
    document = agreement_document([executor.name for executor in made], agreement, sample) | {
        "digest": verified.program.digest
    }
    return show(document, lambda console: render(console, document), as_json, 0 if document["agree"] else 1)


def agreement_document(names: Sequence[str], agreement: Agreement, sample: int | None = None) -> dict[str, Any]:
    """What was compared and what was found."""
    difference = agreement.difference
    return {
        "agree": difference is None,
        "executors": list(names),
        "sample": sample,
        "runs": agreement.runs,
        "tensors": agreement.tensors,
        "elements": agreement.elements,
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
    """Say whether the executors agree, for people."""
    found = document["difference"]
    counts = f"{document['runs']} runs, {document['tensors']} tensors each, {document['elements']} elements"
    if found is None:
        say(console, f"AGREE    {', '.join(document['executors'])}: {counts}")
        return
    values = ", ".join(f"{name} has {value}" for name, value in found["values"].items())
    say(console, f"DIFFER   {', '.join(document['executors'])}: {counts}")
    place = f"run {found['run']}, op {found['op']}, tensor {found['tensor']!r}, index {found['index']}"
    say(console, f"first difference: {place}: {values}")


COMMAND = Command(
    command,
    (
        "cvm check model.cvm -i photo.npy",
        "cvm check large.cvm -i photo.npy --sample 100",
    ),
)
