"""Movement: ops that leave every element where it is are removed, and two moves in a row become one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cvm.ops.axes import normal
from cvm.passes.optimize.draft import Draft, rewritten
from cvm.program import Program
from cvm.program.model import Node, Shape
from cvm.program.verifier import VerifiedProgram

__all__ = ["axes_of", "movement"]


def movement(verified: VerifiedProgram) -> Program:
    """The program without movement that leaves all elements in place, and with one op for a reshape of a reshape, a
    transpose of a transpose, or a concatenation within a concatenation.

    Reshapes are here all ops that keep the elements in row-major order: reshape, flatten, squeeze, expand_dims, a
    transpose that keeps the order of the axes of more than one element, a reduction over axes of one. Two such are one,
    since the order of the elements is the same; transposes compose as permutations; lists of lists are one list.
    """
    return rewritten(verified, _rule)


def _rule(draft: Draft, node: Node) -> bool:
    return _in_place(draft, node) or _reshaped(draft, node) or _transposed(draft, node) or _concatenated(draft, node)


def _in_place(draft: Draft, node: Node) -> bool:
    (output,) = node.outputs
    keeps = IN_PLACE.get(node.op)
    x = draft.now(node.inputs[0])
    if keeps is None or draft.shape(x) != output.shape or not keeps(node, output.shape):
        return False
    draft.alias(output.name, x)
    return True


def _unit_steps(node: Node, shape: Shape) -> bool:
    """Whether a slice that keeps every extent keeps the order: forward, it can only begin at 0 and step by 1."""
    steps: Any = node.attributes["strides"]
    return all(step > 0 or extent == 1 for step, extent in zip(steps, shape, strict=False))


IN_PLACE: Mapping[str, Callable[[Node, Shape], bool]] = {
    "concatenate": lambda node, _: len(node.inputs) == 1,
    "max_pool2d": lambda node, _: node.attributes["pool_size"] == (1, 1) and node.attributes["strides"] == (1, 1),
    "repeat": lambda *_: True,
    "slice": _unit_steps,
    "slice_like": lambda *_: True,
    "tile": lambda *_: True,
    "upsampling": lambda *_: True,
}
"""Ops that leave all elements in place if the result has the operand's shape and this holds. (Reshapes: below.)"""


def axes_of(node: Node, rank: int) -> tuple[int, ...]:
    """The order of the axes that a transpose of a tensor of that rank makes."""
    axes: Any = node.attributes["axes"]
    return normal(axes, rank) or tuple(reversed(range(rank)))


def _is_reshape(node: Node, shape: Shape) -> bool:
    """Whether the node gives the elements of an operand of that shape in the same row-major order."""
    match node.op:
        case "reshape" | "flatten" | "squeeze" | "expand_dims":
            return True
        case "transpose":
            order = [axis for axis in axes_of(node, len(shape)) if shape[axis] > 1]
            return order == sorted(order)
        case "sum" | "max":
            return _one_each(node, shape)
    return False


def _one_each(node: Node, shape: Shape) -> bool:
    """Whether a reduction has as many results as elements: then each is the sum or the maximum of one."""
    elements = results = 1
    for extent in shape:
        elements *= extent
    for extent in node.outputs[0].shape:
        results *= extent
    return elements == results


def _reshaped(draft: Draft, node: Node) -> bool:
    """A reshape of a reshape becomes one reshape, or none; a reduction of single elements becomes one."""
    (output,) = node.outputs
    source = node.inputs[0]
    if not _is_reshape(node, draft.shape(draft.now(source))):
        return False
    inner = draft.unchanged(source)
    base = draft.now(source)
    if inner is not None and _is_reshape(inner, draft.shape(draft.now(inner.inputs[0]))):
        base = draft.now(inner.inputs[0])
    if draft.shape(base) == output.shape:
        draft.alias(output.name, base)
    elif base != draft.now(source) or node.op in ("sum", "max"):
        target = {"target_shape": output.shape}
        draft.become(output.name, "reshape", [base], target, draft.facts.gas(output.name))
    else:
        return False
    return True


def _transposed(draft: Draft, node: Node) -> bool:
    """A transpose of a transpose becomes one transpose, or none."""
    inner = draft.unchanged(node.inputs[0])
    if node.op != "transpose" or inner is None or inner.op != "transpose":
        return False
    (output,) = node.outputs
    first, second = (axes_of(item, len(output.shape)) for item in (inner, node))
    axes = tuple(first[axis] for axis in second)
    base = draft.now(inner.inputs[0])
    if axes == tuple(range(len(axes))):
        draft.alias(output.name, base)
    else:
        draft.become(output.name, "transpose", [base], {"axes": axes}, draft.facts.gas(output.name))
    return True


def _concatenated(draft: Draft, node: Node) -> bool:
    """A concatenation along the same axis that nothing else reads is replaced by its operands."""
    if node.op != "concatenate":
        return False
    (output,) = node.outputs
    rank = len(output.shape)
    here = frozenset({draft.facts.indices[output.name]})
    names: list[str] = []
    for name in node.inputs:
        inner = draft.unchanged(name)
        along = inner is not None and inner.op == "concatenate" and _axis(inner, rank) == _axis(node, rank)
        if inner is not None and along and draft.facts.dies_with(name, here):
            names += map(draft.now, inner.inputs)
        else:
            names.append(draft.now(name))
    if len(names) == len(node.inputs):
        return False
    draft.become(output.name, "concatenate", names, dict(node.attributes))
    return True


def _axis(node: Node, rank: int) -> int:
    axis: Any = node.attributes["axis"]
    return int(axis) % rank
