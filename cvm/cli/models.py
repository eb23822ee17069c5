"""PROGRAM on the command line: a program file, or a model that is compiled on the way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cvm.errors import Invalid, Location

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["is_program", "macs", "open_program"]

_MAGIC = b"\x93\xabcvm-program"


def open_program(path: Path) -> VerifiedProgram:
    """The verified program in a file, or that of an NNEF model."""
    from cvm.api import compile
    from cvm.program.files import load_verified
    from cvm.program.verifier import verify

    try:
        return load_verified(path) if is_program(path) else verify(compile(path))
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise Invalid("program.unreadable", message, Location(str(path))) from None


def is_program(path: Path) -> bool:
    """Whether a path is that of a program: by its name, or as a regular file that begins as a program does."""
    if path.suffix == ".cvm":
        return True
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def macs(verified: VerifiedProgram) -> list[int]:
    """Multiplications of elements with weights, node by node: those of conv2d and dense."""
    counts = []
    for node, call in zip(verified.program.nodes, verified.calls, strict=True):
        outputs = 1
        for extent in node.outputs[0].shape:
            outputs *= extent
        terms = 0
        if node.op in ("conv2d", "dense"):
            terms = 1
            for extent in call.shapes[1][1:]:
                terms *= extent
        counts.append(outputs * terms)
    return counts
