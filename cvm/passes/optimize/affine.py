"""Merging of affine steps into the requantize before or after them, and of two successive affine steps into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cvm.limits import INT32_MAX
from cvm.ops.extension import terms
from cvm.passes.optimize.draft import Declined, Draft, rewritten
from cvm.passes.optimize.steps import AffineStep, Exact, broadcast, step_of
from cvm.program import Program
from cvm.program.model import Node
from cvm.program.verifier import VerifiedProgram

__all__ = ["merged_steps"]


def merged_steps(verified: VerifiedProgram) -> Program:
    """The program in which constant addends, factors and signs are merged into a neighbouring requantize.

    Before a requantize: m * (k x + d) + c = (m k) x + (c + m d) is the same sum, and it is rounded once, as before.
    After a requantize, where y is the rounded sum v / 2^s:

    * y + d = round((v + d 2^s) / 2^s) if rounding commutes with adding d: half_up always does, half_even does for even
      d, and all roundings do for s = 0.
    * -y: half_even and toward_zero are odd functions. -floor(v / 2^s + 1/2) = floor((-v - 1) / 2^s + 1/2) for s >= 1,
      since -floor(a / b) = floor((-a + b - 1) / b).

    The clip to [lo, hi] becomes a clip to [lo + d, hi + d] or [-hi, -lo]. Two roundings are never merged: this pass
    merges neither a factor after a requantize nor two requantizes. If the verifier does not prove that the new sum fits
    in 64 bits, the rewrite is not made.
    """
    return rewritten(verified, _rule)


def _rule(draft: Draft, node: Node) -> bool:
    if node.op == "requantize":
        return _absorb(draft, node)
    step = step_of(draft, node)
    if step is None:
        return False
    (output,) = node.outputs
    inner = draft.unchanged(step.x)
    if inner is None or not draft.facts.dies_with(step.x, frozenset({draft.facts.indices[output.name]})):
        return False
    return _after(draft, node, step, inner) if inner.op == "requantize" else _composed(draft, node, step, inner)


def _absorb(draft: Draft, node: Node) -> bool:
    """Merge steps that nothing else reads into a requantize, and drop its terms that are constant or have factor 0."""
    (output,) = node.outputs
    count = terms(len(node.inputs))
    here = frozenset({draft.facts.indices[output.name]})
    names = [draft.current(name) for name in node.inputs[:count]]
    if _absorbs_nothing(draft, node, names, here):
        return False
    parameters = [draft.array(draft.current(name)) for name in node.inputs[count:]]
    *factors, offset, shift = (array.astype(object) for array in parameters if array is not None)
    merged: dict[str, Exact] = {}
    absorbed: set[str] = set()
    for name, factor in zip(node.inputs[:count], factors, strict=True):
        step = step_of(draft, draft.unchanged(name))
        known = draft.array(draft.current(name))
        if step is not None and draft.facts.dies_with(name, here):
            absorbed.add(name)
            offset = broadcast(offset + factor * step.offset, offset, factor, step.offset)
            factor, x = broadcast(factor * step.factor, factor, step.factor), draft.current(step.x)
        elif known is not None:
            constant = known.astype(object)
            offset = broadcast(np.asarray(offset + factor * constant, object), offset, factor, constant)
            continue
        else:
            x = draft.current(name)
        merged[x] = broadcast(merged[x] + factor, merged[x], factor) if x in merged else factor
    found = [(x, factor) for x, factor in merged.items() if factor.any()]
    found.sort(key=lambda term: draft.shape(term[0]) != output.shape)  # the first term must have the result's shape
    if [x for x, _ in found] == names or not found:
        return False
    budget = sum(map(draft.facts.gas, (output.name, *absorbed)))
    _requantize(draft, node, [x for x, _ in found], [m for _, m in found], offset, shift, dict(node.attributes), budget)
    return True


def _absorbs_nothing(draft: Draft, node: Node, names: Sequence[str], here: frozenset[int]) -> bool:
    """Whether a requantize can absorb nothing, as is the case for most of them. Parameters are not expanded for it."""
    shape = node.outputs[0].shape
    ordered = sorted(names, key=lambda name: draft.shape(name) != shape)
    if len(set(names)) < len(names) or ordered != names or any(map(draft.is_constant, names)):
        return False
    for name, factor in zip(node.inputs[: len(names)], node.inputs[len(names) :], strict=False):
        held = draft.stored(draft.current(factor))
        if held is None or not held.any():
            return False
        if draft.facts.dies_with(name, here) and step_of(draft, draft.unchanged(name)) is not None:
            return False
    return True


def _after(draft: Draft, node: Node, step: AffineStep, inner: Node) -> bool:
    """Merge an affine step into the requantize before it."""
    (output,) = node.outputs
    count = terms(len(inner.inputs))
    arrays = [draft.array(draft.current(name)) for name in inner.inputs[count:]]
    *factors, offset, shift = (array.astype(object) for array in arrays if array is not None)
    attributes: Any = dict(inner.attributes)
    rounding, lo, hi = attributes["rounding"], attributes["lo"], attributes["hi"]
    if (step.factor == 1).all() and (step.offset == step.offset.flat[0]).all():
        by = int(step.offset.flat[0])
        exact = rounding == "half_up" or (rounding == "half_even" and by % 2 == 0) or not shift.any()
        offset = broadcast(offset + (by << shift), offset, shift)
        lo, hi = lo + by, hi + by
    elif (step.factor == -1).all() and not step.offset.any():
        exact = True
        factors = [-factor for factor in factors]
        offset = broadcast(-offset - (shift > 0).astype(object), offset, shift) if rounding == "half_up" else -offset
        lo, hi = -hi, -lo
    else:
        return False
    if not exact:
        return False
    # The result is proven to fit in 32 bits, so a bound beyond 32 bits is never reached.
    attributes["lo"], attributes["hi"] = max(lo, -INT32_MAX), min(hi, INT32_MAX)
    names = [draft.current(name) for name in inner.inputs[:count]]
    budget = draft.facts.gas(output.name) + draft.facts.gas(step.x)
    _requantize(draft, node, names, factors, offset, shift, attributes, budget)
    return True


def _requantize(
    draft: Draft,
    node: Node,
    names: list[str],
    factors: list[Exact],
    offset: Exact,
    shift: Exact,
    attributes: Any,
    gas: int,
) -> None:
    """Compute the result of ``node`` by a requantize with these operands and parameters. Raises `Declined`."""
    owner = node.outputs[0].name
    rank = len(node.outputs[0].shape)
    parameters = [draft.constant(_stored(array, rank), owner, "parameter") for array in (*factors, offset, shift)]
    draft.redefine(owner, "requantize", [*names, *parameters], attributes, gas)


def _stored(array: Exact, rank: int) -> np.ndarray[Any, np.dtype[Any]]:
    """A parameter in the form in which it is stored: with the rank of the tensor, in 64 bits. Raises `Declined`."""
    if max(abs(int(array.min())), abs(int(array.max()))) >= 2**63:
        raise Declined("a parameter does not fit 64 bits")
    return array.astype(np.int64).reshape((1,) * (rank - array.ndim) + array.shape)


def _composed(draft: Draft, node: Node, step: AffineStep, inner: Node) -> bool:
    """Merge two affine steps if one op can compute both: k (k' x + d') + d = (k k') x + (k d' + d)."""
    (output,) = node.outputs
    first = step_of(draft, inner)
    if first is None:
        return False
    factor = broadcast(step.factor * first.factor, step.factor, first.factor)
    offset = broadcast(step.factor * first.offset + step.offset, step.factor, first.offset, step.offset)
    x = draft.current(first.x)
    gas = draft.facts.gas(output.name) + draft.facts.gas(step.x)
    if (factor == 1).all() and not offset.any():
        draft.alias(output.name, x)
    elif (factor == 1).all():
        draft.redefine(output.name, "broadcast_add", [x, _tensor(draft, offset, node)], gas=gas)
    elif (factor == -1).all():
        draft.redefine(output.name, "broadcast_sub", [_tensor(draft, offset, node), x], gas=gas)
    elif not offset.any():
        draft.redefine(output.name, "broadcast_mul", [x, _tensor(draft, factor, node)], gas=gas)
    else:
        return False
    return True


def _tensor(draft: Draft, array: Exact, node: Node) -> str:
    if max(abs(int(array.min())), abs(int(array.max()))) > INT32_MAX:
        raise Declined("a constant does not fit 32 bits")
    return draft.constant(array.astype(np.int64), node.outputs[0].name)
