"""A model of ONNX as data: values, nodes and constants, checked for what every model must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Location, Unsupported

__all__ = [
    "LEARNING", "MICROSOFT", "STANDARD", "Attribute", "Body", "Dimension", "Function", "Model", "OnnxNode", "Reference",
    "Refused", "Shape", "Tensor", "Value", "exact", "invalid", "refusal",
]  # fmt: skip

Shape: TypeAlias = tuple[int, ...]
Dimension: TypeAlias = int | str | None
"""An extent: a number, the name of an unknown one, or None."""

STANDARD, MICROSOFT, LEARNING = "", "com.microsoft", "ai.onnx.ml"


@dataclass(frozen=True, eq=False, slots=True)
class Tensor:
    """Contents of a constant. Integers narrower than a byte are one in a byte, bfloat16 is float32."""

    values: npt.NDArray[Any]
    data_type: str


@dataclass(frozen=True, slots=True)
class Refused:
    """An attribute of a kind that is not read: sparse tensors, types, lists of graphs."""

    kind: str


@dataclass(frozen=True, slots=True)
class Reference:
    """An attribute of a node of a function: the one of this name that the function is called with."""

    name: str


@dataclass(frozen=True, eq=False, slots=True)
class Body:
    """A graph that a node of control flow holds. Its nodes read its inputs, its constants and names from outside."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[OnnxNode, ...]
    constants: Mapping[str, Callable[[], Tensor]]

    def captured(self) -> list[str]:
        """The names that its nodes and results read from outside, each once, in order."""
        inside = {*self.inputs, *self.constants}
        found: dict[str, None] = {}
        for node in self.nodes:
            found.update(dict.fromkeys(name for name in node.reads() if name not in inside))
            inside.update(node.outputs)
        found.update(dict.fromkeys(name for name in self.outputs if name not in inside))
        return list(found)


Attribute: TypeAlias = (
    int | float | str | Tensor | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Body | Reference | Refused
)


@dataclass(frozen=True, slots=True)
class Value:
    """A declared input or output; ``dims`` is None where the model does not say the rank."""

    name: str
    data_type: str
    dims: tuple[Dimension, ...] | None


@dataclass(frozen=True, eq=False, slots=True)
class OnnxNode:
    """One node. An input that is left out is ""."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    number: int = 0
    overload: str = ""
    opset: int | None = None
    """The version of its operator, where that is another than the model imports."""
    origin: OnnxNode | None = None
    """The node of the file that this one is written out from."""

    @property
    def operator(self) -> str:
        """Its operator with the domain, as messages call it."""
        return f"{self.domain + '.' if self.domain else ''}{self.op}"

    @property
    def label(self) -> str:
        """How messages call it: by its name, or by its number and what it computes, as the file has it."""
        if self.origin is not None:
            inner = "" if self.op == self.origin.op else f" (its {self.operator})"
            return f"{self.origin.label}{inner}"
        where = repr(self.name) if self.name else f"number {self.number} (to {next(filter(None, self.outputs), '')!r})"
        return f"node {where}, {self.operator}"

    def reads(self) -> list[str]:
        """The names that it reads, those that its graphs read from outside among them."""
        found = [name for name in self.inputs if name]
        for attribute in self.attributes.values():
            if isinstance(attribute, Body):
                found += attribute.captured()
        return found


@dataclass(frozen=True, eq=False, slots=True)
class Function:
    """A function that a model defines: its nodes read its inputs alone."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[OnnxNode, ...]
    required: tuple[str, ...]
    """Attributes that a call must give."""
    defaults: Mapping[str, Attribute]
    opsets: Mapping[str, int]


@dataclass(frozen=True, eq=False, slots=True)
class Model:
    """A model whose names are defined once, before they are read. ``constants`` are read when they are needed."""

    name: str
    opsets: Mapping[str, int]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[OnnxNode, ...]
    constants: Mapping[str, Callable[[], Tensor]]
    functions: Mapping[tuple[str, str, str], Function]
    """By domain, name and overload."""
    digest: str
    """SHA-256 of the file, in hexadecimal."""


def _located(node: OnnxNode) -> Location:
    return Location(tensor=next(filter(None, node.outputs), None), op=node.op)


def invalid(node: OnnxNode, rule: str, message: str) -> Invalid:
    """The breach of a rule of ONNX by a node; ``rule`` ends the code."""
    return Invalid(f"onnx.node.{rule}", f"{node.label}: {message}", _located(node))


def refusal(node: OnnxNode, message: str, advice: str = "", code: str = "onnx.unsupported") -> Unsupported:
    """The refusal of a valid node: which it is, why, and what to do instead."""
    return Unsupported(code, f"{node.label}: {message}" + (f"; {advice}" if advice else ""), _located(node))


def exact(number: float, node: OnnxNode, name: str) -> Fraction:
    """An attribute as the rational that it is. Raises `Invalid` for NaN and infinities."""
    if not np.isfinite(number):
        raise invalid(node, "attribute", f"{name} must be finite, found {number}")
    return Fraction(number)
