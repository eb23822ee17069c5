"""Up- and down-sampling by integer factors (NNEF 1.0.1 section 4.3.4).

Nearest neighbours only move items, so they apply to every kind of form. Areas are box filters. Linear interpolation
sums two items with integer weights along one axis after the other. The denominator of the weights depends on the factor
(and for the method 'aligned' on the extent).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from cvm.lowering.claims import BEYOND_REFLECTION, NO_RATIO, exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.forms.emission import Emission, Value
from cvm.lowering.forms.form import Known, LinearForm, TableForm
from cvm.lowering.forms.gather import gathered
from cvm.lowering.forms.windows import Axis
from cvm.lowering.parts.axis_sums import AxisSum, summed
from cvm.lowering.parts.operands import scaled
from cvm.lowering.rules.pooling import boxed
from cvm.quantization.rationals import Rationals

__all__: list[str] = []


@rule(
    "nearest_downsample",
    claim=exact("the integers move"),
)
def nearest_downsample(lowering: Lowering) -> list[Result]:
    """Lower ``nearest_downsample``: keep every factor-th item along each spatial axis."""
    extents = lowering.operand("input").shape[2:]
    return [_nearest(lowering, [Axis(n, n // f, 1, 0, f) for n, f in _pairs(lowering, extents)])]


@rule(
    "nearest_upsample",
    claim=exact("the integers move"),
)
def nearest_upsample(lowering: Lowering) -> list[Result]:
    """Lower ``nearest_upsample``: repeat every item ``factor`` times along each spatial axis."""
    extents = lowering.operand("input").shape[2:]
    axes = [Axis(n, n * f, f, 0, f, reverse=True) for n, f in _pairs(lowering, extents)]
    return [_nearest(lowering, axes)]


def _pairs(lowering: Emission, extents: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(extents, lowering.integers("factor"), strict=True))


def _nearest(lowering: Lowering, axes: Sequence[Axis]) -> Result:
    """Move the items of the operand ``input``, of any form, along the spatial axes."""
    operand = lowering.operand("input")
    sums = [None, None, *(None if axis.identity else AxisSum.of(axis) for axis in axes)]
    if isinstance(operand, Known):
        operand = LinearForm(operand.shape, (), operand.rationals())
    if isinstance(operand, LinearForm):
        plain = summed(lowering, replace(operand, lower=None, upper=None), sums)
        return replace(plain, lower=operand.lower, upper=operand.upper)
    shape = (*operand.shape[:2], *(axis.outputs for axis in axes))

    def taken(value: Value) -> Value:
        value = value.broadcast(operand.shape)
        for axis, along in enumerate(sums):
            if along is not None:
                value = gathered(value, axis, along.sources[:, 0])
        return value

    def items_taken(items: Rationals) -> Rationals:
        for axis, along in enumerate(sums):
            if along is not None and items.shape[axis] > 1:
                items = along.of_items(items, axis, operand.shape[axis])
        return items

    if isinstance(operand, TableForm):
        return TableForm(shape, taken(operand.value), operand.numbers)
    return operand.moved(taken, items_taken, shape)


@rule(
    "area_downsample",
    claim=exact("sums of integers; the divisor joins the scale", NO_RATIO),
)
def area_downsample(lowering: Lowering) -> list[Result]:
    """The mean of every block of items."""
    form = lowering.linear("input")
    axes = [Axis(n, n // f, f, 0, f) for n, f in _pairs(lowering, form.shape[2:])]
    return [boxed(lowering, form, [*(Axis(n, n) for n in form.shape[:2]), *axes], True)]


@rule(
    "multilinear_upsample",
    claim=exact("sums with whole weights over a common denominator", BEYOND_REFLECTION, NO_RATIO),
)
def multilinear_upsample(lowering: Lowering) -> list[Result]:
    """Linear interpolation along each spatial axis, by integer weights with a common denominator per axis."""
    form = lowering.linear("input")
    method, border = str(lowering.operation.attributes["method"]), str(lowering.operation.attributes["border"])
    sums: list[AxisSum | None] = [None, None]
    denominator = 1
    for extent, factor in zip(form.shape[2:], lowering.integers("factor"), strict=True):
        interpolation, parts = _interpolation(lowering, extent, factor, method, border)
        sums.append(interpolation)
        denominator *= parts
    total = summed(lowering, form, sums)
    return [scaled(total, lambda items: items / Rationals.scalar(denominator, form.rank))]


def _interpolation(lowering: Lowering, extent: int, factor: int, method: str, border: str) -> tuple[AxisSum, int]:
    """The sum and the denominator of its weights. With j + u = coordinate(i) and 0 <= u < 1, output i is
    (1 - u) * in[j] + u * in[j + 1].
    """
    if factor == 1 or (method == "aligned" and extent == 1):
        whole = np.zeros(extent * factor, np.int64) if extent == 1 else np.arange(extent)
        return AxisSum(whole[:, None], np.ones((whole.size, 1), np.int64)), 1
    positions = range(extent * factor)
    if method == "aligned":
        coordinates = [Fraction(i * (extent - 1), extent * factor - 1) for i in positions]
    elif method == "symmetric":
        coordinates = [(Fraction(i) - Fraction(factor - 1, 2)) / factor for i in positions]
    else:
        coordinates = [Fraction(i, factor) for i in positions]
    denominator = math.lcm(*(coordinate.denominator for coordinate in coordinates))
    first = np.array([math.floor(coordinate) for coordinate in coordinates])
    second_weight = np.array([int((coordinate - math.floor(coordinate)) * denominator) for coordinate in coordinates])
    weights = np.stack([denominator - second_weight, second_weight], axis=1)
    border_axis = Axis(extent, extent * factor, border=border)
    sources = np.stack([border_axis.bordered(first), border_axis.bordered(first + 1)], axis=1)
    sources = np.where(weights == 0, -1, sources)
    if (sources < -1).any():
        raise lowering.unsupported(f"border {border!r} reaches beyond an extent of {extent}")
    weights = np.where(sources < 0, 0, weights)
    # An item that replaces its neighbour, by replication, gets both weights.
    same = sources[:, 0] == sources[:, 1]
    weights[same, 0], weights[same, 1] = weights[same].sum(axis=1), 0
    divisor = math.gcd(denominator, *np.unique(weights).tolist())
    return AxisSum(np.where(weights == 0, -1, sources), weights // divisor), denominator // divisor
