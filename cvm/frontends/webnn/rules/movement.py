"""Operators that move elements: constant indices are resolved here, computed ones gathered by the program."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from cvm.frontends.webnn.operand import MLOperand, Node
from cvm.frontends.webnn.rules.registry import rule
from cvm.frontends.webnn.translation import Translation, refusal, unit
from cvm.graph import Operand

__all__: list[str] = []

Places = npt.NDArray[np.int64]


def _source(translation: Translation, node: Node) -> str:
    return translation.name(node.operands["input"])


@rule("reshape")
def reshape(translation: Translation, node: Node) -> str:
    """The same elements."""
    return translation.emit("reshape", {"input": _source(translation, node)}, node.outputs[0].shape)


@rule("concat")
def concat(translation: Translation, node: Node) -> str:
    """Side by side."""
    parts = tuple(translation.name(operand) for operand in node.operands.values())
    return translation.emit("concat", {"values": parts}, node.outputs[0].shape, axis=node.attributes["axis"])


@rule("expand")
def expand(translation: Translation, node: Node) -> str:
    """Repeated along axes of extent 1."""
    output = node.outputs[0]
    rank = max(output.rank, 1)
    name = translation.aligned(node.operands["input"], rank)
    before = (1,) * (rank - node.operands["input"].rank) + node.operands["input"].shape
    repeats = tuple(n // m for n, m in zip(output.shape or (1,), before, strict=True))
    return translation.emit("tile", {"input": name}, output.shape, repeats=repeats)


@rule("tile")
def tile(translation: Translation, node: Node) -> str:
    """The whole repeated."""
    repeats = node.attributes["repetitions"] or (1,)
    return translation.emit("tile", {"input": _source(translation, node)}, node.outputs[0].shape, repeats=repeats)


@rule("transpose")
def transpose(translation: Translation, node: Node) -> str:
    """The axes in another order."""
    axes = node.attributes["permutation"]
    return translation.emit("transpose", {"input": _source(translation, node)}, node.outputs[0].shape, axes=axes)


@rule("slice")
def slice_(translation: Translation, node: Node) -> str:
    """A window."""
    starts, sizes, strides = (node.attributes[name] for name in ("starts", "sizes", "strides"))
    end = tuple(start + size for start, size in zip(starts, sizes, strict=True))
    inputs = {"input": _source(translation, node)}
    axes = tuple(range(len(starts)))
    return translation.emit("slice", inputs, node.outputs[0].shape, axes=axes, begin=starts, end=end, stride=strides)


@rule("split")
def split(translation: Translation, node: Node) -> list[str]:
    """Parts along an axis."""
    shapes = [output.shape for output in node.outputs]
    inputs = {"value": _source(translation, node)}
    axis, sizes = node.attributes["axis"], node.attributes["sizes"]
    return translation.emit_many("split", inputs, shapes, axis=axis, ratios=sizes)


@rule("pad")
def pad(translation: Translation, node: Node) -> str:
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
def reverse(translation: Translation, node: Node) -> str:
    """The opposite order along axes."""
    name, shape = _source(translation, node), node.outputs[0].shape
    for axis in node.attributes["axes"]:
        name = _gathered(translation, name, np.arange(shape[axis])[::-1], axis, shape)
    return name


@rule("triangular")
def triangular(translation: Translation, node: Node) -> str:
    """Times one inside of the triangle, times zero outside."""
    shape = node.outputs[0].shape
    ones = np.ones(shape[-2:], np.int64)
    cut = np.triu if node.attributes["upper"] else np.tril
    k = min(max(node.attributes["diagonal"], -max(shape)), max(shape))
    mask = translation.constant(cut(ones, k), (1,) * (len(shape) - 2) + shape[-2:])
    return translation.emit("mul", {"x": _source(translation, node), "y": mask}, shape)


def _gathered(translation: Translation, name: str, at: Places, axis: int, shape: tuple[int, ...]) -> str:
    """The elements at constant places along an axis."""
    indices = translation.constant(np.ascontiguousarray(at, np.int64), at.shape)
    return translation.emit("gather", {"input": name, "indices": indices}, shape, axis=axis)


@rule("gather")
def gather(translation: Translation, node: Node) -> str:
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
        places = _from_the_start(translation, indices, extent)
        name = translation.emit("gather", {"input": source, "indices": places}, shape, axis=axis)
    return name if indices.rank else translation.emit("reshape", {"input": name}, output.shape)


def _from_the_start(translation: Translation, indices: MLOperand, extent: int) -> str:
    """Computed indices: cut to those that there are, a negative one plus the extent."""
    shape, name = indices.shape, translation.name(indices)
    limits: dict[str, Operand] = {"x": name, "a": Fraction(-extent), "b": Fraction(extent - 1)}
    cut = translation.emit("clamp", limits, shape, quantizer=unit(-extent, extent - 1 or 1))
    negative = translation.emit("lt", {"x": cut, "y": Fraction(0)}, shape, dtype="logical")
    turn = translation.emit("mul", {"x": negative, "y": Fraction(extent)}, shape)
    return translation.emit("add", {"x": cut, "y": turn}, shape)


# Constant places in the flattened tensor


def _constant_indices(node: Node) -> Places:
    """The indices of a call as they are. Raises `NotSupportedError` where they are computed."""
    indices = node.operands["indices"]
    if indices.values is None:
        message = f"{node.op} needs constant indices, but {indices.name!r} is computed"
        raise refusal(node.outputs[0], message, "use gather, whose indices may be computed")
    return np.asarray(indices.values.astype(np.int64))


def _in_range(node: Node, at: Places, extent: int) -> Places:
    """Indices from the start: what is read out of range is clamped, what is written there refused."""
    if node.op.startswith("gather"):
        at = np.clip(at, -extent, extent - 1)
    if at.min() < -extent or at.max() >= extent:
        raise refusal(node.outputs[0], f"an index is out of [{-extent}, {extent - 1}]", "correct the constant")
    return np.where(at < 0, at + extent, at)


def _numbered(shape: tuple[int, ...]) -> Places:
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


def _elements(node: Node) -> Places:
    """Per position of the indices, the place in the flattened input."""
    at, axis, shape = _constant_indices(node), node.attributes["axis"], node.operands["input"].shape
    return np.take_along_axis(_numbered(shape), _in_range(node, at, shape[axis]), axis)


def _slices(node: Node) -> Places:
    """Per coordinate, the places of its slice in the flattened input."""
    at, shape = _constant_indices(node), node.operands["input"].shape
    columns = [_in_range(node, at[..., i], shape[i]) for i in range(at.shape[-1])]
    return np.asarray(_numbered(shape)[tuple(columns)])


def _picked(translation: Translation, name: str, count: int, at: Places, node: Node) -> str:
    """Elements at places of a tensor of ``count``."""
    flat = translation.emit("reshape", {"input": name}, (count,))
    return _gathered(translation, flat, at.reshape(node.outputs[0].shape or (1,)), 0, node.outputs[0].shape)


@rule("gatherElements", "gatherND")
def gather_places(translation: Translation, node: Node) -> str:
    """Elements or slices at constant places."""
    at = _elements(node) if node.op == "gatherElements" else _slices(node)
    count = math.prod(node.operands["input"].shape)
    return _picked(translation, _source(translation, node), count, at, node)


@rule("scatterElements", "scatterND")
def scatter_places(translation: Translation, node: Node) -> str:
    """Input and updates side by side, and of each place the last that was written, in row-major order."""
    shape = node.operands["input"].shape
    written = (_elements(node) if node.op == "scatterElements" else _slices(node)).ravel()
    count = math.prod(shape)
    at = np.arange(count)
    for number, place in enumerate(written.tolist()):
        at[place] = count + number
    parts = [
        translation.emit("reshape", {"input": translation.name(operand)}, (math.prod(operand.shape),))
        for operand in (node.operands["input"], node.operands["updates"])
    ]
    both = translation.emit("concat", {"values": tuple(parts)}, (count + written.size,), axis=0)
    return _gathered(translation, both, at.reshape(shape), 0, shape)
