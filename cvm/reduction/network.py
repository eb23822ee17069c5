"""A network that shrinks: nodes over named tensors with data for its inputs, whatever format it is stored in."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.records import dataclass

__all__ = [
    "Array",
    "Feed",
    "Form",
    "Network",
    "Node",
    "Part",
    "Remembering",
    "Store",
    "joined",
    "parts",
    "pruned",
    "renamed",
    "weight",
]

Array: TypeAlias = npt.NDArray[Any]
Feed: TypeAlias = Mapping[str, Array]
"""The data of one run, by the names of the inputs, in the layout of the file."""
_WEIGHED = 4096
"""Larger arrays are weighed by their elements that are not zero alone."""


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """An operation: the tensors that it reads, in order, those that it makes, and its attributes."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    origin: Any = None
    """What the format needs besides, to write the node again."""


@dataclass(frozen=True, slots=True)
class Store:
    """A state: the constant that it holds before the first run, and the tensor that it takes after each run."""

    initial: str
    update: str


@dataclass(frozen=True, eq=False, slots=True)
class Network:
    """A network with data. The runs are samples by themselves; with state they are consecutive."""

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]
    runs: tuple[Feed, ...] = ()
    state: Mapping[str, Store] = field(default_factory=dict)

    @property
    def digest(self) -> bytes:
        """The same for networks that are the same."""
        sums = hashlib.sha256()
        for node in self.nodes:
            sums.update(repr((node.op, node.inputs, node.outputs, sorted(node.attributes.items()))).encode())
        sums.update(repr((self.inputs, self.outputs, sorted(self.state.items(), key=lambda item: item[0]))).encode())
        for arrays in (self.constants, *self.runs):
            for name, array in sorted(arrays.items()):
                sums.update(repr((name, array.shape, array.dtype.str)).encode() + array.tobytes())
        return sums.digest()

    def size(self, form: Form) -> tuple[int, ...]:
        """The numbers that become smaller, the first ones first.

        They are the operations with the states, the elements of inputs and constants, a measure of how complex
        elements and attributes are, the outputs, and the runs.
        """
        held = [*self.constants.values(), *(run[name] for run in self.runs[:1] for name in self.inputs)]
        counted = sum(form.counts(node) for node in self.nodes)
        complexity = sum(map(weight, self.constants.values())) + sum(
            weight(a) for run in self.runs for a in run.values()
        )
        operands = sum(len(node.inputs) for node in self.nodes)
        return (
            counted + len(self.state),
            len(self.nodes),
            sum(array.size for array in held),
            form.windows(self) + operands,
            len(self.runs),
            complexity,
            len(self.outputs),
        )


@dataclass(frozen=True, slots=True)
class Part:
    """Operations that make one tensor from tensors whose data can be given."""

    nodes: tuple[int, ...]
    makes: tuple[str, ...]


class Form(Protocol):
    """A format of networks: how they are checked and written, and which changes it admits."""

    def counts(self, node: Node) -> bool:
        """Whether a node is an operation; nodes that only quantise belong to the operation beside them."""

    def may_cut(self, name: str) -> bool:
        """Whether a computed tensor may become an input, and an output."""

    def windows(self, network: Network) -> int:
        """How far attributes are from their simplest values."""

    def check(self, network: Network) -> None:
        """Raise `CvmError` unless the network is a valid one of its format, and its data is in the ranges of inputs."""

    def read(self, network: Network) -> None:
        """The cheap part of `check`, for a piece of a valid network with the data that was there."""

    def tensors(self, network: Network) -> tuple[Feed, ...]:
        """For each run the exact data of all tensors that may be cut, and of the inputs and states."""

    def remember(self, network: Network, data: tuple[Feed, ...]) -> None:
        """Let `tensors` know the data of a network that is a piece of another."""

    def plainer(self, network: Network) -> Iterator[Network]:
        """Networks with simpler attributes."""

    def fewer(self, network: Network) -> Iterator[Network]:
        """Networks with fewer operands."""

    def resized(self, network: Network, before: int, after: int) -> Network:
        """The network with an extent replaced wherever an attribute says it."""

    def save(self, network: Network, path: Any) -> None:
        """Write the network to a file or folder that does not exist."""


class Remembering(ABC):
    """The part of a `Form` that computes the tensors of a network once."""

    def __init__(self) -> None:
        self._known: list[tuple[Network, tuple[Feed, ...]]] = []

    def remember(self, network: Network, data: tuple[Feed, ...]) -> None:
        """See `Form`."""
        self._known = [(network, data), *self._known[:2]]

    def tensors(self, network: Network) -> tuple[Feed, ...]:
        """See `Form`."""
        found = next((data for known, data in self._known if known is network), None)
        if found is None:
            found = self._computed(network)
            self.remember(network, found)
        return found

    @abstractmethod
    def _computed(self, network: Network) -> tuple[Feed, ...]:
        """The tensors of a network that is not remembered."""


def weight(array: Array) -> int:
    """A measure of how complex the elements are: 0 for zero, 1 for powers of two, else the number of their bits."""
    if array.size > _WEIGHED or array.dtype.kind not in "iuf":
        return 64 * int(np.count_nonzero(array))
    return sum(_bits(x) for x in array.reshape(-1).tolist() if x)


def _bits(x: float) -> int:
    """The bits of a number: 1 for a positive power of two, also of a fraction."""
    if isinstance(x, int):
        return abs(x).bit_length() if abs(x) & (abs(x) - 1) else 1
    if not math.isfinite(x):
        return 64
    numerator, denominator = x.as_integer_ratio()
    odd = abs(numerator) * denominator if numerator & (numerator - 1) else 1
    return odd.bit_length() + (x < 0)


def pruned(network: Network, outputs: Collection[str]) -> Network:
    """The network with these outputs, and with what they need."""
    kept = tuple(name for name in network.outputs if name in outputs)
    needed = set(kept)
    while True:
        before = len(needed)
        for node in reversed(network.nodes):
            if needed.intersection(node.outputs):
                needed.update(node.inputs)
        for name, store in network.state.items():
            if name in needed:
                needed |= {store.initial, store.update}
        if len(needed) == before:
            break
    inputs = tuple(name for name in network.inputs if name in needed)
    return Network(
        tuple(node for node in network.nodes if needed.intersection(node.outputs)),
        inputs,
        kept,
        {name: array for name, array in network.constants.items() if name in needed},
        tuple({name: run[name] for name in inputs} for run in network.runs),
        {name: store for name, store in network.state.items() if name in needed},
    )


def renamed(network: Network, before: str, after: str) -> Network:
    """The network in which ``after`` is read wherever ``before`` was, without what is not needed any more."""
    outputs = tuple(dict.fromkeys(after if name == before else name for name in network.outputs))
    nodes = tuple(
        replace(node, inputs=tuple(after if name == before else name for name in node.inputs)) for node in network.nodes
    )
    state = {
        name: replace(store, update=after if store.update == before else store.update)
        for name, store in network.state.items()
    }
    return pruned(replace(network, nodes=nodes, outputs=outputs, state=state), outputs)


def parts(network: Network, form: Form) -> list[Part]:
    """The parts of a network, in the order in which their last nodes come."""
    maker = {name: number for number, node in enumerate(network.nodes) for name in node.outputs}
    found = []
    for number, node in enumerate(network.nodes):
        made = tuple(name for name in node.outputs if form.may_cut(name))
        if not made:
            continue
        members, pending = {number}, list(node.inputs)
        while pending:
            name = pending.pop()
            source = maker.get(name)
            if source is None or source in members or form.may_cut(name):
                continue
            members.add(source)
            pending += network.nodes[source].inputs
        found.append(Part(tuple(sorted(members)), made))
    return found


def joined(network: Network, form: Form, kept: Sequence[Part], data: Sequence[Feed], frozen: bool) -> Network | None:
    """The network of some parts: what they read from others is an input, with the data that was there.

    ``data`` has the exact tensors of the whole network. States are inputs too if ``frozen``, or if what they take is
    not computed any more. The result is None if nothing is left to see.
    """
    numbers = sorted({number for part in kept for number in part.nodes})
    nodes = tuple(network.nodes[number] for number in numbers)
    made = {name for node in nodes for name in node.outputs}
    own = {*network.inputs, *network.constants}
    state = {} if frozen else {n: s for n, s in network.state.items() if s.update in made | own | set(network.state)}
    read = {name for node in nodes for name in node.inputs} | {store.update for store in state.values()}
    shown = tuple(
        name
        for node in nodes
        for name in node.outputs
        if (form.may_cut(name) and name not in read) or name in network.outputs
    )
    if not shown:
        return None
    wanted = [*(name for node in nodes for name in node.inputs), *(store.update for store in state.values())]
    given = dict.fromkeys(name for name in wanted if name not in made)
    inputs = tuple(name for name in given if name and name not in network.constants and name not in state)
    runs = tuple({name: tensors[name] for name in inputs} for tensors in data)
    return pruned(Network(nodes, inputs, shown, network.constants, runs, state), shown)
