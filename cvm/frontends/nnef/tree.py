"""The construction of the syntax tree from the parser's rules: NNEF 1.0.1 section 3.2.

It happens during parsing, one node per rule, without recursion. The methods have the names of the grammar's rules.
"""

# ruff: noqa: D102

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from lark import Token, Transformer

from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.exact import parse_number
from cvm.frontends.nnef.faults import malformed, too_large, unsupported
from cvm.frontends.nnef.literals import plain_array
from cvm.frontends.nnef.types import ArrayType, DataType, Primitive, TensorType, TupleType, Type, depth_of
from cvm.limits import DEFAULT

__all__ = ["BINARY_OPERATORS", "TreeBuilder", "depth_above", "position_of"]


def _nodes(children: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(child for child in children if isinstance(child, syntax.SyntaxNode))


def depth_above(children: Iterable[Any]) -> int:
    """The height of a tree whose root has these children."""
    return 1 + max((child.depth for child in children if isinstance(child, syntax.ExpressionNode)), default=0)


def position_of(children: Sequence[Any]) -> tuple[int, int]:
    """The position at which a rule begins: that of its first child, a token or a node."""
    return children[0].line, children[0].column


def _type_name(children: Iterable[Any]) -> DataType | None:
    return next((child.name for child in children if isinstance(child, Primitive)), None)


def _types(children: Iterable[Any]) -> tuple[Type, ...]:
    return tuple(child for child in children if isinstance(child, Primitive | TensorType | ArrayType | TupleType))


def _shallow(type_: Type, at: Token) -> Type:
    """A type within the limit on nesting; each level is checked as it is made, so that no walk over
    the type is deep.
    """
    if depth_of(type_) > DEFAULT.nesting:
        raise too_large("nesting", f"a type is nested deeper than {DEFAULT.nesting}", at)
    return type_


class TreeBuilder(Transformer[Token, Any]):
    """Makes a node for each rule; every token is kept, so that the first child of a rule gives its position."""

    # types

    def type_name(self, c: list[Any]) -> Primitive:
        return Primitive(str(c[0]))  # type: ignore[arg-type]  # the grammar admits data-types only

    def primitive_type(self, c: list[Any]) -> Type:
        return c[0]  # type: ignore[no-any-return]

    def tensor_type(self, c: list[Any]) -> Type:
        return TensorType(_type_name(c))

    def array_type(self, c: list[Any]) -> Type:
        return _shallow(ArrayType(c[0]), c[-1])

    def tuple_type(self, c: list[Any]) -> Type:
        return _shallow(TupleType(_types(c)), c[0])

    # expressions

    def identifier(self, c: list[Any]) -> syntax.Identifier:
        return syntax.Identifier(*position_of(c), str(c[0]))

    def number(self, c: list[Any]) -> syntax.Literal:
        return syntax.Literal(*position_of(c), parse_number(str(c[0]), c[0]))

    def text(self, c: list[Any]) -> syntax.Literal:
        return syntax.Literal(*position_of(c), _unescape(c[0]))

    def true(self, c: list[Any]) -> syntax.Literal:
        return syntax.Literal(*position_of(c), True)

    def false(self, c: list[Any]) -> syntax.Literal:
        return syntax.Literal(*position_of(c), False)

    def array(self, c: list[Any]) -> syntax.ArrayExpression:
        return syntax.ArrayExpression(*position_of(c), _nodes(c), depth=depth_above(c))

    def plain_array(self, c: list[Any]) -> syntax.ArrayExpression:
        return plain_array(str(c[0]), *position_of(c))

    def tuple_(self, c: list[Any]) -> syntax.TupleExpression:
        return syntax.TupleExpression(*position_of(c), _nodes(c), depth=depth_above(c))

    def paren(self, c: list[Any]) -> syntax.Paren:
        return syntax.Paren(*position_of(c), c[1], depth=depth_above(c))

    def unary(self, c: list[Any]) -> syntax.Unary:
        return syntax.Unary(*position_of(c), str(c[0]), c[1], depth=depth_above(c))

    def chain(self, c: list[Any]) -> syntax.Chain:
        rest = tuple((str(symbol), operand) for symbol, operand in zip(c[1::2], c[2::2], strict=True))
        return syntax.Chain(*position_of(c), c[0], rest, depth=depth_above(c))

    def operators(self, c: list[Any]) -> syntax.Expression:
        return _group(c, 0)

    def if_else(self, c: list[Any]) -> syntax.IfElse:
        return syntax.IfElse(*position_of(c), c[0], c[2], c[4], depth=depth_above(c))

    def subscript(self, c: list[Any]) -> syntax.Subscript:
        return syntax.Subscript(*position_of(c), c[0], c[2], depth=depth_above(c))

    def range(self, c: list[Any]) -> syntax.RangeSubscript:
        colon = next(i for i, child in enumerate(c) if child == ":")
        begin = c[2] if colon == 3 else None
        end = c[colon + 1] if len(c) == colon + 3 else None
        return syntax.RangeSubscript(*position_of(c), c[0], begin, end, depth=depth_above(c))

    def iterator(self, c: list[Any]) -> syntax.Argument:
        return syntax.Argument(*position_of(c), str(c[0]), c[2])

    def comprehension(self, c: list[Any]) -> syntax.Comprehension:
        arguments = [child for child in c if isinstance(child, syntax.Argument)]
        expressions = [child for child in c if isinstance(child, syntax.ExpressionNode)]
        iterators = tuple((syntax.Identifier(a.line, a.column, a.name or ""), a.value) for a in arguments)
        depth = depth_above([*expressions, *(argument.value for argument in arguments)])
        condition = expressions[0] if len(expressions) == 2 else None
        return syntax.Comprehension(*position_of(c), iterators, condition, expressions[-1], depth=depth)  # type: ignore[arg-type]

    def builtin_name(self, c: list[Any]) -> Token:
        return c[0]  # type: ignore[no-any-return]

    def builtin(self, c: list[Any]) -> syntax.Builtin:
        return syntax.Builtin(*position_of(c), str(c[0]), c[2], depth=depth_above(c))

    def positional(self, c: list[Any]) -> syntax.Argument:
        return syntax.Argument(*position_of(c), None, c[0])

    def named(self, c: list[Any]) -> syntax.Argument:
        return syntax.Argument(*position_of(c), str(c[0]), c[2])

    def invocation(self, c: list[Any]) -> syntax.Invocation:
        arguments = _nodes(c)
        depth = depth_above([argument.value for argument in arguments])
        return syntax.Invocation(*position_of(c), str(c[0]), _type_name(c), arguments, depth=depth)

    # definitions

    def assignment(self, c: list[Any]) -> syntax.Assignment:
        return syntax.Assignment(*position_of(c), c[0], c[2])

    def body(self, c: list[Any]) -> tuple[syntax.Assignment, ...]:
        return _nodes(c)

    def identifiers(self, c: list[Any]) -> tuple[syntax.Identifier, ...]:
        return _nodes(c)

    def graph(self, c: list[Any]) -> syntax.Graph:
        parameters, results, body = (child for child in c if isinstance(child, tuple))
        return syntax.Graph(*position_of(c), str(c[1]), parameters, results, body)

    def generic(self, c: list[Any]) -> list[DataType | None]:
        return [_type_name(c)]

    def parameter(self, c: list[Any]) -> syntax.Parameter:
        return syntax.Parameter(*position_of(c), str(c[0]), c[2], c[4] if len(c) > 3 else None)

    def result(self, c: list[Any]) -> syntax.Result:
        return syntax.Result(*position_of(c), str(c[0]), c[2])

    def fragment(self, c: list[Any]) -> syntax.Fragment:
        generic = c[2] if isinstance(c[2], list) else None
        return syntax.Fragment(
            *(c[1].line, c[1].column, str(c[1])),
            generic=generic is not None,
            generic_default=generic[0] if generic else None,
            parameters=tuple(child for child in c if isinstance(child, syntax.Parameter)),
            results=tuple(child for child in c if isinstance(child, syntax.Result)),
            body=next((child for child in c if isinstance(child, tuple) and not isinstance(child, str)), None),
        )

    def version(self, c: list[Any]) -> None:
        _check_version(c[1])

    def extension(self, c: list[Any]) -> tuple[syntax.Extension, ...]:
        return tuple(syntax.Extension(name.line, name.column, str(name)) for name in c[1:-1])

    def document(self, c: list[Any]) -> syntax.Document:
        extensions = tuple(name for child in c if isinstance(child, tuple) for name in child)
        fragments = tuple(child for child in c if isinstance(child, syntax.Fragment))
        return syntax.Document(1, 1, extensions, fragments, c[-1])

    def library(self, c: list[Any]) -> tuple[syntax.Fragment, ...]:
        return _nodes(c)

    def entry(self, c: list[Any]) -> syntax.Entry:
        return syntax.Entry(*position_of(c), _unescape(c[0]), str(c[2]), _nodes(c))

    def quantization(self, c: list[Any]) -> tuple[syntax.Entry, ...]:
        return _nodes(c)


BINARY_OPERATORS = (("&&", "||"), ("<", "<=", ">", ">=", "==", "!="), ("+", "-"), ("*", "/"), ("^",))
"""The binary operators except ``in``, from the lowest precedence to the highest (section 3.3.3)."""


def _group(items: list[Any], level: int) -> syntax.Expression:
    """The expression for alternating operands and operators, all of which have at least the given
    level of precedence.
    """
    if len(items) == 1:
        operand: syntax.Expression = items[0]
        return operand
    indices = [i for i in range(1, len(items), 2) if items[i] in BINARY_OPERATORS[level]]
    bounds = [-1, *indices, len(items)]
    operands = [_group(items[begin + 1 : end], level + 1) for begin, end in pairwise(bounds)]
    if not indices:
        return operands[0]
    rest = tuple((str(items[i]), operand) for i, operand in zip(indices, operands[1:], strict=True))
    return syntax.Chain(*position_of(operands), operands[0], rest, depth=depth_above(operands))


def _unescape(token: Token) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1])


def _check_version(token: Token) -> None:
    """Section 3.2.4: a major and a minor version separated by a dot. This reader accepts 1.0."""
    if not re.fullmatch(r"\d+\.\d+", token):
        raise malformed("syntax.version", f"the version must be <major>.<minor>, found {token[:40]}", token)
    if [part.lstrip("0") for part in token.split(".")] != ["1", ""]:
        raise unsupported("extension.version", f"version {token[:40]} is not known; this is a reader of 1.0", token)
