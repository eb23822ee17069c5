"""Operators that move elements by indices in an operand: gathers take constant or computed indices, scatters constant
ones.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from cvm.frontends.common.data_types import EVERYTHING
from cvm.frontends.common.decompositions.movement import (
    Indices,
    clipped_indices,
    computed_indices,
    element_numbers,
    flattened,
    gathered,
    last_written,
)
from cvm.frontends.onnx.call import Made, OnnxCall, Operand
from cvm.frontends.onnx.model import Shape
from cvm.frontends.onnx.rules.registry import rule
from cvm.frontends.onnx.translation import OnnxTranslation
from cvm.limits import elements

__all__: list[str] = []


def _indices(call: OnnxCall, index: int) -> Operand:
    found = call.operand(index)
    if found.data_type not in ("int32", "int64"):
        raise call.invalid("type", f"indices must be int32 or int64, found {found.data_type}")
    return found


@rule("Gather")
def gather(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Gather: the slices at the given indices of an axis."""
    source, indices = call.operand(), _indices(call, 1)
    axis = call.axis(call.integer("axis", 0), source.rank)
    shape = (*source.shape[:axis], *indices.shape, *source.shape[axis + 1 :])
    name = translation.name(source)
    if indices.values is not None and indices.values.size == 0:
        raise call.refuse("there is no index, so that its result would have no items")
    at = translation.name(indices) if indices.values is None else indices.values
    name = gathered(translation, name, at, axis, source.shape[axis] - 1)
    return Made(name if indices.shape else translation.reshape(name, shape), shape, source.data_type)


@rule("GatherElements", "GatherND")
def gather_elements(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """GatherElements and GatherND: compute each element's index in the flattened tensor, the sum of index * stride per
    axis.
    """
    source, indices = call.operand(), _indices(call, 1)
    elements = call.node.op == "GatherElements"
    shape = (_shape_of_elements if elements else _shape_of_slices)(call, source, indices)
    flat = flattened(translation, translation.name(source))
    if indices.values is not None:
        at = (_elements if elements else _slices)(call, indices.values.astype(np.int64), source.shape)
        return Made(translation.taken(flat, at.reshape(shape or (1,)), 0), shape, source.data_type)
    computed = _computed_elements if elements else _computed_slices
    at_computed = computed(translation, call, source, indices, shape)
    return Made(translation.emit("gather", flat, at_computed, axis=0), shape, source.data_type)


def _shape_of_elements(call: OnnxCall, source: Operand, indices: Operand) -> Shape:
    axis = call.axis(call.integer("axis", 0), source.rank)
    fits = source.rank == indices.rank and all(
        i == axis or n <= m for i, (n, m) in enumerate(zip(indices.shape, source.shape, strict=True))
    )
    if not fits:
        raise call.invalid(
            "shape", f"indices of the shape {list(indices.shape)} do not fit the data {list(source.shape)}"
        )
    return indices.shape


def _shape_of_slices(call: OnnxCall, source: Operand, indices: Operand) -> Shape:
    batch = call.integer("batch_dims", 0)
    if indices.rank == 0 or not 0 <= batch < min(source.rank, indices.rank):
        raise call.invalid(
            "shape",
            f"batch_dims {batch} does not fit the data {list(source.shape)} and the indices {list(indices.shape)}",
        )
    depth = indices.shape[-1]
    if source.shape[:batch] != indices.shape[:batch] or not 1 <= depth <= source.rank - batch:
        raise call.invalid(
            "shape", f"indices of the shape {list(indices.shape)} do not fit the data {list(source.shape)}"
        )
    return indices.shape[:-1] + source.shape[batch + depth :]


def _elements(call: OnnxCall, at: Indices, shape: Shape) -> Indices:
    """For each element of ``at``, the flat index that GatherElements reads: ``at`` along the axis, its own index
    elsewhere.
    """
    axis = call.axis(call.integer("axis", 0), len(shape))
    grid: list[Any] = list(np.indices(at.shape))
    grid[axis] = clipped_indices(at, shape[axis])
    return np.asarray(element_numbers(shape)[tuple(grid)])


def _slices(call: OnnxCall, at: Indices, shape: Shape) -> Indices:
    """For each index tuple in ``at``, the flat indices of the slice that GatherND reads."""
    batch = call.integer("batch_dims", 0)
    columns = [clipped_indices(at[..., i], shape[batch + i]) for i in range(at.shape[-1])]
    before = [np.indices(at.shape[:-1])[i] for i in range(batch)]
    return np.asarray(element_numbers(shape)[(*before, *columns)])


def _from_start(translation: OnnxTranslation, name: str, extent: int) -> str:
    return computed_indices(translation, name, extent, extent - 1)


def _computed_elements(
    translation: OnnxTranslation, call: OnnxCall, source: Operand, indices: Operand, _: Shape
) -> str:
    """The flat indices of `_elements` for computed indices: those for index 0, plus each computed index times its
    stride.
    """
    name = translation.name(indices)
    axis = call.axis(call.integer("axis", 0), source.rank)
    first = _elements(call, np.zeros(indices.shape, np.int64), source.shape)
    found = _from_start(translation, name, source.shape[axis])
    steps = translation.emit("mul", found, Fraction(math.prod(source.shape[axis + 1 :])))
    return translation.emit("add", steps, translation.constant(first, first.shape), quantizer=EVERYTHING)


def _computed_slices(
    translation: OnnxTranslation, call: OnnxCall, source: Operand, indices: Operand, shape: Shape
) -> str:
    """The flat indices of `_slices` for computed indices: those for index 0, plus each computed
    index times its stride.
    """
    name = translation.name(indices)
    batch, depth = call.integer("batch_dims", 0), indices.shape[-1]
    first = _slices(call, np.zeros(indices.shape, np.int64), source.shape)
    lead = indices.shape[:-1]
    total = translation.constant(first, shape)
    tail = (1,) * (len(shape) - len(lead))
    for i, column in enumerate(translation.emit_many("split", name, axis=indices.rank - 1, ratios=(1,) * depth)):
        at = _from_start(translation, translation.reshape(column, lead + tail), source.shape[batch + i])
        steps = translation.emit("mul", at, Fraction(math.prod(source.shape[batch + i + 1 :])))
        total = translation.emit("add", total, steps, quantizer=EVERYTHING)
    return total


@rule("ScatterElements", "ScatterND")
def scatter(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Scatters: concatenate input and updates, and take for each element the last value written, in row-major order."""
    source, indices, updates = call.operand(), _indices(call, 1), call.operand(2)
    data_type = call.same_type(source, updates)
    if call.text("reduction", "none") != "none":
        raise call.refuse(
            "a scatter with a reduction is not computed", "leave it out: then the last of equal indices stays"
        )
    at = call.constant(1, "the indices").astype(np.int64)
    if call.node.op == "ScatterElements":
        _shape_of_elements(call, source, indices)
        wanted = indices.shape
        extents = [source.shape[call.axis(call.integer("axis", 0), source.rank)]]
        columns = [at]
    else:
        wanted = _shape_of_slices(call, source, indices)
        extents = list(source.shape[: at.shape[-1]])
        columns = [at[..., i] for i in range(at.shape[-1])]
    if updates.shape != wanted:
        raise call.invalid("shape", f"updates have shape {list(updates.shape)}, not {list(wanted)}")
    if any(((column < -n) | (column >= n)).any() for column, n in zip(columns, extents, strict=True)):
        raise call.invalid("index", "an index is out of range")
    written = (_elements if call.node.op == "ScatterElements" else _slices)(call, at, source.shape)
    found = last_written(math.prod(source.shape), written)
    parts = tuple(flattened(translation, translation.name(operand)) for operand in (source, updates))
    both = translation.emit("concat", parts, axis=0)
    return Made(translation.taken(both, found.reshape(source.shape or (1,)), 0), source.shape, data_type)


@rule("OneHot")
def one_hot(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """OneHot: one value where the index equals the position along a new axis, another value elsewhere."""
    indices, values = call.operand(), call.operand(2)
    depth = call.constant_integer(1, "the depth")
    axis = call.axis(call.integer("axis", -1), indices.rank + 1)
    if depth < 1 or values.shape != (2,):
        raise call.invalid(
            "shape",
            f"depth must be above 0 and values must have two items, found {depth} and the shape {list(values.shape)}",
        )
    shape = (*indices.shape[:axis], depth, *indices.shape[axis:])
    elements(shape, translation.limits, call.node.label)
    name = translation.reshape(translation.name(indices), (*indices.shape[:axis], 1, *indices.shape[axis:]))
    # A negative index counts from the end; an index out of range gives no one.
    negative = translation.emit("lt", name, Fraction(0))
    wrapped = translation.emit("mul", negative, Fraction(depth))
    name = translation.emit("add", name, wrapped, quantizer=EVERYTHING)
    along = np.arange(depth).reshape([depth if i == axis else 1 for i in range(len(shape))])
    hot = translation.emit("eq", name, translation.constant(along, along.shape))
    parts = translation.emit_many("split", translation.name(values), axis=0, ratios=(1, 1))
    off, on = (translation.reshape(part, (1,) * len(shape)) for part in parts)
    return Made(translation.selected(hot, on, off, integer=not values.real), shape, values.data_type)
