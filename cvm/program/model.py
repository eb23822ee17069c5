"""The integer program as data, which is executed, stored, hashed and verified.

A program is a list of nodes in execution order over named int32 tensors; each name is written once. All parts are
immutable data: there are no kernels, all shapes are given, and nothing refers to a front end. ``formal`` reads these
classes and nothing else of cvm. `cvm.program.program` adds the bytes and the digest of a program.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Location

if TYPE_CHECKING:
    from cvm.quantization import Quantizer

__all__ = [
    "OP_SET",
    "AttributeValue",
    "Constant",
    "Exactness",
    "Input",
    "Node",
    "Output",
    "ProgramParts",
    "Provenance",
    "Shape",
    "State",
    "Value",
]

OP_SET = 1
"""The op-set version that a program states, unless it has ops of a later version (`cvm.ops.op_set`)."""

Shape: TypeAlias = tuple[int, ...]
AttributeValue: TypeAlias = "bool | int | str | tuple[int, ...]"

_WIDTHS = ((1, "b"), (2, "h"), (4, "i"), (8, "q"))


@dataclass(frozen=True, slots=True)
class Value:
    """A named int32 tensor: its shape, and an interval [lo, hi] that every element is proven to lie in."""

    name: str
    shape: Shape
    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor that the caller provides; its interval is the contract. Without a quantiser it takes integers only."""

    value: Value
    quantizer: Quantizer | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """A result: its public name, the name of its value, and the quantiser that gives the meaning of its codes."""

    name: str
    value: str
    quantizer: Quantizer | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant: an int32 ``tensor``, or an int64 ``parameter`` (the multipliers, offsets and shifts of requantize).

    ``data`` holds the elements in row-major order, little-endian, in two's complement. Each has ``width`` bytes: the
    smallest of 1, 2, 4, 8 with which all elements fit.
    """

    name: str
    kind: Literal["tensor", "parameter"]
    shape: Shape
    width: int
    data: bytes = field(repr=False)

    @staticmethod
    def of(name: str, array: npt.ArrayLike, kind: Literal["tensor", "parameter"] = "tensor") -> Constant:
        """A constant with the elements of an integer array, stored at the smallest width.

        Raises TypeError for an array of another dtype, and `Invalid` for an empty one or elements beyond 64 bits.
        """
        items = np.asarray(array)
        if items.dtype.kind not in "iu":
            raise TypeError(f"a constant holds integers, found dtype {items.dtype}")
        if not items.size:
            found = list(items.shape)
            raise Invalid("program.shape", f"a constant has elements; found shape {found}", Location(tensor=name))
        lo, hi = int(items.min()), int(items.max())
        if hi >= 2**63:
            raise Invalid("program.constant.value", f"an element does not fit in 64 bits: {hi}", Location(tensor=name))
        width = next(size for size, _ in _WIDTHS if -(2 ** (8 * size - 1)) <= lo and hi < 2 ** (8 * size - 1))
        return Constant(name, kind, tuple(items.shape), width, items.astype(f"<i{width}", copy=False).tobytes())

    def stored(self) -> npt.NDArray[Any]:
        """The elements as a read-only array of the stored width, without a copy."""
        return np.frombuffer(self.data, f"<i{self.width}").reshape(self.shape)

    def array(self) -> npt.NDArray[Any]:
        """The elements as a read-only array: int32 for a tensor, int64 for a parameter."""
        expanded = self.stored().astype(np.int32 if self.kind == "tensor" else np.int64)
        expanded.setflags(write=False)
        return expanded

    def integers(self) -> Iterator[int]:
        """The elements as Python integers, row-major."""
        code = dict(_WIDTHS)[self.width]
        return (item for (item,) in struct.iter_unpack(f"<{code}", self.data))


@dataclass(frozen=True, slots=True)
class State:
    """A tensor that persists from run to run.

    Nodes read it under the name of ``value``, and see its content after the previous run. ``initial`` is the constant
    that it holds before the first run; ``update`` names the value that it takes when a run has ended.
    """

    value: Value
    initial: str
    update: str


@dataclass(frozen=True, slots=True)
class Node:
    """One application of an op. ``attributes`` include defaults and leave absent ones out; their order is free."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[Value, ...]
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exactness:
    """What the compiler has proven about one tensor of the source document.

    ``bound`` is the largest possible difference from the document's meaning, in codes; 0 means exact.
    """

    tensor: str
    value: str
    bound: Fraction
    accumulator: tuple[int, int] | None = None
    """The interval of the 64-bit sum from which the tensor was rounded, if there is such a sum."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a program came from. It is not part of the digest: two compilers may describe one program differently."""

    tool: str = ""
    source: str = ""
    source_digest: str = ""
    exactness: tuple[Exactness, ...] = ()

    def __repr__(self) -> str:
        return f"Provenance({self.tool!r} from {self.source!r} {self.source_digest}; {len(self.exactness)} tensors)"


@dataclass(frozen=True, eq=False, repr=False)
class ProgramParts:
    """All parts of an integer program."""

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    constants: tuple[Constant, ...] = ()
    state: tuple[State, ...] = ()
    nodes: tuple[Node, ...] = ()
    op_set: int = OP_SET
    limits: str = "default"
    provenance: Provenance = field(default_factory=Provenance)

    def value_names(self) -> Iterator[str]:
        """The names of all values, in the order of their numbers: inputs, constants, state, outputs of the nodes."""
        yield from (item.value.name for item in self.inputs)
        yield from (constant.name for constant in self.constants)
        yield from (state.value.name for state in self.state)
        for node in self.nodes:
            yield from (value.name for value in node.outputs)
