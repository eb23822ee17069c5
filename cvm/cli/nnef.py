"""``cvm nnef``: check, print, upgrade and evaluate NNEF documents."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from cvm.cli.declaration import Command, Group
from cvm.cli.failures import Usage
from cvm.cli.options import BitOrder, Codes, Cycles, Inputs, Json, Variant
from cvm.cli.output import say, show, table, working, write_file
from cvm.errors import CvmError, Invalid, Location
from cvm.formats import mistaken

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.frontends.nnef import CheckReport, CheckReports, Dialect

__all__ = ["GROUP"]

_INVALID = 3
_DIALECTS = ("auto", "1.0.1", "khronos")
_EXPECTED = ("a model of NNEF", ("nnef", "archive", "tensor"))
"""What is given to these commands, and its formats."""
_COLUMNS = ("min", "max", "mean", "std")

DialectName = Annotated[
    str,
    typer.Option(
        "--dialect",
        metavar="auto|1.0.1|khronos",
        help="What is accepted: the specification, the additions of the Khronos tools, or whatever a document needs.",
    ),
]

Lower = Annotated[
    list[str],
    typer.Option("--lower", metavar="NAME", help="Expand this compound operation by its definition. May be repeated."),
]

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder, an archive or a document.")]


def _dialect(name: str) -> Dialect:
    if name not in _DIALECTS:
        raise Usage(f"expected --dialect {', '.join(_DIALECTS)}, found {name!r}")
    return cast("Dialect", name)


def check(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH..",
            help="Models (folders, archives, documents), tensor files (.dat) and quantisation files (.quant).",
        ),
    ],
    dialect: DialectName = "auto",
    bit_order: BitOrder = "lsb",
    variant: Variant = None,
    as_json: Json = False,
) -> int:
    """Say for each path whether it is valid and what it needs, or which rules it breaks.

    The exit code is 3 if one is not valid. A folder without any .dat file is taken as a bare document; in a folder with
    one, every variable needs its file.
    """
    from cvm.frontends import nnef

    found = nnef.check_paths(paths, dialect=_dialect(dialect), bit_order=bit_order, variant=variant)
    reports = nnef.CheckReports(tuple(_recognised(report) for report in found))
    code = 0 if reports.valid else _INVALID
    return show(reports.to_json(), lambda console: _verdicts(console, reports), as_json, code)


def _recognised(report: CheckReport) -> CheckReport:
    """The same report, which says of a file of another format what it is."""
    message = mistaken(report.path, *_EXPECTED)
    if report.valid or message is None:
        return report
    first = replace(report.errors[0], message=message, location=Location(report.path), expected=(), excerpt=None)
    return replace(report, line=None, column=None, message=message, errors=(first,))


def _require_nnef(path: Path) -> None:
    """Raise `Invalid` (``format.other``) for a file that is known to be of another format."""
    message = mistaken(path, *_EXPECTED)
    if message is not None:
        raise Invalid("format.other", message, Location(str(path)))


def _verdicts(console: Console, reports: CheckReports) -> None:
    for report in reports:
        if report.valid:
            say(console, f"valid    {report}")
        for error in report.errors:
            say(console, f"invalid  {error}")


def flatten(
    path: Model,
    dialect: DialectName = "auto",
    lower: Lower = [],  # noqa: B006  (Typer makes a list of its own from it)
    as_json: Json = False,
) -> int:
    """Print a document flat: one operation per line, fragments expanded, every argument concrete."""
    from cvm.frontends import nnef

    _require_nnef(path)
    text = nnef.flatten(path, dialect=_dialect(dialect), lower=lower)
    return show({"text": text}, lambda console: print(text, end="", file=console.file), as_json)


def upgrade(path: Model, as_json: Json = False) -> int:
    """Print the document of NNEF 1.0.1 that has the same meaning as a provisional one."""
    from cvm.frontends import nnef

    _require_nnef(path)
    text = nnef.upgrade(path)
    return show({"text": text}, lambda console: print(text, end="", file=console.file), as_json)


def run(
    path: Model,
    inputs: Inputs = [],  # noqa: B006  (Typer makes a list of its own from it)
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="OUT.npz", help="Where to write the results.")
    ] = None,
    pseudo_quantize: Annotated[
        bool, typer.Option("--pseudo-quantize", help="Round every tensor that carries a quantiser, in float64.")
    ] = False,
    capture: Annotated[
        str | None, typer.Option("--capture", metavar="all|NAME,..", help="Further tensors to write.")
    ] = None,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Show extremes, mean and deviation of every tensor instead.")
    ] = False,
    cycles: Cycles = False,
    codes: Codes = False,
    bit_order: BitOrder = "lsb",
    variant: Variant = None,
    as_json: Json = False,
) -> int:
    """Evaluate a model in float64: a reference for verification and calibration, not an executor."""
    from cvm import reference
    from cvm.arrays import npz_bytes
    from cvm.cli.feeds import graph_inputs, read_inputs
    from cvm.frontends import nnef

    _require_nnef(path)
    graph = nnef.load(path, bit_order=bit_order, variant=variant)
    feeds = read_inputs(inputs, graph_inputs(graph), bit_order, codes)
    wanted: Literal["all"] | list[str] | None = "all" if capture == "all" else capture.split(",") if capture else None
    with working("evaluating"), _in_document(path):
        evaluator = reference.Reference(graph, pseudo_quantize)
        if not statistics:
            results = (evaluator.run_cycles if cycles else evaluator.run)(feeds, capture=wanted)
        else:
            found = reference.statistics(evaluator, feeds, cycles)
    if statistics:
        rows = {name: {key: _number(getattr(item, key)) for key in _COLUMNS} for name, item in found.items()}
        return show({"statistics": rows}, lambda console: _statistics(console, rows), as_json)
    document: dict[str, Any] = {"outputs": {name: list(results[name].shape) for name in graph.outputs}}
    if output is not None:
        data = npz_bytes(results)
        write_file(output, data)
        document["file"] = {"path": str(output), "bytes": len(data)}
    return show(document, lambda console: _outputs(console, document), as_json)


@contextmanager
def _in_document(path: Path) -> Iterator[None]:
    """Name the document in errors of one of its lines."""
    try:
        yield
    except CvmError as error:
        if error.location.line is not None:
            error.at(file=str(path / "graph.nnef") if path.is_dir() else str(path))
        raise


def _number(value: float) -> float | str:
    """A number for a document; JSON has no infinities."""
    return value if math.isfinite(value) else str(value)


def _statistics(console: Console, rows: dict[str, dict[str, float | str]]) -> None:
    headings = ("tensor", *(f"{column}>" for column in _COLUMNS))
    table(console, headings, ((name, *(f"{float(item):.6g}" for item in row.values())) for name, row in rows.items()))


def _outputs(console: Console, document: dict[str, Any]) -> None:
    table(console, ("output", "shape"), document["outputs"].items())
    if "file" in document:
        say(console, f"wrote  {document['file']['path']} ({document['file']['bytes']} bytes)")


GROUP = Group(
    "Validate, print, upgrade and evaluate NNEF documents.",
    {
        "check": Command(
            check,
            (
                "cvm nnef check model/",
                "cvm nnef check *.nnef --dialect 1.0.1 --json",
            ),
        ),
        "flatten": Command(flatten, ("cvm nnef flatten model/graph.nnef --lower softmax",)),
        "upgrade": Command(upgrade, ("cvm nnef upgrade old/graph.nnef",)),
        "run": Command(
            run,
            (
                "cvm nnef run model/ -i photo.npy -o result.npz",
                "cvm nnef run model/ -i photo.npy --pseudo-quantize --statistics",
            ),
        ),
    },
)
