"""Box filters (NNEF 1.0.1 section 4.3.2), average and root-mean-square pooling (4.9.3), area and nearest resampling.

A box filter is separable: a sum along one axis after the other, batch and channels included. Over the last two axes of
a tensor of rank 4 it is one depth-wise convolution with ones. Border 'ignore' leaves out what lies outside: the sum has
fewer items there, and with ``normalize`` it is divided by their number; any other border divides by the volume.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from cvm.graph import GraphOperation
from cvm.lowering.axis_sums import AxisSum, summed
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.convolution import Kernel, correlated
from cvm.lowering.elementwise import square
from cvm.lowering.form import Form, LinearForm
from cvm.lowering.operands import scaled
from cvm.lowering.staircase import quantized_function
from cvm.lowering.table import tabulate
from cvm.lowering.windows import Axis, axes_of, integers, reverse_axes_of
from cvm.quantization.rationals import Rationals
from cvm.quantization.reals import FUNCTIONS

__all__: list[str] = []

_FEW = 2**12
"""Numbers of which a table is made rather than a search among thresholds."""


@rule("box", "avg_pool")
def box(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """The sum of each window, divided by its size for ``normalize`` and for an average."""
    form = lowering.linear(operation, "input")
    axes = axes_of(lowering, operation, form.shape, integers(operation, "size"))
    normalize = operation.name == "avg_pool" or bool(operation.attributes["normalize"])
    return [_box(lowering, operation, form, axes, normalize)]


@rule("debox")
def debox(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """The sum of the items whose windows reach each position of the up-scaled space."""
    form = lowering.linear(operation, "input")
    shape = lowering.output_shape(operation)
    axes = reverse_axes_of(lowering, operation, form.shape, integers(operation, "size"), shape)
    return [_box(lowering, operation, form, axes, bool(operation.attributes["normalize"]))]


def _box(
    lowering: Lowering, operation: GraphOperation, form: LinearForm, axes: Sequence[Axis], normalize: bool
) -> LinearForm:
    plane = len(axes) == 4 and axes[0].identity and axes[1].identity and not any(axis.reverse for axis in axes)
    if plane and any(axis.size > 1 for axis in axes):
        kernel = Kernel.ones(form.shape[1], [axis.size for axis in axes[2:]])
        total = correlated(lowering, operation, form, kernel, axes[2:])
    else:
        total = summed(lowering, operation, form, [None if axis.identity else AxisSum.of(axis) for axis in axes])
    if not normalize:
        return total
    divisor = _counts(lowering, operation, axes)
    return scaled(total, lambda items: items / divisor)


def _counts(lowering: Lowering, operation: GraphOperation, axes: Sequence[Axis]) -> Rationals:
    """What each window is divided by: its volume, or with border 'ignore' the number of items inside."""
    rank = len(axes)
    counts = Rationals.scalar(math.prod(axis.size for axis in axes), rank)
    if axes[0].border != "ignore":
        return counts
    counts = Rationals.scalar(1, rank)
    for i, axis in enumerate(axes):
        inside = axis.inside().sum(axis=1)
        if not inside.all():
            raise lowering.unsupported(
                operation, "a window has no item outside of the ignored border: there is no average"
            )
        along = [1] * rank
        distinct = inside[:1] if (inside == inside[0]).all() else inside
        along[i] = distinct.size
        counts = counts * Rationals(distinct.astype(object).reshape(along))
    return counts


@rule("rms_pool")
def rms_pool(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """The root of the mean of the squares of each window; neither the squares nor their mean are rounded.

    The mean is a linear form of one or two sums, of q^2 and of q; its root is compared with every threshold t between
    two codes of the result by way of t^2.
    """
    form = lowering.linear(operation, "input")
    squares = square(lowering, operation, form)
    if squares is None:
        raise lowering.needs_quantization(operation, str(operation.inputs["input"]))
    axes = axes_of(lowering, operation, form.shape, integers(operation, "size"))
    mean = _box(lowering, operation, squares, axes, True)
    return [_root(lowering, operation, mean)]


def _root(lowering: Lowering, operation: GraphOperation, mean: LinearForm) -> Result:
    quantizer = lowering.quantizer(operation)
    entries = math.prod(hi - lo + 1 for lo, hi in (lowering.builder.range(t.value).hull() for t in mean.terms))
    if quantizer is None or (len(mean.terms) == 1 and entries <= _FEW):
        found: Form = tabulate(lowering, operation, [mean], lambda v: FUNCTIONS["sqrt"](v), mean.shape)
        return found
    return quantized_function(lowering, operation, mean, quantizer, lambda t: None if t <= 0 else t * t)


# Resampling by whole factors (section 4.3.4)


def _factors(operation: GraphOperation) -> tuple[int, ...]:
    return integers(operation, "factor")


@rule("nearest_downsample")
def nearest_downsample(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """Every factor-th item."""
    form = lowering.linear(operation, "input")
    axes = [Axis(n, n // f, 1, 0, f) for n, f in zip(form.shape[2:], _factors(operation), strict=True)]
    return [summed(lowering, operation, form, [None, None, *(AxisSum.of(axis) for axis in axes)])]


@rule("area_downsample")
def area_downsample(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """The mean of every block of items."""
    form = lowering.linear(operation, "input")
    factors = _factors(operation)
    axes = [Axis(n, n // f, f, 0, f) for n, f in zip(form.shape[2:], factors, strict=True)]
    whole = [Axis(n, n) for n in form.shape[:2]]
    return [_box(lowering, operation, form, [*whole, *axes], True)]


@rule("nearest_upsample")
def nearest_upsample(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """Every item as a block of equal items."""
    form = lowering.linear(operation, "input")
    axes = [Axis(n, n * f, f, 0, f, reverse=True) for n, f in zip(form.shape[2:], _factors(operation), strict=True)]
    return [summed(lowering, operation, form, [None, None, *(AxisSum.of(axis) for axis in axes)])]


@rule("multilinear_upsample")
def multilinear_upsample(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """Linear interpolation along each spatial axis, by whole weights over a common denominator per axis."""
    form = lowering.linear(operation, "input")
    method, border = str(operation.attributes["method"]), str(operation.attributes["border"])
    sums: list[AxisSum | None] = [None, None]
    denominator = 1
    for extent, factor in zip(form.shape[2:], _factors(operation), strict=True):
        interpolation, parts = _interpolation(lowering, operation, extent, factor, method, border)
        sums.append(interpolation)
        denominator *= parts
    total = summed(lowering, operation, form, sums)
    return [scaled(total, lambda items: items / Rationals.scalar(denominator, form.rank))]


def _interpolation(
    lowering: Lowering, operation: GraphOperation, extent: int, factor: int, method: str, border: str
) -> tuple[AxisSum, int]:
    """Output i lies between the items j and j + 1, at j + u: (1 - u) * in[j] + u * in[j + 1], j + u = place(i)."""
    if factor == 1 or (method == "aligned" and extent == 1):
        whole = np.zeros(extent * factor, np.int64) if extent == 1 else np.arange(extent)
        return AxisSum(whole[:, None], np.ones((whole.size, 1), np.int64)), 1
    positions = range(extent * factor)
    if method == "aligned":
        places = [Fraction(i * (extent - 1), extent * factor - 1) for i in positions]
    elif method == "symmetric":
        places = [(Fraction(i) - Fraction(factor - 1, 2)) / factor for i in positions]
    else:
        places = [Fraction(i, factor) for i in positions]
    denominator = math.lcm(*(place.denominator for place in places))
    first = np.array([math.floor(place) for place in places])
    second_weight = np.array([int((place - math.floor(place)) * denominator) for place in places])
    weights = np.stack([denominator - second_weight, second_weight], axis=1)
    border_axis = Axis(extent, extent * factor, border=border)
    sources = np.stack([border_axis.bordered(first), border_axis.bordered(first + 1)], axis=1)
    sources = np.where(weights == 0, -1, sources)
    if (sources < -1).any():
        raise lowering.unsupported(operation, f"border {border!r} reaches beyond an extent of {extent}")
    weights = np.where(sources < 0, 0, weights)
    # An item that stands in for its neighbour, by replication, carries both weights.
    same = sources[:, 0] == sources[:, 1]
    weights[same, 0], weights[same, 1] = weights[same].sum(axis=1), 0
    divisor = math.gcd(denominator, *np.unique(weights).tolist())
    return AxisSum(np.where(weights == 0, -1, sources), weights // divisor), denominator // divisor
