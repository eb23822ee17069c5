"""``cvm quantize``: make an integer program or a quantisation file from a model with float weights and data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cvm.cli.declaration import Command
from cvm.cli.failures import Usage
from cvm.cli.options import (
    Codes,
    Cycles,
    InputRange,
    Inputs,
    InputShape,
    Json,
    NoOptimize,
    OnlyOutputs,
    OpSet,
    States,
    input_ranges,
    input_shapes,
    input_states,
)
from cvm.cli.output import counted, narrated, say, show, table, working, write_file
from cvm.errors import Invalid
from cvm.formats import model_format

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.arrays import Array
    from cvm.calibration import CalibratedTensor, Calibration, Choice, Form, RangeMethod, Settings, Trial
    from cvm.formats import ModelFormat
    from cvm.graph import QuantizedGraph
    from cvm.quantizing import Quantized

__all__ = ["COMMAND"]

_METHODS = ("minmax", "percentile", "mse", "entropy")
_CHOICES = ("auto", "on", "off")
_LONGEST_NUMBER = 4
_FORMS = ("linear", "zero-point", "logarithmic")
_FILE, _PROGRAM, _ONNX = "graph.quant", ".cvm", ".onnx"


_Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="A model with its weights: of NNEF (folder or archive), ONNX or TFLite (float, or quantised in part).",
    ),
]
_Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="What to write: the integer program (FILE.cvm); also a quantised model of ONNX (FILE.onnx, "
        "with QuantizeLinear and DequantizeLinear); for an NNEF model also the quantisation file (graph.quant).",
    ),
]
_Random = Annotated[
    int | None,
    typer.Option(
        "--random",
        metavar="N",
        min=1,
        help="Instead of data, draw N random samples. The program is exact, but its ranges are those of these samples.",
    ),
]
_Seed = Annotated[int, typer.Option("--seed", metavar="S", min=0, help="The seed of --random.")]
_RandomRange = Annotated[
    str,
    typer.Option("--random-range", metavar="LO,HI", help="The interval from which --random draws, uniformly."),
]
_Bits = Annotated[int, typer.Option("--bits", metavar="N", help="Bits of activations, 2 to 16.")]
_BitsOf = Annotated[
    list[str],
    typer.Option(
        "--bits-of",
        metavar="NAME=N",
        help="Bits of one tensor, or of those whose names fit a pattern such as '*.sum', 2 to 16. May be repeated; the "
        "last one that fits counts.",
    ),
]
_WeightBits = Annotated[
    int | None,
    typer.Option(
        "--weight-bits",
        metavar="N",
        help="Bits of the filters of convolutions and matrix products, 2 to 16. By default those of --bits, at most 8, "
        "and 4 for the exponents of --form logarithmic.",
    ),
]
_PerChannel = Annotated[
    bool | None,
    typer.Option(
        "--per-channel/--per-tensor",
        help="One scale for each output channel of a filter and of its bias, or one for each filter. By default per "
        "channel for ONNX and TFLite, per tensor for NNEF.",
    ),
]
_OutputBits = Annotated[
    int | None,
    typer.Option(
        "--output-bits",
        metavar="N",
        help="Bits of outputs that nothing else reads, 2 to 16, for ONNX and TFLite. By default 12 in a program, and "
        "those of --bits in a quantised model of ONNX.",
    ),
]
_Method = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="minmax|percentile|mse|entropy|best",
        help="How a range is chosen: all numbers; all but the largest few; least squared error; least loss of "
        "information (Kullback-Leibler). best, the default for ONNX and TFLite, takes the one of the first three that "
        "brings the outputs nearest to the floats. The default for NNEF is minmax.",
    ),
]
_Equalize = Annotated[
    str | None,
    typer.Option(
        "--equalize",
        metavar="auto|on|off",
        help="Rescale channels between two linear layers so that one range suits all of them: if that helps on the "
        "data (auto, the default for ONNX and TFLite), always (on), or never (off, the default for NNEF).",
    ),
]
_CorrectBias = Annotated[
    str | None,
    typer.Option(
        "--correct-bias",
        metavar="auto|on|off",
        help="Subtract from biases what rounding adds to the mean of each channel; auto, on and off as for --equalize.",
    ),
]
_Percentile = Annotated[
    float, typer.Option("--percentile", metavar="P", help="The percentage of numbers that --method percentile keeps.")
]
_Form = Annotated[
    str,
    typer.Option(
        "--form",
        metavar="linear|zero-point|logarithmic",
        help="linear_quantize of NNEF 1.0.1, zero_point_linear_quantize of the Khronos tools, or powers of two "
        "(logarithmic_quantize) for filters and linear quantisers for all other tensors.",
    ),
]
_TargetSqnr = Annotated[
    float | None,
    typer.Option(
        "--target-sqnr",
        metavar="DB",
        help="Give more bits (16 to activations, 12 to filters) to the tensors that cost the outputs most, to as few "
        "as are needed for every output to have this SQNR.",
    ),
]
_MaxBytes = Annotated[
    int | None,
    typer.Option(
        "--max-bytes",
        metavar="N",
        min=1,
        help="The most bytes of the program file. Without --target-sqnr, as many tensors get more bits as fit; with "
        "it, a larger program is refused.",
    ),
]
_WriteWeights = Annotated[
    bool,
    typer.Option(
        "--write-weights",
        help="Write the whole model into the new folder of graph.quant, with the weights as codes.",
    ),
]


def command(
    model: _Model,
    inputs: Inputs = [],  # noqa: B006  (Typer makes a list of its own from it)
    output: _Output = None,
    bits: _Bits = 8,
    weight_bits: _WeightBits = None,
    bits_of: _BitsOf = [],  # noqa: B006
    per_channel: _PerChannel = None,
    method: _Method = None,
    percentile: _Percentile = 99.99,
    form: _Form = "linear",
    output_bits: _OutputBits = None,
    equalize: _Equalize = None,
    correct_bias: _CorrectBias = None,
    random: _Random = None,
    seed: _Seed = 0,
    random_range: _RandomRange = "-1,1",
    target_sqnr: _TargetSqnr = None,
    max_bytes: _MaxBytes = None,
    write_weights: _WriteWeights = False,
    cycles: Cycles = False,
    codes: Codes = False,
    input_shape: InputShape = [],  # noqa: B006
    input_range: InputRange = [],  # noqa: B006
    state: States = [],  # noqa: B006
    only_output: OnlyOutputs = [],  # noqa: B006
    op_set: OpSet = 1,
    no_optimize: NoOptimize = False,
    as_json: Json = False,
) -> int:
    """Make an integer program from a model with float weights, with quantisers chosen from data.

    The model is evaluated in float64 on the data, run after run. Every tensor that needs a quantiser gets one for the
    numbers that it had. Zero is a code of every tensor that can be zero, weights are symmetric, and tensors between
    which data only move share a quantiser. The same data give the same file.

    In a model of NNEF every rounded tensor gets a quantiser, biases one with the scale of the accumulator;
    the quantisation of the model is ignored. A model of ONNX or TFLite keeps its quantisers; others are added where the
    program needs them, and biases do not change. The program is compared with the model in float64: SQNR is the
    signal-to-quantisation-noise ratio of each output.
    """
    kind = model_format(model)
    shaped, aims = (input_shape, input_range, state, only_output), (target_sqnr, max_bytes)
    _require_sense(kind, output, method, form, write_weights, any(shaped))
    widths, ranges = (bits, weight_bits, output_bits), (per_channel, method, percentile, form)
    changes = _changes(kind, output, (equalize, correct_bias), write_weights)
    settings = replace(_settings(kind, output, widths, ranges, changes), bits_of=_bits_of(bits_of))
    data = _Data(inputs, random, seed, _interval(random_range), cycles, codes)
    made, what = (_completed, shaped) if kind != "nnef" else (_of_nnef, write_weights)
    return _explained(data, made, model, output, settings, data, what, aims, _how(no_optimize, op_set), as_json)


def _how(no_optimize: bool, op_set: int) -> dict[str, Any]:
    """How a graph becomes a program, as arguments of `cvm.quantizing`."""
    return {"optimize": not no_optimize, "op_set": op_set}


def _explained(data: _Data, made: Callable[..., int], *arguments: Any) -> int:
    """Call ``made`` with the arguments. A refusal names the option of the data that led to it."""
    try:
        return made(*arguments)
    except Invalid as error:
        raise data.explained(error) from None


def _settings(
    kind: ModelFormat,
    output: Path | None,
    widths: tuple[int, int | None, int | None],
    ranges: tuple[bool | None, str | None, float, str],
    changes: tuple[Choice, Choice],
) -> Settings:
    """The settings, with the defaults for the format of the model."""
    from cvm.calibration import Settings

    bits, weight_bits, output_bits = widths
    per_channel, method, percentile, form = ranges
    completes = kind != "nnef"
    if output_bits is None and (output is None or output.suffix == _PROGRAM):
        output_bits = Settings.measured(bits).output_bits
    return Settings(
        bits,
        weight_bits,
        completes if per_channel is None else per_channel,
        cast("RangeMethod", method or ("best" if completes else "minmax")),
        percentile,
        cast("Form", form),
        output_bits=output_bits if completes else None,
        equalize=changes[0],
        correct_bias=changes[1],
    )


def _bits_of(words: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """The bits of single tensors, in the order of the options. Raises `Usage`."""
    found = []
    for word in words:
        name, _, bits = word.rpartition("=")
        if not name or not (bits.isascii() and bits.isdigit() and len(bits) <= _LONGEST_NUMBER):
            raise Usage(f"expected --bits-of NAME=N, found {word!r}")
        found.append((name, int(bits)))
    return tuple(found)


def _changes(
    kind: ModelFormat, output: Path | None, choices: tuple[str | None, str | None], whole: bool
) -> tuple[Choice, Choice]:
    """The changes that may be made to the numbers of the model before they are rounded.

    Raises `Usage` if the file to be written does not hold these numbers.
    """
    default = "off" if kind == "nnef" or (output is not None and output.suffix == _ONNX) else "auto"
    for option, choice in zip(("--equalize", "--correct-bias"), choices, strict=True):
        if choice not in (*_CHOICES, None):
            raise Usage(f"expected {option} {', '.join(_CHOICES)}, found {choice!r}")
        if kind == "nnef" and choice not in ("off", None) and not whole and (output is None or output.name == _FILE):
            raise Usage(f"{option} changes weights: say -o FILE{_PROGRAM}, or --write-weights with {_FILE}")
        if kind == "onnx" and choice not in ("off", None) and output is not None and output.suffix == _ONNX:
            raise Usage(
                f"{option} changes weights, which a quantised model of ONNX has as before: say -o FILE{_PROGRAM}"
            )
    first, second = (cast("Choice", choice or default) for choice in choices)
    return first, second


def _require_sense(
    kind: ModelFormat, output: Path | None, method: str | None, form: str, whole: bool, shaped: bool
) -> None:
    """Raise `Usage` for options that do not go together."""
    if method not in (*_METHODS, "best", None):
        message = f"expected --method {', '.join(_METHODS)}, found {method!r}"
        raise Usage(f"{message}; best tries the first three")
    if form not in _FORMS:
        raise Usage(f"expected --form {', '.join(_FORMS)}, found {form!r}")
    if whole and (output is None or output.name != _FILE):
        raise Usage(f"--write-weights writes a folder with a {_FILE}: say -o FOLDER/{_FILE}")
    if kind != "nnef" and output is not None and output.suffix not in (_PROGRAM, _ONNX):
        also = f", or FILE{_ONNX} for a quantised model of ONNX"
        raise Usage(f"a model of ONNX or TFLite becomes a program: say -o FILE{_PROGRAM}{also}")
    if kind != "onnx" and shaped:
        raise Usage("--input-shape, --input-range, --state and --only-output are for a model of ONNX")


@dataclass(frozen=True, slots=True)
class _Data:
    """The data options of the command line."""

    inputs: Sequence[str]
    random: int | None
    seed: int
    interval: tuple[float, float]
    cycles: bool
    codes: bool

    def arrays(self, graph: QuantizedGraph) -> dict[str, Array]:
        """An array for every input of a graph. Raises `Usage` if there is none, or both files and ``--random``."""
        from cvm.cli.feeds import graph_inputs, read_inputs
        from cvm.quantizing import random_inputs

        if self.random is None:
            if not self.inputs and graph.inputs:
                listed = ", ".join(f"{name} {list(graph.tensors[name].shape)}" for name in graph.inputs)
                message = f"no -i option gives the input {graph.inputs[0]!r}; the inputs are {listed}"
                raise Usage(f"{message}; --random N draws random data")
            return read_inputs(self.inputs, graph_inputs(graph), codes=self.codes)
        if self.inputs or self.cycles:
            raise Usage("--random is instead of -i and --cycles")
        return random_inputs(graph, self.random, self.seed, *self.interval)

    def explained(self, error: Invalid) -> Invalid:
        """The error; where drawn numbers led to it, with the option that says which numbers are drawn."""
        if error.code == "calibration.real" and self.random is not None:
            low, high = self.interval
            drawn = f"[{low:g}, {high:g}), from which --random draws"
            error.message += f": an operation up to there has no result for some number of {drawn}"
            error.message += "; give an interval where it has, such as `--random-range 0.1,0.9`"
        return error

    def said(self, runs: int) -> dict[str, Any]:
        """The data, as the document describes them."""
        if self.random is None:
            return {"runs": runs}
        return {"runs": runs, "random": {"seed": self.seed, "range": list(self.interval)}}


def _interval(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise Usage(f"expected --random-range LO,HI, found {text!r}") from None
    if not (low < high and math.isfinite(high - low)):
        raise Usage(f"expected --random-range LO,HI with LO below HI, found {text!r}")
    return low, high


def _of_nnef(
    model: Path,
    output: Path | None,
    settings: Settings,
    data: _Data,
    whole: bool,
    aims: tuple[float | None, int | None],
    how: Mapping[str, Any],
    as_json: bool,
) -> int:
    from cvm.frontends import nnef
    from cvm.frontends.nnef.faults import exhaustion
    from cvm.quantizing import Goal, calibrated_nnef, quantize_nnef
    from cvm.reference import run_count

    graph = nnef.load(model)
    feeds = data.arrays(graph)
    runs = run_count(graph, feeds, data.cycles)
    document: dict[str, Any] = {"model": str(model)}
    aimed = aims != (None, None)
    with exhaustion(str(model)), narrated("calibrating", runs) as (advance, say_step):
        if not aimed and (output is None or output.suffix not in (_PROGRAM, _ONNX)):
            found, settings, trials = calibrated_nnef(graph, feeds, settings, cycles=data.cycles, on_run=advance)
        else:
            goal = Goal(*aims, on_step=say_step) if aimed else None
            made = quantize_nnef(graph, feeds, settings, cycles=data.cycles, on_run=advance, goal=goal, **how)
            found, settings, trials = made.calibration, made.settings, made.trials
            if aimed:
                document |= {"bits": settings.bits, "widened": _widened(made)}
    document["tensors"] = [_tensor(item) for item in found.tensors]
    if trials or found.rescaled or found.corrected:
        document |= _choices(settings, trials, found)
    if data.random is not None:
        document["data"] = data.said(runs)
    if output is not None:
        document |= (
            _written(found, output, whole)
            if output.suffix not in (_PROGRAM, _ONNX)
            else _of_program(*_content(made, output, how), feeds, data, output)
        )
    return show(document, lambda console: _render(console, document), as_json)


def _completed(
    model: Path,
    output: Path | None,
    settings: Settings,
    data: _Data,
    wishes: tuple[list[str], list[str], list[str], list[str]],
    aims: tuple[float | None, int | None],
    how: Mapping[str, Any],
    as_json: bool,
) -> int:
    from cvm.frontends import onnx, tflite
    from cvm.quantizing import Goal, quantize_completed, quantized_onnx
    from cvm.reference import run_count

    if model_format(model) == "tflite":
        loaded: onnx.Loaded | tflite.Loaded = tflite.load(model, floats=True)
    else:
        states = input_states(wishes[2])
        shapes, ranges = input_shapes(wishes[0]), input_ranges(wishes[1])
        loaded = onnx.load(model, shapes, ranges, floats=True, states=states, outputs=wishes[3])
    feeds = data.arrays(loaded.graph)
    data = replace(data, cycles=data.cycles or bool(wishes[2]))
    runs = run_count(loaded.graph, feeds, data.cycles)
    with narrated("calibrating", runs) as (advance, say_step):
        goal = None if aims == (None, None) else Goal(*aims, on_step=say_step)
        made = quantize_completed(model, loaded, feeds, settings, cycles=data.cycles, on_run=advance, goal=goal, **how)
    document: dict[str, Any] = {
        "model": str(model),
        "data": data.said(runs),
        "bits": settings.bits,
        "tensors": [_tensor(item) for item in made.calibration.tensors],
        **_choices(made.settings, made.trials, made.calibration),
        "remedies": list(made.remedies),
        "widened": _widened(made),
    }
    if output is not None and output.suffix == _ONNX and model_format(model) == "onnx":
        shapes, ranges = input_shapes(wishes[0]), input_ranges(wishes[1])
        content, made = quantized_onnx(
            model,
            made,
            **how,
            input_shapes=shapes,
            input_ranges=ranges,
            states=input_states(wishes[2]),
            outputs=wishes[3],
        )
    else:
        made, content = _content(made, output, how)
    document |= _of_program(made, content, feeds, data, output)
    return show(document, lambda console: _render(console, document), as_json)


def _widened(made: Quantized) -> list[dict[str, Any]]:
    from cvm.report.document import decibel

    return [{"tensors": list(item.tensors), "alone_db": decibel(item.alone_db)} for item in made.widened]


def _content(made: Quantized, output: Path | None, how: Mapping[str, Any]) -> tuple[Quantized, bytes]:
    """The program; if a model of ONNX is written, the program of that model. And the bytes to write."""
    from cvm.quantizing import graph_onnx

    if output is None or output.suffix != _ONNX:
        return made, made.program.to_bytes()
    content, again = graph_onnx(made, **how)
    return again, content


def _of_program(
    made: Quantized, content: bytes, feeds: Mapping[str, Array], data: _Data, output: Path | None
) -> dict[str, Any]:
    """The program, its distance from the model, and the file to which it, or the ``content``, was written."""
    from cvm.program.verifier import verify
    from cvm.quantizing import decibels
    from cvm.report.document import decibel

    verified = verify(made.program)
    with working("comparing"):
        ratios = decibels(made, feeds, cycles=data.cycles)
    document: dict[str, Any] = {
        "outputs": [{"output": name, "sqnr_db": decibel(ratio)} for name, ratio in ratios.items()],
        "digest": made.program.digest,
        "gas": verified.gas,
        "nodes": len(made.program.nodes),
        "constant_bytes": sum(len(constant.data) for constant in made.program.constants),
        "exact": all(item.bound == 0 for item in made.program.provenance.exactness),
    }
    if made.halves:
        document["halves_to_even"] = list(made.halves)
    if output is not None:
        write_file(output, content)
        document["file"] = {"path": str(output), "bytes": len(content)}
    return document


def _written(found: Calibration, output: Path, whole: bool) -> dict[str, Any]:
    if whole:
        found.save(output.parent)
        return {"folder": str(output.parent)}
    data = found.text.encode()
    write_file(output, data)
    return {"file": {"path": str(output), "bytes": len(data)}}


def _choices(settings: Settings, trials: Sequence[Trial], found: Calibration) -> dict[str, Any]:
    """The choices that the settings left open, and the changes to the numbers of the model."""
    from cvm.report.document import decibel

    return {
        "method": settings.method,
        "tried": [
            {
                "method": item.method,
                "equalized": item.equalized,
                "corrected": item.corrected,
                "sqnr_db": decibel(item.apart_db),
                "kept": item.kept,
            }
            for item in trials
        ],
        "equalized": [
            {"tensor": item.tensor, "filters": list(item.filters), "exponents": list(item.exponents)}
            for item in found.rescaled
        ],
        "corrected": [
            {"tensor": item.tensor, "bias": item.bias, "greatest": item.greatest, "added": item.is_new}
            for item in found.corrected
        ],
    }


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
    if "outputs" in document:
        _render_program(console, document)
    if "file" in document:
        say(console, f"wrote  {document['file']['path']} ({document['file']['bytes']} bytes)")
    if "folder" in document:
        say(console, f"wrote  {document['folder']}")


def _render_choices(console: Console, document: dict[str, Any]) -> None:
    if document["tried"]:
        say(console, f"ranges: {document['method']}, the best of {len({t['method'] for t in document['tried']})} tried")
    for done, what in (
        ("equalized", "channels equalised between layers"),
        ("corrected", "means of channels corrected"),
    ):
        tried = any(item[done] for item in document["tried"])
        if document[done]:
            names = ", ".join(item["tensor"] for item in document[done][:_LISTED])
            more = f" and {len(document[done]) - _LISTED} more" if len(document[done]) > _LISTED else ""
            say(console, f"{what}: {len(document[done])} ({names}{more})")
        elif tried:
            say(console, f"{what}: none, since that did not help")


def _render_program(console: Console, document: dict[str, Any]) -> None:
    say(console)
    table(console, ("output", "SQNR dB>"), ((item["output"], _ratio(item["sqnr_db"])) for item in document["outputs"]))
    say(console)
    kinds = Counter(item["role"] for item in document["tensors"])
    listed = [counted(count, role, "biases" if role == "bias" else None) for role, count in kinds.items()]
    say(console, f"quantisers added: {', '.join(listed) or 'none'}")
    if "tried" in document:
        _render_choices(console, document)
    widened = document.get("widened", [])
    if widened:
        costs = ", ".join(f"{item['tensors'][0]} ({_ratio(item['alone_db'])} dB)" for item in widened[:_LISTED])
        more = f" and {len(widened) - _LISTED} more" if len(widened) > _LISTED else ""
        say(console, f"more bits for {len(widened)}; the SQNR if only that one had {document['bits']}: {costs}{more}")
    data = document.get("data", {})
    if "random" in data:
        say(console, f"data: {data['runs']} random samples (seed {data['random']['seed']}): the ranges are theirs")
    halves = document.get("halves_to_even", [])
    if halves:
        more = f" and {len(halves) - _LISTED} more" if len(halves) > _LISTED else ""
        names = ", ".join(halves[:_LISTED])
        say(console, f"ONNX rounds halves to even, this model does not: averages may differ by a code ({names}{more})")
    say(console, f"{document['nodes']} nodes, {document['constant_bytes']} bytes of constants")
    say(console, f"gas     {document['gas']}")
    say(console, f"digest  {document['digest']}")


def _ratio(value: float | str | None) -> str:
    return "undefined" if value is None else str(value)


_LISTED = 5
"""How many tensors with 16 bits are named; --json names all."""

_LONGEST = 120
"""Characters of a quantiser in a table; lists per channel are cut."""

COMMAND = Command(
    command,
    (
        "cvm quantize model.onnx -i data.npz -o model.cvm",
        "cvm quantize model.tflite --random 16 -o model.cvm --bits 16",
        "cvm quantize model/ -i data.npz -o graph.quant",
        "cvm quantize model/ -i data.npz -o quantised/graph.quant --write-weights --weight-bits 4 --method mse",
    ),
)
