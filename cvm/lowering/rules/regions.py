"""Region-of-interest operations (NNEF 1.0.1 section 4.6).

A region selects one image by its batch index. Along one spatial axis after the other, it selects the positions of its
cells or samples: cells by masks of zeros and ones, samples by the integer weights of linear interpolation. Indices that
the document does not define are clipped: a batch index to those that exist, a pooled region to at least one position
inside the image. A cell starts at the region's own corner (the text's "c + i * s" has no corner).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from cvm.errors import Unsupported
from cvm.lowering.claims import TOO_FINE, exact
from cvm.lowering.context import Coded, Lowering, Result, rule
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import LinearForm, Shape, Term
from cvm.lowering.parts.operands import around_zero, codes_of, integers, scaled, sum_of
from cvm.lowering.parts.ratio import quotient_codes
from cvm.lowering.proofs.pieces import summands
from cvm.quantization import LinearQuantizer
from cvm.quantization.rationals import Rationals

__all__: list[str] = []

_ONE = Fraction(1)


class _Regions:
    """The operands of an operation on regions."""

    def __init__(self, lowering: Lowering, size: Sequence[int]) -> None:
        self.lowering, self.size = lowering, tuple(size)
        form = lowering.linear("input")
        if len(form.terms) != 1 or not (form.terms[0].factor.uniform and form.constant.uniform):
            raise lowering.needs_quantization(str(lowering.operation.inputs["input"]))
        self.form = around_zero(lowering, form)
        self.rois = lowering.linear("rois")
        self.count, self.dimensions = self.rois.shape[0], len(self.size)
        self.extents = self.form.shape[2:]

    def constant(self, items: Any, what: str) -> Value:
        return self.lowering.tensor_constant(np.asarray(items, dtype=object), what)

    def images(self) -> Value:
        """Emit the image that the batch index of each region selects, (N, C, ..); indices are clipped to the batch."""
        value = self.form.terms[0].value.broadcast(self.form.shape)
        index = integers(self.lowering, "batch_index")
        return value.take(index.reshape((self.count,)).clip(0, self.form.shape[0] - 1), 0)

    def coordinate(self, column: int) -> LinearForm:
        """The coordinate in a column of ``rois`` for every region, as a form of shape (N, 1, 1)."""
        lowering, rois = self.lowering, self.rois
        shape = (self.count, 1, 1)

        def column_of(items: Rationals) -> Rationals:
            if items.uniform:
                return Rationals.scalar(items.item(), 3)
            whole = items.broadcast(rois.shape)
            return whole.moved(lambda array: array[:, column : column + 1].reshape(shape))

        terms = []
        for term in rois.terms:
            value = term.value.broadcast(rois.shape)
            value = lowering.emit("slice", value, begin=(0, column), end=(self.count, column + 1), strides=(1, 1))
            terms.append(Term(value.reshape(shape), column_of(term.factor)))
        return LinearForm(shape, tuple(terms), column_of(rois.constant))

    def result(self, value: Value, factor: Fraction) -> LinearForm:
        """The form of a result whose integers, times ``factor``, have the scale of the input."""
        rank = self.form.rank
        return LinearForm(
            (self.count, self.form.shape[1], *self.size),
            (Term(value, self.form.terms[0].factor * Rationals.scalar(factor, rank)),),
            Rationals.scalar(self.form.constant.item(), rank),
        )


# Pooling


@rule(
    "max_roi_pool",
    claim=exact("cells by masks of zeros and ones"),
)
@rule(
    "avg_roi_pool",
    claim=exact("cells by masks of zeros and ones; sums over areas bit by bit"),
)
def roi_pool(lowering: Lowering) -> list[Result]:
    """Lower region pooling: the maximum or the mean of each cell of each region."""
    regions = _Regions(lowering, lowering.integers("output_size"))
    value = regions.images()
    average = lowering.operation.name == "avg_roi_pool"
    least = value.range.hull()[0]
    if not average:
        # Items are shifted to 1 and above, so that 0 can mark items outside of a cell.
        value = value - regions.constant([least - 1], "least")
    area: Value | None = None
    for axis in range(regions.dimensions):
        mask, extent = _cells(regions, axis)
        value = _weighted(regions, value, mask, axis) if average else _masked(regions, value, mask, axis)
        area = extent if area is None else area * extent
    assert area is not None
    if not average:
        value = value + regions.constant([least - 1], "least")
        return [regions.result(value, _ONE)]
    return [_divided(regions, value, area)]


def _cells(regions: _Regions, axis: int) -> tuple[Value, Value]:
    """Emit, per region, a 0/1 mask (N, cells, positions) of the cells along an axis, and the cell size (N, 1, 1)."""
    extent, cells = regions.extents[axis], regions.size[axis]
    lowering = regions.lowering
    first, last = (
        _codes(regions, regions.coordinate(axis + side * regions.dimensions), _ONE, (side, extent - 1 + side), what)
        for side, what in enumerate(("start", "end"))
    )
    length = (last - first).clip(1, extent)
    lengths = range(extent + 1)
    step = regions.lowering.emit("cvm_lut", regions.constant([n // cells for n in lengths], "step"), length)
    size = regions.lowering.emit("cvm_lut", regions.constant([max(1, -(-n // cells)) for n in lengths], "size"), length)
    numbers = regions.constant(np.arange(cells).reshape(1, cells, 1), "cells")
    begin = (numbers * step) + first
    # Inside of a cell, position - begin lies in 0 .. size - 1.
    positions = regions.constant(np.arange(extent).reshape(1, 1, extent), "positions")
    offset = positions - begin
    minus = regions.constant([-1], "minus")
    inside = offset.greater(minus)
    before = size.greater(offset)
    assert lowering.output_shape()[0] == regions.count
    return inside * before, size


def _codes(regions: _Regions, form: LinearForm, unit: Fraction, bounds: tuple[int, int], what: str) -> Value:
    """The numbers of a form as multiples of a unit, rounded and clipped."""
    lo, hi = bounds
    if not form.terms or lo == hi:
        steps = form.constant / Rationals.scalar(unit, form.rank)
        items = np.broadcast_to(np.clip(_rounded(steps), lo, hi), form.shape)
        return regions.constant(items, what)
    quantizer = LinearQuantizer((unit,), (Fraction(0),), lo, hi)
    return codes_of(regions.lowering, form, quantizer, what)


def _rounded(items: Rationals) -> Any:
    doubled = 2 * items.denominator
    return (2 * items.numerators + items.denominator) // doubled


def _split(regions: _Regions, value: Value, axis: int) -> Shape:
    """The extents (N, axes before it, the axis, axes after it) of a value that is reduced along a spatial axis."""
    shape = value.shape
    return shape[0], math.prod(shape[1 : axis + 2]), shape[axis + 2], math.prod(shape[axis + 3 :])


def _weighted(regions: _Regions, value: Value, weights: Value, axis: int) -> Value:
    """Sum over positions of weights (N, cells, positions) times items: a convolution with one group per region."""
    shape = value.shape
    n, before, extent, behind = _split(regions, value, axis)
    cells = regions.size[axis]
    image = value.reshape((n, before, extent, behind))
    image = image.transpose((0, 2, 1, 3))
    image = image.reshape((1, n * extent, before * behind, 1))
    filters = weights.reshape((n * cells, extent, 1, 1))
    sums = regions.lowering.emit("conv2d", image, filters, padding=(0, 0), stride=(1, 1), dilation=(1, 1), groups=n)
    sums = sums.reshape((n, cells, before, behind))
    sums = sums.transpose((0, 2, 1, 3))
    return sums.reshape((*shape[: axis + 2], cells, *shape[axis + 3 :]))


def _masked(regions: _Regions, value: Value, mask: Value, axis: int) -> Value:
    """The greatest of the items, which are all positive, for which the mask (N, cells, positions) is 1."""
    shape = value.shape
    n, before, extent, behind = _split(regions, value, axis)
    cells = regions.size[axis]
    items = value.reshape((n, before, 1, extent, behind))
    chosen = mask.reshape((n, 1, cells, extent, 1))
    product = items * chosen
    best = product.max((3,))
    return best.reshape((*shape[: axis + 2], cells, *shape[axis + 3 :]))


def _divided(regions: _Regions, value: Value, area: Value) -> Result:
    """The sums of cells divided by their areas (N, 1, 1). The constant of the input is not changed by a mean."""
    lowering = regions.lowering
    quantizer = lowering.quantizer()
    if quantizer is None:
        raise lowering.needs_quantization(lowering.operation.outputs[0])
    if area.range.hull() == (1, 1):
        return regions.result(value, _ONE)
    numerator = replace(regions.result(value, _ONE), constant=Rationals.scalar(0, regions.form.rank))
    shape = (regions.count, *(1 for _ in range(regions.form.rank - 1)))
    area = area.reshape(shape)
    one = Rationals.scalar(1, regions.form.rank)
    divisor = LinearForm(numerator.shape, (Term(area, one),), Rationals.scalar(0, regions.form.rank))
    constant = regions.form.constant
    if isinstance(quantizer, LinearQuantizer):
        quantizer = replace(quantizer, offset=tuple(item - constant.item() for item in quantizer.offset))
    else:
        numerator = sum_of(numerator, scaled(divisor, lambda factor: factor * constant))
    value = quotient_codes(lowering, numerator, divisor, quantizer)
    return Coded(value, note="a quotient, bit by bit")


# Resampling


@rule(
    "roi_resample",
    "avg_roi_align",
    "max_roi_align",
    claim=exact("sums with whole weights of interpolation over a common denominator", TOO_FINE),
)
def roi_resample(lowering: Lowering) -> list[Result]:
    """Multilinear interpolation at a grid of positions of each region. roi_align then pools the samples."""
    align = lowering.operation.name != "roi_resample"
    output, rate = lowering.integers("output_size"), lowering.integers("sampling_rate") if align else ()
    size = tuple(a * b for a, b in zip(output, rate, strict=True)) if align else output
    regions = _Regions(lowering, size)
    method = str(lowering.operation.attributes["resize_method" if align else "method"])
    value, divisor = regions.images(), 1
    for axis in range(regions.dimensions):
        weights, unit = _weights(regions, axis, method)
        try:
            value = _weighted(regions, value, weights, axis)
        except Unsupported:
            raise _too_fine(regions) from None
        divisor *= unit
    result = regions.result(value, Fraction(1, divisor))
    return [_pooled(regions, result, output, rate)] if align else [result]


def _too_fine(regions: _Regions) -> Unsupported:
    return regions.lowering.unsupported(
        "the weights of interpolation do not fit 32 bits: give rois a quantiser of a simple scale with zero as a code",
    )


def _weights(regions: _Regions, axis: int, method: str) -> tuple[Value, int]:
    """The weights of positions along an axis in units of 1/G, of shape (N, samples, positions), and G.

    In a region from a to b, sample i has the position a + i * (b - a) / n + shift, clipped to the axis, since the items
    beyond its ends equal the items at the ends. Item j has the weight max(0, 1 - |position - j|).
    """
    extent, samples = regions.extents[axis], regions.size[axis]
    start, end = (regions.coordinate(axis + side * regions.dimensions) for side in (0, 1))
    i = np.arange(samples, dtype=object).reshape(1, samples, 1)
    shape = (regions.count, samples, 1)
    if method == "aligned":
        # The last sample lies at the last position, b - 1; a single sample lies at the first position.
        share = Rationals(i, max(samples - 1, 1))
        shift = -share
    elif method in ("symmetric", "asymmetric"):
        share = Rationals(2 * i + (1 if method == "symmetric" else 0), 2 * samples)
        shift = Rationals.scalar(Fraction(-1, 2) if method == "symmetric" else 0, 3)
    else:
        raise regions.lowering.unsupported(f"method {method!r} is not lowered")
    one = Rationals.scalar(1, 3)
    position = sum_of(
        scaled(replace(start, shape=shape), lambda factor: factor * (one - share)),
        scaled(replace(end, shape=shape), lambda factor: factor * share),
    )
    position = sum_of(position, LinearForm(shape, (), shift))
    _, _, unit = summands(position.terms, position.constant, whole=True)
    # Positions are multiples of ``unit`` = 1/G.
    inverse = unit.denominator
    grid = Fraction(1, inverse)
    if inverse * extent > 2**30:
        raise _too_fine(regions)
    last = inverse * (extent - 1)
    at = _codes(regions, position, grid, (0, last), "position")
    items = regions.constant((np.arange(extent, dtype=object) * inverse).reshape(1, 1, extent), "items")
    distance = abs(at - items)
    whole = regions.constant([inverse], "whole")
    near = whole - distance
    return near.clip(0, inverse), inverse


def _pooled(regions: _Regions, form: LinearForm, output: Sequence[int], rate: Sequence[int]) -> LinearForm:
    """The mean or the greatest of each block of samples."""
    shape: list[int] = [*form.shape[:2]]
    for extent, step in zip(output, rate, strict=True):
        shape += [extent, step]
    (term,) = form.terms
    blocks = term.value.reshape(tuple(shape))
    axes = tuple(range(3, len(shape), 2))
    average = regions.lowering.operation.name == "avg_roi_align"
    value = regions.lowering.emit("sum" if average else "max", blocks, axes=axes, keepdims=False, exclude=False)
    divisor = Rationals.scalar(Fraction(1, math.prod(rate) if average else 1), form.rank)
    return replace(form, shape=(*form.shape[:2], *output), terms=(Term(value, term.factor * divisor),))
