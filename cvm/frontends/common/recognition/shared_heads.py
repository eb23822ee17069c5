"""Recognition of matrices that are repeated for a product: grouped queries of attention share keys and values.

Exporters repeat each head of keys and values for all queries that share it: they expand a new axis, and merge it with
that of the heads. The product of the queries in groups with the matrices as they were is the same numbers.
"""

from __future__ import annotations

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
        if len(rows) != 4 or rows[:2] != self._builder.shape(str(repeated))[:2]:
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
            maker = self._regions.maker(operand, "transpose", "mul")
            if maker is None:
                break
            if maker.name == "transpose":
                if maker.attributes["axes"] != (0, 1, 3, 2):
                    break
                steps.append(None)
                operand = maker.inputs["input"]
                continue
            numbers = [self._regions.number(maker.inputs[name]) for name in ("x", "y")]
            number = numbers[0] if numbers[1] is None else numbers[1]
            if number is None:
                break
            steps.append(number)
            operand = maker.inputs["x" if numbers[0] is None else "y"]
        return steps, operand

    def _before_repetition(self, operand: Operand) -> str | None:
        """The matrices (batch, heads, 1, rows, columns) that were repeated along axis 2, which then joined axis 1."""
        merged = self._regions.maker(operand, "reshape")
        tiled = None if merged is None else self._regions.maker(merged.inputs["input"], "tile")
        if tiled is None or not isinstance(operand, str):
            return None
        single, wide = tiled.inputs["input"], self._builder.shape(tiled.outputs[0])
        if not isinstance(single, str) or len(wide) != 5:
            return None
        shape = self._builder.shape(single)
        fits = shape == (*wide[:2], 1, *wide[3:]) and self._builder.shape(operand) == (
            wide[0], wide[1] * wide[2], *wide[3:]
        )  # fmt: skip
        return single if fits else None
