"""``cvm bench``: measure how fast a program runs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli.declaration import Command
from cvm.cli.failures import Usage
from cvm.cli.options import Json, Model
from cvm.cli.output import progress, say, show, table

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.bench.contest import Contestant, Score

__all__ = ["COMMAND", "score_document"]


_Executors = Annotated[
    str | None, typer.Option("--executor", metavar="NAME,..", help="The executors to time; see `cvm doctor`.")
]
_Threads = Annotated[str, typer.Option("--threads", metavar="N,..", help="Numbers of threads.")]
_Batch = Annotated[str, typer.Option("--batch", metavar="N,..", help="Numbers of samples in one call.")]
_Compare = Annotated[
    str | None,
    typer.Option("--compare", metavar="NAME,..", help="Other engines: onnxruntime, openvino, litert (extra bench)."),
]
_Model = Annotated[
    list[Path],
    typer.Option("--model", metavar="FILE", help="The same network for these: .onnx, .tflite. May be repeated."),
]
_Seconds = Annotated[float, typer.Option("--seconds", help="The least duration of a measurement.")]
_Rounds = Annotated[int, typer.Option("--rounds", min=1, help="Measurements of each engine, by turns.")]


def command(
    program: Model,
    executors: _Executors = None,
    threads: _Threads = "1",
    batch: _Batch = "1",
    compare: _Compare = None,
    model: _Model = [],  # noqa: B006  (Typer makes a list of its own from it)
    seconds: _Seconds = 0.5,
    rounds: _Rounds = 3,
    as_json: Json = False,
) -> int:
    """Time a program, or a model compiled on the way, on random valid inputs.

    Every engine has a process of its own, and they take turns. Executors must give the same bytes before they are
    timed; other engines are assumed to run the same network. A call takes arrays and gives arrays. A "bound" call uses
    memory that was bound before, without the time that Python adds. The first result is timed from the start of the
    process, once with an empty cache of compiled code and once with a filled one.
    """
    from cvm.audit.costs import macs
    from cvm.bench.contest import Contestant, compete, require
    from cvm.cli.models import open_program
    from cvm.executors import choose_executor

    if not 0 <= seconds <= _LONGEST:
        raise Usage(f"--seconds takes a number from 0 to {_LONGEST}, found {seconds}")
    ours = _names(executors) if executors is not None else [choose_executor()[0]]
    peers = _names(compare) if compare is not None else []
    _check_kinds(ours, peers)
    require([*ours, *peers])
    files = _models(peers, model)
    verified = open_program(program)
    counts, sizes = _numbers("--threads", threads), _numbers("--batch", batch)
    with tempfile.TemporaryDirectory(prefix="cvm-bench-") as folder:
        compiled = Path(folder) / "program.cvm"
        verified.program.save(compiled)
        engines = [(name, compiled) for name in ours] + files
        contestants = [Contestant(*engine, count, size) for size in sizes for count in counts for engine in engines]
        with progress("timing", len(contestants) * (rounds + 1)) as advance:
            scores = compete(contestants, rounds, seconds, advance)
    work = sum(macs(verified))
    document = {
        "program": str(program),
        "digest": verified.program.digest,
        "macs": work,
        "rounds": rounds,
        "seconds": seconds,
        "results": [score_document(score, work) for score in scores],
    }
    return show(document, lambda console: _render(console, document), as_json)


def _names(words: str) -> list[str]:
    names = words.split(",")
    if len(set(names)) != len(names):
        raise Usage(f"an engine is named twice in {words!r}")
    return names


def _check_kinds(ours: Sequence[str], peers: Sequence[str]) -> None:
    """Require that --executor names executors of cvm, and --compare other engines. Raises `Usage`."""
    from cvm.bench.engines import ENGINES

    for option, names, foreign in (("--executor", ours, False), ("--compare", peers, True)):
        known = [name for name, engine in ENGINES.items() if engine.foreign == foreign]
        for name in names:
            if name not in known:
                raise Usage(f"{option} takes {', '.join(known)}; found {name!r}")


def _numbers(option: str, words: str) -> list[int]:
    numbers = [int(word) if word.isascii() and word.isdigit() else 0 for word in words.split(",")]
    if not all(0 < number <= _MOST for number in numbers):
        raise Usage(f"{option} takes numbers from 1 to {_MOST}, as in 1,2; found {words!r}")
    return numbers


_MOST = 4096
_LONGEST = 3600


def _models(peers: Sequence[str], files: Sequence[Path]) -> list[tuple[str, Path]]:
    """The files of models, each with the engine that reads it. Raises `Usage`."""
    from cvm.bench.engines import ENGINES

    if files and not peers:
        raise Usage("--model names files for the engines of --compare, which is missing")
    found = []
    for name in peers:
        readable = [file for file in files if file.suffix in ENGINES[name].suffixes]
        if not readable:
            raise Usage(f"{name} needs --model FILE, with a file that ends in {' or '.join(ENGINES[name].suffixes)}")
        for file in readable:
            if not file.is_file():
                raise Usage(f"there is no file {file}")
        found += [(name, file.resolve()) for file in readable]
    return found


def score_document(score: Score, macs: int) -> dict[str, Any]:
    """The measurements of a contestant: times in nanoseconds per call or in seconds, memory in bytes."""
    contestant: Contestant = score.contestant
    known: dict[str, Any] = {
        "engine": contestant.engine,
        "model": contestant.model.name,
        "threads": contestant.threads,
        "batch": contestant.batch,
        "failure": score.failure,
    }
    if score.run is None:
        return known
    work = macs * contestant.batch
    return known | {
        "run": asdict(score.run) | {"gmacs": work / score.run.median},
        "bound": None if score.bound is None else asdict(score.bound) | {"gmacs": work / score.bound.median},
        "cold": None if score.cold is None else asdict(score.cold),
        "cached": None if score.cached is None else asdict(score.cached),
        "memory": dict(score.memory),
        "facts": dict(score.facts),
    }


_HEADINGS = (
    "engine", "model", "threads>", "batch>", "ms>", "middle half>", "least>", "bound>", "GMAC/s>", "ratio>",
    "first result>", "cached>", "MiB>",
)  # fmt: skip


def _render(console: Console, document: dict[str, Any]) -> None:
    results = document["results"]
    measured = [item for item in results if item["failure"] is None]
    table(console, _HEADINGS, (_row(item, measured) for item in measured))
    for item in results:
        if item["failure"] is not None:
            what = f"{item['engine']} on {item['model']}, threads {item['threads']}, batch {item['batch']}"
            say(console, f"{what}: {item['failure']}")
    say(console)
    say(console, f"{document['macs'] / 1e9:.4g} GMAC per sample; ratio: to the first row of that batch and threads")


def _row(item: dict[str, Any], measured: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    run, bound = item["run"], item["bound"]
    first = next(one for one in measured if all(one[key] == item[key] for key in ("threads", "batch")))
    return (
        item["engine"],
        item["model"],
        str(item["threads"]),
        str(item["batch"]),
        _ms(run["median"]),
        f"{_ms(run['quartile'])}..{_ms(run['upper_quartile'])}",
        _ms(run["least"]),
        "" if bound is None else _ms(bound["median"]),
        f"{run['gmacs']:.4g}",
        f"{first['run']['median'] / run['median']:.2f}",
        f"{item['cold']['first_result']:.2f} s",
        "" if item["cached"] is None else f"{item['cached']['first_result']:.2f} s",
        f"{item['memory']['peak'] / 2**20:.1f}",
    )


def _ms(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:.4g}"


COMMAND = Command(
    command,
    (
        "cvm bench model.cvm --executor native,numpy --threads 1,2",
        "cvm bench model.cvm --compare onnxruntime,openvino --model model.onnx --batch 1,8",
    ),
)
