"""Replacement of a requantize or a table by a clip, if it does nothing but clip its operand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from cvm.passes.optimize.draft import Draft, rewritten
from cvm.passes.optimize.pointwise import CODES, Integers, rows, tried
from cvm.program import Program
from cvm.program.model import Node
from cvm.program.verifier import VerifiedProgram

__all__ = ["exact_clips"]

SAMPLES = 16
"""The number of integers that are tried first. All others are tried only if these are clipped."""

Function: TypeAlias = "Callable[[Integers, list[Integers]], Integers | None]"


def exact_clips(verified: VerifiedProgram) -> Program:
    """The program in which every requantize or table that only clips the integers of its operand is a clip.

    Such a requantize occurs where a tensor is quantised again with the same scale, after an activation. The proof tries
    every integer of the operand's proven interval, with every multiplier, offset and shift that occurs: the result must
    be the integer clipped to [a, b], where a and b are the results at both ends of the interval.
    """
    return rewritten(verified, _rule)


def _rule(draft: Draft, node: Node) -> bool:
    (output,) = node.outputs
    names = [draft.current(name) for name in node.inputs]
    if node.op == "requantize" and len(names) == 4:
        x, parameters = names[0], [draft.array(name) for name in names[1:]]

        def function(codes: Integers, columns: list[Integers]) -> Integers | None:
            return tried("requantize", node.attributes, [codes, *columns])

    elif node.op == "cvm_lut":
        table = draft.array(names[0])
        x, parameters = names[1], [np.zeros(1, np.int64)] if table is not None else [None]

        def function(codes: Integers, columns: list[Integers]) -> Integers | None:
            return None if table is None else tried("cvm_lut", {}, [table.ravel(), codes])

    else:
        return False
    known = [array for array in parameters if array is not None]
    bounds = None if len(known) < len(parameters) else _clip(*draft.range(x).hull(), known, function)
    if bounds is None:
        return False
    draft.redefine(output.name, "clip", [x], {"a_min": bounds[0], "a_max": bounds[1]}, draft.facts.gas(output.name))
    return True


def _clip(lo: int, hi: int, parameters: Sequence[Integers], function: Function) -> tuple[int, int] | None:
    """The bounds of a clip that equals the function on [lo, hi] for all parameters; None if there is no such clip."""
    bounds = None
    for step in (max(1, (hi - lo) // SAMPLES), 1) if hi - lo < CODES else ():
        blocks = rows(lo, hi, parameters, step)
        if blocks is None:
            return None
        for codes, columns in blocks:
            results = function(codes, columns)
            if results is None:
                return None
            bounds = bounds or (int(results[0, 0]), int(results[0, -1]))
            if bounds[0] > bounds[1] or not np.array_equal(results, np.clip(codes, *bounds)):
                return None
    return bounds
