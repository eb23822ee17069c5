"""Emission of ops and constants while a graph is lowered, and the report on the exactness of each tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Location, Unsupported
from cvm.graph import GraphOperation
from cvm.limits import INT32_MAX, Limits
from cvm.ops import Range
from cvm.program.build import ProgramBuilder
from cvm.program.model import OP_SET, Exactness, Shape
from cvm.program.operators import Operators
from cvm.records import dataclass
from cvm.repeated import proven

__all__ = ["Emission", "Value"]


@dataclass(frozen=True, slots=True)
class Value(Operators):
    """A tensor of the program that is being built. Operators and methods on it emit ops of that program."""

    name: str
    emission: Emission = field(repr=False, compare=False)

    @property
    def shape(self) -> Shape:
        """The extents."""
        return self.emission.builder.shape(self.name)

    @property
    def range(self) -> Range:
        """The proven range of the items."""
        return self.emission.builder.range(self.name)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __str__(self) -> str:
        return self.name

    def apply(self, op: str, *others: Value, label: str | None = None, **attributes: Any) -> Value:
        """Emit an op on this tensor and ``others``. Raises `Unsupported`, as `Emission.emit`."""
        return self.emission.emit(op, self, *others, label=label, **attributes)

    def broadcast(self, shape: Shape) -> Value:
        """The tensor broadcast to ``shape`` by adding zeros, or the tensor itself if it has that shape."""
        if self.shape == shape:
            return self
        return self + self.emission.tensor_constant(np.zeros(shape, np.int64), "zeros")

    def in_shape(self, shape: Shape) -> Value:
        """The items in the same order, in ``shape``. If that is their shape already, no op is emitted."""
        return self if self.shape == shape else self.reshape(shape)


class Emission:
    """The program that is being built, and the report on its exactness.

    One operation of the graph is lowered at a time. Values are named after ``owner``, the tensor of the graph that they
    are computed for.
    """

    def __init__(self, limits: Limits, op_set: int = OP_SET) -> None:
        self.op_set = op_set
        """The latest op-set version whose ops may be emitted."""
        self.builder = ProgramBuilder(limits, proven)
        self.report: list[Exactness] = []
        self.owner = ""
        self._in_part = False
        self._operation: GraphOperation | None = None

    @property
    def operation(self) -> GraphOperation:
        """The operation that is being lowered."""
        assert self._operation is not None
        return self._operation

    @contextmanager
    def at(self, operation: GraphOperation) -> Iterator[None]:
        """A context in which ``operation`` is being lowered, and its first result is the owner."""
        before, self._operation = self._operation, operation
        try:
            with self.serving(operation.outputs[0]):
                yield
        finally:
            self._operation = before

    @contextmanager
    def serving(self, owner: str, part: bool = False) -> Iterator[None]:
        """A context in which values are named after ``owner``: a tensor or, with ``part``, an intermediate of one."""
        before = self.owner, self._in_part
        self.owner, self._in_part = owner, part
        try:
            yield
        finally:
            self.owner, self._in_part = before

    def part(self, label: str) -> AbstractContextManager[None]:
        """A context in which values are named ``owner.label``, and `claim` reports nothing.

        With the label "" they are named ``owner``.
        """
        return self.serving(self.named(label), part=True)

    def emit(self, op: str, *inputs: Value, label: str | None = None, **attributes: Any) -> Value:
        """Add a node and return its value, named ``owner.label``. The label is by default the op; "" gives ``owner``.

        Raises `Unsupported` (``lowering.range``) if the result is not proven to fit 32 bits.
        """
        names = [value.name for value in inputs]
        try:
            (name,) = self.builder.add(op, names, attributes, name=self.named(op if label is None else label))
        except Invalid as error:
            if error.code != "program.range":
                raise
            message = f"{self.operation.name}: {error.message}: give the operands quantisers of fewer bits"
            raise Unsupported("lowering.range", message, self.location) from None
        return Value(name, self)

    def tensor_constant(self, items: npt.ArrayLike, label: str) -> Value:
        """Add an int32 constant. Raises `Unsupported` if an item does not fit."""
        values = np.asarray(items)
        if values.size and max(abs(int(values.min())), abs(int(values.max()))) > INT32_MAX:
            raise self.unsupported(f"{label} does not fit 32 bits: it needs quantisation information")
        integers = values if values.dtype.kind in "iu" else values.astype(np.int64)
        return Value(self.builder.constant(integers, name=self.named(label)), self)

    def parameter(self, values: npt.NDArray[Any], label: str, plain: bool = False) -> Value:
        """Add an int64 parameter of a ``requantize``. With ``plain``, its name is the label alone."""
        name = label if plain else self.named(label)
        return Value(self.builder.parameter(values.astype(np.int64), name=name), self)

    def named(self, label: str) -> str:
        """The name for a value with this label. The builder makes it unique."""
        return f"{self.owner}.{label}" if label else self.owner

    def claim(
        self,
        value: Value | None,
        note: str = "",
        bound: Fraction = Fraction(0),
        accumulator: tuple[int, int] | None = None,
    ) -> None:
        """Report by how much the codes of the owner, which ``value`` holds, may differ from the exact ones.

        ``bound`` is in codes; ``accumulator`` is the interval of the 64-bit sum. Within `part` nothing is reported.
        """
        if not self._in_part:
            self.report.append(Exactness(self.owner, value.name if value else "", bound, accumulator, note))

    @property
    def location(self) -> Location:
        """The location in the document of the operation that is being lowered."""
        at = self.operation.location
        return Location(at.file, at.line, at.column, self.operation.outputs[0], self.operation.name)

    def integer(self, attribute: str) -> int:
        """An attribute of type ``integer`` or ``logical`` of the operation."""
        return int(self.operation.attributes[attribute])  # type: ignore[arg-type]

    def integers(self, attribute: str) -> tuple[int, ...]:
        """An attribute of type ``integer[]`` of the operation."""
        return tuple(int(item) for item in self.operation.attributes[attribute])  # type: ignore[union-attr, arg-type]

    def fraction(self, attribute: str) -> Fraction:
        """An attribute of type ``scalar`` of the operation, exactly."""
        return Fraction(self.operation.attributes[attribute])  # type: ignore[arg-type]

    def unsupported(self, message: str) -> Unsupported:
        """The error ``lowering.operation`` for the operation that is being lowered, with the reason."""
        return Unsupported("lowering.operation", f"{self.operation.name}: {message}", self.location)
