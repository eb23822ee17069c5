"""``cvm compile``: turn a model into an integer program, with a proof or a bound for every tensor."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cvm.cli.declaration import Command
from cvm.cli.failures import Usage
from cvm.cli.foreign import costs
from cvm.cli.options import (
    BitOrder,
    CompileCompat,
    InputRange,
    InputShape,
    Json,
    NoOptimize,
    OnlyOutputs,
    OpSet,
    Params,
    States,
    Variant,
    input_ranges,
    input_shapes,
    input_states,
)
from cvm.cli.output import headroom, meaning, say, show, table, working, write_file
from cvm.formats import model_format
from cvm.timing import Times, recorded, timed

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.program.model import Exactness
    from cvm.program.verifier import VerifiedProgram

__all__ = ["COMMAND", "report"]


_Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="An NNEF model: a folder, an archive (.tgz) or a document; a model of ONNX or TFLite; or the graph of a "
        "model of cvm-runtime.",
    ),
]
_Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="OUT.cvm", help="The program file to write."),
]
_Quant = Annotated[
    Path | None,
    typer.Option("--quant", metavar="FILE", help="Quantisation information instead of the model's graph.quant."),
]
_Profile = Annotated[
    bool,
    typer.Option("--profile", help="Also print where the time went: reading, lowering, tables, passes, verification."),
]
_NoQuant = Annotated[bool, typer.Option("--no-quant", help="Ignore the model's graph.quant.")]


def command(
    model: _Model,
    output: _Output = None,
    quant: _Quant = None,
    no_quant: _NoQuant = False,
    bit_order: BitOrder = "lsb",
    variant: Variant = None,
    params: Params = None,
    compat: CompileCompat = "correct",
    input_shape: InputShape = [],  # noqa: B006  (Typer makes a list of its own from it)
    input_range: InputRange = [],  # noqa: B006
    state: States = [],  # noqa: B006
    only_output: OnlyOutputs = [],  # noqa: B006
    op_set: OpSet = 1,
    no_optimize: NoOptimize = False,
    profile: _Profile = False,
    as_json: Json = False,
) -> int:
    """Compile a model of NNEF, ONNX or TFLite, or with --params a model of cvm-runtime, to an integer program.

    The report says for every tensor whether it is exact, or gives the proven bound on its difference from the
    document's meaning, in codes. It also gives the intervals of the 64-bit sum that was rounded and of the tensor's
    32-bit integers, and the headroom: the bits that these intervals leave unused.
    """
    imported = params is not None or model.suffix == ".json"
    kind = "cvm_runtime" if imported else model_format(model)
    if (input_shape or input_range or state or only_output) and kind != "onnx":
        raise Usage("--input-shape, --input-range, --state and --only-output are for a model of ONNX")
    if kind != "nnef" and (quant is not None or no_quant or variant is not None):
        raise Usage("--quant, --no-quant and --variant are for an NNEF model: others have their own quantisation")
    if compat == "tflite-reference" and kind != "tflite":
        raise Usage("--compat tflite-reference is for a model of TFLite")
    if imported and compat != "tflite-reference":
        return _import(model, params, compat, op_set, output, profile, as_json)
    if compat == "cvm-1":
        raise Usage("--compat is for a model of cvm-runtime: expected --params FILE")
    if quant is not None and no_quant:
        raise Usage("--quant and --no-quant exclude each other")
    with _recorded("compiling") as times:
        with timed("importing"):
            import cvm
            from cvm.program.verifier import verify
        program = cvm.compile(
            model, False if no_quant else quant, not no_optimize, bit_order=bit_order, variant=variant, compat=compat,
            input_shapes=input_shapes(input_shape), input_ranges=input_ranges(input_range),
            states=input_states(state), outputs=only_output, op_set=2 if op_set == 2 else 1,
        )  # fmt: skip
        with timed("verification", "of the result"):
            verified = verify(program)
    return _written(report(verified) | (_profiled(times) if profile else {}), verified, output, as_json)


@contextmanager
def _recorded(what: str) -> Iterator[Times]:
    """Record the times of the block. If it takes long, a spinner on stderr names the current step."""
    with working(what) as tell, recorded(lambda stage, name: tell(f"{what}: {stage} {name}".rstrip())) as times:
        yield times


def _profiled(times: Times) -> dict[str, Any]:
    """The times as a document, the longest part first."""
    parts = sorted(times.parts.values(), key=lambda part: -part.seconds)
    return {
        "profile": [
            {"stage": part.stage, "part": part.name, "count": part.count, "seconds": round(part.seconds, 6)}
            for part in parts
        ]
    }


def _import(
    model: Path,
    params: Path | None,
    compat: Literal["correct", "cvm-1"],
    op_set: int,
    output: Path | None,
    profile: bool,
    as_json: bool,
) -> int:
    """The program of a model of cvm-runtime, and the costs that this library charges for it."""
    if op_set != 1:
        raise Usage("--op-set is for a model that is lowered: one of cvm-runtime has the ops that it has")
    from cvm.frontends import cvm_runtime
    from cvm.program.verifier import verify

    if params is None:
        raise Usage(
            f"{model} is read as the graph of a model of cvm-runtime, which needs its other file: --params FILE"
        )
    with _recorded("reading") as times:
        with timed("reading"):
            imported = cvm_runtime.load(model, params, compat)
        with timed("verification", "of the result"):
            verified = verify(imported.program)
    there = cvm_runtime.described(imported.model)
    document = report(verified) | {"cvm_runtime": there, "compat": compat, "notes": list(imported.notes)}
    document |= _profiled(times) if profile else {}
    return _written(document, verified, output, as_json)


def _written(document: dict[str, Any], verified: VerifiedProgram, output: Path | None, as_json: bool) -> int:
    """Write the program, and show the document."""
    if output is not None:
        pieces = verified.program.pieces()
        write_file(output, *pieces)
        document["file"] = {"path": str(output), "bytes": sum(map(len, pieces))}
    return show(document, lambda console: _render(console, document), as_json)


def report(verified: VerifiedProgram) -> dict[str, Any]:
    """The proofs of the compiler as a document."""
    program = verified.program
    tensors = [_tensor(item, verified) for item in program.provenance.exactness]
    return {
        "digest": program.digest,
        "gas": verified.gas,
        "nodes": len(program.nodes),
        "constant_bytes": sum(len(constant.data) for constant in program.constants),
        "tensors": tensors,
        "exact": all(tensor["exact"] for tensor in tensors),
    }


def _tensor(item: Exactness, verified: VerifiedProgram) -> dict[str, Any]:
    interval = verified.ranges[item.value].hull() if item.value in verified.ranges else None
    return {
        "tensor": item.tensor,
        "value": item.value or None,
        "exact": item.bound == 0,
        "bound": str(item.bound),
        "interval": interval,
        "headroom": None if interval is None else headroom(interval, 32),
        "accumulator": item.accumulator,
        "accumulator_headroom": None if item.accumulator is None else headroom(item.accumulator, 64),
        "note": item.note,
    }


def _render(console: Console, document: dict[str, Any]) -> None:
    headings = ("tensor", "meaning", "int32 interval", "headroom>", "int64 sum", "headroom>", "how")
    table(
        console,
        headings,
        (
            (
                item["tensor"],
                meaning(item["bound"]),
                _interval(item["interval"]),
                _optional(item["headroom"]),
                _interval(item["accumulator"]),
                _optional(item["accumulator_headroom"]),
                item["note"],
            )
            for item in document["tensors"]
        ),
    )
    if "profile" in document:
        say(console)
        _render_profile(console, document["profile"])
    kinds = Counter(item["exact"] for item in document["tensors"])
    say(console)
    say(console, f"{kinds[True]} tensors exact, {kinds[False]} with a proven bound")
    say(console, f"{document['nodes']} nodes, {document['constant_bytes']} bytes of constants")
    say(console, f"gas     {document['gas']}")
    if "cvm_runtime" in document:
        say(console, f"there   {costs(document['cvm_runtime'])}")
    for note in document.get("notes", ()):
        say(console, f"note    {note}")
    say(console, f"digest  {document['digest']}")
    if "file" in document:
        say(console, f"wrote   {document['file']['path']} ({document['file']['bytes']} bytes)")


def _render_profile(console: Console, parts: Sequence[dict[str, Any]]) -> None:
    """Print the sums of the stages, and the parts that take a hundredth of the time or more."""
    total = sum(part["seconds"] for part in parts)
    stages: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for part in parts:
        stages[part["stage"]].append(part)
    rows: list[tuple[object, ...]] = []
    for stage, items in sorted(stages.items(), key=lambda item: -sum(part["seconds"] for part in item[1])):
        rows.append((stage, "", "", f"{sum(part['seconds'] for part in items):.3f}"))
        named = (part for part in items if part["part"] and part["seconds"] >= total / 100)
        rows += [("", part["part"], part["count"], f"{part['seconds']:.3f}") for part in named]
    table(console, ("stage", "part", "count>", "seconds>"), [*rows, ("all", "", "", f"{total:.3f}")])


def _interval(interval: tuple[int, int] | None) -> str:
    return "" if interval is None else f"[{interval[0]}, {interval[1]}]"


def _optional(value: int | None) -> str:
    return "" if value is None else str(value)


COMMAND = Command(
    command,
    (
        "cvm compile model/ -o model.cvm",
        "cvm compile model.tgz -o model.cvm --quant calibrated.quant",
        "cvm compile model.onnx -o model.cvm --input-shape image=1,1,8,8",
        "cvm compile model.tflite -o model.cvm --compat tflite-reference",
        "cvm compile model.json --params model.params -o model.cvm",
    ),
)
