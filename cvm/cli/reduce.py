"""``cvm reduce``: the smallest program or model that still fails."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli.declaration import Command
from cvm.cli.failures import Usage
from cvm.cli.options import Codes, Cycles, Inputs, Json
from cvm.cli.output import counted, say, show, working, write_file

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.reduction import Comparison, Found, Subject
    from cvm.reduction.network import Network

__all__ = ["COMMAND"]

_Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A program file, or a quantised model of NNEF or ONNX that fails.")
]
_Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="OUT",
        help="Where the result goes, in the format of MODEL: OUT.cvm, a folder, or OUT.onnx. Beside it are written the "
        "inputs, OUT.npz, and a test, test_OUT.py.",
    ),
]
_Executors = Annotated[
    str | None,
    typer.Option(
        "--executors",
        metavar="NAME,..",
        help="Two executors that differ; by default numpy and the one that `cvm run` uses on this machine.",
    ),
]
_Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        "-e",
        metavar="ENGINE[:KEY=VALUE,..]",
        help="An engine that differs from the exact codes, as for `cvm compare`; for a model of ONNX.",
    ),
]
_Asked = Annotated[
    str | None,
    typer.Option(
        "--command",
        metavar="WORDS",
        help="A command that is given a model and a .npz file of its inputs, and fails: that ends with another status "
        "than 0, or crashes. Every smaller model must end it in the same way.",
    ),
]
_Random = Annotated[
    int | None,
    typer.Option("--random", metavar="N", min=1, max=10_000, help="Instead of data, draw N samples of codes."),
]
_Seed = Annotated[int, typer.Option("--seed", metavar="S", min=0, help="The seed of --random.")]
_Seconds = Annotated[
    float, typer.Option("--seconds", metavar="S", min=1, max=1_000_000, help="The longest time of the search.")
]
_Tries = Annotated[int, typer.Option("--tries", metavar="N", min=1, max=10_000_000, help="The most candidates to run.")]


def command(
    model: _Model,
    output: _Output,
    inputs: Inputs = [],  # noqa: B006  (Typer makes a list of its own from it)
    random: _Random = None,
    seed: _Seed = 0,
    executors: _Executors = None,
    engine: _Engine = None,
    asked: _Asked = None,
    seconds: _Seconds = 60.0,
    tries: _Tries = 2000,
    cycles: Cycles = False,
    codes: Codes = False,
    as_json: Json = False,
) -> int:
    """Find the smallest program or model that still fails, with the smallest data.

    What fails is a comparison of executors, an engine that differs from the exact codes, or a command. Operations are
    left out, with the data that was there as inputs in their place; then shapes, windows, constants and inputs become
    smaller and simpler. Every candidate is valid, and fails in the same way as MODEL. The candidates run in a process
    that may crash. The same call gives the same result, unless --seconds ends the search.
    """
    from cvm.reduction import Bound, opened, smallest

    how = _comparison(executors, engine, asked)
    if bool(inputs) == (random is not None):
        raise Usage("give inputs with -i, or --random N for drawn codes")
    with working("reading"):
        subject = opened(model)
        _require_new(output, subject)
        network = _with_data(subject, inputs, random, seed, cycles, codes)
    with working("reducing") as tell:
        found = smallest(subject, network, how, Bound(tries, seconds), lambda words: tell(f"reducing: {words}"))
    document = _written(subject, found, how, output)
    return show(document, lambda console: _render(console, document), as_json)


def _comparison(executors: str | None, engine: str | None, asked: str | None) -> Comparison:
    """What fails. Raises `Usage` unless it is one thing."""
    from cvm.comparison import setting
    from cvm.executors import choose_executor
    from cvm.reduction import Comparison

    if sum(item is not None for item in (executors, engine, asked)) > 1:
        raise Usage("say what fails by one of --executors, --engine and --command")
    if engine is not None:
        return Comparison(engine=setting(engine))
    if asked is not None:
        try:
            words = tuple(shlex.split(asked))
        except ValueError as error:
            raise Usage(f"--command: the words cannot be told apart: {error}") from None
        if not words:
            raise Usage("--command needs the words of a command")
        return Comparison(command=words)
    names = tuple(executors.split(",")) if executors is not None else ("numpy", choose_executor()[0])
    if len(set(names)) < 2:
        raise Usage(f"--executors takes two or more names, such as numpy,native; found {','.join(names)!r}")
    return Comparison(executors=names)


def _require_new(output: Path, subject: Subject) -> None:
    """Raise `Usage` unless the result can be written in its format, to a place that is free."""
    suffix = subject.form.suffix
    if suffix and output.suffix != suffix:
        raise Usage(f"the result is of the format of MODEL: give -o a name that ends in {suffix}")
    if not suffix and output.exists():
        raise Usage(f"the result is a new folder, and {output} exists")


def _with_data(
    subject: Subject, inputs: list[str], random: int | None, seed: int, cycles: bool, codes: bool
) -> Network:
    from cvm.cli.feeds import read_inputs

    if random is not None:
        return subject.drawn(random, seed)
    arrays = read_inputs(inputs, subject.program.inputs, "lsb", codes)
    return subject.with_data(arrays, codes, cycles)


def _written(subject: Subject, found: Found, how: Comparison, output: Path) -> dict[str, Any]:
    """Write the three files; returns the document of the result."""
    from cvm.arrays import npz_bytes
    from cvm.reduction import stacked, test_text

    network = found.reduced.network
    stem = output.name.removesuffix(output.suffix)
    data, test = output.with_name(f"{stem}.npz"), output.with_name(f"test_{stem}.py")
    text = test_text(subject, network, how, output)
    subject.form.save(network, output)
    write_file(data, npz_bytes(stacked(network)))
    write_file(test, text.encode())
    before, after = found.reduced.before, found.reduced.after
    return {
        "outcome": found.outcome,
        "before": {"operations": before[0], "elements": before[2]},
        "after": {"operations": after[0], "elements": after[2]},
        "operations": [node.op for node in network.nodes if subject.form.counts(node)],
        "tries": found.reduced.tries,
        "complete": found.reduced.complete,
        "files": {"model": str(output), "inputs": str(data), "test": str(test)},
        "test": text,
    }


def _render(console: Console, found: dict[str, Any]) -> None:
    before, after, files = found["before"], found["after"], found["files"]
    say(console, f"fails: {found['outcome']}")
    say(
        console,
        f"from {counted(before['operations'], 'operation')} and {counted(before['elements'], 'element')} "
        f"to {counted(after['operations'], 'operation')} and {counted(after['elements'], 'element')} "
        f"in {counted(found['tries'], 'try', 'tries')}: {', '.join(found['operations'])}",
    )
    if not found["complete"]:
        say(console, "the search ended at its bound: more --seconds or --tries may find a smaller one")
    say(console, f"written: {files['model']}, {files['inputs']}, {files['test']}")
    say(console)
    say(console, found["test"])


COMMAND = Command(
    command,
    (
        'cvm reduce model.cvm -o small.cvm --random 4 --command "python check.py"',
        "cvm reduce fails.cvm -o small.cvm -i photo.npy --executors numpy,native",
        "cvm reduce model.onnx -o small.onnx --random 4 --engine onnxruntime:optimization=none --json",
    ),
)
