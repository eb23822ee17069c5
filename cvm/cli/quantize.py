"""``cvm quantize``: quantisers for a model with float weights, from data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cvm.cli.declaration import Command
from cvm.cli.failures import Usage
from cvm.cli.options import Cycles, Inputs, Json
from cvm.cli.output import progress, say, show, table, write_file

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.calibration import CalibratedTensor, Calibration, Form
    from cvm.quantization.calibration import Method

__all__ = ["COMMAND"]

_METHODS = ("minmax", "percentile", "mse", "entropy")
_FORMS = ("linear", "zero-point", "logarithmic")
_FILE = "graph.quant"


_Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="An NNEF model with its weights: a folder or an archive (.tgz).")
]
_Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="graph.quant", help="The quantisation file to write.")
]
_Bits = Annotated[int, typer.Option("--bits", metavar="N", help="Bits of activations, 2 to 16.")]
_WeightBits = Annotated[
    int | None,
    typer.Option(
        "--weight-bits",
        metavar="N",
        help="Bits of the filters of convolutions and matrix products, 2 to 16; as --bits, at most 8, if not said, "
        "and 4 for the exponents of --form logarithmic.",
    ),
]
_PerChannel = Annotated[
    bool, typer.Option("--per-channel", help="A scale for each output channel of a filter and of its bias.")
]
_Method = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="minmax|percentile|mse|entropy",
        help="How a range is chosen: all numbers; all but the largest few; least squared error; least loss of "
        "information (Kullback-Leibler).",
    ),
]
_Percentile = Annotated[
    float, typer.Option("--percentile", metavar="P", help="What --method percentile keeps, in percent.")
]
_Form = Annotated[
    str,
    typer.Option(
        "--form",
        metavar="linear|zero-point|logarithmic",
        help="linear_quantize of NNEF 1.0.1, zero_point_linear_quantize of the Khronos tools, or filters in powers "
        "of two (logarithmic_quantize) and all else linear.",
    ),
]
_WriteWeights = Annotated[
    bool,
    typer.Option(
        "--write-weights",
        help="Write the whole model into the new folder of graph.quant, the weights as codes.",
    ),
]


def command(
    model: _Model,
    inputs: Inputs = [],  # noqa: B006  (Typer makes a list of its own from it)
    output: _Output = None,
    bits: _Bits = 8,
    weight_bits: _WeightBits = None,
    per_channel: _PerChannel = False,
    method: _Method = "minmax",
    percentile: _Percentile = 99.99,
    form: _Form = "linear",
    write_weights: _WriteWeights = False,
    cycles: Cycles = False,
    as_json: Json = False,
) -> int:
    """Choose quantisers for a model with float weights, from data.

    The model is evaluated in float64 on the data, run after run. Every tensor that needs one gets a quantiser for the
    numbers that it had; zero is a code of all that can be zero, weights are symmetric, tensors between which data only
    moves share a quantiser, biases have the scale of the accumulator. Quantisation that the model has is ignored. The
    same data gives the same file.
    """
    from cvm.calibration import Settings, calibrate
    from cvm.cli.feeds import graph_inputs, read_inputs
    from cvm.frontends import nnef
    from cvm.frontends.nnef.faults import exhaustion
    from cvm.reference import run_count

    if method not in _METHODS:
        raise Usage(f"expected --method {', '.join(_METHODS)}, found {method!r}")
    if form not in _FORMS:
        raise Usage(f"expected --form {', '.join(_FORMS)}, found {form!r}")
    if write_weights and (output is None or output.name != _FILE):
        raise Usage(f"--write-weights writes a folder with a {_FILE}: say -o FOLDER/{_FILE}")
    settings = Settings(bits, weight_bits, per_channel, cast("Method", method), percentile, cast("Form", form))
    graph = nnef.load(model)
    feeds = read_inputs(inputs, graph_inputs(graph))
    with exhaustion(str(model)), progress("calibrating", run_count(graph, feeds, cycles)) as advance:
        found = calibrate(graph, feeds, settings, cycles=cycles, on_run=advance)
    document: dict[str, Any] = {"model": str(model), "tensors": [_tensor(item) for item in found.tensors]}
    if output is not None:
        document |= _written(found, output, write_weights)
    return show(document, lambda console: _render(console, document), as_json)


def _written(found: Calibration, output: Path, whole: bool) -> dict[str, Any]:
    if whole:
        found.save(output.parent)
        return {"folder": str(output.parent)}
    data = found.text.encode()
    write_file(output, data)
    return {"file": {"path": str(output), "bytes": len(data)}}


def _tensor(item: CalibratedTensor) -> dict[str, Any]:
    return {
        "tensor": item.name,
        "role": item.role,
        "min": item.min,
        "max": item.max,
        "clipped": item.clipped,
        "quantizer": item.text,
    }


def _render(console: Console, document: dict[str, Any]) -> None:
    rows = [
        (
            item["tensor"],
            item["role"],
            f"{item['min']:.6g}",
            f"{item['max']:.6g}",
            f"{100 * item['clipped']:.3g} %" if item["clipped"] else "",
            item["quantizer"] if len(item["quantizer"]) <= _LONGEST else item["quantizer"][:_LONGEST] + "..",
        )
        for item in document["tensors"]
    ]
    table(console, ("tensor", "role", "min>", "max>", "clipped>", "quantiser"), rows)
    if "file" in document:
        say(console, f"wrote  {document['file']['path']} ({document['file']['bytes']} bytes)")
    if "folder" in document:
        say(console, f"wrote  {document['folder']}")


_LONGEST = 120
"""Characters of a quantiser in a table; lists per channel are longer."""

COMMAND = Command(
    command,
    (
        "cvm quantize model/ -i data.npz -o graph.quant",
        "cvm quantize model/ -i data.npz -o quantised/graph.quant --write-weights --weight-bits 4 --method mse",
    ),
)
