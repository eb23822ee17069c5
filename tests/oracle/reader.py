"""Reads the texts of a model folder: NNEF text (A.1, and fragments with flat bodies of A.2) and quantisation (5.3).

Numbers stay exact: a literal with a point or an exponent is the `Fraction` of its decimal text. Anything outside the
flat grammar is refused, but for fragment definitions whose bodies are flat; extensions are read over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from .quantization import ALGORITHMS, Quantiser

_TOKEN = re.compile(
    r"""(?P<skip>\s+|\#[^\n\f]*)
      | (?P<number>-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<sign>->|[()\[\]{}:=,;<>?])""",
    re.VERBOSE,
)
_LOGICAL: Mapping[str, bool] = {"true": True, "false": False}


@dataclass(frozen=True)
class Reference:
    """An identifier used as an argument: the tensor of that name."""

    name: str


Argument = Reference | Fraction | int | bool | str | list["Argument"] | tuple["Argument", ...]


Target = str | list["Target"] | tuple["Target", ...]


@dataclass(frozen=True)
class Assignment:
    """One line of a flat body: `target = operation<type_name>(*positional, **named)` (3.2.1)."""

    target: Target
    operation: str
    positional: tuple[Argument, ...]
    named: Mapping[str, Argument]
    type_name: str = "scalar"


@dataclass(frozen=True)
class Fragment:
    """A fragment definition (3.2.2): parameters with their defaults (None: there is none), and its assignments."""

    name: str
    parameters: Mapping[str, Argument | None]
    results: tuple[str, ...]
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True)
class Document:
    """A graph definition and the fragments it may invoke."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    assignments: tuple[Assignment, ...]
    fragments: Mapping[str, Fragment]


def names_in(target: Target) -> list[str]:
    """The identifiers of a left-hand side."""
    return [target] if isinstance(target, str) else [name for part in target for name in names_in(part)]


class _Token(NamedTuple):
    kind: str
    text: str


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise ValueError(f"no lexical entity (3.1) at {text[position : position + 20]!r}")
        if match.lastgroup != "skip":
            yield _Token(match.lastgroup, match.group())
        position = match.end()
    yield _Token("end", "")


class _Parser:
    """Recursive descent over A.1; the only state is the position in the list of tokens."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0

    def peek(self) -> str:
        return self._tokens[self._next].text

    def take(self, *kinds: str) -> _Token:
        token = self._tokens[self._next]
        if token.kind not in kinds:
            raise ValueError(f"expected {' or '.join(kinds)}, found {token.text!r}")
        self._next += 1
        return token

    def at_end(self) -> bool:
        return self._tokens[self._next].kind == "end"

    def accept(self, text: str) -> bool:
        found = self._tokens[self._next].kind in ("sign", "name") and self.peek() == text
        self._next += found
        return found

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise ValueError(f"expected {text!r}, found {self.peek()!r}")

    def names(self) -> tuple[str, ...]:
        """A parenthesised <identifier-list>."""
        self.expect("(")
        names = [self.take("name").text]
        while self.accept(","):
            names.append(self.take("name").text)
        self.expect(")")
        return tuple(names)

    def argument(self) -> Argument:
        """<rvalue-expr> of the flat grammar."""
        if self.accept("["):
            return self._items("]")
        if self.accept("("):
            return tuple(self._items(")"))
        token = self.take("number", "name", "string")
        if token.kind == "number":
            return int(token.text) if re.fullmatch(r"-?[0-9]+", token.text) else Fraction(token.text)
        if token.kind == "string":
            return re.sub(r"\\(.)", r"\1", token.text[1:-1])
        return _LOGICAL[token.text] if token.text in _LOGICAL else Reference(token.text)

    def _items(self, close: str) -> list[Argument]:
        items: list[Argument] = []
        while not self.accept(close):
            if items:
                self.expect(",")
            items.append(self.argument())
        return items

    def arguments(self) -> tuple[tuple[Argument, ...], dict[str, Argument]]:
        """A parenthesised <argument-list>: positional arguments, then named ones (3.3.2)."""
        positional: list[Argument] = []
        named: dict[str, Argument] = {}
        self.expect("(")
        while not self.accept(")"):
            if positional or named:
                self.expect(",")
            argument = self.argument()
            if isinstance(argument, Reference) and self.accept("="):
                if argument.name in named:
                    raise ValueError(f"argument {argument.name!r} is named twice")
                named[argument.name] = self.argument()
            elif named:
                raise ValueError("a positional argument follows a named one")
            else:
                positional.append(argument)
        return tuple(positional), named

    def target(self) -> Target:
        """<lvalue-expr>; a tuple needs no parentheses."""
        first = self._target_item()
        if self.peek() != ",":
            return first
        parts = [first]
        while self.accept(","):
            parts.append(self._target_item())
        return tuple(parts)

    def _target_item(self) -> Target:
        for opening, close in (("[", "]"), ("(", ")")):
            if self.accept(opening):
                parts: list[Target] = [self._target_item()]
                while self.accept(","):
                    parts.append(self._target_item())
                self.expect(close)
                return parts if opening == "[" else tuple(parts)
        return self.take("name").text

    def assignment(self) -> Assignment:
        target = self.target()
        self.expect("=")
        operation = self.take("name").text
        type_name = "scalar"
        if self.accept("<"):
            type_name = self.take("name").text
            self.expect(">")
        positional, named = self.arguments()
        self.expect(";")
        return Assignment(target, operation, positional, named, type_name)

    def body(self) -> tuple[Assignment, ...]:
        self.expect("{")
        assignments = []
        while not self.accept("}"):
            assignments.append(self.assignment())
        return tuple(assignments)

    def _type(self) -> None:
        """<type-spec>, read over."""
        if self.accept("("):
            self._type()
            while self.accept(","):
                self._type()
            self.expect(")")
        elif self.take("name", "sign").text == "tensor":
            self.expect("<")
            while not self.accept(">"):
                self.take("name", "sign")
        while self.accept("["):
            self.expect("]")

    def fragment(self) -> Fragment:
        """<fragment-definition>, after the keyword."""
        name = self.take("name").text
        while self.peek() != "(":
            self.take("sign", "name")  # <? = scalar>
        parameters: dict[str, Argument | None] = {}
        self.expect("(")
        while not self.accept(")"):
            self.accept(",")
            parameter = self.take("name").text
            self.expect(":")
            self._type()
            parameters[parameter] = self.argument() if self.accept("=") else None
        self.expect("->")
        self.expect("(")
        results = []
        while not self.accept(")"):
            self.accept(",")
            results.append(self.take("name").text)
            self.expect(":")
            self._type()
        return Fragment(name, parameters, tuple(results), self.body())


def parse_document(text: str) -> Document:
    """The document that `text` spells; `ValueError` if it is none."""
    parser = _Parser(text)
    parser.expect("version")
    if parser.take("number").text != "1.0":
        raise ValueError("only version 1.0 is known")
    parser.expect(";")
    while parser.accept("extension"):
        while not parser.accept(";"):
            parser.take("name")
    fragments = {}
    while parser.accept("fragment"):
        fragment = parser.fragment()
        fragments[fragment.name] = fragment
    parser.expect("graph")
    name = parser.take("name").text
    inputs = parser.names()
    parser.expect("->")
    outputs = parser.names()
    assignments = parser.body()
    if not parser.at_end():
        raise ValueError(f"text after the graph: {parser.peek()!r}")
    return Document(name, inputs, outputs, assignments, fragments)


def parse_quantisation(text: str) -> dict[str, Quantiser]:
    """The lines of a graph.quant (5.3) by tensor name; parameters are the exact rationals of their decimal text."""
    parser = _Parser(text)
    quantisers: dict[str, Quantiser] = {}
    while not parser.at_end():
        name = parser.take("string").text[1:-1]
        parser.expect(":")
        algorithm = parser.take("name").text
        positional, named = parser.arguments()
        parser.expect(";")
        if positional or algorithm not in ALGORITHMS or name in quantisers:
            raise ValueError(f"not one quantiser with named arguments for tensor {name!r}")
        kinds = (int, Fraction, list)
        if not all(isinstance(value, kinds) or (key in {"signed", "symmetric"}) for key, value in named.items()):
            raise ValueError(f"not the arguments of a quantiser: {named}")
        if any(isinstance(value, bool) != (key in {"signed", "symmetric"}) for key, value in named.items()):
            raise ValueError(f"not the arguments of a quantiser: {named}")
        try:
            quantisers[name] = ALGORITHMS[algorithm](**named)
        except TypeError as error:
            raise ValueError(f"not the arguments of a quantiser: {error}") from error
    return quantisers
