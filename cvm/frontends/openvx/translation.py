"""From a recorded graph to a `QuantizedGraph`: nodes in order, views of tensors, inputs and outputs.

A tensor of a format is a real tensor with the quantiser of that format, whose codes are the raw integers. A node rounds
once, where its output gets that quantiser; with the policy WRAP the code is reduced modulo 2^N and not clipped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.frontends.common.emission import Emission
from cvm.frontends.openvx.constants import ConvertPolicy, Kernels, RoundPolicy
from cvm.frontends.openvx.dataflow import Piece, Write, assembled
from cvm.frontends.openvx.errors import NotSupported
from cvm.frontends.openvx.formats import Format
from cvm.frontends.openvx.graph import OpenvxNode, RecordedGraph
from cvm.frontends.openvx.objects import Box, Tensor
from cvm.graph import QuantizedGraph
from cvm.quantization import LinearQuantizer
from cvm.quantization.quantizer import Rounding
from cvm.records import dataclass

__all__ = ["Boundary", "OpenvxTranslation", "Rule", "Translated", "refused"]

Rule: TypeAlias = "Callable[[OpenvxTranslation, OpenvxNode], str]"
"""A rule emits the operations of a node; it returns the tensor that holds the output, in its NumPy shape."""


@dataclass(frozen=True, eq=False, slots=True)
class Boundary:
    """An input or output tensor of the graph, and the value of the program that carries it."""

    tensor: Tensor
    value: str


@dataclass(frozen=True, eq=False, slots=True)
class Translated:
    """The graph, its inputs and outputs, the version of every [static] tensor, and the node that each tensor belongs
    to.
    """

    graph: QuantizedGraph
    inputs: tuple[Boundary, ...]
    outputs: tuple[Boundary, ...]
    static: Mapping[Tensor, int]
    nodes: Mapping[str, OpenvxNode]


class OpenvxTranslation(Emission):
    """The graph during its translation. The rules of kernels read arguments and emit operations."""

    def __init__(
        self, recorded: RecordedGraph, written: Mapping[Tensor, Sequence[Write]], rules: Mapping[Kernels, Rule]
    ) -> None:
        """``rules`` is the table of `cvm.frontends.openvx.rules` for the graph's ``compat``."""
        super().__init__("the reader of OpenVX", "error")
        self.compat = recorded.compat
        self._written, self._rules = written, rules
        self._results: dict[OpenvxNode, str] = {}
        self._inputs: dict[Tensor, str] = {}
        self._static: dict[Tensor, int] = {}
        self._serves: dict[str, OpenvxNode] = {}
        self._node: OpenvxNode | None = None
        self._reserved: set[str] = set()
        """The reserved names of inputs and outputs."""

    def run(self, nodes: Sequence[OpenvxNode]) -> Translated:
        """Translate the whole graph; ``nodes`` must be in an order in which they can be computed."""
        for node in nodes:
            roots = [tensor.root for parameter, tensor in node.tensors() if not parameter.static]
            self._reserved |= {root.name for root in roots if root.name and not root.virtual}
        for node in nodes:
            self._node = node
            rule = self._rules.get(node.declaration.kernel)
            if rule is None:
                raise refused(node)
            self._results[node] = rule(self, node)
        self._node = None
        outputs = [self._output(tensor, index) for index, tensor in enumerate(self._given())]
        names = tuple(self._inputs.values())
        graph = self.finish("openvx", names, [item.value for item in outputs], self._digest(nodes))
        inputs = tuple(Boundary(tensor, name) for tensor, name in self._inputs.items())
        return Translated(graph, inputs, tuple(outputs), self._static, self._serves)

    def _given(self) -> list[Tensor]:
        return [tensor for tensor in self._written if not tensor.virtual]

    def _output(self, tensor: Tensor, index: int) -> Boundary:
        whole = self._assembled(tensor, assembled(tensor.box, self._written[tensor]))
        format = _format_of(tensor)
        name = self._public(tensor.name or f"output_{index}")
        return Boundary(tensor, self.emit("copy", whole, quantizer=format.quantizer(), wish=name))

    def _digest(self, nodes: Sequence[OpenvxNode]) -> str:
        """The SHA-256 of the recorded graph: kernels, scalars, formats, dimensions and [static] contents."""
        found = hashlib.sha256(self.compat.encode())
        for node in nodes:
            found.update(node.declaration.name.encode())
            for parameter in node.declaration.parameters:
                value = node[parameter.name]
                if isinstance(value, Tensor):
                    described = f"{value.data_type.name} {value.dims} {value.box}"
                    found.update(described.encode())
                    if parameter.static:
                        found.update(np.ascontiguousarray(value.contents()).tobytes())
                else:
                    found.update(repr(value).encode())
        return found.hexdigest()

    # Queries of rules

    def read(self, tensor: Tensor) -> str:
        """The tensor of the graph with the contents of a tensor, or of a view, at the point where
        this node reads it.
        """
        root = tensor.root
        return self._assembled(root, assembled(tensor.box, self._written.get(root, ())))

    def raw(self, tensor: Tensor) -> npt.NDArray[Any]:
        """The raw integers of a [static] tensor; the translation records that the graph depends on them."""
        self._static[tensor.root] = tensor.root.version
        return tensor.contents()

    def static(self, tensor: Tensor, shape: Sequence[int] | None = None) -> str:
        """A [static] tensor as a constant of ``shape``."""
        return self.constant(self.raw(tensor), shape or tensor.shape, _format_of(tensor).quantizer())

    def _assembled(self, root: Tensor, piece: Piece) -> str:
        shape = tuple(end - start for start, end in piece.box)[::-1]
        quantizer = _format_of(root).quantizer()
        if piece.parts:
            first, second = (self._assembled(root, part) for part in piece.parts)
            axis = len(shape) - 1 - piece.dimension
            return self.emit("concat", (first, second), quantizer=quantizer, axis=axis)
        if piece.write:
            return self._sliced(self._results[piece.write.node], piece.write.box, piece.box, quantizer)
        return self._sliced(self._input(root), root.box, piece.box, quantizer)

    def _input(self, root: Tensor) -> str:
        if root not in self._inputs:
            wish = root.name or f"input_{len(self._inputs)}"
            if root in self._written:
                wish += ".before"  # the contents before any node writes its part
            self._inputs[root] = self.external(self._public(wish), root.shape, _format_of(root).quantizer())
        return self._inputs[root]

    def _sliced(self, name: str, whole: Box, part: Box, quantizer: LinearQuantizer) -> str:
        axes, begin, end = [], [], []
        for dimension, ((low, high), (start, stop)) in enumerate(zip(whole, part, strict=True)):
            if (low, high) != (start, stop):
                axes.append(len(part) - 1 - dimension)
                begin.append(start - low)
                end.append(stop - low)
        if not axes:
            return name
        return self.emit(
            "slice",
            name,
            quantizer=quantizer,
            axes=tuple(axes),
            begin=tuple(begin),
            end=tuple(end),
            stride=(1,) * len(axes),
        )

    # Additions of rules

    def origin(self) -> tuple[str, str]:
        """The label of the node that is being translated, as the default name of results and as the operator."""
        return (self._node.label, self._node.label) if self._node else ("", "")

    def name_of_constant(self) -> str:
        """The default name of a constant; it begins with the label of the node that reads it."""
        return f"{self._node.label}.constant" if self._node else "constant"

    def made(self, name: str) -> None:
        """Record that a tensor of the graph belongs to the node that is being translated."""
        if self._node:
            self._serves[name] = self._node

    def reshaped(self, name: str, shape: Sequence[int]) -> str:
        """The tensor in another shape, with the same quantiser."""
        if self.shape(name) == tuple(shape):
            return name
        return self.reshape(name, shape, quantizer=self.quantizer_of(name))

    def transposed(self, name: str, axes: Sequence[int]) -> str:
        """The tensor with its axes permuted, with the same quantiser."""
        return self.emit("transpose", name, quantizer=self.quantizer_of(name), axes=tuple(axes))

    def converted(self, name: str, format: Format, overflow: ConvertPolicy, rounding: RoundPolicy) -> str:
        """Apply the policies of a node to the result of the last operation: it is rounded once, and
        clipped or wrapped.
        """
        assert self._operations[-1].outputs == (name,)
        how: Rounding = "toward_zero" if rounding == RoundPolicy.VX_ROUND_POLICY_TO_ZERO else "half_even"
        if overflow == ConvertPolicy.VX_CONVERT_POLICY_SATURATE:
            self._tensors[name] = replace(self._tensors[name], quantizer=format.quantizer(how))
            return name
        return self.emit(
            "wrapping_quantize",
            name,
            quantizer=format.quantizer(),
            scale=format.unit,
            lo=format.lo,
            hi=format.hi,
            rounding=how,
        )

    def quantizer_of(self, name: str) -> LinearQuantizer | None:
        """The quantiser of a tensor of the graph, or None."""
        found = self._tensors[name].quantizer
        assert found is None or isinstance(found, LinearQuantizer)
        return found

    def _public(self, wish: str) -> str:
        """A free name for an input or output."""
        self._reserved.discard(wish)
        return self._fresh(wish)

    def is_taken(self, name: str) -> bool:
        """Whether a tensor has this name, or it is reserved for an input or output."""
        return name in self._reserved or super().is_taken(name)


def _format_of(tensor: Tensor) -> Format:
    assert tensor.format is not None
    return tensor.format


def refused(node: OpenvxNode) -> NotSupported:
    """The error for a kernel that the sample implementation computes in floats, which is not reproduced."""
    message = f"{node.declaration.function} of the sample implementation computes in floats: only compat='spec' has it"
    return NotSupported("compat.kernel", message, node.location(), node.label)
