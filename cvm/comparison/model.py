"""A model of ONNX or TFLite, opened for a comparison: its exact codes, end to end and operator by operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.comparison.severed import exposed, made, seen, severed
from cvm.compiling import program_of
from cvm.errors import CvmError, Unsupported
from cvm.executors import choose_executor, create
from cvm.executors.base import Executor
from cvm.formats import model_format
from cvm.frontends import onnx, tflite
from cvm.frontends.common.places import Place
from cvm.frontends.onnx.reading import read_model as read_onnx
from cvm.frontends.tflite.reading import read_model as read_tflite
from cvm.graph import QuantizedGraph, makers, names_in
from cvm.inputs import Feed
from cvm.limits import DEFAULT
from cvm.program.verifier import VerifiedProgram, verify
from cvm.records import dataclass

__all__ = ["FileInput", "Model", "Operator", "Tensors", "file_inputs", "in_file", "in_graph", "opened"]

Tensors = Mapping[str, npt.NDArray[Any]]
"""The integers of tensors, by the name that the file has for them, in the layout of the file."""


_QUANTISING = ("QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of the file."""

    op: str
    label: str
    """How messages call it."""


@dataclass(frozen=True, slots=True)
class FileInput:
    """An input of the file: its name, and the type of its items."""

    name: str
    dtype: np.dtype[Any]


@dataclass(frozen=True, eq=False, slots=True)
class Model:
    """A model, and the programs that compute its tensors."""

    path: Path
    kind: str
    """The format: "onnx" or "tflite"."""
    graph: QuantizedGraph
    places: tuple[Place, ...]
    """The quantised tensors that operators compute, in the order of the file."""
    inputs: Mapping[str, FileInput]
    """How the file wants each input of the programs."""
    operators: Mapping[str, tuple[Operator, ...]]
    """For each place, by its name: the operators of the file that compute it from the places before it."""
    whole: VerifiedProgram
    """From the model's inputs to the codes of all places."""
    parts: VerifiedProgram
    """From the inputs and an engine's codes to the codes that its operators should have made of them."""
    _executors: tuple[Executor, Executor]

    def exact(self, feed: Feed) -> dict[str, npt.NDArray[Any]]:
        """The exact codes of every place for the codes of the inputs."""
        return self._run(0, feed)

    def follows(self, feed: Feed, engine: Tensors) -> dict[str, npt.NDArray[Any]]:
        """The codes of every place that follow exactly from the tensors that an engine had just before it.

        ``engine`` has the integers of all places. They must lie in the ranges of the quantisers.
        """
        given = dict(feed)
        for number, place in enumerate(self.places):
            shape = self.graph.tensors[place.tensor].shape or (1,)
            given[seen(number)] = in_graph(engine[place.name], place).reshape(shape).astype(np.int32)
        return self._run(1, given)

    def _run(self, which: int, feed: Feed) -> dict[str, npt.NDArray[Any]]:
        executor = self._executors[which]
        program = (self.whole, self.parts)[which].program
        values = executor.run({item.value.name: feed[item.value.name] for item in program.inputs}, {})
        held = {output.name: values.values[output.value] for output in program.outputs}
        return {place.name: in_file(held[made(n)], place) for n, place in enumerate(self.places)}


def in_graph(array: npt.NDArray[Any], place: Place) -> npt.NDArray[Any]:
    """A tensor of the file in the layout of the graph."""
    return np.moveaxis(array, -1, 1) if place.planar else array


def in_file(array: npt.NDArray[Any], place: Place) -> npt.NDArray[Any]:
    """A tensor of the graph in the layout of the file."""
    return np.moveaxis(array, 1, -1) if place.planar else array


def opened(path: Path, names: Sequence[str] | None = None, executor: str | None = None) -> Model:
    """Open a quantised model. ``names`` are the tensors that the engine shows, by default all.

    Raises `Unsupported` (``compare.format``) for another format and (``compare.tensors``) if no tensor is left, and the
    errors of the front ends and of lowering.
    """
    kind = model_format(path)
    loaded, operators = _loaded(path, kind)
    places = tuple(_distinct(loaded.places if names is None else [p for p in loaded.places if p.name in set(names)]))
    if not places:
        raise Unsupported("compare.tensors", "no quantised tensor of the model is computed by an operator")
    try:
        programs = [verify(program_of(make(loaded.graph, places))) for make in (exposed, severed)]
    except CvmError as error:
        raise loaded.explained(error).at(file=str(path)) from None
    name = choose_executor(executor)[0]
    executors = (create(name, programs[0], None), create(name, programs[1], None))
    called = _called(operators, loaded.graph, places)
    inputs = file_inputs(path, kind, loaded.graph)
    return Model(path, kind, loaded.graph, places, inputs, called, programs[0], programs[1], executors)


def file_inputs(path: Path, kind: str, graph: QuantizedGraph) -> dict[str, FileInput]:
    """How the file wants the inputs of its graph."""
    if kind == "onnx":
        file = read_onnx(path.read_bytes(), str(path.parent), DEFAULT)
        return {
            item.name: FileInput(item.name, np.dtype(item.data_type))
            for item in file.inputs
            if item.name in graph.inputs
        }
    subgraph = read_tflite(path.read_bytes(), DEFAULT).subgraphs[0]
    tensors = [subgraph.tensors[index] for index in subgraph.inputs]
    return {
        name: FileInput(tensor.name, np.dtype(tensor.data_type))
        for name, tensor in zip(graph.inputs, tensors, strict=True)
    }


def _loaded(path: Path, kind: str) -> tuple[onnx.Loaded | tflite.Loaded, dict[str, Operator]]:
    """The graph of a file, and the operator that each of its tensors belongs to. Raises `Unsupported`."""
    if kind == "onnx":
        found = onnx.load(path)
        origins = {name: node.origin or node for name, node in found.nodes.items()}
        return found, {name: Operator(node.op, node.label) for name, node in origins.items()}
    if kind == "tflite":
        read = tflite.load(path)
        return read, {name: Operator(operator.op, operator.label) for name, operator in read.operators.items()}
    message = f"an engine reads models of ONNX or TFLite, and this is {kind}; `cvm check` compares executors"
    raise Unsupported("compare.format", message)


def _called(
    operators: Mapping[str, Operator], graph: QuantizedGraph, places: Sequence[Place]
) -> dict[str, tuple[Operator, ...]]:
    """The operators between each place and the places before it, without those that only quantise if it has others."""
    sources, borders = makers(graph.operations), {place.tensor for place in places}
    called = {}
    for place in places:
        found: dict[Operator, None] = {}
        pending, known = [place.tensor], {place.tensor}
        while pending:
            name = pending.pop()
            if name in operators:
                found[operators[name]] = None
            if name not in sources or (name in borders and name != place.tensor):
                continue
            for operand in sources[name].inputs.values():
                fresh = [item for item in names_in(operand) if item not in known]
                known.update(fresh)
                pending += [item for item in fresh if item not in borders]
        proper = [item for item in found if item.op not in _QUANTISING]
        called[place.name] = tuple(reversed(proper or list(found)))
    return called


def _distinct(places: Sequence[Place]) -> list[Place]:
    """The places without those whose name another place has before it."""
    found: dict[str, Place] = {}
    for place in places:
        found.setdefault(place.name, place)
    return list(found.values())
