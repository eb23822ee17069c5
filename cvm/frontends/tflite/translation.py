"""From a model to a `QuantizedGraph`, operator by operator.

A tensor with a scale is real, and rounded once to its own quantiser; an integer tensor without a scale holds integers.
Convolutions and pooling of graphs have the channels at axis 1, TFLite has them last. A tensor may exist in both orders;
operators for which the order does not matter take the one that exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from math import prod
from typing import Literal, TypeAlias

import numpy as np

from cvm.errors import CvmError, Invalid, Location, Unsupported
from cvm.frontends.common.data_types import unit
from cvm.frontends.common.emission import Emission
from cvm.frontends.common.places import Place
from cvm.frontends.tflite.call import Made, Operand, TfliteCall
from cvm.frontends.tflite.folding import FOLDED, fold
from cvm.frontends.tflite.model import Shape, Subgraph, TfliteModel, TfliteOperator, TfliteTensor, refusal
from cvm.frontends.tflite.tensors import FLOATS, contents_of, integer_range, quantizer_of, stored_quantizer
from cvm.frontends.tflite.variables import Variables
from cvm.graph import GraphOperation, QuantizedGraph
from cvm.limits import INT32_MAX, Limits, elements
from cvm.quantization import LinearQuantizer
from cvm.records import dataclass

__all__ = ["Rule", "TfliteTranslation", "Translated"]

Rule: TypeAlias = "Callable[[TfliteTranslation, TfliteCall], Made | list[Made]]"
"""A rule checks an operator and emits its operations; returns its result or results."""


@dataclass(slots=True)
class Translated:
    """The graph, and the operator of the model that each tensor of the graph belongs to."""

    graph: QuantizedGraph
    operators: dict[str, TfliteOperator] = field(default_factory=dict)
    places: tuple[Place, ...] = ()


class TfliteTranslation(Emission):
    """The graph during its translation. The rules of operators read operands by name and emit operations."""

    def __init__(
        self,
        model: TfliteModel,
        limits: Limits,
        rules: Mapping[str, Rule],
        floats: bool = False,
        compat: str = "correct",
    ) -> None:
        """``rules`` is the table for ``compat``; with ``floats``, see `cvm.frontends.tflite.load`."""
        super().__init__("the reader of TFLite", "wrap")
        self._floats, self._compat = floats, compat
        self._model, self.limits, self._rules = model, limits, rules
        self._graph: Subgraph = model.subgraphs[0]
        self._operands: dict[int, Operand] = {}
        self._last: dict[int, str] = {}
        self._second: dict[int, str] = {}
        """The graph tensors of the model's tensors: with channels last as in the model (`_last`), and at axis 1
        (`_second`).
        """
        self._grids: dict[int, LinearQuantizer] = {}
        """The quantisers of float tensors whose numbers are exactly on the grid of a quantiser."""
        self._served: dict[str, TfliteOperator] = {}
        self._operator: TfliteOperator | None = None
        self._wish = ""
        self._reserved = {self._name_of(self._graph.tensors[index]) for index in self._graph.outputs}
        self.variables = Variables(model, limits, floats)

    # The whole graph

    def run(self) -> Translated:
        """Translate the whole model. Raises `CvmError` that names the operator."""
        inputs = [self._introduce(self._graph.tensors[index]) for index in self._graph.inputs]
        for operator in self._graph.operators:
            self._operator = operator
            self._translate(operator)
        self._operator = None
        self.variables.update(self)
        outputs = [self._given(self._graph.tensors[index]) for index in self._graph.outputs]
        name = "tflite" if self._compat == "correct" else self._compat
        return Translated(self.finish(name, inputs, outputs, self._model.digest), self._served, self._places())

    def _places(self) -> tuple[Place, ...]:
        """The quantised tensors that operators compute, in the order of the file."""
        found = []
        for index in (index for operator in self._graph.operators for index in operator.outputs):
            operand, tensor = self._operands.get(index), self._graph.tensors[index]
            if operand is None or operand.quantizer is None:
                continue
            for names, planar in ((self._second, True), (self._last, False)):
                if index in names:
                    found.append(Place(self._name_of(tensor), names[index], operand.quantizer, planar, index))
                    break
        return tuple(found)

    def _introduce(self, tensor: TfliteTensor) -> str:
        """Add an input. A float input gets the quantiser of the operators that quantise it."""
        elements(tensor.shape, self.limits, tensor.label)
        quantizer = quantizer_of(tensor) or self._quantizer_of_readers(tensor)
        if quantizer is None and tensor.data_type not in FLOATS:
            quantizer = unit(*integer_range(tensor.data_type))
        if quantizer is None and not self._floats:
            message = f"the input {tensor.label} is of type {tensor.data_type} and no operator quantises it"
            advice = "quantise the model when it is converted, inputs and outputs included"
            raise Unsupported("tflite.float", f"{message}; {advice}", Location(tensor=tensor.name))
        name = self.external(self._fresh(self._name_of(tensor)), tensor.shape, quantizer)
        self._operands[tensor.index] = Operand(tensor, tensor.shape, quantizer if self._is_real(tensor) else None)
        self._last[tensor.index] = self.nonzero(name) if tensor.data_type == "bool" else name
        return name

    @staticmethod
    def _is_real(tensor: TfliteTensor) -> bool:
        return tensor.quantization is not None or tensor.data_type in FLOATS

    def _quantizer_of_readers(self, tensor: TfliteTensor) -> LinearQuantizer | None:
        """The quantiser to which all operators that read a float tensor quantise it, or None."""
        if tensor.data_type not in FLOATS:
            return None
        readers = [operator for operator in self._graph.operators if tensor.index in operator.inputs]
        if not readers or any(operator.op != "QUANTIZE" or not operator.outputs for operator in readers):
            return None
        found = {quantizer_of(self._graph.tensors[operator.outputs[0]]) for operator in readers}
        return found.pop() if len(found) == 1 else None

    def _translate(self, operator: TfliteOperator) -> None:
        rule = self._rules.get(operator.op)
        if rule is None and operator.op not in FOLDED:
            raise self._unread(operator)
        tensors = self._graph.tensors
        results = [tensors[index] for index in operator.outputs if index >= 0]
        intermediates = [tensors[index] for index in operator.intermediates if index >= 0]
        call = TfliteCall(operator, [self._read(index) for index in operator.inputs], results, intermediates)
        values = fold(call)
        if values is not None:
            for tensor, items in zip(results, values, strict=True):
                self._operands[tensor.index] = Operand(tensor, items.shape, stored_quantizer(tensor), items)
            return
        if rule is None:
            raise self._unread(operator)
        self._wish = self._name_of(results[0]) if results else ""
        before = len(self._operations)
        try:
            made = rule(self, call)
        except CvmError as error:
            raise error.at(op=operator.op) from None
        found = [made] if isinstance(made, Made) else made
        for tensor, result in zip(results, found, strict=False):
            self._wish = self._name_of(tensor)
            self._enter(call, tensor, result, self._operations[before:])

    def _unread(self, operator: TfliteOperator) -> CvmError:
        """The error for an operator that has no rule."""
        if self._compat != "correct":
            advice = "docs/tflite.md lists the operators that are; without --compat the model has its exact meaning"
            return refusal(operator, f"it is not computed as {self._compat} does", advice, "tflite.compat")
        if operator.op in FOLDED:
            advice = "the shape of a tensor cannot depend on the data"
            return refusal(operator, "this operator is read on constants alone", advice, "tflite.operator")
        advice = "docs/tflite.md lists those that are"
        return refusal(operator, "this operator is not read", advice, "tflite.operator")

    def _enter(self, call: TfliteCall, tensor: TfliteTensor, made: Made, operations: Sequence[GraphOperation]) -> None:
        """Give a result its quantiser, and record its name and layout."""
        quantizer = quantizer_of(tensor)
        name = made.name
        if quantizer is not None and self.quantize_where_computed(name, quantizer, operations) is None:
            name = self.emit("copy", name, quantizer=quantizer)
        shape = self._shape_of(name, made.planar)
        if tensor.shape != shape and not tensor.open_shape and tensor.shape:
            message = f"its result {tensor.label} has the shape {list(shape)}, and the file says {list(tensor.shape)}"
            raise call.invalid("shape", message)
        self._operands[tensor.index] = Operand(tensor, self._declared(tensor, shape), quantizer)
        (self._second if made.planar else self._last)[tensor.index] = name
        source = call.optional(0)
        if call.operator.op in MOVES and source is not None and source.tensor.index in self._grids:
            self._grids[tensor.index] = self._grids[source.tensor.index]

    @staticmethod
    def _declared(tensor: TfliteTensor, shape: Shape) -> Shape:
        """The shape of a result: () where the file says so; graphs have a tensor of shape (1,) for it."""
        return () if not tensor.shape and shape == (1,) and not tensor.open_shape else shape

    def _shape_of(self, name: str, planar: bool) -> Shape:
        shape = self.shape(name)
        return (shape[0], *shape[2:], shape[1]) if planar else shape

    def _given(self, tensor: TfliteTensor) -> str:
        """Return an output, under the name that the model has for it."""
        operand = self._read(tensor.index)
        assert operand is not None
        quantizer = operand.quantizer or self._grids.get(tensor.index)
        if quantizer is not None and quantizer.axis is not None:
            message = f"the output {tensor.label} is a constant with scales per axis"
            raise Unsupported("tflite.quantization", message, Location(tensor=tensor.name))
        if quantizer is None and operand.real and not self._floats:
            message = f"the output {tensor.label} is of floats that no operator has quantised"
            raise Unsupported("tflite.float", message, Location(tensor=tensor.name))
        if quantizer is None and not operand.real and operand.data_type != "bool":
            quantizer = unit(*integer_range(tensor.data_type))
        name, wish = self.name(operand), self._name_of(tensor)
        self._reserved.discard(wish)
        dtype: Literal["logical"] | None = "logical" if operand.data_type == "bool" else None
        return self.emit("copy", name, quantizer=quantizer, wish=wish, dtype=dtype)

    def is_taken(self, name: str) -> bool:
        """Whether the name is taken; the names of outputs are reserved for the outputs."""
        return name in self._reserved or super().is_taken(name)

    # Queries of rules

    def _read(self, index: int) -> Operand | None:
        """The operand of an operator by its tensor index, or None; a constant is read here, on first use."""
        if index < 0:
            return None
        if index not in self._operands:
            tensor = self._graph.tensors[index]
            if tensor.contents is None:
                if tensor.is_variable or tensor.data_type == "resource":
                    return Operand(tensor, tensor.shape, quantizer_of(tensor))
                raise Unsupported("tflite.order", f"{tensor.label} is read before it is computed")
            values = contents_of(tensor, self.limits)
            self._operands[index] = Operand(tensor, tensor.shape, stored_quantizer(tensor), values)
        return self._operands[index]

    def name(self, operand: Operand) -> str:
        """The tensor of the graph for an operand, with the channels where the model has them."""
        index = operand.tensor.index
        if index not in self._last:
            if index in self._second:
                rank = operand.rank
                self._last[index] = self.transposed(self._second[index], (0, *range(2, rank), 1))
            else:
                self._last[index] = self.stored(operand, operand.shape)
        return self._last[index]

    def planar(self, operand: Operand) -> str:
        """The tensor of the graph for an operand, with the channels at axis 1."""
        index = operand.tensor.index
        if index not in self._second:
            order = (0, operand.rank - 1, *range(1, operand.rank - 1))
            if operand.values is not None:
                self._second[index] = self.stored(operand, order=order)
            else:
                self._second[index] = self.transposed(self.name(operand), order)
        return self._second[index]

    def is_planar(self, operand: Operand) -> bool:
        """Whether a computed operand exists only with the channels at axis 1."""
        return operand.tensor.index in self._second and operand.tensor.index not in self._last

    def stored(self, operand: Operand, shape: Shape | None = None, order: Sequence[int] | None = None) -> str:
        """A constant with its axes permuted by ``order``, then reshaped to ``shape``, which keeps the axis of its
        scales.
        """
        values, quantizer = operand.values, operand.quantizer
        if values is None:
            raise Unsupported("tflite.constant", f"{operand.label} must be constant, but is computed or given")
        if values.size == 0:
            raise Unsupported("tflite.empty", f"{operand.label} has no items", Location(tensor=operand.tensor.name))
        integers = quantizer is None and values.dtype.kind in "iu"
        if integers and max(-int(values.min()), int(values.max())) > INT32_MAX:
            raise Unsupported("tflite.range", f"{operand.label} holds an integer beyond +-(2^31 - 1)")
        axis = None if quantizer is None else quantizer.axis
        if shape is not None and values.size != prod(shape):
            raise _misshapen(operand, f"must have the shape {list(shape)}, found the shape {list(values.shape)}")
        if order is not None and values.ndim != len(order):
            raise _misshapen(operand, f"must have {len(order)} axes, found the shape {list(values.shape)}")
        if order is not None:
            values = values.transpose(order)
            axis = None if axis is None else list(order).index(axis)
        if shape is not None and tuple(shape) != values.shape:
            if axis is not None:
                extent = values.shape[axis]
                if extent not in shape:
                    raise _misshapen(operand, f"has scales along an axis of extent {extent}, which {list(shape)} lacks")
                axis = max(i for i, n in enumerate(shape) if n == extent)
            values = values.reshape(shape)
        if quantizer is not None and quantizer.axis != axis:
            quantizer = LinearQuantizer(quantizer.scale, quantizer.offset, quantizer.lo, quantizer.hi, axis)
        return self.constant(np.ascontiguousarray(values), values.shape, quantizer)

    # Additions of rules

    def on_grid(self, tensor: TfliteTensor, quantizer: LinearQuantizer) -> None:
        """Record that a float tensor holds only numbers of this quantiser."""
        self._grids[tensor.index] = quantizer

    def grid(self, operand: Operand) -> LinearQuantizer | None:
        """The quantiser whose numbers an operand holds, or None where it is not known."""
        return operand.quantizer or self._grids.get(operand.tensor.index)

    def activated(self, call: TfliteCall, name: str) -> str:
        """The tensor after the activation that is fused with the operator."""
        kind = call.integer("FusedActivationFunction")
        if kind in _CLIPS:
            lo, hi = _CLIPS[kind]
            if hi is None:
                return self.emit("relu", name)
            return self.emit("clamp", name, Fraction(lo), Fraction(hi))
        if kind == _TANH:
            return self.emit("tanh", name)
        if kind != _NONE:
            raise call.refuse(f"the fused activation number {kind} is not known")
        return name

    def origin(self) -> tuple[str, str]:
        """The name of the result, and the operator that is being translated."""
        return (self._wish, self._operator.op) if self._operator else ("", "")

    def made(self, name: str) -> None:
        """Record that a tensor of the graph belongs to the operator that is being translated."""
        if self._operator:
            self._served[name] = self._operator

    def _name_of(self, tensor: TfliteTensor) -> str:
        return self._model.names.get(tensor.index) or tensor.name or f"tensor {tensor.index}"


def _misshapen(operand: Operand, text: str) -> Invalid:
    return Invalid("tflite.operator.shape", f"{operand.label} {text}", Location(tensor=operand.tensor.name))


MOVES = frozenset(
    ("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "SLICE", "STRIDED_SLICE", "SPLIT", "SPLIT_V", "UNPACK", "TILE")
)
"""Operators that only move elements: their results have the grid of their operand."""
_NONE, _TANH = 0, 4
_CLIPS: dict[int, tuple[int, int | None]] = {1: (0, None), 2: (-1, 1), 3: (0, 6)}
"""The fused activations that clip: RELU, RELU_N1_TO_1 and RELU6, by their numbers in the schema."""
