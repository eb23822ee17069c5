"""From a model to a `QuantizedGraph`, node by node.

The graph has a real tensor for every tensor of the model; integer tensors hold integers. Only QuantizeLinear rounds: it
gives its quantiser to the tensor that it reads where no other node reads that tensor, else to a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

import numpy as np

from cvm.blocks import finite
from cvm.errors import Invalid, Location, Unsupported
from cvm.frontends.common.data_types import UNBOUNDED, bounds, is_float, unit
from cvm.frontends.common.decompositions.movement import Indices
from cvm.frontends.common.grids import Grid
from cvm.frontends.common.places import Place
from cvm.frontends.common.recognition import recognize_masks, recognize_shared_heads, recognized
from cvm.frontends.onnx.boundaries import MOVES, grid_of_output, live
from cvm.frontends.onnx.call import Made, OnnxCall, Operand
from cvm.frontends.onnx.declarations import FIRST, LAST, OPERATORS, TYPES
from cvm.frontends.onnx.expansions import EXPANDED, older_form, other_form
from cvm.frontends.onnx.expansions.registry import Expansion
from cvm.frontends.onnx.folding import fold
from cvm.frontends.onnx.grids import BIAS, data_type_of_codes, grid_of, input_quantizer
from cvm.frontends.onnx.inlining import inlined
from cvm.frontends.onnx.inputs import Settings, shapes_of_inputs
from cvm.frontends.onnx.model import Model, OnnxNode, Shape, Value, refusal
from cvm.frontends.onnx.scope import OnnxScope
from cvm.frontends.onnx.writing import Writer
from cvm.graph import GraphOperation, QuantizedGraph
from cvm.graph import Operand as Argument
from cvm.limits import INT32_MAX, Limits, elements
from cvm.quantization import LinearQuantizer
from cvm.records import dataclass

__all__ = ["OnnxTranslation", "Rule", "Translated"]

Rule: TypeAlias = "Callable[[OnnxTranslation, OnnxCall], Made | list[Made]]"
"""A rule checks a node, determines the shape of its result and emits its operations; returns its result or results."""

_QUANTIZE = "let `cvm quantize MODEL.onnx -i DATA -o model.cvm` find scales from data"
_EXTENDED = {"Max", "Min", "Where", "Add", "Sub", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"}
"""Operators for which an infinite constant has a meaning: it is beyond every number that it is compared with."""
_BEYOND = float(UNBOUNDED)
_MOVES = ("reshape", "transpose", "slice")
"""Operations of a node that only move what another operation of the node computes, and which no other node reads."""
_CODES_ALONE = ("layer_normalization", "rms_normalization", "softmax")
"""Operations whose results exist only as codes: a quantiser that follows a move of the result belongs to them."""


@dataclass(slots=True)
class Translated:
    """The graph, and the node of the model that each tensor of the graph belongs to."""

    graph: QuantizedGraph
    nodes: dict[str, OnnxNode] = field(default_factory=dict)
    places: tuple[Place, ...] = ()


class OnnxTranslation(OnnxScope):
    """The graph during its translation. The rules of operators read operands by name and emit operations."""

    def __init__(self, model: Model, settings: Settings, limits: Limits, rules: Mapping[str, Rule]) -> None:
        """``rules`` is the table `cvm.frontends.onnx.rules.RULES`."""
        super().__init__(model, settings.overflow, limits)
        self._model, self._settings = model, settings
        self._rules = rules
        self._nodes = live(inlined(model, self._taken, limits), model.outputs)
        self._names: dict[str, str] = {}
        self._calls: dict[str, OnnxCall] = {}
        """The call that computes each tensor of the model."""
        self._note_readers(self._nodes)
        self._results = {value.name for value in model.outputs}
        self._quantised: set[str] = set()
        self._served: dict[str, OnnxNode] = {}
        self._output = ""
        self._constant_wish = ""

    # The whole graph

    def run(self) -> Translated:
        """Translate the whole model. Raises `CvmError` that names the node."""
        inputs = self._introduce()
        for node in self._nodes:
            self._translate(node)
        self._node = None
        wanted = self._wanted_outputs()
        given = {value.name: self._given(value) for value in self._model.outputs if value.name in wanted}
        self._commit(given)
        outputs = list(given.values())
        self._operations = recognized(self._tensors, self._operations, outputs)
        self.keep(outputs)
        recognize_masks(self, outputs)
        recognize_shared_heads(self, outputs)
        graph = self.finish(self._model.name, inputs, outputs, self._model.digest)
        return Translated(graph, self._served, self._places(graph))

    def _places(self, graph: QuantizedGraph) -> tuple[Place, ...]:
        """The results of QuantizeLinear, and of nodes that are written out with it, in the order of the file."""
        results = (name for node in self._nodes for name in node.outputs)
        return tuple(
            Place(name, self._names[name], unit(*bounds(self._operands[name].data_type)))
            for name in results
            if name in self._calls
            and self._calls[name].node.op == "QuantizeLinear"
            and self._names.get(name) in graph.tensors
        )

    def _translate(self, node: OnnxNode) -> None:
        self._node = node
        call = OnnxCall(node, [self._read(name) for name in node.inputs], self._version(node))
        write = None if node.domain else older_form(node.op, call.version)
        if write is not None:
            self._write(self._declared(call), write)
            return
        folded = fold(call)
        if folded is not None:
            call.finish()
            for name, (values, data_type) in zip(node.outputs, folded, strict=False):
                elements(values.shape, self._limits, node.label)
                self._operands[name] = Operand(name, data_type, values.shape, values, node)
                self._calls[name] = call
            return
        write = other_form(call)
        if write is not None:
            self._write(call, write)
            return
        write = EXPANDED.get((node.domain, node.op))
        if write is not None:
            self._write(self._declared(call), write)
            return
        rule = self._rule(call)
        before = len(self._operations)
        made = rule(self, call)
        call.finish()
        results = [made] if isinstance(made, Made) else list(made)
        for index, name in enumerate(node.outputs):
            if name and index < len(results):
                self._enter(call, name, self._named(name, results[index], before), self._operations[before:])
        self._require_results(node)

    def _require_results(self, node: OnnxNode) -> None:
        """Raise `Unsupported` where a node reads a result, or the model outputs it, that the rule did not compute."""
        for index, name in enumerate(node.outputs):
            if name and name not in self._operands and (name in self._readers or name in self._results):
                message = f"its result number {index} ({name!r}) is not computed"
                raise refusal(node, message, "use only the results before it")

    # Expansions

    def _write(self, call: OnnxCall, write: Expansion) -> None:
        """Expand a node, and translate the nodes of its expansion."""
        writer = Writer(call, self)
        write(writer)
        call.finish()
        self.translate(writer.take())
        self._require_results(call.node)

    def translate(self, nodes: Sequence[OnnxNode]) -> None:
        """Translate the nodes of an expansion."""
        self.require_expansion(len(nodes))
        self._written += len(nodes)
        self._note_readers(nodes)
        for node in nodes:
            self._translate(node)

    @property
    def floats(self) -> bool:
        """Whether calibration will find missing quantisers."""
        return self._settings.floats

    def grid(self, name: str) -> Grid | None:
        """The grid that contains every element of a tensor, if there is one."""
        return grid_of_output(self._calls, self.read(name))

    def call_of(self, name: str) -> OnnxCall | None:
        """The call that computes a tensor; None for an input or a constant."""
        return self._calls.get(name)

    def interval_of_input(self, name: str) -> tuple[int, int] | None:
        """The interval of an input of integers; None for any other tensor."""
        found = next((value for value in self._model.inputs if value.name == name), None)
        return None if found is None or is_float(found.data_type) else self._interval(found)

    def wanted(self, name: str) -> bool:
        """Whether a node reads the tensor, or it is an output of the model."""
        return name in self._readers or name in self._results

    def _version(self, node: OnnxNode) -> int:
        """The opset version for a node of ONNX's own domain; `FIRST` for any other domain."""
        version = node.opset if node.opset is not None else self._model.opsets.get(node.domain)
        if version is None and node.domain:
            raise refusal(
                node, f"the operators of the domain {node.domain!r} are not read", "use operators of ONNX itself"
            )
        if node.domain:
            return FIRST
        assert version is not None
        if version > LAST:
            raise refusal(
                node,
                f"the model uses opset {version}, and opsets up to {LAST} are read",
                f"export it with opset {LAST}",
                "onnx.opset",
            )
        return version

    def _declared(self, call: OnnxCall) -> OnnxCall:
        """The call, checked against its declaration: version and data type. Raises `Unsupported`
        where it does not fit.
        """
        node = call.node
        declared = OPERATORS.get((node.domain, node.op))
        if declared is None:
            raise refusal(node, "this operator is not read", "docs/onnx.md lists those that are", "onnx.operator")
        if declared.kind == "refused":
            raise refusal(node, "the integer machine does not run it", declared.note, "onnx.operator")
        if declared.kind == "folded":
            names = ", ".join(f"({item.name!r})" for item in call.operands if item is not None and item.values is None)
            message = f"its operands {names} must be constant, but are computed or given"
            advice = declared.advice or "export the model with fixed shapes"
            raise refusal(node, message, advice, "onnx.constant")
        if not node.domain and call.version < declared.since:
            advice = f"convert the model with onnx.version_converter.convert_version(model, {FIRST})"
            message = f"the model uses opset {call.version}, and it is read from {declared.since} on"
            raise refusal(node, message, advice, "onnx.opset")
        if declared.kind == "written out":
            if not any(node.outputs):
                raise call.invalid("outputs", "the result has no name")
            return call
        if not node.outputs or not node.outputs[0]:
            raise call.invalid("outputs", "the result has no name")
        first = call.operand(0)
        if first.data_type not in TYPES[declared.types]:
            allowed = ", ".join(TYPES[declared.types])
            raise call.refuse(f"operand {first.name!r} is of data type {first.data_type}, not one of {allowed}")
        return call

    def _rule(self, call: OnnxCall) -> Rule:
        node = call.node
        if node.op == BIAS and node.origin is not None:
            return self._rules[BIAS]
        return self._rules[self._declared(call).node.op]

    def _enter(self, call: OnnxCall, name: str, made: Made, operations: Sequence[GraphOperation]) -> None:
        elements(made.shape, self._limits, call.node.label)
        if 0 in made.shape:
            raise call.refuse(f"its result {name!r} has no items: its shape is {list(made.shape)}")
        self._operands[name] = Operand(name, made.data_type, made.shape, None, call.node)
        self._names[name] = made.name
        self._calls[name] = call
        self._attach(name, made, operations)

    def _named(self, name: str, made: Made, first: int) -> Made:
        """Make the result bear the name that the model has for it: swap names where an intermediate tensor of the node
        took it.
        """
        computed = {output for operation in self._operations[first:] for output in operation.outputs}
        if made.name == name or name not in computed or made.name not in computed:
            return made
        swap = {name: made.name, made.name: name}

        def swapped(operand: Argument) -> Argument:
            if isinstance(operand, tuple):
                return tuple(swapped(part) for part in operand)
            return swap.get(operand, operand) if isinstance(operand, str) else operand

        for index, operation in enumerate(self._operations[first:], first):
            inputs = {key: swapped(operand) for key, operand in operation.inputs.items()}
            outputs = tuple(swap.get(output, output) for output in operation.outputs)
            self._operations[index] = replace(operation, inputs=inputs, outputs=outputs)
        one, other = (replace(self._tensors[old], name=new) for old, new in swap.items())
        self._tensors[one.name], self._tensors[other.name] = one, other
        return made._replace(name=name)

    def _attach(self, name: str, made: Made, operations: Sequence[GraphOperation]) -> None:
        """Quantise a real result where it is computed, if all its readers are equal QuantizeLinear nodes."""
        if not is_float(made.data_type) or name in self._results:
            return
        coded = bool(operations) and operations[-1].name in _CODES_ALONE
        grid = self._grid_of_readers(name, moved=coded)
        quantizer = None if grid is None else grid.quantizer()
        if quantizer is not None and self.quantize_where_computed(made.name, quantizer, operations, _MOVES):
            self._quantised.add(name)

    def _grid_of_readers(self, name: str, moved: bool) -> Grid | None:
        """The common grid if all readers of a tensor are equal QuantizeLinear nodes, else None; ``moved``: also behind
        moves.
        """
        found: Grid | None = None
        pending, seen = [(name, reader) for reader in self._readers.get(name, [])], {name}
        while pending:
            source, (node, index) = pending.pop(0)
            if moved and node.op in MOVES and not node.domain and index == 0:
                results = [item for item in node.outputs if item and item not in seen]
                if seen.intersection(self._results) or self._results.intersection(results):
                    return None
                seen.update(results)
                pending += [(item, reader) for item in results for reader in self._readers.get(item, [])]
                continue
            grid = self._grid_of_reader(node, index, name) if source == name else self._grid_of_moved(node, index, name)
            if grid is None or (found is not None and not grid.same(found)):
                return None
            found = grid
        return found

    def _grid_of_moved(self, node: OnnxNode, index: int, name: str) -> Grid | None:
        """The grid of a QuantizeLinear that reads the moved tensor, if it has a single scale; else None."""
        grid = self._grid_of_reader(node, index, name) if node.op == "QuantizeLinear" and index == 0 else None
        return grid if grid is not None and grid.uniform else None

    def _grid_of_reader(self, node: OnnxNode, index: int, name: str) -> Grid | None:
        """The grid of a QuantizeLinear that reads the tensor as its first operand; None for any other reader."""
        if node.op != "QuantizeLinear" or index != 0:
            return None
        try:
            others = [self._operands.get(item) or self._constant(node, item) for item in node.inputs[1:]]
        except Unsupported:  # the translation of that node will raise it
            return None
        call = OnnxCall(node, [self._operands[name], *others], FIRST)
        return grid_of(call, self._operands[name], data_type_of_codes(call))

    # Inputs

    def _introduce(self) -> list[str]:
        """Add the inputs: an integer input as it is, a real input as the codes of the QuantizeLinear that reads it."""
        shapes = shapes_of_inputs(self._model, self._settings, self._limits)
        names = []
        for value in self._model.inputs:
            shape = shapes[value.name]
            self._operands[value.name] = Operand(value.name, value.data_type, shape)
            if is_float(value.data_type):
                if value.name not in self._readers:
                    continue
                quantizer = self._quantizer_or_none(value, shape)
            else:
                lo, hi = self._interval(value)
                quantizer = unit(lo, hi if hi > lo else lo + 1)
            if value.name in self._settings.states:
                self._names[value.name] = self.zero_state(value.name, shape, quantizer)
                continue
            self._names[value.name] = self.external(value.name, shape, quantizer)
            names.append(value.name)
        return names

    def _commit(self, outputs: Mapping[str, str]) -> None:
        """Emit the update of each state by its output. Raises `Invalid` where type or shape do not fit."""
        for name, output in self._settings.states.items():
            where = Location(tensor=name)
            if output not in self._results:
                listed = ", ".join(repr(value.name) for value in self._model.outputs)
                raise Invalid(
                    "onnx.state", f"the state {name!r} has no output {output!r}; the outputs are {listed}", where
                )
            before, after = self.read(name), self.read(output)
            if (before.shape, before.data_type) != (after.shape, after.data_type):
                found = (
                    f"{after.data_type} {list(after.shape)}, the state {name!r} {before.data_type} {list(before.shape)}"
                )
                raise Invalid("onnx.state", f"the output {output!r} is {found}", where)
            if name in self._names:
                value = outputs[output] if output in outputs else self.name(after)
                self.emit("update", self._names[name], value, wish=f"{name} next")

    def _wanted_outputs(self) -> set[str]:
        """The names of the outputs that the caller wants. Raises `Invalid` for one that the model does not have."""
        wanted = self._settings.outputs
        for name in wanted:
            if name not in self._results:
                listed = ", ".join(repr(value.name) for value in self._model.outputs)
                raise Invalid("onnx.output", f"there is no output {name!r}; the outputs are {listed}")
        return set(wanted) or self._results

    def _interval(self, value: Value) -> tuple[int, int]:
        lo, hi = bounds(value.data_type)
        low, high = self._settings.ranges.get(value.name, (max(lo, -INT32_MAX), min(hi, INT32_MAX)))
        if not max(lo, -INT32_MAX) <= low <= high <= min(hi, INT32_MAX):
            message = f"[{low}, {high}] is no interval of {value.data_type} within +-(2^31 - 1)"
            raise Invalid("onnx.range", message, Location(tensor=value.name))
        return low, high

    def _quantizer_or_none(self, value: Value, shape: Shape) -> LinearQuantizer | None:
        """The quantiser of a real input; None where the model has none and calibration is to find it."""
        try:
            return self._quantizer_of_input(value, shape)
        except Unsupported:
            if not self._settings.floats:
                raise
            return None

    def _quantizer_of_input(self, value: Value, shape: Shape) -> LinearQuantizer:
        """The quantiser of the QuantizeLinear that every path from a real input reaches; only moves may precede it."""
        found: list[tuple[OnnxNode, Grid]] = []
        pending, seen = [value.name], {value.name}
        source = Operand(value.name, value.data_type, shape)
        while pending:
            name = pending.pop()
            for node, index in self._readers.get(name, []):
                if node.op == "QuantizeLinear" and index == 0:
                    found.append((node, self._grid_beyond(node, source)))
                elif node.op in MOVES and not node.domain and (index == 0 or node.op == "Concat"):
                    pending += [item for item in node.outputs if item and item not in seen]
                    seen.update(node.outputs)
                elif node.op not in ("Shape", "Size"):
                    message = f"the float input {value.name!r} enters the graph without QuantizeLinear"
                    declared = OPERATORS.get((node.domain, node.op))
                    dynamic = node.op == "DynamicQuantizeLinear"
                    advice = declared.note if declared and (declared.kind == "refused" or dynamic) else _QUANTIZE
                    raise refusal(node, message, advice, "onnx.float")
        if seen & self._results or not found:
            message = (
                f"the float input {value.name!r} reaches an output of the model, or nothing, without QuantizeLinear"
            )
            raise Unsupported("onnx.float", message, Location(tensor=value.name))
        (first, grid), *others = found
        for node, other in others:
            if not other.same(grid):
                message = f"it quantises the input {value.name!r} otherwise than {first.label} does"
                raise refusal(node, message, "give both the same scale and zero point")
        quantizer = grid.quantizer()
        if quantizer is None:
            quantizer = None if len(found) > 1 else input_quantizer(grid, len(shape))
        if quantizer is None or (not grid.uniform and first.inputs[0] != value.name):
            message = f"it quantises the input {value.name!r} with several scales or zero points"
            raise refusal(first, message, "quantise inputs per tensor")
        return quantizer

    def _grid_beyond(self, node: OnnxNode, source: Operand) -> Grid:
        call = OnnxCall(node, [source, *(self._constant(node, item) for item in node.inputs[1:])], FIRST)
        if node.inputs[0] != source.name and call.constant(1, "the scale").size != 1:
            message = f"it quantises the input {source.name!r}, moved before, with several scales"
            raise refusal(node, message, "quantise inputs per tensor")
        return grid_of(call, source, data_type_of_codes(call))

    def _constant(self, node: OnnxNode, name: str) -> Operand | None:
        """The operand of a constant of the model, or of a Constant node."""
        if not name:
            return None
        if name in self._constants:
            return self._read(name)
        producer = next((item for item in self._nodes if name in item.outputs), None)
        folded = None if producer is None or producer.op != "Constant" else fold(OnnxCall(producer, [], LAST))
        if folded is None:
            raise refusal(node, f"{name!r} must be constant", "make it an initializer", "onnx.constant")
        return Operand(name, folded[0][1], folded[0][0].shape, folded[0][0])

    # Outputs

    def _given(self, value: Value) -> str:
        """Return an output: an integer tensor as it is, a real tensor as the codes that its DequantizeLinear reads."""
        operand = self._read(value.name)
        assert operand is not None
        if operand.data_type != value.data_type:
            message = f"the output is declared as {value.data_type}, but it is {operand.data_type}"
            raise Invalid("onnx.output", message, Location(tensor=value.name))
        self._node, self._output = operand.node, value.name
        quantizer = unit(*bounds(value.data_type)) if not operand.real else self._quantizer_of_output(operand)
        name = self.emit("copy", self.name(operand), quantizer=quantizer, wish=value.name)
        self._output = ""
        return name

    def _quantizer_of_output(self, operand: Operand) -> LinearQuantizer | None:
        grid = grid_of_output(self._calls, operand)
        found = None if grid is None else grid.stored(operand.rank or 1)
        if found is None and self._settings.floats:
            return None
        if found is None:
            message = f"a float value leaves the graph as the output {operand.name!r}"
            advice = f"put QuantizeLinear and DequantizeLinear after it, or end the model before it, or {_QUANTIZE}"
            if operand.node is None:
                raise Unsupported("onnx.float", f"{message}; {advice}", Location(tensor=operand.name))
            raise refusal(operand.node, message, advice, "onnx.float")
        return replace(found, lo=max(found.lo, -INT32_MAX), hi=min(found.hi, INT32_MAX))

    # Queries of rules

    def name(self, operand: Operand) -> str:
        """The tensor of the graph for an operand; a constant is added to the graph on first use."""
        if operand.values is not None:
            self._require_in_machine(operand)
        if operand.name not in self._names:
            assert operand.values is not None
            if operand.values.size == 0:
                assert self._node is not None
                raise refusal(
                    self._node, f"the constant {operand.name!r} has no items: its shape is {list(operand.shape)}"
                )
            values = operand.values
            if operand.real and not finite(values):
                values = np.nan_to_num(values.astype(np.float64), posinf=_BEYOND, neginf=-_BEYOND)
            self._constant_wish = operand.name if self._settings.floats else ""
            self._names[operand.name] = self.constant(values, operand.shape)
            self._constant_wish = ""
        return self._names[operand.name]

    def name_of_constant(self) -> str:
        """The model's own name for the constant where calibration will report it."""
        return self._constant_wish or super().name_of_constant()

    def _require_in_machine(self, operand: Operand) -> None:
        values = operand.values
        assert values is not None
        if not operand.real and values.size and max(-int(values.min()), int(values.max())) > INT32_MAX:
            message = f"the constant {operand.name!r} holds an integer beyond +-(2^31 - 1), the range of the machine"
            if self._node is None:
                raise Unsupported("onnx.range", message, Location(tensor=operand.name))
            raise refusal(self._node, message, "use smaller integers")
        extended = (
            self._node is not None and self._node.op in _EXTENDED and not (values.size and np.isnan(values.min()))
        )
        if operand.real and not extended and not finite(values):
            message = f"the constant {operand.name!r} holds a NaN or an infinity, which is no real number"
            if self._node is None:
                raise Unsupported("onnx.nan", message, Location(tensor=operand.name))
            raise refusal(self._node, message)

    def aligned_operand(self, operand: Operand, rank: int) -> str:
        """The tensor of an operand, reshaped to a higher rank."""
        return self.aligned(self.name(operand), rank)

    def is_quantised(self, operand: Operand) -> bool:
        """Whether the operand was quantised where it was computed, with the quantiser of its readers."""
        return operand.name in self._quantised

    # Additions of rules

    def transposed(self, name: str, axes: Sequence[int]) -> str:
        """A tensor with its axes permuted; the tensor itself where the order does not change."""
        return name if tuple(axes) == tuple(range(len(axes))) else super().transposed(name, axes)

    def taken(self, name: str, indices: Indices, axis: int) -> str:
        """The elements at constant indices of an axis; the tensor itself where these are all indices in order."""
        extent = self.shape(name)[axis]
        if indices.ndim == 1 and indices.size == extent and (indices == np.arange(extent)).all():
            return name
        return super().taken(name, indices, axis)

    def origin(self) -> tuple[str, str]:
        """The first result and the operator of the node that is being translated."""
        return (self._node.outputs[0], self._node.op) if self._node else ("", "")

    def made(self, name: str) -> None:
        """Record that a tensor of the graph belongs to the node that is being translated."""
        if self._node:
            self._served[name] = self._node

    def _fresh(self, wish: str) -> str:
        """A free name; the names of outputs are reserved for the outputs."""
        kept = wish in self._results and wish != self._output
        return self._numbered(wish) if kept else super()._fresh(wish)
