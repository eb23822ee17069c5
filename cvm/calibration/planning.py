"""The plan of a calibration: which tensors get a quantiser, and which tensors share one.

* Tensors between which operations only move or clip data form a *group* with one quantiser. It is chosen for the
  numbers of the group's first tensor, or for the clipped numbers where no other operation reads the unclipped tensor.
* The result of a product with stored weights gets no quantiser where only a normalisation or a constant follows: the
  accumulator is passed on exactly, and rounded once.
* A stored tensor that is not an output is a *filter*, a *bias* of a product (with the scale of the accumulator that it
  is added to), or another parameter. Constants that are neither stay as they are, like literals.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from cvm.calibration.roles import (
    KNOWN_RANGES,
    NORMALISATIONS,
    Product,
    Uses,
    clips,
    divides_by,
    filter_axis,
    moved_operands,
    pads_zeros,
)
from cvm.graph import GraphOperation, QuantizedGraph
from cvm.records import dataclass

__all__ = ["Bias", "Filter", "Group", "Parameter", "Plan", "Planner", "plan", "united"]


@dataclass(frozen=True, slots=True)
class Group:
    """Tensors that share a quantiser, the tensors whose numbers determine it, and ranges that are known beforehand.

    ``with_zero``: operations read zeros together with their elements. ``coordinates``: their elements are coordinates.
    ``nonzero``: an operation divides by them. ``normalised``: a normalisation of rows reads them. ``state``: state is
    among them, of a graph whose quantisers may have any codes.
    """

    tensors: tuple[str, ...]
    observed: tuple[str, ...]
    known: tuple[tuple[float, float], ...]
    with_zero: bool
    coordinates: bool
    nonzero: bool
    normalised: bool = False
    state: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """The stored weights of products, and their axis of output channels, if they have one."""

    tensors: tuple[str, ...]
    axis: int | None


@dataclass(frozen=True, slots=True)
class Bias:
    """A stored tensor that is added to the product of an input and a filter; ``axis`` is its axis of channels."""

    tensors: tuple[str, ...]
    input: str
    filter: str
    axis: int | None


@dataclass(frozen=True, slots=True)
class Parameter:
    """Stored tensors that are neither filters nor biases; ``nonzero`` as in `Group`."""

    tensors: tuple[str, ...]
    nonzero: bool


_Stored = TypeVar("_Stored", Filter, Bias, Parameter)


@dataclass(frozen=True, slots=True)
class Plan:
    """The tensors of a graph that get quantisers, each exactly once."""

    groups: tuple[Group, ...]
    filters: tuple[Filter, ...]
    biases: tuple[Bias, ...]
    parameters: tuple[Parameter, ...]

    def within(self, names: Collection[str]) -> Plan:
        """The plan restricted to the tensors with these names."""

        def whole(items: Sequence[_Stored]) -> tuple[_Stored, ...]:
            return tuple(item for item in items if all(name in names for name in item.tensors))

        groups = [replace(group, tensors=tuple(n for n in group.tensors if n in names)) for group in self.groups]
        kept = tuple(group for group in groups if group.tensors)
        return Plan(kept, whole(self.filters), whole(self.biases), whole(self.parameters))


def plan(graph: QuantizedGraph, accumulates: bool = True) -> Plan:
    """The plan for a graph, in the order of its tensors.

    ``accumulates`` says whether accumulators pass unrounded into a normalisation; into an addition they always do.
    """
    return Planner(graph, accumulates).plan()


class Planner:
    """The plan of a graph whose every tensor gets a quantiser."""

    def __init__(self, graph: QuantizedGraph, accumulates: bool) -> None:
        self.graph = graph
        self._accumulates = accumulates
        self.uses = Uses(graph)
        self._accumulators = self._unrounded()

    def plan(self) -> Plan:
        """The tensors that get quantisers, each once."""
        groups: list[Group] = []
        filters: list[Filter] = []
        biases: list[Bias] = []
        parameters: list[Parameter] = []
        for members in united(self.graph).values():
            if all(map(self._only_stored, members)):
                match self._stored(members):
                    case Filter() as found:
                        filters.append(found)
                    case Bias() as found:
                        biases.append(found)
                    case Parameter() as found:
                        parameters.append(found)
            elif members[0] not in self._accumulators:
                groups.append(self.group(members))
        return Plan(tuple(groups), tuple(filters), tuple(biases), tuple(parameters))

    def _only_stored(self, name: str) -> bool:
        """Whether a tensor holds stored numbers, possibly moved, and is not an output."""
        operation = self.uses.made_by.get(name)
        computed = operation is not None and not moved_operands(operation)
        return self.uses.fixed(name) and not computed and name not in self.graph.outputs

    def _unrounded(self) -> dict[str, Product | None]:
        """The results of products, and of additions to these, that only a normalisation or an addition reads."""
        found: dict[str, Product | None] = {}
        for operation in self.graph.operations:
            name = operation.outputs[0]
            factors = self.uses.product(operation)
            operands = [operand for operand in operation.inputs.values() if isinstance(operand, str)]
            if factors is None and not any(self._adds_constant(operation, x) for x in operands if x in found):
                continue
            reader = self.uses.only_reader(name)
            if reader is not None and (self._normalises(*reader) or self._adds_constant(reader[0], name)):
                found[name] = factors
        return found

    def _normalises(self, operation: GraphOperation, parameter: str) -> bool:
        if not self._accumulates:
            return False
        others = [operand for name, operand in operation.inputs.items() if name != "input"]
        return operation.name == "batch_normalization" and parameter == "input" and all(map(self.uses.fixed, others))

    def _adds_constant(self, operation: GraphOperation, name: str) -> bool:
        """Whether an operation adds stored numbers to the tensor, or subtracts them from it."""
        operands = list(operation.inputs.values())
        return (
            operation.name in ("add", "sub")
            and operands.count(name) == 1
            and all(self.uses.fixed(operand) for operand in operands if operand != name)
        )

    def group(self, members: list[str]) -> Group:
        """The group of some tensors that share a quantiser."""
        observed: dict[str, None] = {}
        known = []
        for name in members:
            maker = self.uses.made_by.get(name)
            moved = moved_operands(maker) if maker is not None else []
            if moved and all(item in members for item in moved):
                continue
            while maker is not None and len(moved) == 1 and not clips(maker):
                maker = self.uses.made_by.get(moved[0])
                moved = moved_operands(maker) if maker is not None else []
            reader = self.uses.only_reader(name)
            if maker is not None and maker.name in KNOWN_RANGES:
                known.append(KNOWN_RANGES[maker.name])
            elif reader is not None and clips(reader[0]):
                observed.setdefault(reader[0].outputs[0])
            else:
                observed.setdefault(name)
        readers = [reader for name in members for reader in self.uses.readers(name)]
        padded = any(pads_zeros(operation) for operation, _ in readers)
        coordinates = any(parameter == "rois" for _, parameter in readers)
        nonzero = any(divides_by(*reader) for reader in readers)
        normalising = NORMALISATIONS.intersection(operation.name for operation in self._readers_of_moved(members))
        # If zero has a code, the numbers are a scale times integers, and one op computes the mean square of integers.
        squared = "rms_normalization" in normalising
        zeros = padded or coordinates or squared
        return Group(tuple(members), tuple(observed), tuple(known), zeros, coordinates, nonzero, bool(normalising))

    def _readers_of_moved(self, names: Collection[str]) -> list[GraphOperation]:
        """The operations that read tensors, or what is moved from them."""
        found: list[GraphOperation] = []
        pending, seen = list(names), set(names)
        while pending:
            name = pending.pop()
            for operation, _ in self.uses.readers(name):
                found.append(operation)
                if name in moved_operands(operation):
                    pending += [result for result in operation.outputs if result not in seen]
                    seen.update(operation.outputs)
        return found

    def _stored(self, members: list[str]) -> Filter | Bias | Parameter | None:
        tensors = self.graph.tensors
        stored = tuple(name for name in members if tensors[name].kind != "computed")
        uses = [
            (name, operation, parameter)
            for name in members
            for operation, parameter in self.uses.readers(name)
            if not moved_operands(operation)
        ]
        axes = [self._filter_axis(*use) for use in uses]
        if any(axis is not None for axis in axes):
            common = set(axes) if len(stored) == 1 else {-1}
            (axis,) = common if len(common) == 1 else (-1,)
            return Filter(stored, None if axis == -1 else axis)
        if len(uses) == 1 and members == list(stored):
            bias = self._bias(stored, uses[0][1], uses[0][2])
            if bias is not None:
                return bias
        variables = tuple(name for name in stored if tensors[name].kind == "variable")
        nonzero = any(divides_by(operation, parameter) for _, operation, parameter in uses)
        return Parameter(variables, nonzero) if variables else None

    def _filter_axis(self, name: str, operation: GraphOperation, parameter: str) -> int | None:
        """`filter_axis` for the stored tensor that ``name`` is moved from; -1 where a move loses the axis."""
        shape = self.graph.tensors[name].shape
        axis = filter_axis(operation, parameter, len(shape), shape[1] if len(shape) > 1 else 1)
        if axis is None or axis < 0:
            return axis
        while (maker := self.uses.made_by.get(name)) is not None:
            if maker.name == "transpose":
                axes = maker.attributes["axes"]
                assert isinstance(axes, tuple)
                axis = int(axes[axis]) if axis < len(axes) else axis  # type: ignore[arg-type]
            elif maker.name != "copy":
                return -1
            (name,) = moved_operands(maker)
        return axis

    def _bias(self, stored: tuple[str, ...], operation: GraphOperation, parameter: str) -> Bias | None:
        """The stored tensors as the bias of the product that they are added to; None where they are no bias."""
        factors = self.uses.product(operation) if parameter == "bias" else None
        if factors is None and operation.name in ("add", "sub"):
            others = [name for name in operation.inputs.values() if isinstance(name, str) and name not in stored]
            factors = self._accumulators.get(others[0]) if len(others) == 1 else None
        if factors is None or any(len(self.graph.tensors[name].shape) <= factors.channels for name in stored):
            axis = None
        else:
            axis = factors.channels
        return None if factors is None else Bias(stored, factors.input, self._origin(factors.filter), axis)

    def _origin(self, name: str) -> str:
        """The tensor from which the elements of another one were moved, through any number of operations."""
        while (maker := self.uses.made_by.get(name)) is not None and moved_operands(maker):
            name = moved_operands(maker)[0]
        return name


def united(graph: QuantizedGraph) -> Mapping[str, list[str]]:
    """The real tensors in disjoint sets, by first member: moves of elements, and shared labels, unite tensors."""
    parents = {name: name for name, tensor in graph.tensors.items() if tensor.dtype == "scalar"}

    def root(name: str) -> str:
        while parents[name] != name:
            parents[name] = parents[parents[name]]
            name = parents[name]
        return name

    def unite(names: list[str]) -> None:
        roots = [root(name) for name in names if name in parents]
        for other in roots[1:]:
            parents[root(other)] = root(roots[0])

    labels: dict[str, list[str]] = {}
    for tensor in graph.tensors.values():
        if tensor.kind == "variable" and tensor.label is not None:
            labels.setdefault(tensor.label.lower(), []).append(tensor.name)
    for names in labels.values():
        unite(names)
    for operation in graph.operations:
        moved = moved_operands(operation)
        if moved:
            unite([*moved, *operation.outputs])
    sets: dict[str, list[str]] = {}
    for name in parents:
        sets.setdefault(root(name), []).append(name)
    return sets
