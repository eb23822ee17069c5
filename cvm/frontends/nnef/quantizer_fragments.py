"""Fragments of a document as algorithms of its quantization file (NNEF 1.0.1 section 5.3).

An entry may name any operation that takes the tensor first and gives one tensor; the definition of a fragment says what
it computes. The fragment is expanded, and evaluated symbolically for an unknown real number x in two forms:

* min(max(slope * x + intercept, low), high): the result of sums with literals, products, ``min`` and ``max``;
* the same of the integer floor(p * x + q + 1/2), which ``round``, ``floor`` and ``ceil`` make of the first form.

A fragment that ends in the second form is a quantiser if it maps each number to the nearest of its values
(slope * p = 1, intercept = -slope * q). Otherwise, and where a further function maps the integer to other rational
numbers, all values of the fragment are tabulated. If they lie on a grid, the operations of the fragment become part of
the graph, and their result gets a quantiser with the codes of that grid, which rounds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

from cvm.errors import Unsupported
from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.declarations import compound_operations, is_library
from cvm.frontends.nnef.faults import unsupported
from cvm.frontends.nnef.flatten import flatten_document
from cvm.frontends.nnef.literals import PlainArray
from cvm.frontends.nnef.types import INTEGER, ArrayType, TensorType
from cvm.frontends.nnef.values import Array, FlatGraph, FlatOperation, FlatTensor, Value
from cvm.limits import Limits
from cvm.quantization import LinearQuantizer
from cvm.quantization.reals import FUNCTIONS, Undecided, Undefined, power, rational
from cvm.records import dataclass

__all__ = ["Expansion", "expand_algorithm", "is_algorithm", "with_expansions"]

_MOST_LEVELS = 2**16
"""The most values that a fragment may give: a tensor has codes of at most 16 bits."""
_HALF = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class Expansion:
    """The operations of a fragment that must be applied to a tensor.

    They begin with an ``external`` that stands for the tensor; the last result replaces the tensor.
    """

    operations: tuple[FlatOperation, ...]


def is_algorithm(fragment: syntax.Fragment | None) -> bool:
    """Whether a fragment maps a scalar tensor to a scalar tensor and has no other tensor parameters."""
    if fragment is None or fragment.body is None or fragment.generic or len(fragment.results) != 1:
        return False
    first = fragment.parameters[0].type if fragment.parameters else None
    return all(isinstance(type_, TensorType) and type_.name == "scalar" for type_ in (first, fragment.results[0].type))


def expand_algorithm(
    entry: syntax.Entry, tensor: FlatTensor, graph: FlatGraph, limits: Limits
) -> tuple[LinearQuantizer, Expansion | None]:
    """The quantiser for an entry with a fragment, and the operations to apply before it, if any.

    Raises `Unsupported` for a fragment whose values are not finitely many numbers on a grid, and what
    `flatten_document` raises for its arguments.
    """
    operations = _flattened(entry, tensor, graph, limits)
    forms: dict[FlatTensor, _Form] = {}
    for operation in operations:
        (result,) = operation.results
        assert isinstance(result, FlatTensor)
        forms[result] = _followed(operation, forms, entry)
    (form,) = (forms[tensor] for tensor in _tensors(operations[-1].results))
    if isinstance(form, _Line):
        quantizer = form.quantizer()
        if quantizer is not None:
            return quantizer, None
    levels = _levels(form)
    grid = None if levels is None else _grid(levels.values)
    if grid is None:
        message = f"{entry.algorithm!r} gives no codes: a code numbers a result, of which there may be {_MOST_LEVELS:,}"
        message += " on one grid"
        raise _refused(message, entry)
    if tensor.operation in ("external", "variable"):
        message = f"{entry.algorithm!r} does not give the nearest of its numbers, so it can only quantise tensors that"
        raise _refused(f"{message} are computed, and {entry.tensor!r} is {tensor.operation}", entry)
    return grid, Expansion(operations)


def with_expansions(graph: FlatGraph, expansions: Mapping[str, Expansion]) -> FlatGraph:
    """The graph with the operations of fragments after their tensors; the results of these take over the tensors'
    names.
    """
    if not expansions:
        return graph
    names = {tensor.name for operation in graph.operations for tensor in _tensors(operation.results)}
    exported = dict(graph.exported)
    operations: list[FlatOperation] = []
    moved: dict[FlatTensor, FlatTensor] = {}
    for operation in graph.operations:
        operations.append(_with_arguments(operation, moved))
        for tensor in _tensors(operation.results):
            name = tensor.name
            if name in expansions and graph.exported.get(name) is tensor:
                applied = _applied(expansions[name], tensor, names)
                (last,) = _tensors(applied[-1].results)
                operations += applied
                exported[name] = moved[tensor] = last
    return replace(graph, operations=tuple(operations), exported=exported)


def _applied(expansion: Expansion, tensor: FlatTensor, names: set[str]) -> list[FlatOperation]:
    """The operations of a fragment, applied to a tensor of the graph; all but the last get new names."""
    placeholder, *operations = expansion.operations
    name, tensor.name = tensor.name, _unused(f"{tensor.name}_unrounded", names)
    moved = dict(zip(_tensors(placeholder.results), (tensor,), strict=True))
    applied: list[FlatOperation] = []
    for operation in operations:
        (old,) = _tensors(operation.results)
        new = replace(old, location=tensor.location, name=_unused(f"{name}_{operation.name}", names))
        moved[old] = new
        applied.append(replace(_with_arguments(operation, moved), results=(new,), location=tensor.location))
    new.name = name
    return applied


def _unused(name: str, names: set[str]) -> str:
    """The name, with a number appended if it is taken. The result counts as taken from now on."""
    free, count = name, 1
    while free in names:
        count += 1
        free = f"{name}_{count}"
    names.add(free)
    return free


def _with_arguments(operation: FlatOperation, moved: Mapping[FlatTensor, FlatTensor]) -> FlatOperation:
    """The operation with its tensors replaced through ``moved``."""

    def followed(value: Value) -> Value:
        if isinstance(value, FlatTensor):
            return moved.get(value, value)
        if isinstance(value, Array):
            return Array(map(followed, value))
        return tuple(map(followed, value)) if isinstance(value, tuple) else value

    if not any(tensor in moved for tensor in _tensors(tuple(operation.arguments.values()))):
        return operation
    arguments = {name: followed(value) for name, value in operation.arguments.items()}
    return replace(operation, arguments=MappingProxyType(arguments))


def _tensors(value: Value) -> Iterator[FlatTensor]:
    """The tensors in a value."""
    if isinstance(value, FlatTensor):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _tensors(item)


def _flattened(entry: syntax.Entry, tensor: FlatTensor, graph: FlatGraph, limits: Limits) -> tuple[FlatOperation, ...]:
    """The operations of a graph that only applies the fragment to a tensor of that shape."""
    at = entry.line, entry.column
    given, result = syntax.Identifier(*at, "tensor"), syntax.Identifier(*at, "rounded")
    shape = PlainArray(*at, (), type=ArrayType(INTEGER), value=Array.of_literals(tensor.shape or ()))
    external = syntax.Invocation(*at, "external", "scalar", (syntax.Argument(*at, "shape", shape),))
    applied = syntax.Invocation(*at, entry.algorithm, None, (syntax.Argument(*at, None, given), *entry.arguments))
    body = (syntax.Assignment(*at, given, external), syntax.Assignment(*at, result, applied))
    document = syntax.Document(*at, (), (), syntax.Graph(*at, entry.algorithm, (given,), (result,), body))
    own = [name for name, fragment in graph.fragments.items() if fragment.body is not None and not is_library(fragment)]
    lower = [name for name in compound_operations() if not (name in FUNCTIONS or name in _BINARY or name == "clamp")]
    return flatten_document(document, graph.fragments, limits, lower, own).operations


# Forms: the symbolic values of a fragment as functions of x


@dataclass(frozen=True, slots=True)
class _Line:
    """min(max(slope * r + intercept, low), high); r is x, or floor(p * x + q + 1/2) where ``rounding`` is (p, q)."""

    slope: Fraction = Fraction(1)
    intercept: Fraction = Fraction(0)
    low: Fraction | None = None
    high: Fraction | None = None
    rounding: tuple[Fraction, Fraction] | None = None

    def scaled(self, factor: Fraction) -> _Line:
        """The form multiplied by a number other than zero."""
        ends = [None if end is None else end * factor for end in (self.low, self.high)]
        low, high = ends if factor > 0 else reversed(ends)
        return replace(self, slope=self.slope * factor, intercept=self.intercept * factor, low=low, high=high)

    def moved(self, by: Fraction) -> _Line:
        """The form plus a number."""
        low, high = (None if end is None else end + by for end in (self.low, self.high))
        return replace(self, intercept=self.intercept + by, low=low, high=high)

    def at_least(self, bound: Fraction) -> _Line:
        """The maximum of the form and a number."""
        low = bound if self.low is None else max(self.low, bound)
        return replace(self, low=low, high=None if self.high is None else max(self.high, bound))

    def at_most(self, bound: Fraction) -> _Line:
        """The minimum of the form and a number."""
        return self.scaled(Fraction(-1)).at_least(-bound).scaled(Fraction(-1))

    def rounded(self) -> _Line | None:
        """The form rounded to integers; None where two roundings follow each other and the first does not give
        integers.
        """
        ends = [None if end is None else Fraction(math.floor(end + _HALF)) for end in (self.low, self.high)]
        if self.rounding is None:
            return _Line(low=ends[0], high=ends[1], rounding=(self.slope, self.intercept))
        integers = self.slope.denominator == self.intercept.denominator == 1
        return replace(self, low=ends[0], high=ends[1]) if integers else None

    def indices(self) -> range | None:
        """All r from the lower to the upper bound, rounded outward; None without bounds, or with too many r between
        them.
        """
        if self.rounding is None or self.low is None or self.high is None:
            return None
        first, last = sorted((end - self.intercept) / self.slope for end in (self.low, self.high))
        found = range(math.floor(first), math.ceil(last) + 1)
        return found if len(found) <= _MOST_LEVELS else None

    def levels(self) -> _Levels | None:
        """The values of the form for all r; None where they cannot be listed."""
        indices = self.indices()
        if indices is None or self.low is None or self.high is None:
            return None
        numbers = (self.slope * index + self.intercept for index in indices)
        return _Levels(tuple(min(max(number, self.low), self.high) for number in numbers))

    def quantizer(self) -> LinearQuantizer | None:
        """The quantiser that maps each number to the same value as the form; None where there is none."""
        indices = self.indices()
        if indices is None or self.rounding is None or len(indices) < 2 or self.slope <= 0:
            return None
        if self.rounding != (1 / self.slope, -self.intercept / self.slope):
            return None
        ends = self.slope * indices[0] + self.intercept, self.slope * indices[-1] + self.intercept
        if ends != (self.low, self.high):
            return None  # the least or the greatest value is not on the grid of the others
        return _numbered(self.slope, self.intercept, indices[0], indices[-1])


@dataclass(frozen=True, slots=True)
class _Levels:
    """The value for each of the consecutive integers that x was rounded to."""

    values: tuple[Fraction, ...]


_Form: TypeAlias = "_Line | _Levels | Fraction"


def _levels(form: _Form) -> _Levels | None:
    if isinstance(form, _Line):
        return form.levels()
    return form if isinstance(form, _Levels) else None


def _grid(values: tuple[Fraction, ...]) -> LinearQuantizer | None:
    """The quantiser of the coarsest grid that contains all values, from the least to the greatest; None for a single
    value.
    """
    least, greatest = min(values), max(values)
    if least == greatest:
        return None
    denominator = math.lcm(*(value.denominator for value in values))
    step = Fraction(math.gcd(*(int((value - least) * denominator) for value in values)), denominator)
    # Codes count from zero if zero is on the grid, else from the least value.
    offset = Fraction(0) if (least / step).denominator == 1 else least
    lo, hi = int((least - offset) / step), int((greatest - offset) / step)
    return _numbered(step, offset, lo, hi) if hi - lo < _MOST_LEVELS else None


def _numbered(scale: Fraction, offset: Fraction, lo: int, hi: int) -> LinearQuantizer:
    """The quantiser offset + scale * code for lo .. hi; the codes count from 0 where that saves a bit."""
    bits = (hi - lo).bit_length()
    if 0 <= lo <= hi < 2**bits or -(2 ** (bits - 1)) <= lo <= hi < 2 ** (bits - 1):
        return LinearQuantizer((scale,), (offset,), lo, hi)
    return LinearQuantizer((scale,), (offset + scale * lo,), 0, hi - lo)


def _followed(operation: FlatOperation, forms: Mapping[FlatTensor, _Form], entry: syntax.Entry) -> _Form:
    """The form of the result of one operation. Raises `Unsupported` where it has none."""
    if operation.name == "external":
        return _Line()
    operands: list[_Form] = []
    for value in operation.arguments.values():
        if isinstance(value, FlatTensor):
            operands.append(forms[value])
        elif isinstance(value, int | Fraction) and not isinstance(value, bool):
            operands.append(Fraction(value))
    found = None
    if len(operands) == len(operation.arguments):
        try:
            found = _result(operation.name, operands)
        except (Undecided, Undefined, ZeroDivisionError):
            found = None
    if found is None:
        message = f"{operation.name!r} in {entry.algorithm!r} cannot be followed exactly. Use sums, products, min and"
        message += " max with literals, round, floor and ceil; other functions only after a rounding"
        raise _refused(message, entry)
    return found


def _result(name: str, operands: Sequence[_Form]) -> _Form | None:
    """The form of an operation's result; None where it is not known."""
    if name == "clamp":
        x, low, high = operands
        capped = _binary("min", x, high)
        return None if capped is None else _binary("max", capped, low)
    if len(operands) == 1:
        return _unary(name, operands[0])
    return _binary(name, *operands) if name in _BINARY else None


def _unary(name: str, form: _Form) -> _Form | None:
    if isinstance(form, _Line):
        if name == "copy":
            return form
        if name == "neg":
            return form.scaled(Fraction(-1))
        if name in _ROUNDINGS:
            return _ROUNDINGS[name](form) or _mapped(name, form.levels())
        form = form.levels() or Fraction(0)
        return None if isinstance(form, Fraction) else _mapped(name, form)
    return _mapped(name, form)


def _floor(form: _Line) -> _Line | None:
    return form.moved(-_HALF).rounded() if form.rounding is None else form.rounded()


def _ceil(form: _Line) -> _Line | None:
    found = _floor(form.scaled(Fraction(-1)))
    return None if found is None else found.scaled(Fraction(-1))


_ROUNDINGS: Mapping[str, Callable[[_Line], _Line | None]] = MappingProxyType(
    {"round": _Line.rounded, "floor": _floor, "ceil": _ceil}
)


def _mapped(name: str, form: _Levels | Fraction | None) -> _Levels | Fraction | None:
    """A unary operation applied to each value; None where a result is not rational."""
    if form is None or name not in FUNCTIONS:
        return None
    values = form.values if isinstance(form, _Levels) else (form,)
    found = [FUNCTIONS[name](rational(value)).exact for value in values]
    exact = tuple(value for value in found if value is not None)
    if len(exact) != len(found):
        return None
    return _Levels(exact) if isinstance(form, _Levels) else exact[0]


def _power(base: Fraction, exponent: Fraction) -> Fraction | None:
    return power(rational(base), exponent).exact


_BINARY: Mapping[str, Callable[[Fraction, Fraction], Fraction | None]] = MappingProxyType(
    {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": lambda a, b: a / b,
        "min": min,
        "max": max,
        "pow": _power,
    }
)


def _binary(name: str, left: _Form, right: _Form) -> _Form | None:
    """The form of an operation with two operands, of which at most one depends on x."""
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return _BINARY[name](left, right)
    if isinstance(left, _Line) and isinstance(right, Fraction):
        found = _linear(name, left, right)
        if found is not None:
            return found
    if isinstance(left, Fraction) and isinstance(right, _Line):
        if name in ("add", "mul", "min", "max"):
            return _binary(name, right, left)
        if name == "sub":
            return right.scaled(Fraction(-1)).moved(left)
    return _pairwise(name, left, right)


def _linear(name: str, line: _Line, number: Fraction) -> _Form | None:
    match name:
        case "add":
            return line.moved(number)
        case "sub":
            return line.moved(-number)
        case "mul":
            return line.scaled(number) if number else number
        case "div":
            return line.scaled(1 / number)
        case "min":
            return line.at_most(number)
        case "max":
            return line.at_least(number)
    return None


def _pairwise(name: str, left: _Form, right: _Form) -> _Form | None:
    """An operation between each value of one operand and a literal."""
    forms = [form if isinstance(form, Fraction) else _levels(form) for form in (left, right)]
    if None in forms or not any(isinstance(form, Fraction) for form in forms):
        return None
    first, second = (form.values if isinstance(form, _Levels) else None for form in forms)
    pairs = [(left, value) for value in second or ()] if first is None else [(value, right) for value in first]
    found = [_BINARY[name](a, b) for a, b in pairs if isinstance(a, Fraction) and isinstance(b, Fraction)]
    exact = tuple(value for value in found if value is not None)
    return _Levels(exact) if len(exact) == len(found) else None


def _refused(message: str, entry: syntax.Entry) -> Unsupported:
    return unsupported("quantization.fragment", message, entry)
