"""Constant folding: results that do not depend on the inputs are computed when compiling, by FORMAL."""

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
"""The most gas of all nodes that one pass computes. FORMAL takes some microseconds per unit."""
GROWTH = 4096
"""A folded constant may have this many bytes; a larger one is folded only if it replaces constants of its size."""


def constant_folding(verified: VerifiedProgram) -> Program:
    """The program without nodes whose result is known: all operands are constants, or its range is one number.

    FORMAL is the definition of every op, so the constant is the result. A proven range of one number holds for every
    element of the result, for all inputs. In both cases the range of the constant is its elements, which lie within
    every proven range. `WORK` bounds the time, and `GROWTH` the size of the program.
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
            if not all(draft.is_constant(draft.current(name)) for name in node.inputs):
                return False
            constants = draft.facts.constants
            stored_bytes = sum(len(constants[name].data) for name in node.inputs if name in constants)
            cost = ops.get(node.op).gas(calls[output.name])
            if cost > work or not _small(output.shape, lo, hi, stored_bytes):
                return False
            work -= cost
            known = [draft.stored(draft.current(name)) for name in node.inputs]
            values = _computed(node, [items for items in known if items is not None])
        draft.alias(output.name, draft.constant(values, output.name))
        return True

    return rewritten(verified, fold)


def _small(shape: tuple[int, ...], lo: int, hi: int, replaced: int) -> bool:
    """Whether a constant of this shape and range is small enough to be stored; ``replaced`` bytes are saved."""
    width = next(size for size in (1, 2, 4) if -(2 ** (8 * size - 1)) <= lo and hi < 2 ** (8 * size - 1))
    return prod(shape) * width <= max(GROWTH, replaced)


def _computed(node: Node, operands: Sequence[npt.NDArray[Any]]) -> Integers:
    """The result of a node for constant operands."""
    (result,) = apply(node, [stored(array.shape, [int(item) for item in array.ravel()]) for array in operands])
    return np.array(elements(result), np.int64).reshape(result.shape)
