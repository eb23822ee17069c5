"""The operands that calibration rounds: results that lowering cannot pass on without rounding.

An accumulator passes exactly into an operation that is linear in it or that clips it, and a number that lies on a grid
already needs no other quantiser. Every other real result gets a quantiser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cvm.frontends.common.data_types import is_float
from cvm.frontends.webnn.operand import MLOperand, WebnnNode

__all__ = ["MOVING", "WEIGHTED", "operands_to_round"]

MOVING = frozenset(
    {"identity", "reshape", "transpose", "slice", "reverse", "expand", "tile", "split", "gather", "concat"}
)
"""Operators that only move elements: each result has the grid of the operand."""

WEIGHTED = frozenset(
    {"conv2d", "convTranspose2d", "gemm", "matmul", "gru", "gruCell", "lstm", "lstmCell", "batchNormalization"}
    | {"layerNormalization", "instanceNormalization", "add", "sub", "mul", "linear"}
)
"""Operators that take constants as weights, which calibration quantises, or as exact numbers such as biases and
factors.
"""

_LINEAR = frozenset(
    {"conv2d", "convTranspose2d", "gemm", "matmul", "batchNormalization", "linear", "averagePool2d", "neg"}
)
"""Operators whose results are sums of products, or follow from such a sum without rounding."""

_CLIPPING = frozenset({"relu", "clamp"})
_TERMS = frozenset({"add", "sub", "mul"})


def operands_to_round(
    nodes: Sequence[WebnnNode],
    readers: Mapping[MLOperand, Sequence[WebnnNode]],
    outputs: Sequence[MLOperand],
    accumulates: bool,
) -> set[MLOperand]:
    """The real results and real inputs for which calibration finds quantisers; ``nodes`` are in order.

    Without ``accumulates`` every sum gets a quantiser.
    """
    return _Rounding(readers, outputs, accumulates).of(nodes)


class _Rounding:
    def __init__(
        self, readers: Mapping[MLOperand, Sequence[WebnnNode]], outputs: Sequence[MLOperand], accumulates: bool
    ) -> None:
        self._readers, self._accumulates = readers, accumulates
        self._outputs = set(outputs)
        self._exact: set[MLOperand] = set()
        self._sums: set[MLOperand] = set()

    def of(self, nodes: Sequence[WebnnNode]) -> set[MLOperand]:
        found = {operand for operand in self._readers if _given(operand) and not self._only_quantised(operand)}
        for node in nodes:
            if self._is_exact(node):
                self._exact.update(node.outputs)
                continue
            if _is_sum(node) or (node.op in _CLIPPING and node.operands["input"] in self._sums):
                self._sums.update(node.outputs)
            found.update(output for output in node.outputs if is_float(output.data_type) and self._needs(output))
        return found

    def _is_exact(self, node: WebnnNode) -> bool:
        """Whether the results lie on a grid: dequantised codes, cast integers, or moves of such tensors."""
        if node.op in ("dequantizeLinear", "cast"):
            return not is_float(node.operands["input"].data_type)
        parts = [operand for name, operand in node.operands.items() if name != "indices"]
        return node.op in MOVING and all(part in self._exact for part in parts)

    def _needs(self, operand: MLOperand) -> bool:
        if operand in self._outputs:
            return True
        if self._only_quantised(operand):
            return False
        readers = self._readers.get(operand, [])
        return not (self._accumulates and operand in self._sums and len(readers) == 1 and _goes_on(readers[0], operand))

    def _only_quantised(self, operand: MLOperand) -> bool:
        """Whether only quantizeLinear nodes read the operand, or moves of it that only quantizeLinear nodes read."""
        if operand in self._outputs:
            return False
        readers = self._readers.get(operand, [])
        return all(
            node.op == "quantizeLinear" or (node.op in MOVING and all(map(self._only_quantised, node.outputs)))
            for node in readers
        )


def _given(operand: MLOperand) -> bool:
    """Whether an operand is a real input."""
    return operand.node is None and operand.values is None and is_float(operand.data_type)


def _is_sum(node: WebnnNode) -> bool:
    if node.op in _TERMS:
        return any(operand.values is not None for operand in node.operands.values())
    return node.op in _LINEAR


def _goes_on(node: WebnnNode, operand: MLOperand) -> bool:
    """Whether a call takes an accumulator without rounding: it clips it, or is linear in it with constants."""
    if node.op in _CLIPPING or node.op in ("linear", "neg"):
        return True
    others = [other for other in node.operands.values() if other is not operand]
    fixed = len(others) == len(node.operands) - 1 and all(other.values is not None for other in others)
    if node.op == "batchNormalization":
        return fixed and node.operands["input"] is operand
    return node.op in _TERMS and fixed
