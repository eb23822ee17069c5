"""The base of the builder: it checks operands against the declarations, and records calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from cvm.errors import Location
from cvm.frontends.common.shapes import broadcast
from cvm.frontends.webnn.declarations import OPERATORS
from cvm.frontends.webnn.errors import InvalidStateError, MLTypeError, type_error
from cvm.frontends.webnn.operand import MLOperand, MLOperandDescriptor, Shape, WebnnNode, valid_shape

__all__ = ["RecordedCall", "Recorder"]

_MOST_UNSIGNED = 2**32 - 1


class RecordedCall:
    """One call of an operator while it is checked; ``operands`` holds those that the caller gave."""

    def __init__(self, recorder: Recorder, op: str, label: str, operands: Mapping[str, Any]) -> None:
        self.op, self.label = op, label
        self._recorder = recorder
        recorder.require_open(op)
        if not isinstance(label, str):
            raise type_error(op, "label", f"the label must be a string, found {type(label).__name__}")
        self.operands: dict[str, MLOperand] = {}
        for name, operand in operands.items():
            if operand is not None:
                self.operands[name] = self._checked(name, operand)

    def _checked(self, name: str, operand: Any) -> MLOperand:
        if not isinstance(operand, MLOperand):
            raise self.error("operand", f"must be an MLOperand, found {type(operand).__name__}", name)
        if operand.builder is not self._recorder:
            raise self.error("builder", "belongs to another builder", name)
        declared = OPERATORS[self.op].operands[name.partition("[")[0]]
        if operand.data_type not in declared.data_types:
            allowed = ", ".join(declared.data_types)
            friendly = (
                "; cast it to int32 first" if "int32" in declared.data_types and "int" in operand.data_type else ""
            )
            raise self.error("data-type", f"has data type {operand.data_type}, not one of {allowed}{friendly}", name)
        if not declared.least <= operand.rank <= declared.most:
            message = f"has rank {operand.rank}, which must be in {declared.least}..{declared.most}"
            raise self.error("rank", message, name)
        return operand

    def error(self, rule: str, message: str, operand: str | None = None) -> MLTypeError:
        """The error for a rule that this call breaks."""
        return type_error(self.op, rule, message, self.label, operand)

    def same_type(self, *names: str) -> None:
        """Require one data type for those of the named operands that are given."""
        given = [(name, self.operands[name]) for name in names if name in self.operands]
        for name, operand in given[1:]:
            first = given[0]
            if operand.data_type != first[1].data_type:
                raise self.error("data-type", f"is {operand.data_type}, but {first[0]} {first[1].data_type}", name)

    def shaped(self, name: str, shape: Sequence[int]) -> None:
        """Require the shape of an operand, if it is given."""
        if name in self.operands and self.operands[name].shape != tuple(shape):
            raise self.error("shape", f"has shape {list(self.operands[name].shape)}, not {list(shape)}", name)

    def unsigned(self, name: str, value: Any, least: int = 0, below: int | None = None) -> int:
        """The value of an argument of type unsigned long. Raises `MLTypeError` outside of [least, below)."""
        whole = isinstance(value, int | np.integer) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not whole:
            raise self.error(name, f"{name} must be an integer, found {value!r}")
        if not least <= value <= _MOST_UNSIGNED or (below is not None and value >= below):
            upper = _MOST_UNSIGNED if below is None else below - 1
            raise self.error(name, f"{name} is {value}, which must be in {least}..{upper}")
        return int(value)

    def integers(self, name: str, values: Any, count: int | None = None, least: int = 0) -> tuple[int, ...]:
        """The value of an argument that is a sequence of unsigned long."""
        if isinstance(values, str | bytes) or not isinstance(values, Sequence | np.ndarray):
            raise self.error(name, f"{name} must be a sequence of integers, found {type(values).__name__}")
        if count is not None and len(values) != count:
            raise self.error(name, f"{name} must have {count} items, found {len(values)}")
        return tuple(self.unsigned(name, value, least) for value in values)

    def axes(self, name: str, values: Any, rank: int) -> tuple[int, ...]:
        """Distinct axes of a tensor of ``rank``; all axes for None."""
        if values is None:
            return tuple(range(rank))
        found = self.integers(name, values)
        if len(set(found)) != len(found) or any(axis >= rank for axis in found):
            raise self.error(name, f"{name} must be distinct and below the rank {rank}, found {list(found)}")
        return found

    def word(self, name: str, value: Any, *words: str) -> str:
        """The value of an argument that is an enumeration of the specification."""
        if value not in words:
            raise self.error(name, f"{name} must be one of {', '.join(words)}, found {value!r}")
        return str(value)

    def flag(self, name: str, value: Any) -> bool:
        """The value of a boolean argument."""
        if not isinstance(value, bool | np.bool_):
            raise self.error(name, f"{name} must be a boolean, found {value!r}")
        return bool(value)

    def number(self, name: str, value: Any) -> Fraction:
        """A finite number, as the exact rational of its value."""
        if not isinstance(value, int | float | Fraction | np.number) or isinstance(value, bool):
            raise self.error(name, f"{name} must be a number, found {value!r}")
        if isinstance(value, float | np.floating) and not np.isfinite(value):
            raise self.error(name, f"{name} must be finite, found {value!r}")
        return Fraction(value.item() if isinstance(value, np.number) else value)

    def broadcast(self, *names: str) -> Shape:
        """The shape that the named operands broadcast to by NumPy's rule."""
        shape = broadcast(*(self.operands[name].shape for name in names))
        if shape is None:
            shapes = ", ".join(f"{name} {list(self.operands[name].shape)}" for name in names)
            raise self.error("broadcast", f"the shapes do not broadcast: {shapes}")
        return shape

    def result(self, data_type: str, shape: Sequence[int], **attributes: Any) -> MLOperand:
        """Record the call; returns its single result."""
        return self.results([(data_type, shape)], **attributes)[0]

    def results(self, outputs: Sequence[tuple[str, Sequence[int]]], **attributes: Any) -> list[MLOperand]:
        """Record the call; returns its results."""
        checked = [(data_type, valid_shape(tuple(shape), self.op, self.label)) for data_type, shape in outputs]
        node = WebnnNode(self.op, self.operands, attributes, self.label, self._recorder.count())
        for data_type, shape in checked:
            name = self._recorder.fresh(self.label or self.op)
            node.outputs.append(MLOperand(self._recorder, name, MLOperandDescriptor(data_type, shape), node))
        return node.outputs


class Recorder:
    """The state of a builder: whether it has built, and the names that are taken."""

    def __init__(self) -> None:
        self._has_built = False
        self._numbers: dict[str, int] = {}
        self._calls = 0

    def count(self) -> int:
        """Count a call; returns its index."""
        self._calls += 1
        return self._calls

    def require_open(self, op: str) -> None:
        """Raise `InvalidStateError` where the builder has already built."""
        if self._has_built:
            message = f"{op}: this builder has built its graph; make another one (WebNN 8.9.4)"
            raise InvalidStateError("webnn.build.state", message, Location(op=op))

    def fresh(self, wish: str) -> str:
        """A name for a result that no other result of this builder has."""
        self._numbers[wish] = number = self._numbers.get(wish, 0) + 1
        return f"{wish}_{number}"
