"""Operands that record which of their elements a step reads; the prover and the judge use the same record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from formal.tensor import Index, Shape, Tensor, flatten_index

__all__ = ["NotedTensor", "Operands"]


class NotedTensor(Tensor):
    """A tensor that finds elements by their row-major numbers and records the numbers that it was asked for."""

    def __init__(self, shape: Shape, element: Callable[[int], int]) -> None:
        def rule(d: Index) -> int:
            number = flatten_index(d, shape)
            self.numbers.add(number)
            return element(number)

        super().__init__(shape, rule)
        self.numbers: set[int] = set()


class Operands:
    """The operands of an op, each made when it is first asked for; ``taken`` lists these."""

    def __init__(self, count: int, make: Callable[[int], NotedTensor]) -> None:
        self._count = count
        self._make = make
        self._taken: dict[int, NotedTensor] = {}

    @property
    def taken(self) -> Mapping[int, NotedTensor]:
        """The operands that were made, by their positions, in order."""
        return dict(sorted(self._taken.items()))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Tensor]:
        return (self[position] for position in range(self._count))

    def __getitem__(self, position: int) -> Tensor:
        if not 0 <= position < self._count:
            raise IndexError(f"there is no operand {position}")
        if position not in self._taken:
            self._taken[position] = self._make(position)
        return self._taken[position]
