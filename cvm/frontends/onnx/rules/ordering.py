"""Indices of the greatest elements: ArgMax, ArgMin and TopK."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cvm.frontends.common.data_types import EVERYTHING, unit
from cvm.frontends.onnx.call import Made, OnnxCall
from cvm.frontends.onnx.rules.registry import rule
from cvm.frontends.onnx.translation import OnnxTranslation

__all__: list[str] = []

_MOST_RANKED = 256
"""The most elements that TopK ranks: it compares each with each."""


@rule("ArgMax", "ArgMin")
def position(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """ArgMax and ArgMin: the first index of the greatest or the least element, or the last one."""
    source = call.operand()
    axis = call.axis(call.integer("axis", 0), source.rank)
    keep, last = call.flag("keepdims", True), call.flag("select_last_index", False)
    name, extent = translation.name(source), source.shape[axis]
    if last:
        name = translation.taken(name, np.arange(extent)[::-1], axis)
    kept = [1 if i == axis else n for i, n in enumerate(source.shape)]
    op = {"ArgMax": "argmax_reduce", "ArgMin": "argmin_reduce"}[call.node.op]
    name = translation.emit(op, name, axes=(axis,), dtype="integer")
    if last:
        name = translation.emit("sub", Fraction(extent - 1), name)
    shape = tuple(kept if keep else kept[:axis] + kept[axis + 1 :])
    return Made(translation.reshape(name, shape), shape, "int64")


@rule("TopK")
def top_k(translation: OnnxTranslation, call: OnnxCall) -> list[Made]:
    """TopK: the rank of an element is the number of elements that are greater, or equal and before it."""
    source = call.operand()
    axis = call.axis(call.integer("axis", -1), source.rank)
    largest = call.flag("largest", True)
    call.flag("sorted", True)  # where sorted is 0, any order is allowed, so the sorted one is
    k, n = call.constant_integer(1, "k"), source.shape[axis]
    if not 1 <= k <= n:
        raise call.invalid("shape", f"k is {k}, and axis {axis} has {n} items")
    if n > _MOST_RANKED:
        raise call.refuse(f"it ranks {n} items", f"take the top of at most {_MOST_RANKED}")
    order = (*(i for i in range(source.rank) if i != axis), axis)
    name = translation.transposed(translation.name(source), order)
    lead = tuple(source.shape[i] for i in order[:-1])
    rows = int(np.prod(lead, dtype=np.int64))
    column = translation.reshape(name, (rows, n, 1))
    row = translation.reshape(name, (rows, 1, n))
    # Item i is ahead of item j if it is greater, or equal and i < j.
    before = np.triu(np.ones((n, n), np.int64), 1).reshape(1, n, n)
    strict, equal = (translation.emit(op, column, row) for op in ("gt" if largest else "lt", "eq"))
    tie = translation.emit("mul", equal, translation.constant(before, before.shape))
    ahead = translation.emit("add", strict, tie, quantizer=unit(0, 1))
    rank = translation.emit("sum_reduce", ahead, axes=(1,))
    ranks = translation.constant(np.arange(k).reshape(1, k, 1), (1, k, 1))
    chosen = translation.emit("eq", rank, ranks)
    numbers = translation.constant(np.arange(n).reshape(1, 1, n), (1, 1, n))
    index = translation.emit("mul", chosen, numbers)
    index = translation.emit("sum_reduce", index, axes=(2,))
    index = translation.emit("copy", index, quantizer=unit(0, max(n - 1, 1)))
    first = translation.constant((np.arange(rows) * n).reshape(rows, 1, 1), (rows, 1, 1))
    at = translation.emit("add", index, first, quantizer=EVERYTHING)
    flat = translation.reshape(name, (rows * n,))
    values = translation.emit("gather", flat, at, axis=0)
    back = tuple(int(i) for i in np.argsort(order))
    shape = tuple(k if i == axis else m for i, m in enumerate(source.shape))
    found = []
    for part, data_type in ((values, source.data_type), (index, "int64")):
        part = translation.reshape(part, (*lead, k))
        found.append(Made(translation.transposed(part, back), shape, data_type))
    return found
