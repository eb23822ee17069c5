"""The makers and readers of tensors while groups of operations are recognised."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction

from cvm.graph import GraphOperation, GraphTensor, Operand, makers, names_in
from cvm.records import dataclass

__all__ = ["Regions", "Whole"]


@dataclass(frozen=True, slots=True)
class Whole:
    """A recognised operation, and the operations that it replaces; ``last`` is the replaced one
    that gives the result.
    """

    operation: GraphOperation
    last: GraphOperation
    parts: Sequence[GraphOperation]


class Regions:
    """The makers and readers of tensors, and the numbers that constants hold."""

    def __init__(
        self, tensors: Mapping[str, GraphTensor], operations: Sequence[GraphOperation], outputs: Collection[str]
    ) -> None:
        self._tensors, self._outputs = tensors, outputs
        self._numbers = {id(operation): number for number, operation in enumerate(operations)}
        self._makers = makers(operations)
        self._readers: dict[str, list[GraphOperation]] = {}
        for operation in operations:
            for name in {name for operand in operation.inputs.values() for name in names_in(operand)}:
                self._readers.setdefault(name, []).append(operation)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self._tensors[name].shape

    def number_of(self, operation: GraphOperation) -> int:
        """The index of an operation in the order of execution."""
        return self._numbers[id(operation)]

    def position(self, name: str) -> int:
        """The index of the operation that makes a tensor; -1 if none makes it."""
        maker = self._makers.get(name)
        return -1 if maker is None else self._numbers[id(maker)]

    def readers(self, name: str) -> list[GraphOperation]:
        """The operations that read a tensor."""
        return self._readers.get(name, [])

    def maker(self, operand: Operand, *names: str) -> GraphOperation | None:
        """The maker of a tensor that is not quantised, if its name is one of ``names`` (without
        names: whatever it is).
        """
        maker = self._makers.get(operand) if isinstance(operand, str) else None
        if maker is None or self._tensors[str(operand)].quantizer is not None:
            return None
        return maker if not names or maker.name in names else None

    def behind_reshapes(self, operand: Operand) -> tuple[Operand, list[GraphOperation]]:
        """The tensor that an operand was reshaped from, and the reshapes."""
        parts = []
        while (maker := self.maker(operand, "reshape")) is not None:
            parts.append(maker)
            operand = maker.inputs["input"]
        return operand, parts

    def is_constant(self, operand: Operand) -> bool:
        """Whether an operand is a constant of the graph, or a reshaped constant."""
        return self._constant(operand) is not None

    def number(self, operand: Operand) -> Fraction | None:
        """The number of a literal or of a constant with one element; None for any other operand."""
        if isinstance(operand, Fraction):
            return operand
        tensor = self._constant(operand)
        if tensor is None or tensor.data is None or tensor.data.quantizer is not None or tensor.data.values.size != 1:
            return None
        return Fraction(tensor.data.values.ravel()[0].item())

    def _constant(self, operand: Operand) -> GraphTensor | None:
        operand, _ = self.behind_reshapes(operand)
        tensor = self._tensors.get(operand) if isinstance(operand, str) else None
        return tensor if tensor is not None and tensor.kind == "constant" else None

    def closed(self, parts: Sequence[GraphOperation], last: GraphOperation) -> bool:
        """Whether only ``parts`` read the tensors that they compute, apart from the result of ``last``."""
        own = {id(part) for part in parts}
        inner = [name for part in parts if part is not last for name in part.outputs]
        return all(
            name not in self._outputs and self._tensors[name].quantizer is None
            and all(id(reader) in own for reader in self.readers(name))
            for name in inner
        )  # fmt: skip
