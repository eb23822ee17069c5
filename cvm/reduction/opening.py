"""A file and data as a network that shrinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from cvm.comparison.model import FileInput, file_inputs
from cvm.comparison.samples import arranged
from cvm.compiling import program_of
from cvm.errors import CvmError, Invalid, Location, Unsupported
from cvm.formats import diagnosed, model_format, recognised
from cvm.frontends import nnef
from cvm.inputs import Intake, arrange
from cvm.program import Program
from cvm.program.files import load_verified
from cvm.records import dataclass
from cvm.reduction.graph_form import GraphForm
from cvm.reduction.network import Array, Feed, Network
from cvm.reduction.onnx_form import OnnxForm
from cvm.reduction.program_form import ProgramForm

__all__ = ["AnyForm", "Subject", "opened"]

AnyForm: TypeAlias = ProgramForm | GraphForm | OnnxForm


@dataclass(frozen=True, eq=False, slots=True)
class Subject:
    """A model that shall become smaller, without data yet."""

    path: Path
    form: AnyForm
    program: Program
    """Its inputs say what data the model takes."""
    wishes: Mapping[str, FileInput] = field(default_factory=dict)
    """How a file of ONNX wants its inputs."""

    def with_data(self, arrays: Mapping[str, Any], codes: bool = False, cycles: bool = False) -> Network:
        """The network with data: each array has samples along a further first axis, or cycles if that is said.

        Raises `Invalid` as `cvm.inputs.arrange` does, and (``reduce.cycles``) for data of a program with state that has
        no cycles.
        """
        if isinstance(self.form, OnnxForm):
            found = arranged(self.program, self.wishes, arrays, codes).inputs
            count = len(next(iter(found.values())))
            return self.form.network(tuple({name: array[n] for name, array in found.items()} for n in range(count)))
        if self.program.state and not cycles:
            message = "a program with state is run in cycles, one run after the other: give --cycles"
            raise Invalid("reduce.cycles", message, Location(str(self.path)))
        _, samples = arrange(self.program, arrays, cycles, Intake(True, "clamp"))
        runs: list[Feed] = [feed for sample in samples[: 1 if cycles else None] for feed in sample]
        return self.form.network(tuple(runs))

    def drawn(self, count: int, seed: int) -> Network:
        """The network with uniformly drawn codes: ``count`` samples, or cycles if the program has state."""
        random = np.random.default_rng(seed)
        arrays: dict[str, Array] = {}
        for item in self.program.inputs:
            value = item.value
            arrays[value.name] = random.integers(value.lo, value.hi, (count, *value.shape), np.int32, endpoint=True)
        return self.with_data(arrays, codes=True, cycles=bool(self.program.state))


def opened(path: Path) -> Subject:
    """Open a program, or a quantised model of NNEF or ONNX.

    Raises `Unsupported` (``reduce.format``) for a model of TFLite, `Invalid` (``format.other``) for another file, and
    the errors of the readers and of lowering.
    """
    found = recognised(path)
    if path.suffix == ".cvm" or (found is not None and found.key == "program"):
        try:
            program = load_verified(path).program
        except CvmError as error:
            raise diagnosed(error, path, "a program of cvm (.cvm)", ("program",)) from None
        except OSError as error:
            message = f"cannot be read: {error.strerror or error}"
            raise Invalid("program.unreadable", message, Location(str(path))) from None
        return Subject(path, ProgramForm(program), program)
    kind = model_format(path)
    if kind == "tflite":
        message = "a model of TFLite is not reduced as a file, but its program is: `cvm compile MODEL -o model.cvm`"
        raise Unsupported("reduce.format", message, Location(str(path)))
    if kind == "onnx":
        onnx = OnnxForm(path)
        try:
            return Subject(path, onnx, onnx.program(), file_inputs(path, kind, onnx.loaded.graph))
        except CvmError as error:
            raise onnx.loaded.explained(error).at(file=str(path)) from None
    graph = nnef.load(path)
    form = GraphForm(graph)
    try:
        return Subject(path, form, program_of(graph))
    except CvmError as error:
        raise error.at(file=str(path)) from None
