"""Verification of a rewritten program in which only the changed nodes are proven again.

It is used between the passes. The program that they return is verified as a whole by `verify`, which does not use it.
"""

from __future__ import annotations

from types import MappingProxyType

from cvm import ops
from cvm.errors import Location
from cvm.limits import PROFILES
from cvm.ops import Call, Range
from cvm.ops.ranges import channel_axis
from cvm.program import Program
from cvm.program.checks import attribute_values, same_attributes
from cvm.program.model import Node
from cvm.program.scope import KEPT, Application, Scope
from cvm.program.verifier import VerifiedProgram, verify
from cvm.repeated import proven

__all__ = ["built", "reproven"]


def built(program: Program) -> VerifiedProgram:
    """Verify a program that `ProgramBuilder` has built, with the proofs that are remembered from building it.

    Raises `Invalid` and `LimitExceeded` for an invalid node, as `verify` does.
    """
    limits = PROFILES[program.limits]
    scope = Scope(limits, proven)
    scope.given(program)
    calls = tuple(_proven(scope, node)[0].call for node in program.nodes)
    shapes, ranges = MappingProxyType(scope.shapes), MappingProxyType(scope.ranges)
    return VerifiedProgram(program, shapes, ranges, calls, limits, scope.gas)


def reproven(program: Program, before: VerifiedProgram) -> VerifiedProgram:
    """Verify ``program``, which was made from ``before``, within the limits of ``before``.

    A node is not proven again if ``before`` has a node with the same results, op and attributes, and with operands of
    the same shapes and ranges. For the other nodes, `Invalid` and `LimitExceeded` are raised as by `verify`. If inputs
    or states differ, or if results may have more bounds than are kept, `verify` proves the whole program.
    """
    old = before.program
    same = program.inputs == old.inputs and [s.value for s in program.state] == [s.value for s in old.state]
    if not same or max(_bounds(program), _bounds(old)) > KEPT:
        return verify(program, before.limits)
    scope = Scope(before.limits, proven)
    for value in (*(item.value for item in program.inputs), *(state.value for state in program.state)):
        scope.adopt(value.name, "tensor", value.shape, before.ranges[value.name])
    constants = {constant.name: constant for constant in old.constants}
    for constant in program.constants:
        if constants.get(constant.name) is constant:
            scope.adopt(constant.name, constant.kind, constant.shape, before.ranges[constant.name])
        else:
            scope.constant(constant)
    known = {
        node.outputs[0].name: (node, call) for node, call in zip(old.nodes, before.calls, strict=True) if node.outputs
    }
    calls = tuple(_call(scope, node, before, known) for node in program.nodes)
    shapes, ranges = MappingProxyType(scope.shapes), MappingProxyType(scope.ranges)
    return VerifiedProgram(program, shapes, ranges, calls, before.limits, scope.gas)


def _call(scope: Scope, node: Node, before: VerifiedProgram, known: dict[str, tuple[Node, Call]]) -> Call:
    """The call of one node, taken over from ``known`` or proven. Its results are defined in the scope."""
    names = [value.name for value in node.outputs]
    found = known.get(names[0]) if names else None
    if found is not None and _unchanged(scope, node, *found):
        for value in node.outputs:
            scope.adopt(value.name, "tensor", before.shapes[value.name], before.ranges[value.name])
        scope.gas += ops.get(node.op).gas(found[1])
        return found[1]
    application, results = _proven(scope, node)
    for name, shape, bounds in zip(names, application.shapes, results, strict=True):
        # Equal bounds become one object, so that the nodes that read them are recognised as unchanged.
        if name in known and before.shapes[name] == shape and before.ranges[name].equals(bounds):
            scope.adopt(name, "tensor", shape, before.ranges[name])
    return application.call


def _proven(scope: Scope, node: Node) -> tuple[Application, tuple[Range, ...]]:
    """Apply the op of a node, and prove and define its results. Returns the application and the ranges."""
    names = [value.name for value in node.outputs]
    application = scope.apply(node.op, node.inputs, node.attributes, Location(op=node.op, tensor=names[0]))
    return application, scope.define(application, names, node.op)


def _unchanged(scope: Scope, node: Node, old: Node, call: Call) -> bool:
    """Whether the node applies the same op as ``old``, to operands with the same shapes and ranges."""
    alike = node is old or (
        node.op == old.op
        and [value.name for value in node.outputs] == [value.name for value in old.outputs]
        and len(node.inputs) == len(call.ranges)
        and same_attributes(node.attributes, attribute_values(call.attributes))
    )
    return alike and all(
        name in scope.ranges and scope.shapes[name] == shape and scope.ranges[name] is bounds
        for name, shape, bounds in zip(node.inputs, call.shapes, call.ranges, strict=True)
    )


def _bounds(program: Program) -> int:
    """The largest number of bounds that the results of a program can have together: one per channel."""
    return sum(value.shape[channel_axis(len(value.shape))] for node in program.nodes for value in node.outputs)
