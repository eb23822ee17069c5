"""Operators that move elements: constant indices are resolved at compile time, computed indices by the program."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from cvm.frontends.common.data_types import unit
from cvm.frontends.common.decompositions.movement import (
    Indices,
    clipped_indices,
    computed_indices,
    element_numbers,
    flattened,
    gathered,
    last_written,
    tiled,
    triangle,
)
from cvm.frontends.webnn.operand import WebnnNode
from cvm.frontends.webnn.rules.registry import rule
from cvm.frontends.webnn.translation import WebnnTranslation, refusal

__all__: list[str] = []


def _source(translation: WebnnTranslation, node: WebnnNode) -> str:
    return translation.name(node.operands["input"])


@rule("reshape")
def reshape(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The same elements in row-major order under another shape."""
    return translation.reshape(_source(translation, node), node.outputs[0].shape)


@rule("concat")
def concat(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Join the operands along an axis."""
    parts = tuple(translation.name(operand) for operand in node.operands.values())
    return translation.emit("concat", parts, axis=node.attributes["axis"])


@rule("expand")
def expand(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Repeat the operand along its axes of extent 1."""
    output = node.outputs[0]
    return tiled(translation, translation.aligned_operand(node.operands["input"], output.rank), output.shape)


@rule("tile")
def tile(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Repeat the whole operand along each axis."""
    repeats = node.attributes["repetitions"] or (1,)
    return translation.emit("tile", _source(translation, node), repeats=repeats)


@rule("transpose")
def transpose(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Permute the axes."""
    axes = node.attributes["permutation"]
    return translation.emit("transpose", _source(translation, node), axes=axes)


@rule("slice")
def slice_(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Every strides-th element of a window of the operand."""
    starts, sizes, strides = (node.attributes[name] for name in ("starts", "sizes", "strides"))
    end = tuple(start + size for start, size in zip(starts, sizes, strict=True))
    axes = tuple(range(len(starts)))
    return translation.emit("slice", _source(translation, node), axes=axes, begin=starts, end=end, stride=strides)


@rule("split")
def split(translation: WebnnTranslation, node: WebnnNode) -> list[str]:
    """Split the operand into parts along an axis."""
    axis, sizes = node.attributes["axis"], node.attributes["sizes"]
    return translation.emit_many("split", _source(translation, node), axis=axis, ratios=sizes)


@rule("pad")
def pad(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Pad the operand with a value, the edge or the reflection."""
    attributes = node.attributes
    border = {"constant": "constant", "edge": "replicate", "reflection": "reflect"}[attributes["mode"]]
    padding = tuple(zip(attributes["beginning"], attributes["ending"], strict=True))
    value = attributes["value"]
    if border == "constant" and not np.isfinite(value):
        raise refusal(node.outputs[0], f"padding with {value} is no number", "pad with a finite value")
    value = Fraction(value) if border == "constant" else Fraction(0)
    return translation.emit("pad", _source(translation, node), padding=padding, border=border, value=value)


@rule("reverse")
def reverse(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Flip the order of elements along axes."""
    name, shape = _source(translation, node), node.outputs[0].shape
    for axis in node.attributes["axes"]:
        name = translation.taken(name, np.arange(shape[axis])[::-1], axis)
    return name


@rule("triangular")
def triangular(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Multiply with a constant that is 1 inside of the triangle and 0 outside."""
    attributes = node.attributes
    return triangle(translation, _source(translation, node), attributes["upper"], attributes["diagonal"])


def _most(extent: int) -> int:
    """The greatest code of the quantiser of computed indices, which must exceed the least code."""
    return extent - 1 or 1


@rule("gather")
def gather(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The slices at indices of an axis; -n .. -1 count from the end, and indices out of range are clipped."""
    indices, axis = node.operands["indices"], node.attributes["axis"]
    at = translation.name(indices) if indices.values is None else indices.values
    most = _most(node.operands["input"].shape[axis])
    name = gathered(translation, _source(translation, node), at, axis, most)
    return name if indices.rank else translation.reshape(name, node.outputs[0].shape)


# Elements by their flat indices

_MOST_COMPARISONS = 2**22
"""The most comparisons of a scatter with computed indices: elements times updates."""


def _in_range(node: WebnnNode, at: Indices, extent: int) -> Indices:
    """Constant indices as indices from the start; out of range, gathers clip them and scatters raise
    `NotSupportedError`.
    """
    if not node.op.startswith("gather") and (at.min() < -extent or at.max() >= extent):
        raise refusal(node.outputs[0], f"an index is out of [{-extent}, {extent - 1}]", "correct the constant")
    return clipped_indices(at, extent)


def _constant_numbers(node: WebnnNode, at: Indices) -> Indices:
    """The flat input index for each element of the indices, or for each element of the slices at coordinates."""
    shape = node.operands["input"].shape
    if node.op.endswith("Elements"):
        axis = node.attributes["axis"]
        return np.take_along_axis(element_numbers(shape), _in_range(node, at, shape[axis]), axis)
    columns = [_in_range(node, at[..., i], shape[i]) for i in range(at.shape[-1])]
    return np.asarray(element_numbers(shape)[tuple(columns)])


def _computed_numbers(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The flat indices of `_constant_numbers` for computed indices: the graph sums index * stride over the axes."""
    indices, shape = node.operands["indices"], node.operands["input"].shape
    name, strides = translation.name(indices), [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    if node.op.endswith("Elements"):
        axis = node.attributes["axis"]
        beside = np.take(element_numbers(shape), [0], axis)  # the flat indices where the computed index is 0
        terms = [(computed_indices(translation, name, shape[axis], _most(shape[axis])), strides[axis])]
    else:
        count, last = indices.shape[-1], indices.rank - 1
        terms = []
        for i in range(count):
            column = translation.taken(name, np.array([i]), last)
            terms.append((computed_indices(translation, column, shape[i], _most(shape[i])), strides[i]))
        rest = math.prod(shape[count:])
        beside = np.arange(rest).reshape((1,) * last + (rest,))
    numbers = translation.constant(beside, beside.shape)
    for term, stride in terms:
        numbers = translation.emit("add", translation.emit("mul", term, Fraction(stride)), numbers)
    return numbers


@rule("gatherElements", "gatherND")
def gather_elements(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Gather elements or slices of the flattened input at their flat indices."""
    output = node.outputs[0]
    flat = flattened(translation, _source(translation, node))
    indices = node.operands["indices"].values
    if indices is not None:
        at = _constant_numbers(node, indices.astype(np.int64))
        return translation.taken(flat, at.reshape(output.shape or (1,)), 0)
    name = translation.emit("gather", flat, _computed_numbers(translation, node), axis=0)
    return translation.reshape(name, output.shape)


@rule("scatterElements", "scatterND")
def scatter(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Concatenate input and updates, and take for each element the last value written, in row-major order."""
    shape = node.operands["input"].shape
    count, written = math.prod(shape), math.prod(node.operands["updates"].shape)
    parts = tuple(flattened(translation, translation.name(node.operands[name])) for name in ("input", "updates"))
    both = translation.emit("concat", parts, axis=0)
    indices = node.operands["indices"].values
    if indices is not None:
        found = last_written(count, _constant_numbers(node, indices.astype(np.int64)))
        return translation.taken(both, found.reshape(shape), 0)
    last = _last_written(translation, node, count, written)
    return translation.reshape(translation.emit("gather", both, last, axis=0), shape)


def _last_written(translation: WebnnTranslation, node: WebnnNode, count: int, written: int) -> str:
    """For each element p, the maximum of p and of count + k over all updates k that write to p."""
    if count * written > _MOST_COMPARISONS:
        message = f"{written} updates at computed indices of {count} elements need more than {_MOST_COMPARISONS}"
        raise refusal(node.outputs[0], f"{message} comparisons", "use constant indices, or smaller parts")
    column = translation.reshape(_computed_numbers(translation, node), (written, 1))
    own = translation.constant(np.arange(count).reshape(1, count), (1, count))
    there = translation.emit("eq", column, own)
    numbers = translation.constant(count + np.arange(written).reshape(written, 1), (written, 1))
    grid = unit(0, count + written)
    last = translation.emit("max_reduce", translation.emit("mul", there, numbers, quantizer=grid), axes=(0,))
    return translation.emit("max", last, own, quantizer=grid)
