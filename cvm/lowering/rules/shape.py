"""Tensor shape operations (NNEF 1.0.1 section 4.5, and pad, tile, gather and cast of the Khronos dialect)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.limits import INT32_MAX
from cvm.lowering.claims import PARTS, exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import Known, LinearForm, SurdForm, TableForm, Term
from cvm.lowering.parts.movement import joined, moved, sliced, valued
from cvm.lowering.parts.operands import codes_of, function, integers, scaled
from cvm.lowering.proofs.table import Operand, tabulate
from cvm.lowering.rules.logic import not_zero
from cvm.quantization import LinearQuantizer
from cvm.quantization.exact import round_fraction
from cvm.quantization.rationals import Rationals
from cvm.quantization.reals import FUNCTIONS, Real, rational

__all__: list[str] = []


@rule(
    "reshape",
    "squeeze",
    "unsqueeze",
    claim=exact("the integers move"),
)
def reshape(lowering: Lowering) -> list[Result]:
    """The same items in another shape, in the same row-major order."""
    operand, shape = lowering.stored("input"), lowering.output_shape()
    if operand.shape == shape:
        return [operand]
    return [moved(lowering, operand, shape, lambda a: a.reshape(shape), "reshape", target_shape=shape)]


@rule(
    "transpose",
    claim=exact("the integers move"),
)
def transpose(lowering: Lowering) -> list[Result]:
    """A permutation of the leading axes."""
    operand, leading = lowering.stored("input"), lowering.integers("axes")
    if not leading:
        return [operand]
    axes = (*leading, *range(len(leading), len(operand.shape)))
    shape = lowering.output_shape()
    return [moved(lowering, operand, shape, lambda a: a.transpose(axes), "transpose", axes=axes)]


@rule(
    "concat",
    claim=exact("the integers are concatenated; parts with other scales keep their own", PARTS),
)
def concat(lowering: Lowering) -> list[Result]:
    """The parts concatenated along an axis."""
    return [joined(lowering, _parts(lowering), lowering.integer("axis"))]


@rule(
    "stack",
    claim=exact("the integers are concatenated; parts with other scales keep their own", PARTS),
)
def stack(lowering: Lowering) -> list[Result]:
    """The parts concatenated along a new axis."""
    axis = lowering.integer("axis")
    whole = lowering.output_shape()
    shape = (*whole[:axis], 1, *whole[axis + 1 :])
    parts = [
        moved(lowering, part, shape, lambda a: a.reshape(shape), "reshape", target_shape=shape)
        for part in _parts(lowering)
    ]
    return [joined(lowering, parts, axis)]


def _parts(lowering: Lowering) -> list[Operand]:
    parts = lowering.operation.inputs["values"]
    if not isinstance(parts, tuple):
        raise lowering.unsupported("values must be an array of tensors")
    return [lowering.operand_of(part, "values") for part in parts]


@rule(
    "split",
    "unstack",
    claim=exact("the integers move"),
)
def split(lowering: Lowering) -> list[Result]:
    """Sections along an axis. The sections of unstack have extent 1, and the axis is removed."""
    operand, axis = lowering.operand("value"), lowering.integer("axis")
    unstack = lowering.operation.name == "unstack"
    ratios = (1,) * len(lowering.operation.outputs) if unstack else lowering.integers("ratios")
    unit = operand.shape[axis] // sum(ratios)
    results: list[Result] = []
    start = 0
    for ratio in ratios:
        slices = [slice(None)] * len(operand.shape)
        slices[axis] = slice(start, start + ratio * unit)
        results.append(sliced(lowering, operand, slices, axis if unstack else None))
        start += ratio * unit
    return results


@rule(
    "slice",
    claim=exact("the integers move", "a stride is below 1"),
)
def slice_(lowering: Lowering) -> list[Result]:
    """A section along some axes. A negative end counts from the end of the axis, and an end of 0 is its end."""
    operand = lowering.operand("input")
    axes, begin, end = (lowering.integers(name) for name in ("axes", "begin", "end"))
    stride = lowering.integers("stride") or (1,) * len(axes)
    slices = [slice(None)] * len(operand.shape)
    for axis, first, last, step in zip(axes, begin, end, stride, strict=True):
        if step < 1:
            raise lowering.unsupported(f"stride {step} is not lowered")
        extent = operand.shape[axis]
        slices[axis] = slice(first + extent if first < 0 else first, last + extent if last <= 0 else last, step)
    return [sliced(lowering, operand, slices)]


@rule(
    "tile",
    claim=exact("the integers move"),
)
def tile(lowering: Lowering) -> list[Result]:
    """The whole tensor repeated along its axes."""
    operand, repeats = lowering.operand("input"), lowering.integers("repeats")
    shape = lowering.output_shape()
    if operand.shape == shape:
        return [operand]
    return [moved(lowering, operand, shape, lambda a: np.tile(a, repeats), "tile", reps=repeats)]


@rule(
    "copy_n",
    claim=exact("the same integers; each copy is rounded by its own quantiser"),
)
def copy_n(lowering: Lowering) -> list[Result]:
    """The same tensor several times; each copy has its own quantiser."""
    return [lowering.operand("x") for _ in lowering.operation.outputs]


# pad


@rule(
    "pad",
    claim=exact("the integers are padded with integers; a value that no code stands for is added as a constant"),
)
def pad(lowering: Lowering) -> list[Result]:
    """The tensor with items added before and after it along every axis. Negative padding removes items."""
    operand = lowering.operand("input")
    padding = _pairs(lowering.operation.attributes["padding"])
    if not padding:  # the operand is a single number
        return [operand]
    border = str(lowering.operation.attributes["border"])
    slices = [slice(max(-p, 0), n - max(-q, 0)) for (p, q), n in zip(padding, operand.shape, strict=True)]
    if border == "constant":
        operand = sliced(lowering, operand, slices)
        value = lowering.fraction("value")
        return [_padded_with(lowering, operand, [(max(p, 0), max(q, 0)) for p, q in padding], value)]
    for axis, (before, after) in enumerate(padding):
        if before or after:
            operand = _reflected(lowering, operand, axis, before, after, border)
    return [operand]


def _pairs(attribute: Any) -> list[tuple[int, int]]:
    return [(int(before), int(after)) for before, after in attribute]


def _reflected(lowering: Lowering, operand: Operand, axis: int, before: int, after: int, border: str) -> Operand:
    """The operand padded along one axis with items from other positions of this axis."""
    extent = operand.shape[axis]
    at = np.arange(-before, extent + after)
    outside = (at < 0) | (at >= extent)
    if border == "replicate":
        mirrored = np.clip(at, 0, extent - 1)
    elif border == "reflect":
        mirrored = np.where(at < 0, -at, 2 * (extent - 1) - at)
    elif border == "reflect-even":
        mirrored = np.where(at < 0, -at - 1, 2 * extent - 1 - at)
    else:
        raise lowering.unsupported(f"border {border!r} is not lowered")
    at = np.where(outside, mirrored, at)
    if at.min() < 0 or at.max() >= extent:
        raise lowering.unsupported("the padding reflects to items that do not exist")
    return _taken(lowering, operand, at, axis)


def _taken(lowering: Lowering, operand: Operand, at: npt.NDArray[np.int64], axis: int) -> Operand:
    """The items at the constant indices ``at`` along ``axis``; the axes of ``at`` replace that axis."""
    shape = (*operand.shape[:axis], *at.shape, *operand.shape[axis + 1 :])
    indices = lowering.tensor_constant(at.astype(object), "indices")

    return moved(lowering, operand, shape, lambda a: np.take(a, at, axis), "take", indices, axis=axis)


def _padded_with(lowering: Lowering, operand: Operand, padding: list[tuple[int, int]], value: Fraction) -> Operand:
    """The operand padded with the real number ``value``. ``padding`` gives the items before and after it, per axis.

    The integers of a form with one term are padded with the integer nearest to ``value``. The difference is added to
    the constant of the form, which then varies by position.
    """
    shape = tuple(p + n + q for (p, q), n in zip(padding, operand.shape, strict=True))
    if shape == operand.shape:
        return operand
    if (isinstance(operand, LinearForm) and operand.clamped) or not isinstance(operand, LinearForm | TableForm | Known):
        operand = tabulate(lowering, [operand], lambda x: x, operand.shape)
    if isinstance(operand, Known):
        whole = operand.rationals().broadcast(operand.shape)
        common = Rationals.scalar(value, len(shape))
        padded = _surrounded(whole, padding, common)
        return Known.of(padded)
    if isinstance(operand, TableForm):
        last = len(operand.numbers)
        padded_value = _bordered(lowering, operand.value, padding, last)
        return TableForm(shape, padded_value, (*operand.numbers, rational(value)))
    fill = 0
    if len(operand.terms) == 1 and operand.terms[0].factor.uniform and operand.constant.uniform:
        fill = round_fraction((value - operand.constant.item()) / operand.terms[0].factor.item(), "half_up")
        fill = fill if abs(fill) <= INT32_MAX else 0
    terms, rest = [], value
    for term in operand.terms:
        full = term.value.broadcast(operand.shape)
        factor = term.factor
        if factor.uniform:
            rest -= fill * factor.item()
            factor = Rationals.scalar(factor.item(), len(shape))
        else:
            factor = _surrounded(factor.broadcast(operand.shape), padding, Rationals.scalar(0, len(shape)))
        terms.append(Term(_bordered(lowering, full, padding, fill), factor))
    if operand.constant.uniform and operand.constant.item() == rest:
        constant = Rationals.scalar(rest, len(shape))
    else:
        constant = _surrounded(operand.constant.broadcast(operand.shape), padding, Rationals.scalar(rest, len(shape)))
    return LinearForm(shape, tuple(terms), constant)


def _surrounded(items: Rationals, padding: list[tuple[int, int]], value: Rationals) -> Rationals:
    """Coefficients in their full shape, padded with the number ``value``."""
    denominator = math.lcm(items.denominator, value.denominator)
    inner, around = items.over(denominator), value.over(denominator).item()
    whole = np.full([p + n + q for (p, q), n in zip(padding, inner.shape, strict=True)], around, dtype=object)
    whole[tuple(slice(p, p + n) for (p, _), n in zip(padding, inner.shape, strict=True))] = inner
    return Rationals(whole, denominator)


def _bordered(lowering: Lowering, value: Value, padding: list[tuple[int, int]], fill: int) -> Value:
    """Emit ``value`` padded with the integer ``fill``, axis by axis."""
    for axis, sides in enumerate(padding):
        shape = list(value.shape)
        parts = [value]
        for side, extent in enumerate(sides):
            if extent:
                shape[axis] = extent
                constant = lowering.tensor_constant(np.full(shape, fill, dtype=object), "padding")
                parts.insert(0 if side == 0 else len(parts), constant)
        if len(parts) > 1:
            value = lowering.emit("concatenate", *parts, axis=axis)
    return value


# gather


@rule(
    "gather",
    claim=exact("one take", "a constant index lies outside of the axis"),
)
def gather(lowering: Lowering) -> list[Result]:
    """The items at given indices along an axis. A computed index is clipped to the indices that exist."""
    operand, indices = lowering.stored("input"), lowering.operand("indices")
    axis = lowering.integer("axis")
    if isinstance(indices, Known):
        at = _positions(lowering, indices, operand.shape[axis])
        return [_taken(lowering, operand, at, axis)]
    if isinstance(operand, Known):
        operand = valued(lowering, operand, "input")
    value = integers(lowering, "indices")
    shape = lowering.output_shape()
    if any(extent > 1 for items in _coefficients(operand) for extent in items.shape[axis : axis + 1]):
        operand = tabulate(lowering, [operand], lambda x: x, operand.shape)
    first = np.zeros(value.shape, np.int64)  # coefficients are the same at all positions
    return [moved(lowering, operand, shape, lambda a: np.take(a, first, axis), "take", value, axis=axis)]


def _coefficients(operand: Operand) -> list[Rationals]:
    if isinstance(operand, LinearForm):
        return [operand.constant, *(term.factor for term in operand.terms)]
    if isinstance(operand, SurdForm):
        return [*(term.factor for term in operand.terms), operand.origin, operand.offset, operand.radicand]
    return []


def _positions(lowering: Lowering, indices: Known, extent: int) -> npt.NDArray[np.int64]:
    numbers = indices.rationals()
    if any(item % numbers.denominator for item in numbers.numerators.ravel().tolist()):
        raise lowering.unsupported("the indices are not integers")
    at = (numbers.numerators // numbers.denominator).astype(object)
    if at.min() < 0 or at.max() >= extent:
        raise lowering.unsupported(f"an index lies outside of [0, {extent - 1}]")
    return np.asarray(at, np.int64)


# cast


@rule(
    "cast",
    claim=exact("to integer by two exact floors; to logical by two comparisons"),
)
def cast(lowering: Lowering) -> list[Result]:
    """To logical: whether x is not 0. To integer: x truncated toward zero. To scalar: x."""
    (source,) = lowering.operation.inputs.values()
    before = lowering.tensor(source, "input").dtype
    after = lowering.graph.tensors[lowering.operation.outputs[0]].dtype
    if after == "scalar" or before in (after, "logical"):
        return [lowering.operand("input")]
    if after == "logical":
        return [not_zero(lowering, "input")]
    if before == "integer":
        return [lowering.operand("input")]
    return [_truncated(lowering)]


def _truncated(lowering: Lowering) -> Result:
    """max(floor(x), 0) + min(ceil(x), 0)."""
    operand = lowering.operand("input")
    if not isinstance(operand, LinearForm) or operand.clamped:
        return function(lowering, ["input"], _truncated_number)
    # floor(x) is the code of x under a quantiser whose code k stands for k + 1/2; ceil(x) is -floor(-x).
    below = LinearQuantizer((Fraction(1),), (Fraction(1, 2),), 0, INT32_MAX)
    positive = codes_of(lowering, operand, below, "floor")
    negated = scaled(operand, lambda factor: -factor)
    negative = codes_of(lowering, negated, below, "ceil")
    value = positive - negative
    one = Rationals.scalar(1, operand.rank)
    return LinearForm(operand.shape, (Term(value, one),), Rationals.scalar(0, operand.rank))


def _truncated_number(x: Real) -> Real:
    return FUNCTIONS["floor"](x) if x.sign >= 0 else FUNCTIONS["ceil"](x)
