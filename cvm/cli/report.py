"""``cvm report``: measure how far a program is from its float model, tensor by tensor."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cvm.cli.declaration import Command
from cvm.cli.failures import Usage
from cvm.cli.options import (
    BitOrder,
    Codes,
    Cycles,
    ExecutorName,
    InputRange,
    Inputs,
    InputShape,
    Json,
    Model,
    States,
    Threads,
    input_ranges,
    input_shapes,
    input_states,
)
from cvm.cli.output import meaning, progress, say, show, table, working, write_file
from cvm.errors import CvmError, Unsupported
from cvm.formats import model_format
from cvm.records import dataclass

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.graph import QuantizedGraph
    from cvm.program.verifier import VerifiedProgram
    from cvm.report import Comparison

__all__ = ["COMMAND"]


_Model = Annotated[
    Path | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="The model of NNEF or ONNX that PROGRAM was compiled from, unless PROGRAM is that model.",
    ),
]
_Labels = Annotated[
    str | None,
    typer.Option("--labels", metavar="FILE[:MEMBER]", help="The class of each sample: integers, .npy or .npz."),
]
_Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="OUT.html", help="The file for the report as a page.")
]
_Quant = Annotated[
    Path | None,
    typer.Option(
        "--quant",
        metavar="FILE",
        help="The quantisation information used for the program, if not MODEL's graph.quant.",
    ),
]
_Scores = Annotated[
    str | None,
    typer.Option(
        "--scores",
        metavar="NAME",
        help="The output that holds the scores of classes, if there are several outputs.",
    ),
]


def command(
    program: Model,
    model: _Model = None,
    inputs: Inputs = [],  # noqa: B006  (Typer makes a list of its own from it)
    labels: _Labels = None,
    output: _Output = None,
    quant: _Quant = None,
    scores: _Scores = None,
    executor: ExecutorName = None,
    threads: Threads = None,
    cycles: Cycles = False,
    codes: Codes = False,
    bit_order: BitOrder = "lsb",
    input_shape: InputShape = [],  # noqa: B006
    input_range: InputRange = [],  # noqa: B006
    state: States = [],  # noqa: B006
    as_json: Json = False,
) -> int:
    """Compare a program with the float model that it was compiled from, tensor by tensor.

    The float model is evaluated in float64 without any quantisation, on the same inputs. A model of ONNX is quantised
    already: its float model is the same model without the rounding. It still clips to the range of every
    QuantizeLinear, since tools leave out a Relu if this range has the same effect. For every tensor, the report gives
    the signal-to-quantisation-noise ratio (worst first), saturation, the used part of the proven range, headroom and
    histograms. It also says how often both give a sample the same class. The page is one HTML file that loads nothing;
    it needs the extra `report`.
    """
    from cvm.report import document

    if output is not None:
        _require_page()
    wishes = _Wishes(quant, bit_order, input_shapes(input_shape), input_ranges(input_range), input_states(state))
    verified, graph, itself = _opened(program, model, wishes)
    comparison = _compared(
        verified,
        graph,
        itself,
        clip=model_format(model or program) != "nnef",
        inputs=inputs,
        labels=labels,
        scores=scores,
        executor=executor,
        threads=threads,
        cycles=cycles or bool(state),
        codes=codes,
        bit_order=bit_order,
    )
    found = document(comparison) | ({} if output is None else {"file": _written_page(comparison, output)})
    return show(found, lambda console: _render(console, found), as_json)


def _written_page(comparison: Comparison, output: Path) -> dict[str, Any]:
    """Write the report as a page; returns its path and its bytes."""
    from cvm.report.page import page

    with working("drawing"):
        data = page(comparison).encode()
    write_file(output, data)
    return {"path": str(output), "bytes": len(data)}


def _require_page() -> None:
    """Refuse before measuring. Raises `Unsupported` if the packages of the extra are not installed."""
    try:
        import cvm.report.page  # noqa: F401
    except ImportError as error:
        if (error.name or "cvm").split(".")[0] == "cvm":
            raise
        message = f"the page needs a package that is not installed, {error.name}: pip install 'cvm[report]'"
        raise Unsupported("report.extra", f"{message}; without -o the report needs none") from None


@dataclass(frozen=True, slots=True)
class _Wishes:
    """The options that change how the model is compiled."""

    quant: Path | None
    bit_order: Literal["lsb", "msb"]
    shapes: dict[str, tuple[int, ...]]
    ranges: dict[str, tuple[int, int]]
    states: dict[str, str]

    @property
    def plain(self) -> bool:
        """Whether no option changes how the model is compiled."""
        return self.quant is None and not self.shapes and not self.ranges and not self.states


def _opened(program: Path, model: Path | None, wishes: _Wishes) -> tuple[VerifiedProgram, QuantizedGraph, bool]:
    """The program, the graph of its model, and whether the program has just been compiled from that graph."""
    import cvm
    from cvm.cli.models import is_program, open_program
    from cvm.program.verifier import verify

    stored = is_program(program)
    if model is None and stored:
        raise Usage("say which model the program was compiled from: --model MODEL")
    with working("reading"):
        graph = _graph(model or program, wishes)
        if stored or wishes.plain:
            verified = open_program(program, bit_order=wishes.bit_order)
        else:
            verified = verify(
                cvm.compile(
                    program,
                    wishes.quant,
                    bit_order=wishes.bit_order,
                    input_shapes=wishes.shapes,
                    input_ranges=wishes.ranges,
                    states=wishes.states,
                )
            )
    return verified, graph, not stored and model in (None, program)


def _graph(model: Path, wishes: _Wishes) -> QuantizedGraph:
    from cvm.cli.models import open_graph

    try:
        return open_graph(model, wishes.quant, wishes.bit_order, wishes.shapes, wishes.ranges, wishes.states)
    except CvmError as error:
        if error.code in ("onnx.float", "tflite.float"):
            command = f"cvm quantize {shlex.quote(str(model))} -i DATA -o quantised.onnx"
            reason = error.message.partition("; let `cvm quantize ")[0]  # that command writes no model for a report
            error.message = f"{reason}; a report needs a model that has its quantisers, and `{command}` writes one"
        raise


def _compared(
    verified: VerifiedProgram,
    graph: QuantizedGraph,
    itself: bool,
    *,
    clip: bool,
    inputs: Sequence[str],
    labels: str | None,
    scores: str | None,
    executor: str | None,
    threads: int | None,
    cycles: bool,
    codes: bool,
    bit_order: Literal["lsb", "msb"],
) -> Comparison:
    from cvm.cli.feeds import read_array, read_inputs
    from cvm.executors import choose_executor, create
    from cvm.report import check_source, compare

    with working("checking the model"):
        source = check_source(verified, graph, itself)
        arrays = read_inputs(inputs, verified.program.inputs, bit_order, codes)
        classes = None if labels is None else read_array(labels)
        made = create(choose_executor(executor)[0], verified, threads)
    with ExitStack() as stack:

        def bar(total: int) -> Callable[[int], None]:
            return stack.enter_context(progress("comparing", total))

        return compare(
            verified, graph, source, made, arrays, clip=clip, cycles=cycles, labels=classes, scores=scores, progress=bar
        )


def _render(console: Console, document: dict[str, Any]) -> None:
    headings = ("tensor", "operation", "SQNR dB>", "drop dB>", "at ends>", "clipped>", "used>", "headroom>", "meaning")
    table(
        console,
        headings,
        (
            (
                item["tensor"],
                item["operation"] or item["kind"],
                item["sqnr_db"] if item["sqnr_db"] is not None else "undefined",
                item["drop_db"] if item["drop_db"] is not None else "",
                _share(item["saturation"]),
                _share(item["clipped"]),
                f"{item['used']:.1%}",
                item["headroom"],
                meaning(item["bound"]) if item["bound"] is not None else "",
            )
            for item in document["tensors"]
        ),
    )
    say(console)
    runs = document["samples"] * (document["cycles"] or 1)
    say(console, f"{runs} runs on {document['program']['executor']}, beside the float model in float64")
    say(console, f"{len(document['tensors'])} tensors measured, {len(document['not_materialised'])} not materialised")
    if document["model"]["compiles_to_program"] is not True:
        say(console, "the model as given does not compile to this program: other options, or another version")
    if document["classes"] is not None:
        _render_classes(console, document["classes"])
    say(console, f"digest  {document['program']['digest']}")
    if "file" in document:
        say(console, f"wrote   {document['file']['path']} ({document['file']['bytes']} bytes)")


def _render_classes(console: Console, classes: dict[str, Any]) -> None:
    say(console, f"{classes['agreeing']} of {classes['runs']} classes are those of the float model")
    found = classes["labels"]
    if found is not None:
        say(console, f"{found['program_right']} of {found['runs']} right; the float model {found['float_right']}")


def _share(shares: dict[str, float] | None) -> str:
    return "" if shares is None else f"{sum(shares.values()):.2%}"


COMMAND = Command(
    command,
    (
        "cvm report model.cvm --model model/ -i images.npy -o report.html",
        "cvm report model/ -i data.npz:image --labels data.npz:label --json",
        "cvm report model.onnx -i images.npy -o report.html",
    ),
)
