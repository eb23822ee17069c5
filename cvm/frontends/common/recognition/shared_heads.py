"""Recognition of matrices that are repeated for a product: grouped queries of attention share keys and values.

Exporters repeat each head of keys and values for all queries that share it: they expand a new axis, and merge it with
that of the heads. If the queries are divided into groups instead, each group can be multiplied with the one matrix that
it shares: the numbers are the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction

from cvm.frontends.common.recognition.regions import Regions
from cvm.graph import GraphBuilder, GraphOperation, Operand, declaration

__all__ = ["recognize_shared_heads"]

_MOST_STEPS = 4
"""The most steps between a repetition and the product."""


def recognize_shared_heads(builder: GraphBuilder, outputs: Collection[str]) -> None:
    """Multiply by matrices before they are repeated; ``outputs`` are the results of the graph."""
    found = _SharedHeads(builder, outputs)
    builder.rewrite(found.of)
    if found.found:
        builder.keep(outputs)


class _SharedHeads:
    def __init__(self, builder: GraphBuilder, outputs: Collection[str]) -> None:
        self._builder = builder
        self._regions = Regions(builder.tensors, builder.operations, outputs)
        self.found = False

    def of(self, operation: GraphOperation) -> GraphOperation:
        """The operation, or for a product with repeated matrices the reshape of one without. It is added before."""
        if operation.name != "matmul" or operation.attributes["transposeA"]:
            return operation
        a, b = operation.inputs["A"], operation.inputs["B"]
        between, repeated = self._behind(b)
        single = self._before_repetition(repeated)
        if single is None or not isinstance(a, str):
            return operation
        shape, rows = self._builder.shape(single), self._builder.shape(a)
        if len(rows) != 4 or rows[0] != shape[0] or rows[1] % shape[1]:
            return operation
        if self._builder.shape(str(b))[:2] != rows[:2]:
            return operation
        self.found = True
        groups = rows[1] // shape[1]
        left = self._builder.reshape(a, (rows[0], shape[1], groups, *rows[2:]))
        right = single
        for step in reversed(between):
            right = (
                self._builder.emit("transpose", right, axes=(0, 1, 2, 4, 3))
                if step is None
                else self._builder.emit("mul", right, step)
            )
        product = self._builder.emit("matmul", left, right, transposeB=operation.attributes["transposeB"])
        attributes = {"shape": self._builder.shape(operation.outputs[0])}
        inputs, attributes = declaration("reshape").complete({"input": product}, attributes)  # type: ignore[assignment]
        return replace(operation, name="reshape", inputs=inputs, attributes=attributes)

    def _behind(self, operand: Operand) -> tuple[list[Fraction | None], Operand]:
        """What is done to repeated matrices before the product, the last step first: they are multiplied by a number,
        or (None) their last two axes are swapped; and the repeated matrices.
        """
        steps: list[Fraction | None] = []
        while len(steps) < _MOST_STEPS:
            swapped = self._swapped(operand)
            if swapped is not None:
                steps.append(None)
                operand = swapped
                continue
            maker = self._regions.maker(operand, "mul")
            numbers = [] if maker is None else [self._regions.number(maker.inputs[name]) for name in ("x", "y")]
            if maker is None or numbers.count(None) != 1:
                break
            steps += [number for number in numbers if number is not None]
            operand = maker.inputs["x" if numbers[0] is None else "y"]
        return steps, operand

    def _swapped(self, operand: Operand) -> Operand | None:
        """The tensor whose last two axes were swapped, also where its first two were one meanwhile; or None."""
        maker = self._regions.maker(operand, "transpose")
        if maker is not None:
            return maker.inputs["input"] if maker.attributes["axes"] == (0, 1, 3, 2) else None
        split = self._regions.maker(operand, "reshape")
        maker = None if split is None else self._regions.maker(split.inputs["input"], "transpose")
        joined = None if maker is None else self._regions.maker(maker.inputs["input"], "reshape")
        if joined is None or maker is None or maker.attributes["axes"] != (0, 2, 1):
            return None
        before, result = self._builder.shape(joined.outputs[0]), self._builder.shape(str(operand))
        return joined.outputs[0] if before[1:] == result[:1:-1] and len(result) == 4 else None

    def _before_repetition(self, operand: Operand) -> str | None:
        """The matrices (batch, heads, 1, rows, columns) that were repeated along axis 2, which then joined axis 1."""
        whole, moves = self._regions.behind_reshapes(operand)
        tiled = self._regions.maker(whole, "tile")
        if tiled is None or not moves or not isinstance(operand, str):
            return None
        single, wide = tiled.inputs["input"], self._builder.shape(tiled.outputs[0])
        if not isinstance(single, str) or len(wide) != 5 or self._builder.shape(single) != (*wide[:2], 1, *wide[3:]):
            return None
        shape = self._builder.shape(operand)
        if len(shape) < 3:
            return None
        return single if shape[-2:] == wide[3:] and shape[-3] in (wide[1] * wide[2], math.prod(wide[:3])) else None
