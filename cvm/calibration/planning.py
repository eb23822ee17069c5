"""Which tensors get a quantiser, and which share one.

* Tensors that operations only move, or clip, are a *group* with one quantiser: it is chosen for the numbers that the
  group begins with, or for those that clipping leaves where nothing else reads what it clips.
* The result of a product with stored weights has no quantiser where only a normalisation or a constant is still to be
  applied to it: the accumulator goes on, exact, and is rounded once.
* What is stored, and no output, is a *filter*, a *bias* of a product (at the scale of the accumulator that it is added
  to), or another parameter. Constants that are neither stay as they are, like literals.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from cvm.calibration.roles import (
    KNOWN_RANGES,
    Product,
    Uses,
    clips,
    divides_by,
    filter_axis,
    moved_operands,
    pads_zeros,
)
from cvm.graph import GraphOperation, QuantizedGraph

__all__ = ["Bias", "Filter", "Group", "Parameter", "Plan", "Planner", "plan", "united"]


@dataclass(frozen=True, slots=True)
class Group:
    """Tensors that share a quantiser, the tensors whose numbers decide on it, and ranges that are known beforehand.

    ``with_zero``: zeros stand beside their items. ``coordinates``: their items are coordinates. ``nonzero``: something
    is divided by them.
    """

    tensors: tuple[str, ...]
    observed: tuple[str, ...]
    known: tuple[tuple[float, float], ...]
    with_zero: bool
    coordinates: bool
    nonzero: bool


@dataclass(frozen=True, slots=True)
class Filter:
    """Stored weights of products, and their axis of output channels, if they have one."""

    tensors: tuple[str, ...]
    axis: int | None


@dataclass(frozen=True, slots=True)
class Bias:
    """A stored tensor that is added to a product of an input and a filter; ``axis`` is that of the channels."""

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
        """The plan with quantisers for these tensors alone."""

        def whole(items: Sequence[_Stored]) -> tuple[_Stored, ...]:
            return tuple(item for item in items if all(name in names for name in item.tensors))

        groups = [replace(group, tensors=tuple(n for n in group.tensors if n in names)) for group in self.groups]
        kept = tuple(group for group in groups if group.tensors)
        return Plan(kept, whole(self.filters), whole(self.biases), whole(self.parameters))


def plan(graph: QuantizedGraph, accumulates: bool = True) -> Plan:
    """The plan for a graph, by the order of its tensors.

    ``accumulates`` says whether accumulators go on unrounded into a normalisation; into an addition they always do.
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
        """Whether a tensor holds stored numbers, perhaps moved, and is not an output."""
        operation = self.uses.made_by.get(name)
        computed = operation is not None and not moved_operands(operation)
        return self.uses.fixed(name) and not computed and name not in self.graph.outputs

    def _unrounded(self) -> dict[str, Product | None]:
        """Results of products, and of additions to these, that go on into a normalisation or addition only."""
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
        """Whether an operation adds stored numbers to the tensor, or subtracts them."""
        operands = list(operation.inputs.values())
        return (
            operation.name in ("add", "sub")
            and operands.count(name) == 1
            and all(self.uses.fixed(operand) for operand in operands if operand != name)
        )

    def group(self, members: list[str]) -> Group:
        """The quantiser that some tensors share."""
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
        return Group(tuple(members), tuple(observed), tuple(known), padded or coordinates, coordinates, nonzero)

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
        """As `filter_axis`, of the stored tensor that ``name`` is moved from; -1 where the axis is lost on the way."""
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
        """The stored tensors as a bias of the product that they are added to, if that is one."""
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
        """The tensor from which the items of another one were moved, through any number of operations."""
        while (maker := self.uses.made_by.get(name)) is not None and moved_operands(maker):
            name = moved_operands(maker)[0]
        return name


def united(graph: QuantizedGraph) -> Mapping[str, list[str]]:
    """The real tensors in disjoint sets, by their first member: movement of items or a common label unites tensors."""
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
