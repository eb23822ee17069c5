"""The text of a syntax tree: NNEF 1.0.1 section 3.2, the inverse of the parser.

Parentheses are printed where the tree has them, so a parsed tree is printed as it was written, apart from white space.
Comments are not part of the tree; the caller can pass them separately.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.comments import NO_COMMENTS, Comments
from cvm.frontends.nnef.exact import decimal_text
from cvm.frontends.nnef.literals import PlainArray
from cvm.frontends.nnef.values import Array, Value

__all__ = ["unparse", "unparse_expression"]

_WIDTH = 120


def unparse(document: syntax.Document, comments: Mapping[int, Comments] = MappingProxyType({})) -> str:
    """The text of a document of version 1.0, with the comments of its parts, by the identity of their node."""
    own = comments.get(id(document), NO_COMMENTS)
    lines = _commented(["version 1.0;"], own)
    lines += [f"extension {extension.name};" for extension in document.extensions]
    for fragment in document.fragments:
        lines += ["", *_fragment(fragment, comments)]
    graph = document.graph
    parameters, results = (", ".join(i.name for i in names) for names in (graph.parameters, graph.results))
    head = f"graph {graph.name}( {parameters} ) -> ( {results} )"
    lines += ["", *_commented([head, *_body(graph, graph.body, comments)], comments.get(id(graph), NO_COMMENTS))]
    return "\n".join([*lines, *own.end, ""])


def _commented(lines: list[str], comments: Comments) -> list[str]:
    """Lines with the comments before them, and a comment beside the last line; several such comments go before the
    lines.
    """
    if len(comments.beside) > 1:
        comments = comments.above()
    last = "".join([lines[-1], *(f"  {comment}" for comment in comments.beside)])
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    return [*(indent + comment for comment in comments.before), *lines[:-1], last]


def _fragment(fragment: syntax.Fragment, comments: Mapping[int, Comments]) -> list[str]:
    default = "" if fragment.generic_default is None else f" = {fragment.generic_default}"
    name = f"fragment {fragment.name}" + (f"<?{default}>" if fragment.generic else "")
    parameters = [
        f"{p.name}: {p.type}" + ("" if p.default is None else f" = {unparse_expression(p.default)}")
        for p in fragment.parameters
    ]
    results = ", ".join(f"{result.name}: {result.type}" for result in fragment.results)
    head = [f"{name}( {', '.join(parameters)} ) -> ( {results} )"]
    if len(head[0]) > _WIDTH:
        separated = [f"    {parameter}," for parameter in parameters[:-1]]
        head = [f"{name}(", *separated, f"    {parameters[-1]} )", f"-> ( {results} )"]
    own = comments.get(id(fragment), NO_COMMENTS)
    if fragment.body is None:
        return _commented([*head[:-1], f"{head[-1]};"], own)
    return _commented([*head, *_body(fragment, fragment.body, comments)], own)


def _body(
    owner: syntax.Fragment | syntax.Graph, body: tuple[syntax.Assignment, ...], comments: Mapping[int, Comments]
) -> list[str]:
    lines = ["{"]
    for assignment in body:
        line = f"    {_target(assignment.target)} = {unparse_expression(assignment.value)};"
        lines += _commented([line], comments.get(id(assignment), NO_COMMENTS))
    lines += [f"    {comment}" for comment in comments.get(id(owner), NO_COMMENTS).end]
    return [*lines, "}"]


def _target(target: syntax.Expression) -> str:
    if isinstance(target, syntax.TupleExpression):
        return ", ".join(map(unparse_expression, target.items))
    return unparse_expression(target)


def unparse_expression(node: syntax.Expression) -> str:
    """The text of an expression."""
    rule = next(_RULES[base] for base in type(node).__mro__ if base in _RULES)
    return rule(node)


def _literal(node: syntax.Literal) -> str:
    match node.value:
        case bool():
            return "true" if node.value else "false"
        case int():
            return str(node.value)
        case Fraction():
            text = decimal_text(node.value)
            assert text is not None  # a literal has finitely many digits
            return text
    quote = '"' if "'" in node.value and '"' not in node.value else "'"
    escaped = node.value.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return f"{quote}{escaped}{quote}"


def _items(items: tuple[syntax.Expression, ...]) -> str:
    return ", ".join(map(unparse_expression, items))


def _value(value: Value) -> str:
    """The text of a number, a tuple of numbers, or an array of these."""
    match value:
        case Array():
            return f"[{', '.join(map(_value, value))}]"
        case tuple():
            return f"({', '.join(map(_value, value))})"
        case Fraction():
            return decimal_text(value) or ""
    return str(value)


def _unary(node: syntax.Unary) -> str:
    return f"{node.operator}{unparse_expression(node.operand)}"


def _chain(node: syntax.Chain) -> str:
    rest = "".join(f" {symbol} {unparse_expression(operand)}" for symbol, operand in node.rest)
    return f"{unparse_expression(node.first)}{rest}"


def _if_else(node: syntax.IfElse) -> str:
    parts = map(unparse_expression, (node.consequence, node.condition, node.alternative))
    return "{} if {} else {}".format(*parts)


def _comprehension(node: syntax.Comprehension) -> str:
    iterators = ", ".join(f"{iterator.name} in {unparse_expression(array)}" for iterator, array in node.iterators)
    condition = "" if node.condition is None else f" if {unparse_expression(node.condition)}"
    return f"[for {iterators}{condition} yield {unparse_expression(node.item)}]"


def _range(node: syntax.RangeSubscript) -> str:
    begin, end = ("" if bound is None else unparse_expression(bound) for bound in (node.begin, node.end))
    return f"{unparse_expression(node.sequence)}[{begin}:{end}]"


def _invocation(node: syntax.Invocation) -> str:
    generic = "" if node.generic is None else f"<{node.generic}>"
    arguments = ", ".join(
        unparse_expression(a.value) if a.name is None else f"{a.name} = {unparse_expression(a.value)}"
        for a in node.arguments
    )
    return f"{node.name}{generic}({arguments})"


_RULES: Mapping[type[Any], Callable[[Any], str]] = MappingProxyType(
    {
        syntax.Identifier: lambda node: node.name,
        syntax.Literal: _literal,
        PlainArray: lambda node: _value(node.value),
        syntax.ArrayExpression: lambda node: f"[{_items(node.items)}]",
        syntax.TupleExpression: lambda node: f"({_items(node.items)})",
        syntax.Paren: lambda node: f"({unparse_expression(node.operand)})",
        syntax.Unary: _unary,
        syntax.Chain: _chain,
        syntax.IfElse: _if_else,
        syntax.Comprehension: _comprehension,
        syntax.Subscript: lambda node: f"{unparse_expression(node.sequence)}[{unparse_expression(node.index)}]",
        syntax.RangeSubscript: _range,
        syntax.Builtin: lambda node: f"{node.name}({unparse_expression(node.argument)})",
        syntax.Invocation: _invocation,
    }
)
