"""Constant folding: operators on constants alone, such as shapes, indices, tables and dequantised filters.

Integers are folded as integers. Floats are folded only where that is exact: moved elements, and codes that stand for
numbers that float64 holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.frontends.tflite.call import Operand, TfliteCall
from cvm.frontends.tflite.slicing import strided

__all__ = ["FOLDED", "fold"]

Items = npt.NDArray[Any]

_MOST_ITEMS = 2**24
"""The most elements that are folded; larger constants are left to the graph."""


def fold(call: TfliteCall) -> list[Items] | None:
    """The elements of the results where the operands are constants that can be folded, else None."""
    op = call.operator.op
    if op == "SHAPE":
        return [np.array(call.operand().shape, np.int64)]
    if op == "RANK":
        return [np.array(call.operand().rank, np.int64)]
    operands = [operand for operand in call.operands if operand is not None]
    if op not in _FOLDED or not operands or any(operand.values is None for operand in operands):
        return None
    if any(operand.quantizer is not None for operand in operands):
        return None
    values = [operand.values for operand in operands if operand.values is not None]
    if op in _INTEGER and any(items.dtype.kind not in "iu" for items in values):
        return None
    if sum(items.size for items in values) > _MOST_ITEMS:
        return None
    counts = _OPERANDS.get(op, (len(values),))
    if len(values) not in counts:
        raise call.invalid("inputs", f"it takes {' or '.join(map(str, counts))} inputs, found {len(values)}")
    try:
        found = _FOLDED[op](call, operands, values)
    except (ValueError, IndexError, ZeroDivisionError) as error:
        raise call.invalid("shape", f"it cannot be computed from its constants: {error}") from None
    return found if sum(items.size for items in found) <= _MOST_ITEMS else None


def _one(function: Callable[..., Items]) -> Callable[[TfliteCall, list[Operand], list[Items]], list[Items]]:
    """The folding of an operator with one result, from its operands' elements; in folded values no 64-bit integer
    wraps.
    """
    return lambda call, operands, values: [function(*values)]


def _pack(call: TfliteCall, operands: list[Operand], values: list[Items]) -> list[Items]:
    return [np.stack(values, call.axis(call.integer("Axis"), values[0].ndim + 1))]


def _unpack(call: TfliteCall, operands: list[Operand], values: list[Items]) -> list[Items]:
    axis = call.axis(call.integer("Axis"), values[0].ndim)
    return [np.take(values[0], i, axis) for i in range(values[0].shape[axis])]


def _concatenation(call: TfliteCall, operands: list[Operand], values: list[Items]) -> list[Items]:
    return [np.concatenate(values, call.axis(call.integer("Axis"), values[0].ndim))]


def _strided_slice(call: TfliteCall, operands: list[Operand], values: list[Items]) -> list[Items]:
    indices, dropped = strided(call, values[0].shape)
    items = values[0]
    for axis, at in enumerate(indices):
        items = np.take(items, at, axis)
    return [items.reshape([n for axis, n in enumerate(items.shape) if axis not in dropped])]


def _reshape(call: TfliteCall, operands: list[Operand], values: list[Items]) -> list[Items]:
    shape = tuple(values[1].ravel().tolist()) if len(values) > 1 else call.list_of_integers("NewShape")
    return [values[0].reshape(shape)]


def _cast(call: TfliteCall, operands: list[Operand], values: list[Items]) -> list[Items]:
    target = call.result.data_type
    if values[0].dtype.kind == "f" and target.startswith("bool"):
        return [values[0] != 0]
    if values[0].dtype.kind == "f" and not target.startswith("float"):
        if not (np.abs(values[0].astype(np.float64)) < 2.0**63).all():  # nor is NaN
            raise ValueError("a float does not fit an integer of 64 bits")
        return [np.trunc(values[0]).astype(np.int64)]
    return [values[0].astype(np.dtype(target) if target.startswith(("float", "bool")) else np.int64)]


def _range(call: TfliteCall, operands: list[Operand], values: list[Items]) -> list[Items]:
    start, limit, step = (int(items.item()) for items in values)
    if abs(limit - start) > _MOST_ITEMS * max(abs(step), 1):
        raise ValueError("the range has too many items")
    return [np.arange(start, limit, step, dtype=np.int64)]


def _filled(shape: Items, value: Items) -> Items:
    """The value repeated to a shape. The number of elements is checked before memory is allocated."""
    extents = [int(extent) for extent in shape.ravel()]
    if math.prod(extents) > _MOST_ITEMS:
        raise ValueError(f"the shape {extents} has too many items")
    return np.array(np.broadcast_to(value, extents))


def _checked(function: Callable[[Any, Any], Any]) -> Callable[[TfliteCall, list[Operand], list[Items]], list[Items]]:
    """The folding of an operation on integers, computed in Python integers."""

    def folded(call: TfliteCall, operands: list[Operand], values: list[Items]) -> list[Items]:
        return [_integers(function(*(items.astype(object) for items in values)))]

    return folded


def _integers(result: Any) -> Items:
    """Python integers as int64. Raises `ValueError` where one does not fit."""
    items = np.asarray(result, dtype=object)
    if any(not -(2**63) <= item < 2**63 for item in items.ravel().tolist()):
        raise ValueError("an integer does not fit 64 bits")
    return items.astype(np.int64)


def _product(call: TfliteCall, operands: list[Operand], values: list[Items]) -> list[Items]:
    axes = tuple(int(axis) for axis in values[1].ravel())
    function = np.sum if call.operator.op == "SUM" else np.prod
    keep = call.flag("KeepDims")
    return [_integers(function(values[0].astype(object), axis=axes, keepdims=keep))]


_INTEGER = {"ADD", "SUB", "MUL", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "MINIMUM", "REDUCE_PROD", "SUM"}
"""Operators that are folded for integers alone; with float operands they are left to the graph."""
_OPERANDS = {
    **dict.fromkeys(("UNPACK", "CAST", "SQUEEZE"), (1,)),
    **dict.fromkeys(("GATHER", "EXPAND_DIMS", "TRANSPOSE", "FILL", "BROADCAST_TO", "REDUCE_PROD", "SUM"), (2,)),
    **dict.fromkeys(("ADD", "SUB", "MUL", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "MINIMUM"), (2,)),
    **dict.fromkeys(("RANGE", "SLICE"), (3,)),
    "RESHAPE": (1, 2),
    "STRIDED_SLICE": (4,),
}
"""The number of operands of each operator; an operator that is not listed takes one or more."""
_FOLDED: dict[str, Callable[[TfliteCall, list[Operand], list[Items]], list[Items]]] = {
    "PACK": _pack,
    "UNPACK": _unpack,
    "CONCATENATION": _concatenation,
    "STRIDED_SLICE": _strided_slice,
    "RESHAPE": _reshape,
    "CAST": _cast,
    "RANGE": _range,
    "GATHER": lambda call, operands, values: [
        np.take(values[0], values[1], call.axis(call.integer("Axis"), values[0].ndim))
    ],
    "EXPAND_DIMS": _one(lambda x, axis: np.expand_dims(x, int(axis.item()))),
    "SQUEEZE": lambda call, operands, values: [np.squeeze(values[0], call.list_of_integers("SqueezeDims") or None)],
    "TRANSPOSE": _one(lambda x, order: np.transpose(x, order.ravel().tolist())),
    "SLICE": _one(
        lambda x, begin, size: x[
            tuple(
                slice(int(b), None if n == -1 else int(b) + int(n))
                for b, n in zip(begin.ravel(), size.ravel(), strict=True)
            )
        ]
    ),
    "FILL": _one(_filled),
    "BROADCAST_TO": _one(lambda x, shape: _filled(shape, x)),
    "ADD": _checked(lambda x, y: x + y),
    "SUB": _checked(lambda x, y: x - y),
    "MUL": _checked(lambda x, y: x * y),
    "FLOOR_DIV": _checked(lambda x, y: x // y),
    "FLOOR_MOD": _checked(lambda x, y: x % y),
    "MAXIMUM": _checked(np.maximum),
    "MINIMUM": _checked(np.minimum),
    "REDUCE_PROD": _product,
    "SUM": _product,
}

FOLDED = frozenset({"SHAPE", "RANK", *_FOLDED})
"""The operators that are folded where their operands are constant."""
