"""``cvm map``: one program over a data set."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli.declaration import Command
from cvm.cli.failures import Usage
from cvm.cli.options import ExecutorName, ExpectDigest, Json, Model, OutOfRangeRule
from cvm.cli.output import counted, printable, progress, say, show

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.mapping import Mapped
    from cvm.mapping.job import MapJob
    from cvm.program.verifier import VerifiedProgram

__all__ = ["COMMAND"]

_Dataset = Annotated[
    Path,
    typer.Argument(
        metavar="DATASET",
        help="A folder with a .npy or .npz file for each item, a .npz or .npy file whose first axis counts the items, "
        "or a Parquet file with a row for each item.",
    ),
]
_Output = Annotated[
    Path,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="OUT.npz or OUT.parquet, with the results in the order of the items; or a folder, for a file per item.",
    ),
]
_Codes = Annotated[
    bool,
    typer.Option("--codes", help="Take integers for inputs with a quantiser as codes, and write outputs as codes."),
]
_InputCodes = Annotated[
    bool, typer.Option("--input-codes", help="Take inputs as --codes does, but write outputs as real numbers.")
]
_Receipts = Annotated[
    bool,
    typer.Option(
        "--receipts", help="Write a receipt for each item, with its inputs as codes, into the folder OUT.receipts."
    ),
]
_Trace = Annotated[
    bool, typer.Option("--trace", help="Let receipts commit to every tensor of every run, not only to the outputs.")
]
_Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, metavar="N", help="How many processes; by default one per core.")
]
_Ray = Annotated[
    str | None, typer.Option("--ray", metavar="ADDRESS", help="Let a Ray cluster do the work; HOST:PORT or auto.")
]


def command(
    program: Model,
    dataset: _Dataset,
    output: _Output,
    receipts: _Receipts = False,
    trace: _Trace = False,
    codes: _Codes = False,
    input_codes: _InputCodes = False,
    out_of_range: OutOfRangeRule = "warn",
    executor: ExecutorName = None,
    jobs: _Jobs = None,
    ray: _Ray = None,
    expect_digest: ExpectDigest = None,
    as_json: Json = False,
) -> int:
    """Run one program on every item of a data set, on all cores of this machine or on a Ray cluster.

    The bytes of the result are the same, whoever computes it. Every item starts from the initial state. What is
    finished is kept in the folder OUT.parts until the end: after an interruption, the same command goes on from there.
    """
    from cvm.cli.models import open_program
    from cvm.mapping import map_dataset
    from cvm.mapping.files import open_dataset
    from cvm.workers.cluster import Cluster
    from cvm.workers.processes import Processes

    if trace and not receipts:
        raise Usage("--trace says what is in receipts: expected --receipts")
    verified = open_program(program, expect_digest=expect_digest)
    job = _job(verified, executor, codes, codes or input_codes, out_of_range, receipts, trace)
    items = open_dataset(dataset, verified.program.inputs)
    scheduler = Processes(jobs) if ray is None else Cluster(ray, jobs)
    with _counted(len(items.names), output) as advance:
        done = map_dataset(job, items, output, scheduler, advance)
    _warn(done)
    document = _document(verified, done, output, receipts)
    return show(document, lambda console: _render(console, document), as_json)


@contextmanager
def _counted(total: int, output: Path) -> Iterator[Callable[[int], None]]:
    """Show the progress; if the work is interrupted, print how much of it is done and how it goes on."""
    finished = 0
    try:
        with progress("running", total) as advance:

            def told(count: int) -> None:
                nonlocal finished
                finished = count
                advance(count)

            yield told
    except KeyboardInterrupt:
        kept = printable(f"{output}.parts")
        done = f"cvm: {finished} of {total} items are done and kept in {kept}"
        print(f"{done}: the same command goes on from there", file=sys.stderr)
        raise


def _job(
    verified: VerifiedProgram,
    executor: str | None,
    codes: bool,
    input_codes: bool,
    out_of_range: Any,
    receipts: bool,
    trace: bool,
) -> MapJob:
    from cvm.mapping.job import MapJob

    program = verified.program
    shapes = [item.value.shape for item in program.inputs] + [verified.shapes[item.value] for item in program.outputs]
    size = sum(8 * math.prod(shape) for shape in shapes)
    return MapJob(program.to_bytes(), program.digest, size, executor, codes, input_codes, out_of_range, receipts, trace)


def _warn(done: Mapped) -> None:
    if done.clamped:
        more = f"; and {len(done.clamped) - 1} more chunks" if len(done.clamped) > 1 else ""
        print(f"cvm: warning: {printable(done.clamped[0])}{more}", file=sys.stderr)


def _document(verified: VerifiedProgram, done: Mapped, output: Path, receipts: bool) -> dict[str, Any]:
    program = verified.program
    return {
        "digest": program.digest,
        "items": done.items,
        "resumed": done.resumed,
        "clamped": done.clamped,
        "outputs": [{"name": item.name, "shape": list(verified.shapes[item.value])} for item in program.outputs],
        "path": str(output),
        "receipts": str(output.with_name(f"{output.name}.receipts")) if receipts else None,
    }


def _render(console: Console, document: dict[str, Any]) -> None:
    resumed = f", {document['resumed']} of them before" if document["resumed"] else ""
    say(console, f"ran       {counted(document['items'], 'item')}{resumed}")
    say(console, f"digest    {document['digest']}")
    say(console, f"wrote     {document['path']}")
    if document["receipts"]:
        say(console, f"receipts  {document['receipts']}")


COMMAND = Command(
    command,
    (
        "cvm map model.cvm images.npz -o results.npz",
        "cvm map model.cvm images/ -o results/ --receipts",
        "cvm map model.cvm images.parquet -o results.parquet --ray 10.0.0.1:6379",
    ),
)
