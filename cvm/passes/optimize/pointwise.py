"""The results of pointwise ops for every integer of an interval.

If each operand's interval is a single number, the range rule of such an op proves a single number too, the result. So
the rules of the verifier compute a whole table at once, and no kernel is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm import ops
from cvm.errors import Invalid
from cvm.limits import INT32_MAX
from cvm.ops import Call, Range
from cvm.ops.ranges import BOUNDS
from cvm.program.model import AttributeValue

__all__ = ["CODES", "POINTWISE", "Integers", "rows", "tried"]

Integers: TypeAlias = npt.NDArray[np.int64]

CODES = 2**16
"""The largest number of integers of an interval that are tried."""

TRIALS = 2**22
"""The largest number of elements that are tried for one node."""

POINTWISE = frozenset({
    "abs", "broadcast_add", "broadcast_div", "broadcast_greater", "broadcast_max", "broadcast_mul", "broadcast_sub",
    "clip", "cvm_clip", "cvm_left_shift", "cvm_lut", "cvm_precision", "cvm_right_shift", "elemwise_add",
    "elemwise_sub", "negative", "relu", "requantize", "where",
})  # fmt: skip
"""Ops whose result at an index depends only on the operands' elements at that index; `cvm_lut` also reads a table."""


def tried(op: str, attributes: Mapping[str, AttributeValue], operands: Sequence[Integers]) -> Integers | None:
    """The results of a pointwise op for operands of one shape. Parameters broadcast to it; a table is a vector.

    None if the range rule does not give a single number, if a rule on ranges is broken, or if a result is no int32. The
    verified program has no such results, but an operand here may be a part of a table that the program never reads.
    """
    declaration = ops.get(op)
    ranges = tuple(map(Range.exactly, operands))
    try:
        (found,) = declaration.prove(
            Call(tuple(array.shape for array in operands), declaration.parse(attributes), ranges)
        )
    except Invalid:
        return None
    lo, hi = found.hull()
    if not -INT32_MAX <= lo <= hi <= INT32_MAX:
        return None
    if found.lo is not found.hi and not np.array_equal(found.lo, found.hi):
        return None
    return np.asarray(found.lo.astype(np.int64))


def rows(
    lo: int, hi: int, parameters: Sequence[Integers], step: int = 1
) -> Iterator[tuple[Integers, list[Integers]]] | None:
    """All integers of [lo, hi], or every ``step``-th and the last, with every combination of parameters that occurs.

    They come in blocks (integers, parameters) of shapes (rows, integers) and (rows, 1). Returns None if there are too
    many.
    """
    if hi - lo >= CODES:
        return None
    shape = np.broadcast_shapes(*(array.shape for array in parameters))
    columns = np.stack([np.broadcast_to(array, shape).ravel() for array in parameters], axis=1)
    kinds = np.unique(columns, axis=0) if len(columns) > 1 else columns
    codes = np.append(np.arange(lo, hi, step), hi)
    if len(kinds) * len(codes) > TRIALS:
        return None
    return _blocks(codes, kinds)


def _blocks(codes: Integers, kinds: Integers) -> Iterator[tuple[Integers, list[Integers]]]:
    at_once = max(1, BOUNDS // len(codes))
    for start in range(0, len(kinds), at_once):
        block: Any = kinds[start : start + at_once]
        yield np.broadcast_to(codes, (len(block), len(codes))), [block[:, [index]] for index in range(block.shape[1])]
