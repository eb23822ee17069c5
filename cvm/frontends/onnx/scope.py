"""The tensors of a model during its translation: their names, contents and readers, and the expanded nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy.typing as npt

from cvm.frontends.common.emission import Emission
from cvm.frontends.onnx.call import Operand
from cvm.frontends.onnx.inlining import Names, renamed
from cvm.frontends.onnx.model import Body, Model, OnnxNode
from cvm.limits import Limits, require

__all__ = ["OnnxScope"]


class OnnxScope(Emission):
    """The graph during its translation, with the interface that expansions use (`cvm.frontends.onnx.writing.Scope`)."""

    def __init__(self, model: Model, overflow: Literal["wrap", "error"], limits: Limits) -> None:
        super().__init__("the reader of ONNX", overflow)
        self._limits = limits
        self._constants = dict(model.constants)
        self._taken = Names.of(model)
        self._operands: dict[str, Operand] = {}
        self._readers: dict[str, list[tuple[OnnxNode, int]]] = {}
        self._written = 0
        """The number of nodes that expansions have added."""
        self._bodies: dict[int, tuple[Body, dict[str, str]]] = {}
        """For each body that was inlined, the names that its constants got."""
        self._node: OnnxNode | None = None
        """The node that is being translated."""

    def _read(self, name: str) -> Operand | None:
        """The operand of a node by name, or None for ""; a constant is read here, on first use."""
        if not name:
            return None
        if name not in self._operands:
            tensor = self._constants[name]()
            self._operands[name] = Operand(name, tensor.data_type, tensor.values.shape, tensor.values)
        return self._operands[name]

    @property
    def limits(self) -> Limits:
        """The limits on sizes."""
        return self._limits

    def read(self, name: str) -> Operand:
        """The operand of a name, which must not be ""."""
        found = self._read(name)
        assert found is not None
        return found

    def free(self, name: str) -> bool:
        """Take a name; returns whether no tensor of the model had it."""
        return self._taken.free(name)

    def define(self, name: str, values: npt.NDArray[Any], data_type: str) -> None:
        """Add a constant under a name."""
        self._operands[name] = Operand(name, data_type, values.shape, values)

    def require_expansion(self, count: int) -> None:
        """Raise `LimitExceeded` where ``count`` further nodes would exceed the limit on expansions."""
        where = self._node.label if self._node else "the model"
        require("expansion", self._written + count, self._limits.expansion, f"{where}: nodes that are written out")

    def _note_readers(self, nodes: Sequence[OnnxNode]) -> None:
        for node in nodes:
            for index, name in enumerate(node.inputs):
                self._readers.setdefault(name, []).append((node, index))
            for name in set(node.reads()) - set(node.inputs):
                self.keep_real([name], node)

    def keep_real(self, names: Sequence[str], node: OnnxNode) -> None:
        """Record that a node whose expansion is not complete reads these tensors, so that they stay real."""
        for name in names:
            self._readers.setdefault(name, []).append((node, -1))

    def renamed(self, body: Body, names: dict[str, str]) -> list[OnnxNode]:
        """The nodes of a body under other names; the constants of a body are added once, however
        often it is inlined.
        """
        if id(body) not in self._bodies:
            fresh = {name: self._taken.fresh(name) for name in body.constants}
            self._bodies[id(body)] = body, fresh
            self._constants.update({fresh[name]: contents for name, contents in body.constants.items()})
        names.update(self._bodies[id(body)][1])
        origin = self._node.origin if self._node else None
        return renamed(body.nodes, names, self._taken.fresh, lambda node: replace(node, origin=node.origin or origin))
