"""QuantizedGraph: what every front end produces and lowering consumes.

A graph is a list of operations on real-valued tensors in execution order; all shapes are known, all attributes are
concrete, and a tensor may carry a quantiser. Its meaning: each operation is computed on reals of infinite precision,
and a tensor that carries a quantiser is rounded and clamped once, right after it is computed. Operation and parameter
names are those that `cvm.graph.declaration` declares, those of NNEF 1.0.1 chapter 4 among them; `cvm.graph.verifier`
checks what is promised here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy.typing as npt

from cvm.errors import Location
from cvm.quantization import Quantizer
from cvm.records import dataclass

__all__ = ["Attribute", "GraphOperation", "GraphTensor", "Operand", "QuantizedGraph", "TensorData"]

Operand: TypeAlias = "str | Fraction | bool | tuple[Operand, ...]"
"""An operand: the name of a tensor, a literal (an exact number or a logical value), or an array of operands."""

Attribute: TypeAlias = "bool | int | Fraction | str | tuple[Attribute, ...]"
"""A concrete attribute: arrays and tuples are both tuples, scalars exact rationals, integers Python integers."""


@dataclass(frozen=True, eq=False, slots=True)
class TensorData:
    """Exact contents of a stored tensor, row-major.

    Each item of ``values`` (any integer, boolean or IEEE float dtype) is the exact number that it is; with
    ``quantizer`` the items are codes and stand for the real numbers that it gives them.
    """

    values: npt.NDArray[Any]
    quantizer: Quantizer | None = None


@dataclass(frozen=True, eq=False, slots=True)
class GraphTensor:
    """One tensor of the graph. Only graphs have tensors of rank 0; the tensors of programs have at least one axis."""

    name: str
    shape: tuple[int, ...]
    kind: Literal["external", "variable", "constant", "computed"]
    dtype: Literal["scalar", "integer", "logical"] = "scalar"
    quantizer: Quantizer | None = None
    data: TensorData | None = None
    """Contents of variables (when the document has them) and constants."""
    label: str | None = None
    """The label of a variable."""
    location: Location = field(default_factory=Location)


@dataclass(frozen=True, eq=False, slots=True)
class GraphOperation:
    """One operation: tensors and literals by parameter name, concrete attributes by name, names of its results.

    A parameter that the specification types as a tensor stands in ``inputs``, any other in ``attributes``; every
    parameter is present, defaults included. Results that are arrays are flattened into ``outputs``.
    """

    name: str
    inputs: Mapping[str, Operand]
    attributes: Mapping[str, Attribute]
    outputs: tuple[str, ...]
    location: Location = field(default_factory=Location)


@dataclass(frozen=True, eq=False, slots=True)
class QuantizedGraph:
    """A whole network. ``tensors`` is in order of introduction, ``operations`` in execution order."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, GraphTensor]
    operations: tuple[GraphOperation, ...]
    source_digest: str = ""
    """SHA-256 of the document that the graph was read from, in hexadecimal; not part of any commitment."""

    def __repr__(self) -> str:
        counts = {
            "inputs": self.inputs,
            "outputs": self.outputs,
            "operations": self.operations,
            "tensors": self.tensors,
        }
        return f"QuantizedGraph({self.name!r}: {', '.join(f'{len(all_)} {what}' for what, all_ in counts.items())})"
