"""``cvm compare``: a model in other engines, beside its exact meaning."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli.declaration import Command
from cvm.cli.failures import Usage
from cvm.cli.options import Codes, Inputs, Json
from cvm.cli.output import say, show, table, working, write_file
from cvm.errors import Unsupported

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.comparison import Compared, Model, Samples

__all__ = [
    "COMMAND",
    "EngineThreads",
    "Engines",
    "InstructionSets",
    "Page",
    "QuantizedModel",
    "RandomSamples",
    "Seed",
    "against",
    "described",
    "require_page",
    "say_disagreements",
    "say_file",
    "shortened",
    "written",
]

QuantizedModel = Annotated[Path, typer.Argument(metavar="MODEL", help="A quantised model of ONNX or TFLite.")]
Engines = Annotated[
    list[str],
    typer.Option(
        "--engine",
        "-e",
        metavar="ENGINE[:KEY=VALUE,..]",
        help="onnxruntime, openvino, litert, tflite-reference, or command:WORDS. Keys: threads, optimization (none, "
        "basic, extended, all), isa (as --isa), property.NAME for the engine's own properties, and names of "
        "environment variables. May be repeated.",
    ),
]
RandomSamples = Annotated[
    int | None,
    typer.Option("--random", metavar="N", min=1, max=100_000, help="Instead of data, draw N samples of codes."),
]
EngineThreads = Annotated[
    str, typer.Option("--threads", metavar="N,..", help="Run every engine with each of these numbers of threads.")
]
InstructionSets = Annotated[
    str,
    typer.Option(
        "--isa",
        metavar="NAME,..",
        help="Run every engine on each of these instruction sets: default, avx2, avx512, avx512_vnni, avx512_bf16. "
        "OpenVINO is told; for the others qemu-x86_64 emulates a processor with avx2.",
    ),
]
Page = Annotated[Path | None, typer.Option("-o", "--output", metavar="OUT.html", help="Write one offline page.")]
Seed = Annotated[int, typer.Option("--seed", metavar="S", min=0, help="The seed of --random.")]
_Labels = Annotated[
    str | None,
    typer.Option("--labels", metavar="FILE[:MEMBER]", help="The class of each sample: integers, .npy or .npz."),
]


def command(
    model: QuantizedModel,
    engine: Engines = [],  # noqa: B006  (Typer makes a list of its own from it)
    inputs: Inputs = [],  # noqa: B006
    random: RandomSamples = None,
    seed: Seed = 0,
    labels: _Labels = None,
    threads: EngineThreads = "",
    isa: InstructionSets = "",
    codes: Codes = False,
    output: Page = None,
    as_json: Json = False,
) -> int:
    """Compare every tensor that an engine shows with the exact codes of the model.

    The engine runs the same file. A difference is an operator's own if its result is not what follows exactly from the
    engine's own tensors before it; the others are inherited. Exit code 1 if a code differs. Engines run in processes of
    their own; the extra `engines` installs them. A command is given the model, a .npz file of inputs, samples along a
    further first axis, and the name of the .npz file that it shall write, with a tensor for each name that it shows.
    """
    require_page(output)
    opened, runs, _ = against(model, engine, inputs, random, seed, codes, (threads, isa))
    found = written(described(opened, runs, None, labels), output)
    return show(found, lambda console: _render(console, found), as_json, 0 if found["exact"] else 1)


def against(
    path: Path,
    engines: list[str],
    inputs: list[str],
    random: int | None,
    seed: int,
    codes: bool,
    sweep: tuple[str, str],
) -> tuple[Model, list[Compared], Samples]:
    """The model, its comparison with each engine, and the samples. Raises `Usage`.

    ``sweep`` has the numbers of threads and the instruction sets, separated by commas.
    """
    from cvm.cli.feeds import read_inputs
    from cvm.comparison import compared, drawn, opened, samples, setting, shown, variants

    if not engines:
        raise Usage(
            "say which engine runs the model: --engine onnxruntime, openvino, litert, tflite-reference, command:.."
        )
    if bool(inputs) == (random is not None):
        raise Usage("give inputs with -i, or --random N for drawn codes")
    isas = [word for word in sweep[1].split(",") if word]
    settings = [each for text in engines for each in variants(setting(text), _numbers(sweep[0]), isas)]
    with working("compiling"):
        model = opened(path)
        if random is not None:
            given = drawn(model, random, seed)
        else:
            given = samples(model, read_inputs(inputs, model.whole.program.inputs, "lsb", codes), codes)
    runs = []
    for each in settings:
        with working(f"running {each.label}"):
            found = shown(model, each, given.inputs)
        with working("comparing"):
            runs.append(compared(model, found, given.feeds))
    return model, runs, given


def _numbers(text: str) -> list[int]:
    words = [word for word in text.split(",") if word]
    if not all(word.isdigit() and 1 <= int(word) <= 1024 for word in words):
        raise Usage(f"--threads takes numbers from 1 to 1024, separated by commas, found {text!r}")
    return [int(word) for word in words]


def require_page(output: Path | None) -> None:
    """Refuse before anything runs. Raises `Unsupported` if the page's package is not installed."""
    if output is not None and find_spec("jinja2") is None:
        message = "the page needs a package that is not installed, jinja2: pip install 'cvm[report]'"
        raise Unsupported("report.extra", f"{message}; without -o the comparison needs none")


def written(found: dict[str, Any], output: Path | None) -> dict[str, Any]:
    """The document; with ``output`` it is also written as a page, and says so."""
    if output is None:
        return found
    from cvm.report.engines import page

    data = page(found).encode()
    write_file(output, data)
    return {**found, "file": {"path": str(output), "bytes": len(data)}}


def described(
    model: Model, runs: list[Compared], explanations: Any, labels: str | None, searches: Any = None
) -> dict[str, Any]:
    """The document of comparisons, with explanations if there are some."""
    from cvm.cli.feeds import read_array
    from cvm.comparison.documents import document

    classes = None
    if labels is not None:
        classes = read_array(labels).reshape(-1)
        if classes.size != runs[0].samples:
            raise Usage(f"--labels has {classes.size} classes for {runs[0].samples} samples")
    return document(model, runs, explanations, classes, searches)


def _render(console: Console, found: dict[str, Any]) -> None:
    for engine in found["engines"]:
        differing = [item for item in engine["tensors"] if item["own"]["differ"] or item["total"]["differ"]]
        say(console, f"{engine['setting']}  {engine['package']}")
        if differing:
            headings = ("tensor", "operator", "own>", "by at most>", "above>", "channels>", "inherited and own>", "of>")
            table(console, headings, [_row(item) for item in differing])
        _render_engine(console, engine, found)
        say(console)
    if found.get("between"):
        say(console, "codes that are not the same in all these engines:")
        table(console, ("tensor", "codes>"), [(shortened(name), count) for name, count in found["between"].items()])
    say_disagreements(console, found)
    say(console, "every code is exact" if found["exact"] else "not exact")
    say_file(console, found)


def say_disagreements(console: Console, found: dict[str, Any]) -> None:
    """Name the engines whose settings do not give the same codes."""
    for item in found["disagreements"]:
        codes, outputs = sum(item["tensors"].values()), sum(item["outputs"].values())
        first = next(iter(item["tensors"]), None)
        where = f" in {len(item['tensors'])} tensors, the first is {shortened(first)!r}" if first is not None else ""
        say(console, f"{item['engine']} disagrees with itself: {codes} codes{where}; {outputs} items of its outputs")
        for group in item["groups"]:
            say(console, f"  the same: {', '.join(group)}")


def say_file(console: Console, found: dict[str, Any]) -> None:
    """Say which page was written."""
    if "file" in found:
        say(console, f"wrote {found['file']['path']} ({found['file']['bytes']} bytes)")


def _row(item: dict[str, Any]) -> tuple[object, ...]:
    own, total = item["own"], item["total"]
    operators = ", ".join(item["operators"][:2]) + (", .." if len(item["operators"]) > 2 else "")
    mine = (own["differ"], own["farthest"], own["above"], own["channels"]) if own["differ"] else ("", "", "", "")
    return (shortened(item["tensor"]), operators, *mine, total["differ"], total["of"])


def shortened(name: str) -> str:
    """A name that fits into a table."""
    return name if len(name) <= 40 else f"..{name[-38:]}"


def _render_engine(console: Console, engine: dict[str, Any], found: dict[str, Any]) -> None:
    shown = len(engine["tensors"])
    say(
        console,
        f"{engine['own']} codes of {engine['codes']} in {shown} tensors are its operators' own differences, "
        f"{engine['total']} with what they inherit; {found['samples']} samples",
    )
    if engine["first"] is not None:
        say(console, f"first: {engine['first']}")
    classes = engine["classes"]
    words = f"{classes['changed']} of {found['samples']} classes changed"
    if "right" in classes:
        words += f"; {classes['right']} right, {classes['right_exactly']} with the exact codes"
    say(console, words)
    if engine["changed_by_showing"]:
        counts = ", ".join(f"{count} of {name!r}" for name, count in engine["changed_by_showing"].items())
        say(console, f"showing tensors changes what the engine computes: {counts}")
    if engine["hidden"]:
        name, reason = next(iter(engine["hidden"].items()))
        say(console, f"{len(engine['hidden'])} tensors are not shown, such as {shortened(name)!r}: {reason}")


COMMAND = Command(
    command,
    (
        "cvm compare model.onnx --engine onnxruntime --random 4",
        "cvm compare model.tflite --engine litert --engine openvino:threads=2 --random 4 --json",
        "cvm compare model.tflite --engine openvino --threads 1,2 --isa default,avx512 --random 4 -o page.html",
        'cvm compare model.onnx --engine "command:python my_engine.py" --random 1',
    ),
)
