"""Convolution and deconvolution (NNEF 1.0.1 section 4.3.1), and the separable ones (section 4.9.2).

Let the inputs be x = s*q + b with integers q, and the weights w = t*v + u with integers v around the code of zero. Then

    sum x*w over the taps that read an item = s*t*A + s*u*S + b*(t*V + u*n),   A = sum q*v,  S = sum q,  V = sum v,

where all sums go over these n taps. Zeros of the border, and zeros between the items of a deconvolution, are integers 0
and add nothing to A and S; only V and n depend on the position. They are constant if the filter is. If u = 0, there is
no second accumulator. An input with several terms has an A (and an S) for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.graph import Attribute, GraphOperation
from cvm.lowering.claims import BEYOND_REFLECTION, COMPUTED_FILTER, NO_RATIO, WIDE_BETWEEN, exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import Known, LinearForm, Term
from cvm.lowering.forms.windows import Axis, axes_of, reverse_axes_of
from cvm.lowering.parts.axis_sums import common_factors, moved_to_zero, parts_of, spread, with_common_factor
from cvm.lowering.parts.correlation import convolved, correlated_constants, flipped
from cvm.lowering.parts.digits import narrow_digits, weighed_digits
from cvm.lowering.parts.operands import linear_operand, sum_of
from cvm.quantization.rationals import Rationals
from cvm.records import dataclass

__all__ = ["Kernel", "correlated"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, slots=True)
class Kernel:
    """Constant weights scale * codes + rest of shape (O, C / groups, k_1, ..), scale and rest per output channel."""

    codes: Array
    scale: Rationals
    rest: Rationals
    groups: int

    @staticmethod
    def of(known: Known, groups: int) -> Kernel:
        """The weights of a filter, with integers around zero. If scales differ, these may have any width."""
        if all(extent == 1 for items in (known.scale, known.offset) for extent in items.shape[1:]):
            codes, rest = known.centred()
            return Kernel(codes, known.scale, rest, groups)
        values = known.rationals()
        common = common_factors(values, range(1, len(known.shape)))
        codes = values.numerators // common.numerators
        return Kernel(codes, common.reduced(), Rationals.scalar(0, len(known.shape)), groups)

    @staticmethod
    def ones(channels: int, sizes: Sequence[int]) -> Kernel:
        """Weights of 1 within each channel: a box filter."""
        rank = len(sizes) + 2
        codes = np.ones((channels, 1, *sizes), np.int64)
        return Kernel(codes, Rationals.scalar(1, rank), Rationals.scalar(0, rank), channels)


def correlated(lowering: Lowering, form: LinearForm, kernel: Kernel, axes: Sequence[Axis]) -> LinearForm:
    """The sum of input times weight over every window, for an input (N, C, x_1, ..)."""
    spatial = tuple(range(2, form.rank))
    if any((axis.line() < 0).any() for axis in axes):
        form = moved_to_zero(lowering, form, spatial)
    form = spread(lowering, form, range(form.rank))
    outputs = kernel.codes.shape[0]
    shape = (form.shape[0], outputs, *(axis.outputs for axis in axes))
    nothing = not all((axis.line() >= 0).any() for axis in axes)
    kernels = [np.flip(kernel.codes, flipped(axes))]
    scales = [_outputs(kernel.scale)]
    if not kernel.rest.is_zero():
        kernels.append(np.ones((kernel.groups, *kernel.codes.shape[1:]), np.int64))
        scales.append(_outputs(kernel.rest))
    terms: list[Term] = []
    for term in () if nothing else form.terms:
        for value, factor, channels in _parts(lowering, term, kernel.groups):
            factor = _per_output(factor, kernel.groups, outputs)
            masked = [_masked(codes, channels) for codes in kernels]
            for total, which, weight in _sums(lowering, value, masked, axes, kernel.groups):
                if which and 1 < kernel.groups < outputs:
                    repeats = outputs // kernel.groups
                    total = total.repeat(1, repeats)
                terms.append(Term(total, factor * scales[which] * Rationals.scalar(weight, form.rank)))
    return LinearForm(shape, tuple(terms), _constants(form, kernel, axes))


def _sums(
    lowering: Lowering, value: Value, kernels: Sequence[Array], axes: Sequence[Axis], groups: int
) -> list[tuple[Value, int, int]]:
    """Convolutions of the value with each kernel: (sum, index of the kernel, weight).

    There is one sum per kernel if it fits 32 bits; otherwise there are several sums of digits, with weights.
    """
    convolutions: dict[Value, list[tuple[Value, int, int]]] = {}
    for which, (kernel, what) in enumerate(zip(kernels, ("weights", "ones"), strict=False)):
        for digit, part, weight in weighed_digits(value, kernel, (0,)):
            constant = lowering.tensor_constant(part, what)
            convolutions.setdefault(digit, []).append((constant, which, weight))
    found = []
    for digit, parts in convolutions.items():
        totals = convolved(digit, [constant for constant, _, _ in parts], axes, groups)
        found += [(total, which, weight) for total, (_, which, weight) in zip(totals, parts, strict=True)]
    return found


def _parts(lowering: Lowering, term: Term, groups: int) -> list[tuple[Value, Rationals, Array | None]]:
    """The term as values with one factor per group. If the channels of a group have few factors without a simple ratio,
    the term is split into parts.

    A part has a mask of its channels; the weights of all other channels are set to zero.
    """
    if groups == 1 and (parts := parts_of(term.factor, 1)):
        return [(term.value, factor, channels) for factor, channels in parts]
    return [(*_by_groups(lowering, term, groups), None)]


def _masked(codes: Array, channels: Array | None) -> Array:
    return codes if channels is None else codes * channels.reshape(1, -1, *(1,) * (codes.ndim - 2))


def _by_groups(lowering: Lowering, term: Term, groups: int) -> tuple[Value, Rationals]:
    """The term with one factor per batch item and group of channels, of shape (N or 1, groups or 1, 1, ..)."""
    rank = len(term.factor.shape)
    channels = term.factor.shape[1]
    if channels in (1, groups) and math.prod(term.factor.shape[2:]) == 1:
        return term.value, term.factor
    if channels == 1 or groups == 1:
        return with_common_factor(term, range(1, rank))
    items = term.factor.moved(lambda a: a.reshape(a.shape[0], groups, -1, *a.shape[2:]))
    common = common_factors(items, range(2, rank + 1)).moved(lambda a: a.reshape(a.shape[:2] + (1,) * (rank - 2)))
    each = common.moved(lambda a: np.repeat(a, channels // groups, axis=1))
    value, one = with_common_factor(Term(term.value, term.factor / each), range(rank))
    return value, common * one


def _per_output(factor: Rationals, groups: int, outputs: int) -> Rationals:
    if factor.shape[1] == 1:
        return factor
    return factor.moved(lambda array: np.repeat(array, outputs // groups, axis=1))


def _outputs(items: Rationals) -> Rationals:
    """Coefficients per output channel of a filter, reshaped to axis 1 of the result."""
    return items.moved(lambda array: array.reshape(1, array.shape[0], *array.shape[2:]))


def _constants(form: LinearForm, kernel: Kernel, axes: Sequence[Axis]) -> Rationals:
    """The constant of the result: the convolution of the input's constant with the kernel."""
    if form.constant.is_zero():
        return Rationals.scalar(0, form.rank)
    items = form.constant.numerators
    codes = kernel.codes
    if codes.dtype == object and max(abs(int(codes.min())), abs(int(codes.max()))) < 2**31:
        codes = codes.astype(np.int64)
    found = Rationals(correlated_constants(codes, items, axes, kernel.groups)) * _outputs(kernel.scale)
    if not kernel.rest.is_zero():
        ones = np.ones(codes.shape, np.int64)
        found = found + Rationals(correlated_constants(ones, items, axes, kernel.groups)) * _outputs(kernel.rest)
    return Rationals(found.numerators, found.denominator * form.constant.denominator).reduced()


def _computed_filter(
    lowering: Lowering, form: LinearForm, weights: LinearForm, axes: Sequence[Axis], groups: int
) -> LinearForm:
    """The same as `correlated`, for computed weights t*v + u. V = sum v is a correlation of ones with the weights."""
    form = moved_to_zero(lowering, form, range(form.rank))
    weights = moved_to_zero(lowering, weights, range(weights.rank))
    (x,), (w,) = form.terms, weights.terms
    s, t = x.factor, Rationals.scalar(w.factor.item(), form.rank)
    b, u = form.constant, Rationals.scalar(weights.constant.item(), form.rank)
    kernel = _flipped_value(w.value, flipped(axes))
    shape = kernel.shape
    ones = np.ones(shape, np.int64)
    items, parts = narrow_digits(x.value, kernel, math.prod(shape[1:]))
    kernels, coefficients = [part for part, _ in parts], [t * Rationals.scalar(p, form.rank) for _, p in parts]
    if not u.is_zero():
        kernels.append(lowering.tensor_constant(ones, "ones"))
    terms = []
    for item, weight in items:
        totals = convolved(item, kernels, axes, groups)
        factor = s * Rationals.scalar(weight, form.rank)
        terms += [Term(total, factor * other) for total, other in zip(totals, [*coefficients, u], strict=False)]
    constant = Rationals.scalar(0, form.rank)
    if not b.is_zero():
        image = lowering.tensor_constant(np.ones((1, *form.shape[1:]), dtype=object), "ones")
        totals = convolved(image, kernels[: len(parts)], axes, groups)
        terms += [Term(total, b * other) for total, other in zip(totals, coefficients, strict=True)]
        counts = correlated_constants(ones, np.ones((1,) * form.rank, dtype=object), axes, groups)
        constant = Rationals(counts) * b * u
    return LinearForm((form.shape[0], shape[0], *(axis.outputs for axis in axes)), tuple(terms), constant)


def _flipped_value(value: Value, dimensions: Sequence[int]) -> Value:
    lowering = value.emission
    if not dimensions:
        return value
    shape = value.shape
    backwards = [i in dimensions for i in range(len(shape))]
    begin = tuple(extent - 1 if back else 0 for extent, back in zip(shape, backwards, strict=True))
    end = tuple(-extent - 1 if back else extent for extent, back in zip(shape, backwards, strict=True))
    return lowering.emit("slice", value, begin=begin, end=end, strides=tuple(-1 if back else 1 for back in backwards))


# The operations


@rule(
    "conv",
    claim=exact(
        "integer convolution of codes around zero, and of ones where zero is no code; one requantize proven over all "
        "thresholds; borders have constants of their own",
        NO_RATIO,
        COMPUTED_FILTER,
    ),
)
@rule(
    "deconv",
    claim=exact("as conv, of items with zeros between them", BEYOND_REFLECTION, NO_RATIO, COMPUTED_FILTER),
)
def conv(lowering: Lowering) -> list[Result]:
    """Correlation with a filter, or the reverse operation, plus a bias."""
    form = lowering.linear("input")
    shape = lowering.output_shape()
    groups = lowering.integer("groups")
    total = _filtered(lowering, form, "filter", lowering.operation.name == "deconv", groups, shape)
    return [_biased(lowering, total)]


@rule(
    "separable_conv",
    claim=exact("two integer convolutions, rounded once", NO_RATIO, COMPUTED_FILTER),
)
def separable_conv(lowering: Lowering) -> list[Result]:
    """A depthwise convolution, then a pointwise one. Nothing is rounded in between."""
    form = lowering.linear("input")
    shape = lowering.output_shape()
    groups = lowering.integer("groups")
    filtered = _filtered(lowering, form, "plane_filter", False, 0, shape)
    with lowering.at(_singular(lowering.operation)):
        total = _filtered(lowering, filtered, "point_filter", False, groups, shape)
    return [_biased(lowering, total)]


@rule(
    "separable_deconv",
    claim=exact("two integer convolutions, rounded once", BEYOND_REFLECTION, NO_RATIO, COMPUTED_FILTER, WIDE_BETWEEN),
)
def separable_deconv(lowering: Lowering) -> list[Result]:
    """A pointwise deconvolution, then a depthwise one. Nothing is rounded in between."""
    form = lowering.linear("input")
    shape = lowering.output_shape()
    groups = lowering.integer("groups")
    groups = groups or form.shape[1]
    with lowering.at(_singular(lowering.operation)):
        filtered = _filtered(lowering, form, "point_filter", True, groups, form.shape)
    total = _filtered(lowering, filtered, "plane_filter", True, 0, shape)
    return [_biased(lowering, total)]


def _singular(operation: GraphOperation) -> GraphOperation:
    """The operation with the geometry of its pointwise filter: no padding or border, strides and dilations of 1."""
    own: dict[str, Attribute] = {"border": "constant", "padding": (), "stride": (), "dilation": ()}
    return replace(operation, attributes={**operation.attributes, **own})


def _biased(lowering: Lowering, form: LinearForm) -> LinearForm:
    bias = lowering.linear("bias")
    return sum_of(form, linear_operand(lowering, bias, form.shape))


def _filtered(
    lowering: Lowering, form: LinearForm, parameter: str, reverse: bool, groups: int, shape: tuple[int, ...]
) -> LinearForm:
    """One convolution or deconvolution. ``shape`` has the spatial extents of the result; ``groups`` 0 means depthwise.

    The filter of a deconvolution has the input's channels as its first axis. It is rearranged to the filter of the
    equivalent convolution.
    """
    weights = lowering.stored(parameter)
    if not isinstance(weights, Known):
        weights = lowering.linear(parameter)
    sizes = weights.shape[2:]
    if reverse:
        axes = reverse_axes_of(lowering, form.shape[2:], sizes, shape[2:])
        groups = groups or shape[1] // weights.shape[1]
    else:
        axes = axes_of(lowering, form.shape[2:], sizes)
        groups = groups or form.shape[1]
    if isinstance(weights, Known):
        if reverse:
            weights = _swapped(weights, groups)
        return correlated(lowering, form, Kernel.of(weights, groups), axes)
    if not (_coded(lowering, form) and _coded(lowering, weights)):
        name = str(lowering.operation.inputs[parameter])
        message = f"the filter {name!r} is computed: it and the input must carry per-tensor quantisers"
        raise lowering.unsupported(message)
    if reverse:
        weights = _swapped_value(lowering, weights, groups)
    return _computed_filter(lowering, form, weights, axes, groups)


def _coded(lowering: Lowering, form: LinearForm) -> bool:
    one = len(form.terms) == 1 and form.terms[0].value.shape == form.shape
    return one and form.terms[0].factor.uniform and form.constant.uniform


def _swap(array: Array, groups: int) -> Array:
    """Rearrange (c, C / G, k_1, ..) to (C, c / G, k_1, ..). Coefficients may have extent 1 along any axis."""
    group = groups if array.shape[0] > 1 else 1
    swapped = array.reshape(group, -1, *array.shape[1:]).swapaxes(1, 2)
    if swapped.shape[1] > 1 and group == 1:
        swapped = np.broadcast_to(swapped, (groups, *swapped.shape[1:]))
    return swapped.reshape(-1, *swapped.shape[2:])


def _swapped(known: Known, groups: int) -> Known:
    outputs = groups * known.shape[1]

    def swap(items: Rationals) -> Rationals:
        if items.uniform:
            return items
        swapped = items.moved(lambda array: _swap(array, groups))
        missing = outputs // swapped.shape[0] if swapped.shape[0] > 1 else 1
        return swapped.moved(lambda array: np.repeat(array, missing, axis=0))

    return Known(_swap(known.codes, groups), swap(known.scale), swap(known.offset))


def _swapped_value(lowering: Lowering, form: LinearForm, groups: int) -> LinearForm:
    (term,) = form.terms
    inputs, outputs, *sizes = form.shape
    shape = (groups * outputs, inputs // groups, *sizes)
    value = term.value.reshape((groups, inputs // groups, outputs, *sizes))
    order = (0, 2, 1, *range(3, len(sizes) + 3))
    value = value.transpose(order)
    value = value.reshape(shape)
    return LinearForm(shape, (Term(value, term.factor),), form.constant)
