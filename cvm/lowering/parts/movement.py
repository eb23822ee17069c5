"""Operations that only move items, for tensors of every form.

An op of the program moves the values of a form; its factors and constants are moved in the same way when compiling.
Nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.bounds import magnitude
from cvm.errors import Unsupported
from cvm.limits import INT32_MAX
from cvm.lowering.context import Coded, Lowering, Result
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import Form, Known, LinearForm, Shape, SurdForm, TableForm, Term
from cvm.lowering.parts.operands import codes_of
from cvm.lowering.proofs.table import MOST_ENTRIES, Operand, tabulate
from cvm.quantization import LinearQuantizer, Quantizer
from cvm.quantization.exact import quantize_rationals
from cvm.quantization.rationals import Rationals

__all__ = ["joined", "moved", "sliced", "valued"]

Array = npt.NDArray[Any]
Move = Callable[[Array], Array]


def moved(
    lowering: Lowering, operand: Operand, shape: Shape, move: Move, op: str, *others: Value, **attributes: Any
) -> Operand:
    """The operand after a movement: ``op`` moves values of the program, ``move`` moves arrays in the same way.

    ``shape`` is the shape of the result; ``others`` and ``attributes`` are further inputs and the attributes of the op.
    A pending clamp is kept, because it is the same for all items.
    """
    before = operand.shape

    def rearranged(items: Rationals) -> Rationals:
        return Rationals.scalar(items.item(), len(shape)) if items.uniform else items.selected(before, move)

    def emitted(value: Value) -> Value:
        return lowering.emit(op, value.broadcast(before), *others, **attributes)

    if isinstance(operand, Known):
        return Known(move(operand.codes), rearranged(operand.scale), rearranged(operand.offset))
    if isinstance(operand, TableForm):
        return TableForm(shape, emitted(operand.value), operand.numbers)
    if isinstance(operand, SurdForm):
        return operand.moved(emitted, rearranged, shape)
    terms = tuple(Term(emitted(term.value), rearranged(term.factor)) for term in operand.terms)
    return replace(operand, shape=shape, terms=terms, constant=rearranged(operand.constant))


def sliced(lowering: Lowering, operand: Operand, slices: Sequence[slice], drop: int | None = None) -> Operand:
    """The part of the operand that one slice per axis selects. Axis ``drop``, which then has extent 1, is removed."""
    begin, end, step = zip(*(part.indices(n) for part, n in zip(slices, operand.shape, strict=True)), strict=True)
    extents = tuple(len(range(*ends)) for ends in zip(begin, end, step, strict=True))
    result = operand
    if extents != operand.shape:
        result = moved(
            lowering, operand, extents, lambda items: items[tuple(slices)], "slice",
            begin=begin, end=end, strides=step,
        )  # fmt: skip
    if drop is None:
        return result
    shape = (*extents[:drop], *extents[drop + 1 :]) or (1,)
    return moved(lowering, result, shape, lambda items: items.reshape(shape), "reshape", target_shape=shape)


def valued(lowering: Lowering, operand: Known, what: str) -> LinearForm:
    """A constant tensor as a linear form in constants of the program: one constant, or one per digit of wide integers.

    Every factor is the tensor's scale times the weight of the digit; ``what`` labels the constants.
    """
    codes, scale, terms = operand.codes, operand.scale, []
    if magnitude(codes) > INT32_MAX:
        codes = codes.astype(object)
    while magnitude(codes) > INT32_MAX:
        low = (codes + 2 ** (_DIGIT - 1)) % 2**_DIGIT - 2 ** (_DIGIT - 1)
        terms.append(Term(lowering.tensor_constant(low, what), scale))
        codes = (codes - low) // 2**_DIGIT
        scale = scale * Rationals.scalar(2**_DIGIT, codes.ndim)
    terms.append(Term(lowering.tensor_constant(codes, what), scale))
    return LinearForm(operand.shape, tuple(terms), operand.offset)


_DIGIT = 30


def joined(lowering: Lowering, parts: Sequence[Operand], axis: int) -> Result:
    """Concatenate the parts along an axis.

    Constants give a constant. Linear forms give a linear form: its k-th value concatenates the k-th values of all
    parts, with zeros for a part that has fewer values. Other parts become one table. If that has too many entries, each
    part is quantised by the quantiser of the result. Raises `Unsupported` if the result then has no quantiser.
    """
    shape = lowering.output_shape()
    if all(isinstance(part, Known) for part in parts):
        return _known(parts, axis)
    if all(isinstance(part, Known) or (isinstance(part, LinearForm) and not part.clamped) for part in parts):
        forms = [_summand(lowering, part) if isinstance(part, Known) else part for part in parts]
        return _sums(lowering, forms, axis)  # type: ignore[arg-type]
    try:
        return _tables(lowering, parts, axis)
    except Unsupported:
        quantizer = lowering.quantizer()
        if quantizer is None:
            raise lowering.unsupported("the parts are not alike: give the result a quantiser") from None
        values = [_codes(lowering, part, quantizer, axis, start) for part, start in _placed(parts, axis)]
        value = lowering.emit("concatenate", *values, label="", axis=axis)
        assert value.shape == shape
        return Coded(value, note="codes side by side", any_rounding=True)


def _placed(parts: Sequence[Operand], axis: int) -> list[tuple[Operand, int]]:
    """Each part with the index along ``axis`` at which it starts in the result."""
    starts = np.cumsum([0, *(part.shape[axis] for part in parts)])
    return [(part, int(start)) for part, start in zip(parts, starts, strict=False)]


def _known(parts: Sequence[Operand], axis: int) -> Known:
    values = [part.rationals() for part in parts if isinstance(part, Known)]
    whole = _beside(values, [part.shape for part in parts], axis)
    rank = len(parts[0].shape)
    whole = whole.broadcast(
        [sum(part.shape[i] for part in parts) if i == axis else parts[0].shape[i] for i in range(rank)]
    )
    return Known.of(whole)


def _summand(lowering: Lowering, part: Known) -> LinearForm:
    """A constant part as a linear form: with one term if its integers fit 32 bits, else with a constant only."""
    if max(abs(code) for code in part.codes.ravel().tolist()) <= INT32_MAX:
        return valued(lowering, part, "part")
    return LinearForm(part.shape, (), part.rationals())


def _sums(lowering: Lowering, forms: Sequence[LinearForm], axis: int) -> LinearForm:
    shapes = [form.shape for form in forms]
    terms = []
    for number in range(max(len(form.terms) for form in forms)):
        values, factors = [], []
        for form in forms:
            if number < len(form.terms):
                term = form.terms[number]
                values.append(term.value.broadcast(form.shape))
                factors.append(term.factor)
            else:
                values.append(lowering.tensor_constant(np.zeros(form.shape, dtype=object), "zeros"))
                factors.append(Rationals.scalar(0, form.rank))
        value = lowering.emit("concatenate", *values, axis=axis) if len(values) > 1 else values[0]
        terms.append(Term(value, _beside(factors, shapes, axis)))
    constant = _beside([form.constant for form in forms], shapes, axis)
    return LinearForm(lowering.output_shape(), tuple(terms), constant)


def _tables(lowering: Lowering, parts: Sequence[Operand], axis: int) -> TableForm:
    tables = []
    for part in parts:
        if isinstance(part, Known):
            part = valued(lowering, part, "part")
        table = part if isinstance(part, TableForm) else tabulate(lowering, [part], lambda x: x, part.shape)
        tables.append(table)
    if sum(len(table.numbers) for table in tables) > MOST_ENTRIES:
        raise lowering.unsupported("the parts have too many values together")
    values, start = [], 0
    for table in tables:
        value = table.value
        if start:
            shift = lowering.tensor_constant([start], "start")
            value = value + shift
        values.append(value)
        start += len(table.numbers)
    value = lowering.emit("concatenate", *values, axis=axis) if len(values) > 1 else values[0]
    numbers = tuple(number for table in tables for number in table.numbers)
    return TableForm(lowering.output_shape(), value, numbers)


def _codes(lowering: Lowering, part: Operand, quantizer: Quantizer, axis: int, start: int) -> Value:
    """Emit the codes of the part that starts at index ``start``, under its section of a quantiser along ``axis``."""
    if isinstance(quantizer, LinearQuantizer) and quantizer.axis == axis:
        own = slice(start, start + part.shape[axis])
        quantizer = replace(quantizer, scale=quantizer.scale[own], offset=quantizer.offset[own])
    if isinstance(part, Known):
        codes = quantize_rationals(part.rationals().broadcast(part.shape), quantizer)
        return lowering.tensor_constant(codes, "part")
    form: Form = part
    return codes_of(lowering, form, quantizer, "part")


def _beside(parts: Sequence[Rationals], shapes: Sequence[Shape], axis: int) -> Rationals:
    """Concatenate coefficients of parts of the given shapes along ``axis``.

    Other axes keep extent 1 if all parts have it there; so does ``axis`` if all coefficients are one number.
    """
    if all(part.uniform for part in parts) and len({part.item() for part in parts}) == 1:
        return parts[0]
    whole = [Rationals(part.numerators, part.denominator) for part in parts]
    denominators = [part.denominator for part in whole]
    common = int(np.lcm.reduce(np.array(denominators, dtype=object)))
    extents = [max(part.shape[i] for part in whole) for i in range(len(shapes[0]))]
    arrays = []
    for part, shape in zip(whole, shapes, strict=True):
        extents[axis] = shape[axis]
        arrays.append(np.broadcast_to(part.over(common), extents))
    return Rationals(np.concatenate(arrays, axis=axis), common)
