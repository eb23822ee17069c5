"""The input and output bytes of a model of cvm-runtime.

An element of the input has one byte if its precision is at most 8, otherwise four; an element of the output likewise,
by the largest precision of all heads, but always four under a postprocess. The library uses the byte order of its
machine, little-endian; on the chain around it, four bytes are big-endian.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Location
from cvm.frontends.cvm_runtime.graph import DATA, Postprocess
from cvm.frontends.cvm_runtime.inference import Inferred
from cvm.frontends.cvm_runtime.precisions import magnitude
from cvm.limits import INT32_MAX
from cvm.records import dataclass

__all__ = ["ByteOrder", "Interface", "interface"]

ByteOrder: TypeAlias = Literal["little", "big"]

_BYTE = 8
"""The largest precision of an element that is stored in one byte."""


@dataclass(frozen=True, slots=True)
class Interface:
    """The input and the outputs of a model. ``outputs`` has the shapes of the program's outputs: heads, or their
    argmax.
    """

    shape: tuple[int, ...]
    precision: int
    outputs: tuple[tuple[int, ...], ...]
    output_size: int
    """The number of bytes of an element of the output."""
    postprocess: Postprocess

    @property
    def input_size(self) -> int:
        """The number of bytes of an element of the input."""
        return 1 if self.precision <= _BYTE else 4

    @property
    def input_length(self) -> int:
        """The number of bytes of the input."""
        return math.prod(self.shape) * self.input_size

    @property
    def output_length(self) -> int:
        """The number of bytes of the output."""
        return sum(map(math.prod, self.outputs)) * self.output_size

    @property
    def bounds(self) -> tuple[int, int]:
        """The interval of the input encoding; the library clamps elements beyond the precision.

        -2^31 counts as -(2^31 - 1), to which it would be clamped.
        """
        return (-128, 127) if self.input_size == 1 else (-INT32_MAX, INT32_MAX)

    @property
    def clamped(self) -> int:
        """The largest magnitude of an element of the input after the library has clamped it."""
        return magnitude(self.precision)

    def decode(self, data: bytes, order: ByteOrder = "little") -> npt.NDArray[np.int32]:
        """The input that bytes encode, not clamped. Raises `Invalid` (``cvm_runtime.input``) for a wrong length."""
        if len(data) != self.input_length:
            message = f"expected {self.input_length} bytes, found {len(data)}"
            raise Invalid("cvm_runtime.input", message, Location(tensor=DATA))
        found = np.frombuffer(data, _dtype(self.input_size, order)).astype(np.int32)
        return np.asarray(np.maximum(found, -INT32_MAX).reshape(self.shape))

    def encode(self, outputs: Sequence[npt.NDArray[Any]], order: ByteOrder = "little") -> bytes:
        """The bytes that the library gives for the outputs of the program, in their order.

        Several outputs are joined row by row, along their last axes; those of an argmax follow each other. Where an
        element has one byte, it is the lowest one.
        """
        apart = self.postprocess == "argmax" or len(outputs) == 1
        rows = [np.asarray(item).reshape(-1, 1 if apart else item.shape[-1]) for item in outputs]
        joined = np.concatenate(rows, axis=0 if apart else 1)
        return joined.astype(np.int64).astype(_dtype(self.output_size, order)).tobytes()


def _dtype(size: int, order: ByteOrder) -> np.dtype[Any]:
    return np.dtype(np.int8 if size == 1 else np.int32).newbyteorder("<" if order == "little" else ">")


def interface(inferred: Inferred) -> Interface:
    """The input and outputs of a model. Raises `Invalid` (``cvm_runtime.heads``) for heads that do not fit together."""
    graph = inferred.graph
    heads = [graph.number(entry) for entry in graph.heads]
    shapes = tuple(graph.shapes[number] for number in heads)
    if graph.postprocess == "argmax":
        shapes = tuple(shape[:-1] or (1,) for shape in shapes)
    elif graph.postprocess == "detection" and len(heads) == 1:
        raise Invalid("cvm_runtime.heads", "a detection has more than one head")
    elif len({math.prod(shape[:-1]) for shape in shapes}) > 1:
        listed = ", ".join(str(list(shape)) for shape in shapes)
        raise Invalid("cvm_runtime.heads", f"heads are joined row by row and have as many rows, found shapes {listed}")
    small = not graph.postprocess and max(inferred.precisions[number] for number in heads) <= _BYTE
    data = graph.data.first
    return Interface(graph.shapes[data], graph.precisions[data], shapes, 1 if small else 4, graph.postprocess)
