"""The operands of a node of a model, by index: what the calls of ONNX and of TFLite share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from cvm.errors import Invalid

__all__ = ["Operands"]

_Operand = TypeVar("_Operand")


class Operands(ABC, Generic[_Operand]):
    """A node with its operands, None for one that is left out."""

    __slots__ = ()

    operands: Sequence[_Operand | None]

    @abstractmethod
    def invalid(self, rule: str, message: str) -> Invalid:
        """The error for a node that breaks a rule of its operator."""

    def optional(self, index: int) -> _Operand | None:
        """The operand at an index, or None where the node leaves it out."""
        return self.operands[index] if index < len(self.operands) else None

    def operand(self, index: int = 0) -> _Operand:
        """The operand at an index. Raises `Invalid` where the node leaves it out."""
        found = self.optional(index)
        if found is None:
            raise self.invalid("inputs", f"input {index} is missing")
        return found

    def every(self) -> list[_Operand]:
        """All operands, at least one. Raises `Invalid` where one is left out."""
        return [self.operand(index) for index in range(max(len(self.operands), 1))]

    def axis(self, value: int, rank: int, what: str = "axis") -> int:
        """The index of an axis; a negative one counts from the end. Raises `Invalid` outside of the rank."""
        if not -rank <= value < rank:
            raise self.invalid("axis", f"{what} {value} is not in {-rank}..{rank - 1}")
        return value % rank
