"""The tensors of a partly quantised or unquantised graph that need a quantiser, because lowering needs one there.

These are real inputs and outputs, states, and operands of operations that read codes (`cvm.calibration.forms`).
Tensors that have a quantiser keep it, integers need none, and tensors between which data only moves share one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from cvm.calibration.forms import FIXED, Form, Reading, filters_of, form_of_result
from cvm.calibration.planning import Filter, Group, Plan, Planner, united
from cvm.calibration.roles import moved_operands
from cvm.graph import REARRANGING, GraphOperation, GraphTensor, Operand, QuantizedGraph, names_in
from cvm.quantization import LinearQuantizer

__all__ = ["Placement"]

_GIVES_INTEGERS = frozenset(
    ("floor", "ceil", "round", "sign", "argmax_reduce", "argmin_reduce", "argmax_pool", "truncated_div", "integer_pow",
     "bitwise", "wrap", "lt", "gt", "le", "ge", "eq", "ne", "and", "or", "not", "cast")
)  # fmt: skip
_KEEPS_INTEGERS = frozenset(
    ("add", "sub", "mul", "neg", "abs", "add_n", "sum_reduce", "matmul", "conv", "relu", "clamp", "min", "max",
     "max_pool", "max_reduce", "min_reduce", "nearest_upsample", "nearest_downsample")
)  # fmt: skip
_COMPARISONS = frozenset(("lt", "gt", "le", "ge", "eq", "ne"))
_GREATEST_VOTE = 2**15
"""The greatest magnitude in a table of integers stored as floats: sums over thousands of trees must fit."""


class Placement(Planner):
    """The tensors of a graph that need a quantiser and lack one: ``needed`` holds their names in order."""

    def __init__(self, graph: QuantizedGraph, also: Collection[str] = ()) -> None:
        """``also`` names further tensors that must get a quantiser."""
        super().__init__(graph, accumulates=True)
        self.integers: set[str] = set()
        self.needed: dict[str, None] = {name: None for name in graph.outputs if self._real(name)}
        self.needed.update(dict.fromkeys(also))
        self._filters: dict[str, None] = {}
        self._tables: dict[str, None] = {}
        self._rounded: set[str] = set()
        count = -1
        while count < len(self.needed):
            count = len(self.needed)
            self._walk()

    def _real(self, name: str) -> bool:
        tensor = self.graph.tensors[name]
        return tensor.dtype == "scalar" and tensor.quantizer is None

    # One walk over the graph

    def _walk(self) -> None:
        forms = {
            name: self._introduced(tensor) for name, tensor in self.graph.tensors.items() if tensor.kind != "computed"
        }
        for operation in self.graph.operations:
            reading = Reading(operation, self.uses, forms)
            result = form_of_result(reading)
            for name in reading.needed:
                self._need(name)
                forms[name] = Form("codes", name)
            self._filters.update(dict.fromkeys(filters_of(reading) if reading.names() else ()))
            if operation.name == "gather" and not reading.fixed("indices") and reading.fixed("input"):
                self._tables.update(dict.fromkeys(names_in(operation.inputs["input"])))
            for name in operation.outputs:
                if self._gives_integers(operation):
                    self.integers.add(name)
                if result.kind == "rounded":
                    self._rounded.add(name)
                    self._need(name)
                coded = name in self.needed or not self._real(name) or result.kind == "rounded"
                forms[name] = FIXED if result.kind == "fixed" else Form("codes", name) if coded else result

    def _introduced(self, tensor: GraphTensor) -> Form:
        if self.uses.fixed(tensor.name):
            if tensor.data is not None and tensor.data.quantizer is None and self._stores_integers(tensor):
                self.integers.add(tensor.name)
            return FIXED
        if self._real(tensor.name):
            self._need(tensor.name)
        elif _holds_integers(tensor):
            self.integers.add(tensor.name)
        return Form("codes", tensor.name)

    def _stores_integers(self, tensor: GraphTensor) -> bool:
        """Whether a stored tensor holds integers, or is a table of floats that are small integers, such as votes."""
        assert tensor.data is not None
        values = tensor.data.values
        if values.dtype.kind != "f":
            return values.dtype.kind in "iub"
        readers = self.uses.readers(tensor.name)
        if not any(op.name == "gather" and not self.uses.fixed(op.inputs["indices"]) for op, _ in readers):
            return False
        return bool((np.abs(values) <= _GREATEST_VOTE).all() and (values == np.trunc(values)).all())

    def _need(self, name: str) -> None:
        if self._real(name) and name not in self.integers:
            self.needed[name] = None

    def _gives_integers(self, operation: GraphOperation) -> bool:
        """Whether the results of an operation are integers, which lowering needs no quantiser for."""
        tensor = self.graph.tensors[operation.outputs[0]]
        if tensor.quantizer is not None:
            return _holds_integers(tensor)
        if operation.name in _GIVES_INTEGERS:
            return True
        if operation.attributes.get("normalize"):
            return False
        moved = moved_operands(operation)
        sources: Sequence[Operand] = moved if moved else tuple(operation.inputs.values())
        return bool(moved or operation.name in _KEEPS_INTEGERS) and all(map(self._integer, sources))

    def _integer(self, operand: Operand) -> bool:
        if isinstance(operand, tuple):
            return all(map(self._integer, operand))
        if isinstance(operand, str):
            return operand in self.integers or self.graph.tensors[operand].dtype == "logical"
        return Fraction(operand).denominator == 1

    # The plan

    def plan(self) -> Plan:
        """The tensors that get quantisers, each once; no biases, which lowering adds exactly."""
        groups: list[Group] = []
        filters: list[Filter] = []
        for members in united(self.graph).values():
            if all(map(self._only_stored, members)):
                stored = tuple(name for name in members if self._bare(name))
                if any(name in self._filters for name in members) and stored:
                    found = self._stored(members)
                    filters.append(found if isinstance(found, Filter) else Filter(stored, None))
                continue
            chosen = [name for name in members if self._takes(name)]
            if chosen:
                updated = {name for name in chosen if not self.uses.fixed(name)}
                state = any(self.graph.tensors[name].kind == "variable" for name in updated)
                groups.append(replace(self.group(chosen), state=state))
        return Plan(tuple(groups), tuple(filters), (), ())

    def ends(self, group: Group) -> bool:
        """Whether a group consists of outputs that come from a sum or a table, and that only moves to other outputs
        read.

        It may contain inputs that only become such outputs. More bits for these tensors cost nothing inside of the
        graph.
        """
        pending, seen = list(group.tensors), set(group.tensors)
        while pending:
            name = pending.pop()
            if name in self._rounded or self.uses.fixed(name) or (name not in group.tensors and not self._real(name)):
                return False
            for operation, _ in self.uses.readers(name):
                if not moved_operands(operation):
                    return False
                pending += [result for result in operation.outputs if result not in seen]
                seen.update(operation.outputs)
        return not seen.isdisjoint(self.graph.outputs)

    def _bare(self, name: str) -> bool:
        """Whether a stored tensor holds floats."""
        tensor = self.graph.tensors[name]
        data = tensor.data
        return (
            tensor.quantizer is None and data is not None and data.quantizer is None and data.values.dtype.kind == "f"
        )

    def _takes(self, name: str) -> bool:
        if name in self._tables and name not in self._filters and self._only_compared(name):
            return False
        if self.uses.fixed(name) and (name in self._filters or name in self._tables):
            return self._real(name) and name not in self.integers
        return name in self.needed and name not in self.integers

    def _only_compared(self, name: str) -> bool:
        """Whether a table's elements are only compared; then lowering needs no codes of them."""
        pending = [name]
        while pending:
            source = pending.pop()
            if source in self.graph.outputs or not self.uses.readers(source):
                return False
            for operation, _ in self.uses.readers(source):
                if operation.name in REARRANGING and source in moved_operands(operation):
                    pending += operation.outputs
                elif operation.name not in _COMPARISONS:
                    return False
        return True


def _holds_integers(tensor: GraphTensor) -> bool:
    """Whether every number of the tensor's quantiser is an integer."""
    if not isinstance(tensor.quantizer, LinearQuantizer):
        return tensor.quantizer is None
    return all(item.denominator == 1 for item in (*tensor.quantizer.scale, *tensor.quantizer.offset))
