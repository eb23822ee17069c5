"""One node while it is translated: its operands and attributes, each read by the rule of its operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Unsupported
from cvm.frontends.common.data_types import is_float
from cvm.frontends.common.shapes import broadcast
from cvm.frontends.onnx.model import OnnxNode, Refused, Shape, Tensor, exact, invalid, refusal

__all__ = ["Made", "OnnxCall", "Operand"]


@dataclass(frozen=True, eq=False, slots=True)
class Operand:
    """A tensor of the model: ``values`` where they are known, ``node`` if one computes it."""

    name: str
    data_type: str
    shape: Shape
    values: npt.NDArray[Any] | None = None
    node: OnnxNode | None = None

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def real(self) -> bool:
        """Whether its items are real numbers, not integers or truth values."""
        return is_float(self.data_type)


class Made(NamedTuple):
    """A result: the tensor of the graph, its shape and data type."""

    name: str
    shape: Shape
    data_type: str


@dataclass(eq=False, slots=True)
class OnnxCall:
    """A node, its operands (None for those left out), and the version of its operator."""

    node: OnnxNode
    operands: Sequence[Operand | None]
    version: int
    _read: set[str] = field(default_factory=set)

    # Operands

    def optional(self, index: int) -> Operand | None:
        """An operand that may be left out."""
        return self.operands[index] if index < len(self.operands) else None

    def operand(self, index: int = 0) -> Operand:
        """An operand that must be there."""
        found = self.optional(index)
        if found is None:
            raise self.invalid("inputs", f"input {index} is missing")
        return found

    def every(self) -> list[Operand]:
        """All operands, at least one, none left out."""
        return [self.operand(index) for index in range(max(len(self.operands), 1))]

    def constant(self, index: int, what: str) -> npt.NDArray[Any]:
        """The contents of an operand that must be known when compiling."""
        operand = self.operand(index)
        if operand.values is None:
            message = f"{what}, input {index} ({operand.name!r}), must be constant, but it is computed or given"
            raise refusal(self.node, message, "make it an initializer", "onnx.constant")
        return operand.values

    def constant_integers(self, index: int, what: str) -> tuple[int, ...] | None:
        """The items of a constant operand of integers; None where it is left out."""
        operand = self.optional(index)
        if operand is None:
            return None
        if operand.data_type not in ("int32", "int64"):
            raise self.invalid("type", f"{what} must be integers, found {operand.data_type}")
        return tuple(int(item) for item in self.constant(index, what).ravel())

    def constant_integer(self, index: int, what: str) -> int:
        """The only item of a constant operand, as an integer; the fraction of a float is left out."""
        found = self.constant(index, what)
        if found.size != 1 or not np.isfinite(found).all():
            raise self.invalid("shape", f"{what} must be one integer, found {found.dtype} {list(found.shape)}")
        return int(found.ravel()[0])

    def same_type(self, *operands: Operand) -> str:
        """The data type that all operands have."""
        types = list(dict.fromkeys(operand.data_type for operand in operands))
        if len(types) > 1:
            raise self.invalid("type", f"all operands must have one data type, found {' and '.join(types)}")
        return types[0]

    def broadcast(self, *operands: Operand) -> Shape:
        """The shape that the operands broadcast to, as NumPy does."""
        found = broadcast(*(operand.shape for operand in operands))
        if found is None:
            shapes = ", ".join(f"{operand.name!r} {list(operand.shape)}" for operand in operands)
            raise self.invalid("shape", f"the shapes do not broadcast: {shapes}")
        return found

    def axis(self, value: int, rank: int, what: str = "axis") -> int:
        """An axis, counted from the end where it is negative."""
        if not -rank <= value < rank:
            raise self.invalid("axis", f"{what} {value} is not in {-rank}..{rank - 1}")
        return value % rank

    def axes(self, values: Sequence[int], rank: int) -> tuple[int, ...]:
        """Distinct axes."""
        found = tuple(self.axis(value, rank, "axes") for value in values)
        if len(set(found)) != len(found):
            raise self.invalid("axis", f"axes {list(values)} name an axis twice")
        return found

    # Attributes

    def has(self, name: str) -> bool:
        """Whether an attribute is given."""
        return name in self.node.attributes

    def _attribute(self, name: str, kinds: tuple[type, ...], what: str) -> Any:
        self._read.add(name)
        found = self.node.attributes.get(name)
        if found is None:
            return None
        if isinstance(found, Refused):
            raise refusal(self.node, f"attribute {name} holds {found.kind}, which is not read", "leave it out")
        if not isinstance(found, kinds):
            raise self.invalid("attribute", f"attribute {name} must be {what}")
        return found

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        found = self._attribute(name, (int,), "an integer")
        return default if found is None else int(found)

    def flag(self, name: str, default: bool) -> bool:
        """An integer attribute that is 0 or 1."""
        found = self.integer(name, int(default))
        if found not in (0, 1):
            raise self.invalid("attribute", f"attribute {name} must be 0 or 1, found {found}")
        return bool(found)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A list of integers."""
        found = self._attribute(name, (tuple,), "a list of integers")
        if found is not None and not all(isinstance(item, int) for item in found):
            raise self.invalid("attribute", f"attribute {name} must be a list of integers")
        return found  # type: ignore[no-any-return]

    def number(self, name: str, default: Fraction | None) -> Fraction:
        """A float attribute, as the rational that its 32 bits are."""
        found = self._attribute(name, (float,), "a float")
        if found is None:
            if default is None:
                raise self.invalid("attribute", f"attribute {name} is missing")
            return default
        return exact(found, self.node, name)

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """A list of floats."""
        found = self._attribute(name, (tuple,), "a list of floats")
        if found is not None and not all(isinstance(item, float) for item in found):
            raise self.invalid("attribute", f"attribute {name} must be a list of floats")
        return found  # type: ignore[no-any-return]

    def text(self, name: str, default: str, *words: str) -> str:
        """A string attribute, one of ``words`` if there are any."""
        found = self._attribute(name, (str,), "a string")
        found = default if found is None else str(found)
        if words and found not in words:
            raise self.invalid("attribute", f"attribute {name} must be one of {', '.join(words)}, found {found!r}")
        return found

    def texts(self, name: str) -> tuple[str, ...] | None:
        """A list of strings."""
        found = self._attribute(name, (tuple,), "a list of strings")
        if found is not None and not all(isinstance(item, str) for item in found):
            raise self.invalid("attribute", f"attribute {name} must be a list of strings")
        return found  # type: ignore[no-any-return]

    def tensor(self, name: str) -> Tensor | None:
        """A tensor attribute."""
        found: Tensor | None = self._attribute(name, (Tensor,), "a tensor")
        return found

    def ignore(self, *names: str) -> None:
        """Mark attributes as read although their values change nothing here, so that `finish` accepts them."""
        self._read.update(names)

    def finish(self) -> None:
        """Raise `Unsupported` where an attribute was not read: it could mean anything."""
        unknown = sorted(set(self.node.attributes) - self._read)
        if unknown:
            raise refusal(
                self.node,
                f"attribute {unknown[0]} is not known",
                "leave it out, or convert the model to an opset that has it",
            )

    # What goes wrong

    def invalid(self, rule: str, message: str) -> Invalid:
        """The breach of a rule of ONNX."""
        return invalid(self.node, rule, message)

    def refuse(self, message: str, advice: str = "") -> Unsupported:
        """The refusal of a valid node."""
        return refusal(self.node, message, advice)

    def sized(self, what: str, values: Sequence[Any] | None, count: int, default: int) -> tuple[int, ...]:
        """A list of ``count`` integers, all ``default`` where it is not given."""
        if values is None:
            return (default,) * count
        if len(values) != count:
            raise self.invalid("attribute", f"{what} must have {count} items, found {len(values)}")
        return tuple(int(value) for value in values)
