"""Merging of clips: two clips become one, and a clip after a requantize becomes the bounds of the requantize."""

from __future__ import annotations

from typing import Any

from cvm.limits import INT32_MAX
from cvm.passes.optimize.draft import Draft, rewritten
from cvm.program import Program
from cvm.program.model import Node
from cvm.program.verifier import VerifiedProgram

__all__ = ["clamp_of", "merged_clamps"]


def clamp_of(node: Node) -> tuple[int, int] | None:
    """The interval [lo, hi] if the node clips each element of its operand to it and does nothing else."""
    attributes: Any = node.attributes
    match node.op:
        case "clip":
            return attributes["a_min"], attributes["a_max"]
        case "cvm_clip":
            alpha = 2 ** (attributes["precision"] - 1) - 1
            return -alpha, alpha
        case "relu":
            return 0, INT32_MAX
    return None


def merged_clamps(verified: VerifiedProgram) -> Program:
    """The program in which no clip follows a clip or a requantize that nothing else reads.

    Clipping v to [a, b] and then to [lo, hi] is the same as clipping it to [a', b'], where a' and b' are a and b
    clipped to [lo, hi]. Proof: both functions are monotone in v, and their values range from a' to b'. If the two
    intervals intersect, [a', b'] is their intersection, and both functions leave every v in it unchanged; otherwise
    a' = b'. A requantize ends with such a clip; the rounded sum before the clip does not change.
    """
    return rewritten(verified, _merge)


def _merge(draft: Draft, node: Node) -> bool:
    (output,) = node.outputs
    outer = clamp_of(node)
    inner = draft.unchanged(node.inputs[0])
    if outer is None or inner is None:
        return False
    reads = frozenset({draft.facts.indices[output.name]})
    if not draft.facts.dies_with(node.inputs[0], reads):
        return False
    inputs = [draft.current(name) for name in inner.inputs]
    gas = draft.facts.gas(output.name) + draft.facts.gas(node.inputs[0])
    if inner.op == "requantize":
        attributes: Any = inner.attributes
        lo, hi = _both((attributes["lo"], attributes["hi"]), outer)
        draft.redefine(output.name, "requantize", inputs, {**attributes, "lo": lo, "hi": hi}, gas)
        return True
    first = clamp_of(inner)
    if first is None:
        return False
    lo, hi = _both(first, outer)
    draft.redefine(output.name, "clip", inputs, {"a_min": lo, "a_max": hi}, gas)
    return True


def _both(inner: tuple[int, int], outer: tuple[int, int]) -> tuple[int, int]:
    """The interval to which a clip has the same effect as a clip to ``inner`` followed by one to ``outer``."""
    lo, hi = (min(max(bound, outer[0]), outer[1]) for bound in inner)
    return lo, hi
