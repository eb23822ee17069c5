"""The facts that are collected while a program is read or built: shapes, kinds, proven ranges, gas.

The verifier adds the parts of a finished program to a `Scope`, the builder adds new parts. Both apply ops here, so that
a program that can be built also verifies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from cvm import ops
from cvm.errors import Invalid, Location
from cvm.limits import Limits, require
from cvm.ops import Call, Op, Range, TypedAttributes
from cvm.ops.declaration import InputKind
from cvm.ops.ranges import Exact, Stored
from cvm.program.checks import (
    attribute_values,
    check_constant_data,
    check_int32,
    check_interval,
    check_name,
    check_quantizer,
    check_shape,
    interval_text,
)
from cvm.program.model import AttributeValue, Constant, Input, Output, Shape, State, Value
from cvm.program.program import Program

__all__ = ["KEPT", "Application", "Scope"]

KEPT = 2**21
"""The most per-channel bounds that all results of a program together may have; all implementations count the same."""

SHARED = 1024
"""The number of different attributes, and of different intervals, that are kept so that equal ones can be shared."""


@dataclass(frozen=True, slots=True)
class Application:
    """An op applied to values in scope: typed call, complete attributes, inferred shapes, unchecked ranges, gas."""

    call: Call
    attributes: dict[str, AttributeValue]
    shapes: tuple[Shape, ...]
    ranges: tuple[Range, ...]
    gas: int


_Key = TypeVar("_Key")
_Item = TypeVar("_Item")

Prove: TypeAlias = Callable[[Op, Call, "Location | None"], tuple[Range, ...]]
"""`cvm.ops.Op.prove`, or another function that gives the same ranges."""


class Scope:
    """The values written so far, and the gas of the ops that wrote them."""

    def __init__(self, limits: Limits, prove: Prove = Op.prove) -> None:
        """``prove`` gives the ranges that an op proves. A caller may remember them instead of computing them again."""
        self.limits = limits
        self._prove = prove
        self.gas = 0
        self.shapes: dict[str, Shape] = {}
        self.ranges: dict[str, Range] = {}
        self.constants: dict[str, Constant] = {}
        self._parameters: set[str] = set()
        self._kept = 0
        self._typed: dict[str, TypedAttributes] = {}
        self._intervals: dict[tuple[int, int, int], Range] = {}

    def given(self, program: Program) -> None:
        """Define the values of a program that no node computes: inputs, constants that fit, and states."""
        for item in program.inputs:
            self.input(item)
        for constant in program.constants:
            self.constant(constant)
        for state in program.state:
            self.state(state)

    def input(self, item: Input) -> None:
        """Define an input. Its declared interval is the contract; the codes of its quantiser must be this interval."""
        location = self._declare(item.value)
        quantizer = item.quantizer
        if quantizer is None:
            return
        check_quantizer(quantizer, item.value.shape, location)
        if (quantizer.lo, quantizer.hi) != (item.value.lo, item.value.hi):
            codes, found = interval_text(quantizer.lo, quantizer.hi), interval_text(item.value.lo, item.value.hi)
            raise Invalid("program.quantizer", f"the codes are {codes}, the interval is {found}", location)

    def constant(self, constant: Constant) -> None:
        """Define a constant that fits (`check_constants_fit`). Its range is its elements."""
        self._require_new(constant.name)
        check_constant_data(constant)
        self._define(constant.name, constant.kind, constant.shape, Range.exactly(constant.stored()))
        self.constants[constant.name] = constant

    def adopt(self, name: str, kind: InputKind, shape: Shape, bounds: Range) -> None:
        """Define a value of a verified program with the range that was proven there."""
        self._define(name, kind, shape, bounds)

    def state(self, state: State) -> None:
        """Define the tensor of a state that nodes read. An update must lie in its declared interval."""
        location = self._declare(state.value)
        if state.initial not in self.constants:
            raise Invalid("program.undefined", f"no constant is called {state.initial!r}", location)
        self._check_state("initial", state, state.initial)

    def updated(self, state: State) -> None:
        """Check the value that a state takes when a run has ended."""
        self._check_state("update", state, state.update)

    def apply(self, op: str, inputs: Sequence[str], attributes: Mapping[str, Any], location: Location) -> Application:
        """Apply an op to values in scope: parse, check, infer, prove. Defines nothing.

        Raises `Invalid` with the codes of the declarations (``ops.*``), ``program.undefined``, ``program.kind`` or
        ``program.shape``, and `LimitExceeded`.
        """
        declaration = ops.get(op, location)
        typed = self._parsed(declaration, attributes, location)
        declaration.check_arity(len(inputs), location)
        kinds = declaration.input_kinds(len(inputs))
        for index, name in enumerate(inputs):
            self.read(name, kinds[index] if index < len(kinds) else None, location)
        call = Call(tuple(self.shapes[name] for name in inputs), typed)
        shapes = declaration.infer(call, location)
        for shape in shapes:
            check_shape(shape, self.limits, location)
        gas = declaration.gas(call)
        require("work", self.gas + gas, self.limits.work, "gas of the program", location)
        call = replace(call, ranges=tuple(self.ranges[name] for name in inputs))
        return Application(call, attribute_values(typed), shapes, self._prove(declaration, call, location), gas)

    def define(self, application: Application, names: Sequence[str], op: str) -> tuple[Range, ...]:
        """Define the results of an application under ``names``; returns their proven ranges.

        They have one bound per channel as long as all results so far have at most `KEPT` bounds together. A result with
        too many channels for that gets one interval, which is not counted.

        Raises `Invalid` (``program.range``) for a result that is not proven to be int32, before anything is defined.
        """
        for name in names:
            self._require_new(name)
        if len(set(names)) != len(names):
            raise Invalid("program.duplicate", f"a name of {', '.join(names)} is written twice", Location(op=op))
        for name, found in zip(names, application.ranges, strict=True):
            check_int32(found, Location(tensor=name, op=op))
        proven = [self._within_budget(found.per_channel(), application.call.ranges) for found in application.ranges]
        for name, shape, bounds in zip(names, application.shapes, proven, strict=True):
            self._define(name, "tensor", shape, bounds)
        self.gas += application.gas
        return tuple(proven)

    def _within_budget(self, bounds: Range, operands: Sequence[Range]) -> Range:
        """The bounds per channel, or as one interval if the budget is used up. Equal bounds share one object."""
        if bounds.size == 1 or self._kept + bounds.size > KEPT:
            return self._interval(bounds.rank, *bounds.hull())
        self._kept += bounds.size
        alike = (known for known in operands if isinstance(known, Stored) and not isinstance(known, Exact))
        return next((known for known in alike if known.equals(bounds)), None) or bounds.kept()

    def _interval(self, rank: int, lo: int, hi: int) -> Range:
        """One interval for a tensor. Equal intervals share one object."""
        key = rank, lo, hi
        return self._intervals.get(key) or _shared(self._intervals, key, Range.uniform(rank, lo, hi))

    def _parsed(self, op: Op, attributes: Mapping[str, Any], location: Location) -> TypedAttributes:
        """Typed attributes. Equal attributes share one object."""
        key = f"{op.name} {attributes!r}"  # a text, since 1 and True are equal as keys
        return self._typed.get(key) or _shared(self._typed, key, op.parse(attributes, location))

    def outputs(self, outputs: Sequence[Output]) -> None:
        """Check that a program has outputs, with unique names, values that exist, and quantisers that fit."""
        if not outputs:
            raise Invalid("program.outputs", "a program has at least one output")
        names: set[str] = set()
        for output in outputs:
            check_name(output.name, self.limits, "output")
            location = Location(tensor=output.name)
            if output.name in names:
                raise Invalid("program.outputs", f"two outputs are called {output.name!r}", location)
            names.add(output.name)
            self.read(output.value, "tensor", location)
            if output.quantizer is not None:
                check_quantizer(output.quantizer, self.shapes[output.value], location)
                self._within(output.value, output.quantizer.lo, output.quantizer.hi, "program.quantizer", location)

    def read(self, name: str, kind: InputKind | None, location: Location) -> None:
        """Require that ``name`` has been written, and is a value of that kind."""
        if name not in self.shapes:
            raise Invalid("program.undefined", f"{name!r} is read before it is written", location)
        found: InputKind = "parameter" if name in self._parameters else "tensor"
        if kind not in (None, found):
            raise Invalid("program.kind", f"expected a {kind}, found the {found} {name!r}", location)

    def _declare(self, value: Value) -> Location:
        """Define a value with its declared interval as its range."""
        location = Location(tensor=value.name)
        self._require_new(value.name)
        check_shape(value.shape, self.limits, location)
        check_interval(value, location)
        self._define(value.name, "tensor", value.shape, self._interval(len(value.shape), value.lo, value.hi))
        return location

    def _check_state(self, which: str, state: State, name: str) -> None:
        location = Location(tensor=state.value.name)
        self.read(name, "tensor", location)
        if self.shapes[name] != state.value.shape:
            found = f"{which} value {name!r} has shape {list(self.shapes[name])}, expected {list(state.value.shape)}"
            raise Invalid("program.state", found, location)
        self._within(name, state.value.lo, state.value.hi, "program.state", location)

    def _within(self, name: str, lo: int, hi: int, code: str, location: Location) -> None:
        """Require that a value is proven to lie in [lo, hi]."""
        least, largest = self.ranges[name].hull()
        if not lo <= least <= largest <= hi:
            found, expected = interval_text(least, largest), interval_text(lo, hi)
            raise Invalid(code, f"the value {name!r} lies in {found}, which is not within {expected}", location)

    def _require_new(self, name: str) -> None:
        check_name(name, self.limits)
        if name in self.shapes:
            raise Invalid("program.duplicate", f"the name {name!r} is written twice", Location(tensor=name))

    def _define(self, name: str, kind: InputKind, shape: Shape, bounds: Range) -> None:
        self.shapes[name] = shape
        if kind == "parameter":
            self._parameters.add(name)
        self.ranges[name] = bounds


def _shared(known: dict[_Key, _Item], key: _Key, item: _Item) -> _Item:
    """The item itself, or an equal one that was stored before. The store is emptied when it becomes too large."""
    if len(known) >= SHARED:
        known.clear()
    known[key] = item
    return item
