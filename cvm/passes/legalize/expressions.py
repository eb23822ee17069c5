"""Expressions of the document's ops. Their ranges are proven when they are built, by the rules of the verifier.

The same op on the same operands is the same expression. So a part that two plans share is counted once, and written
into the program once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np

from cvm import ops
from cvm.limits import INT32_MAX
from cvm.ops import Call, Range
from cvm.passes.legalize.integers import Integers, narrowed
from cvm.program.model import AttributeValue, Shape
from cvm.program.operators import Operators
from cvm.records import dataclass

__all__ = ["Expression", "Expressions", "Unprovable", "missing"]

_Key = tuple[object, ...]


class Unprovable(Exception):
    """The range rules do not prove that an expression is an int32."""


@dataclass(frozen=True, eq=False, slots=True)
class Expression(Operators):
    """A tensor: an existing value (``name``), a constant (``elements``), or an op on expressions (``op``)."""

    made: Expressions = field(repr=False)
    """The collection that holds it, and all expressions that are built from it."""
    number: int
    """Numbers rise in the order in which expressions are built, so operands have smaller numbers."""
    shape: Shape
    range: Range
    name: str = ""
    elements: Integers | None = None
    op: str = ""
    inputs: tuple[Expression, ...] = ()
    attributes: Mapping[str, AttributeValue] | None = None
    label: str = ""
    """The purpose of the value, which becomes a part of its name in the program."""

    def apply(self, op: str, *others: Expression, label: str | None = None, **attributes: AttributeValue) -> Expression:
        """An op on this expression and others. Raises `Unprovable` as `Expressions.apply` does."""
        return self.made.apply(op, self, *others, label=op if label is None else label, **attributes)

    @property
    def lo(self) -> int:
        """The lower bound of all elements."""
        return self.range.hull()[0]

    @property
    def hi(self) -> int:
        """The upper bound of all elements."""
        return self.range.hull()[1]

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape))


class Expressions:
    """All expressions built so far."""

    def __init__(self) -> None:
        self._known: dict[_Key, Expression] = {}
        self._count = 0

    def value(self, name: str, shape: Shape, bounds: Range, elements: Integers | None = None) -> Expression:
        """An existing value of the program. ``elements`` are those of a constant."""
        key = ("value", name)
        return self._known.get(key) or self._add(key, shape, bounds, name=name, elements=elements)

    def constant(self, items: Integers, narrow: bool = True) -> Expression:
        """A constant. With ``narrow`` it gets extent 1 along axes on which it does not vary.

        Raises `Unprovable` if an element does not fit in int32.
        """
        if max(abs(int(items.min())), abs(int(items.max()))) > INT32_MAX:
            raise Unprovable("a constant exceeds int32")
        items = items.astype(np.int64)
        items = narrowed(items) if narrow else items
        key = ("constant", items.shape, items.tobytes())
        return self._known.get(key) or self._add(key, items.shape, Range.exactly(items), elements=items)

    def apply(self, op: str, *inputs: Expression, label: str, **attributes: AttributeValue) -> Expression:
        """An op on expressions. If all of them are constants, so is the result.

        Raises `Unprovable` if the result is not proven to be an int32.
        """
        key = (op, *(item.number for item in inputs), *sorted(attributes.items()))
        known = self._known.get(key)
        if known is not None:
            return known
        declaration = ops.get(op)
        call = Call(
            tuple(item.shape for item in inputs),
            declaration.parse(attributes),
            tuple(item.range for item in inputs),
        )
        (shape,) = declaration.shape(call)
        (bounds,) = declaration.range(call)
        lo, hi = bounds.hull()
        if not -INT32_MAX <= lo <= hi <= INT32_MAX:
            raise Unprovable(f"{label}: {op} gives [{lo}, {hi}]")
        if all(item.elements is not None for item in inputs) and bool((bounds.lo == bounds.hi).all()):
            return self.constant(bounds.lo)
        proven = bounds.per_channel().monotone(lambda items: items.astype(np.int64))
        return self._add(key, shape, proven, op=op, inputs=inputs, attributes=attributes, label=label)

    def forget(self, kept: Mapping[int, str]) -> None:
        """Drop all expressions except values and those whose numbers are in ``kept``."""
        self._known = {key: item for key, item in self._known.items() if item.name or item.number in kept}

    def _add(
        self,
        key: _Key,
        shape: Shape,
        bounds: Range,
        *,
        name: str = "",
        elements: Integers | None = None,
        op: str = "",
        inputs: tuple[Expression, ...] = (),
        attributes: Mapping[str, AttributeValue] | None = None,
        label: str = "",
    ) -> Expression:
        self._count += 1
        item = Expression(self, self._count, shape, bounds, name, elements, op, inputs, attributes, label)
        self._known[key] = item
        return item


def missing(root: Expression, present: Mapping[int, str]) -> list[Expression]:
    """The ops and constants that ``root`` needs and that are not in ``present``, operands first."""
    found: dict[int, Expression] = {}
    waiting = [root]
    while waiting:
        item = waiting.pop()
        if item.number in found or item.number in present or item.name:
            continue
        found[item.number] = item
        waiting.extend(item.inputs)
    return [found[number] for number in sorted(found)]
