"""The integer program as data: what is executed, stored, hashed and verified.

A program is a list of nodes in execution order over named int32 tensors; each name is written once. Everything is
immutable and plain: no kernels, no shapes to be found out, no reference to any front end. ``formal`` reads these
classes and nothing else of cvm.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.arguments import checked_path
from cvm.errors import Invalid, Location
from cvm.writing import write_file

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
    "Program",
    "Provenance",
    "Shape",
    "State",
    "Value",
]

OP_SET = 1
"""The version of the op-set that a program states unless it has ops of a later one (`cvm.ops.op_set`)."""

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
    """A result: its public name, the value that it is, and the quantiser that says what its codes stand for."""

    name: str
    value: str
    quantizer: Quantizer | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant: an int32 ``tensor``, or an int64 ``parameter`` (the multipliers, offsets and shifts of requantize).

    ``data`` holds the elements row-major, little-endian, two's complement, ``width`` bytes each: the smallest of
    1, 2, 4, 8 that holds them all.
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
        return Constant(name, kind, tuple(items.shape), width, items.astype(f"<i{width}").tobytes())

    def stored(self) -> npt.NDArray[Any]:
        """The elements as a read-only array at the width that they are stored with, which copies nothing."""
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

    ``value`` names it for the nodes, which see what the previous run left; ``initial`` is the constant that it holds
    before the first run; ``update`` names the value that it takes when a run has ended.
    """

    value: Value
    initial: str
    update: str


@dataclass(frozen=True, slots=True)
class Node:
    """One application of an op. ``attributes`` are complete: defaults included, absent ones left out, in any order."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[Value, ...]
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exactness:
    """What the compiler proved about one tensor of the source document.

    ``bound`` is the largest possible difference, in codes, from the document's meaning; 0 says exact.
    """

    tensor: str
    value: str
    bound: Fraction
    accumulator: tuple[int, int] | None = None
    """The interval of the 64-bit sum that the tensor was rounded from, where there is one."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a program came from. Not part of its digest: two compilers may say different things about one program."""

    tool: str = ""
    source: str = ""
    source_digest: str = ""
    exactness: tuple[Exactness, ...] = ()

    def __repr__(self) -> str:
        return f"Provenance({self.tool!r} from {self.source!r} {self.source_digest}; {len(self.exactness)} tensors)"


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A whole integer program. Programs are equal where their digests are; provenance does not count."""

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

    def __eq__(self, other: object) -> bool:
        """Whether both have one digest: the same operations, constants, inputs, outputs and state."""
        if not isinstance(other, Program):
            return NotImplemented
        return self is other or self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        from cvm.drawing import listed

        given = listed([f"{item.value.name} {list(item.value.shape)}" for item in self.inputs])
        return f"Program({given} -> {listed([item.name for item in self.outputs])}; {len(self.nodes)} nodes)"

    def _repr_html_(self) -> str:
        """The program for notebooks: its digest and a drawing."""
        from cvm.drawing import network_html, steps_of

        return network_html(f"{self!r} {self.digest}", steps_of(self))

    @cached_property
    def digest(self) -> str:
        """The program's identity: its Merkle claim, SHA-256 in hexadecimal (docs/commitments.md)."""
        from cvm.program.commitments import program_digest

        return program_digest(self).hex()

    def to_bytes(self) -> bytes:
        """The canonical bytes of the program."""
        return b"".join(self.pieces())

    def pieces(self) -> tuple[bytes, ...]:
        """The canonical bytes in pieces, large constants among them without a copy."""
        from cvm.program.codec import encoded

        return encoded(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the canonical bytes to ``path``: a file is replaced whole or not at all. Raises OSError."""
        write_file(checked_path(path, "a file"), *self.pieces())
