"""An ONNX model as data: values, nodes and constants, checked by the rules that hold for every model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Location, Unsupported
from cvm.records import dataclass

__all__ = [
    "LEARNING", "MICROSOFT", "STANDARD", "Attribute", "Body", "Dimension", "Function", "Model", "OnnxNode", "Reference",
    "Refused", "Shape", "Tensor", "Value", "exact", "invalid", "refusal",
]  # fmt: skip

Shape: TypeAlias = tuple[int, ...]
Dimension: TypeAlias = int | str | None
"""An extent: a number, the name of an unknown number, or None for an unknown number without a name."""

STANDARD, MICROSOFT, LEARNING = "", "com.microsoft", "ai.onnx.ml"


@dataclass(frozen=True, eq=False, slots=True)
class Tensor:
    """The contents of a constant. Integers narrower than a byte take one byte each; bfloat16 is stored as float32."""

    values: npt.NDArray[Any]
    data_type: str


@dataclass(frozen=True, slots=True)
class Refused:
    """An attribute of a kind that is not supported: sparse tensors, types, lists of graphs."""

    kind: str


@dataclass(frozen=True, slots=True)
class Reference:
    """An attribute of a node inside of a function that stands for the attribute of this name in the call of the
    function.
    """

    name: str


@dataclass(frozen=True, eq=False, slots=True)
class Body:
    """The graph in an attribute of a control-flow node. Its nodes read its inputs, its constants and outer tensors."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[OnnxNode, ...]
    constants: Mapping[str, Callable[[], Tensor]]

    def captured(self) -> list[str]:
        """The names of outer tensors that its nodes and results read, each once, in order."""
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
    """A declared input or output; ``dims`` is None where the model does not state the rank."""

    name: str
    data_type: str
    dims: tuple[Dimension, ...] | None


@dataclass(frozen=True, eq=False, slots=True)
class OnnxNode:
    """One node of the model. The name of an operand that is left out is ""."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    number: int = 0
    overload: str = ""
    opset: int | None = None
    """The version of the operator, where it is not the version that the model imports."""
    origin: OnnxNode | None = None
    """The node of the file that this node was expanded from."""

    @property
    def operator(self) -> str:
        """The operator with its domain, as messages name it."""
        return f"{self.domain + '.' if self.domain else ''}{self.op}"

    @property
    def label(self) -> str:
        """The name of the node in messages: its own name, or its number and its first result; for an expanded node, its
        origin.
        """
        if self.origin is not None:
            inner = "" if self.op == self.origin.op else f" (its {self.operator})"
            return f"{self.origin.label}{inner}"
        where = repr(self.name) if self.name else f"number {self.number} (to {next(filter(None, self.outputs), '')!r})"
        return f"node {where}, {self.operator}"

    def reads(self) -> list[str]:
        """The names that the node reads, with the outer names that its bodies read."""
        found = [name for name in self.inputs if name]
        for attribute in self.attributes.values():
            if isinstance(attribute, Body):
                found += attribute.captured()
        return found


@dataclass(frozen=True, eq=False, slots=True)
class Function:
    """A function that a model defines: its nodes read only its inputs."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[OnnxNode, ...]
    required: tuple[str, ...]
    """The attributes that a call must give."""
    defaults: Mapping[str, Attribute]
    opsets: Mapping[str, int]


@dataclass(frozen=True, eq=False, slots=True)
class Model:
    """A model in which every name is defined once and before it is read. Constants are read when they are needed."""

    name: str
    opsets: Mapping[str, int]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[OnnxNode, ...]
    constants: Mapping[str, Callable[[], Tensor]]
    functions: Mapping[tuple[str, str, str], Function]
    """The functions of the model, by domain, name and overload."""
    digest: str
    """The SHA-256 of the file, in hexadecimal."""


def _located(node: OnnxNode) -> Location:
    return Location(tensor=next(filter(None, node.outputs), None), op=node.op)


def invalid(node: OnnxNode, rule: str, message: str) -> Invalid:
    """The error for a node that breaks a rule of ONNX; ``rule`` ends the code."""
    return Invalid(f"onnx.node.{rule}", f"{node.label}: {message}", _located(node))


def refusal(node: OnnxNode, message: str, advice: str = "", code: str = "onnx.unsupported") -> Unsupported:
    """The error for a valid node that is not supported: it names the node, the reason and the next step."""
    return Unsupported(code, f"{node.label}: {message}" + (f"; {advice}" if advice else ""), _located(node))


def exact(number: float, node: OnnxNode, name: str) -> Fraction:
    """A float attribute as the exact rational of its value. Raises `Invalid` for NaN and infinities."""
    if not np.isfinite(number):
        raise invalid(node, "attribute", f"{name} must be finite, found {number}")
    return Fraction(number)
