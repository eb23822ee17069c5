"""Where a model begins and ends: the nodes that its outputs need, and the grids that real outputs are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cvm.frontends.common.grids import Grid
from cvm.frontends.onnx.call import OnnxCall, Operand
from cvm.frontends.onnx.grids import grid_of
from cvm.frontends.onnx.model import OnnxNode, Value

__all__ = ["MOVES", "grid_of_output", "live"]

MOVES = {
    "Identity", "Reshape", "Transpose", "Slice", "Expand", "Tile", "Split", "Gather", "Concat", "Flatten", "Squeeze",
    "Unsqueeze", "DepthToSpace", "SpaceToDepth", "Dropout",
}  # fmt: skip
"""Operators that only move: their results are of the grid of what they read."""
_CHOOSES = {"MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "Relu"}
"""Operators whose results are among what they read, or zero, which every grid has."""


def grid_of_output(calls: Mapping[str, OnnxCall], operand: Operand) -> Grid | None:
    """The grid of the DequantizeLinear that a real tensor was moved or chosen from; its numbers are exactly of it.

    ``calls`` are those that compute the tensors of the model.
    """
    seen: list[Grid] = []
    pending, done = [operand.name], {operand.name}
    through = False
    while pending:
        call = calls.get(pending.pop())
        if call is None:
            return None
        op = call.node.op
        if op == "DequantizeLinear":
            seen.append(grid_of(call, call.operand(0), call.operand(0).data_type))
        elif op == "Cast" and not call.operand(0).real:
            seen.append(Grid(np.ones((), np.float32), np.zeros((), np.int64), call.operand(0).data_type))
        elif op in MOVES | _CHOOSES | {"Where", "Cast"}:
            through = True
            parts = call.operands if op == "Concat" else call.operands[1:3] if op == "Where" else call.operands[:1]
            names = [part.name for part in parts if part is not None]
            pending += [name for name in names if name not in done]
            done.update(names)
        else:
            return None
    first = seen[0]
    return first if not through or all(grid.same(first) for grid in seen) else None


def live(nodes: Sequence[OnnxNode], outputs: Sequence[Value]) -> list[OnnxNode]:
    """The nodes that the outputs need, in order."""
    wanted = {value.name for value in outputs}
    found = []
    for node in reversed(nodes):
        if any(name in wanted for name in node.outputs if name):
            wanted.update(node.reads())
            found.append(node)
    return found[::-1]
