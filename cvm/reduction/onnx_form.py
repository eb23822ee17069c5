"""Models of ONNX as networks that shrink: the file's own nodes, cut at quantised tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cvm.comparison.severed import exposed, made
from cvm.compiling import program_of
from cvm.errors import CvmError, Invalid, Location, Unsupported
from cvm.executors import create
from cvm.frontends import onnx as frontend
from cvm.frontends.common.places import Place
from cvm.inputs import Intake, arrange
from cvm.program import Program, verify
from cvm.reduction.attributes import changed, less, plain, with_extent
from cvm.reduction.network import Array, Feed, Network, Node, Remembering, pruned
from cvm.writing import write_file

__all__ = ["EXTRA", "OnnxForm"]

EXTRA = "onnx"
_PLAIN = {"pads": 0, "strides": 1, "dilations": 1}
_EXTENTS = ("group", "shape", "axes_shape", "split", "output_shape")
_POOLS = ("MaxPool", "AveragePool", "QLinearAveragePool", "LpPool")
_QUANTISING = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
_BIASES = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2, "QLinearConv": 8}
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32")


class OnnxForm(Remembering):
    """The models that are made from the model in a file, which the reader has accepted.

    Raises `Unsupported`: ``reduce.extra`` without the package onnx, ``reduce.subgraph`` for nodes that hold graphs.
    """

    suffix = ".onnx"
    format = "onnx"

    def __init__(self, path: Path) -> None:
        try:
            import onnx
        except ImportError:
            message = f"models of ONNX are reduced with a package that is not installed: pip install 'cvm[{EXTRA}]'"
            raise Unsupported("reduce.extra", message) from None
        super().__init__()
        self.loaded = frontend.load(path)
        self._onnx = onnx
        self.model = onnx.load(str(path))
        for node in self.model.graph.node:
            if any(item.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for item in node.attribute):
                reason = f"{node.op_type} holds a graph of its own, and is not reduced; give the model without it"
                raise Unsupported("reduce.subgraph", reason).at(op=node.op_type, tensor=next(iter(node.output), ""))
        self.places = {place.name: place for place in self.loaded.places}

    @cached_property
    def _types(self) -> dict[str, int]:
        """The element type of each tensor of the file, as ONNX infers it."""
        try:
            inferred = self._onnx.shape_inference.infer_shapes(self.model)
        except Exception:  # the inference refuses the file, whose own annotations are left then
            inferred = self.model
        graph = inferred.graph
        known = {place.name: self._of_codes(place) for place in self.places.values()}
        listed = (*graph.value_info, *graph.input, *graph.output)
        return known | {one.name: one.type.tensor_type.elem_type for one in listed if one.type.tensor_type.elem_type}

    def _of_codes(self, place: Place) -> int:
        """The element type that holds the codes of a quantised tensor; 0 if none of one byte or two does."""
        for name in _INTEGERS[:4]:
            limits = np.iinfo(name)
            if limits.min <= place.quantizer.lo and place.quantizer.hi <= limits.max:
                return int(self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(name)))
        return 0

    def network(self, runs: tuple[Feed, ...]) -> Network:
        """The whole model as a network; the data of runs is as the file wants it."""
        graph = self.model.graph
        to_array = self._onnx.numpy_helper.to_array
        constants = {item.name: to_array(item) for item in graph.initializer}
        nodes = []
        for node in graph.node:
            attributes = {item.name: self._attribute(item) for item in node.attribute}
            if node.op_type == "Constant" and "value" in attributes:
                constants[node.output[0]] = to_array(attributes["value"])
                continue
            if node.op_type not in _POOLS:
                attributes.pop("kernel_shape", None)  # the weights say it
            nodes.append(Node(node.op_type, tuple(node.input), tuple(node.output), attributes, node))
        inputs = tuple(item.name for item in graph.input if item.name not in constants)
        outputs = tuple(item.name for item in graph.output)
        return Network(tuple(nodes), inputs, outputs, constants, tuple(map(dict, runs)))

    def _attribute(self, item: Any) -> Any:
        value = self._onnx.helper.get_attribute_value(item)
        return tuple(value) if isinstance(value, list) else value

    def starts(self, network: Network) -> Iterator[Network]:
        """The network with integer outputs in place of others: the last quantised tensors, or all of them."""
        made = [name for node in network.nodes for name in node.outputs if name in self.places]
        last = self._last(network)
        for names in (last, made):
            if names:
                yield pruned(replace(network, outputs=tuple(names)), names)

    def _last(self, network: Network) -> list[str]:
        """The quantised tensors nearest to the outputs."""
        maker = {name: node for node in network.nodes for name in node.outputs}
        found: dict[str, None] = {}
        pending = list(network.outputs)
        seen = set(pending)
        while pending:
            name = pending.pop(0)
            if name in self.places:
                found[name] = None
            elif name in maker:
                fresh = [item for item in maker[name].inputs if item not in seen]
                seen.update(fresh)
                pending += fresh
        return list(found)

    def counts(self, node: Node) -> bool:
        """See `Form`."""
        return node.op not in _QUANTISING

    def may_cut(self, name: str) -> bool:
        """See `Form`: quantised tensors, whose integers can be given."""
        return name in self.places and self._dtype(self.places[name]) is not None

    def _dtype(self, place: Place) -> np.dtype[Any] | None:
        kind = self._types.get(place.name)
        if not kind:
            return None
        dtype = np.dtype(self._onnx.helper.tensor_dtype_to_np_dtype(kind))
        return dtype if dtype.name in _INTEGERS else None

    def windows(self, network: Network) -> int:
        """See `Form`."""
        return sum(less(node.attributes[key], goal) for node in network.nodes for key, goal in _goals(node).items())

    def built(self, network: Network) -> Any:
        """The model."""
        helper, numpy_helper = self._onnx.helper, self._onnx.numpy_helper
        nodes = []
        for node in network.nodes:
            proto = helper.make_node(
                node.op, node.inputs, node.outputs, node.origin.name, domain=node.origin.domain, **node.attributes
            )
            nodes.append(proto)
        shapes = {name: array.shape for name, array in (network.runs[0] if network.runs else {}).items()}
        inputs = [helper.make_tensor_value_info(name, self._types[name], shapes.get(name)) for name in network.inputs]
        outputs = [helper.make_tensor_value_info(name, self._types[name], None) for name in network.outputs]
        stored = [numpy_helper.from_array(array, name) for name, array in network.constants.items()]
        graph = helper.make_graph(nodes, self.model.graph.name or "reduced", inputs, outputs, stored)
        model = helper.make_model(graph, opset_imports=self.model.opset_import, functions=self.model.functions)
        model.ir_version = self.model.ir_version
        return model

    def content(self, network: Network) -> bytes:
        """The bytes of the file."""
        return bytes(self.built(network).SerializeToString(deterministic=True))

    def read(self, network: Network) -> None:
        """See `Form`: the reader accepts the model."""
        self._read(network)

    def _read(self, network: Network) -> frontend.Loaded:
        loaded = frontend.loads(self.content(network))
        known = {place.name for place in loaded.places}
        for name in network.outputs:
            if name in self.places and name not in known:
                raise Invalid("reduce.tensor", "the smaller model has no codes for its output", Location(tensor=name))
        return loaded

    def check(self, network: Network) -> None:
        """See `Form`: the reader accepts the model, and it has a program."""
        loaded = self._read(network)
        try:
            program_of(loaded.graph, optimize=False)
        except CvmError:
            self._coded(loaded, network)  # a float output has no codes; quantised tensors have

    def program(self) -> Program:
        """The program with the codes of all quantised tensors of the file, whose inputs are those of the file."""
        places = list(self.places.values())
        if not places:
            raise Unsupported("compare.tensors", "no quantised tensor of the model is computed by an operator")
        return program_of(exposed(self.loaded.graph, places), optimize=False)

    def _coded(self, loaded: frontend.Loaded, network: Network) -> tuple[Any, list[Place]]:
        """The program with the codes of all quantised tensors of the model, and these tensors."""
        known = {name for node in network.nodes for name in node.outputs}
        found = list({place.name: place for place in loaded.places if place.name in known}.values())
        return program_of(exposed(loaded.graph, found), optimize=False), found

    def _computed(self, network: Network) -> tuple[Feed, ...]:
        program, places = self._coded(frontend.loads(self.content(network)), network)
        executor = create("numpy", verify(program), None)
        found = []
        for run in network.runs:
            known: dict[str, Array] = {name: run[name] for name in network.inputs}
            given = {one.value.name: run[one.value.name] for one in program.inputs}
            shaped = {name: array if array.shape else array.reshape(1) for name, array in given.items()}
            _, samples = arrange(program, shaped, intake=Intake(True, "clamp"))
            values = executor.run(next(iter(samples))[0], {}).values
            held = {output.name: values[output.value] for output in program.outputs}
            for number, place in enumerate(places):
                dtype = self._dtype(self.places[place.name]) if place.name in self.places else None
                if dtype is not None:
                    known[place.name] = held[made(number)].astype(dtype)
            found.append(known)
        return tuple(found)

    def plainer(self, network: Network) -> Iterator[Network]:
        """See `Form`."""
        for number, node in enumerate(network.nodes):
            for change in plain(node, _goals(node)):
                yield changed(network, number, change)

    def fewer(self, network: Network) -> Iterator[Network]:
        """See `Form`: operands of Concat are left out, and biases."""
        for number, node in enumerate(network.nodes):
            for inputs in _fewer_inputs(node):
                yield changed(network, number, replace(node, inputs=inputs))

    def resized(self, network: Network, before: int, after: int) -> Network:
        """See `Form`: also in the tensors of int64 that say shapes."""
        for number, node in enumerate(network.nodes):
            new = with_extent(node, _EXTENTS, before, after)
            if new is not node:
                network = changed(network, number, new)
        said = {node.inputs[1] for node in network.nodes if node.op in ("Reshape", "Expand") and len(node.inputs) > 1}
        constants = dict(network.constants)
        for name in said & constants.keys():
            array = constants[name]
            if (array == before).any():
                constants[name] = np.where(array == before, array.dtype.type(after), array)
        if any(constants[name] is not network.constants[name] for name in constants):
            network = replace(network, constants=constants)
        return network

    def save(self, network: Network, path: Any) -> None:
        """See `Form`."""
        write_file(path, self.content(network))


def _goals(node: Node) -> dict[str, int]:
    goals = {key: goal for key, goal in _PLAIN.items() if key in node.attributes}
    return goals | ({"kernel_shape": 1} if "kernel_shape" in node.attributes else {})


def _fewer_inputs(node: Node) -> Iterator[tuple[str, ...]]:
    count = len(node.inputs)
    if node.op == "Concat" and count > 1:
        yield from ((*node.inputs[:place], *node.inputs[place + 1 :]) for place in range(count))
    elif _BIASES.get(node.op, count) < count:
        yield node.inputs[: _BIASES[node.op]]
