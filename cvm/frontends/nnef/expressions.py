"""Evaluation of expressions: NNEF 1.0.1 section 3.3.3.

Types have been checked before (`cvm.frontends.nnef.inference`); this module checks values: indices, lengths, divisions
and casts of strings. Numbers are exact. Everything that expressions can multiply - elements of arrays, characters,
steps of loops - is counted against the limits before it is made.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Protocol

from cvm.errors import CvmError
from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.exact import arithmetic, decimal_text, parse_number
from cvm.frontends.nnef.faults import invalid, location_of, too_large, unsupported
from cvm.frontends.nnef.inference import OPERATORS
from cvm.frontends.nnef.literals import PlainArray
from cvm.frontends.nnef.types import DataType
from cvm.frontends.nnef.values import Array, FlatTensor, Value, leaves
from cvm.limits import DEFAULT, Limits

__all__ = ["PADDED_SHAPE_OF", "Environment", "Evaluator", "Operations"]

PADDED_SHAPE_OF = "shape_of at least two extents"
"""The built-in function ``shape_of`` of the provisional specification; a document cannot contain this name."""

_MAX_DEPTH = 240  # expressions under evaluation at a time, at most; each takes two frames of Python's stack
_STEPS_PER_ITEM = 16  # the most evaluation steps in fragments and loops, per item that the expansion limit admits


class Environment:
    """The names that an expression may use, and the data type that ``?`` stands for."""

    __slots__ = ("body", "generic", "names", "repeated")

    def __init__(
        self,
        names: dict[str, Value],
        generic: DataType | None = None,
        repeated: bool = False,
        body: object | None = None,
    ) -> None:
        self.names = names
        self.generic = generic
        self.repeated = repeated
        """Whether this is the inside of a fragment or loop, where text is evaluated more than once."""
        self.body = body or object()
        """The identity of one expansion of a body; the loops in the body share it."""


class Operations(Protocol):
    """The operations that an evaluator invokes."""

    def invoke(self, node: syntax.Invocation, environment: Environment, lengths: tuple[int | None, ...]) -> Value:
        """Invoke an operation as written; ``lengths`` holds the lengths of array results, where known."""
        ...

    def apply(self, name: str, operands: tuple[Value, ...], node: syntax.SyntaxNode) -> Value:
        """Apply the operation that an operator stands for."""
        ...


class Evaluator:
    """Evaluates expressions. Each method is one step of the walk, so a level of nesting costs one call."""

    def __init__(self, operations: Operations, limits: Limits = DEFAULT) -> None:
        self._operations = operations
        self._limits = limits
        self._depth = 0
        self._steps = limits.expansion * _STEPS_PER_ITEM
        self._body: object = None  # the body of the expression that was evaluated last
        self._error: CvmError | None = None  # the last error that an inner invocation passed on

    def evaluate(
        self, node: syntax.Expression, environment: Environment, lengths: tuple[int | None, ...] = ()
    ) -> Value:
        """The value of an expression; ``lengths`` is passed on to an invocation in tail position."""
        if type(node) is syntax.Literal or type(node) is PlainArray:
            return node.value
        if self._depth >= _MAX_DEPTH:
            message = f"fragments and expressions are nested deeper than {_MAX_DEPTH}"
            raise too_large("nesting", message, node)
        if environment.repeated:
            self._steps -= 1
            if self._steps < 0:
                raise too_large("expansion", "fragments and loops take too many steps to expand", node)
        self._depth += 1
        self._body = environment.body
        value: Value = _STEPS[type(node)](self, node, environment, lengths)
        self._depth -= 1
        return value

    def _count(self, items: int, node: syntax.SyntaxNode, what: str) -> None:
        if items > self._limits.expansion:
            message = f"{what} of {items}; one expression may produce {self._limits.expansion}"
            raise too_large("expansion", message, node)

    def _identifier(self, node: syntax.Identifier, environment: Environment, _: Any) -> Value:
        return environment.names[node.name]

    def _array(self, node: syntax.ArrayExpression, environment: Environment, _: Any) -> Value:
        items = []
        multiplied = 0
        for child in node.items:
            item = self.evaluate(child, environment)
            if type(child) is not syntax.Literal:
                multiplied += leaves(item)
                if multiplied > self._limits.expansion and not _is_written(child):
                    self._count(multiplied, child, "an array")
            items.append(item)
        return Array(items)

    def _tuple(self, node: syntax.TupleExpression, environment: Environment, _: Any) -> Value:
        items = []
        multiplied = 0
        for child in node.items:
            item = self.evaluate(child, environment)
            multiplied += leaves(item)
            if multiplied > self._limits.expansion and not _is_written(child):
                self._count(multiplied, child, "a tuple")
            items.append(item)
        return tuple(items)

    def _paren(self, node: syntax.Paren, environment: Environment, lengths: tuple[int | None, ...]) -> Value:
        return self.evaluate(node.operand, environment, lengths)

    def _unary(self, node: syntax.Unary, environment: Environment, _: Any) -> Value:
        operand = self.evaluate(node.operand, environment)
        if isinstance(operand, FlatTensor):
            return self._operations.apply({"+": "copy", "-": "neg", "!": "not"}[node.operator], (operand,), node)
        if node.operator == "!":
            return not operand
        assert isinstance(operand, int | Fraction)
        return -operand if node.operator == "-" else operand

    def _chain(self, node: syntax.Chain, environment: Environment, _: Any) -> Value:
        left = self.evaluate(node.first, environment)
        for symbol, operand in node.rest:
            left = self._binary(symbol, left, self.evaluate(operand, environment), operand)
        return left

    def _binary(self, symbol: str, left: Value, right: Value, node: syntax.Expression) -> Value:
        if isinstance(left, FlatTensor) or isinstance(right, FlatTensor):
            if symbol in OPERATORS:
                return self._operations.apply(OPERATORS[symbol][0], (left, right), node)
        elif isinstance(left, Array | str):
            return self._sequence(symbol, left, right, node)
        if symbol == "in":
            assert isinstance(right, Array)
            return left in right
        if symbol in _COMPARISONS:
            return _COMPARISONS[symbol](left, right)
        assert isinstance(left, int | Fraction)
        assert isinstance(right, int | Fraction)
        return arithmetic(symbol, left, right, node)

    def _sequence(self, symbol: str, left: Array | str, right: Value, node: syntax.Expression) -> Value:
        """The value of an operator whose left operand is an array or a string."""
        size = len(left) if isinstance(left, str) else max(leaves(left), len(left))
        match symbol, left, right:
            case "+", Array(), Array():
                self._count(size + leaves(right), node, "an array")
                return Array((*left, *right))
            case "+", str(), str():
                self._count(len(left) + len(right), node, "a string")
                return left + right
            case "*", _, int(times):
                if times < 0:
                    raise invalid(
                        "argument-validity.repetition",
                        f"the number of repetitions must not be negative, found {times}",
                        node,
                    )
                self._count(size * times, node, "an array" if isinstance(left, Array) else "a string")
                times = times if left else 0  # Python cannot multiply even an empty sequence by 2^63 or more
                return Array(tuple(left) * times) if isinstance(left, Array) else left * times
            case "in", _, Array():
                return left in right
        return _COMPARISONS[symbol](left, right)

    def _if_else(self, node: syntax.IfElse, environment: Environment, lengths: tuple[int | None, ...]) -> Value:
        chosen = node.consequence if self.evaluate(node.condition, environment) else node.alternative
        return self.evaluate(chosen, environment, lengths)

    def _comprehension(self, node: syntax.Comprehension, environment: Environment, _: Any) -> Value:
        arrays: list[Array] = []
        for _iterator, array in node.iterators:
            value = self.evaluate(array, environment)
            assert isinstance(value, Array)
            if arrays and len(value) != len(arrays[0]):
                message = f"iterated arrays have different lengths, {len(arrays[0])} and {len(value)}"
                raise invalid("argument-validity.lengths", message, array)
            arrays.append(value)
        inner = Environment(dict(environment.names), environment.generic, repeated=True, body=environment.body)
        items: list[Value] = []
        total = 0
        for values in zip(*arrays, strict=True):
            for (iterator, _array), value in zip(node.iterators, values, strict=True):
                inner.names[iterator.name] = value
            if node.condition is None or self.evaluate(node.condition, inner):
                item = self.evaluate(node.item, inner)
                total += leaves(item)
                self._count(total, node, "an array")
                items.append(item)
        return Array(items)

    def _subscript(self, node: syntax.Subscript, environment: Environment, _: Any) -> Value:
        sequence, index = self.evaluate(node.sequence, environment), self.evaluate(node.index, environment)
        assert isinstance(sequence, Array | tuple | str)
        assert isinstance(index, int)
        if not 0 <= index < len(sequence):
            message = f"subscript {index} is outside of the {len(sequence)} items"
            raise invalid("argument-validity.subscript", message, node.index)
        return sequence[index]

    def _range(self, node: syntax.RangeSubscript, environment: Environment, _: Any) -> Value:
        sequence = self.evaluate(node.sequence, environment)
        assert isinstance(sequence, Array | str)
        begin = 0 if node.begin is None else self.evaluate(node.begin, environment)
        end = len(sequence) if node.end is None else self.evaluate(node.end, environment)
        assert isinstance(begin, int)
        assert isinstance(end, int)
        for bound in (begin, end):
            if not 0 <= bound <= len(sequence):
                message = f"the range {begin}:{end} is outside of the {len(sequence)} items"
                raise invalid("argument-validity.subscript", message, node.begin or node.end)
        return Array(tuple(sequence)[begin:end]) if isinstance(sequence, Array) else sequence[begin:end]

    def _builtin(self, node: syntax.Builtin, environment: Environment, _: Any) -> Value:
        value: Any = self.evaluate(node.argument, environment)
        match node.name:
            case "shape_of":
                return Array(_shape_of(value, node))
            case name if name == PADDED_SHAPE_OF:
                shape = _shape_of(value, node)
                return Array(shape + (1,) * (2 - len(shape)))
            case "length_of":
                return len(value)
            case "range_of":
                self._count(len(value), node, "an array")
                return Array(range(len(value)))
        return _CASTS[node.name](value, node)

    def _invocation(self, node: syntax.Invocation, environment: Environment, lengths: tuple[int | None, ...]) -> Value:
        try:
            value = self._operations.invoke(node, environment, lengths)
        except CvmError as error:
            here = (error.location.line, error.location.column) == (node.line, node.column)
            if self._body is not environment.body and (self._error is error or not here):
                # The error occurred in the fragment that is invoked here.
                error.trace = (*error.trace, location_of(node, node.name))
            self._body, self._error = environment.body, error
            raise
        self._body = environment.body
        return value


def _shape_of(value: Value, node: syntax.Builtin) -> tuple[int, ...]:
    if not isinstance(value, FlatTensor):
        return ()
    if value.shape is None:
        raise unsupported("shapes.custom", "the shape of the result of a custom operation", node)
    return value.shape


def _is_written(node: syntax.Expression) -> bool:
    """Whether a value is written literally in the text, whose size has its own limit."""
    if isinstance(node, syntax.Unary):
        node = node.operand
    if isinstance(node, syntax.ArrayExpression | syntax.TupleExpression):
        return all(map(_is_written, node.items))
    return isinstance(node, syntax.Literal)


def _to_integer(value: bool | int | Fraction | str, node: syntax.Builtin) -> Value:
    if isinstance(value, str):
        if not re.fullmatch(r"-?[0-9]+", value):
            raise invalid("argument-validity.cast", f"{value[:40]!r} is not an integer literal", node)
        return -int(parse_number(value[1:], node)) if value[0] == "-" else int(parse_number(value, node))
    return math.floor(value)


def _to_scalar(value: bool | int | Fraction | str, node: syntax.Builtin) -> Value:
    if isinstance(value, str):
        if not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", value):
            raise invalid("argument-validity.cast", f"{value[:40]!r} is not a scalar literal", node)
        number = Fraction(parse_number(value.removeprefix("-"), node))
        return -number if value[0] == "-" else number
    return Fraction(value)


def _to_string(value: bool | int | Fraction | str, node: syntax.Builtin) -> Value:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(value)
    text = decimal_text(value)
    if text is None:
        raise unsupported("argument-validity.irrational", f"{value} has no exact decimal literal", node)
    return text


_CASTS: Mapping[str, Callable[[Any, syntax.Builtin], Value]] = MappingProxyType(
    {
        "integer": _to_integer,
        "scalar": _to_scalar,
        "logical": lambda value, node: bool(value),
        "string": _to_string,
    }
)

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = MappingProxyType(
    {
        "<": lambda x, y: x < y,
        "<=": lambda x, y: x <= y,
        ">": lambda x, y: x > y,
        ">=": lambda x, y: x >= y,
        "==": lambda x, y: x == y,
        "!=": lambda x, y: x != y,
        "&&": lambda x, y: x and y,
        "||": lambda x, y: x or y,
    }
)

_STEPS: Mapping[type[Any], Callable[..., Value]] = MappingProxyType(
    {
        syntax.Identifier: Evaluator._identifier,
        syntax.ArrayExpression: Evaluator._array,
        syntax.TupleExpression: Evaluator._tuple,
        syntax.Paren: Evaluator._paren,
        syntax.Unary: Evaluator._unary,
        syntax.Chain: Evaluator._chain,
        syntax.IfElse: Evaluator._if_else,
        syntax.Comprehension: Evaluator._comprehension,
        syntax.Subscript: Evaluator._subscript,
        syntax.RangeSubscript: Evaluator._range,
        syntax.Builtin: Evaluator._builtin,
        syntax.Invocation: Evaluator._invocation,
    }
)
