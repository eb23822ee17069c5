"""One node during its translation: typed access to its operands and attributes, with the errors of its operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Unsupported
from cvm.frontends.common.data_types import is_float
from cvm.frontends.common.operands import Operands
from cvm.frontends.common.shapes import broadcast
from cvm.frontends.onnx.model import OnnxNode, Refused, Shape, Tensor, exact, invalid, refusal
from cvm.frontends.onnx.tensors import data_type_of
from cvm.records import dataclass

__all__ = ["Made", "OnnxCall", "Operand", "target_of_cast"]

_Item = TypeVar("_Item")


@dataclass(frozen=True, eq=False, slots=True)
class Operand:
    """A tensor of the model. ``values`` holds its contents where they are known; ``node`` is the node that computes it,
    if any.
    """

    name: str
    data_type: str
    shape: Shape
    values: npt.NDArray[Any] | None = None
    node: OnnxNode | None = None

    @property
    def rank(self) -> int:
        """The number of axes of the tensor."""
        return len(self.shape)

    @property
    def real(self) -> bool:
        """Whether the elements are real numbers, and not integers or truth values."""
        return is_float(self.data_type)


class Made(NamedTuple):
    """A result of a rule: the name of its tensor in the graph, its shape and its data type."""

    name: str
    shape: Shape
    data_type: str


@dataclass(eq=False, slots=True)
class OnnxCall(Operands[Operand]):
    """A node with its operands (None for an operand that is left out) and the version of its operator."""

    node: OnnxNode
    operands: Sequence[Operand | None]
    version: int
    _read: set[str] = field(default_factory=set)

    # Operands

    def constant(self, index: int, what: str) -> npt.NDArray[Any]:
        """The contents of an operand that must be known when compiling."""
        operand = self.operand(index)
        if operand.values is None:
            message = f"{what}, input {index} ({operand.name!r}), must be constant, but it is computed or given"
            raise refusal(self.node, message, "make it an initializer", "onnx.constant")
        return operand.values

    def constant_integers(self, index: int, what: str) -> tuple[int, ...] | None:
        """The elements of a constant operand of integers; None where the node leaves it out."""
        operand = self.optional(index)
        if operand is None:
            return None
        if operand.data_type not in ("int32", "int64"):
            raise self.invalid("type", f"{what} must be integers, found {operand.data_type}")
        return tuple(int(item) for item in self.constant(index, what).ravel())

    def constant_integer(self, index: int, what: str) -> int:
        """The single element of a constant operand as an integer; a float is truncated. Raises `Invalid` for more
        elements.
        """
        found = self.constant(index, what)
        if found.size != 1 or not np.isfinite(found).all():
            raise self.invalid("shape", f"{what} must be one integer, found {found.dtype} {list(found.shape)}")
        return int(found.ravel()[0])

    def same_type(self, *operands: Operand) -> str:
        """The data type that all operands share. Raises `Invalid` where they differ."""
        types = list(dict.fromkeys(operand.data_type for operand in operands))
        if len(types) > 1:
            raise self.invalid("type", f"all operands must have one data type, found {' and '.join(types)}")
        return types[0]

    def broadcast(self, *operands: Operand) -> Shape:
        """The shape that the operands broadcast to by NumPy's rule. Raises `Invalid` where they do not."""
        found = broadcast(*(operand.shape for operand in operands))
        if found is None:
            shapes = ", ".join(f"{operand.name!r} {list(operand.shape)}" for operand in operands)
            raise self.invalid("shape", f"the shapes do not broadcast: {shapes}")
        return found

    def axes(self, values: Sequence[int], rank: int) -> tuple[int, ...]:
        """The indices of distinct axes. Raises `Invalid` where two are equal."""
        found = tuple(self.axis(value, rank, "axes") for value in values)
        if len(set(found)) != len(found):
            raise self.invalid("axis", f"axes {list(values)} name an axis twice")
        return found

    # Attributes

    def has(self, name: str) -> bool:
        """Whether the node has an attribute."""
        return name in self.node.attributes

    def _attribute(self, name: str, kinds: tuple[type, ...], what: str) -> Any:
        self._read.add(name)
        found = self.node.attributes.get(name)
        if found is None:
            return None
        if isinstance(found, Refused):
            raise refusal(self.node, f"attribute {name} holds {found.kind}, which is not supported", "leave it out")
        if not isinstance(found, kinds):
            raise self.invalid("attribute", f"attribute {name} must be {what}")
        return found

    def _list(self, name: str, kind: type[_Item], what: str) -> tuple[_Item, ...] | None:
        found: tuple[_Item, ...] | None = self._attribute(name, (tuple,), f"a list of {what}")
        if found is not None and not all(isinstance(item, kind) for item in found):
            raise self.invalid("attribute", f"attribute {name} must be a list of {what}")
        return found

    def integer(self, name: str, default: int) -> int:
        """The value of an integer attribute."""
        found = self._attribute(name, (int,), "an integer")
        return default if found is None else int(found)

    def flag(self, name: str, default: bool) -> bool:
        """The value of an integer attribute that must be 0 or 1."""
        found = self.integer(name, int(default))
        if found not in (0, 1):
            raise self.invalid("attribute", f"attribute {name} must be 0 or 1, found {found}")
        return bool(found)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """The value of an attribute that is a list of integers, or None."""
        return self._list(name, int, "integers")

    def number(self, name: str, default: Fraction | None) -> Fraction:
        """The value of a float attribute as the exact rational of its float32."""
        found = self._attribute(name, (float,), "a float")
        if found is None:
            if default is None:
                raise self.invalid("attribute", f"attribute {name} is missing")
            return default
        return exact(found, self.node, name)

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """The value of an attribute that is a list of floats, or None."""
        return self._list(name, float, "floats")

    def text(self, name: str, default: str, *words: str) -> str:
        """The value of a string attribute; where ``words`` are given, it must be one of them."""
        found = self._attribute(name, (str,), "a string")
        found = default if found is None else str(found)
        if words and found not in words:
            raise self.invalid("attribute", f"attribute {name} must be one of {', '.join(words)}, found {found!r}")
        return found

    def texts(self, name: str) -> tuple[str, ...] | None:
        """The value of an attribute that is a list of strings, or None."""
        return self._list(name, str, "strings")

    def tensor(self, name: str) -> Tensor | None:
        """The value of a tensor attribute, or None."""
        found: Tensor | None = self._attribute(name, (Tensor,), "a tensor")
        return found

    def ignore(self, *names: str) -> None:
        """Mark attributes as read although their values change nothing here, so that `finish` accepts them."""
        self._read.update(names)

    def finish(self) -> None:
        """Raise `Unsupported` where an attribute was not read: it might change the meaning of the node."""
        unknown = sorted(set(self.node.attributes) - self._read)
        if unknown:
            raise refusal(
                self.node,
                f"attribute {unknown[0]} is not known",
                "leave it out, or convert the model to an opset that has it",
            )

    # Errors

    def invalid(self, rule: str, message: str) -> Invalid:
        """The error for a node that breaks a rule of ONNX; ``rule`` ends the code."""
        return invalid(self.node, rule, message)

    def refuse(self, message: str, advice: str = "") -> Unsupported:
        """The error for a valid node that is not supported; ``advice`` is the next step."""
        return refusal(self.node, message, advice)

    def sized(self, what: str, values: Sequence[Any] | None, count: int, default: int) -> tuple[int, ...]:
        """A list of ``count`` integers; where it is not given, each is ``default``. Raises
        `Invalid` for another count.
        """
        if values is None:
            return (default,) * count
        if len(values) != count:
            raise self.invalid("attribute", f"{what} must have {count} items, found {len(values)}")
        return tuple(int(value) for value in values)


def target_of_cast(call: OnnxCall) -> str:
    """The data type that Cast and CastLike convert to."""
    call.ignore("saturate", "round_mode")
    if call.node.op == "CastLike":
        return call.operand(1).data_type
    return data_type_of(call.integer("to", 0), "the result")
