"""Operators that move elements to or from places that operands say: constant ones, or computed ones where they read."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.frontends.onnx.call import Call, Made, Operand
from cvm.frontends.onnx.model import Shape
from cvm.frontends.onnx.rules.arithmetic import EVERYTHING
from cvm.frontends.onnx.rules.movement import gathered
from cvm.frontends.onnx.rules.registry import rule
from cvm.frontends.onnx.translation import OnnxTranslation
from cvm.graph import Operand as Argument

__all__: list[str] = []

Places = npt.NDArray[np.int64]


def _indices(call: Call, index: int) -> Operand:
    found = call.operand(index)
    if found.data_type not in ("int32", "int64"):
        raise call.invalid("type", f"indices must be int32 or int64, found {found.data_type}")
    return found


def _numbered(shape: Shape) -> Places:
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


def _inside(at: npt.NDArray[np.generic], extent: int) -> Places:
    """Constant indices from the start: those below 0 count from the end, those out of range are cut."""
    cut = np.clip(at.astype(np.int64), -extent, extent - 1)
    return np.where(cut < 0, cut + extent, cut)


def _computed(translation: OnnxTranslation, name: str, shape: Shape, extent: int) -> str:
    """As `_inside`, of computed indices."""
    cut = translation.clamped(name, -extent, extent - 1, shape)
    negative = translation.emit("lt", {"x": cut, "y": Fraction(0)}, shape, dtype="logical")
    turn = translation.emit("mul", {"x": negative, "y": Fraction(extent)}, shape)
    return translation.emit("add", {"x": cut, "y": turn}, shape)


@rule("Gather")
def gather(translation: OnnxTranslation, call: Call) -> Made:
    """The slices at indices along an axis."""
    source, indices = call.operand(), _indices(call, 1)
    axis = call.axis(call.integer("axis", 0), source.rank)
    extent, before, after = source.shape[axis], source.shape[:axis], source.shape[axis + 1 :]
    shape = (*before, *indices.shape, *after)
    reached = (*before, *(indices.shape or (1,)), *after)
    name = translation.name(source)
    if indices.values is not None:
        if indices.values.size == 0:
            raise call.refuse("there is no index")
        name = gathered(
            translation, name, _inside(indices.values, extent).reshape(indices.shape or (1,)), axis, reached
        )
    else:
        places = _computed(translation, translation.name(indices), indices.shape, extent)
        name = translation.emit("gather", {"input": name, "indices": places}, reached, axis=axis)
    if not indices.shape:
        name = translation.emit("reshape", {"input": name}, shape)
    return Made(name, shape, source.data_type)


@rule("GatherElements", "GatherND")
def gather_places(translation: OnnxTranslation, call: Call) -> Made:
    """Elements or slices: their places in the flattened tensor are a sum over axes of index times stride."""
    source, indices = call.operand(), _indices(call, 1)
    shape = (
        _shape_of_elements(call, source, indices)
        if call.node.op == "GatherElements"
        else _shape_of_slices(call, source, indices)
    )
    count = math.prod(source.shape)
    flat = translation.emit("reshape", {"input": translation.name(source)}, (count,))
    places = _elements if call.node.op == "GatherElements" else _slices
    if indices.values is not None:
        at = places(call, indices.values.astype(np.int64), source.shape).reshape(shape or (1,))
        return Made(gathered(translation, flat, at, 0, shape or (1,)), shape, source.data_type)
    at_computed = _computed_places(translation, call, source, indices, shape)
    name = translation.emit("gather", {"input": flat, "indices": at_computed}, shape, axis=0)
    return Made(name, shape, source.data_type)


def _shape_of_elements(call: Call, source: Operand, indices: Operand) -> Shape:
    axis = call.axis(call.integer("axis", 0), source.rank)
    fits = source.rank == indices.rank and all(
        i == axis or n <= m for i, (n, m) in enumerate(zip(indices.shape, source.shape, strict=True))
    )
    if not fits:
        raise call.invalid("shape", f"indices {list(indices.shape)} of {list(source.shape)}")
    return indices.shape


def _shape_of_slices(call: Call, source: Operand, indices: Operand) -> Shape:
    batch = call.integer("batch_dims", 0)
    if indices.rank == 0 or not 0 <= batch < min(source.rank, indices.rank):
        raise call.invalid("shape", f"batch_dims {batch} of {list(source.shape)} and {list(indices.shape)}")
    depth = indices.shape[-1]
    if source.shape[:batch] != indices.shape[:batch] or not 1 <= depth <= source.rank - batch:
        raise call.invalid("shape", f"indices {list(indices.shape)} of {list(source.shape)}")
    return indices.shape[:-1] + source.shape[batch + depth :]


def _elements(call: Call, at: Places, shape: Shape) -> Places:
    """Per position of the indices, the place in the flattened tensor; the other axes are those of the position."""
    axis = call.axis(call.integer("axis", 0), len(shape))
    grid: list[Any] = list(np.indices(at.shape))
    grid[axis] = _inside(at, shape[axis])
    return np.asarray(_numbered(shape)[tuple(grid)])


def _slices(call: Call, at: Places, shape: Shape) -> Places:
    """Per coordinate, the places of its slice in the flattened tensor."""
    batch = call.integer("batch_dims", 0)
    columns = [_inside(at[..., i], shape[batch + i]) for i in range(at.shape[-1])]
    before = [np.indices(at.shape[:-1])[i] for i in range(batch)]
    return np.asarray(_numbered(shape)[(*before, *columns)])


def _computed_places(translation: OnnxTranslation, call: Call, source: Operand, indices: Operand, shape: Shape) -> str:
    """The places where indices are computed: those for indices 0, and what each index adds."""
    name = translation.name(indices)
    if call.node.op == "GatherElements":
        axis = call.axis(call.integer("axis", 0), source.rank)
        first = _elements(call, np.zeros(indices.shape, np.int64), source.shape)
        stride = math.prod(source.shape[axis + 1 :])
        found = _computed(translation, name, indices.shape, source.shape[axis])
        steps = translation.emit("mul", {"x": found, "y": Fraction(stride)}, shape)
        return translation.emit(
            "add", {"x": steps, "y": translation.constant(first, shape)}, shape, quantizer=EVERYTHING
        )
    batch, depth = call.integer("batch_dims", 0), indices.shape[-1]
    first = _slices(call, np.zeros(indices.shape, np.int64), source.shape)
    lead = indices.shape[:-1]
    total = translation.constant(first, shape)
    tail = (1,) * (len(shape) - len(lead))
    columns = translation.emit_many(
        "split", {"value": name}, [(*lead, 1)] * depth, axis=indices.rank - 1, ratios=(1,) * depth
    )
    for i, column in enumerate(columns):
        at = translation.emit("reshape", {"input": column}, lead + tail or (1,))
        at = _computed(translation, at, lead + tail, source.shape[batch + i])
        stride = math.prod(source.shape[batch + i + 1 :])
        steps = translation.emit("mul", {"x": at, "y": Fraction(stride)}, lead + tail)
        total = translation.emit("add", {"x": total, "y": steps}, shape, quantizer=EVERYTHING)
    return total


@rule("ScatterElements", "ScatterND")
def scatter(translation: OnnxTranslation, call: Call) -> Made:
    """Input and updates side by side, and of each place the last that was written, in row-major order."""
    source, indices, updates = call.operand(), _indices(call, 1), call.operand(2)
    data_type = call.same_type(source, updates)
    if call.text("reduction", "none") != "none":
        raise call.refuse("a reduction", "leave it out: then the last of equal indices stays")
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
    written = (_elements if call.node.op == "ScatterElements" else _slices)(call, at, source.shape).ravel()
    count = math.prod(source.shape)
    places = np.arange(count)
    for number, place in enumerate(written.tolist()):
        places[place] = count + number
    parts = tuple(
        translation.emit("reshape", {"input": translation.name(operand)}, (math.prod(operand.shape),))
        for operand in (source, updates)
        if operand.shape is not None
    )
    both = translation.emit("concat", {"values": parts}, (count + written.size,), axis=0)
    name = gathered(translation, both, places.reshape(source.shape or (1,)), 0, source.shape or (1,))
    return Made(name, source.shape, data_type)


@rule("OneHot")
def one_hot(translation: OnnxTranslation, call: Call) -> Made:
    """One value where the index is the place along a new axis, another value elsewhere."""
    indices, values = call.operand(), call.operand(2)
    depth = int(call.constant(1, "the depth").ravel()[0])
    axis = call.axis(call.integer("axis", -1), indices.rank + 1)
    if depth < 1 or values.shape != (2,):
        raise call.invalid("shape", f"depth {depth} and values {list(values.shape)}")
    shape = (*indices.shape[:axis], depth, *indices.shape[axis:])
    along = (*indices.shape[:axis], 1, *indices.shape[axis:])
    name = translation.emit("reshape", {"input": translation.name(indices)}, along)
    # An index below 0 counts from the end, and one out of range is nowhere.
    negative = translation.emit("lt", {"x": name, "y": Fraction(0)}, along, dtype="logical")
    turn = translation.emit("mul", {"x": negative, "y": Fraction(depth)}, along)
    name = translation.emit("add", {"x": name, "y": turn}, along, quantizer=EVERYTHING)
    places = np.arange(depth).reshape([depth if i == axis else 1 for i in range(len(shape))])
    inputs: dict[str, Argument] = {"x": name, "y": translation.constant(places, places.shape)}
    hot = translation.emit("eq", inputs, shape, dtype="logical")
    parts = translation.emit_many("split", {"value": translation.name(values)}, [(1,), (1,)], axis=0, ratios=(1, 1))
    off, on = (translation.emit("reshape", {"input": part}, (1,) * len(shape)) for part in parts)
    return Made(translation.selected(hot, on, off, shape, not values.real), shape, values.data_type)
