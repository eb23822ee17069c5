"""The tensors of a model while it is translated: their names, contents and readers, and those that are written out."""

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
    """A graph that is made of a model, as the writers of nodes see it (`cvm.frontends.onnx.writing.Scope`)."""

    def __init__(self, model: Model, overflow: Literal["wrap", "error"], limits: Limits) -> None:
        super().__init__("the reader of ONNX", overflow)
        self._limits = limits
        self._constants = dict(model.constants)
        self._taken = Names.of(model)
        self._operands: dict[str, Operand] = {}
        self._readers: dict[str, list[tuple[OnnxNode, int]]] = {}
        self._written = 0
        """The nodes that others were written out as."""
        self._bodies: dict[int, tuple[Body, dict[str, str]]] = {}
        """Graphs of control flow that were taken out, and the names that their constants got."""
        self._node: OnnxNode | None = None
        """The node that is translated."""

    def _read(self, name: str) -> Operand | None:
        """An operand of a node; constants are read here."""
        if not name:
            return None
        if name not in self._operands:
            tensor = self._constants[name]()
            self._operands[name] = Operand(name, tensor.data_type, tensor.values.shape, tensor.values)
        return self._operands[name]

    @property
    def limits(self) -> Limits:
        """The limits that apply."""
        return self._limits

    def read(self, name: str) -> Operand:
        """The operand of a name."""
        found = self._read(name)
        assert found is not None
        return found

    def free(self, name: str) -> bool:
        """Whether no tensor of the model has a name; it is taken from now on."""
        return self._taken.free(name)

    def define(self, name: str, values: npt.NDArray[Any], data_type: str) -> None:
        """Enter a constant."""
        self._operands[name] = Operand(name, data_type, values.shape, values)

    def require_expansion(self, count: int) -> None:
        """Raise `LimitExceeded` where so many nodes more would be too many."""
        where = self._node.label if self._node else "the model"
        require("expansion", self._written + count, self._limits.expansion, f"{where}: nodes that are written out")

    def _note_readers(self, nodes: Sequence[OnnxNode]) -> None:
        for node in nodes:
            for index, name in enumerate(node.inputs):
                self._readers.setdefault(name, []).append((node, index))
            for name in set(node.reads()) - set(node.inputs):
                self.keep_real([name], node)

    def keep_real(self, names: Sequence[str], node: OnnxNode) -> None:
        """Say that something that is not written yet reads tensors, so that they keep their real numbers."""
        for name in names:
            self._readers.setdefault(name, []).append((node, -1))

    def renamed(self, body: Body, names: dict[str, str]) -> list[OnnxNode]:
        """The nodes of a graph by other names, its constants entered once however often it is taken out."""
        if id(body) not in self._bodies:
            fresh = {name: self._taken.fresh(name) for name in body.constants}
            self._bodies[id(body)] = body, fresh
            self._constants.update({fresh[name]: contents for name, contents in body.constants.items()})
        names.update(self._bodies[id(body)][1])
        origin = self._node.origin if self._node else None
        return renamed(body.nodes, names, self._taken.fresh, lambda node: replace(node, origin=node.origin or origin))
