"""A graph evaluated exactly, each operation on the codes that a program has for its operands."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph, TensorData
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer
from tests.oracle.quantization import logarithmic, quantise
from tests.oracle.real import Number, floor_of, sign
from tests.oracle.tensors import from_numbers
from tools.exactness import movement, rows, windows  # noqa: F401  (imported for their operations)
from tools.exactness.call import OPERATIONS, Call
from tools.exactness.elements import Budget, Coded, Elements, Index, Kept, aligned, literal
from tools.exactness.functions import FUNCTIONS
from tools.exactness.oracle import whole

__all__ = ["Evaluation", "code_of"]

Codes = Mapping[str, npt.NDArray[Any]]


def code_of(x: Number, quantizer: Quantizer, channel: int = 0) -> int:
    """The code of a number: rounded once and clipped."""
    if isinstance(quantizer, LogarithmicQuantizer):
        item = np.empty(1, dtype=object)
        item[0] = x
        bits = (quantizer.hi + 1).bit_length() - 1
        return int(quantise(from_numbers(item), logarithmic(Fraction(2) ** quantizer.top, bits)).codes[0])
    scale, offset = quantizer.scale[channel], quantizer.offset[channel]
    if quantizer.rounding == "toward_zero":
        side = sign(x - offset)
        code = side * floor_of((x - offset) * side, 1 / scale)[0]
    else:
        code, tie = floor_of(x, 1 / scale, Fraction(1, 2) - offset / scale)
        code -= quantizer.rounding == "half_even" and tie and code % 2
    return min(max(code, quantizer.lo), quantizer.hi)


class Evaluation:
    """All tensors of one run of a graph.

    ``codes`` are the codes that a program computed, by tensor of the graph; those of inputs and of updated variables
    must be there. ``exact`` has each computed tensor before it is rounded, from operands with these codes. An operand
    without codes is computed, and rounded if it has a quantiser.
    """

    def __init__(self, graph: QuantizedGraph, codes: Codes, budget: Budget) -> None:
        self.exact: dict[str, Elements] = {}
        self.missing: dict[str, str] = {}
        """The computed tensors that cannot be evaluated, each with the reason."""
        self.updates: dict[str, Elements] = {}
        """The new contents of variables, before they are rounded by the variable's quantiser."""
        self._graph, self._codes, self._budget = graph, codes, budget
        self._seen: dict[str, Elements] = {}
        for tensor in graph.tensors.values():
            if tensor.kind != "computed":
                self._introduce(tensor)
        for operation in graph.operations:
            self._evaluate(operation)

    def _introduce(self, tensor: GraphTensor) -> None:
        if tensor.name in self._codes:
            self._seen[tensor.name] = self._coded(tensor)
        elif tensor.data is not None:
            stored = self._stored(tensor.data, tensor.shape)
            self._seen[tensor.name] = self._rounded(tensor, stored)

    def _coded(self, tensor: GraphTensor) -> Elements:
        return Coded(self._codes[tensor.name].reshape(tensor.shape), tensor.quantizer, self._budget)

    def _stored(self, data: TensorData, shape: tuple[int, ...]) -> Elements:
        values = data.values.reshape(shape)
        return Kept(values, self._budget) if data.quantizer is None else Coded(values, data.quantizer, self._budget)

    def _rounded(self, tensor: GraphTensor, exact: Elements) -> Elements:
        """The tensor as later operations see it."""
        quantizer = tensor.quantizer
        if quantizer is None:
            return exact
        axis = getattr(quantizer, "axis", None)

        def rule(d: Index) -> Number:
            channel = 0 if axis is None else d[axis]
            code = code_of(exact[d], quantizer, channel)
            found = quantizer.value(code, channel) if isinstance(quantizer, LinearQuantizer) else None
            return Coded(np.array([code]), quantizer, Budget(1))[(0,)] if found is None else found

        return Elements(tensor.shape, rule, self._budget)

    def _operand(self, operand: Any) -> Any:
        if isinstance(operand, str):
            return self._seen[operand]
        if isinstance(operand, tuple):
            return tuple(map(self._operand, operand))
        return literal(operand, self._budget)

    def _evaluate(self, operation: GraphOperation) -> None:
        tensors = [self._graph.tensors[name] for name in operation.outputs]
        try:
            found = self._results(operation, tensors)
        except (NotImplementedError, KeyError) as error:
            reason = f"{operation.name}: {error.args[0] if error.args else 'not evaluated'}"
            self.missing.update({tensor.name: reason for tensor in tensors})
            found = ()
        for tensor, exact in zip(tensors, found, strict=False):
            self.exact[tensor.name] = exact
        for number, tensor in enumerate(tensors):
            if tensor.name in self._codes:
                self._seen[tensor.name] = self._coded(tensor)
            elif number < len(found):
                self._seen[tensor.name] = self._rounded(tensor, found[number])

    def _results(self, operation: GraphOperation, tensors: list[GraphTensor]) -> tuple[Elements, ...]:
        operands = {name: self._operand(operand) for name, operand in operation.inputs.items()}
        shapes = tuple(tensor.shape for tensor in tensors)
        if operation.name == "update":
            self.updates[str(operation.inputs["variable"])] = operands["value"]
        if operation.name in FUNCTIONS:
            return (self._mapped(operation, operands, shapes[0]),)
        if operation.name not in OPERATIONS:
            return whole(operation, operands, shapes, self._budget)
        found = OPERATIONS[operation.name](Call(operation.name, operands, operation.attributes, shapes, self._budget))
        if operation.name == "cast":
            return (self._cast(found[0], tensors[0]),)
        return found

    def _mapped(self, operation: GraphOperation, operands: Mapping[str, Elements], shape: tuple[int, ...]) -> Elements:
        function, tensors = FUNCTIONS[operation.name], list(operands.values())
        others = {name: Fraction(x) if isinstance(x, Fraction) else x for name, x in operation.attributes.items()}
        return Elements(shape, lambda d: function(*(aligned(x, d) for x in tensors), **others), self._budget)

    def _cast(self, x: Elements, tensor: GraphTensor) -> Elements:
        """A number as an integer, truncated toward zero, or as a truth value."""
        if tensor.dtype == "scalar":
            return x

        def rule(d: Index) -> Number:
            side = sign(x[d])
            return Fraction(abs(side) if tensor.dtype == "logical" else side * floor_of(x[d] * side)[0])

        return Elements(tensor.shape, rule, self._budget)
