"""Operators that move elements to constant indices."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cvm.frontends.common.decompositions.movement import Indices, tiled, triangle
from cvm.frontends.common.shapes import broadcast
from cvm.frontends.onnx.call import Made, OnnxCall, Operand
from cvm.frontends.onnx.folding import parts_of_split, slice_bounds
from cvm.frontends.onnx.model import Shape
from cvm.frontends.onnx.reshaping import shape_of_reshape
from cvm.frontends.onnx.rules.registry import rule
from cvm.frontends.onnx.translation import OnnxTranslation

__all__: list[str] = []


# Operators that keep the elements in order


@rule("Identity", "Dropout")
def identity(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Identity, and Dropout, which drops nothing at inference."""
    source = call.operand()
    call.ignore("seed")
    if call.node.op == "Dropout" and call.optional(2) is not None and call.constant(2, "training_mode").any():
        raise call.refuse("it drops at random when it trains", "export the model for inference")
    return Made(translation.name(source), source.shape, source.data_type)


@rule("Reshape", "Squeeze", "Unsqueeze", "Flatten")
def reshape(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Reshape, Squeeze, Unsqueeze and Flatten: the same elements in row-major order under another shape."""
    source, shape = call.operand(), shape_of_reshape(call)
    return Made(translation.reshape(translation.name(source), shape), shape, source.data_type)


@rule("Transpose")
def transpose(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Transpose: permute the axes; by default reverse their order."""
    source = call.operand()
    axes = call.integers("perm") or tuple(range(source.rank))[::-1]
    if sorted(axes) != list(range(source.rank)):
        raise call.invalid("attribute", f"perm {list(axes)} is not a permutation of {source.rank} axes")
    shape = tuple(source.shape[axis] for axis in axes)
    if source.rank == 0:
        return Made(translation.name(source), shape, source.data_type)
    return Made(translation.transposed(translation.name(source), axes), shape, source.data_type)


@rule("DepthToSpace", "SpaceToDepth")
def depth_and_space(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """DepthToSpace and SpaceToDepth: move channels into blocks of the plane, or blocks into channels."""
    source, size = call.operand(), call.integer("blocksize", 0)
    if source.rank != 4 or size < 1:
        raise call.invalid(
            "shape", f"the input must have 4 axes and blocksize be above 0, found {list(source.shape)} and {size}"
        )
    n, c, h, w = source.shape
    if call.node.op == "SpaceToDepth":
        mode = call.text("mode", "DCR", "DCR", "CRD")
        if h % size or w % size:
            raise call.invalid("shape", f"blocks of {size} x {size} do not divide {h} x {w}")
        blocks: Shape = (n, c, h // size, size, w // size, size)
        order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
        shape: Shape = (n, c * size * size, h // size, w // size)
    else:
        mode = call.text("mode", "DCR", "DCR", "CRD")
        if c % (size * size):
            raise call.invalid("shape", f"{c} channels do not divide into blocks of {size} x {size}")
        inner = c // (size * size)
        blocks = (n, size, size, inner, h, w) if mode == "DCR" else (n, inner, size, size, h, w)
        order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
        shape = (n, inner, h * size, w * size)
    name = translation.reshape(translation.name(source), blocks)
    name = translation.reshape(translation.transposed(name, order), shape)
    return Made(name, shape, source.data_type)


# Parts and repetitions


@rule("Concat")
def concat(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Concat: join tensors along an axis; tensors without elements are left out."""
    parts = call.every()
    data_type, rank = call.same_type(*parts), parts[0].rank
    axis = call.axis(call.integer("axis", 0), rank)
    shape = list(parts[0].shape)
    for part in parts:
        others = [extent for i, extent in enumerate(part.shape) if i != axis]
        if part.rank != rank or others != [extent for i, extent in enumerate(shape) if i != axis]:
            raise call.invalid("shape", f"{list(part.shape)} and {list(parts[0].shape)} differ beyond axis {axis}")
    shape[axis] = sum(part.shape[axis] for part in parts)
    names = tuple(translation.name(part) for part in parts if part.shape[axis])
    if len(names) == 1:
        return Made(names[0], tuple(shape), data_type)
    return Made(translation.emit("concat", names, axis=axis), tuple(shape), data_type)


@rule("Split")
def split(translation: OnnxTranslation, call: OnnxCall) -> list[Made]:
    """Split a tensor into parts along an axis."""
    source = call.operand()
    axis = call.axis(call.integer("axis", 0), source.rank)
    sizes = tuple(parts_of_split(call, source.shape[axis]))
    shapes = [tuple(size if i == axis else extent for i, extent in enumerate(source.shape)) for size in sizes]
    names = translation.emit_many("split", translation.name(source), axis=axis, ratios=sizes)
    return [Made(name, shape, source.data_type) for name, shape in zip(names, shapes, strict=True)]


@rule("Slice")
def slice_(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Slice: take a range of indices along each axis; negative steps go backwards."""
    source = call.operand()
    starts, ends = (call.constant_integers(i, what) or () for i, what in ((1, "starts"), (2, "ends")))
    given = call.constant_integers(3, "axes")
    axes = call.axes(tuple(range(len(starts))) if given is None else given, source.rank)
    steps = call.constant_integers(4, "steps") or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise call.invalid("shape", "starts, ends, axes and steps differ in length")
    name, shape = translation.name(source), list(source.shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step == 0:
            raise call.invalid("shape", "a step must not be 0")
        at = np.arange(shape[axis], dtype=np.int64)[slice(*slice_bounds(start, end, step, shape[axis]))]
        if at.size == 0:
            raise call.refuse(f"nothing is left of axis {axis} of {list(source.shape)}", "select at least one item")
        shape[axis] = at.size
        name = translation.taken(name, at, axis)
    return Made(name, tuple(shape), source.data_type)


@rule("Expand")
def expand(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Expand: broadcast axes of extent 1 to a shape."""
    source, wish = call.operand(), call.constant_integers(1, "the shape") or ()
    shape = broadcast(source.shape, wish)
    if shape is None or 0 in wish:
        raise call.invalid("shape", f"{list(source.shape)} does not broadcast to {list(wish)}")
    return _tiled(translation, source, (1,) * (len(shape) - source.rank) + source.shape, shape)


@rule("Tile")
def tile(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Tile: repeat the whole tensor along each axis."""
    source, repeats = call.operand(), call.constant_integers(1, "repeats") or ()
    if len(repeats) != source.rank or any(item < 1 for item in repeats):
        raise call.refuse(f"the repeats {list(repeats)} of {list(source.shape)}", "give a number above 0 for each axis")
    shape = tuple(n * m for n, m in zip(source.shape, repeats, strict=True))
    return _tiled(translation, source, source.shape, shape)


def _tiled(translation: OnnxTranslation, source: Operand, before: Shape, shape: Shape) -> Made:
    name = translation.aligned_operand(source, len(shape))
    return Made(name if before == shape else tiled(translation, name, shape), shape, source.data_type)


# Padding and triangles


@rule("Pad")
def pad(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Pad with a value, the edge, the reflection, or the elements of the opposite end; negative
    widths remove elements.
    """
    source = call.operand()
    given, axes = call.constant_integers(1, "pads") or (), call.constant_integers(3, "axes")
    mode = call.text("mode", "constant", "constant", "edge", "reflect", "wrap")
    wanted = call.axes(tuple(range(source.rank)) if axes is None else axes, source.rank)
    if len(given) != 2 * len(wanted):
        raise call.invalid("shape", f"there must be two pads per axis, found {len(given)} for {len(wanted)} axes")
    sides = [(0, 0)] * source.rank
    for i, axis in enumerate(wanted):
        sides[axis] = given[i], given[i + len(wanted)]
    shape = tuple(n + before + after for n, (before, after) in zip(source.shape, sides, strict=True))
    if any(extent < 1 for extent in shape):
        raise call.refuse(f"the pads {list(given)} leave nothing of {list(source.shape)}")
    name = translation.name(source)
    if mode == "constant":
        value = _padding_value(call, source)
        name = translation.emit("pad", name, padding=tuple(sides), border="constant", value=value)
        return Made(name, shape, source.data_type)
    for axis, (before, after) in enumerate(sides):
        n = source.shape[axis]
        if mode == "reflect" and max(before, after) >= max(n, 2):
            raise call.refuse(f"the pads {list(given)} reflect more than once", "pad by less than the extent")
        name = translation.taken(name, _around(np.arange(-before, n + after), n, mode), axis)
    return Made(name, shape, source.data_type)


def _around(at: Indices, extent: int, mode: str) -> Indices:
    """For each index, which may lie beyond the axis, the index of the element that padding puts there."""
    if mode == "edge" or extent == 1:
        return np.clip(at, 0, extent - 1)
    if mode == "wrap":
        return at % extent
    period = 2 * (extent - 1)
    return np.minimum(at % period, period - at % period)


def _padding_value(call: OnnxCall, source: Operand) -> Fraction:
    operand = call.optional(2)
    if operand is None:
        return Fraction(0)
    call.same_type(source, operand)
    values = call.constant(2, "the padding value")
    if values.size != 1 or not np.isfinite(values).all():
        raise call.refuse("the padding value must be a single finite number")
    return Fraction(values.ravel()[0].item())


@rule("Trilu")
def trilu(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Trilu: multiply by 1 inside of the triangle, and by 0 outside."""
    source, upper = call.operand(), call.flag("upper", True)
    if source.rank < 2:
        raise call.invalid("shape", f"the input must have at least two axes, found {list(source.shape)}")
    k = 0 if call.optional(1) is None else call.constant_integer(1, "k")
    return Made(triangle(translation, translation.name(source), upper, k), source.shape, source.data_type)
