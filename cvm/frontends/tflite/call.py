"""One operator during its translation: typed access to its operands and options, with the errors of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy.typing as npt

from cvm.errors import Invalid, Unsupported
from cvm.frontends.common.operands import Operands
from cvm.frontends.common.shapes import broadcast
from cvm.frontends.tflite.model import Shape, TfliteOperator, TfliteTensor, invalid, refusal
from cvm.frontends.tflite.tensors import FLOATS
from cvm.quantization import LinearQuantizer
from cvm.records import dataclass

__all__ = ["Made", "Operand", "TfliteCall"]


@dataclass(frozen=True, eq=False, slots=True)
class Operand:
    """A tensor that an operator reads. ``values`` holds the elements of a constant: codes where it is quantised."""

    tensor: TfliteTensor
    shape: Shape
    quantizer: LinearQuantizer | None = None
    values: npt.NDArray[Any] | None = None

    @property
    def rank(self) -> int:
        """The number of axes of the tensor."""
        return len(self.shape)

    @property
    def data_type(self) -> str:
        """The data type of the elements."""
        return self.tensor.data_type

    @property
    def real(self) -> bool:
        """Whether the elements stand for real numbers, as floats and codes do."""
        return self.quantizer is not None or self.data_type in FLOATS

    @property
    def label(self) -> str:
        """The name of the tensor in messages."""
        return self.tensor.label


@dataclass(frozen=True, slots=True)
class Made:
    """A result of a rule: a tensor of the graph. ``planar``: its channels are axis 1, and not the last axis as in the
    model.
    """

    name: str
    planar: bool = False


@dataclass(eq=False, slots=True)
class TfliteCall(Operands[Operand]):
    """An operator, its operands (None for an operand that is left out), and the tensors that it computes."""

    operator: TfliteOperator
    operands: Sequence[Operand | None]
    results: Sequence[TfliteTensor]
    intermediates: Sequence[TfliteTensor] = ()

    # Operands

    @property
    def result(self) -> TfliteTensor:
        """The first tensor that the operator computes. Raises `Invalid` where it computes none."""
        if not self.results:
            raise self.invalid("outputs", "it has no result")
        return self.results[0]

    def constant(self, index: int, what: str) -> npt.NDArray[Any]:
        """The elements of an operand that must be constant. Raises `Unsupported` where it is not."""
        operand = self.operand(index)
        if operand.values is None:
            raise self.refuse(f"{what}, {operand.label}, must be constant, but is computed or given")
        return operand.values

    def integers(self, index: int, what: str) -> tuple[int, ...]:
        """The elements of a constant operand of integers, flattened."""
        operand = self.operand(index)
        if operand.data_type not in ("int32", "int64", "int16", "uint32"):
            raise self.invalid("type", f"{what}, {operand.label}, must hold integers, found {operand.data_type}")
        return tuple(int(item) for item in self.constant(index, what).ravel())

    def integer_operand(self, index: int, what: str) -> int:
        """The single element of a constant operand of integers; 0 where it has no elements."""
        items = self.integers(index, what)
        if len(items) > 1:
            raise self.invalid("shape", f"{what}, {self.operand(index).label}, must be one integer, found {len(items)}")
        return items[0] if items else 0

    def require_rank(self, operand: Operand, *ranks: int) -> None:
        """Raise `Invalid` unless the rank of an operand is one of ``ranks``."""
        if operand.rank not in ranks:
            allowed = " or ".join(map(str, ranks))
            raise self.invalid("shape", f"{operand.label} must have {allowed} axes, found {list(operand.shape)}")

    def axes(self, values: Sequence[int], rank: int) -> tuple[int, ...]:
        """The indices of axes, sorted, each once."""
        return tuple(sorted({self.axis(value, rank) for value in values}))

    def broadcast(self, *operands: Operand) -> Shape:
        """The shape that the operands broadcast to by NumPy's rule. Raises `Invalid` where they do not."""
        found = broadcast(*(operand.shape for operand in operands))
        if found is None:
            shapes = ", ".join(f"{operand.label} {list(operand.shape)}" for operand in operands)
            raise self.invalid("shape", f"the shapes do not broadcast: {shapes}")
        return found

    # Options

    def integer(self, name: str, default: int = 0) -> int:
        """The value of an integer option."""
        return int(self._option(name, default))

    def flag(self, name: str, default: bool = False) -> bool:
        """The value of an option that is a truth value."""
        return bool(self._option(name, default))

    def number(self, name: str, default: float = 0.0) -> Fraction:
        """The value of a float option as the exact rational of its float32. Raises `Invalid` where it is not finite."""
        found = float(self._option(name, default))
        if not abs(found) < float("inf"):
            raise self.invalid("option", f"the option {name} must be finite, found {found}")
        return Fraction(found)

    def list_of_integers(self, name: str) -> tuple[int, ...]:
        """The value of an option that is a list of integers."""
        found = self.operator.options.get(name, ())
        return tuple(int(item) for item in found) if isinstance(found, tuple) else ()

    def _option(self, name: str, default: float) -> float:
        found = self.operator.options.get(name, default)
        return default if isinstance(found, tuple | str) else found

    def text(self, name: str) -> str:
        """The value of a string option."""
        found = self.operator.options.get(name, "")
        return found if isinstance(found, str) else ""

    # Errors

    def invalid(self, rule: str, message: str) -> Invalid:
        """The error for an operator that breaks a rule of TFLite; ``rule`` ends the code."""
        return invalid(self.operator, rule, message)

    def refuse(self, message: str, advice: str = "") -> Unsupported:
        """The error for a valid operator that is not supported; ``advice`` is the next step."""
        return refusal(self.operator, message, advice)
