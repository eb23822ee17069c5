"""The writer of expansions: the nodes that replace one node, with fresh names and constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cvm.frontends.common.grids import Grid
from cvm.frontends.onnx.call import OnnxCall, Operand
from cvm.frontends.onnx.declarations import LAST
from cvm.frontends.onnx.model import Attribute, Body, OnnxNode

__all__ = ["Scope", "Writer"]


class Scope(Protocol):
    """The interface of the translation that a writer needs."""

    def free(self, name: str) -> bool:
        """Take a name; returns whether no tensor of the model had it."""

    def require_expansion(self, count: int) -> None:
        """Raise `LimitExceeded` where ``count`` further nodes would exceed the limit on expansions."""

    def renamed(self, body: Body, names: dict[str, str]) -> list[OnnxNode]:
        """The nodes of a body under other names, with its constants added."""

    def define(self, name: str, values: npt.NDArray[Any], data_type: str) -> None:
        """Add a constant under a name."""

    def translate(self, nodes: Sequence[OnnxNode]) -> None:
        """Translate nodes whose operands are known."""

    def keep_real(self, names: Sequence[str], node: OnnxNode) -> None:
        """Record that a node whose expansion is not complete reads these tensors, so that they stay real."""

    def read(self, name: str) -> Operand:
        """The operand of a name."""

    def call_of(self, name: str) -> OnnxCall | None:
        """The call that computes a tensor; None for an input or a constant."""

    def interval_of_input(self, name: str) -> tuple[int, int] | None:
        """The interval of an input of integers; None for any other tensor."""

    @property
    def floats(self) -> bool:
        """Whether calibration will find missing quantisers."""

    def grid(self, name: str) -> Grid | None:
        """The grid that contains every element of a tensor, if there is one."""

    def wanted(self, name: str) -> bool:
        """Whether a node reads the tensor, or it is an output of the model."""


class Writer:
    """The nodes that replace one node. They are of the newest opset version unless ``opset`` says otherwise."""

    def __init__(self, call: OnnxCall, scope: Scope) -> None:
        self.call = call
        self.node = call.node
        self._scope = scope
        self._nodes: list[OnnxNode] = []
        self._numbers: dict[str, int] = {}

    # What is read

    def input(self, index: int) -> str:
        """The name of an operand; "" where the node leaves it out."""
        return self.node.inputs[index] if index < len(self.node.inputs) else ""

    def required(self, *indices: int) -> list[str]:
        """The names of operands. Raises `Invalid` where the node leaves one out."""
        for index in indices:
            self.call.operand(index)
        return [self.input(index) for index in indices]

    def given(self, *indices: int) -> list[str]:
        """The names of those of the operands that the node has."""
        return [name for name in map(self.input, indices) if name]

    def attributes(self, *but: str) -> dict[str, Attribute]:
        """The attributes of the node except ``but``, marked as read: the nodes that get them read them."""
        found = {key: value for key, value in self.node.attributes.items() if key not in but}
        self.call.ignore(*found)
        return found

    def operand(self, name: str) -> Operand:
        """The operand of a tensor that has been translated already."""
        return self._scope.read(name)

    @property
    def scope(self) -> Scope:
        """The translation that the nodes are for."""
        return self._scope

    @property
    def floats(self) -> bool:
        """Whether calibration will find missing quantisers."""
        return self._scope.floats

    def grid(self, name: str) -> Grid | None:
        """The grid that contains every element of a tensor, if there is one."""
        return self._scope.grid(name)

    def wants(self, index: int) -> bool:
        """Whether a node reads a result of this node, or it is an output of the model."""
        return (
            index < len(self.node.outputs)
            and bool(self.node.outputs[index])
            and self._scope.wanted(self.node.outputs[index])
        )

    # What is written

    def _name(self, op: str) -> str:
        stem = f"{next(filter(None, self.node.outputs), self.node.op)}.{op}"
        while True:
            self._numbers[op] = self._numbers.get(op, 0) + 1
            wish = f"{stem}.{self._numbers[op]}"
            if self._scope.free(wish):
                return wish

    def add(
        self,
        op: str,
        inputs: Sequence[str],
        output: str = "",
        axis: int | None = None,
        given: Mapping[str, Attribute] | None = None,
        opset: int = LAST,
        **attributes: Attribute,
    ) -> str:
        """Add a node with one result, under the name ``output`` or a fresh one; returns the name."""
        every = {**(given or {}), **attributes}
        if axis is not None:
            every["axis"] = axis
        (name,) = self.add_many(op, inputs, [output or self._name(op)], every, opset)
        return name

    def add_many(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str] | int,
        attributes: Mapping[str, Attribute],
        opset: int = LAST,
    ) -> list[str]:
        """Add a node with several results, under the given names or under that many fresh ones; returns the names."""
        names = [self._name(op) for _ in range(outputs)] if isinstance(outputs, int) else list(outputs)
        node = self.node
        origin = node.origin or node
        made = OnnxNode(op, "", node.name, tuple(inputs), tuple(names), attributes, node.number, "", opset, origin)
        self._nodes.append(made)
        return names

    def result(
        self,
        op: str,
        inputs: Sequence[str],
        given: Mapping[str, Attribute] | None = None,
        index: int = 0,
        **attributes: Attribute,
    ) -> None:
        """Add the node that computes a result of the expanded node; adds nothing where the node
        leaves that result out.
        """
        if index < len(self.node.outputs) and self.node.outputs[index]:
            self.add_many(op, inputs, [self.node.outputs[index]], {**(given or {}), **attributes})

    def alike(self, op: str, inputs: Sequence[str], *but: str, opset: int = LAST) -> None:
        """Add a node with the results of the expanded node, and with its attributes except ``but``."""
        self.add_many(op, inputs, self.node.outputs, self.attributes(*but), opset)

    def extend_body(self, body: Body, names: Mapping[str, str]) -> dict[str, str]:
        """Add the nodes of a body once; ``names`` maps its inputs to tensors. Returns the new name of each of its
        tensors.
        """
        every = dict(names)
        self._nodes += self._scope.renamed(body, every)
        return every

    def require_expansion(self, count: int) -> None:
        """Raise `LimitExceeded` where ``count`` further nodes would exceed the limit on expansions."""
        self._scope.require_expansion(count)

    def constant(self, values: Any, data_type: str) -> str:
        """Add a constant of a data type; returns its name."""
        name = self._name("Constant")
        self._scope.define(name, np.asarray(values), data_type)
        return name

    def integers(self, items: Sequence[int]) -> str:
        """Add a constant vector of int64; returns its name."""
        return self.constant(np.array(items, np.int64), "int64")

    def number(self, value: float, like: Operand) -> str:
        """Add a constant number of the data type of an operand; returns its name."""
        return self.constant(np.array(value, np.float64 if like.real else np.int64), like.data_type)

    # Frequent nodes

    def reshape(self, name: str, shape: Sequence[int], output: str = "") -> str:
        """Add a reshape; returns the name of its result."""
        return self.add("Reshape", [name, self.integers(shape)], output, allowzero=1)

    def real(self, *indices: int, axis: int | None = None) -> str:
        """Add a DequantizeLinear of three operands: codes, scale, and zero point, which may be left out."""
        codes, scale, zero = indices
        return self.add("DequantizeLinear", [*self.required(codes, scale), *self.given(zero)], axis=axis)

    def codes(self, real: str, scale: int, zero: int) -> None:
        """Add the QuantizeLinear that gives the codes of the result from real numbers."""
        self.add("QuantizeLinear", [real, *self.required(scale), *self.given(zero)], self.node.outputs[0])

    # Step by step

    def take(self) -> list[OnnxNode]:
        """The nodes that have been added since the last call."""
        nodes, self._nodes = self._nodes, []
        return nodes

    def flush(self, *kept: str) -> None:
        """Translate the nodes added so far, so that `operand` knows their results; later nodes may read ``kept``."""
        self._scope.keep_real(kept, self.node)
        self._scope.translate(self.take())
