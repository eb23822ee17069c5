"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

__all__ = [
    "BitOrder",
    "CompatMode",
    "Cycles",
    "ExecutorName",
    "Inputs",
    "Json",
    "Model",
    "NoOptimize",
    "Params",
    "Threads",
    "Variant",
    "one_of",
]

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]

Model: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="PROGRAM", help="A program file, or an NNEF model (folder, archive or document) to compile on the way."
    ),
]

NoOptimize: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--no-optimize", help="Leave the program of a model as the lowering rules give it. No code depends on it."
    ),
]

Inputs: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--input",
        "-i",
        metavar="[NAME=]FILE[:MEMBER]",
        help="An input: a .npy file, a member of a .npz file, or an NNEF .dat file. NAME may be left out where it is "
        "clear; a .npz file without NAME and MEMBER gives all inputs by their names. Integers are codes, floats are "
        "real numbers. May be repeated.",
    ),
]

Cycles: TypeAlias = Annotated[
    bool,
    typer.Option("--cycles", help="Inputs have a cycle axis, before the tensor's axes: state is kept along it."),
]


def one_of(*words: str) -> Callable[[str], str]:
    """A parser of one of several words."""

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
        help="The end from which NNEF .dat files fill a byte with items that are no whole bytes: the least significant "
        "bit, or the most significant. The format does not say.",
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
        "--params", metavar="FILE", help="The parameters of a model of cvm-runtime; MODEL is its graph (JSON) then."
    ),
]


CompatMode: TypeAlias = Annotated[
    Literal["correct", "cvm-1"],
    typer.Option(
        "--compat",
        metavar="correct|cvm-1",
        parser=one_of("correct", "cvm-1"),
        help="What a model of cvm-runtime means: what its ops should compute, or what that library computes.",
    ),
]

ExecutorName: TypeAlias = Annotated[
    str | None, typer.Option("--executor", metavar="NAME", help="The executor; see `cvm doctor`.")
]

Threads: TypeAlias = Annotated[
    int | None, typer.Option("--threads", min=1, metavar="N", help="Threads for the executor; the bytes are the same.")
]
