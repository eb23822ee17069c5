"""Constant folding: what no input decides is computed when compiling, by FORMAL."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm import ops
from cvm.passes.optimize.draft import Draft, rewritten
from cvm.program import Program
from cvm.program.model import Node
from cvm.program.verifier import VerifiedProgram
from formal.executor import apply
from formal.tensor import elements, stored

Integers: TypeAlias = npt.NDArray[np.int64]

__all__ = ["GROWTH", "WORK", "constant_folding"]

WORK = 2**16
"""Gas of all nodes that one pass computes: FORMAL takes some microseconds for each unit."""
GROWTH = 4096
"""Bytes that a folded constant may always take; a larger one takes no more than the constants that it is made of."""


def constant_folding(verified: VerifiedProgram) -> Program:
    """The program without nodes whose result is known: all operands are constants, or its range is one number.

    FORMAL is the definition of every op, so that the constant is the result. A proven range of one number holds
    for every element of the result, whatever the inputs. Either way the constant's range is its true values, within
    every proven range. Bounded by `WORK` in time and by `GROWTH` in the size of the program.
    """
    work = WORK
    calls = dict(zip((node.outputs[0].name for node in verified.program.nodes), verified.calls, strict=True))

    def fold(draft: Draft, node: Node) -> bool:
        nonlocal work
        (output,) = node.outputs
        lo, hi = verified.ranges[output.name].hull()
        if lo == hi and _small(output.shape, lo, hi, 0):
            values = np.full(output.shape, lo, np.int64)
        else:
            if not all(draft.is_constant(draft.now(name)) for name in node.inputs):
                return False
            constants = draft.facts.constants
            stored_bytes = sum(len(constants[name].data) for name in node.inputs if name in constants)
            cost = ops.get(node.op).gas(calls[output.name])
            if cost > work or not _small(output.shape, lo, hi, stored_bytes):
                return False
            work -= cost
            known = [draft.stored(draft.now(name)) for name in node.inputs]
            values = _computed(node, [items for items in known if items is not None])
        draft.alias(output.name, draft.constant(values, output.name))
        return True

    return rewritten(verified, fold)


def _small(shape: tuple[int, ...], lo: int, hi: int, replaced: int) -> bool:
    """Whether a constant of that shape and range is small enough to be stored."""
    width = next(size for size in (1, 2, 4) if -(2 ** (8 * size - 1)) <= lo and hi < 2 ** (8 * size - 1))
    return prod(shape) * width <= max(GROWTH, replaced)


def _computed(node: Node, operands: Sequence[npt.NDArray[Any]]) -> Integers:
    """The result of a node for constant operands."""
    (result,) = apply(node, [stored(array.shape, [int(item) for item in array.ravel()]) for array in operands])
    return np.array(elements(result), np.int64).reshape(result.shape)
