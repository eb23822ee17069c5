"""Recognition of masks: a softmax of numbers that are far below all others where a condition does not hold.

Documents hide items of a softmax by a number far below (an infinity, the least float, -10000), which they add to them
or choose instead of them. A mask is a tensor whose elements are 0 or such numbers, however it is computed: from
constants, truth values, or integers of few values. Each becomes the condition of a `masked_softmax`. Several masks hide
what any of them hides.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction

from cvm.frontends.common.recognition.regions import Regions
from cvm.frontends.common.recognition.values import Values
from cvm.graph import GraphBuilder, GraphOperation, Operand
from cvm.records import dataclass

__all__ = ["recognize_masks"]

_FAR_BELOW = Fraction(-1000)
"""Numbers at most this are far below what a softmax reads. Lowering proves it with the range of the latter."""
_DEPTH = 12
"""The most sums and choices in a row that are separated."""


def recognize_masks(builder: GraphBuilder, outputs: Collection[str]) -> None:
    """Make a `masked_softmax` of each softmax that reads masked numbers; ``outputs`` are the results of the graph.

    Operations that nothing reads any more are left out.
    """
    before = len(builder.operations)
    masks = _Masks(builder, outputs)
    builder.rewrite(masks.of)
    if masks.found or len(builder.operations) != before:
        builder.keep(outputs)


@dataclass(frozen=True, eq=False, slots=True)
class _Separated:
    """A tensor without its masks (None: nothing else is left), the tensors of truth values that say what is seen, the
    numbers far below, and whether hidden items are replaced by them.
    """

    rest: Operand | None
    seen: tuple[str, ...] = ()
    below: tuple[Fraction, ...] = ()
    chosen: bool = False

    def joined(self, other: _Separated, rest: Operand | None) -> _Separated:
        """The masks of both, of another tensor."""
        seen = tuple(dict.fromkeys((*self.seen, *other.seen)))
        return _Separated(rest, seen, (*self.below, *other.below), self.chosen or other.chosen)


class _Masks:
    def __init__(self, builder: GraphBuilder, outputs: Collection[str]) -> None:
        self._builder = builder
        self._regions = Regions(builder.tensors, builder.operations, outputs)
        self._values = Values(builder.tensors, builder.operations)
        self._conditions: dict[str, str] = {}
        self.found = False

    def of(self, operation: GraphOperation) -> GraphOperation:
        """The operation, or for a softmax of masked numbers the masked one. What it needs is added before."""
        source = operation.inputs.get("x")
        if operation.name != "softmax" or not isinstance(source, str):
            return operation
        found = self._separated(source, _DEPTH)
        shape = self._builder.shape(operation.outputs[0])
        if not found.seen or not isinstance(found.rest, str) or self._builder.shape(found.rest) != shape:
            return operation
        self.found = True
        seen, *others = found.seen
        for other in others:
            seen = self._builder.emit("and", seen, other)
        attributes = {"axes": operation.attributes["axes"], "below": max(found.below), "added": not found.chosen}
        inputs: dict[str, Operand] = {"x": found.rest, "seen": seen}
        return replace(operation, name="masked_softmax", inputs=inputs, attributes=attributes)

    def _separated(self, operand: Operand, depth: int) -> _Separated:
        mask = self._mask(operand)
        if mask is not None:
            return mask
        maker = self._regions.maker(operand, "add", "select", "max") if depth else None
        if maker is None:
            return _Separated(operand)
        if maker.name == "add":
            return self._of_sum(maker, operand, depth - 1)
        if maker.name == "select":
            return self._of_choice(maker, operand, depth - 1)
        for parameter, other in (("x", "y"), ("y", "x")):  # the greater of masked numbers and the least float
            number = self._regions.number(maker.inputs[parameter])
            if number is not None and number <= _FAR_BELOW:
                found = self._separated(maker.inputs[other], depth - 1)
                return found if found.seen else _Separated(operand)
        return _Separated(operand)

    def _of_sum(self, maker: GraphOperation, operand: Operand, depth: int) -> _Separated:
        x, y = (self._separated(maker.inputs[name], depth) for name in ("x", "y"))
        if not x.seen and not y.seen:
            return _Separated(operand)
        if x.rest is None or y.rest is None:
            return x.joined(y, y.rest if x.rest is None else x.rest)
        return x.joined(y, self._builder.emit("add", x.rest, y.rest))

    def _of_choice(self, maker: GraphOperation, operand: Operand, depth: int) -> _Separated:
        hiding = self._hiding(maker)
        if hiding is None:
            return _Separated(operand)
        number, other, condition, held = hiding
        found = self._separated(other, depth)
        return found.joined(_Separated(None, (self._held(condition, held),), (number,), True), found.rest)

    # Masks

    def _mask(self, operand: Operand) -> _Separated | None:
        """A tensor whose elements are 0 or far below, as what it hides; None for any other tensor."""
        numbers = self._values.of(operand) if isinstance(operand, str) else None
        below = () if numbers is None else tuple(number for number in numbers if number <= _FAR_BELOW)
        if not below or numbers != frozenset((*below, Fraction(0))):
            return None
        assert isinstance(operand, str)
        return _Separated(None, (self._condition(operand, max(below) / 2),), below)

    def _condition(self, mask: str, bound: Fraction) -> str:
        """The truth values that say where a mask is above a bound."""
        maker = self._regions.maker(mask, "select")
        chosen = None if maker is None else self._of_arms(maker, bound)
        if chosen is not None:
            return chosen
        tensor = self._builder.tensors[mask]
        data = tensor.data if tensor.kind == "constant" else None
        if mask not in self._conditions:
            if data is not None and data.quantizer is None:
                self._conditions[mask] = self._builder.constant(data.values == 0, tensor.shape)
            else:
                self._conditions[mask] = self._builder.emit("gt", mask, bound)
        return self._conditions[mask]

    def _of_arms(self, choice: GraphOperation, bound: Fraction) -> str | None:
        """The truth values for a choice of which one arm is a number far below, and the other is 0 or a mask."""
        hiding = self._hiding(choice)
        if hiding is None:
            return None
        _, rest, condition, held = hiding
        seen = self._held(condition, held)
        if self._regions.number(rest) == 0:
            return seen
        return self._builder.emit("and", seen, self._condition(rest, bound)) if isinstance(rest, str) else None

    def _hiding(self, choice: GraphOperation) -> tuple[Fraction, Operand, str, bool] | None:
        """For a choice of which one arm is a number far below: the number, the other arm, the condition, and the value
        of the condition for which the other arm is chosen.
        """
        condition = choice.inputs["condition"]
        for name, other, held in (("false_value", "true_value", True), ("true_value", "false_value", False)):
            number = self._regions.number(choice.inputs[name])
            if number is not None and number <= _FAR_BELOW and isinstance(condition, str):
                return number, choice.inputs[other], condition, held
        return None

    def _held(self, condition: str, held: bool) -> str:
        """The condition, or the truth values of its opposite."""
        if held:
            return condition
        if condition not in self._conditions:
            self._conditions[condition] = self._builder.emit("not", condition)
        return self._conditions[condition]
