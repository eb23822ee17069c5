"""Expressions of the document's ops whose ranges are proven as they are made, by the rules that the verifier applies.

An expression is made once: the same op on the same operands is the same expression, so what two plans have in common
is counted, and written into the program, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cvm import ops
from cvm.limits import INT32_MAX
from cvm.ops import Call, Range
from cvm.passes.legalize.integers import Integers, narrowed
from cvm.program.model import AttributeValue, Shape
from cvm.program.operators import Operators

__all__ = ["Expression", "Expressions", "Unprovable", "missing"]

_Key = tuple[object, ...]


class Unprovable(Exception):
    """An expression that the rules of intervals do not prove to be int32."""


@dataclass(frozen=True, eq=False, slots=True)
class Expression(Operators):
    """A tensor: an existing value (``name``), a constant (``elements``), or an op on expressions (``op``)."""

    made: Expressions = field(repr=False)
    """What made it, and makes all that is applied to it."""
    number: int
    """Numbers ascend in the order in which expressions are made: operands come first."""
    shape: Shape
    range: Range
    name: str = ""
    elements: Integers | None = None
    op: str = ""
    inputs: tuple[Expression, ...] = ()
    attributes: Mapping[str, AttributeValue] | None = None
    label: str = ""
    """What the value is for, as part of its name in the program."""

    def apply(self, op: str, *others: Expression, label: str | None = None, **attributes: AttributeValue) -> Expression:
        """An op on this expression and others. Raises `Unprovable`, as `Expressions.apply`."""
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
    """All expressions made so far."""

    def __init__(self) -> None:
        self._known: dict[_Key, Expression] = {}
        self._count = 0

    def value(self, name: str, shape: Shape, bounds: Range, elements: Integers | None = None) -> Expression:
        """An existing value of the program; of a constant, the elements as well."""
        key = ("value", name)
        return self._known.get(key) or self._add(key, shape, bounds, name=name, elements=elements)

    def constant(self, items: Integers, narrow: bool = True) -> Expression:
        """A constant; with extent 1 along axes on which it does not vary. Raises `Unprovable` beyond int32."""
        if max(abs(int(items.min())), abs(int(items.max()))) > INT32_MAX:
            raise Unprovable("a constant exceeds int32")
        items = items.astype(np.int64)
        items = narrowed(items) if narrow else items
        key = ("constant", items.shape, items.tobytes())
        return self._known.get(key) or self._add(key, items.shape, Range.exactly(items), elements=items)

    def apply(self, op: str, *inputs: Expression, label: str, **attributes: AttributeValue) -> Expression:
        """An op on expressions; of constants, a constant. Raises `Unprovable` for a result that is not proven int32."""
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
        """Drop all expressions but values and those whose numbers are in ``kept``."""
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
    """The ops and constants that ``root`` needs and ``present`` does not have, operands first."""
    found: dict[int, Expression] = {}
    waiting = [root]
    while waiting:
        item = waiting.pop()
        if item.number in found or item.number in present or item.name:
            continue
        found[item.number] = item
        waiting.extend(item.inputs)
    return [found[number] for number in sorted(found)]
