"""Graphs, as NNEF documents hold them, as networks that shrink: shapes are inferred again for every candidate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from cvm.compiling import program_of
from cvm.errors import Invalid, Location, Unsupported
from cvm.executors import create
from cvm.frontends.nnef import save
from cvm.graph import GraphOperation, GraphTensor, Operand, QuantizedGraph, TensorData, names_in
from cvm.graph import verify as verify_graph
from cvm.graph.verifier import shapes_of_results
from cvm.program import Program, verify
from cvm.reduction.attributes import changed, less, plain, with_extent
from cvm.reduction.network import Feed, Network, Node, Remembering

__all__ = ["GraphForm"]

_PLAIN = {"padding": 0, "stride": 1, "dilation": 1, "size": 1}
_EXTENTS = ("shape", "groups", "output_shape", "size", "count", "repeats")


class GraphForm(Remembering):
    """The graphs that are made from one graph. Raises `Unsupported` (``reduce.state``) for one with state."""

    suffix = ""
    format = "nnef"

    def __init__(self, graph: QuantizedGraph) -> None:
        if any(operation.name == "update" for operation in graph.operations):
            message = "a model with state is reduced as a program: compile it, and give the .cvm file"
            raise Unsupported("reduce.state", message)
        super().__init__()
        self.graph = graph

    def network(self, runs: tuple[Feed, ...]) -> Network:
        """The whole graph as a network; the data of runs are codes."""
        constants = {name: tensor.data.values for name, tensor in self.graph.tensors.items() if tensor.data is not None}
        nodes = (
            Node(
                operation.name,
                tuple(name for operand in operation.inputs.values() for name in names_in(operand)),
                operation.outputs,
                dict(operation.attributes),
                operation,
            )
            for operation in self.graph.operations
        )
        return Network(tuple(nodes), self.graph.inputs, self.graph.outputs, constants, tuple(map(dict, runs)))

    def counts(self, node: Node) -> bool:
        """See `Form`."""
        return True

    def may_cut(self, name: str) -> bool:
        """See `Form`: tensors with a quantiser hold codes, which can be given."""
        tensor = self.graph.tensors[name]
        return tensor.kind == "computed" and tensor.quantizer is not None

    def windows(self, network: Network) -> int:
        """See `Form`."""
        return sum(less(node.attributes[key], _PLAIN[key]) for node in network.nodes for key in _keys(node))

    def built(self, network: Network) -> QuantizedGraph:
        """The graph. Raises `CvmError` if an operation does not fit."""
        tensors: dict[str, GraphTensor] = {}
        for name in network.inputs:
            tensor = self.graph.tensors[name]
            shape = network.runs[0][name].shape if network.runs else tensor.shape
            tensors[name] = replace(tensor, kind="external", shape=shape, data=None)
        for name, array in network.constants.items():
            tensor = self.graph.tensors[name]
            data = TensorData(array, None if tensor.data is None else tensor.data.quantizer)
            tensors[name] = replace(tensor, shape=array.shape, data=data)
        operations = []
        for node in network.nodes:
            operation = _operation(node)
            shapes = shapes_of_results(operation.name, operation.inputs, operation.attributes, tensors)
            for name, shape in zip(operation.outputs, shapes, strict=True):
                tensors[name] = replace(self.graph.tensors[name], shape=shape)
            operations.append(operation)
        graph = QuantizedGraph(self.graph.name, network.inputs, network.outputs, tensors, tuple(operations))
        return verify_graph(graph, "reduce")

    def program(self, network: Network, all_tensors: bool = False) -> Program:
        """The program of the graph; with the codes of all tensors that may be cut as outputs, if that is asked for."""
        graph = self.built(network)
        if all_tensors:
            made = [name for node in network.nodes for name in node.outputs if self.may_cut(name)]
            graph = replace(graph, outputs=tuple(dict.fromkeys((*graph.outputs, *made))))
        return program_of(graph, optimize=False)

    def check(self, network: Network) -> None:
        """See `Form`."""
        program = self.program(network)
        for one in program.inputs:
            for run in network.runs:
                value, array = one.value, run[one.value.name]
                if int(array.min()) < value.lo or value.hi < int(array.max()):
                    raise Invalid(
                        "reduce.data", "the data is not in the range of its input", Location(tensor=value.name)
                    )

    def read(self, network: Network) -> None:
        """See `Form`: the graph is valid."""
        self.built(network)

    def _computed(self, network: Network) -> tuple[Feed, ...]:
        program = self.program(network, all_tensors=True)
        executor = create("numpy", verify(program), None)
        found = []
        for run in network.runs:
            feed = {one.value.name: np.ascontiguousarray(run[one.value.name], np.int32) for one in program.inputs}
            values = executor.run(feed, {}).values
            made = {output.name: values[output.value] for output in program.outputs}
            found.append({name: run[name] for name in network.inputs} | made)
        return tuple(found)

    def plainer(self, network: Network) -> Iterator[Network]:
        """See `Form`."""
        for number, node in enumerate(network.nodes):
            for change in plain(node, {key: _PLAIN[key] for key in _keys(node)}):
                yield changed(network, number, change)

    def fewer(self, network: Network) -> Iterator[Network]:
        """See `Form`: operands of arrays are left out, and biases."""
        for number, node in enumerate(network.nodes):
            operation = _operation(node)
            for key, operand in operation.inputs.items():
                others: list[Operand] = []
                if isinstance(operand, tuple) and len(operand) > 1:
                    others = [(*operand[:place], *operand[place + 1 :]) for place in range(len(operand))]
                elif key == "bias" and isinstance(operand, str):
                    others = [Fraction(0)]
                for other in others:
                    inputs = {**operation.inputs, key: other}
                    names = tuple(name for item in inputs.values() for name in names_in(item))
                    new = replace(node, inputs=names, origin=replace(operation, inputs=inputs))
                    yield changed(network, number, new)

    def resized(self, network: Network, before: int, after: int) -> Network:
        """See `Form`."""
        for number, node in enumerate(network.nodes):
            new = with_extent(node, _EXTENTS, before, after)
            if new is not node:
                network = changed(network, number, new)
        return network

    def save(self, network: Network, path: Any) -> None:
        """See `Form`."""
        save(self.built(network), path)


def _keys(node: Node) -> list[str]:
    return sorted(_PLAIN.keys() & node.attributes.keys())


def _operation(node: Node) -> GraphOperation:
    """The operation of a node, with the names and attributes that the node has now."""
    names = iter(node.inputs)

    def named(operand: Operand) -> Operand:
        if isinstance(operand, tuple):
            return tuple(named(item) for item in operand)
        return next(names) if isinstance(operand, str) else operand

    operation: GraphOperation = node.origin
    inputs = {key: named(operand) for key, operand in operation.inputs.items()}
    return GraphOperation(operation.name, inputs, node.attributes, node.outputs, operation.location)
