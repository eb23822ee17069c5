"""Cancellation of two inverse transposes with other ops between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from cvm.passes.optimize.draft import Declined, Draft, rewritten
from cvm.passes.optimize.facts import Facts
from cvm.passes.optimize.movement import axes_of
from cvm.passes.optimize.pointwise import POINTWISE, Integers
from cvm.program import Program
from cvm.program.model import AttributeValue, Node
from cvm.program.verifier import VerifiedProgram

__all__ = ["cancelled_transposes"]

Axes: TypeAlias = "tuple[int, ...]"

PASSED = POINTWISE | {"concatenate"}
"""Ops that give the transposed result for transposed operands; of `cvm_lut`, the indices are transposed."""


def cancelled_transposes(verified: VerifiedProgram) -> Program:
    """The program in which ops between a transpose and its inverse work in the order of axes outside the two.

    A pointwise op computes every element from the operands' elements at its index; a concatenation joins tensors along
    one axis. Both commute with any transpose, if constants are transposed and the axis is renumbered. An op is moved if
    each operand is a constant, a transpose that cancels, or the result of a moved op, and if each reader of its result
    is a transpose that cancels or a moved op. So no transpose is added, and no op is computed twice.
    """
    facts = Facts(verified)
    orders = _orders(facts)
    moved: dict[str, str] = {}

    def cancel(draft: Draft, node: Node) -> bool:
        (output,) = node.outputs
        source = node.inputs[0]
        if node.op == "transpose" and source in moved:
            draft.alias(output.name, moved[source])
            return True
        axes = orders.get(output.name)
        if axes is not None:
            try:
                operands = [_operand(draft, node, index, axes, moved) for index in range(len(node.inputs))]
                moved[output.name] = draft.emit(output.name, node.op, operands, _attributes(node, axes))
                draft.rearranged(output.name)
            except Declined:
                pass
        return False  # the old op is kept; it is removed later as dead code, when nothing reads its result

    return rewritten(verified, cancel)


def _orders(facts: Facts) -> Mapping[str, Axes]:
    """The values whose ops are moved, each with the order of axes that all its readers need."""
    nodes = facts.verified.program.nodes
    orders: dict[str, Axes] = {}
    for node in reversed(nodes):
        wanted = {_wanted(facts, orders, index, node) for index in facts.readers.get(node.outputs[0].name, ())}
        if (
            len(node.outputs) == 1
            and node.op in PASSED
            and len(wanted) == 1
            and node.outputs[0].name not in facts.public
        ):
            (axes,) = wanted
            if axes is not None:
                orders[node.outputs[0].name] = axes
    while True:
        kept = {name: axes for name, axes in orders.items() if _movable(facts, orders, name, axes)}
        if len(kept) == len(orders):
            return kept
        orders = kept


def _wanted(facts: Facts, orders: Mapping[str, Axes], index: int, read: Node) -> Axes | None:
    """The order of axes in which node ``index``, a transpose or a moved op, needs its operand; None for other ops."""
    node = facts.verified.program.nodes[index]
    if node.op == "transpose":
        return axes_of(node, len(node.outputs[0].shape))
    return orders.get(node.outputs[0].name)


def _movable(facts: Facts, orders: Mapping[str, Axes], name: str, axes: Axes) -> bool:
    """Whether the op of a value can be moved to the order ``axes``, given the other moved values."""
    node = facts.node(name)
    assert node is not None
    readers = (_wanted(facts, orders, index, node) for index in facts.readers[name])
    return all(wanted == axes for wanted in readers) and all(
        _available(facts, orders, node, index, axes) for index in range(len(node.inputs))
    )


def _available(facts: Facts, orders: Mapping[str, Axes], node: Node, index: int, axes: Axes) -> bool:
    name = node.inputs[index]
    if node.op == "where" and facts.verified.shapes[name] != node.outputs[0].shape:
        return False  # a condition of rank 1 belongs to axis 0
    if name in facts.constants:
        return True
    if len(facts.verified.shapes[name]) != len(axes) or (node.op == "cvm_lut" and index == 0):
        return False
    return orders.get(name) == axes or _cancelled(facts, name, axes) is not None


def _cancelled(facts: Facts, name: str, axes: Axes) -> str | None:
    """The operand of the transpose that computes a value, if the order ``axes`` is the inverse of that transpose."""
    node = facts.node(name)
    if node is None or node.op != "transpose":
        return None
    first = axes_of(node, len(axes))
    return node.inputs[0] if all(first[axis] == index for index, axis in enumerate(axes)) else None


def _operand(draft: Draft, node: Node, index: int, axes: Axes, moved: Mapping[str, str]) -> str:
    """An operand with its axes in the order ``axes``. Raises `Declined`."""
    name = node.inputs[index]
    if name in moved:
        return moved[name]
    base = _cancelled(draft.facts, name, axes)
    if base is not None:
        return draft.current(base)
    array = draft.array(draft.current(name))
    if array is None:
        raise Declined("an operand cannot be moved")
    if node.op == "cvm_lut" and index == 0:
        return draft.current(name)
    kind = draft.facts.constants[name].kind
    return draft.constant(_ordered(array, axes), node.outputs[0].name, kind)


def _ordered(array: Integers, axes: Axes) -> Integers:
    """A constant with its axes in the order ``axes``, after adding leading axes of extent 1 up to the rank."""
    full = array.reshape((1,) * (len(axes) - array.ndim) + array.shape)
    return np.ascontiguousarray(full.transpose(axes))


def _attributes(node: Node, axes: Axes) -> dict[str, AttributeValue]:
    attributes = dict(node.attributes)
    if node.op == "concatenate":
        axis: Any = attributes["axis"]
        attributes["axis"] = axes.index(axis % len(axes))
    return attributes
