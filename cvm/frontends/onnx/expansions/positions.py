"""Computed indices that follow one another: a start that is computed or given, and constants that are added to it.

Caches of attention are written at such indices. The start may be the result of further nodes, as far as its interval is
known from the ranges of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cvm.bounds import magnitude
from cvm.frontends.onnx.call import OnnxCall
from cvm.frontends.onnx.writing import Scope
from cvm.limits import INT32_MAX

__all__ = ["Places", "interval_of", "places_of"]

_DEPTH = 40
_MOVES = ("Reshape", "Unsqueeze", "Squeeze", "Identity", "Cast", "Expand", "Flatten")

Interval = tuple[int, int]


class Places(NamedTuple):
    """Indices as the single element of a tensor, plus constants."""

    start: str
    offsets: npt.NDArray[np.int64]


def places_of(scope: Scope, name: str, depth: int = _DEPTH) -> Places | None:
    """The indices of a tensor; None where they are no single element plus constants."""
    operand, call = scope.read(name), scope.call_of(name)
    if operand.values is not None or operand.data_type not in ("int32", "int64"):
        return None
    found = _moved(scope, call, depth - 1) if call is not None and depth else None
    if found is not None:
        return Places(found.start, np.broadcast_to(found.offsets, operand.shape))
    return Places(name, np.zeros(operand.shape, np.int64)) if np.prod(operand.shape) == 1 else None


def _moved(scope: Scope, call: OnnxCall, depth: int) -> Places | None:
    op, operands = call.node.op, call.operands
    if call.node.domain:
        return None
    if op == "Where":
        arm = _decided(scope, call, depth)
        return None if arm is None else places_of(scope, arm, depth)
    if op in _MOVES and operands[0] is not None:
        found = places_of(scope, operands[0].name, depth)
        shape = scope.read(call.node.outputs[0]).shape
        if found is None or op == "Expand":
            return found
        return Places(found.start, found.offsets.reshape(shape))
    if op not in ("Add", "Sub") or len(operands) != 2:
        return None
    for index, operand in enumerate(operands):
        other = operands[1 - index]
        if operand is None or other is None or other.values is None or (op == "Sub" and index):
            continue
        found = places_of(scope, operand.name, depth)
        numbers = other.values.astype(np.int64)
        if found is not None and magnitude(numbers) <= INT32_MAX:  # so that sums of `_DEPTH` of them fit 64 bits
            return Places(found.start, found.offsets + (numbers if op == "Add" else -numbers))
    return None


def _decided(scope: Scope, call: OnnxCall, depth: int) -> str | None:
    """The arm of a choice that is always taken: indices are compared with 0, and are not negative."""
    condition = call.operands[0]
    compared = scope.call_of(condition.name) if condition is not None else None
    if compared is None or compared.node.op != "Less" or None in compared.operands[:2]:
        return None
    x, bound = compared.operand(0), compared.operand(1)
    interval = interval_of(scope, x.name, depth)
    decided = bound.values is not None and interval is not None and interval[0] >= bound.values.max()
    return call.operand(2).name if decided else None


_COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b, "Min": min, "Max": max,
}  # fmt: skip


def interval_of(scope: Scope, name: str, depth: int = _DEPTH) -> Interval | None:
    """The least and the greatest integer that a tensor can hold, as far as nodes and ranges of inputs say."""
    operand, call = scope.read(name), scope.call_of(name)
    if operand.real:
        return None
    if operand.values is not None:
        return (int(operand.values.min()), int(operand.values.max())) if operand.values.size else None
    if call is None:
        return scope.interval_of_input(name)
    op = call.node.op
    if call.node.domain or not depth:
        return None
    if op == "Where":
        arm = _decided(scope, call, depth - 1)
        return None if arm is None else interval_of(scope, arm, depth - 1)
    parts = [interval_of(scope, item.name, depth - 1) if item is not None else None for item in call.operands[:3]]
    if op in (*_MOVES, "Gather", "Slice", "Transpose"):
        return parts[0]
    if op == "Clip":
        whole, low, high = (*parts, None, None)[:3]
        return None if whole is None else (
            max(whole[0], low[0]) if low else whole[0], min(whole[1], high[1]) if high else whole[1]
        )  # fmt: skip
    if op not in _COMBINED or len(parts) != 2 or parts[0] is None or parts[1] is None:
        return None
    corners = [_COMBINED[op](a, b) for a in parts[0] for b in parts[1]]
    return (min(corners), max(corners))
