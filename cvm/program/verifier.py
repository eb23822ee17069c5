"""The verifier checks, at every load, the properties of a program that every executor relies on.

A verified program cannot fail: every name is written once, before it is read; every shape follows from the
inputs; every element of every tensor is proven to lie in its declared interval, from the inputs' declared
intervals and the constants' elements; sizes and gas are within the limits. So executors need no overflow checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from weakref import ref

from cvm.errors import Invalid, Location
from cvm.limits import PROFILES, Limits
from cvm.ops import Call, Range, op_set
from cvm.program.checks import (
    attribute_values,
    check_constants_fit,
    check_entries,
    check_interval,
    interval_text,
    same_attributes,
)
from cvm.program.model import Node, Shape, Value
from cvm.program.program import Program
from cvm.program.scope import Scope

__all__ = ["VerifiedProgram", "remember", "verify"]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class VerifiedProgram:
    """A program and what was proven about it."""

    program: Program
    shapes: Mapping[str, Shape]
    """The shape of every value."""
    ranges: Mapping[str, Range]
    """The proven range of every value: the elements of a constant; otherwise one interval per channel (`Scope`)."""
    calls: tuple[Call, ...]
    """The call of each node: input shapes, typed attributes, input ranges."""
    limits: Limits
    gas: int
    """The metered cost of one run."""

    def __repr__(self) -> str:
        return f"VerifiedProgram({self.program!r}, gas {self.gas})"


_Proven = tuple[Mapping[str, Shape], Mapping[str, Range], tuple[Call, ...], Limits, int]
_REMEMBERED: dict[int, tuple[ref[Program], _Proven]] = {}
"""What was proven of program objects, by their ids, for as long as they exist. It does not hold for an equal object.

Only the attributes of nodes can be changed in a program; the calls have them as they were.
"""


def remember(verified: VerifiedProgram) -> None:
    """Remember what was proven for as long as the program object exists, so that it is not proven again.

    The program must consist of tuples, as a decoded one does. One made by hand may have lists, which can be changed.
    """
    number = id(verified.program)
    proven = (verified.shapes, verified.ranges, verified.calls, verified.limits, verified.gas)
    _REMEMBERED[number] = (ref(verified.program, lambda _: _REMEMBERED.pop(number, None)), proven)


def _remembered(program: Program, limits: Limits) -> VerifiedProgram | None:
    """What was proven of this program object within the same limits, unless a part of it has changed; else None."""
    known, proven = _REMEMBERED.get(id(program), (None, None))
    if known is None or proven is None or known() is not program:
        return None
    same = all(
        same_attributes(node.attributes, attribute_values(call.attributes))
        for node, call in zip(program.nodes, proven[2], strict=True)
    )
    return VerifiedProgram(program, *proven) if same and proven[3] == limits else None


def verify(program: Program, limits: Limits | None = None) -> VerifiedProgram:
    """Verify ``program`` against its own limits profile and, if given, also against the caller's ``limits``.

    Raises `Invalid` or `LimitExceeded`; the location names the tensor and the op.
    """
    effective = _effective(program, limits)
    if (known := _remembered(program, effective)) is not None:
        return known
    check_entries(program, effective)
    check_constants_fit(program.constants, effective)
    scope = Scope(effective)
    scope.given(program)
    calls = tuple(_call(scope, node) for node in program.nodes)
    for state in program.state:
        scope.updated(state)
    scope.outputs(program.outputs)
    return VerifiedProgram(
        program, MappingProxyType(scope.shapes), MappingProxyType(scope.ranges), calls, effective, scope.gas
    )


def _effective(program: Program, limits: Limits | None) -> Limits:
    """For each bound, the stricter one of the program's profile and the caller's limits."""
    needed = op_set(node.op for node in program.nodes)
    if program.op_set != needed:
        message = f"expected op-set version {needed}, the least that has all its ops, found {program.op_set}"
        raise Invalid("program.op_set", message)
    own = PROFILES.get(program.limits)
    if own is None:
        known = ", ".join(PROFILES)
        raise Invalid("program.limits", f"there is no limits profile {program.limits!r}; there are {known}")
    if limits is None:
        return own
    bounds = {item.name: min(getattr(own, item.name), getattr(limits, item.name)) for item in fields(Limits)}
    return replace(limits, **{**bounds, "name": limits.name})


def _call(scope: Scope, node: Node) -> Call:
    """Verify one node and define its outputs."""
    names = [value.name for value in node.outputs]
    location = Location(op=node.op, tensor=names[0] if names else None)
    application = scope.apply(node.op, node.inputs, node.attributes, location)
    if not same_attributes(node.attributes, application.attributes):
        expected, found = application.attributes, dict(node.attributes)
        message = f"attributes are written complete and in one form: expected {expected}, found {found}"
        raise Invalid("program.attributes", message, location)
    if len(names) != len(application.shapes):
        message = f"{node.op} has {len(application.shapes)} outputs, found {len(names)}"
        raise Invalid("program.output_count", message, location)
    proven = scope.define(application, names, node.op)
    for value, shape, bounds in zip(node.outputs, application.shapes, proven, strict=True):
        _check_declared(value, shape, bounds, node.op)
    return application.call


def _check_declared(value: Value, shape: Shape, proven: Range, op: str) -> None:
    """Require that a node declares of an output the inferred shape, and an interval that contains the proven range."""
    location = Location(tensor=value.name, op=op)
    if value.shape != shape:
        message = f"the shape is {list(shape)}, declared as {list(value.shape)}"
        raise Invalid("program.output_shape", message, location)
    check_interval(value, location)
    lo, hi = proven.hull()
    if not value.lo <= lo <= hi <= value.hi:
        found, declared = interval_text(lo, hi), interval_text(value.lo, value.hi)
        message = f"the elements are proven to lie in {found}, which is not within the declared {declared}"
        raise Invalid("program.interval", message, location)
