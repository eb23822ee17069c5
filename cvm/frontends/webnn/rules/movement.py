"""Operators that move elements: constant indices are resolved here, computed ones by the program."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from cvm.frontends.webnn.operand import WebnnNode
from cvm.frontends.webnn.rules.registry import rule
from cvm.frontends.webnn.translation import WebnnTranslation, refusal, unit
from cvm.graph import Operand

__all__: list[str] = []

Places = npt.NDArray[np.int64]


def _source(translation: WebnnTranslation, node: WebnnNode) -> str:
    return translation.name(node.operands["input"])


@rule("reshape")
def reshape(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The same elements."""
    return translation.emit("reshape", {"input": _source(translation, node)}, node.outputs[0].shape)


@rule("concat")
def concat(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Side by side."""
    parts = tuple(translation.name(operand) for operand in node.operands.values())
    return translation.emit("concat", {"values": parts}, node.outputs[0].shape, axis=node.attributes["axis"])


@rule("expand")
def expand(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Repeated along axes of extent 1."""
    output = node.outputs[0]
    rank = max(output.rank, 1)
    name = translation.aligned(node.operands["input"], rank)
    before = (1,) * (rank - node.operands["input"].rank) + node.operands["input"].shape
    repeats = tuple(n // m for n, m in zip(output.shape or (1,), before, strict=True))
    return translation.emit("tile", {"input": name}, output.shape, repeats=repeats)


@rule("tile")
def tile(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The whole repeated."""
    repeats = node.attributes["repetitions"] or (1,)
    return translation.emit("tile", {"input": _source(translation, node)}, node.outputs[0].shape, repeats=repeats)


@rule("transpose")
def transpose(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The axes in another order."""
    axes = node.attributes["permutation"]
    return translation.emit("transpose", {"input": _source(translation, node)}, node.outputs[0].shape, axes=axes)


@rule("slice")
def slice_(translation: WebnnTranslation, node: WebnnNode) -> str:
    """A window."""
    starts, sizes, strides = (node.attributes[name] for name in ("starts", "sizes", "strides"))
    end = tuple(start + size for start, size in zip(starts, sizes, strict=True))
    inputs = {"input": _source(translation, node)}
    axes = tuple(range(len(starts)))
    return translation.emit("slice", inputs, node.outputs[0].shape, axes=axes, begin=starts, end=end, stride=strides)


@rule("split")
def split(translation: WebnnTranslation, node: WebnnNode) -> list[str]:
    """Parts along an axis."""
    shapes = [output.shape for output in node.outputs]
    inputs = {"value": _source(translation, node)}
    axis, sizes = node.attributes["axis"], node.attributes["sizes"]
    return translation.emit_many("split", inputs, shapes, axis=axis, ratios=sizes)


@rule("pad")
def pad(translation: WebnnTranslation, node: WebnnNode) -> str:
    """A value, the edge or the reflection around."""
    attributes = node.attributes
    border = {"constant": "constant", "edge": "replicate", "reflection": "reflect"}[attributes["mode"]]
    padding = tuple(zip(attributes["beginning"], attributes["ending"], strict=True))
    value = attributes["value"]
    if border == "constant" and not np.isfinite(value):
        raise refusal(node.outputs[0], f"padding with {value} is no number", "pad with a finite value")
    inputs = {"input": _source(translation, node)}
    value = Fraction(value) if border == "constant" else Fraction(0)
    return translation.emit("pad", inputs, node.outputs[0].shape, padding=padding, border=border, value=value)


@rule("reverse")
def reverse(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The opposite order along axes."""
    name, shape = _source(translation, node), node.outputs[0].shape
    for axis in node.attributes["axes"]:
        name = _gathered(translation, name, np.arange(shape[axis])[::-1], axis, shape)
    return name


@rule("triangular")
def triangular(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Times one inside of the triangle, times zero outside."""
    shape = node.outputs[0].shape
    ones = np.ones(shape[-2:], np.int64)
    cut = np.triu if node.attributes["upper"] else np.tril
    k = min(max(node.attributes["diagonal"], -max(shape)), max(shape))
    mask = translation.constant(cut(ones, k), (1,) * (len(shape) - 2) + shape[-2:])
    return translation.emit("mul", {"x": _source(translation, node), "y": mask}, shape)


def _gathered(translation: WebnnTranslation, name: str, at: Places, axis: int, shape: tuple[int, ...]) -> str:
    """The elements at constant places along an axis."""
    indices = translation.constant(np.ascontiguousarray(at, np.int64), at.shape)
    return translation.emit("gather", {"input": name, "indices": indices}, shape, axis=axis)


@rule("gather")
def gather(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The slices at indices: from -n they count from the end, and what is out of range is clamped."""
    indices, output = node.operands["indices"], node.outputs[0]
    axis, source = node.attributes["axis"], _source(translation, node)
    extent = node.operands["input"].shape[axis]
    shape = (*output.shape[:axis], *(indices.shape or (1,)), *output.shape[axis + indices.rank :])
    if indices.values is not None:
        at = np.clip(indices.values.astype(np.int64), -extent, extent - 1)
        name = _gathered(
            translation, source, np.where(at < 0, at + extent, at).reshape(indices.shape or (1,)), axis, shape
        )
    else:
        places = _from_the_start(translation, translation.name(indices), indices.shape, extent)
        name = translation.emit("gather", {"input": source, "indices": places}, shape, axis=axis)
    return name if indices.rank else translation.emit("reshape", {"input": name}, output.shape)


def _from_the_start(translation: WebnnTranslation, name: str, shape: tuple[int, ...], extent: int) -> str:
    """Computed indices: cut to those that there are, a negative one plus the extent."""
    limits: dict[str, Operand] = {"x": name, "a": Fraction(-extent), "b": Fraction(extent - 1)}
    cut = translation.emit("clamp", limits, shape, quantizer=unit(-extent, extent - 1 or 1))
    negative = translation.emit("lt", {"x": cut, "y": Fraction(0)}, shape, dtype="logical")
    turn = translation.emit("mul", {"x": negative, "y": Fraction(extent)}, shape)
    return translation.emit("add", {"x": cut, "y": turn}, shape)


# Places in the flattened tensor

_MOST_COMPARISONS = 2**22
"""Places times computed indices of a scatter."""


def _in_range(node: WebnnNode, at: Places, extent: int) -> Places:
    """Constant indices from the start: what is read out of range is clamped, what is written there refused."""
    if node.op.startswith("gather"):
        at = np.clip(at, -extent, extent - 1)
    if at.min() < -extent or at.max() >= extent:
        raise refusal(node.outputs[0], f"an index is out of [{-extent}, {extent - 1}]", "correct the constant")
    return np.where(at < 0, at + extent, at)


def _numbered(shape: tuple[int, ...]) -> Places:
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


def _constant_places(node: WebnnNode, at: Places) -> Places:
    """Per position of the indices, or of the slices at coordinates, the place in the flattened input."""
    shape = node.operands["input"].shape
    if node.op.endswith("Elements"):
        axis = node.attributes["axis"]
        return np.take_along_axis(_numbered(shape), _in_range(node, at, shape[axis]), axis)
    columns = [_in_range(node, at[..., i], shape[i]) for i in range(at.shape[-1])]
    return np.asarray(_numbered(shape)[tuple(columns)])


def _computed_places(translation: WebnnTranslation, node: WebnnNode) -> tuple[str, tuple[int, ...]]:
    """As `_constant_places`, by the program: the sum of indices from the start times the extents after them."""
    indices, shape = node.operands["indices"], node.operands["input"].shape
    name, strides = translation.name(indices), [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    if node.op.endswith("Elements"):
        axis = node.attributes["axis"]
        beside = np.take(_numbered(shape), [0], axis)  # the places of index 0
        extents = whole = indices.shape
        terms = [(_from_the_start(translation, name, extents, shape[axis]), strides[axis])]
    else:
        count, extents = indices.shape[-1], (*indices.shape[:-1], 1)
        terms = []
        for i in range(count):
            column = _gathered(translation, name, np.array([i]), len(extents) - 1, extents)
            terms.append((_from_the_start(translation, column, extents, shape[i]), strides[i]))
        rest = math.prod(shape[count:])
        beside, whole = np.arange(rest).reshape((1,) * (len(extents) - 1) + (rest,)), (*extents[:-1], rest)
    places = translation.constant(beside, beside.shape)
    for term, stride in terms:
        scaled = translation.emit("mul", {"x": term, "y": Fraction(stride)}, extents)
        places = translation.emit("add", {"x": scaled, "y": places}, whole)
    return places, whole


@rule("gatherElements", "gatherND")
def gather_places(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Elements or slices at places of the flattened input."""
    source, output = node.operands["input"], node.outputs[0]
    flat = translation.emit("reshape", {"input": _source(translation, node)}, (math.prod(source.shape),))
    indices = node.operands["indices"].values
    if indices is not None:
        at = _constant_places(node, indices.astype(np.int64))
        return _gathered(translation, flat, at.reshape(output.shape or (1,)), 0, output.shape)
    places, shape = _computed_places(translation, node)
    name = translation.emit("gather", {"input": flat, "indices": places}, shape, axis=0)
    return translation.emit("reshape", {"input": name}, output.shape)


@rule("scatterElements", "scatterND")
def scatter_places(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Input and updates side by side, and of each place the last that was written, in row-major order."""
    shape = node.operands["input"].shape
    count, written = math.prod(shape), math.prod(node.operands["updates"].shape)
    parts = [
        translation.emit("reshape", {"input": translation.name(operand)}, (math.prod(operand.shape),))
        for operand in (node.operands["input"], node.operands["updates"])
    ]
    both = translation.emit("concat", {"values": tuple(parts)}, (count + written,), axis=0)
    indices = node.operands["indices"].values
    if indices is not None:
        at = np.arange(count)
        for number, place in enumerate(_constant_places(node, indices.astype(np.int64)).ravel().tolist()):
            at[place] = count + number
        return _gathered(translation, both, at.reshape(shape), 0, shape)
    last = _last_written(translation, node, count, written)
    name = translation.emit("gather", {"input": both, "indices": last}, (1, count), axis=0)
    return translation.emit("reshape", {"input": name}, shape)


def _last_written(translation: WebnnTranslation, node: WebnnNode, count: int, written: int) -> str:
    """Per place p the greatest of p and of count + k for the updates number k that are written there."""
    if count * written > _MOST_COMPARISONS:
        message = f"{written} updates at computed places of {count} need more than {_MOST_COMPARISONS} comparisons"
        raise refusal(node.outputs[0], message, "use constant indices, or smaller parts")
    places, _ = _computed_places(translation, node)
    column = translation.emit("reshape", {"input": places}, (written, 1))
    own = translation.constant(np.arange(count).reshape(1, count), (1, count))
    there = translation.emit("eq", {"x": column, "y": own}, (written, count), dtype="logical")
    numbers = translation.constant(count + np.arange(written).reshape(written, 1), (written, 1))
    grid = unit(0, count + written)
    numbered = translation.emit("mul", {"x": there, "y": numbers}, (written, count), quantizer=grid)
    last = translation.emit("max_reduce", {"input": numbered}, (1, count), axes=(0,))
    return translation.emit("max", {"x": last, "y": own}, (1, count), quantizer=grid)
