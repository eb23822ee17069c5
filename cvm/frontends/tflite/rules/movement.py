"""Operators that only move elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from cvm.frontends.common.data_types import EVERYTHING
from cvm.frontends.common.decompositions.movement import Indices, gathered, tiled
from cvm.frontends.common.shapes import broadcast
from cvm.frontends.tflite.call import Made, Operand, TfliteCall
from cvm.frontends.tflite.model import Shape
from cvm.frontends.tflite.rules.registry import rule
from cvm.frontends.tflite.slicing import strided
from cvm.frontends.tflite.translation import TfliteTranslation
from cvm.limits import INT32_MAX

__all__ = ["joined"]


def _reshaped(translation: TfliteTranslation, source: Operand, shape: Sequence[int]) -> Made:
    name = translation.name(source)
    return Made(translation.reshape(name, shape, dtype="logical" if source.data_type == "bool" else None))


# Operators that keep the elements in order


@rule("RESHAPE")
def reshape(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The same elements in row-major order under another shape; -1 stands for the extent that the volume
    leaves.
    """
    source, given = call.operand(), call.optional(1)
    if given is not None and given.values is not None:
        wish = call.integers(1, "the shape")
    elif given is None:
        wish = call.list_of_integers("NewShape")
    else:
        wish = call.result.shape
    count, known = math.prod(source.shape), math.prod(extent for extent in wish if extent != -1)
    shape = tuple(count // max(known, 1) if extent == -1 else extent for extent in wish)
    if list(wish).count(-1) > 1 or any(extent < 1 for extent in shape) or math.prod(shape) != count:
        raise call.invalid("shape", f"{list(source.shape)} cannot become {list(wish)}")
    return _reshaped(translation, source, shape)


@rule("SQUEEZE")
def squeeze(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Remove axes of extent 1, the named ones or all."""
    source = call.operand()
    named = call.axes(call.list_of_integers("SqueezeDims"), source.rank)
    axes = named or tuple(axis for axis, extent in enumerate(source.shape) if extent == 1)
    if any(source.shape[axis] != 1 for axis in axes):
        raise call.invalid("shape", f"axes {list(axes)} of {list(source.shape)} must all have the extent 1")
    return _reshaped(translation, source, [n for axis, n in enumerate(source.shape) if axis not in axes])


@rule("EXPAND_DIMS")
def expand_dims(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Insert an axis of extent 1."""
    source = call.operand()
    value = call.integer_operand(1, "the axis")
    axis = call.axis(value, source.rank + 1)
    return _reshaped(translation, source, (*source.shape[:axis], 1, *source.shape[axis:]))


@rule("TRANSPOSE")
def transpose(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Permute the axes."""
    source, order = call.operand(), call.integers(1, "the order")
    if sorted(order) != list(range(source.rank)):
        raise call.invalid("axis", f"{list(order)} is not an order of {source.rank} axes")
    return Made(translation.transposed(translation.name(source), order))


# Joining and splitting


@rule("CONCATENATION")
def concatenation(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Join parts along an axis, then apply a fused activation."""
    made = joined(translation, call, lambda part, name: name)
    return Made(translation.activated(call, made.name), made.planar)


def joined(translation: TfliteTranslation, call: TfliteCall, converted: Callable[[Operand, str], str]) -> Made:
    """The operands joined along an axis; ``converted`` maps each operand and its tensor's name to
    the tensor to join.
    """
    parts = [part for part in call.every() if 0 not in part.shape]
    rank = parts[0].rank if parts else 0
    axis = call.axis(call.integer("Axis"), rank)
    for part in parts:
        if [n for i, n in enumerate(part.shape) if i != axis] != [n for i, n in enumerate(parts[0].shape) if i != axis]:
            raise call.invalid("shape", f"{list(part.shape)} and {list(parts[0].shape)} differ beyond axis {axis}")
    planar = rank >= 3 and any(translation.is_planar(part) for part in parts)
    names = tuple(
        converted(part, translation.planar(part) if planar else translation.name(part)) for part in parts
    )  # fmt: skip
    if planar and axis:
        axis = 1 if axis == rank - 1 else axis + 1
    return Made(names[0] if len(names) == 1 else translation.emit("concat", names, axis=axis), planar)


@rule("PACK")
def pack(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Join parts of one shape along a new axis."""
    parts = call.every()
    if any(part.shape != parts[0].shape for part in parts):
        raise call.invalid("shape", "the parts differ in shape")
    axis = call.axis(call.integer("Axis"), parts[0].rank + 1)
    shape = (*parts[0].shape[:axis], 1, *parts[0].shape[axis:])
    names = tuple(translation.reshape(translation.name(part), shape) for part in parts)
    return Made(names[0] if len(names) == 1 else translation.emit("concat", names, axis=axis))


@rule("UNPACK")
def unpack(translation: TfliteTranslation, call: TfliteCall) -> list[Made]:
    """One tensor per index of an axis, each without that axis."""
    source = call.operand()
    axis = call.axis(call.integer("Axis"), source.rank)
    count = source.shape[axis]
    if count != len(call.results):
        raise call.invalid("outputs", f"axis {axis} of {list(source.shape)} does not give {len(call.results)} results")
    shape = [extent for i, extent in enumerate(source.shape) if i != axis]
    name = translation.name(source)
    parts = [name] if count == 1 else translation.emit_many("split", name, axis=axis, ratios=(1,) * count)
    return [Made(translation.reshape(part, shape)) for part in parts]


@rule("SPLIT", "SPLIT_V")
def split(translation: TfliteTranslation, call: TfliteCall) -> list[Made]:
    """Parts along an axis, of equal or of given extents."""
    equal = call.operator.op == "SPLIT"
    source = call.operand(1 if equal else 0)
    value = call.integer_operand(0 if equal else 2, "the axis")
    axis, count = call.axis(value, source.rank), len(call.results)
    extent = source.shape[axis]
    sizes = (extent // max(count, 1),) * count if equal else call.integers(1, "the sizes")
    if sizes.count(-1) == 1:
        sizes = tuple(extent - sum(sizes) - 1 if size == -1 else size for size in sizes)
    if len(sizes) != count or sum(sizes) != extent or any(size < 1 for size in sizes):
        raise call.invalid("shape", f"parts of {list(sizes)} do not divide axis {axis} of {list(source.shape)}")
    planar = translation.is_planar(source) and axis in (0, source.rank - 1)
    name = translation.planar(source) if planar else translation.name(source)
    axis = min(axis, 1) if planar else axis
    parts = [name] if count == 1 else translation.emit_many("split", name, axis=axis, ratios=sizes)
    return [Made(part, planar) for part in parts]


@rule("TILE", "BROADCAST_TO")
def tile(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Repeat the whole tensor along axes."""
    source, wish = call.operand(), call.integers(1, "the repeats or the shape")
    rank = max(source.rank, len(wish), 1)
    before = (1,) * (rank - source.rank) + source.shape
    shape: Shape | None
    if call.operator.op == "TILE":
        shape = tuple(n * m for n, m in zip(before, wish, strict=False)) if len(wish) == source.rank else None
    else:
        shape = broadcast(source.shape, wish)
    if shape is None or any(extent < 1 for extent in shape):
        raise call.invalid("shape", f"{list(source.shape)} cannot be repeated by {list(wish)}")
    name = translation.aligned(translation.name(source), rank)
    return Made(name if before == shape else tiled(translation, name, shape))


# Selection of elements


@rule("SLICE")
def slice_(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """A range of indices along each axis; a size of -1 means all the rest."""
    source, begins, sizes = call.operand(), call.integers(1, "the begin"), call.integers(2, "the size")
    if not len(begins) == len(sizes) == source.rank:
        raise call.invalid("shape", f"{len(begins)} begins and {len(sizes)} sizes for {list(source.shape)}")
    indices = []
    for begin, size, extent in zip(begins, sizes, source.shape, strict=True):
        end = extent if size == -1 else begin + size
        if not 0 <= begin < end <= extent:
            raise call.invalid("shape", f"{size} items from {begin} on are not in an axis of {extent}")
        indices.append(np.arange(begin, end, dtype=np.int64))
    return Made(_taken(translation, source, indices))


@rule("STRIDED_SLICE")
def strided_slice(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Every n-th element of a range along each axis."""
    source = call.operand()
    indices, dropped = strided(call, source.shape)
    name = _taken(translation, source, indices)
    if dropped:
        name = translation.reshape(name, [len(at) for axis, at in enumerate(indices) if axis not in dropped])
    return Made(name)


@rule("REVERSE_V2")
def reverse(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Flip the order of elements along axes."""
    source = call.operand()
    axes = call.axes(call.integers(1, "the axes"), source.rank)
    indices = [np.arange(extent, dtype=np.int64) for extent in source.shape]
    return Made(_taken(translation, source, [at[::-1] if axis in axes else at for axis, at in enumerate(indices)]))


def _taken(translation: TfliteTranslation, source: Operand, indices: Sequence[Indices]) -> str:
    """The elements at indices of each axis; no operation is emitted for an axis that is taken whole."""
    name = translation.name(source)
    for axis, (at, extent) in enumerate(zip(indices, source.shape, strict=True)):
        if at.size != extent or (at != np.arange(extent)).any():
            name = translation.taken(name, at, axis)
    return name


@rule("GATHER")
def gather(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The slices at the given indices of an axis."""
    source, at = call.operand(0), call.operand(1)
    if call.integer("BatchDims"):
        raise call.refuse("separate indices for each index of leading axes are not supported", "use BatchDims = 0")
    axis = call.axis(call.integer("Axis"), source.rank)
    extent = source.shape[axis]
    if at.values is not None:
        if at.values.size and not 0 <= int(at.values.min()) <= int(at.values.max()) < extent:
            raise call.invalid("indices", f"an index is not in 0..{extent - 1}")
        indices = np.asarray(at.values, np.int64).reshape(at.shape or (1,))
        name = translation.taken(translation.name(source), indices, axis)
    else:
        name = gathered(translation, translation.name(source), translation.name(at), axis, max(extent - 1, 1))
    shape = (*source.shape[:axis], *at.shape, *source.shape[axis + 1 :])
    return Made(translation.reshape(name, shape) if translation.shape(name) != (shape or (1,)) else name)


@rule("GATHER_ND")
def gather_nd(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The slices at index vectors; each vector becomes a flat index into the flattened leading axes."""
    source, at = call.operand(0), call.operand(1)
    depth = at.shape[-1] if at.rank else 0
    if not 1 <= depth <= source.rank:
        raise call.invalid("shape", f"vectors of {depth} indices do not fit {list(source.shape)}")
    leading, rest = source.shape[:depth], source.shape[depth:]
    name = translation.reshape(translation.name(source), (math.prod(leading), *rest))
    steps = np.array([math.prod(leading[i + 1 :]) for i in range(depth)], np.int64)
    if at.values is not None:
        if (at.values < 0).any() or (at.values >= np.array(leading)).any():
            raise call.invalid("indices", f"an index is not in the axes of {list(leading)}")
        numbers = np.asarray((at.values.astype(np.int64) * steps).sum(-1))
        name = translation.taken(name, numbers.reshape(at.shape[:-1] or (1,)), 0)
    else:
        factors = translation.constant(steps, (1,) * (at.rank - 1) + (depth,))
        weighted = translation.emit("mul", translation.name(at), factors)
        number = translation.emit("sum_reduce", weighted, axes=(at.rank - 1,), quantizer=EVERYTHING)
        number = translation.reshape(number, at.shape[:-1])
        name = gathered(translation, name, number, 0, math.prod(leading) - 1)
    shape = (*at.shape[:-1], *rest)
    return Made(translation.reshape(name, shape) if translation.shape(name) != (shape or (1,)) else name)


# Padding


@rule("PAD", "PADV2", "MIRROR_PAD")
def pad(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Pad with zeros, a value, or the reflected elements."""
    source, given = call.operand(), call.constant(1, "the paddings")
    if given.shape != (source.rank, 2) or (given < 0).any() or (given > INT32_MAX).any():
        raise call.invalid("shape", f"there must be two paddings of 0 or more for each axis of {list(source.shape)}")
    widths = [(int(before), int(after)) for before, after in given.tolist()]
    if call.operator.op == "MIRROR_PAD":
        return Made(_mirrored(translation, call, source, widths))
    value = Fraction(0)
    if call.operator.op == "PADV2":
        items, constant = call.constant(2, "the value"), call.operand(2)
        value = Fraction(items.ravel()[0].item())
        if constant.quantizer is not None:
            value = constant.quantizer.offset[0] + constant.quantizer.scale[0] * value
    planar = translation.is_planar(source)
    if planar:
        widths = [widths[0], widths[-1], *widths[1:-1]]
    name = translation.planar(source) if planar else translation.name(source)
    return Made(translation.emit("pad", name, padding=tuple(widths), border="constant", value=value), planar)


def _mirrored(
    translation: TfliteTranslation, call: TfliteCall, source: Operand, widths: Sequence[tuple[int, int]]
) -> str:
    """The tensor with reflected padding; mode SYMMETRIC (1) repeats the border element, REFLECT (0) does not."""
    symmetric = call.integer("Mode") == 1
    indices = []
    for (before, after), extent in zip(widths, source.shape, strict=True):
        if max(before, after) > (extent if symmetric else extent - 1):
            raise call.invalid("shape", f"paddings of {before} and {after} mirror an axis of {extent} more than once")
        at = np.arange(-before, extent + after, dtype=np.int64)
        beyond = 2 * extent - 1 if symmetric else 2 * extent - 2
        at = np.where(at < 0, -at - symmetric, at)
        indices.append(np.where(at >= extent, beyond - at, at))
    return _taken(translation, source, indices)


# Blocks of a plane


@rule("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def blocks(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Move blocks of a plane into channels, or the reverse."""
    source, size = call.operand(), call.integer("BlockSize")
    call.require_rank(source, 4)
    n, h, w, c = source.shape
    name = translation.name(source)
    if call.operator.op == "SPACE_TO_DEPTH":
        if size < 1 or h % size or w % size:
            raise call.invalid("shape", f"blocks of {size} x {size} do not divide {h} x {w}")
        name = translation.reshape(name, (n, h // size, size, w // size, size, c))
        shape = (n, h // size, w // size, size * size * c)
    else:
        if size < 1 or c % (size * size):
            raise call.invalid("shape", f"{c} channels do not divide into blocks of {size} x {size}")
        name = translation.reshape(name, (n, h, w, size, size, c // (size * size)))
        shape = (n, h * size, w * size, c // (size * size))
    return Made(translation.reshape(translation.transposed(name, (0, 1, 3, 2, 4, 5)), shape))


@rule("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def batches(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Pad and move spatial blocks into the batch, or the reverse and crop."""
    source, sizes = call.operand(), call.integers(1, "the block shape")
    edges = call.constant(2, "the paddings or crops")
    count = len(sizes)
    if source.rank < count + 1 or edges.shape != (count, 2) or any(size < 1 for size in sizes) or (edges < 0).any():
        raise call.invalid("shape", f"blocks of {list(sizes)} do not fit {list(source.shape)}")
    space, rest = source.shape[1 : 1 + count], source.shape[1 + count :]
    if call.operator.op == "SPACE_TO_BATCH_ND":
        return Made(_to_batches(translation, call, source, sizes, edges.tolist(), space, rest))
    images = source.shape[0] // math.prod(sizes)
    if images * math.prod(sizes) != source.shape[0]:
        raise call.invalid("shape", f"{source.shape[0]} images do not divide into blocks of {list(sizes)}")
    name = translation.reshape(translation.name(source), (*sizes, images, *space, *rest))
    order = [count]
    for axis in range(count):
        order += [count + 1 + axis, axis]
    order += range(2 * count + 1, 2 * count + 1 + len(rest))
    whole = [extent * size for extent, size in zip(space, sizes, strict=True)]
    name = translation.reshape(translation.transposed(name, order), (images, *whole, *rest))
    for axis, (extent, (before, after)) in enumerate(zip(whole, edges.tolist(), strict=True), 1):
        if before or after:
            if before + after >= extent:
                raise call.invalid("shape", f"crops of {before} and {after} leave nothing of {extent}")
            name = translation.taken(name, np.arange(before, extent - after, dtype=np.int64), axis)
    return Made(name)


def _to_batches(
    translation: TfliteTranslation,
    call: TfliteCall,
    source: Operand,
    sizes: Sequence[int],
    edges: Sequence[Sequence[int]],
    space: Shape,
    rest: Shape,
) -> str:
    count, images = len(sizes), source.shape[0]
    whole = [extent + sum(edge) for extent, edge in zip(space, edges, strict=True)]
    if any(extent % size for extent, size in zip(whole, sizes, strict=True)):
        raise call.invalid("shape", f"blocks of {list(sizes)} do not divide {whole}")
    name = translation.name(source)
    if any(map(any, edges)):
        widths = ((0, 0), *((int(b), int(a)) for b, a in edges), *((0, 0) for _ in rest))
        name = translation.emit("pad", name, padding=widths, border="constant", value=Fraction(0))
    split = [part for extent, size in zip(whole, sizes, strict=True) for part in (extent // size, size)]
    name = translation.reshape(name, (images, *split, *rest))
    order = [2 * axis + 2 for axis in range(count)] + [0] + [2 * axis + 1 for axis in range(count)]
    order += range(2 * count + 1, 2 * count + 1 + len(rest))
    outer = [extent // size for extent, size in zip(whole, sizes, strict=True)]
    return translation.reshape(translation.transposed(name, order), (images * math.prod(sizes), *outer, *rest))
