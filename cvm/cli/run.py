"""``cvm run``: run a program on inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli.declaration import Command
from cvm.cli.failures import Usage
from cvm.cli.options import (
    BitOrder,
    Cycles,
    ExecutorName,
    ExpectDigest,
    Inputs,
    Json,
    Model,
    NoOptimize,
    OutOfRangeRule,
    Threads,
)
from cvm.cli.output import say, show, table, working, write_file
from cvm.writing import unwritable

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.audit import Recorder, Trace
    from cvm.session import Result, Session

__all__ = ["COMMAND", "tensors_document"]

_SHOWN = 4096
"""The document holds all codes of an output with at most this many elements."""
_PRINTED = 12


_Output = Annotated[Path | None, typer.Option("-o", "--output", metavar="OUT.npz", help="The file for the results.")]
_Codes = Annotated[
    bool,
    typer.Option(
        "--codes",
        help="Take integers for inputs with a quantiser as codes (else they are refused), and write outputs "
        "as int32 codes, not as the real numbers that they stand for.",
    ),
]
_InputCodes = Annotated[
    bool,
    typer.Option("--input-codes", help="Take inputs as --codes does, but write outputs as real numbers."),
]
_Capture = Annotated[
    str | None, typer.Option("--capture", metavar="all|NAME,..", help="Further tensors to write, as codes.")
]
_Receipt = Annotated[
    Path | None,
    typer.Option("--receipt", metavar="FILE", help="Write a receipt of all runs; see `cvm receipt verify`."),
]
_Trace = Annotated[
    bool,
    typer.Option("--trace", help="Let the receipt commit to every tensor of every run, not only to the outputs."),
]
_TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--trace-file",
        metavar="FILE",
        help="Write the roots of all tensors. For several runs, NAME.trace becomes NAME.0.trace, NAME.1.trace, ..",
    ),
]
_Time = Annotated[
    str,
    typer.Option("--time", metavar="TEXT", help="A time to note in the receipt. Nobody vouches for it."),
]


def command(
    program: Model,
    inputs: Inputs = [],  # noqa: B006  (Typer makes a list of its own from it)
    output: _Output = None,
    executor: ExecutorName = None,
    threads: Threads = None,
    codes: _Codes = False,
    input_codes: _InputCodes = False,
    out_of_range: OutOfRangeRule = "warn",
    capture: _Capture = None,
    cycles: Cycles = False,
    expect_digest: ExpectDigest = None,
    receipt: _Receipt = None,
    trace: _Trace = False,
    trace_file: _TraceFile = None,
    time: _Time = "",
    bit_order: BitOrder = "lsb",
    no_optimize: NoOptimize = False,
    as_json: Json = False,
) -> int:
    """Run a program, or a model compiled on the way.

    The results are written by the names of the outputs, as arrays of float64, or of int32 for outputs without a
    quantiser. If the inputs have a leading batch axis, or N in place of a leading 1, so have the outputs.
    """
    from cvm.cli.feeds import read_inputs
    from cvm.session.aside import finish

    if receipt is None and (trace or time):
        raise Usage("--trace and --time say what is in a receipt: expected --receipt FILE")
    captured = "all" if capture == "all" else None if capture is None else capture.split(",")
    with working("running") as tell:
        session = _session(program, executor, threads, no_optimize, bit_order, expect_digest)
        tell("running")
        asked = receipt is not None or trace_file is not None
        recorder = _recorder(session, trace, trace_file is not None) if asked else None
        arrays = read_inputs(inputs, session.declared, bit_order, codes or input_codes)
        result = session.run(arrays, captured, cycles, recorder, codes=True, out_of_range=out_of_range)
    document = _document(session, result)
    if output is not None:
        document["file"] = _write_arrays(output, result, codes)
    if trace_file is not None and recorder is not None:
        document["traces"] = _write_traces(trace_file, recorder.traces)
    if receipt is not None and recorder is not None:
        document["receipt"] = _write_receipt(receipt, recorder, session.executor, time)
    code = show(document, lambda console: _render(console, document), as_json)
    with working("making machine code for the next run"):
        finish()
    return code


def _session(
    path: Path, executor: str | None, threads: int | None, no_optimize: bool, bit_order: BitOrder, digest: str | None
) -> Session:
    """A session of a program file, which may start from the cache, or of a model that is compiled."""
    from cvm.cli.models import is_program, open_program
    from cvm.session import Session

    if digest is None and not no_optimize and path.is_file() and is_program(path):
        with contextlib.suppress(OSError), working("reading"):  # `open_program` says what is wrong
            return Session(path, executor, threads)
    return Session(open_program(path, no_optimize, bit_order, digest), executor, threads)


def _recorder(session: Session, trace: bool, keep: bool) -> Recorder:
    from cvm.audit import Recorder

    return Recorder(session.verified, trace, keep)


def _document(session: Session, result: Result) -> dict[str, Any]:
    """The program that was run, and its results."""
    return {
        "digest": session.digest,
        "executor": session.executor,
        "gas": session.gas,
        "outputs": tensors_document(session, result),
        "captured": sorted(set(result) - {item.name for item in session.outputs}),
    }


def _write_arrays(path: Path, result: Result, codes: bool) -> dict[str, Any]:
    """Write all tensors of the result; returns the path and the number of bytes."""
    from cvm.arrays import npz_bytes

    data = npz_bytes({name: result[name] if codes else _real(result, name) for name in result})
    write_file(path, data)
    return {"path": str(path), "bytes": len(data)}


def _write_receipt(path: Path, recorder: Recorder, executor: str, time: str) -> dict[str, Any]:
    """Write the receipt of all runs; returns its path, its id and what it covers."""
    from cvm.audit import encode_receipt, host_facts

    made = recorder.receipt(host_facts(executor, time))
    write_file(path, encode_receipt(made))
    return {"path": str(path), "id": made.id, "runs": len(made.claim.runs), "traced": made.traced}


def _write_traces(path: Path, traces: Sequence[Trace]) -> list[dict[str, Any]]:
    """Write the trace of each run, to ``path`` itself if there is one run."""
    from cvm.audit import write_trace

    written = []
    for number, trace in enumerate(traces):
        with unwritable(path):
            target = path if len(traces) == 1 else path.with_name(f"{path.stem}.{number}{path.suffix}")
            write_trace(trace, target)
        written.append({"path": str(target), "root": trace.root.hex()})
    return written


def tensors_document(session: Session, result: Result) -> list[dict[str, Any]]:
    """The outputs of a run with their roots; two roots are equal exactly when all codes are."""
    from cvm.program.commitments import tensor_root

    return [
        {
            "name": item.name,
            "shape": list(result[item.name].shape),
            "root": tensor_root(result[item.name]).hex(),
            "codes": result[item.name].tolist() if result[item.name].size <= _SHOWN else None,
        }
        for item in session.outputs
    ]


def _real(result: Result, name: str) -> Any:
    return result.real(name) if result.has_real(name) else result[name]


def _render(console: Console, document: dict[str, Any]) -> None:
    rows = ((item["name"], item["shape"], _codes(item["codes"]), item["root"]) for item in document["outputs"])
    table(console, ("output", "shape", "codes", "root"), rows)
    say(console)
    say(console, f"executor  {document['executor']}")
    say(console, f"gas       {document['gas']} per run")
    say(console, f"digest    {document['digest']}")
    if "file" in document:
        say(console, f"wrote     {document['file']['path']} ({document['file']['bytes']} bytes)")
    for item in document.get("traces", ()):
        say(console, f"trace     {item['root']}")
        say(console, f"wrote     {item['path']}")
    if "receipt" in document:
        say(console, f"receipt   {document['receipt']['id']}")
        say(console, f"wrote     {document['receipt']['path']}")


def _codes(nested: Any) -> str:
    """The first codes of an output, flat."""
    if nested is None:
        return "..."
    flat = [nested]
    while isinstance(flat[0], list):
        flat = [item for row in flat for item in row]
    return " ".join(map(str, flat[:_PRINTED])) + (" ..." if len(flat) > _PRINTED else "")


COMMAND = Command(
    command,
    (
        "cvm run model.cvm -i photo.npy -o result.npz",
        "cvm run pair.cvm -i left=a.npy -i right=b.npz:right -o result.npz --codes --capture all",
        "cvm run model.cvm -i photo.npy -o result.npz --receipt result.receipt --trace",
        "cvm run model.cvm -i photo.npy --receipt result.receipt --trace-file result.trace",
    ),
)
