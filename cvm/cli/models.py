"""PROGRAM and MODEL on the command line: a program file, or a model that is compiled on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cvm.cli.failures import Usage
from cvm.cli.output import working
from cvm.errors import CvmError, Invalid, Location
from cvm.formats import diagnosed, model_format

if TYPE_CHECKING:
    from cvm.frontends.nnef import BitOrder
    from cvm.graph import QuantizedGraph
    from cvm.program.verifier import VerifiedProgram

__all__ = ["is_program", "open_graph", "open_program"]

_MAGIC = b"\x93\xabcvm-program"


def open_program(
    path: Path, no_optimize: bool = False, bit_order: BitOrder = "lsb", expect_digest: str | None = None
) -> VerifiedProgram:
    """The verified program of a program file or a model; ``bit_order`` is that of NNEF tensor files.

    ``no_optimize`` is for a model alone; ``expect_digest`` is the digest that the program must have.
    """
    from cvm.program.files import require_digest

    with working("reading"):
        verified = _opened(path, no_optimize, bit_order)
    require_digest(verified.program, expect_digest, str(path))
    return verified


def _opened(path: Path, no_optimize: bool, bit_order: BitOrder) -> VerifiedProgram:
    from cvm.api import compile
    from cvm.program.files import load_verified
    from cvm.program.verifier import verify

    try:
        if path.suffix == ".cvm" or _is_program(path):
            if no_optimize:
                raise Usage("--no-optimize is for a model that is compiled on the way; a program runs as it is")
            try:
                return load_verified(path)
            except CvmError as error:
                raise diagnosed(error, path, "a program of cvm (.cvm)", ("program",)) from None
        if path.suffix == ".json":
            raise Usage(f"a model of cvm-runtime is compiled first: cvm compile {path} --params FILE -o OUT.cvm")
        return verify(compile(path, optimize=not no_optimize, bit_order=bit_order))
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise Invalid("program.unreadable", message, Location(str(path))) from None


def open_graph(
    path: Path,
    quant: Path | None = None,
    bit_order: BitOrder = "lsb",
    shapes: Mapping[str, Sequence[int]] | None = None,
    ranges: Mapping[str, tuple[int, int]] | None = None,
    states: Mapping[str, str] | None = None,
) -> QuantizedGraph:
    """The graph of a model. ``quant`` is for NNEF alone; ``shapes``, ``ranges`` and ``states`` are for ONNX alone.

    Raises `Usage` for an option of another format, and the errors of the front ends.
    """
    kind = model_format(path)
    if kind != "nnef" and quant is not None:
        raise Usage("--quant is for an NNEF model: others have their own quantisation")
    if kind != "onnx" and (shapes or ranges or states):
        raise Usage("--input-shape, --input-range and --state are for a model of ONNX")
    if kind == "onnx":
        from cvm.frontends import onnx

        return onnx.load(
            path, {name: tuple(shape) for name, shape in (shapes or {}).items()}, ranges, states=states
        ).graph
    if kind == "tflite":
        from cvm.frontends import tflite

        return tflite.load(path).graph
    from cvm.frontends import nnef

    return nnef.load(path, quant, bit_order=bit_order)


def _is_program(path: Path) -> bool:
    """Whether a regular file begins as a program does."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def is_program(path: Path) -> bool:
    """Whether `open_program` reads a path as a program file, not as a model."""
    return path.suffix == ".cvm" or _is_program(path)
