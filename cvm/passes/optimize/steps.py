"""Affine steps: values that are k * x + d for constants k and d."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.passes.optimize.draft import Declined, Draft
from cvm.program.model import Node
from cvm.records import dataclass

__all__ = ["AffineStep", "Exact", "broadcast", "step_of"]

Exact = npt.NDArray[np.object_]
"""Arrays of Python integers, whose arithmetic cannot overflow."""


@dataclass(frozen=True, eq=False, slots=True)
class AffineStep:
    """factor * x + offset. Both are constant, and broadcast to the shape of x."""

    x: str
    """The name of x in the old program."""
    factor: Exact
    offset: Exact


def step_of(draft: Draft, node: Node | None) -> AffineStep | None:
    """The affine step that a node computes from its only tensor operand.

    None if the node computes something else, or if its result has another shape than the operand.
    """
    if node is None or node.op not in _STEPS:
        return None
    (output,) = node.outputs
    arrays = [draft.array(draft.current(name)) for name in node.inputs]
    tensors = [index for index, array in enumerate(arrays) if array is None]
    if len(tensors) != 1 or draft.facts.verified.shapes[node.inputs[tensors[0]]] != output.shape:
        return None
    (index,) = tensors
    x = node.inputs[index]
    one = np.ones((1,), object)
    known = [array.astype(object) for array in arrays if array is not None]
    match node.op:
        case "broadcast_add" | "elemwise_add":
            return AffineStep(x, one, known[0])
        case "broadcast_sub" | "elemwise_sub":
            return AffineStep(x, one, -known[0]) if index == 0 else AffineStep(x, -one, known[0])
        case "broadcast_mul":
            return AffineStep(x, known[0], 0 * one)
        case "negative":
            return AffineStep(x, -one, 0 * one)
    attributes: Any = node.attributes
    factor = 1 << attributes["shift_bit"]
    uncut = draft.facts.verified.ranges[x].magnitude() * factor < 1 << (attributes["precision"] - 1)
    return AffineStep(x, factor * one, 0 * one) if uncut else None


_STEPS = frozenset({
    "broadcast_add", "elemwise_add", "broadcast_sub", "elemwise_sub", "broadcast_mul", "negative", "cvm_left_shift",
})  # fmt: skip


def broadcast(result: Exact, *operands: Exact) -> Exact:
    """The array ``result``, computed from the constants ``operands``.

    Raises `Declined` if it has more elements than the largest of them.
    """
    if result.size > max(operand.size for operand in operands):
        raise Declined("a constant would get more elements")
    return result
