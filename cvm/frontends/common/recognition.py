"""Normalisations that a document writes out in sums, roots and quotients, found where they are.

(x - mean) / sqrt(mean((x - mean)^2) + epsilon), times a constant and plus another where it stands, is the operation
layer_normalization, the same real number. Nothing within may be rounded or read from elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from cvm.graph import GraphOperation, GraphTensor, Operand

__all__ = ["with_normalizations"]


def with_normalizations(
    tensors: Mapping[str, GraphTensor], operations: Sequence[GraphOperation], outputs: Collection[str]
) -> list[GraphOperation]:
    """The operations, written-out layer normalisations as one each, in the place of their last one.

    ``outputs`` are results of the graph, which stay what they are.
    """
    finder = _Finder(tensors, operations, outputs)
    found: dict[int, _Normalization] = {}
    for operation in operations:
        if operation.name == "sqrt":
            normalization = finder.around(operation)
            if normalization is not None:
                found[id(normalization.last)] = normalization
    gone = {id(part) for item in found.values() for part in item.parts}
    made = []
    for operation in operations:
        if id(operation) in found:
            made.append(found[id(operation)].whole)
        elif id(operation) not in gone:
            made.append(operation)
    return made


@dataclass(frozen=True, slots=True)
class _Normalization:
    whole: GraphOperation
    last: GraphOperation
    parts: list[GraphOperation]


class _Finder:
    def __init__(
        self, tensors: Mapping[str, GraphTensor], operations: Sequence[GraphOperation], outputs: Collection[str]
    ) -> None:
        self._tensors, self._outputs = tensors, outputs
        self._makers = {name: operation for operation in operations for name in operation.outputs}
        self._readers: dict[str, list[GraphOperation]] = {}
        for operation in operations:
            for name in {name for operand in operation.inputs.values() for name in _names(operand)}:
                self._readers.setdefault(name, []).append(operation)

    def around(self, root: GraphOperation) -> _Normalization | None:
        """The normalisation that a root is part of."""
        inside = self._made(root.inputs["x"], "add")
        variance, epsilon = self._with_number(inside) if inside else (None, None)
        mean_of_squares = self._made(variance, "mean_reduce")
        square = self._made(mean_of_squares.inputs["input"], "mul") if mean_of_squares else None
        if inside is None or mean_of_squares is None or square is None or epsilon is None or epsilon <= 0:
            return None
        axes = mean_of_squares.attributes["axes"]
        centres = [self._centred(operand, axes) for operand in (square.inputs["x"], square.inputs["y"])]
        quotient = self._only_reader(root)
        if centres[0] is None or centres[1] is None or quotient is None:
            return None
        above = self._above(quotient, root)
        centre = self._centred(above[0], axes) if above else None
        if above is None or centre is None:
            return None
        mean = self._made(centre.inputs["y"], "mean_reduce")
        same = {(part.inputs["x"], self._source_of_mean(part)) for part in (centres[0], centres[1], centre)}
        parts = [root, inside, mean_of_squares, square, centres[0], centres[1], centre, *above[1]]
        parts += [maker for part in (centres[0], centres[1], centre) if (maker := self._made(part.inputs["y"]))]
        if len(same) != 1 or mean is None:
            return None
        last, scale, offset, more = self._scaled(above[1][-1], axes)
        parts = list({id(part): part for part in [*parts, *more]}.values())
        if not self._closed(parts, last):
            return None
        inputs: dict[str, Operand] = {"input": centre.inputs["x"], "scale": scale, "offset": offset}
        whole = replace(last, name="layer_normalization", inputs=inputs, attributes={"axes": axes, "epsilon": epsilon})
        return _Normalization(whole, last, parts)

    def _made(self, operand: Any, *names: str) -> GraphOperation | None:
        """The operation that makes a tensor which is not rounded, if it is one of ``names``."""
        maker = self._makers.get(operand) if isinstance(operand, str) else None
        if maker is None or self._tensors[str(operand)].quantizer is not None:
            return None
        return maker if not names or maker.name in names else None

    def _constant(self, operand: Operand) -> GraphTensor | None:
        """The constant that an operand is, in this shape or another."""
        while (maker := self._made(operand, "reshape")) is not None:
            operand = maker.inputs["input"]
        tensor = self._tensors.get(operand) if isinstance(operand, str) else None
        return tensor if tensor is not None and tensor.kind == "constant" else None

    def _number(self, operand: Operand) -> Fraction | None:
        """A literal, or the only item of a constant."""
        if isinstance(operand, Fraction):
            return operand
        tensor = self._constant(operand)
        if tensor is None or tensor.data is None or tensor.data.quantizer is not None:
            return None
        return Fraction(tensor.data.values.ravel()[0].item()) if tensor.data.values.size == 1 else None

    def _with_number(self, operation: GraphOperation) -> tuple[Operand | None, Fraction | None]:
        """The operand of a sum or a product with a number, and that number."""
        x, y = operation.inputs["x"], operation.inputs["y"]
        return (x, self._number(y)) if self._number(y) is not None else (y, self._number(x))

    def _centred(self, operand: Operand, axes: Any) -> GraphOperation | None:
        """A tensor less its mean over ``axes``."""
        found = self._made(operand, "sub")
        mean = self._made(found.inputs["y"], "mean_reduce") if found else None
        fits = found and mean and mean.inputs["input"] == found.inputs["x"] and mean.attributes["axes"] == axes
        return found if fits else None

    def _source_of_mean(self, centred: GraphOperation) -> Operand:
        return self._makers[str(centred.inputs["y"])].inputs["input"]

    def _only_reader(self, operation: GraphOperation) -> GraphOperation | None:
        readers = self._readers.get(operation.outputs[0], [])
        free = self._tensors[operation.outputs[0]].quantizer is None and operation.outputs[0] not in self._outputs
        return readers[0] if len(readers) == 1 and free else None

    def _above(self, quotient: GraphOperation, root: GraphOperation) -> tuple[Operand, list[GraphOperation]] | None:
        """What is divided by a root, and the operations that divide."""
        name = root.outputs[0]
        inverse = quotient.name == "rcp" or (quotient.name == "div" and self._number(quotient.inputs["x"]) == 1)
        if quotient.name == "div" and quotient.inputs["y"] == name and not inverse:
            return quotient.inputs["x"], [quotient]
        product = self._only_reader(quotient) if inverse else None
        if product is None or product.name != "mul":
            return None
        x, y = product.inputs["x"], product.inputs["y"]
        return (y if x == quotient.outputs[0] else x), [quotient, product]

    def _scaled(self, last: GraphOperation, axes: Any) -> tuple[GraphOperation, Operand, Operand, list[GraphOperation]]:
        """What a normalisation is multiplied by, and what is added then, where those are constants along its axes."""
        factors: list[Operand] = [Fraction(1), Fraction(0)]
        parts = []
        for index, name in enumerate(("mul", "add")):
            reader = self._only_reader(last)
            if reader is None or reader.name != name:
                continue
            others = [part for part in reader.inputs.values() if part != last.outputs[0]]
            shape = self._tensors[reader.outputs[0]].shape
            if len(others) != 1 or not self._fits(others[0], shape, axes):
                break
            factors[index] = others[0]
            parts.append(reader)
            last = reader
        return last, factors[0], factors[1], parts

    def _fits(self, operand: Operand, shape: Sequence[int], axes: Any) -> bool:
        if isinstance(operand, Fraction):
            return True
        found = self._tensors[operand].shape if isinstance(operand, str) else ()
        if self._constant(operand) is None or len(found) != len(shape):
            return False
        pairs = enumerate(zip(found, shape, strict=True))
        return all(n in (1, m) and (n == 1 or axis in axes) for axis, (n, m) in pairs)

    def _closed(self, parts: Sequence[GraphOperation], last: GraphOperation) -> bool:
        """Whether nothing but the parts reads what they make, but for the last one's result."""
        own = {id(part) for part in parts}
        inner = [name for part in parts if part is not last for name in part.outputs]
        return all(
            name not in self._outputs and self._tensors[name].quantizer is None
            and all(id(reader) in own for reader in self._readers.get(name, []))
            for name in inner
        )  # fmt: skip


def _names(operand: Operand) -> list[str]:
    if isinstance(operand, tuple):
        return [name for part in operand for name in _names(part)]
    return [operand] if isinstance(operand, str) else []
