"""Box filters (NNEF 1.0.1 section 4.3.2), average and root-mean-square pooling (4.9.3).

A box filter is separable: it sums along one axis after the other, including batch and channels. Over the last two axes
of a tensor of rank 4 it is one depthwise convolution with ones. With the border 'ignore', windows that reach beyond the
data sum fewer items, and ``normalize`` divides by the number of these; with any other border it divides by the volume
of the window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from cvm.lowering.claims import BEYOND_REFLECTION, NO_RATIO, NOTHING_INSIDE, exact
from cvm.lowering.context import Coded, Lowering, Result, rule
from cvm.lowering.forms.emission import Emission
from cvm.lowering.forms.form import LinearForm, constant_of
from cvm.lowering.forms.windows import Axis, axes_of, reverse_axes_of, sizes_of
from cvm.lowering.parts.axis_sums import AxisSum, summed
from cvm.lowering.parts.digits import narrowed, squared
from cvm.lowering.parts.operands import scaled
from cvm.lowering.proofs.staircase import staircase_codes
from cvm.lowering.proofs.table import folded, tabulate
from cvm.lowering.rules.convolution import Kernel, correlated
from cvm.quantization.rationals import Rationals
from cvm.quantization.reals import FUNCTIONS, Real, rational
from cvm.quantization.steps import Step
from cvm.quantization.surds import least_integer

__all__ = ["boxed", "root_of_sum", "window_total", "window_volume"]

_FEW = 2**12
"""For at most this many numbers, a table of codes is made instead of a search among thresholds."""


@rule(
    "box",
    "avg_pool",
    claim=exact("sums of integers; the divisor joins the scale", NO_RATIO, NOTHING_INSIDE),
)
def box(lowering: Lowering) -> list[Result]:
    """The sum of each window, divided by its size with ``normalize`` and for an average."""
    form = lowering.linear("input")
    axes = axes_of(lowering, form.shape, sizes_of(lowering, form.rank))
    normalize = lowering.operation.name == "avg_pool" or bool(lowering.operation.attributes["normalize"])
    return [boxed(lowering, form, axes, normalize)]


@rule(
    "debox",
    claim=exact("sums of integers in the up-scaled space", BEYOND_REFLECTION, NO_RATIO, NOTHING_INSIDE),
)
def debox(lowering: Lowering) -> list[Result]:
    """The sum of the items whose windows reach each position of the up-scaled space."""
    form = lowering.linear("input")
    shape = lowering.output_shape()
    axes = reverse_axes_of(lowering, form.shape, sizes_of(lowering, form.rank), shape)
    return [boxed(lowering, form, axes, bool(lowering.operation.attributes["normalize"]))]


def boxed(lowering: Lowering, form: LinearForm, axes: Sequence[Axis], normalize: bool) -> LinearForm:
    """The sums of windows over all axes, or their means."""
    form = narrowed(lowering, form, math.prod(axis.size for axis in axes))
    plane = len(axes) == 4 and axes[0].identity and axes[1].identity and not any(axis.reverse for axis in axes)
    if plane and any(axis.size > 1 for axis in axes):
        kernel = Kernel.ones(form.shape[1], [axis.size for axis in axes[2:]])
        total = correlated(lowering, form, kernel, axes[2:])
    else:
        total = summed(lowering, form, [None if axis.identity else AxisSum.of(axis) for axis in axes])
    if not normalize:
        return total
    divisor = _counts(lowering, axes)
    return scaled(total, lambda items: items / divisor)


def window_total(lowering: Lowering, form: LinearForm) -> LinearForm:
    """The sums of windows of the attribute ``size`` around every item, with zeros beyond the data (section 4.9.4)."""
    sizes = zip(form.shape, sizes_of(lowering, form.rank), strict=True)
    axes = [Axis(extent, extent, size, (size - 1) // 2, 1, 1, "constant") for extent, size in sizes]
    return boxed(lowering, form, axes, normalize=False)


def window_volume(lowering: Emission) -> int:
    """The number of items of a window of the attribute ``size``."""
    return math.prod(lowering.integers("size"))


def _counts(lowering: Lowering, axes: Sequence[Axis]) -> Rationals:
    """The divisor of each window: its volume or, with the border 'ignore', the number of items inside the data."""
    rank = len(axes)
    counts = Rationals.scalar(math.prod(axis.size for axis in axes), rank)
    if axes[0].border != "ignore":
        return counts
    counts = Rationals.scalar(1, rank)
    for i, axis in enumerate(axes):
        inside = axis.inside().sum(axis=1)
        if not inside.all():
            raise lowering.unsupported("a window has no item outside of the ignored border: there is no average")
        along = [1] * rank
        distinct = inside[:1] if (inside == inside[0]).all() else inside
        along[i] = distinct.size
        counts = counts * Rationals(distinct.astype(object).reshape(along))
    return counts


@rule(
    "rms_pool",
    claim=exact(
        "sums of squares; the root is compared with each step between codes by its square",
        NO_RATIO,
        NOTHING_INSIDE,
    ),
)
def rms_pool(lowering: Lowering) -> list[Result]:
    """The root of the mean of the squares of each window. Neither the squares nor their mean are rounded.

    The mean is a linear form of one or two sums, of q^2 and of q. To compare its root with a threshold t between two
    codes of the result, the mean is compared with t^2.
    """
    form = lowering.linear("input")
    squares = squared(lowering, form, window_volume(lowering))
    axes = axes_of(lowering, form.shape, sizes_of(lowering, form.rank))
    mean = boxed(lowering, squares, axes, True)
    return [root_of_sum(lowering, mean)]


def _root_of_mean(mean: Real) -> Real:
    """The root of a mean of squares. Combinations of integers that would give a negative mean do not occur."""
    return rational(0) if mean.sign < 0 else FUNCTIONS["sqrt"](mean)


def root_of_sum(lowering: Lowering, mean: LinearForm) -> Result:
    """The root of a sum or mean of squares, or its codes if the result has a quantiser."""
    quantizer = lowering.quantizer()
    if not mean.terms:
        return folded(lowering, [constant_of(mean)], FUNCTIONS["sqrt"], mean.shape, quantizer)
    entries = math.prod(hi - lo + 1 for lo, hi in (t.value.range.hull() for t in mean.terms))
    if quantizer is None or (len(mean.terms) == 1 and entries <= _FEW):
        return tabulate(lowering, [mean], _root_of_mean, mean.shape)
    value, note = staircase_codes(lowering, mean, quantizer, _root_reached)
    return Coded(value, note=f"root of a sum: {note}", any_rounding=True)


def _root_reached(step: Step, unit: Fraction, constants: Sequence[Fraction]) -> int | None:
    """The least L for which sqrt(L * u + c) reaches a step, that is, for which L * u + c reaches its square."""
    if step.sign < 0 or (step.sign == 0 and not step.strict):
        return None
    (constant,) = constants
    return least_integer((step.square - constant) / unit, [], step.strict)
