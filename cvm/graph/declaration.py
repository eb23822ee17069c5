"""The operations that a graph can have, each declared once: parameters with types and defaults, results, meaning.

Declarations are written in the notation of NNEF 1.0.1 section 3.3.2: ``stdlib.nnef`` is chapter 4, ``khronos.nnef``
what the Khronos tools add, ``further.nnef`` what other formats need; a later file replaces what an earlier one has
declared. The front end for NNEF reads the first two as its libraries. Constraints and shapes are in `cvm.graph.shapes`,
a function per operation.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from cvm.errors import Unsupported
from cvm.graph.model import Attribute, Operand
from cvm.records import dataclass

__all__ = ["FILES", "Declaration", "Parameter", "declaration", "declarations", "operations_of", "text_of"]

FILES = ("stdlib.nnef", "khronos.nnef", "further.nnef")
"""The files of declarations, in order."""

_HEADING = re.compile(r"# (4(?:\.\d+)+|Source:) (.*)")
_HEAD = re.compile(r"fragment (\w+)(?:<[^>]*>)?\((.*?)\)\s*->\s*\((.*?)\)\s*(;|\{)", re.DOTALL)
_PARAMETER = re.compile(r"\s*(\w+): (\S+?)(?: = (.+?))?(?:,(?=\s+\w+:)|\s*$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A formal parameter or a result: its type in the notation of NNEF, and the default value where it has one."""

    name: str
    type: str
    default: Attribute | None = None

    @property
    def tensor(self) -> bool:
        """Whether the parameter is a tensor or an array of tensors, and not an attribute."""
        return self.type.startswith("tensor")

    @property
    def many(self) -> bool:
        """Whether the parameter is an array."""
        return self.type.endswith("[]")

    def admits(self, value: Any) -> bool:
        """Whether an attribute may have this value. Numbers must be exact; an integer counts as a number, too."""
        return _is_of(value, self.type)


@dataclass(frozen=True, slots=True)
class Declaration:
    """One operation. ``meaning`` is a formula or, for an operation that consists of others, its definition."""

    name: str
    parameters: tuple[Parameter, ...]
    results: tuple[Parameter, ...]
    meaning: str
    source: str
    """The source of the meaning: a section of NNEF 1.0.1, or the document of another format."""

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """The parameters that are tensors."""
        return tuple(parameter for parameter in self.parameters if parameter.tensor)

    @property
    def attributes(self) -> tuple[Parameter, ...]:
        """The parameters that are not tensors."""
        return tuple(parameter for parameter in self.parameters if not parameter.tensor)

    def complete(
        self, inputs: Mapping[str, Operand], attributes: Mapping[str, Attribute]
    ) -> tuple[dict[str, Operand], dict[str, Attribute]]:
        """The arguments with the default value of every parameter that is not given."""
        tensors: dict[str, Operand] = dict(inputs)
        others: dict[str, Attribute] = dict(attributes)
        for parameter in self.parameters:
            if parameter.default is None:
                continue
            if not parameter.tensor:
                others.setdefault(parameter.name, parameter.default)
            elif isinstance(parameter.default, Fraction):
                tensors.setdefault(parameter.name, parameter.default)
        return tensors, others


def _is_of(value: Any, type_: str) -> bool:
    if type_.endswith("[]"):
        return isinstance(value, tuple) and all(_is_of(item, type_[:-2]) for item in value)
    if type_.startswith("("):
        parts = type_[1:-1].split(",")
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(_is_of, value, parts))
    match type_:
        case "integer":
            return type(value) is int
        case "scalar":
            return type(value) is int or isinstance(value, Fraction)
        case "logical":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
    return True  # any type: the items of a constant


def text_of(file: str) -> str:
    """The text of one of the `FILES`."""
    return resources.files("cvm.graph").joinpath(file).read_text("utf-8")


@lru_cache(maxsize=1)
def declarations() -> Mapping[str, Declaration]:
    """All operations by name, in the order of the files."""
    found: dict[str, Declaration] = {}
    for file in FILES:
        for item in operations_of(file):
            known = found.get(item.name)
            if known:
                item = replace(item, meaning=item.meaning or known.meaning, source=known.source)
            found[item.name] = item
    return MappingProxyType(found)


def declaration(name: str) -> Declaration:
    """The declaration of an operation. Raises `Unsupported` (``graph.operation``) where there is none."""
    found = declarations().get(name)
    if found is None:
        raise Unsupported("graph.operation", f"no operation of a graph is called {name!r}")
    return found


def operations_of(file: str) -> Iterator[Declaration]:
    """The operations that one of the `FILES` declares, in its order."""
    text, source, above = text_of(file), "NNEF 1.0.1", list[str]()
    offset = 0
    for line in text.splitlines(keepends=True):
        if heading := _HEADING.match(line):
            nnef = heading[1] != "Source:"
            source, above = f"NNEF 1.0.1 section {heading[1]}" if nnef else heading[2], []
        elif line.startswith("# "):
            above.append(line[2:].strip())
        elif head := _HEAD.match(text, offset):
            body = "" if head[4] == ";" else " ".join(text[head.end() : text.index("\n}", head.end())].split())
            parameters, results = (_parameters(part) for part in (head[2], head[3]))
            yield Declaration(head[1], parameters, results, " ".join(above) or body, source)
            above = []
        elif not line.strip():
            above = []
        offset += len(line)


def _parameters(text: str) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(item[1], item[2], None if item[3] is None else _value(item[3], item[2].endswith("scalar>")))
        for item in _PARAMETER.finditer(text)
    )


def _value(text: str, tensor: bool) -> Attribute:
    """The exact value of a literal; decimal numbers, and literals that stand for tensors, are fractions."""
    if text in ("true", "false"):
        return text == "true"
    if tensor or re.fullmatch(r"-?\d+\.\d+", text):
        return Fraction(text)
    value: Attribute = _tuples(ast.literal_eval(text))
    return value


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
