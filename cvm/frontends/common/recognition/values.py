"""The numbers that the elements of a tensor can be, where they are few: masks, and what masks are computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from cvm.graph import REARRANGING, GraphOperation, GraphTensor, Operand, makers
from cvm.quantization import LinearQuantizer, Quantizer

__all__ = ["Values"]

_MOST = 16
"""The most numbers that are followed."""
_DEPTH = 50
"""The most operations in a row that are followed."""
_TRUTH = frozenset({"lt", "gt", "le", "ge", "eq", "ne", "and", "or", "not"})
_UNARY: Mapping[str, Callable[[Fraction], Fraction]] = {"neg": lambda x: -x, "abs": abs, "wrap": lambda x: x}
_BINARY: Mapping[str, Callable[[Fraction, Fraction], Fraction | None]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y if y else None,
    "min": min,
    "max": max,
}

Numbers = frozenset[Fraction]


class Values:
    """For each tensor of a graph, the numbers that its elements can be; None where they are many or not known."""

    def __init__(self, tensors: Mapping[str, GraphTensor], operations: Sequence[GraphOperation]) -> None:
        self._tensors, self._makers = tensors, makers(operations)
        self._found: dict[str, Numbers | None] = {}

    def of(self, operand: Operand, depth: int = _DEPTH) -> Numbers | None:
        """The numbers of an operand."""
        if isinstance(operand, Fraction | bool):
            return frozenset({Fraction(operand)})
        if not isinstance(operand, str) or not depth:
            return None
        if operand not in self._found:
            self._found[operand] = self._of(operand, depth - 1)
        return self._found[operand]

    def _of(self, name: str, depth: int) -> Numbers | None:
        tensor = self._tensors[name]
        if tensor.kind == "constant":
            return _contents(tensor)
        maker = self._makers.get(name)
        found = None if maker is None or tensor.kind != "computed" else self._made(maker, depth)
        if tensor.quantizer is None:
            return found
        whole = None if found is None else _on_grid(found, tensor.quantizer)
        return _codes(tensor.quantizer) if whole is None else whole

    def _made(self, maker: GraphOperation, depth: int) -> Numbers | None:
        if maker.name in _TRUTH:
            return frozenset({Fraction(0), Fraction(1)})
        operands = list(maker.inputs.values())
        if maker.name in REARRANGING:
            return self.of(operands[0], depth)
        if maker.name == "concat":
            parts = operands[0] if isinstance(operands[0], tuple) else (operands[0],)
            return self._union(parts, depth)
        if maker.name == "select":
            return self._union((maker.inputs["true_value"], maker.inputs["false_value"]), depth)
        if maker.name == "clamp":
            return self._combined(lambda x, a, b: max(a, min(x, b)), operands, depth)
        if maker.name in _UNARY:
            return self._combined(_UNARY[maker.name], operands[:1], depth)
        return self._combined(_BINARY[maker.name], operands, depth) if maker.name in _BINARY else None

    def _union(self, operands: Iterable[Operand], depth: int) -> Numbers | None:
        found: set[Fraction] = set()
        for operand in operands:
            part = self.of(operand, depth)
            if part is None:
                return None
            found |= part
        return frozenset(found) if len(found) <= _MOST else None

    def _combined(
        self, function: Callable[..., Fraction | None], operands: Sequence[Operand], depth: int
    ) -> Numbers | None:
        """What a function makes of all combinations of the numbers of its operands."""
        rows: list[tuple[Fraction, ...]] = [()]
        for operand in operands:
            part = self.of(operand, depth)
            if part is None or len(rows) * len(part) > _MOST * _MOST:
                return None
            rows = [(*row, item) for row in rows for item in part]
        found = {function(*row) for row in rows}
        return None if None in found or len(found) > _MOST else frozenset(item for item in found if item is not None)


def _contents(tensor: GraphTensor) -> Numbers | None:
    if tensor.data is None:
        return None
    items, quantizer = np.unique(tensor.data.values), tensor.data.quantizer
    if items.size > _MOST:
        return None
    numbers = [Fraction(item) for item in items.tolist()]
    if quantizer is None:
        return frozenset(numbers)
    if not isinstance(quantizer, LinearQuantizer) or not quantizer.per_tensor:
        return None
    return frozenset(quantizer.offset[0] + quantizer.scale[0] * item for item in numbers)


def _codes(quantizer: Quantizer) -> Numbers | None:
    """The numbers that a quantiser has codes for."""
    if not isinstance(quantizer, LinearQuantizer) or not quantizer.per_tensor or quantizer.hi - quantizer.lo >= _MOST:
        return None
    scale, offset = quantizer.scale[0], quantizer.offset[0]
    return frozenset(offset + scale * code for code in range(quantizer.lo, quantizer.hi + 1))


def _on_grid(numbers: Numbers, quantizer: Quantizer) -> Numbers | None:
    """The numbers, if a quantiser has a code for each of them, so that it does not round them; else None."""
    if not isinstance(quantizer, LinearQuantizer) or not quantizer.per_tensor:
        return None
    codes = [(item - quantizer.offset[0]) / quantizer.scale[0] for item in numbers]
    fits = all(code.denominator == 1 and quantizer.lo <= code <= quantizer.hi for code in codes)
    return numbers if fits else None
