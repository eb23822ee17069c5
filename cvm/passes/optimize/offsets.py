"""An offset that is subtracted before a convolution or a dense layer becomes part of its bias."""

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
"""Ops f with f(x + d) = f(x) + d for one number d: movement, and the maximum of windows that are never empty."""

DEPTH = 16
"""Ops between the addition of an offset and the layer, at most."""


def offsets_into_biases(verified: VerifiedProgram) -> Program:
    """The program in which a layer reads x instead of x + d, one number d being added to all elements.

    Without padding each output is a sum over the same taps, so that

        sum_t W_t (x_t + d) + B = sum_t W_t x_t + (B + d sum_t W_t),

    the same integers, of which the same intervals are proven. (With padding, taps on it would count d as well.) On the
    way there may be movement, and constants, from which d is subtracted.
    """
    return rewritten(verified, _rule)


def _rule(draft: Draft, node: Node) -> bool:
    if node.op not in ("conv2d", "dense") or node.attributes.get("padding", (0, 0)) != (0, 0):
        return False
    by = _offset(draft, node.inputs[0], _reader(draft, node), DEPTH)
    if by is None:
        return False
    weights = draft.stored(draft.now(node.inputs[1]))
    bias = draft.array(draft.now(node.inputs[2])) if len(node.inputs) > 2 else None
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
    inputs = [x, draft.now(node.inputs[1]), draft.constant(moved.astype(np.int64), output.name)]
    draft.become(output.name, node.op, inputs, dict(node.attributes))
    return True


def _reader(draft: Draft, node: Node) -> frozenset[int]:
    return frozenset({draft.facts.indices[node.outputs[0].name]})


def _offset(draft: Draft, name: str, readers: frozenset[int], depth: int) -> tuple[int, int] | None:
    """The number that is added to all elements of a value on its way, and the gas of that; None if there is none."""
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
    parts = [part for part in dict.fromkeys(node.inputs) if not draft.is_constant(draft.now(part))]
    found = [_offset(draft, part, here, depth - 1) for part in parts]
    known = [item for item in found if item is not None]
    if not known or len(known) < len(found) or len({by for by, _ in known}) > 1:
        return None
    return known[0][0], sum(gas for _, gas in known)


def _without(draft: Draft, name: str, by: int) -> str:
    """The value without the number that is added on its way. Raises `Declined`."""
    node = draft.unchanged(name)
    assert node is not None
    step = step_of(draft, node)
    if step is not None:
        return draft.now(step.x)
    operands = [_operand(draft, part, by, name) for part in node.inputs]
    return draft.emit(name, node.op, operands, dict(node.attributes))


def _operand(draft: Draft, name: str, by: int, owner: str) -> str:
    array = draft.array(draft.now(name))
    if array is None:
        return _without(draft, name, by)
    moved = array.astype(object) - by
    if magnitude(moved) > INT32_MAX:
        raise Declined("a constant does not fit 32 bits")
    return draft.constant(moved, owner)
