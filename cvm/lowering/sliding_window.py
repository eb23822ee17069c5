"""Convolution (NNEF 1.0.1 section 4.3.1), box filters (4.3.2) and pooling (4.9.3) over two spatial axes.

With an input x = s*q + b, where q are integers, and weights w = t*v + u, where v are integers around the code of zero,

    sum x*w over the taps inside the image = s*t*A + s*u*S + b*(t*V + u*n),   A = sum q*v,  S = sum q,  V = sum v,

over those taps, n in number. Padding with the integer 0 contributes nothing to A and S, so that only V and n depend on
the position; they are constants. If u = 0 there is no second accumulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.graph import GraphOperation
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.form import LinearForm, Shape, Term
from cvm.lowering.operands import linear_operand, sum_of
from cvm.lowering.windows import Axis, axes_of
from cvm.quantization.exact import round_fraction
from cvm.quantization.rationals import Rationals

__all__: list[str] = []

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Image:
    """The input of a window operation: scale * q + rest for the value q of shape (N, C, H, W)."""

    value: str
    scale: Fraction
    rest: Fraction
    shape: Shape


@rule("conv")
def conv(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """Correlation with a constant filter, plus a constant bias."""
    attributes = operation.attributes
    known = lowering.constant(operation, "filter")
    if len(known.shape) != 4:
        raise lowering.unsupported(operation, f"only two spatial axes are lowered, found {len(known.shape) - 2}")
    value, scale, constant, form = lowering.coded(operation, "input")
    outputs, inputs, *sizes = known.shape
    groups = int(attributes["groups"]) or form.shape[1]  # type: ignore[arg-type]
    axes = axes_of(
        form.shape[2:], (sizes[0], sizes[1]), attributes["padding"], attributes["stride"], attributes["dilation"]
    )
    _require_zero_border(lowering, operation, axes, ("constant", "ignore"))
    image = _image(lowering, operation, value, scale, constant, axes)
    weights, rest = known.centred()
    per_output = [_channels(items) for items in (known.scale, rest)]
    sums = [_convolution(lowering, operation, image, axes, weights, groups, "weights")]
    factors = [per_output[0] * Rationals.scalar(image.scale, 4)]
    if not rest.is_zero():
        ones = np.ones((groups, inputs, *sizes), np.int64)
        total = _convolution(lowering, operation, image, axes, ones, groups, "ones")
        if 1 < groups < outputs:
            total = lowering.emit(operation, "repeat", total, repeats=outputs // groups, axis=1)
        sums.append(total)
        factors.append(per_output[1] * Rationals.scalar(image.scale, 4))
    border = _border(axes, weights.sum(axis=1), inputs, per_output[0], per_output[1], image.rest)
    terms = tuple(Term(total, factor) for total, factor in zip(sums, factors, strict=True))
    shape = lowering.output_shape(operation)
    result = LinearForm(shape, terms, border)
    bias = linear_operand(lowering, operation, _bias(lowering, operation), shape)
    return [sum_of(result, bias)]


def _bias(lowering: Lowering, operation: GraphOperation) -> LinearForm:
    known = lowering.constant(operation, "bias")
    return LinearForm(known.shape, (), known.rationals())


def _channels(items: Rationals) -> Rationals:
    """Coefficients per output channel of a filter, as coefficients of the result's axis 1."""
    if any(extent > 1 for extent in items.shape[1:]):
        raise AssertionError("a filter's quantiser runs along its output channels")
    return items.moved(lambda array: array.reshape(1, array.shape[0], 1, 1))


def _border(
    axes: tuple[Axis, ...], weights: Array, inputs: int, scale: Rationals, offset: Rationals, rest: Fraction
) -> Rationals:
    """Rest * (scale * V + offset * n) per output channel and position; ``weights`` are summed over input channels."""
    if rest == 0:
        return Rationals.scalar(0, 4)
    rows, columns = (axis.inside().astype(object) for axis in axes)
    if not any(axis.padded for axis in axes):
        rows, columns = rows[:1], columns[:1]
    valid = rows @ weights @ columns.T
    count = inputs * np.multiply.outer(rows.sum(axis=1), columns.sum(axis=1))
    total = Rationals(valid[None]) * scale + Rationals(count[None, None]) * offset
    return total * Rationals.scalar(rest, 4)


def _image(
    lowering: Lowering, operation: GraphOperation, value: str, scale: Fraction, constant: Fraction,
    axes: tuple[Axis, ...],
) -> _Image:  # fmt: skip
    """The input, moved to the integers around zero where padding would otherwise make every position different."""
    zero = round_fraction(-constant / scale, "half_up")
    if zero and any(axis.padded for axis in axes):
        shift = lowering.tensor_constant(operation, np.array([zero], dtype=object), "zero")
        value = lowering.emit(operation, "broadcast_sub", value, shift)
        constant += scale * zero
    return _Image(value, scale, constant, lowering.builder.shape(value))


def _convolution(
    lowering: Lowering, operation: GraphOperation, image: _Image, axes: tuple[Axis, ...], weights: Array, groups: int,
    what: str,
) -> str:  # fmt: skip
    """Emit conv2d; padding that is not the same on both sides is concatenated as zeros."""
    value, padding = image.value, []
    for i, axis in enumerate(axes):
        if axis.before == axis.after:
            padding.append(axis.before)
        else:
            value = _padded(lowering, operation, value, i + 2, axis, 0)
            padding.append(0)
    constant = lowering.tensor_constant(operation, weights, what)
    return lowering.emit(
        operation, "conv2d", value, constant, padding=tuple(padding), stride=tuple(axis.stride for axis in axes),
        dilation=tuple(axis.dilation for axis in axes), groups=groups,
    )  # fmt: skip


def _padded(lowering: Lowering, operation: GraphOperation, value: str, axis: int, sides: Axis, fill: int) -> str:
    """Emit ``value`` with rows of ``fill`` before and after it."""
    shape = list(lowering.builder.shape(value))
    parts = []
    for extent in (sides.before, 0, sides.after):
        if extent:
            shape[axis] = extent
            parts.append(lowering.tensor_constant(operation, np.full(shape, fill, dtype=object), "padding"))
        elif not parts or parts[-1] != value:
            parts.append(value)
    return lowering.emit(operation, "concatenate", *parts, axis=axis)


def _require_zero_border(
    lowering: Lowering, operation: GraphOperation, axes: tuple[Axis, ...], allowed: tuple[str, ...]
) -> None:
    border = operation.attributes["border"]
    if border not in allowed and any(axis.padded for axis in axes):
        raise lowering.unsupported(operation, f"border {border!r} is not lowered together with padding")


def _pool_axes(lowering: Lowering, operation: GraphOperation, shape: Shape) -> tuple[Axis, ...]:
    """The spatial axes of a pooling operation, whose window must not reach over batch or channels."""
    attributes = operation.attributes
    size = tuple(int(extent) for extent in attributes["size"])  # type: ignore[union-attr, arg-type]
    if len(shape) != 4:
        raise lowering.unsupported(operation, f"only two spatial axes are lowered, found {len(shape) - 2}")
    axes = axes_of(shape, size, attributes["padding"], attributes["stride"], attributes["dilation"])
    if any(axis.size != 1 or axis.stride != 1 or axis.padded for axis in axes[:2]):
        raise lowering.unsupported(operation, "a window over batch or channels is not lowered")
    return axes[2:]


@rule("max_pool")
def max_pool(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """The greatest item of each window. A positive factor is monotone, so that it is found among the integers."""
    value, factor, constant, form = lowering.coded(operation, "input")
    axes = _pool_axes(lowering, operation, form.shape)
    _require_zero_border(lowering, operation, axes, ("ignore",))
    if any(axis.dilation != 1 for axis in axes):
        raise lowering.unsupported(operation, "dilation is not lowered")
    least = lowering.builder.range(value).hull()[0]
    padding = []
    for i, axis in enumerate(axes):
        if axis.before == axis.after < axis.size:
            padding.append(axis.before)
        else:
            # The least integer never exceeds an item of the window, as long as the window holds one.
            if not axis.inside().any(axis=1).all():
                raise lowering.unsupported(operation, "a window lies in the padding altogether")
            value = _padded(lowering, operation, value, i + 2, axis, least)
            padding.append(0)
    pooled = lowering.emit(
        operation, "max_pool2d", value, pool_size=tuple(axis.size for axis in axes), padding=tuple(padding),
        strides=tuple(axis.stride for axis in axes), ceil_mode=False,
    )  # fmt: skip
    rank = form.rank
    term = Term(pooled, Rationals.scalar(factor, rank))
    return [LinearForm(lowering.builder.shape(pooled), (term,), Rationals.scalar(constant, rank))]


@rule("avg_pool", "box")
def avg_pool(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """The mean (or for box without ``normalize`` the sum) of each window.

    Border 'constant' counts the padding as zeros and divides by the volume of the window; 'ignore' divides by the
    number of items inside the image.
    """
    value, scale, constant, form = lowering.coded(operation, "input")
    axes = _pool_axes(lowering, operation, form.shape)
    _require_zero_border(lowering, operation, axes, ("constant", "ignore"))
    channels = form.shape[1]
    image = _Image(value, scale, constant, form.shape)
    ones = np.ones((channels, 1, *(axis.size for axis in axes)), np.int64)
    total = _convolution(lowering, operation, image, axes, ones, channels, "ones")
    rows, columns = (axis.inside().sum(axis=1).astype(object) for axis in axes)
    if not any(axis.padded for axis in axes):
        rows, columns = rows[:1], columns[:1]
    count = Rationals(np.multiply.outer(rows, columns)[None, None])
    divisor = Rationals.scalar(1, 4)
    if operation.name == "avg_pool" or operation.attributes["normalize"]:
        ignore = operation.attributes["border"] == "ignore"
        divisor = count if ignore else Rationals.scalar(axes[0].size * axes[1].size, 4)
    factor = Rationals.scalar(scale, 4) / divisor
    rest = Rationals.scalar(0, 4) if constant == 0 else count * Rationals.scalar(constant, 4) / divisor
    return [LinearForm(lowering.builder.shape(total), (Term(total, factor),), rest)]
