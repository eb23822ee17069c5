"""Ops that move elements: those that leave every element in place are removed, and two in a row become one."""

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
    """The program without ops that leave all elements in place, and with one op for a reshape of a reshape, a transpose
    of a transpose, or a concatenation within a concatenation.

    Here a reshape is any op that keeps the elements in row-major order: reshape, flatten, squeeze, expand_dims, a
    transpose that keeps the order of all axes with extents above 1, and a reduction over axes of extent 1. Two such ops
    are one reshape, since the order of the elements does not change. Two transposes are the transpose by the product of
    their permutations. Nested concatenations along one axis are one concatenation.
    """
    return rewritten(verified, _rule)


def _rule(draft: Draft, node: Node) -> bool:
    return _in_place(draft, node) or _reshaped(draft, node) or _transposed(draft, node) or _concatenated(draft, node)


def _in_place(draft: Draft, node: Node) -> bool:
    (output,) = node.outputs
    keeps = IN_PLACE.get(node.op)
    x = draft.current(node.inputs[0])
    if keeps is None or draft.shape(x) != output.shape or not keeps(node, output.shape):
        return False
    draft.alias(output.name, x)
    return True


def _unit_steps(node: Node, shape: Shape) -> bool:
    """Whether a slice that keeps every extent keeps the order, that is, has no negative stride.

    With a positive stride it can keep an extent only if it begins at 0 and its stride is 1.
    """
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
"""Ops that leave all elements in place if the result has the operand's shape and the condition holds.

Reshapes are treated by `_is_reshape`.
"""


def axes_of(node: Node, rank: int) -> tuple[int, ...]:
    """The permutation of a transpose, for an operand of this rank."""
    axes: Any = node.attributes["axes"]
    return normal(axes, rank) or tuple(reversed(range(rank)))


def _is_reshape(node: Node, shape: Shape) -> bool:
    """Whether the node keeps the elements of an operand of this shape in row-major order."""
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
    """Whether a reduction has as many results as elements. Then each result is the sum or maximum of one element."""
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
    if not _is_reshape(node, draft.shape(draft.current(source))):
        return False
    inner = draft.unchanged(source)
    base = draft.current(source)
    if inner is not None and _is_reshape(inner, draft.shape(draft.current(inner.inputs[0]))):
        base = draft.current(inner.inputs[0])
    if draft.shape(base) == output.shape:
        draft.alias(output.name, base)
    elif base != draft.current(source) or node.op in ("sum", "max"):
        target = {"target_shape": output.shape}
        draft.redefine(output.name, "reshape", [base], target, draft.facts.gas(output.name))
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
    base = draft.current(inner.inputs[0])
    if axes == tuple(range(len(axes))):
        draft.alias(output.name, base)
    else:
        draft.redefine(output.name, "transpose", [base], {"axes": axes}, draft.facts.gas(output.name))
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
            names += map(draft.current, inner.inputs)
        else:
            names.append(draft.current(name))
    if len(names) == len(node.inputs):
        return False
    draft.redefine(output.name, "concatenate", names, dict(node.attributes))
    return True


def _axis(node: Node, rank: int) -> int:
    axis: Any = node.attributes["axis"]
    return int(axis) % rank
