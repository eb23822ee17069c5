"""``cvm inspect``: show a program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cvm.cli.declaration import Command
from cvm.cli.failures import Usage
from cvm.cli.foreign import render_model
from cvm.cli.options import BitOrder, CompatMode, Json, Model, NoOptimize, Params
from cvm.cli.output import headroom, progress, say, show, table, write_file
from cvm.errors import LimitExceeded, Location

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.program.model import Node, Value
    from cvm.program.verifier import VerifiedProgram

__all__ = ["COMMAND", "describe"]


def command(
    program: Model,
    cost: Annotated[
        bool,
        typer.Option("--cost", help="Show what a run costs instead: gas, multiply-adds, memory, bytes of a trace."),
    ] = False,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile", help="Show how long each node takes instead, on random inputs, with NumPy on one core."
        ),
    ] = False,
    draw: Annotated[
        Path | None, typer.Option("--draw", metavar="OUT.svg", help="Also write a drawing of the nodes, as SVG.")
    ] = None,
    bit_order: BitOrder = "lsb",
    params: Params = None,
    compat: CompatMode = "correct",
    no_optimize: NoOptimize = False,
    as_json: Json = False,
) -> int:
    """Show the inputs, outputs, state and nodes of a program, its costs and its digest.

    Headroom is the number of bits, of 32, that the proven interval of a tensor leaves unused. The graph of a model of
    cvm-runtime (JSON) is shown as that library reads it, with the costs that it charges; with --params, the model is
    shown as a program.
    """
    from cvm.cli.models import open_program

    if cost and profile:
        raise Usage("--cost shows what a run costs by its ops, --profile the time of each node: give one")
    if draw is not None and draw.suffix.lower() != ".svg":
        raise Usage(f"drawings are SVG: say --draw {draw.with_suffix('.svg')}")
    if params is None and program.suffix == ".json":
        if profile or draw is not None:
            raise Usage(f"this is for programs: cvm inspect {program} --params FILE")
        return _inspect_graph(program, compat, as_json)
    verified = _imported(program, params, compat) if params else open_program(program, no_optimize, bit_order)
    if cost:
        document, render = price(verified), _render_price
    elif profile:
        document, render = _profile(verified), _render_profile
    else:
        document, render = describe(verified), _render
    if draw is not None:
        document["file"] = _drawn(verified, draw)
    return show(document, lambda console: render(console, document), as_json)


def _drawn(verified: VerifiedProgram, path: Path) -> dict[str, Any]:
    """Write a drawing; returns its path and its bytes. Raises `LimitExceeded` (``inspect.draw``)."""
    from cvm.drawing import ALONE, network_svg, steps_of

    picture = network_svg(steps_of(verified.program), style=ALONE)
    if picture is None:
        count = len(verified.program.nodes)
        raise LimitExceeded(
            "inspect.draw", f"{count} nodes are too many to draw; --json lists them", Location(str(path))
        )
    data = picture.encode()
    write_file(path, data)
    return {"path": str(path), "bytes": len(data)}


def _profile(verified: VerifiedProgram) -> dict[str, Any]:
    """The time of each node, as a document."""
    from cvm.audit.costs import macs
    from cvm.bench.engines import random_inputs
    from cvm.bench.nodes import ROUNDS, node_seconds
    from cvm.executors import choose_executor

    program = verified.program
    feeds = random_inputs(program.inputs, 1)
    with progress("timing", ROUNDS * len(program.nodes)) as advance:
        seconds = node_seconds(verified, feeds, advance)
    rows = zip(program.nodes, seconds, macs(verified), strict=True)
    return {
        "digest": program.digest,
        "executor": "numpy",
        "default": choose_executor()[0],
        "seconds": sum(seconds),
        "nodes": [
            {"op": node.op, "output": node.outputs[0].name, "shape": list(node.outputs[0].shape), "seconds": spent,
             "macs": count}
            for node, spent, count in rows
        ],
    }  # fmt: skip


def _render_profile(console: Console, document: dict[str, Any]) -> None:
    whole = document["seconds"] or 1.0
    rows = (
        (
            node["op"], node["output"], node["shape"], node["macs"],
            f"{1e6 * node['seconds']:.1f}", f"{100 * node['seconds'] / whole:.1f} %",
        )
        for node in document["nodes"]
    )  # fmt: skip
    table(console, ("op", "output", "shape", "macs>", "microseconds>", "share>"), rows)
    say(console)
    say(console, f"all     {1e3 * document['seconds']:.3f} ms by numpy, node by node")
    if document["default"] != "numpy":
        say(console, f"        {document['default']}, the default here, fuses nodes: `cvm bench` times it")
    say(console, f"digest  {document['digest']}")
    _render_file(console, document)


def _render_file(console: Console, document: dict[str, Any]) -> None:
    if "file" in document:
        say(console, f"wrote   {document['file']['path']} ({document['file']['bytes']} bytes)")


def _imported(model: Path, params: Path, compat: Literal["correct", "cvm-1"]) -> VerifiedProgram:
    """The program of a model of cvm-runtime."""
    from cvm.frontends import cvm_runtime
    from cvm.program.verifier import verify

    return verify(cvm_runtime.load(model, params, compat).program)


def _inspect_graph(path: Path, compat: Literal["correct", "cvm-1"], as_json: bool) -> int:
    """Describe a model of cvm-runtime without making a program: its graph and the costs in that library."""
    from cvm.frontends import cvm_runtime

    document = cvm_runtime.described(cvm_runtime.load_model(path, compat))
    return show(document, lambda console: render_model(console, document), as_json)


def describe(verified: VerifiedProgram) -> dict[str, Any]:
    """A verified program as a document."""
    from cvm.audit.costs import gas, macs
    from cvm.quantization.document import quantizer_document

    program = verified.program
    counts = macs(verified)
    nodes = [_node(*parts) for parts in zip(program.nodes, gas(verified), counts, strict=True)]
    return {
        "digest": program.digest,
        "op_set": program.op_set,
        "limits": program.limits,
        "inputs": [_value(item.value) | {"quantizer": quantizer_document(item.quantizer)} for item in program.inputs],
        "outputs": [
            {
                "name": item.name,
                "value": item.value,
                "shape": list(verified.shapes[item.value]),
                "interval": list(verified.ranges[item.value].hull()),
                "quantizer": quantizer_document(item.quantizer),
            }
            for item in program.outputs
        ],
        "state": [_value(item.value) | {"initial": item.initial, "update": item.update} for item in program.state],
        "nodes": nodes,
        "constants": {
            "count": len(program.constants),
            "bytes": sum(len(constant.data) for constant in program.constants),
        },
        "macs": sum(counts),
        "gas": verified.gas,
        "provenance": {
            "tool": program.provenance.tool,
            "source": program.provenance.source,
            "source_digest": program.provenance.source_digest,
        },
    }


def price(verified: VerifiedProgram) -> dict[str, Any]:
    """The costs of one run of a program as a document: in total, and by op."""
    from cvm.audit.costs import costs, gas, macs
    from cvm.export.c import arena_bytes

    program, total = verified.program, costs(verified)
    by_op: dict[str, dict[str, Any]] = {}
    for node, paid, count in zip(program.nodes, gas(verified), macs(verified), strict=True):
        entry = by_op.setdefault(node.op, {"op": node.op, "nodes": 0, "gas": 0, "macs": 0})
        for what, more in (("nodes", 1), ("gas", paid), ("macs", count)):
            entry[what] += more
    return {
        "digest": program.digest,
        "gas": total.gas,
        "macs": total.macs,
        "constant_bytes": total.constant_bytes,
        "peak_bytes": total.peak_bytes,
        "c_arena_bytes": arena_bytes(verified),
        "trace_bytes": total.trace_bytes,
        "ops": sorted(by_op.values(), key=lambda entry: (-entry["gas"], entry["op"])),
    }


def _render_price(console: Console, document: dict[str, Any]) -> None:
    rows = ((entry["op"], entry["nodes"], entry["gas"], entry["macs"]) for entry in document["ops"])
    table(console, ("op", "nodes>", "gas>", "macs>"), rows)
    say(console)
    say(console, f"gas        {document['gas']} per run")
    say(console, f"macs       {document['macs']}")
    say(
        console,
        f"memory     {document['peak_bytes']} bytes of tensors at once, {document['constant_bytes']} of constants",
    )
    say(console, f"arena      {document['c_arena_bytes']} bytes for a run of the program exported as C")
    say(console, f"trace      {document['trace_bytes']} bytes to hash, if one is taken")
    say(console, f"digest     {document['digest']}")
    _render_file(console, document)


def _value(value: Value) -> dict[str, Any]:
    interval = [value.lo, value.hi]
    return {
        "name": value.name,
        "shape": list(value.shape),
        "interval": interval,
        "headroom": headroom(interval, 32),
    }


def _node(node: Node, gas: int, count: int) -> dict[str, Any]:
    return {
        "op": node.op,
        "inputs": list(node.inputs),
        "outputs": [_value(value) for value in node.outputs],
        "attributes": {
            name: list(value) if isinstance(value, tuple) else value for name, value in node.attributes.items()
        },
        "gas": gas,
        "macs": count,
    }


def _render(console: Console, document: dict[str, Any]) -> None:
    ends = [("input", item["name"], item) for item in document["inputs"]]
    ends += [("state", item["name"], item) for item in document["state"]]
    ends += [("output", item["name"], item) for item in document["outputs"]]
    rows = ((kind, name, item["shape"], item["interval"], _meaning(item)) for kind, name, item in ends)
    table(console, ("", "name", "shape", "codes", "meaning"), rows)
    say(console)
    headings = ("op", "output", "shape", "interval", "headroom>", "macs>", "gas>")
    table(
        console,
        headings,
        (
            (node["op"], value["name"], value["shape"], value["interval"], value["headroom"], node["macs"], node["gas"])
            for node in document["nodes"]
            for value in node["outputs"]
        ),
    )
    say(console)
    constants = document["constants"]
    say(console, f"{len(document['nodes'])} nodes; {constants['count']} constants of {constants['bytes']} bytes")
    say(console, f"macs    {document['macs']}")
    say(console, f"gas     {document['gas']}")
    say(console, f"digest  {document['digest']}")
    _render_file(console, document)


def _meaning(item: dict[str, Any]) -> str:
    quantizer = item.get("quantizer")
    if quantizer is None:
        return "integers"
    if "top" in quantizer:
        return f"0 and +-2^({quantizer['top'] - quantizer['hi']} + |q|)"
    if quantizer["axis"] is not None:
        return f"{len(quantizer['scale'])} scales along axis {quantizer['axis']}"
    return f"{quantizer['offset'][0]} + q * {quantizer['scale'][0]}"


COMMAND = Command(
    command,
    (
        "cvm inspect model.cvm",
        "cvm inspect model.cvm --cost",
        "cvm inspect model.cvm --profile",
        "cvm inspect model.cvm --draw model.svg",
        "cvm inspect model/ --json",
        "cvm inspect model.json",
    ),
)
