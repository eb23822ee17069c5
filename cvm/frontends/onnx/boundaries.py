"""The boundaries of a model: the nodes that its outputs need, and the quantisation grids of its real outputs."""

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
"""Operators that only move elements: each result has the grid of the operand."""
_CHOOSES = {"MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "Relu"}
"""Operators whose results are elements of their operands, or zero, which every grid contains."""


def grid_of_output(calls: Mapping[str, OnnxCall], operand: Operand) -> Grid | None:
    """The grid of the DequantizeLinear that a real tensor comes from through moves and choices, or None.

    Every element of the tensor is exactly a number of this grid. ``calls`` holds the call that computes each tensor.
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
    """The nodes that the outputs depend on, in the order of the model."""
    wanted = {value.name for value in outputs}
    found = []
    for node in reversed(nodes):
        if any(name in wanted for name in node.outputs if name):
            wanted.update(node.reads())
            found.append(node)
    return found[::-1]
