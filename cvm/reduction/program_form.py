"""Integer programs as networks that shrink: every candidate is built node by node, with its intervals proven again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from cvm.errors import Invalid, Location
from cvm.executors import create, initial_state
from cvm.program import Output, Program, ProgramBuilder, verify
from cvm.reduction.attributes import changed, less, plain, with_extent
from cvm.reduction.network import Array, Feed, Network, Node, Remembering, Store
from cvm.writing import write_file

__all__ = ["ProgramForm"]

_PLAIN = {"padding": 0, "stride": 1, "dilation": 1, "strides": 1, "pool_size": 1}
"""Attributes of windows, and their simplest values."""
_EXTENTS = ("target_shape", "groups", "shape", "reps", "size")
"""Attributes that say extents of tensors."""
_BIASED = {"conv2d": 2, "dense": 2}


class ProgramForm(Remembering):
    """The programs that are made from one program."""

    suffix = ".cvm"
    format = "cvm"

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self._values = {value.name: value for node in program.nodes for value in node.outputs}
        self._values |= {one.value.name: one.value for one in program.inputs}
        self._values |= {one.value.name: one.value for one in program.state}
        self._kinds = {constant.name: constant.kind for constant in program.constants}
        self._quantizers = {one.value.name: one.quantizer for one in program.inputs}
        self._public = {one.value: one for one in reversed(program.outputs)}

    def network(self, runs: tuple[Feed, ...]) -> Network:
        """The whole program as a network."""
        program = self.program
        return Network(
            tuple(
                Node(node.op, node.inputs, tuple(value.name for value in node.outputs), dict(node.attributes))
                for node in program.nodes
            ),
            tuple(one.value.name for one in program.inputs),
            tuple(dict.fromkeys(output.value for output in program.outputs)),
            {constant.name: constant.array() for constant in program.constants},
            tuple(dict(run) for run in runs),
            {one.value.name: Store(one.initial, one.update) for one in program.state},
        )

    def counts(self, node: Node) -> bool:
        """See `Form`: every node of a program is an operation."""
        return True

    def may_cut(self, name: str) -> bool:
        """See `Form`: every tensor of a program may be an input."""
        return True

    def windows(self, network: Network) -> int:
        """See `Form`."""
        found = 0
        for node in network.nodes:
            for key in _PLAIN.keys() & node.attributes.keys():
                found += less(node.attributes[key], _PLAIN[key])
        return found

    def built(self, network: Network) -> Program:
        """The program. Raises `CvmError` if a node does not fit."""
        builder = ProgramBuilder()
        names: dict[str, str] = {}
        for name in network.inputs:
            value = self._values[name]
            shape = network.runs[0][name].shape if network.runs else value.shape
            names[name] = builder.input(name, shape, value.lo, value.hi, self._quantizers.get(name))
        for name, array in network.constants.items():
            names[name] = builder.constant(array, name, self._kinds[name])
        for name, store in network.state.items():
            value = self._values[name]
            names[name] = builder.state(name, names[store.initial], value.lo, value.hi)
        for node in network.nodes:
            inputs = [names[name] for name in node.inputs]
            wish = node.outputs[0] if len(node.outputs) == 1 else None
            made = builder.add(node.op, inputs, node.attributes, wish)
            names |= dict(zip(node.outputs, made, strict=True))
        for name, store in network.state.items():
            builder.update(name, names[store.update])
        return builder.build([self._output(name, names[name]) for name in network.outputs])

    def _output(self, name: str, value: str) -> Output:
        public = self._public.get(name)
        return Output(name, value) if public is None else Output(public.name, value, public.quantizer)

    def check(self, network: Network) -> None:
        """See `Form`."""
        verify(self.built(network))
        for run in network.runs:
            for name in network.inputs:
                value = self._values[name]
                if int(run[name].min()) < value.lo or value.hi < int(run[name].max()):
                    raise Invalid("reduce.data", "the data is not in the interval of its input", Location(tensor=name))

    def read(self, network: Network) -> None:
        """See `Form`: programs are built and verified in no time."""
        self.check(network)

    def _computed(self, network: Network) -> tuple[Feed, ...]:
        program = self.built(network)
        names = dict(zip(network.inputs, network.inputs, strict=True))
        for node, made in zip(network.nodes, program.nodes, strict=True):
            names |= {name: value.name for name, value in zip(node.outputs, made.outputs, strict=True)}
        executor, state = create("numpy", verify(program), None), initial_state(program)
        found = []
        for run in network.runs:
            feed = {name: np.ascontiguousarray(run[name], np.int32) for name in network.inputs}
            held: dict[str, Array] = dict(state)
            result = executor.run(feed, state, "all")
            state = result.state
            found.append(held | {name: result.values[value] for name, value in names.items()})
        return tuple(found)

    def plainer(self, network: Network) -> Iterator[Network]:
        """See `Form`."""
        for number, node in enumerate(network.nodes):
            goals = {key: _PLAIN[key] for key in sorted(_PLAIN.keys() & node.attributes.keys())}
            for change in plain(node, goals):
                yield changed(network, number, change)

    def fewer(self, network: Network) -> Iterator[Network]:
        """See `Form`: terms of `requantize`, operands of `concatenate`, and biases are left out."""
        for number, node in enumerate(network.nodes):
            count = len(node.inputs)
            choices: list[tuple[int, ...]] = []
            if node.op == "requantize" and count > 4:
                terms = (count - 2) // 2
                choices = [(term, terms + term) for term in range(terms)]
            elif node.op == "concatenate" and count > 1:
                choices = [(term,) for term in range(count)]
            elif _BIASED.get(node.op, count) < count:
                choices = [(_BIASED[node.op],)]
            for left_out in choices:
                inputs = tuple(name for place, name in enumerate(node.inputs) if place not in left_out)
                yield changed(network, number, replace(node, inputs=inputs))

    def resized(self, network: Network, before: int, after: int) -> Network:
        """See `Form`."""
        for number, node in enumerate(network.nodes):
            new = with_extent(node, _EXTENTS, before, after)
            if new is not node:
                network = changed(network, number, new)
        return network

    def save(self, network: Network, path: Any) -> None:
        """See `Form`."""
        write_file(path, self.built(network).to_bytes())
