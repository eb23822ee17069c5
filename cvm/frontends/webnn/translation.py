"""From recorded calls to a `QuantizedGraph`: the graph, its inputs and outputs, and the operations of each call.

The graph has a real tensor for every operand; the tensors of integer operands hold integers. Only quantizeLinear
rounds: it gives its quantiser to the tensor that it reads where no other call reads that tensor, else to a copy. Its
integers are then the sum x / scale + zero point, which lowering merges with the neighbouring operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, TypeAlias

import numpy as np

from cvm.errors import Location
from cvm.frontends.common.data_types import bounds, is_float, unit
from cvm.frontends.common.emission import Emission
from cvm.frontends.webnn.declarations import OPERATORS, section
from cvm.frontends.webnn.errors import NotSupportedError
from cvm.frontends.webnn.operand import MLOperand, Shape, WebnnNode
from cvm.frontends.webnn.rounding import MOVING, WEIGHTED, operands_to_round
from cvm.frontends.webnn.scales import Grid, grid_of
from cvm.graph import GraphOperation, QuantizedGraph
from cvm.limits import INT32_MAX
from cvm.quantization import LinearQuantizer
from cvm.quantization.calibration import affine
from cvm.quantization.exact import quantize
from cvm.records import dataclass

__all__ = ["Boundary", "Rule", "Translated", "TranslatedCall", "WebnnTranslation", "refusal"]

Rule: TypeAlias = "Callable[[WebnnTranslation, WebnnNode], str | list[str]]"
"""A rule emits the operations of a call; it returns the name of the result, or of each result."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """An input or output of the graph, and the value of the program that carries it.

    A real one has the ``grid`` of a quantizeLinear or dequantizeLinear, or a quantiser that calibration finds.
    """

    name: str
    value: str
    data_type: str
    shape: Shape
    grid: Grid | None = None
    interval: tuple[int, int] | None = None
    """The interval of an integer input."""

    @property
    def calibrated(self) -> bool:
        """Whether the boundary is real and calibration finds its quantiser."""
        return self.grid is None and is_float(self.data_type)


@dataclass(frozen=True, slots=True)
class TranslatedCall:
    """A translated call: the operations of the graph that it became."""

    operand: str
    op: str
    label: str
    operations: tuple[str, ...]
    rounded: bool


@dataclass(slots=True)
class Translated:
    """The graph, the correspondence of its inputs and outputs with the builder's, and the calls in order."""

    graph: QuantizedGraph
    inputs: list[Boundary]
    outputs: list[Boundary]
    calls: list[TranslatedCall]
    operands: dict[str, MLOperand] = field(default_factory=dict)
    """The operand that each tensor of the graph belongs to."""
    saturated: dict[str, MLOperand] = field(default_factory=dict)
    """The tensors that a quantizeLinear rounds to 32 bits, with its result."""
    open: frozenset[str] = frozenset()
    """The tensors without a quantiser for which calibration finds one."""
    named: dict[str, MLOperand] = field(default_factory=dict)
    """The operand that is this tensor of the graph; tensors inside of a call have none."""


def refusal(operand: MLOperand, message: str, advice: str = "", code: str = "") -> NotSupportedError:
    """The error for a valid graph that is not supported: label, operator, operand, reason, next step and section."""
    node = operand.node
    op = node.op if node else "input"
    prefix = f"[{node.label}] " if node and node.label else ""
    text = f"{prefix}{op}: operand {operand.name!r} ({operand.data_type}): {message}"
    location = Location(tensor=operand.name, op=op)
    text += f"; {advice}" if advice else ""
    return NotSupportedError(code or f"webnn.{op}.unsupported", f"{text} (WebNN {section(op)})", location)


class WebnnTranslation(Emission):
    """The graph during its translation. The rules of operators read operands by name and emit operations."""

    def __init__(
        self,
        outputs: Mapping[str, MLOperand],
        overflow: Literal["wrap", "error"],
        rules: Mapping[str, Rule],
        calibrated: bool = False,
        accumulates: bool = True,
    ) -> None:
        """``rules`` is `cvm.frontends.webnn.rules.RULES`; with ``calibrated``, real numbers may have no grid.

        With ``accumulates``, calibration does not round a sum that only one linear or clipping call reads.
        """
        super().__init__("the reader of WebNN", overflow)
        self._outputs, self._rules = outputs, rules
        self._names: dict[MLOperand, str] = {}
        self._inputs: list[Boundary] = []
        self._calls: list[TranslatedCall] = []
        self._serves: dict[str, MLOperand] = {}
        self._nodes = _reachable(outputs.values())
        self._readers: dict[MLOperand, list[WebnnNode]] = {}
        for node in self._nodes:
            for operand in node.operands.values():
                self._readers.setdefault(operand, []).append(node)
        given = list(outputs.values())
        self._calibrated, self._accumulates = calibrated, accumulates
        self._rounded = operands_to_round(self._nodes, self._readers, given, accumulates) if calibrated else set()
        self._open: dict[str, None] = {}
        self._quantised: set[MLOperand] = set()
        self._modular: set[MLOperand] = set()
        self._saturated: dict[str, MLOperand] = {}
        self._node: WebnnNode | None = None
        self._graph_inputs: list[str] = []

    # The whole graph

    def run(self, inputs: Mapping[str, MLOperand]) -> Translated:
        """Translate the whole graph. ``inputs`` are all inputs of the builder; those that no output needs stay inputs,
        too.
        """
        for node in self._nodes:
            _require_built(node, self._calibrated)
        for operand in inputs.values():
            self._introduce(operand)
        for node in self._nodes:
            for operand in node.operands.values():
                _require_in_machine(node, operand)
                if operand.node is None and operand not in self._names and operand.values is not None:
                    self._names[operand] = self._stored(node, operand)
        for node in self._nodes:
            self._node = node
            before = len(self._operations)
            names = self._rules[node.op](self, node)
            made = self._operations[before:]
            for output, name in zip(node.outputs, [names] if isinstance(names, str) else names, strict=True):
                self._names[output] = name
                self._attach(output, name, made)
                if output in self._rounded:
                    self._leave_open(name, made)
            rounded = any(self._tensors[o].quantizer is not None for item in made for o in item.outputs)
            operations = tuple(item.name for item in made)
            self._calls.append(TranslatedCall(node.outputs[0].name, node.op, node.label, operations, rounded))
        self._node = None
        found = [self._output(name, operand) for name, operand in self._outputs.items()]
        graph = self.finish("webnn", self._graph_inputs, [boundary.value for boundary in found])
        left = frozenset(self._left(graph))
        named = {name: operand for operand, name in reversed(self._names.items())}
        return Translated(graph, self._inputs, found, self._calls, self._serves, self._saturated, left, named)

    def _left(self, graph: QuantizedGraph) -> Iterator[str]:
        """The tensors for which calibration finds quantisers; of constants and variables, those of floats."""
        for name, tensor in graph.tensors.items():
            data = tensor.data
            if data is not None and self._calibrated:
                if data.quantizer is None and data.values.dtype.kind == "f":
                    yield name
            elif name in self._open and tensor.quantizer is None:
                yield name

    def _introduce(self, operand: MLOperand) -> None:
        """Add an input: an integer input as it is; a real input as codes, once for each
        quantizeLinear that reads it.
        """
        readers = self._readers.get(operand, [])
        if not is_float(operand.data_type):
            assert operand.interval is not None
            indexes = not operand.promised and all(self._indexes(node, operand) for node in readers) and readers
            interval = bounds(operand.data_type) if indexes else operand.interval
            lo, hi = self._within_machine(operand, *interval)
            name = self._external(operand.name, operand, unit(lo, hi if hi > lo else lo + 1))
            self._inputs.append(Boundary(operand.name, name, operand.data_type, operand.shape, interval=interval))
            self._names[operand] = name
            return
        if operand in self._rounded:
            self._names[operand] = name = self._external(operand.name, operand, None)
            self.left_open(name)
            self._inputs.append(Boundary(operand.name, name, operand.data_type, operand.shape))
        for i, node in enumerate(readers):
            if node.op != "quantizeLinear" or node.operands["input"] is not operand:
                if self._calibrated:
                    continue
                if node.op in ("quantizeLinear", "dequantizeLinear"):
                    grid_of(node)  # raises where a scale is not constant
                message = f"a float value would enter the graph: {node.op} reads it"
                raise refusal(operand, message, _QUANTISE)
            grid = grid_of(node)
            wish = operand.name if i == 0 and operand not in self._names else f"{operand.name}.{node.outputs[0].name}"
            lo, hi = bounds(grid.data_type)
            name = self._external(wish, operand, grid.quantizer() or unit(lo, hi))
            self._inputs.append(Boundary(operand.name, name, operand.data_type, operand.shape, grid))
            codes = name
            if grid.quantizer() is not None:
                codes = self.codes(name, operand.shape, grid)
            self._names[node.outputs[0]] = codes

    def _stored(self, node: WebnnNode, operand: MLOperand) -> str:
        """A constant as it is; or rounded, where calibration rounds every sum and the constant is not a weight."""
        values = operand.values
        assert values is not None
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            message = f"the constant {operand.name!r}, which it reads, holds NaN or an infinity: no real number"
            advice = "replace it by a finite number that is great enough"
            raise refusal(node.outputs[0], message, advice, "quantization.nan")
        rounded = self._calibrated and not self._accumulates and is_float(operand.data_type)
        weight = node.op in WEIGHTED and not ("Normalization" in node.op and operand is node.operands["input"])
        if not rounded or weight or "Linear" in node.op:
            return self.constant(values, operand.shape)
        quantizer = affine(float(values.min()), float(values.max()), 8, signed=True, nonzero=True)
        return self.constant(quantize(values.reshape(operand.shape or (1,)), quantizer), operand.shape, quantizer)

    def _within_machine(self, operand: MLOperand, lo: int, hi: int) -> tuple[int, int]:
        """The interval of an input clipped to the machine. Raises `NotSupportedError` where that
        could change a result.
        """
        readers = self._readers.get(operand, [])
        given = any(item is operand for item in self._outputs.values())
        below = lo >= -INT32_MAX or all(_clips(node, -1) or self._indexes(node, operand) for node in readers)
        above = hi <= INT32_MAX or all(_clips(node, 1) or self._indexes(node, operand) for node in readers)
        if given or not (below and above):
            message = f"integers of {(lo, hi)} are beyond +-(2^31 - 1), the range of the machine"
            raise refusal(operand, message, "promise a smaller value_range, or clip the input by clamp alone")
        return max(lo, -INT32_MAX), min(hi, INT32_MAX)

    def _indexes(self, node: WebnnNode, operand: MLOperand) -> bool:
        """Whether a call reads an operand, or moves of it, only as indices, which are clamped to the axis."""
        others = [other for name, other in node.operands.items() if name != "indices"]
        if node.operands.get("indices") is operand:
            return operand not in others
        given = any(output is item for output in node.outputs for item in self._outputs.values())
        readers = [(reader, output) for output in node.outputs for reader in self._readers.get(output, [])]
        return node.op in MOVING and not given and all(self._indexes(*pair) for pair in readers)

    def _external(self, wish: str, operand: MLOperand, quantizer: LinearQuantizer | None) -> str:
        name = self.external(self._fresh(wish), operand.shape, quantizer)
        self._serves[name] = operand
        self._graph_inputs.append(name)
        return name

    def _output(self, name: str, operand: MLOperand) -> Boundary:
        """Add an output: an integer output as it is; a real output as the codes that its dequantizeLinear reads."""
        source, grid = self._names[operand], None
        if is_float(operand.data_type):
            grid = output_grid(operand)
            if grid is None and self._calibrated:
                self._node = operand.node
                value = self.emit("copy", source, wish=name)
                self.left_open(value)
                return Boundary(name, value, operand.data_type, operand.shape)
            if grid is None:
                message = f"a float value would leave the graph as the output {name!r}"
                advice = "give its quantizeLinear, or the dequantizeLinear of that"
                raise refusal(operand, message, f"{advice}; or give build(.., calibration=[..]) representative inputs")
            source = self.codes(source, operand.shape, grid)
        lo, hi = (
            (-INT32_MAX, INT32_MAX)
            if operand in self._modular
            else bounds(grid.data_type if grid else operand.data_type)
        )
        self._node = operand.node
        value = self.emit("copy", source, quantizer=unit(lo, hi), wish=name)
        return Boundary(name, value, operand.data_type, operand.shape, grid)

    # Queries of rules

    def name(self, operand: MLOperand) -> str:
        """The tensor of the graph for an operand."""
        return self._names[operand]

    def done(self, operand: MLOperand) -> str | None:
        """The tensor of an operand that was added with the inputs; None for any other operand."""
        return self._names.get(operand)

    def aligned_operand(self, operand: MLOperand, rank: int) -> str:
        """The tensor of an operand, reshaped to a higher rank."""
        return self.aligned(self._names[operand], rank)

    @property
    def calibrated(self) -> bool:
        """Whether calibration finds the quantisers that the graph does not have."""
        return self._calibrated

    def is_quantised(self, operand: MLOperand) -> bool:
        """Whether the operand was quantised where it was computed, with the quantiser of its reader."""
        return operand in self._quantised

    def _attach(self, operand: MLOperand, name: str, made: Sequence[GraphOperation]) -> None:
        """Quantise a real result at the operation that computes it, if its only reader is a quantizeLinear."""
        readers = self._readers.get(operand, [])
        if not is_float(operand.data_type) or any(item is operand for item in self._outputs.values()):
            return
        if len(readers) != 1 or readers[0].op != "quantizeLinear":
            return
        quantizer = grid_of(readers[0]).quantizer()
        target = None if quantizer is None else self.quantize_where_computed(name, quantizer, made)
        if target is not None:
            self._quantised.add(operand)
            self._saturates(target, readers[0].outputs[0])

    def _saturates(self, name: str, operand: MLOperand) -> None:
        """Record that a quantizeLinear rounds a tensor to the integers of ``operand``, if these have 32 bits."""
        if operand.data_type in ("int32", "uint32"):
            self._saturated[name] = operand

    # Additions of rules

    def left_open(self, name: str) -> str:
        """Record that calibration finds the quantiser of a tensor (if there is calibration); returns the name of the
        tensor.
        """
        if self._calibrated and self._tensors[name].kind in ("computed", "external"):
            self._open[name] = None
        return name

    def _leave_open(self, name: str, made: Sequence[GraphOperation]) -> None:
        """Record that calibration finds quantisers for a result of ``made``, and for the tensors
        that it is a move of.
        """
        sources = {item.outputs[0]: item for item in made if item.name in ("reshape", "transpose")}
        self.left_open(name)
        while name in sources:
            name = self.left_open(str(sources[name].inputs["input"]))

    def origin(self) -> tuple[str, str]:
        """The name of the result, and the operator of the call that is being translated."""
        return (self._node.outputs[0].name, self._node.op) if self._node else ("", "")

    def made(self, name: str) -> None:
        """Record that a tensor of the graph belongs to the call that is being translated."""
        if self._node:
            self._serves[name] = self._node.outputs[0]

    def rounded(self, name: str) -> None:
        """Record that the quantizeLinear that is being translated rounds a tensor."""
        if self._node:
            self._saturates(name, self._node.outputs[0])

    def modular(self, data_type: str) -> bool:
        """Whether the result is an output that the host reduces modulo 2^N."""
        assert self._node is not None
        result = self._node.outputs[0]
        found = bounds(data_type)[1] > INT32_MAX and self._overflow == "wrap" and self._only_given(result)
        if found:
            self._modular.add(result)
        return found

    def _only_given(self, operand: MLOperand) -> bool:
        """Whether an operand is an output of unsigned integers that no call reads; the host reduces it modulo 2^N."""
        given = any(item is operand for item in self._outputs.values())
        return given and operand.data_type.startswith("u") and not self._readers.get(operand)


def output_grid(operand: MLOperand) -> Grid | None:
    """The grid of the dequantizeLinear that a real operand is a move of, or None; the operand lies exactly on it."""
    node = operand.node
    if node is None or not is_float(operand.data_type):
        return None
    if node.op == "dequantizeLinear":
        return grid_of(node)
    if node.op not in MOVING:
        return None
    parts = [part for name, part in node.operands.items() if name != "indices"]
    grids = [output_grid(part) for part in parts]
    first = grids[0]
    if first is None or not first.uniform:
        return None
    return first if all(grid is not None and grid.same(first) for grid in grids) else None


_QUANTISE = (
    "read it through quantizeLinear and dequantizeLinear, or give build(.., calibration=[..]) representative inputs"
)


def _require_built(node: WebnnNode, calibrated: bool) -> None:
    """Raise `NotSupportedError` for an operator that the machine does not run, or not without calibration."""
    declared = OPERATORS[node.op]
    if declared.kind == "refused":
        raise refusal(node.outputs[0], "the integer machine does not run it", declared.note)
    if declared.kind == "calibrated" and not calibrated:
        raise refusal(node.outputs[0], "nothing rounds its states from one step to the next", declared.note)


def _clips(node: WebnnNode, side: int) -> bool:
    """Whether a call gives the same result for all integers beyond the machine, on one side, as for
    its last integer.
    """
    if node.op == "clamp":
        bound = node.attributes["min_value" if side < 0 else "max_value"]
        return bound is not None and abs(bound) <= INT32_MAX
    return node.op == "sign" or (node.op == "relu" and side < 0)


def _require_in_machine(node: WebnnNode, operand: MLOperand) -> None:
    """Raise `NotSupportedError` for an integer constant beyond the machine; quantised constants are real numbers."""
    values = operand.values
    if values is None or is_float(operand.data_type) or node.op in ("quantizeLinear", "dequantizeLinear"):
        return
    if node.operands.get("indices") is operand and node.operands["input"] is not operand:
        return  # constants that are indices: gathers clamp them, scatters refuse them
    if int(values.min()) < -INT32_MAX or int(values.max()) > INT32_MAX:
        message = f"the constant {operand.name!r} holds an integer beyond +-(2^31 - 1), the range of the machine"
        raise refusal(node.outputs[0], message, "use smaller integers")


def _reachable(outputs: Any) -> list[WebnnNode]:
    """The calls that the outputs depend on, each after those that it reads, in the order in which they were made."""
    found: dict[int, WebnnNode] = {}
    pending = [operand.node for operand in outputs]
    while pending:
        node = pending.pop()
        if node is None or id(node) in found:
            continue
        found[id(node)] = node
        pending.extend(operand.node for operand in node.operands.values())
    return sorted(found.values(), key=lambda node: node.number)
