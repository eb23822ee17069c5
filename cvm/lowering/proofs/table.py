"""Exact tables of functions whose operands have few combinations of codes.

The codes of all operands at an element are combined into one index. If coefficients vary, the index also contains the
variant, which is the combination of coefficients at that position. The table holds one real number per index. It
becomes a table of integers, which one ``cvm_lut`` reads, if the result has a quantiser (`quantize_table`), or if all
its numbers are multiples of a unit (`lattice`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.errors import Location, Unsupported
from cvm.limits import INT32_MAX
from cvm.lowering.forms.emission import Emission, Value
from cvm.lowering.forms.form import Known, LinearForm, Shape, SurdForm, TableForm, Term, known_codes
from cvm.lowering.forms.logarithms import known_power_codes
from cvm.lowering.forms.unquantized import unquantized
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer
from cvm.quantization.float_enclosures import FloatInterval
from cvm.quantization.many import Numbers, codes_of, enclosed, integers, interval_of, many_rationals, taken
from cvm.quantization.rationals import Rationals
from cvm.quantization.reals import Real, Undecided, Undefined, code, power, rational
from cvm.records import dataclass
from cvm.timing import timed

__all__ = ["MOST_ENTRIES", "Operand", "folded", "lattice", "quantize_table", "tabulate"]

MOST_ENTRIES = 2**18
"""The most entries of one table: two operands of 8 bits, or one of 16 bits, in up to four variants."""

_HALF = Fraction(1, 2)

Operand: TypeAlias = LinearForm | SurdForm | TableForm | Known


@dataclass(frozen=True, slots=True)
class _Source:
    """How to compute the numbers of one operand: by ``number(xs, c)``.

    ``xs`` are the integers of ``values`` at one element, or arrays of them for many elements; ``c`` are the
    coefficients there.
    """

    values: tuple[Value, ...]
    coefficients: tuple[Rationals, ...]
    number: Callable[[Sequence[Any], Sequence[Real]], Real]


def _source(operand: Operand) -> _Source:
    if isinstance(operand, Known):
        return _Source((), (operand.rationals(),), lambda xs, c: c[0])
    if isinstance(operand, TableForm):
        return _Source((operand.value,), (), _looked_up(operand.numbers))
    values, factors = tuple(term.value for term in operand.terms), tuple(term.factor for term in operand.terms)
    lower, upper = operand.lower, operand.upper

    def clamped(total: Real) -> Real:
        total = total if upper is None or total.compare(upper) < 0 else rational(upper)
        return total if lower is None or total.compare(lower) > 0 else rational(lower)

    def linear(xs: Sequence[Any], c: Sequence[Real]) -> Real:
        return sum((factor * _integer(x) for factor, x in zip(c, xs, strict=False)), c[len(xs)])

    if isinstance(operand, SurdForm):

        def surd(xs: Sequence[Any], c: Sequence[Real]) -> Real:
            offset, radicand = c[-2:]
            return clamped(offset + linear(xs, c) * _inverse_root(radicand))

        return _Source(values, (*factors, operand.origin, operand.offset, operand.radicand), surd)
    return _Source(values, (*factors, operand.constant), lambda xs, c: clamped(linear(xs, c)))


def _looked_up(numbers: Sequence[Real]) -> Callable[[Sequence[Any], Sequence[Real]], Real]:
    interval = interval_of(numbers)
    return lambda xs, c: numbers[xs[0]] if isinstance(xs[0], int) else taken(interval, xs[0])


def _integer(x: int | npt.NDArray[np.int64]) -> Real:
    return rational(x) if isinstance(x, int) else integers(x)


def _inverse_root(radicand: Real) -> Real:
    """1 / sqrt(radicand). For a single number it is cached, so that all codes of a channel share its digits."""
    return power(radicand, -_HALF) if radicand.exact is None else _inverse_root_of(radicand.exact)


@lru_cache(maxsize=4096)
def _inverse_root_of(radicand: Fraction) -> Real:
    return power(rational(radicand), -_HALF)


def tabulate(
    lowering: Emission,
    operands: Sequence[Operand],
    function: Callable[..., Real],
    shape: Shape,
) -> TableForm:
    """Tabulate ``function`` of the operands, element by element. They have the rank of ``shape`` and broadcast to it.

    Raises `Unsupported` if the operands have too many combinations of codes (``lowering.unquantized``), or if the
    function has no value for a code (``lowering.undefined``).
    """
    sources = [_source(operand) for operand in operands]
    values = list(dict.fromkeys(value for source in sources for value in source.values))
    spans = [value.range.hull() for value in values]
    keys, where = _variants([coefficient for source in sources for coefficient in source.coefficients], len(shape))
    entries = len(keys) * math.prod(hi - lo + 1 for lo, hi in spans)
    if not values or entries > MOST_ENTRIES:
        message = (
            f"{lowering.operation.name} is lowered by a table, for operands of at most {MOST_ENTRIES} combinations of "
            f"codes; here there are {entries}: give the operands quantisers of fewer bits"
        )
        raise unquantized(message, lowering.location)
    table = _Table(lowering.operation.name, lowering.location, sources, values, spans, keys, function)
    return TableForm(shape, _index(lowering, values, spans, where, shape), table.numbers(entries))


@dataclass(frozen=True, slots=True)
class _Table:
    """The numbers of an operation, for each key (a combination of coefficients) and each combination of integers."""

    name: str
    location: Location
    sources: Sequence[_Source]
    values: Sequence[Value]
    spans: Sequence[tuple[int, int]]
    keys: Sequence[tuple[Fraction, ...]]
    function: Callable[..., Real]

    def numbers(self, entries: int) -> Sequence[Real]:
        """All numbers. Raises `Unsupported` for the first one that has no value."""
        with timed("tables", self.name):
            together = self._enclosed(self.keys, entries)
            return Numbers(together, self.entry)

    def _enclosed(self, keys: Sequence[tuple[Fraction, ...]], entries: int) -> FloatInterval:
        columns = [
            rational(column[0]) if len(set(column)) == 1 else many_rationals(column)
            for column in zip(*keys, strict=True)
        ]
        extents = [len(keys), *(hi - lo + 1 for lo, hi in self.spans)]

        def of_entries(at: npt.NDArray[np.intp]) -> Real:
            key, *codes = np.unravel_index(at, extents)
            xs = {value: code + lo for value, code, (lo, _) in zip(self.values, codes, self.spans, strict=True)}
            return self._number(xs, [item if isinstance(item, Real) else taken(item, key) for item in columns])

        return enclosed(entries, of_entries)

    def entry(self, index: int) -> Real:
        """One number. Raises `Unsupported` if the function has no value there, or if it cannot be decided."""
        codes = []
        for lo, hi in reversed(self.spans):
            index, code = divmod(index, hi - lo + 1)
            codes.append(lo + code)
        held = dict(zip(self.values, reversed(codes), strict=True))
        try:
            return self._number(held, [rational(item) for item in self.keys[index]])
        except (Undefined, Undecided) as error:
            at = ", ".join(f"{value} = {item}" for value, item in held.items())
            what = "undefined" if isinstance(error, Undefined) else "undecided"
            raise Unsupported(f"lowering.{what}", f"{self.name} at the codes {at}: {error}", self.location) from None

    def _number(self, held: Mapping[Value, Any], coefficients: Sequence[Real]) -> Real:
        """The function of the integers ``held``, or of arrays of them, and the coefficients there."""
        rest, arguments = iter(coefficients), []
        for source in self.sources:
            own = [next(rest) for _ in source.coefficients]
            arguments.append(source.number([held[value] for value in source.values], own))
        return self.function(*arguments)


def _variants(coefficients: Sequence[Rationals], rank: int) -> tuple[list[tuple[Fraction, ...]], npt.NDArray[Any]]:
    """The distinct combinations of coefficients, and an array with the index of the combination at each position."""
    if not coefficients:
        return [()], np.zeros((1,) * rank, np.int64)
    whole = np.broadcast_shapes((1,) * rank, *(item.shape for item in coefficients))
    columns = [item.broadcast(whole).fractions() for item in coefficients]
    index: dict[tuple[Fraction, ...], int] = {}
    where = np.array([index.setdefault(key, len(index)) for key in zip(*columns, strict=True)], np.int64)
    return list(index), where.reshape(whole)


def _index(
    lowering: Emission, values: Sequence[Value], spans: Sequence[tuple[int, int]], where: npt.NDArray[Any], shape: Shape
) -> Value:
    """Emit the index into a table that has one entry per combination of codes for the first variant, then for the next.

    ``spans`` are the intervals of the values; ``where`` is the variant at each position.
    """
    steps = [math.prod(hi - lo + 1 for lo, hi in spans[i + 1 :]) for i in range(len(spans))]
    run = math.prod(hi - lo + 1 for lo, hi in spans)
    start = where * run - sum(lo * step for (lo, _), step in zip(spans, steps, strict=True))
    if len(values) == 1 and not start.any() and values[0].shape == shape:
        return values[0]
    order = sorted(range(len(values)), key=lambda i: values[i].shape != shape)
    terms = [values[i] for i in order]
    if terms[0].shape != shape:
        zeros = lowering.tensor_constant(np.zeros(shape, dtype=object), "zeros")
        terms[0] = terms[0] + zeros
    rank = len(shape)
    parameters = [
        *(lowering.parameter(np.full((1,) * rank, steps[i]), "step", plain=True) for i in order),
        lowering.parameter(start, "start", plain=True),
        lowering.parameter(np.zeros((1,) * rank), "shift", plain=True),
    ]
    last = int(where.max() + 1) * run - 1
    return lowering.emit("requantize", *terms, *parameters, rounding="half_up", lo=0, hi=last)


def quantize_table(lowering: Emission, form: TableForm, quantizer: Quantizer) -> Value:
    """Emit the codes of a table form under ``quantizer``, as a value named after the owner: one ``cvm_lut``.

    Raises `Unsupported` if a number has no code (``lowering.undefined``) or its code cannot be decided
    (``lowering.undecided``).
    """
    try:
        channels = len(quantizer.scale) if isinstance(quantizer, LinearQuantizer) else 1
        with timed("tables", lowering.operation.name):
            tables = [codes_of(form.numbers, quantizer, i) for i in range(channels)]
    except (Undefined, Undecided) as error:
        what = "undefined" if isinstance(error, Undefined) else "undecided"
        message = f"a code of {lowering.owner!r} cannot be decided: {error}"
        raise Unsupported(f"lowering.{what}", message, lowering.location) from None
    value = form.value
    if quantizer.axis is not None:
        offsets = [1] * len(form.shape)
        offsets[quantizer.axis] = channels
        start = (np.arange(channels) * len(form.numbers)).reshape(offsets)
        value = value.plus(lowering.tensor_constant(start, "channel"), label="index")
    table = lowering.tensor_constant(np.concatenate(tables), "table")
    return lowering.emit("cvm_lut", table, value, label="")


def folded(
    lowering: Emission,
    operands: Sequence[Known],
    function: Callable[..., Real],
    shape: Shape,
    quantizer: Quantizer | None,
) -> Known:
    """Compute ``function`` of constants when compiling. Without a quantiser, its results must be rational.

    Raises `Unsupported` (``lowering.undefined``, ``lowering.undecided``, ``lowering.unquantized``).
    """
    sources = [_source(operand) for operand in operands]
    keys, where = _variants([item for source in sources for item in source.coefficients], len(shape))
    table = _Table(lowering.operation.name, lowering.location, sources, (), (), keys, function)
    numbers = [table.entry(i) for i in range(len(keys))]
    where = np.broadcast_to(where, shape)
    if quantizer is not None:
        channel = np.zeros(shape, np.int64) if quantizer.axis is None else np.indices(shape)[quantizer.axis]
        pairs = zip(where.ravel().tolist(), channel.ravel().tolist(), strict=True)
        codes = np.array([code(numbers[i], quantizer, c) for i, c in pairs], np.int64).reshape(shape)
        if isinstance(quantizer, LogarithmicQuantizer):
            return known_power_codes(codes, quantizer)
        return known_codes(codes, quantizer)
    exact = [number.exact for number in numbers if number.exact is not None]
    if len(exact) < len(numbers):
        message = (
            f"{lowering.operation.name} gives irrational constants: give {lowering.operation.outputs[0]!r} a quantiser"
        )
        raise unquantized(message, lowering.location)
    values = Rationals.of(exact, (len(exact),)).moved(lambda items: items[where])
    return Known.of(values)


def lattice(form: TableForm) -> LinearForm | None:
    """Emit a linear form that equals a table whose numbers are rationals, that is, integer multiples of a unit.

    One integer tensor is enough if the multiples, counted from zero or from the first number, fit 32 bits. Wider
    integers become up to `_MOST_DIGITS` tensors of digits of 16 bits, which have the sign of the integer and leave room
    for sums. Returns None if a number is irrational, or if the integers or the denominator of the unit are too wide.
    """
    numbers = [number.exact for number in form.numbers if number.exact is not None]
    if len(numbers) < len(form.numbers):
        return None
    denominator = math.lcm(*(number.denominator for number in numbers))
    if denominator.bit_length() > _MOST_UNIT_BITS:
        return None
    whole = [int(number * denominator) for number in numbers]
    rank = len(form.shape)
    for first in (0, whole[0]):
        steps = [item - first for item in whole]
        divisor = math.gcd(*steps) or 1
        items = np.array([step // divisor for step in steps], dtype=object)
        if max(abs(item) for item in items.tolist()) <= INT32_MAX:
            digits = [items]
            break
    else:
        divisor, first = math.gcd(*whole), 0
        digits = _digits(np.array([item // divisor for item in whole], dtype=object))
        if len(digits) > _MOST_DIGITS:
            return None
    terms = []
    lowering = form.value.emission
    for number, items in enumerate(digits):
        value = lowering.emit("cvm_lut", lowering.tensor_constant(items, "table"), form.value)
        unit = Fraction(divisor, denominator) * 2 ** (_DIGIT * number)
        terms.append(Term(value, Rationals.scalar(unit, rank)))
    return LinearForm(form.shape, tuple(terms), Rationals.scalar(Fraction(first, denominator), rank))


_MOST_DIGITS = 8
_DIGIT = 16
_MOST_UNIT_BITS = 2**15


def _digits(items: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Integers of any size as arrays of digits of 16 bits, lowest first. A digit has the sign of its integer."""
    signs = np.where(items < 0, -1, 1).astype(object)
    rest, found = items * signs, []
    while rest.any():
        found.append(rest % 2**_DIGIT * signs)
        rest = rest // 2**_DIGIT
    return found
