"""``cvm quantize``: make an integer program or a quantisation file from a model with float weights and data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

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
from cvm.cli.output import narrated, show, working, write_file
from cvm.cli.quantised import choices_document, render, tensor_document, widened_document
from cvm.cli.quantize_options import (
    Bits,
    BitsOf,
    CorrectBias,
    Equalize,
    FloatModel,
    FormOfQuantizers,
    MaxBytes,
    Method,
    OutputBits,
    Percentile,
    PerChannel,
    QuantizedFile,
    Random,
    RandomRange,
    Seed,
    TargetSqnr,
    WeightBits,
    WriteWeights,
)
from cvm.errors import Invalid
from cvm.formats import model_format
from cvm.records import dataclass

if TYPE_CHECKING:
    from cvm.arrays import Array
    from cvm.calibration import Calibration, Choice, Form, RangeMethod, Settings
    from cvm.formats import ModelFormat
    from cvm.graph import QuantizedGraph
    from cvm.quantizing import Quantized

__all__ = ["COMMAND"]

_METHODS = ("minmax", "percentile", "mse", "entropy")
_CHOICES = ("auto", "on", "off")
_LONGEST_NUMBER = 4
_FORMS = ("linear", "zero-point", "logarithmic")
_FILE, _PROGRAM, _ONNX = "graph.quant", ".cvm", ".onnx"


def command(
    model: FloatModel,
    inputs: Inputs = [],  # noqa: B006  (Typer makes a list of its own from it)
    output: QuantizedFile = None,
    bits: Bits = 8,
    weight_bits: WeightBits = None,
    bits_of: BitsOf = [],  # noqa: B006
    per_channel: PerChannel = None,
    method: Method = None,
    percentile: Percentile = 99.99,
    form: FormOfQuantizers = "linear",
    output_bits: OutputBits = None,
    equalize: Equalize = None,
    correct_bias: CorrectBias = None,
    random: Random = None,
    seed: Seed = 0,
    random_range: RandomRange = "-1,1",
    target_sqnr: TargetSqnr = None,
    max_bytes: MaxBytes = None,
    write_weights: WriteWeights = False,
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
                document |= {"bits": settings.bits, "widened": widened_document(made)}
    document["tensors"] = [tensor_document(item) for item in found.tensors]
    if trials or found.rescaled or found.corrected:
        document |= choices_document(settings, trials, found)
    if data.random is not None:
        document["data"] = data.said(runs)
    if output is not None:
        document |= (
            _written(found, output, whole)
            if output.suffix not in (_PROGRAM, _ONNX)
            else _of_program(*_content(made, output, how), feeds, data, output)
        )
    return show(document, lambda console: render(console, document), as_json)


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
        "tensors": [tensor_document(item) for item in made.calibration.tensors],
        **choices_document(made.settings, made.trials, made.calibration),
        "remedies": list(made.remedies),
        "widened": widened_document(made),
    }
    if output is not None and output.suffix == _ONNX and model_format(model) == "onnx":
        shapes, ranges = input_shapes(wishes[0]), input_ranges(wishes[1])
        whole, made = quantized_onnx(
            model, made, **how, input_shapes=shapes, input_ranges=ranges,
            states=input_states(wishes[2]), outputs=wishes[3],
        )  # fmt: skip
        content: tuple[bytes, ...] = (whole,)
    else:
        made, content = _content(made, output, how)
    document |= _of_program(made, content, feeds, data, output)
    return show(document, lambda console: render(console, document), as_json)


def _content(made: Quantized, output: Path | None, how: Mapping[str, Any]) -> tuple[Quantized, tuple[bytes, ...]]:
    """The program; if a model of ONNX is written, the program of that model. And the bytes to write, in pieces."""
    from cvm.quantizing import graph_onnx

    if output is None or output.suffix != _ONNX:
        return made, made.program.pieces()
    content, again = graph_onnx(made, **how)
    return again, (content,)


def _of_program(
    made: Quantized, content: tuple[bytes, ...], feeds: Mapping[str, Array], data: _Data, output: Path | None
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
        write_file(output, *content)
        document["file"] = {"path": str(output), "bytes": sum(map(len, content))}
    return document


def _written(found: Calibration, output: Path, whole: bool) -> dict[str, Any]:
    if whole:
        found.save(output.parent)
        return {"folder": str(output.parent)}
    data = found.text.encode()
    write_file(output, data)
    return {"file": {"path": str(output), "bytes": len(data)}}


COMMAND = Command(
    command,
    (
        "cvm quantize model.onnx -i data.npz -o model.cvm",
        "cvm quantize model.tflite --random 16 -o model.cvm --bits 16",
        "cvm quantize model/ -i data.npz -o graph.quant",
        "cvm quantize model/ -i data.npz -o quantised/graph.quant --write-weights --weight-bits 4 --method mse",
    ),
)
