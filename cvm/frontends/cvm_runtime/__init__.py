"""The front end for models of the C++ library cvm-runtime, which it reads as programs.

* `load` reads a model, a graph in JSON and its ``.params`` file; `loads` reads it from bytes. Every rule of the library
  is checked, and also those whose absence lets the library read or write beyond a tensor.
* `load_model` and `read_model` read the graph alone, which suffices to compute the library's costs.

`cvm.export.cvm_runtime` writes programs as such models. docs/cvm-runtime.md says what is checked, where cvm differs
from the library, and what the two ``compat`` modes mean.
"""

from __future__ import annotations

import hashlib
import os

from cvm.errors import CvmError, Invalid, LimitExceeded, Location
from cvm.frontends.cvm_runtime.description import described
from cvm.frontends.cvm_runtime.graph import Graph, read_graph
from cvm.frontends.cvm_runtime.importer import Compat, check_parameters, to_program
from cvm.frontends.cvm_runtime.inference import Inferred, infer
from cvm.frontends.cvm_runtime.interface import ByteOrder, Interface, interface
from cvm.frontends.cvm_runtime.metering import Metering, meter
from cvm.frontends.cvm_runtime.parameters import Parameters, read_parameters, write_parameters
from cvm.frontends.cvm_runtime.storage import check_storage
from cvm.limits import DEFAULT, Limits
from cvm.program import Program, Provenance
from cvm.program.reading import read_bytes
from cvm.records import dataclass

__all__ = [
    "ByteOrder",
    "Compat",
    "Graph",
    "Imported",
    "Interface",
    "Metering",
    "Model",
    "Parameters",
    "described",
    "load",
    "load_model",
    "loads",
    "read_model",
    "read_parameters",
    "write_parameters",
]


@dataclass(frozen=True, eq=False, slots=True)
class Model:
    """A checked model without its parameters: its graph, its costs in the library, and its input and output bytes."""

    graph: Graph
    inferred: Inferred
    metering: Metering
    interface: Interface


@dataclass(frozen=True, eq=False, slots=True)
class Imported:
    """A model and the program that it became. ``notes`` lists the deviations that were tolerated."""

    model: Model
    program: Program
    compat: Compat
    notes: tuple[str, ...]


def read_model(text: bytes | str, compat: Compat = "correct", limits: Limits = DEFAULT) -> Model:
    """Read a model without its parameters. Raises what `loads` raises."""
    correct = compat == "correct"
    graph = read_graph(text, limits, known_postprocess=correct)
    inferred = infer(graph, sound=correct)
    check_storage(graph)
    return Model(graph, inferred, meter(inferred), interface(inferred))


def loads(
    text: bytes | str,
    parameters: bytes,
    compat: Compat = "correct",
    limits: Limits = DEFAULT,
    source: str = "",
) -> Imported:
    """The program of a model, from the bytes of its two files.

    Raises `Malformed` for bytes that are not of the format, `Invalid` for a model that breaks a rule, `Unsupported` for
    one whose results are not defined under ``cvm-1``, and `LimitExceeded`.
    """
    return _imported(text, parameters, read_parameters(parameters, limits), compat, limits, source)


def _imported(
    text: bytes | str, data: bytes, parameters: Parameters, compat: Compat, limits: Limits, source: str
) -> Imported:
    """The program of a model; ``parameters`` has been read from the bytes ``data``."""
    if compat not in ("correct", "cvm-1"):
        raise Invalid("cvm_runtime.compat", f"expected correct or cvm-1, found {compat!r}")
    model = read_model(text, compat, limits)
    check_parameters(model.graph, parameters)
    graph = text.encode("utf-8") if isinstance(text, str) else text
    digest = hashlib.sha256(hashlib.sha256(graph).digest() + hashlib.sha256(data).digest()).hexdigest()
    provenance = Provenance(f"cvm, cvm-runtime {compat}", source, digest)
    program = to_program(model.inferred, parameters, model.interface, compat, provenance, limits)
    trailing = f"{parameters.trailing} bytes after the last parameter were ignored"
    return Imported(model, program, compat, (trailing,) if parameters.trailing else ())


def load(
    model: str | os.PathLike[str],
    parameters: str | os.PathLike[str],
    compat: Compat = "correct",
    limits: Limits = DEFAULT,
) -> Imported:
    """The program of a model, from its two files. Raises what `loads` raises, with the file."""
    text = _read(model, limits.text_bytes, "graph")
    data = _read(parameters, limits.program_bytes, "params")
    try:
        arrays = read_parameters(data, limits)
    except CvmError as error:
        raise error.at(file=os.fspath(parameters)) from None
    try:
        return _imported(text, data, arrays, compat, limits, os.path.basename(model))
    except CvmError as error:
        raise error.at(file=os.fspath(parameters if ".params." in error.code else model)) from None


def load_model(path: str | os.PathLike[str], compat: Compat = "correct", limits: Limits = DEFAULT) -> Model:
    """A model without its parameters, from its file. Raises what `loads` raises, with the file."""
    text = _read(path, limits.text_bytes, "graph")
    try:
        return read_model(text, compat, limits)
    except CvmError as error:
        raise error.at(file=os.fspath(path)) from None


def _read(path: str | os.PathLike[str], limit: int, what: str) -> bytes:
    try:
        return read_bytes(path, limit, f"cvm_runtime.{what}")
    except CvmError as error:
        raise error.at(file=os.fspath(path)) from None
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise Invalid("cvm_runtime.unreadable", message, Location(os.fspath(path))) from None
    except MemoryError:
        raise LimitExceeded("limit.memory", "memory is exhausted", Location(os.fspath(path))) from None
