"""The functions of the public surface: compile a model, load a program, run one op."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError, Invalid, Location
from cvm.program.model import Program

__all__ = ["compile", "load", "run_op"]


def compile(
    path: str | PathLike[str], quant: str | PathLike[str] | Literal[False] | None = None, optimize: bool = True
) -> Program:
    """The integer program of an NNEF model: a folder, an archive of one, or a document.

    ``quant`` is a file of quantisation information to use in place of the model's own graph.quant; False: none.
    ``optimize`` changes no code of any output, state or tensor of the document (docs/optimize.md); without it, the
    program is the one that the lowering rules give. Raises `CvmError` with the file, line and column of what is wrong.
    """
    from cvm.frontends import nnef
    from cvm.frontends.nnef.container import DOCUMENT
    from cvm.lowering import lower
    from cvm.program.optimize import optimize as optimized

    graph = nnef.load(path, quant)
    try:
        program = lower(graph)
        return optimized(program) if optimize else program
    except CvmError as error:
        file = os.path.join(path, DOCUMENT) if os.path.isdir(path) else os.fspath(path)
        raise error.at(file=file) from None


def load(path: str | PathLike[str]) -> Program:
    """The program in a file, decoded and verified. Raises `CvmError` with the file, and OSError."""
    from cvm.program.files import load as load_program

    return load_program(path)


def run_op(
    op: str,
    arrays: Sequence[npt.ArrayLike],
    attributes: Mapping[str, Any] | None = None,
    executor: str = "numpy",
) -> list[npt.NDArray[np.int32]]:
    """The outputs of one op on integer arrays, which count with their true values, like constants.

    Values of any integer dtype are taken that int32 holds, int64 for a parameter (`requantize`). Raises `Invalid`
    where an array, an attribute or a constraint of the op is violated.
    """
    from cvm import ops
    from cvm.executors import create
    from cvm.program.build import ProgramBuilder
    from cvm.program.model import Output
    from cvm.program.verifier import verify

    declaration = ops.get(op)
    items = [_integers(op, place, array) for place, array in enumerate(arrays)]
    kinds = declaration.input_kinds(len(items))
    builder = ProgramBuilder()
    names = [
        builder.constant(array, f"{op}.{place}", kinds[place] if place < len(kinds) else "tensor")
        for place, array in enumerate(items)
    ]
    results = builder.add(op, names, attributes)
    program = builder.build([Output(name, name) for name in results])
    values = create(executor, verify(program)).run({}, {}).values
    return [values[name] for name in results]


def _integers(op: str, place: int, array: npt.ArrayLike) -> npt.NDArray[Any]:
    where = Location(op=op, tensor=f"input {place}")
    try:
        items = np.asarray(array)
    except (ValueError, TypeError, OverflowError) as error:
        raise Invalid("input.type", f"expected an array of integers: {error}", where) from None
    if items.dtype.kind not in "iu":
        raise Invalid("input.type", f"expected an array of integers, found dtype {items.dtype}", where)
    if items.size == 0 or items.ndim == 0:
        found = list(items.shape)
        raise Invalid("input.shape", f"expected at least one dimension and one element, found shape {found}", where)
    if int(items.max()) > np.iinfo(np.int64).max:
        raise Invalid("input.code", f"expected integers of 64 bits, found {int(items.max())}", where)
    return items
