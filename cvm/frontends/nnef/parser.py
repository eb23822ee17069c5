"""From text to syntax tree: NNEF 1.0.1 sections 3.1, 3.2 and 5.3.

The parser and the construction of the tree are iterative. Brackets are counted before parsing, and the height of every
expression is checked after it, so that no later walk can exhaust the stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import resources
from typing import Any, NoReturn

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from cvm.errors import CvmError, Location, Malformed
from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.faults import malformed, too_large
from cvm.frontends.nnef.literals import PLAIN_ARRAY
from cvm.frontends.nnef.tree import BINARY_OPERATORS, TreeBuilder
from cvm.limits import DEFAULT, Limits, require
from cvm.records import dataclass

__all__ = [
    "Edition",
    "decode",
    "document_roots",
    "is_provisional",
    "parse_document",
    "parse_library",
    "parse_quantization",
    "parse_text",
]

_SKIPPED = r"""#[^\n\f]*|'(?:[^'\\\n]++|\\.)*+'|"(?:[^"\\\n]++|\\.)*+\""""
_SPACE = r"(?:[ \t\r\n\f\v]++|#[^\n\f]*+)"
_PROVISIONAL = re.compile(rf"{_SPACE}*+version{_SPACE}++[0-9][0-9.eE+-]*+{_SPACE}*+(?:fragment|graph)(?![A-Za-z0-9_])")
_WORD = re.compile(r"[A-Za-z0-9_.]+")
_NAMED = re.compile(r"[A-Za-z_]+\s++[A-Za-z_]")  # a word before a name was meant as a keyword


@dataclass(frozen=True, slots=True)
class Edition:
    """An edition of the language: its part of the grammar, the rules to parse by, and the builder of its tree."""

    package: str
    starts: tuple[str, ...]
    builder: type[TreeBuilder] = TreeBuilder


_CURRENT = Edition("cvm.frontends.nnef", ("document", "library", "quantization"))


@lru_cache(maxsize=2)
def _grammar(edition: Edition) -> Lark:
    shared = resources.files("cvm.frontends.nnef").joinpath("expressions.lark").read_text("utf-8")
    own = resources.files(edition.package).joinpath("grammar.lark").read_text("utf-8")
    return Lark(
        f"{shared}\nPLAIN_ARRAY.1: /{PLAIN_ARRAY}/\n{own}",
        parser="lalr",
        lexer="contextual",
        start=list(edition.starts),
        keep_all_tokens=True,
        maybe_placeholders=False,
        transformer=edition.builder(),
    )


def decode(data: bytes, limits: Limits = DEFAULT) -> str:
    """The text of a document. Comments may hold any UTF-8; everything else is ASCII by the grammar."""
    require("text_bytes", len(data), limits.text_bytes, "bytes of text")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = len(data[data.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8")) + 1
        message = f"byte 0x{data[error.start]:02x} is not UTF-8 text"
        raise Malformed("nnef.lexical.encoding", message, Location(line=line, column=column)) from None


@lru_cache(maxsize=4)
def _scanner(name_bytes: int) -> re.Pattern[str]:
    """A pattern that finds comments, strings, names longer than the limit, and brackets."""
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
        at = syntax.SyntaxNode(line, match.start() - text.rfind("\n", 0, match.start()))
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


def _readable(terminal: str, grammar: Lark) -> str:
    """The name of a terminal of the grammar in messages."""
    names = {"IDENTIFIER": "an identifier", "NUMBER": "a number", "TEXT": "a string", "$END": "the end of the file"}
    definition = next((t.pattern for t in grammar.terminals if t.name == terminal), None)
    if terminal in names or definition is None:
        return names.get(terminal, terminal)
    text = definition.value.partition("(?")[0].replace("\\", "")
    return f"'{text}'"


_STARTS = frozenset(
    {"'('", "'['", "'+'", "'-'", "'!'", "'true'", "'false'", "a number", "a string", "an identifier"}
    | {"'shape_of'", "'length_of'", "'range_of'", "'integer'", "'extent'", "'scalar'", "'logical'", "'string'"}
)
"""The names in messages of all terminals that an expression may begin with."""


def _acceptable(error: UnexpectedInput, grammar: Lark) -> list[str]:
    """The names of the terminals that the grammar admits at the error."""
    accepted = error.accepts or error.expected if isinstance(error, UnexpectedToken) else error.allowed  # type: ignore[attr-defined]
    return sorted({_readable(name, grammar) for name in accepted or ()})


def _summary(words: list[str]) -> list[str]:
    """The list, shortened: "an operator" and "an expression" replace terminals where all of theirs are in the list."""
    operators = {f"'{symbol}'" for level in BINARY_OPERATORS for symbol in level}
    if operators <= set(words):
        words = [*(word for word in words if word not in operators), "an operator"]
    if {"a number", "a string", "an identifier", "'('", "'!'"} <= set(words):
        words = [*(word for word in words if word not in _STARTS), "an expression"]
    return words


def _refuse(error: UnexpectedInput, text: str, grammar: Lark) -> NoReturn:
    """Raise `Malformed` with the position, the text that was found there, and what the grammar expects."""
    acceptable = _acceptable(error, grammar)
    expected = _summary(acceptable)
    hint = f"; expected {' or '.join(expected)}" if 0 < len(expected) <= 8 else ""
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        lines = text.split("\n")
        at = syntax.SyntaxNode(len(lines), len(lines[-1]) + 1)
        raise malformed("syntax.end", f"the text ends too early{hint}", at, expected) from None
    offset = error.pos_in_stream or 0
    at = syntax.SyntaxNode(error.line, error.column)
    excerpt = text[offset : offset + 24].partition("\n")[0]
    if isinstance(error, UnexpectedCharacters):
        character = text[offset]
        if character in "'\"" and (error.allowed is None or "TEXT" in error.allowed):
            message = f"a string that is not closed, or has a character that must be escaped or is not ASCII: {excerpt}"
            raise malformed("lexical.string", message, at) from None
        raise malformed("lexical.character", f"found {excerpt!a}{hint}", at, expected) from None
    word = _WORD.match(text, offset)
    adjoining = word and ((offset > 0 and text[offset - 1].isalnum()) or len(word[0]) > len(error.token))  # type: ignore[attr-defined]
    keyword = error.token.type.isupper() and error.token.isidentifier() and error.token.type != "IDENTIFIER"  # type: ignore[attr-defined]
    comment = excerpt.startswith(("/*", "//"))
    reserved = keyword and "an identifier" in acceptable and not _NAMED.match(text, offset)
    rule = "lexical.word" if adjoining or comment or reserved else "syntax.token"
    raise malformed(rule, f"found {excerpt!a}{hint}", at, expected) from None


def _parse(text: str, start: str, edition: Edition = _CURRENT) -> Any:
    grammar = _grammar(edition)
    try:
        return grammar.parse(text, start=start)
    except UnexpectedInput as error:
        _refuse(error, text, grammar)


def parse_text(
    text: str,
    start: str,
    roots: Callable[[Any], Iterable[syntax.Expression | None]],
    limits: Limits = DEFAULT,
    edition: Edition = _CURRENT,
) -> Any:
    """The tree of a text, by one rule of the grammar of an edition; ``roots`` gives the expressions in the tree.

    Raises `Malformed` for a text that the grammar does not admit, `LimitExceeded` for text, nesting and numbers.
    """
    require("text_bytes", len(text), limits.text_bytes, "characters of text")
    try:
        _scan(text, limits)
        tree = _parse(text, start, edition)
        _check_depth(roots(tree), limits)
    except CvmError as error:
        raise error from None
    return tree


def document_roots(document: syntax.Document) -> Iterable[syntax.Expression | None]:
    """The expressions of a document; None for a default value that is missing."""
    for fragment in document.fragments:
        yield from _fragment_roots(fragment)
    for assignment in document.graph.body:
        yield from (assignment.target, assignment.value)


def is_provisional(text: str) -> bool:
    """Whether a document is of the provisional specification: its version line does not end in a semicolon."""
    return _PROVISIONAL.match(text) is not None


def parse_document(text: str, limits: Limits = DEFAULT) -> syntax.Document:
    """The syntax tree of a structure description (section 3.2.4).

    Raises `Malformed` for a text that the grammar does not admit, `LimitExceeded` for text, nesting and numbers.
    """
    try:
        document: syntax.Document = parse_text(text, "document", document_roots, limits)
    except Malformed as error:
        if is_provisional(text):
            error.message += "; a document of the provisional specification, without it, has to be upgraded first"
        raise
    return document


def parse_library(text: str) -> tuple[syntax.Fragment, ...]:
    """The fragments of a library file, which holds nothing else."""
    library: tuple[syntax.Fragment, ...] = _parse(text, "library")
    return library


def parse_quantization(text: str, limits: Limits = DEFAULT) -> tuple[syntax.Entry, ...]:
    """The entries of a quantization file (section 5.3)."""

    def roots(entries: tuple[syntax.Entry, ...]) -> Iterable[syntax.Expression | None]:
        return (argument.value for entry in entries for argument in entry.arguments)

    entries: tuple[syntax.Entry, ...] = parse_text(text, "quantization", roots, limits)
    return entries
