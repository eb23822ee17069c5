"""Merging of a number that is added before a convolution or a dense layer into the bias of the layer."""

from __future__ import annotations

import numpy as np

from cvm.bounds import magnitude, require_fits
from cvm.limits import INT32_MAX
from cvm.passes.optimize.draft import Declined, Draft, rewritten
from cvm.passes.optimize.steps import step_of
from cvm.program import Program
from cvm.program.model import Node
from cvm.program.verifier import VerifiedProgram

__all__ = ["offsets_into_biases"]

CARRIED = frozenset({"concatenate", "transpose", "reshape", "flatten", "squeeze", "expand_dims", "max_pool2d"})
"""Ops f with f(x + d) = f(x) + d for a number d: ops that move elements, and max_pool2d (no window is empty)."""

DEPTH = 16
"""The most ops between the addition of an offset and the layer."""


def offsets_into_biases(verified: VerifiedProgram) -> Program:
    """The program in which layers read x instead of x + d, where d is one number that is added to all elements.

    Without padding each output is a sum over the same taps, so that

        sum_t W_t (x_t + d) + B = sum_t W_t x_t + (B + d sum_t W_t),

    which are the same integers with the same proven intervals. (With padding, d would also be counted for taps on the
    padding.) Between the addition and the layer there may be ops that move elements; from the constants that they join,
    d is subtracted.
    """
    return rewritten(verified, _rule)


def _rule(draft: Draft, node: Node) -> bool:
    if node.op not in ("conv2d", "dense") or node.attributes.get("padding", (0, 0)) != (0, 0):
        return False
    by = _offset(draft, node.inputs[0], _reader(draft, node), DEPTH)
    if by is None:
        return False
    weights = draft.stored(draft.current(node.inputs[1]))
    bias = draft.array(draft.current(node.inputs[2])) if len(node.inputs) > 2 else None
    if weights is None or (bias is None and len(node.inputs) > 2):
        return False
    (output,) = node.outputs
    rows = weights.reshape(len(weights), -1)
    require_fits(magnitude(rows) * rows.shape[1], 63, "a sum of weights")
    sums = rows.sum(axis=1, dtype=np.int64).astype(object) * by[0]
    moved = sums if bias is None else sums + bias
    if max(abs(int(moved.min())), abs(int(moved.max()))) > INT32_MAX:
        return False
    if bias is None and len(sums) >= by[1]:
        return False
    x = _without(draft, node.inputs[0], by[0])
    inputs = [x, draft.current(node.inputs[1]), draft.constant(moved.astype(np.int64), output.name)]
    draft.redefine(output.name, node.op, inputs, dict(node.attributes))
    return True


def _reader(draft: Draft, node: Node) -> frozenset[int]:
    return frozenset({draft.facts.indices[node.outputs[0].name]})


def _offset(draft: Draft, name: str, readers: frozenset[int], depth: int) -> tuple[int, int] | None:
    """(d, gas) if d is added to all elements of a value before it reaches the layer, at that cost; else None."""
    node = draft.unchanged(name)
    if node is None or not depth or not draft.facts.dies_with(name, readers):
        return None
    step = step_of(draft, node)
    if step is not None:
        uniform = (step.factor == 1).all() and (step.offset == step.offset.flat[0]).all()
        return (int(step.offset.flat[0]), draft.facts.gas(name)) if uniform else None
    if node.op not in CARRIED:
        return None
    here = _reader(draft, node)
    parts = [part for part in dict.fromkeys(node.inputs) if not draft.is_constant(draft.current(part))]
    found = [_offset(draft, part, here, depth - 1) for part in parts]
    known = [item for item in found if item is not None]
    if not known or len(known) < len(found) or len({by for by, _ in known}) > 1:
        return None
    return known[0][0], sum(gas for _, gas in known)


def _without(draft: Draft, name: str, by: int) -> str:
    """The value without the number ``by`` that is added to its elements. Raises `Declined`."""
    node = draft.unchanged(name)
    assert node is not None
    step = step_of(draft, node)
    if step is not None:
        return draft.current(step.x)
    operands = [_operand(draft, part, by, name) for part in node.inputs]
    return draft.emit(name, node.op, operands, dict(node.attributes))


def _operand(draft: Draft, name: str, by: int, owner: str) -> str:
    array = draft.array(draft.current(name))
    if array is None:
        return _without(draft, name, by)
    moved = array.astype(object) - by
    if magnitude(moved) > INT32_MAX:
        raise Declined("a constant does not fit in 32 bits")
    return draft.constant(moved, owner)
