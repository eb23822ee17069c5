"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from cvm.cli.failures import Usage

if TYPE_CHECKING:
    from cvm.audit import Judging

__all__ = [
    "BitOrder",
    "Codes",
    "CompatMode",
    "CompileCompat",
    "Cycles",
    "ExecutorName",
    "ExpectDigest",
    "InputRange",
    "InputShape",
    "Inputs",
    "Json",
    "Judge",
    "Model",
    "NoOptimize",
    "OnlyOutputs",
    "OpSet",
    "OutOfRangeRule",
    "Params",
    "Salt",
    "Threads",
    "Variant",
    "input_ranges",
    "input_shapes",
    "input_states",
    "judging",
    "one_of",
]

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]

Model: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="PROGRAM",
        help="A program file, or a model to compile on the way: of NNEF (folder, archive, document), ONNX or TFLite.",
    ),
]

NoOptimize: TypeAlias = Annotated[
    bool,
    typer.Option("--no-optimize", help="Do not optimise the program of a model. This changes no code of a tensor."),
]

OpSet: TypeAlias = Annotated[
    int,
    typer.Option(
        "--op-set",
        metavar="1|2",
        min=1,
        max=2,
        help="The latest version of the op-set whose ops the program may use. With 2, transformers take far fewer ops. "
        "Codes that are exact stay the same; those of a softmax come nearer to the exact ones.",
    ),
]

Inputs: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--input",
        "-i",
        metavar="[NAME=]FILE[:MEMBER]",
        help="An input: a .npy file, a member of a .npz file, or an NNEF .dat file. NAME may be left out if it is "
        "clear; a .npz file without NAME and MEMBER gives all inputs by their names. Floats are real numbers; integers "
        "for an input with a quantiser need --codes. May be repeated.",
    ),
]

Codes: TypeAlias = Annotated[
    bool, typer.Option("--codes", help="Take integers for inputs with a quantiser as codes; else they are refused.")
]

Cycles: TypeAlias = Annotated[
    bool,
    typer.Option("--cycles", help="Inputs have a cycle axis before the tensor's axes; the state goes on along it."),
]


def one_of(*words: str) -> Callable[[str], str]:
    """A parser of an option that accepts one of several words."""

    def parse(word: str) -> str:
        if word not in words:
            raise typer.BadParameter(f"expected {' or '.join(words)}, found {word!r}")
        return word

    return parse


BitOrder: TypeAlias = Annotated[
    Literal["lsb", "msb"],
    typer.Option(
        "--bit-order",
        metavar="lsb|msb",
        parser=one_of("lsb", "msb"),
        help="Where the items of an NNEF .dat file begin within a byte, if they are no whole bytes: at the least "
        "significant bit, or at the most significant. The format does not say.",
    ),
]

OutOfRangeRule: TypeAlias = Annotated[
    Literal["refuse", "warn", "clamp"],
    typer.Option(
        "--out-of-range",
        metavar="refuse|warn|clamp",
        parser=one_of("refuse", "warn", "clamp"),
        help="For real numbers beyond the range of an input: warn and clamp take the nearest code, refuse is an error.",
    ),
]

Variant: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--variant",
        metavar="EXTENSION",
        help="The version of the weights to use where a variable has one: the file LABEL.dat.EXTENSION.",
    ),
]

Params: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--params", metavar="FILE", help="The parameters of a model of cvm-runtime; MODEL is then its graph (JSON)."
    ),
]


InputShape: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--input-shape",
        metavar="NAME=N,N,..",
        help="The shape of an input, for a model of ONNX that leaves extents open; without it an open first extent is "
        "1. May be repeated.",
    ),
]

InputRange: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--input-range",
        metavar="NAME=LO,HI",
        help="Promises that an integer input of a model of ONNX stays within LO and HI: proofs start from "
        "this range, and every run checks it. May be repeated.",
    ),
]


States: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--state",
        metavar="NAME=OUTPUT",
        help="An input of a model of ONNX that the program keeps as state: zero before the first run, and the value "
        "of OUTPUT after each run. May be repeated.",
    ),
]


OnlyOutputs: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--only-output",
        metavar="NAME",
        help="An output of a model of ONNX that the program has; without this option it has all. What becomes state "
        "is computed in any case. May be repeated.",
    ),
]


def input_states(words: Sequence[str]) -> dict[str, str]:
    """The output that each ``--state`` option assigns to an input, by the name of the input. Raises `Usage`."""
    found: dict[str, str] = {}
    for word in words:
        name, _, output = word.partition("=")
        if not name or not output or name in found:
            raise Usage(f"expected --state NAME=OUTPUT, once for each input, found {word!r}")
        found[name] = output
    return found


def _numbers(words: Sequence[str], option: str, metavar: str) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, _, text = word.rpartition("=")
        parts = text.split(",")
        if not name or name in found or not all(re.fullmatch("-?[0-9]{1,19}", part) for part in parts):
            raise Usage(f"expected {option} {metavar}, once for each input, found {word!r}")
        found[name] = tuple(map(int, parts))
    return found


def input_shapes(words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The shapes that options give, by the name of the input. Raises `Usage`."""
    return _numbers(words, "--input-shape", "NAME=N,N,..")


def input_ranges(words: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The ranges that options promise, by the name of the input. Raises `Usage`."""
    found = _numbers(words, "--input-range", "NAME=LO,HI")
    for name, ends in found.items():
        if len(ends) != 2:
            raise Usage(f"expected --input-range {name}=LO,HI, found {len(ends)} numbers")
    return {name: (ends[0], ends[1]) for name, ends in found.items()}


CompatMode: TypeAlias = Annotated[
    Literal["correct", "cvm-1"],
    typer.Option(
        "--compat",
        metavar="correct|cvm-1",
        parser=one_of("correct", "cvm-1"),
        help="What a model of cvm-runtime means: what its ops should compute, or what that library computes.",
    ),
]

CompileCompat: TypeAlias = Annotated[
    Literal["correct", "cvm-1", "tflite-reference"],
    typer.Option(
        "--compat",
        metavar="correct|cvm-1|tflite-reference",
        parser=one_of("correct", "cvm-1", "tflite-reference"),
        help="What a model of cvm-runtime or TFLite means: what its ops should compute, or what that library (cvm-1) "
        "or the reference kernels of TFLite compute.",
    ),
]

ExecutorName: TypeAlias = Annotated[
    str | None, typer.Option("--executor", metavar="NAME", help="The executor; `cvm doctor` lists them.")
]

ExpectDigest: TypeAlias = Annotated[
    str | None,
    typer.Option("--expect-digest", metavar="HEX", help="The digest that the program must have."),
]

Threads: TypeAlias = Annotated[
    int | None, typer.Option("--threads", min=1, metavar="N", help="Threads for the executor; the bytes are the same.")
]

Judge: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--judge",
        min=0,
        metavar="N",
        help="FORMAL judges N elements in all, spread over all tensors; 0: none. By default, as many as it computes in "
        "a fifth of the time of the runs, or in 50 ms (5 ms for each receipt of a folder) if that is more.",
    ),
]

Salt: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--salt",
        metavar="HEX",
        help="The salt that decides which elements are judged; by default a fresh one, which nobody can foresee. The "
        "printed salt and --judge N judge the same elements again.",
    ),
]


def judging(count: int | None, salt: str | None, floor: float | None = None) -> Judging:
    """The judging that ``--judge`` and ``--salt`` ask for; ``floor`` is the least budget in seconds. Raises `Usage`."""
    from cvm.audit import Judging
    from cvm.audit.spot_check import FLOOR, fresh_salt
    from cvm.errors import Invalid

    try:
        return Judging(fresh_salt() if salt is None else salt, count, FLOOR if floor is None else floor)
    except Invalid as error:
        raise Usage(f"--salt: {error.message}") from None
