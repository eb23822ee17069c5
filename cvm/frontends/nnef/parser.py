"""From text to syntax tree: NNEF 1.0.1 sections 3.1, 3.2 and 5.3.

The parser and the construction of the tree are iterative; brackets are counted before parsing and the height of every
expression after it, so that no later walk can run out of stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from typing import Any, NoReturn

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from cvm.errors import CvmError, Location, Malformed
from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.exact import parse_number
from cvm.frontends.nnef.faults import malformed, too_large, unsupported
from cvm.frontends.nnef.types import ArrayType, DataType, Primitive, TensorType, TupleType, Type, depth_of
from cvm.limits import DEFAULT, Limits, require

__all__ = ["decode", "parse_document", "parse_library", "parse_quantization"]

_SKIPPED = r"""#[^\n\f]*|'(?:[^'\\\n]++|\\.)*+'|"(?:[^"\\\n]++|\\.)*+\""""
_WORD = re.compile(r"[A-Za-z0-9_.]+")


def _nodes(children: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(child for child in children if isinstance(child, syntax.Node))


def _depth(children: Iterable[Any]) -> int:
    return 1 + max((child.depth for child in children if isinstance(child, syntax.ExpressionNode)), default=0)


def _position(children: Sequence[Any]) -> tuple[int, int]:
    return children[0].line, children[0].column


def _type_name(children: Iterable[Any]) -> DataType | None:
    return next((child.name for child in children if isinstance(child, Primitive)), None)


def _types(children: Iterable[Any]) -> tuple[Type, ...]:
    return tuple(child for child in children if isinstance(child, Primitive | TensorType | ArrayType | TupleType))


def _shallow(type_: Type, at: Token) -> Type:
    """A type within the limit on nesting, checked at each level so that no walk over it is deep."""
    if depth_of(type_) > DEFAULT.nesting:
        raise too_large("nesting", f"a type is nested deeper than {DEFAULT.nesting}", at)
    return type_


class _Builder(Transformer[Token, Any]):
    """Makes a node of each rule; every token is kept, so that the first child of a rule is its position."""

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
        return syntax.Identifier(*_position(c), str(c[0]))

    def number(self, c: list[Any]) -> syntax.Literal:
        return syntax.Literal(*_position(c), parse_number(str(c[0]), c[0]))

    def text(self, c: list[Any]) -> syntax.Literal:
        return syntax.Literal(*_position(c), _unescape(c[0]))

    def true(self, c: list[Any]) -> syntax.Literal:
        return syntax.Literal(*_position(c), True)

    def false(self, c: list[Any]) -> syntax.Literal:
        return syntax.Literal(*_position(c), False)

    def array(self, c: list[Any]) -> syntax.ArrayExpression:
        return syntax.ArrayExpression(*_position(c), _nodes(c), depth=_depth(c))

    def tuple_(self, c: list[Any]) -> syntax.TupleExpression:
        return syntax.TupleExpression(*_position(c), _nodes(c), depth=_depth(c))

    def paren(self, c: list[Any]) -> syntax.Paren:
        return syntax.Paren(*_position(c), c[1], depth=_depth(c))

    def unary(self, c: list[Any]) -> syntax.Unary:
        return syntax.Unary(*_position(c), str(c[0]), c[1], depth=_depth(c))

    def chain(self, c: list[Any]) -> syntax.Chain:
        rest = tuple((str(symbol), operand) for symbol, operand in zip(c[1::2], c[2::2], strict=True))
        return syntax.Chain(*_position(c), c[0], rest, depth=_depth(c))

    def operators(self, c: list[Any]) -> syntax.Expression:
        return _group(c, 0)

    def if_else(self, c: list[Any]) -> syntax.IfElse:
        return syntax.IfElse(*_position(c), c[0], c[2], c[4], depth=_depth(c))

    def subscript(self, c: list[Any]) -> syntax.Subscript:
        return syntax.Subscript(*_position(c), c[0], c[2], depth=_depth(c))

    def range(self, c: list[Any]) -> syntax.RangeSubscript:
        colon = next(i for i, child in enumerate(c) if child == ":")
        begin = c[2] if colon == 3 else None
        end = c[colon + 1] if len(c) == colon + 3 else None
        return syntax.RangeSubscript(*_position(c), c[0], begin, end, depth=_depth(c))

    def iterator(self, c: list[Any]) -> syntax.Argument:
        return syntax.Argument(*_position(c), str(c[0]), c[2])

    def comprehension(self, c: list[Any]) -> syntax.Comprehension:
        arguments = [child for child in c if isinstance(child, syntax.Argument)]
        expressions = [child for child in c if isinstance(child, syntax.ExpressionNode)]
        iterators = tuple((syntax.Identifier(a.line, a.column, a.name or ""), a.value) for a in arguments)
        depth = _depth([*expressions, *(argument.value for argument in arguments)])
        condition = expressions[0] if len(expressions) == 2 else None
        return syntax.Comprehension(*_position(c), iterators, condition, expressions[-1], depth=depth)  # type: ignore[arg-type]

    def builtin_name(self, c: list[Any]) -> Token:
        return c[0]  # type: ignore[no-any-return]

    def builtin(self, c: list[Any]) -> syntax.Builtin:
        return syntax.Builtin(*_position(c), str(c[0]), c[2], depth=_depth(c))

    def positional(self, c: list[Any]) -> syntax.Argument:
        return syntax.Argument(*_position(c), None, c[0])

    def named(self, c: list[Any]) -> syntax.Argument:
        return syntax.Argument(*_position(c), str(c[0]), c[2])

    def invocation(self, c: list[Any]) -> syntax.Invocation:
        arguments = _nodes(c)
        depth = _depth([argument.value for argument in arguments])
        return syntax.Invocation(*_position(c), str(c[0]), _type_name(c), arguments, depth=depth)

    # definitions

    def assignment(self, c: list[Any]) -> syntax.Assignment:
        return syntax.Assignment(*_position(c), c[0], c[2])

    def body(self, c: list[Any]) -> tuple[syntax.Assignment, ...]:
        return _nodes(c)

    def identifiers(self, c: list[Any]) -> tuple[syntax.Identifier, ...]:
        return _nodes(c)

    def graph(self, c: list[Any]) -> syntax.Graph:
        parameters, results, body = (child for child in c if isinstance(child, tuple))
        return syntax.Graph(*_position(c), str(c[1]), parameters, results, body)

    def generic(self, c: list[Any]) -> list[DataType | None]:
        return [_type_name(c)]

    def parameter(self, c: list[Any]) -> syntax.Parameter:
        return syntax.Parameter(*_position(c), str(c[0]), c[2], c[4] if len(c) > 3 else None)

    def result(self, c: list[Any]) -> syntax.Result:
        return syntax.Result(*_position(c), str(c[0]), c[2])

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
        return syntax.Entry(*_position(c), _unescape(c[0]), str(c[2]), _nodes(c))

    def quantization(self, c: list[Any]) -> tuple[syntax.Entry, ...]:
        return _nodes(c)


_PRECEDENCE = (("&&", "||"), ("<", "<=", ">", ">=", "==", "!="), ("+", "-"), ("*", "/"), ("^",))
"""Binary operators but ``in``, from the lowest precedence to the highest (section 3.3.3)."""


def _group(items: list[Any], level: int) -> syntax.Expression:
    """The expression of operands and operators in turn, none of which is below a level of precedence."""
    if len(items) == 1:
        operand: syntax.Expression = items[0]
        return operand
    places = [i for i in range(1, len(items), 2) if items[i] in _PRECEDENCE[level]]
    bounds = [-1, *places, len(items)]
    operands = [_group(items[begin + 1 : end], level + 1) for begin, end in pairwise(bounds)]
    if not places:
        return operands[0]
    rest = tuple((str(items[i]), operand) for i, operand in zip(places, operands[1:], strict=True))
    return syntax.Chain(*_position(operands), operands[0], rest, depth=_depth(operands))


def _unescape(token: Token) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1])


def _check_version(token: Token) -> None:
    """Section 3.2.4: a major and a minor version separated by a dot; this is a processor of 1.0."""
    if not re.fullmatch(r"\d+\.\d+", token):
        raise malformed("syntax.version", f"the version must be <major>.<minor>, found {token[:40]}", token)
    if [part.lstrip("0") for part in token.split(".")] != ["1", ""]:
        raise unsupported("extension.version", f"version {token[:40]} is not known; this is a reader of 1.0", token)


@lru_cache(maxsize=1)
def _grammar() -> Lark:
    text = resources.files("cvm.frontends.nnef").joinpath("grammar.lark").read_text("utf-8")
    return Lark(
        text,
        parser="lalr",
        lexer="contextual",
        start=["document", "library", "quantization"],
        keep_all_tokens=True,
        maybe_placeholders=False,
        transformer=_Builder(),
    )


def decode(data: bytes, limits: Limits = DEFAULT) -> str:
    """The text of a document; comments may hold any UTF-8, everything else is ASCII by the grammar."""
    require("text_bytes", len(data), limits.text_bytes, "bytes of text")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        message = f"byte 0x{data[error.start]:02x} is not UTF-8 text"
        raise Malformed("nnef.lexical.encoding", message, Location(line=line, column=column)) from None


@lru_cache(maxsize=4)
def _scanner(name_bytes: int) -> re.Pattern[str]:
    """Comments and strings, names longer than the limit, and brackets."""
    name = f"(?<![A-Za-z0-9_])[A-Za-z_][A-Za-z0-9_]{{{name_bytes},}}+"
    return re.compile(rf"{_SKIPPED}|{name}|[()\[\]]")


def _scan(text: str, limits: Limits) -> None:
    """Refuse names that are too long and brackets that are too deep, before anything is made of them."""
    depth = 0
    for match in _scanner(limits.name_bytes).finditer(text):
        symbol = match[0]
        if symbol in ("(", "["):
            depth += 1
        elif symbol in (")", "]"):
            depth -= 1
        if depth <= limits.nesting and not symbol[0].isidentifier():
            continue
        line = text.count("\n", 0, match.start()) + 1
        at = syntax.Node(line, match.start() - text.rfind("\n", 0, match.start()))
        if depth > limits.nesting:
            raise too_large("nesting", f"brackets are nested deeper than {limits.nesting}", at)
        raise too_large("name_bytes", f"a name of {len(symbol)} characters; the limit is {limits.name_bytes}", at)


def _check_depth(roots: Iterable[syntax.Expression | None], limits: Limits) -> None:
    for root in roots:
        if root is not None and root.depth > limits.nesting:
            message = f"an expression is nested {root.depth} deep; the limit is {limits.nesting}"
            raise too_large("nesting", message, root)


def _fragment_roots(fragment: syntax.Fragment) -> Iterable[syntax.Expression | None]:
    for parameter in fragment.parameters:
        yield parameter.default
    for assignment in fragment.body or ():
        yield from (assignment.target, assignment.value)


def _readable(terminal: str) -> str:
    """A terminal of the grammar as a person would write it."""
    names = {"IDENTIFIER": "an identifier", "NUMBER": "a number", "TEXT": "a string", "$END": "the end of the file"}
    definition = next((t.pattern for t in _grammar().terminals if t.name == terminal), None)
    if terminal in names or definition is None:
        return names.get(terminal, terminal)
    text = definition.value.partition("(?")[0]
    return f"'{text}'"


def _refuse(error: UnexpectedInput, text: str) -> NoReturn:
    """Say what was found where, and what could have stood there."""
    accepted = error.accepts or error.expected if isinstance(error, UnexpectedToken) else error.allowed  # type: ignore[attr-defined]
    expected = sorted(_readable(name) for name in accepted or ())
    operators = {f"'{symbol}'" for level in _PRECEDENCE for symbol in level}
    if operators <= set(expected):
        expected = [*(word for word in expected if word not in operators), "an operator"]
    hint = f"; expected {' or '.join(expected)}" if 0 < len(expected) <= 8 else ""
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        lines = text.split("\n")
        at = syntax.Node(len(lines), len(lines[-1]) + 1)
        raise malformed("syntax.end", f"the text ends too early{hint}", at) from None
    offset = error.pos_in_stream or 0
    at = syntax.Node(error.line, error.column)
    excerpt = text[offset : offset + 24].partition("\n")[0]
    if isinstance(error, UnexpectedCharacters):
        character = text[offset]
        if character in "'\"" and (error.allowed is None or "TEXT" in error.allowed):
            message = f"a string that is not closed, or has a character that must be escaped or is not ASCII: {excerpt}"
            raise malformed("lexical.string", message, at) from None
        raise malformed("lexical.character", f"found {excerpt!a}{hint}", at) from None
    word = _WORD.match(text, offset)
    adjoining = word and ((offset > 0 and text[offset - 1].isalnum()) or len(word[0]) > len(error.token))  # type: ignore[attr-defined]
    keyword = error.token.type.isupper() and error.token.isidentifier() and error.token.type != "IDENTIFIER"  # type: ignore[attr-defined]
    comment = excerpt.startswith(("/*", "//"))
    rule = "lexical.word" if adjoining or comment or (keyword and "an identifier" in expected) else "syntax.token"
    raise malformed(rule, f"found {excerpt!a}{hint}", at) from None


def _parse(text: str, start: str) -> Any:
    try:
        return _grammar().parse(text, start=start)
    except UnexpectedInput as error:
        _refuse(error, text)


def _with_limits(
    text: str, start: str, roots: Callable[[Any], Iterable[syntax.Expression | None]], limits: Limits
) -> Any:
    require("text_bytes", len(text), limits.text_bytes, "characters of text")
    try:
        _scan(text, limits)
        tree = _parse(text, start)
        _check_depth(roots(tree), limits)
    except CvmError as error:
        raise error from None
    return tree


def parse_document(text: str, limits: Limits = DEFAULT) -> syntax.Document:
    """The syntax tree of a structure description (section 3.2.4).

    Raises `Malformed` for what the grammar does not admit, `LimitExceeded` for text, nesting and numbers.
    """

    def roots(document: syntax.Document) -> Iterable[syntax.Expression | None]:
        for fragment in document.fragments:
            yield from _fragment_roots(fragment)
        for assignment in document.graph.body:
            yield from (assignment.target, assignment.value)

    document: syntax.Document = _with_limits(text, "document", roots, limits)
    return document


def parse_library(text: str) -> tuple[syntax.Fragment, ...]:
    """The fragments of a file that holds nothing else (our standard library)."""
    library: tuple[syntax.Fragment, ...] = _parse(text, "library")
    return library


def parse_quantization(text: str, limits: Limits = DEFAULT) -> tuple[syntax.Entry, ...]:
    """The entries of a quantization file (section 5.3)."""

    def roots(entries: tuple[syntax.Entry, ...]) -> Iterable[syntax.Expression | None]:
        return (argument.value for entry in entries for argument in entry.arguments)

    entries: tuple[syntax.Entry, ...] = _with_limits(text, "quantization", roots, limits)
    return entries
