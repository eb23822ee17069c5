"""A TFLite model as data: tensors, operators and subgraphs, checked by the rules that hold for every model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from cvm.errors import Invalid, Location, Unsupported
from cvm.records import dataclass

__all__ = [
    "Option",
    "Quantization",
    "Shape",
    "Subgraph",
    "TfliteModel",
    "TfliteOperator",
    "TfliteTensor",
    "invalid",
    "refusal",
]

Shape: TypeAlias = tuple[int, ...]
Option: TypeAlias = int | float | bool | str | tuple[int, ...] | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Quantization:
    """The scales and zero points of a tensor: one of each, or one for every index of the axis ``dimension``."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    dimension: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class TfliteTensor:
    """One tensor of a subgraph. ``contents`` holds the bytes of a constant; it is None for an input or a computed
    tensor.
    """

    index: int
    name: str
    shape: Shape
    data_type: str
    quantization: Quantization | None = None
    contents: memoryview | None = None
    is_variable: bool = False
    open_shape: bool = False
    """Whether an extent may differ from run to run; then `shape` is only one of the possible shapes."""

    @property
    def label(self) -> str:
        """The name of the tensor in messages."""
        return f"tensor {self.index} ({self.name!r})"


@dataclass(frozen=True, eq=False, slots=True)
class TfliteOperator:
    """One operator. An input that is left out is -1. ``options`` has the names of the schema."""

    number: int
    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...] = ()
    options: Mapping[str, Option] = field(default_factory=dict)
    custom: bytes = b""

    @property
    def label(self) -> str:
        """The name of the operator in messages."""
        return f"operator {self.number}, {self.op}"


@dataclass(frozen=True, eq=False, slots=True)
class Subgraph:
    """One graph of a model. Operators refer to tensors by index, and a tensor is computed before it is read."""

    tensors: Sequence[TfliteTensor]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: Sequence[TfliteOperator]


@dataclass(frozen=True, eq=False, slots=True)
class TfliteModel:
    """A whole model; the first subgraph is its main graph."""

    subgraphs: Sequence[Subgraph]
    names: Mapping[int, str]
    """The names that the signature of the first subgraph gives its inputs and outputs, by the index of the tensor."""
    digest: str
    """The SHA-256 of the file, in hexadecimal."""


def invalid(operator: TfliteOperator, rule: str, message: str) -> Invalid:
    """The error for an operator that breaks a rule of TFLite; ``rule`` ends the code."""
    return Invalid(f"tflite.operator.{rule}", f"{operator.label}: {message}", Location(op=operator.op))


def refusal(operator: TfliteOperator, message: str, advice: str = "", code: str = "tflite.unsupported") -> Unsupported:
    """The error for a valid operator that is not supported: it names the operator, the reason and the next step."""
    return Unsupported(
        code, f"{operator.label}: {message}" + (f"; {advice}" if advice else ""), Location(op=operator.op)
    )
