"""A TFLite model as data: tensors, operators and subgraphs, checked for what every model must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from cvm.errors import Invalid, Location, Unsupported

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
    """One tensor of a subgraph. ``contents`` are the bytes of a constant, None for what is given or computed."""

    index: int
    name: str
    shape: Shape
    data_type: str
    quantization: Quantization | None = None
    contents: memoryview | None = None
    is_variable: bool = False
    open_shape: bool = False
    """Whether an extent may differ from run to run, so that `shape` is only one of those that are possible."""

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"tensor {self.index} ({self.name!r})"


@dataclass(frozen=True, eq=False, slots=True)
class TfliteOperator:
    """One operator; an input that is left out is -1. ``options`` are named as in the schema."""

    number: int
    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...] = ()
    options: Mapping[str, Option] = field(default_factory=dict)
    custom: bytes = b""

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"operator {self.number}, {self.op}"


@dataclass(frozen=True, eq=False, slots=True)
class Subgraph:
    """One graph of a model; tensors are numbered, and computed before they are read."""

    tensors: Sequence[TfliteTensor]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: Sequence[TfliteOperator]


@dataclass(frozen=True, eq=False, slots=True)
class TfliteModel:
    """A whole model; the first subgraph is the one that runs."""

    subgraphs: Sequence[Subgraph]
    names: Mapping[int, str]
    """The names that the signature of the first subgraph gives its inputs and outputs, by the number of the tensor."""
    digest: str
    """SHA-256 of the file, in hexadecimal."""


def invalid(operator: TfliteOperator, rule: str, message: str) -> Invalid:
    """The breach of a rule of TFLite by an operator; ``rule`` ends the code."""
    return Invalid(f"tflite.operator.{rule}", f"{operator.label}: {message}", Location(op=operator.op))


def refusal(operator: TfliteOperator, message: str, advice: str = "", code: str = "tflite.unsupported") -> Unsupported:
    """The refusal of a valid operator: which it is, why, and what to do instead."""
    return Unsupported(
        code, f"{operator.label}: {message}" + (f"; {advice}" if advice else ""), Location(op=operator.op)
    )
