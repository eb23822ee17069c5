"""The options of ``cvm quantize`` that no other command has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

__all__ = [
    "Bits",
    "BitsOf",
    "CorrectBias",
    "Equalize",
    "FloatModel",
    "FormOfQuantizers",
    "MaxBytes",
    "Method",
    "OutputBits",
    "PerChannel",
    "Percentile",
    "QuantizedFile",
    "Random",
    "RandomRange",
    "Seed",
    "TargetSqnr",
    "WeightBits",
    "WriteWeights",
]

FloatModel: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="A model with its weights: of NNEF (folder or archive), ONNX or TFLite (float, or quantised in part).",
    ),
]

QuantizedFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="What to write: the integer program (FILE.cvm); also a quantised model of ONNX (FILE.onnx, "
        "with QuantizeLinear and DequantizeLinear); for an NNEF model also the quantisation file (graph.quant).",
    ),
]

Random: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--random",
        metavar="N",
        min=1,
        help="Instead of data, draw N random samples. The program is exact, but its ranges are those of these samples.",
    ),
]

Seed: TypeAlias = Annotated[int, typer.Option("--seed", metavar="S", min=0, help="The seed of --random.")]

RandomRange: TypeAlias = Annotated[
    str,
    typer.Option("--random-range", metavar="LO,HI", help="The interval from which --random draws, uniformly."),
]

Bits: TypeAlias = Annotated[int, typer.Option("--bits", metavar="N", help="Bits of activations, 2 to 16.")]

BitsOf: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--bits-of",
        metavar="NAME=N",
        help="Bits of one tensor, or of those whose names fit a pattern such as '*.sum', 2 to 16. May be repeated; the "
        "last one that fits counts.",
    ),
]

WeightBits: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--weight-bits",
        metavar="N",
        help="Bits of the filters of convolutions and matrix products, 2 to 16. By default those of --bits, at most 8, "
        "and 4 for the exponents of --form logarithmic.",
    ),
]

PerChannel: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--per-channel/--per-tensor",
        help="One scale for each output channel of a filter and of its bias, or one for each filter. By default per "
        "channel for ONNX and TFLite, per tensor for NNEF.",
    ),
]

OutputBits: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--output-bits",
        metavar="N",
        help="Bits of outputs that nothing else reads, 2 to 16, for ONNX and TFLite. By default 12 in a program, and "
        "those of --bits in a quantised model of ONNX.",
    ),
]

Method: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="minmax|percentile|mse|entropy|best",
        help="How a range is chosen: all numbers; all but the largest few; least squared error; least loss of "
        "information (Kullback-Leibler). best, the default for ONNX and TFLite, takes the one of the first three that "
        "brings the outputs nearest to the floats. The default for NNEF is minmax.",
    ),
]

Equalize: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--equalize",
        metavar="auto|on|off",
        help="Rescale channels between two linear layers so that one range suits all of them: if that helps on the "
        "data (auto, the default for ONNX and TFLite), always (on), or never (off, the default for NNEF).",
    ),
]

CorrectBias: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--correct-bias",
        metavar="auto|on|off",
        help="Subtract from biases what rounding adds to the mean of each channel; auto, on and off as for --equalize.",
    ),
]

Percentile: TypeAlias = Annotated[
    float, typer.Option("--percentile", metavar="P", help="The percentage of numbers that --method percentile keeps.")
]

FormOfQuantizers: TypeAlias = Annotated[
    str,
    typer.Option(
        "--form",
        metavar="linear|zero-point|logarithmic",
        help="linear_quantize of NNEF 1.0.1, zero_point_linear_quantize of the Khronos tools, or powers of two "
        "(logarithmic_quantize) for filters and linear quantisers for all other tensors.",
    ),
]

TargetSqnr: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--target-sqnr",
        metavar="DB",
        help="Give more bits (16 to activations, 12 to filters) to the tensors that cost the outputs most, to as few "
        "as are needed for every output to have this SQNR.",
    ),
]

MaxBytes: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--max-bytes",
        metavar="N",
        min=1,
        help="The most bytes of the program file. Without --target-sqnr, as many tensors get more bits as fit; with "
        "it, a larger program is refused.",
    ),
]

WriteWeights: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--write-weights",
        help="Write the whole model into the new folder of graph.quant, with the weights as codes.",
    ),
]
