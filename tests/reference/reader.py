"""Reads the three files of a model folder: flat NNEF text (A.1), tensor data (5.2) and quantisation (5.3).

Numbers stay exact: a literal with a point or an exponent is the `Fraction` of its decimal text, an item of a tensor
file is the dyadic rational that its bits denote. Anything outside the flat grammar or storage code 0x00 is refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_TOKEN = re.compile(
    r"""(?P<skip>\s+|\#[^\n\f]*)
      | (?P<number>-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<sign>->|[()\[\]{}:=,;<>])""",
    re.VERBOSE,
)
_HEADER_BYTES = 128
_FLOAT_TYPES: Mapping[int, str] = {16: "<f2", 32: "<f4", 64: "<f8"}
_LOGICAL: Mapping[str, bool] = {"true": True, "false": False}


@dataclass(frozen=True)
class Reference:
    """An identifier used as an argument: the tensor of that name."""

    name: str


Argument = Reference | Fraction | int | bool | str | list["Argument"] | tuple["Argument", ...]


@dataclass(frozen=True)
class Assignment:
    """One line of a flat body: `target = operation(*positional, **named)` (3.2.1)."""

    target: str
    operation: str
    positional: tuple[Argument, ...]
    named: Mapping[str, Argument]


@dataclass(frozen=True)
class Document:
    """A flat graph definition (A.1)."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True)
class Quantiser:
    """`linear_quantize(min, max, bits)` of 4.9.5: code q in 0..levels denotes min + q * step."""

    min: Fraction
    max: Fraction
    bits: int

    def __post_init__(self) -> None:
        if not (self.min < self.max and self.bits >= 1):
            raise ValueError(f"not a quantiser: {self}")

    @property
    def levels(self) -> int:
        """r = 2^bits - 1, the largest code."""
        return int(2**self.bits - 1)

    @property
    def step(self) -> Fraction:
        """(max - min) / r, the distance of neighbouring values."""
        return (self.max - self.min) / self.levels

    def value(self, code: int) -> Fraction:
        """The real value that a code denotes."""
        return self.min + code * self.step


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

    def assignment(self) -> Assignment:
        target = self.take("name").text
        self.expect("=")
        operation = self.take("name").text
        if self.accept("<"):
            self.expect("scalar")
            self.expect(">")
        positional, named = self.arguments()
        self.expect(";")
        return Assignment(target, operation, positional, named)


def parse_document(text: str) -> Document:
    """The flat document (A.1) that `text` spells; `ValueError` if it is not one."""
    parser = _Parser(text)
    parser.expect("version")
    if parser.take("number").text != "1.0":
        raise ValueError("only version 1.0 is known")
    parser.expect(";")
    parser.expect("graph")
    name = parser.take("name").text
    inputs = parser.names()
    parser.expect("->")
    outputs = parser.names()
    parser.expect("{")
    assignments = []
    while not parser.accept("}"):
        assignments.append(parser.assignment())
    if not parser.at_end():
        raise ValueError(f"text after the graph: {parser.peek()!r}")
    return Document(name, inputs, outputs, tuple(assignments))


def parse_quantisation(text: str) -> dict[str, Quantiser]:
    """The lines of a graph.quant (5.3) by tensor name; ranges are the exact rationals of their decimal text."""
    parser = _Parser(text)
    quantisers: dict[str, Quantiser] = {}
    while not parser.at_end():
        name = parser.take("string").text[1:-1]
        parser.expect(":")
        parser.expect("linear_quantize")
        positional, named = parser.arguments()
        parser.expect(";")
        if positional or set(named) != {"min", "max", "bits"} or name in quantisers:
            raise ValueError(f"not one linear_quantize(min, max, bits) for tensor {name!r}")
        quantisers[name] = Quantiser(_number(named["min"]), _number(named["max"]), _integer(named["bits"]))
    return quantisers


def _number(argument: Argument) -> Fraction:
    if isinstance(argument, bool) or not isinstance(argument, int | Fraction):
        raise ValueError(f"not a number: {argument!r}")
    return Fraction(argument)


def _integer(argument: Argument) -> int:
    if isinstance(argument, bool) or not isinstance(argument, int):
        raise ValueError(f"not an integer: {argument!r}")
    return argument


def read_tensor(path: Path) -> npt.NDArray[np.floating]:
    """The floats of a tensor file (5.2) in tensor shape; storage code 0x00 (IEEE floats) only."""
    data = path.read_bytes()
    magic, length, rank = struct.unpack_from("<4sII", data, 0)
    extents = struct.unpack_from("<8I", data, 12)
    bits, code = struct.unpack_from("<II", data, 44)
    if magic != b"N\xef\x01\x00" or len(data) != _HEADER_BYTES + length or rank > 8:
        raise ValueError(f"{path}: not a tensor file of version 1.0")
    if code != 0 or bits not in _FLOAT_TYPES:
        raise ValueError(f"{path}: storage code {code:#x} with {bits} bits per item is not read here")
    return np.frombuffer(data, dtype=_FLOAT_TYPES[bits], offset=_HEADER_BYTES).reshape(extents[:rank])
