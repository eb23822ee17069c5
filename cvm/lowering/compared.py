"""Stored thresholds are replaced by codes of the quantiser of the numbers that they are compared with.

A decision tree that is written as tensor operations looks its thresholds up in a table of floats, and compares them
with features that have codes. ``x < c`` divides the codes of x into those below c and the others, so the first code of
the second part can replace c. Then a comparison compares two integers, whatever float c was.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.graph import REARRANGING, GraphOperation, GraphTensor, Operand, QuantizedGraph, TensorData, makers, readers
from cvm.limits import INT32_MAX
from cvm.quantization import LinearQuantizer, Quantizer
from cvm.quantization.rationals import Rationals
from cvm.records import dataclass

__all__ = ["with_coded_thresholds"]

Integers: TypeAlias = npt.NDArray[np.object_]
"""Python integers, of any size."""

_SCALED = frozenset(("add", "sub", "mul", "div"))
"""Operations that scale or shift all items equally if the second operand is a number."""
_ROUNDED_UP = {("lt", "y"): True, ("ge", "y"): True, ("gt", "y"): False, ("le", "y"): False,
               ("lt", "x"): False, ("ge", "x"): False, ("gt", "x"): True, ("le", "x"): True}  # fmt: skip
"""By comparison and parameter of the threshold c: whether it splits ``q < c`` from ``q >= c``, or ``q <= c`` from
``q > c``. The first split is at the next code up, the second at the next code down."""


@dataclass(frozen=True, slots=True)
class _Split:
    """How a table is compared: the quantiser of the other operand, and whether thresholds are rounded up or down."""

    quantizer: LinearQuantizer
    up: bool


def with_coded_thresholds(graph: QuantizedGraph) -> QuantizedGraph:
    """The graph with codes in each table of floats that is read at computed indices and then only compared.

    The other operand of every comparison must consist of items of tensors with the same quantiser, and all comparisons
    must divide the codes in the same way. Other tables are not changed. No comparison changes its result.
    """
    names = [name for name, tensor in graph.tensors.items() if _holds_floats(tensor)]
    looked_up = _looked_up(graph, set(names))
    if not looked_up:
        return graph
    splits = _Splits(graph)
    changed: dict[str, GraphTensor] = {}
    for name in names:
        split = splits.of(name) if name in looked_up else None
        data = None if split is None else _coded(graph.tensors[name], split)
        if data is not None:
            changed[name] = replace(graph.tensors[name], data=data)
    return replace(graph, tensors=MappingProxyType({**graph.tensors, **changed})) if changed else graph


def _holds_floats(tensor: GraphTensor) -> bool:
    data = tensor.data
    stored = tensor.kind in ("variable", "constant") and tensor.quantizer is None and data is not None
    return stored and data is not None and data.quantizer is None and data.values.dtype.kind == "f"


def _looked_up(graph: QuantizedGraph, names: set[str]) -> set[str]:
    """The names of the tensors that a gather reads at computed indices."""
    stored = {name for name, tensor in graph.tensors.items() if tensor.kind == "constant"}
    return {
        str(operation.inputs["input"])
        for operation in graph.operations
        if operation.name == "gather"
        and operation.inputs["input"] in names
        and operation.inputs["indices"] not in stored
    }


class _Splits:
    """The operations that read each tensor of a graph, and the tensors with which its items are compared."""

    def __init__(self, graph: QuantizedGraph) -> None:
        self._graph = graph
        self._made_by = makers(graph.operations)
        self._readers = readers(graph.operations)

    def of(self, table: str) -> _Split | None:
        """How a table is compared; None if its items are also used otherwise, or if its comparisons differ."""
        found: set[_Split] = set()
        pending = [table]
        while pending:
            name = pending.pop()
            if name in self._graph.outputs or self._graph.tensors[name].quantizer is not None:
                return None
            for operation, parameter in self._readers.get(name, []):
                if operation.name in REARRANGING and parameter in ("input", "x"):
                    pending += operation.outputs
                    continue
                split = self._compared(operation, parameter)
                if split is None:
                    return None
                found.add(split)
        return found.pop() if len(found) == 1 else None

    def _compared(self, operation: GraphOperation, parameter: str) -> _Split | None:
        up = _ROUNDED_UP.get((operation.name, parameter))
        quantizer = self._source(operation.inputs["y" if parameter == "x" else "x"]) if up is not None else None
        return None if quantizer is None or up is None else _Split(quantizer, up)

    def _source(self, operand: Operand) -> LinearQuantizer | None:
        """The quantiser of the tensor that an operand's items come from, scaled and shifted as these items are."""
        factor, shift = Fraction(1), Fraction(0)
        while isinstance(operand, str):
            quantizer = self._graph.tensors[operand].quantizer
            if quantizer is not None:
                return _moved(quantizer, factor, shift)
            maker = self._made_by.get(operand)
            by = None if maker is None else maker.inputs.get("y")
            if maker is None or not (maker.name in REARRANGING or (maker.name in _SCALED and isinstance(by, Fraction))):
                return None
            if isinstance(by, Fraction):
                if maker.name in ("mul", "div") and by <= 0:
                    return None
                shift += factor * by * {"add": 1, "sub": -1}.get(maker.name, 0)
                factor *= {"mul": by, "div": 1 / by}[maker.name] if maker.name in ("mul", "div") else 1
            operand = maker.inputs["x" if "x" in maker.inputs else "input"]
        return None


def _moved(quantizer: Quantizer, factor: Fraction, shift: Fraction) -> LinearQuantizer | None:
    """The quantiser of ``factor * x + shift``, for an x whose quantiser has one scale and offset; None for others."""
    if not isinstance(quantizer, LinearQuantizer) or not quantizer.per_tensor:
        return None
    scale, offset = quantizer.scale[0] * factor, quantizer.offset[0] * factor + shift
    return replace(quantizer, scale=(scale,), offset=(offset,))


def _coded(tensor: GraphTensor, split: _Split) -> TensorData | None:
    """Codes that divide the quantiser's codes as the numbers of a table do; None if that is not proven.

    One more code at either end is used for thresholds that lie beyond all codes.
    """
    assert tensor.data is not None
    values, quantizer = tensor.data.values, split.quantizer
    if not values.size or not np.isfinite(values).all() or max(-quantizer.lo, quantizer.hi) >= INT32_MAX:
        return None
    lo, hi = (quantizer.lo, quantizer.hi + 1) if split.up else (quantizer.lo - 1, quantizer.hi)
    numerators, denominator = _in_codes(values, quantizer)
    codes = -(-numerators // denominator) if split.up else numerators // denominator
    codes = np.minimum(np.maximum(codes, lo), hi)
    if not _splits_alike(codes, numerators, denominator, (lo, hi), split.up):
        return None
    grid = LinearQuantizer(quantizer.scale, quantizer.offset, quantizer.lo - 1, quantizer.hi + 1)
    return TensorData(codes.astype(np.int32), grid)


def _in_codes(values: npt.NDArray[Any], quantizer: LinearQuantizer) -> tuple[Integers, int]:
    """The numbers in units of codes, ``(c - offset) / scale``, as integers over one positive denominator."""
    numbers = Rationals.of_floats(values)
    scale, offset = quantizer.scale[0], quantizer.offset[0]
    above = np.asarray(numbers.numerators, dtype=object) * offset.denominator - offset.numerator * numbers.denominator
    return above * scale.denominator, numbers.denominator * offset.denominator * scale.numerator


def _splits_alike(codes: Integers, numerators: Integers, denominator: int, ends: tuple[int, int], up: bool) -> bool:
    """Whether each code k divides the codes of the quantiser as its number c does.

    If numbers are rounded up, all codes below k must be below c, and k itself, if it is a code, must not be below c. If
    they are rounded down, k and all codes below it must be at most c, and k + 1 must be above c.
    """
    lo, hi = ends
    below = (codes - 1 if up else codes) * denominator
    above = (codes if up else codes + 1) * denominator
    left = (below < numerators) if up else (below <= numerators)
    right = (above >= numerators) if up else (above > numerators)
    return bool(((codes == lo) | left.astype(bool)).all() and ((codes == hi) | right.astype(bool)).all())
