"""Recognition of layer_normalization: (x - mean) / sqrt(variance + epsilon), optionally times a constant and plus
another; and of rms_normalization, which is the same with a mean of 0.

Documents compute it in many orders: the variance as the mean of (x - mean)^2, or as the mean of x^2 minus the square of
the mean, clipped at 0; the scale times the inverse root first; the mean as a sum times 1 / n. Therefore the operations
around a root are read as polynomials in x, its mean m, the mean q of its squares, the inverse r of the root and
constants. The variance must be q - m^2, and the result r (x - m) scale + offset; for the RMS normalisation q, and
r x scale + offset.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from cvm.frontends.common.recognition.polynomials import Monomial, Polynomial, symbol
from cvm.frontends.common.recognition.regions import Regions, Whole
from cvm.graph import GraphOperation, Operand, names_in

__all__ = ["normalization_around"]

_X, _MEAN, _SQUARES, _INVERSE = " x", " m", " q", " r"
"""Symbols of the polynomials; no tensor has such a name."""
_VARIANCE = symbol(_SQUARES) + (symbol(_MEAN) * symbol(_MEAN)).scaled(Fraction(-1))
_STATISTICS = {"layer_normalization": _VARIANCE, "rms_normalization": symbol(_SQUARES)}
"""What stands below the root besides epsilon, by the operation that it belongs to."""
_REDUCTIONS = ("mean_reduce", "sum_reduce")
_DEPTH = 24
"""The most operations in a row that are read around a root."""


def normalization_around(regions: Regions, root: GraphOperation) -> Whole | None:
    """The normalisation that a root is part of, or None."""
    exponent = {"sqrt": Fraction(1, 2), "rsqrt": Fraction(-1, 2)}.get(root.name)
    if exponent is None:
        exponent = regions.number(root.inputs["y"])
    reduction = _reduction_behind(regions, root.inputs["x"])
    if exponent not in (Fraction(1, 2), Fraction(-1, 2)) or reduction is None:
        return None
    for name in _STATISTICS:
        for source in _sources(regions, reduction):
            found = _Attempt(regions, source, reduction, root, -1 if exponent > 0 else 1).whole(name)
            if found is not None:
                return found
    return None


def _reduction_behind(regions: Regions, operand: Operand) -> GraphOperation | None:
    """The reduction that the operand of a root is computed from by sums, products and reshapes, or None."""
    pending, seen = [operand], 0
    while pending and seen < _DEPTH:
        maker = regions.maker(pending.pop(0), "add", "sub", "mul", "div", "max", "reshape", *_REDUCTIONS)
        seen += 1
        if maker is None:
            continue
        if maker.name in _REDUCTIONS:
            return maker
        pending += [item for item in maker.inputs.values() if isinstance(item, str) and not regions.is_constant(item)]
    return None


def _sources(regions: Regions, reduction: GraphOperation) -> Iterator[str]:
    """The tensors that may be x in a mean of squares: the squared tensor, or the tensor a mean was subtracted from."""
    squares = regions.maker(reduction.inputs["input"], "mul")
    candidates = list(squares.inputs.values()) if squares is not None else []
    for operand in candidates:
        centred = regions.maker(operand, "sub")
        if centred is not None:
            candidates += centred.inputs.values()
    if squares is None:
        candidates.append(reduction.inputs["input"])
    shape = regions.shape(str(reduction.inputs["input"]))
    return (
        name
        for name in dict.fromkeys(item for item in candidates if isinstance(item, str))
        if regions.shape(name) == shape and not regions.is_constant(name)
    )


class _Attempt:
    """One attempt with a root and a tensor x: the polynomials of the tensors between them and after the root."""

    def __init__(
        self, regions: Regions, source: str, reduction: GraphOperation, root: GraphOperation, sign: int
    ) -> None:
        self._regions, self._source, self._root, self._sign = regions, source, root, sign
        self._axes = reduction.attributes["axes"]
        self._shape = regions.shape(source)
        assert isinstance(self._axes, tuple)
        self._kept = tuple(1 if axis in self._axes else n for axis, n in enumerate(self._shape))
        self._count = math.prod(self._shape) // math.prod(self._kept)
        self._first = regions.position(source)
        self._values: dict[str, Polynomial | None] = {source: symbol(_X)}

    def whole(self, name: str) -> Whole | None:
        """The normalisation of this name with all following operations that still belong to it, or None."""
        epsilon = self._epsilon(name) if self._count > 1 else None
        if epsilon is None:
            return None
        self._values[self._root.outputs[0]] = symbol(_INVERSE, self._sign)
        for last, value in reversed(self._behind()):
            form = self._form(value, name) if self._regions.shape(last.outputs[0]) == self._shape else None
            parts = self._parts(last)
            if form is not None and self._regions.closed(parts, last):
                inputs: dict[str, Operand] = {"input": self._source, "scale": form[0], "offset": form[1]}
                attributes = {"axes": self._axes, "epsilon": epsilon}
                return Whole(replace(last, name=name, inputs=inputs, attributes=attributes), last, parts)
        return None

    def _epsilon(self, name: str) -> Fraction | None:
        """The number that is added to the statistic below the root; None for another statistic or no such number."""
        if name == "rms_normalization" and self._regions.maker(self._source, "sub") is not None:
            return None  # a layer normalisation that is not whole, such as one whose mean is read elsewhere
        inside = self._polynomial(self._root.inputs["x"])
        if inside is None:
            return None
        rest = inside.replaced(self._regions.number) + _STATISTICS[name].scaled(Fraction(-1))
        return rest.terms[()] if set(rest.terms) == {()} and rest.terms[()] > 0 else None

    def _behind(self) -> list[tuple[GraphOperation, Polynomial]]:
        """The operations after the root whose results are polynomials and not quantised, in order."""
        found: dict[int, tuple[GraphOperation, Polynomial]] = {}
        pending = [self._root.outputs[0]]
        while pending and len(found) < _DEPTH:
            for reader in self._regions.readers(pending.pop(0)):
                number, name = self._regions.number_of(reader), reader.outputs[0]
                value = self._made(reader, _DEPTH) if number not in found else None
                if value is not None:
                    found[number] = reader, value
                    if self._regions.maker(name) is not None:
                        self._values[name] = value
                        pending.append(name)
        return [found[number] for number in sorted(found)]

    def _parts(self, last: GraphOperation) -> list[GraphOperation]:
        """All operations between x and the result of ``last``."""
        found: dict[int, GraphOperation] = {}
        pending = [last]
        while pending:
            operation = pending.pop()
            if id(operation) in found:
                continue
            found[id(operation)] = operation
            for name in {name for operand in operation.inputs.values() for name in names_in(operand)}:
                maker = self._regions.maker(name) if name != self._source else None
                if maker is not None and not self._regions.is_constant(name):
                    pending.append(maker)
        return list(found.values())

    # Polynomials

    def _polynomial(self, operand: Operand, depth: int = _DEPTH) -> Polynomial | None:
        """The polynomial that an operand is, or None."""
        if isinstance(operand, Fraction):
            return symbol("").scaled(operand)
        if not isinstance(operand, str):
            return None
        if operand not in self._values:
            if self._regions.is_constant(operand):
                return symbol(operand)
            maker = self._regions.maker(operand)
            late = maker is not None and self._regions.number_of(maker) > self._first and depth > 0
            found = self._made(maker, depth - 1) if maker is not None and late else None
            self._values[operand] = found if found is not None and found.fits() else None
        return self._values[operand]

    def _made(self, maker: GraphOperation, depth: int) -> Polynomial | None:
        if maker.name in ("reshape", *_REDUCTIONS):
            source = maker.inputs["input"]
            value = self._polynomial(source, depth)
            if value is None or not isinstance(source, str):
                return None
            if maker.name == "reshape":
                small = math.prod(self._regions.shape(source)) == math.prod(self._kept)
                return value if small or self._regions.shape(maker.outputs[0]) == self._shape else None
            return self._reduced(maker, value, source)
        if maker.name not in ("add", "sub", "mul", "div", "max", "rcp"):
            return None
        x = self._polynomial(maker.inputs["x"], depth)
        if x is None or not self._in_place(maker):
            return None
        if maker.name == "rcp":
            return x.raised(-1)
        y = self._polynomial(maker.inputs["y"], depth)
        return None if y is None else self._of_two(maker.name, x, y)

    def _of_two(self, name: str, x: Polynomial, y: Polynomial) -> Polynomial | None:
        if name == "mul":
            return x * y
        if name == "div":
            inverse = y.raised(-1)
            return None if inverse is None else x * inverse
        if name == "max":
            (zero, other) = (x, y) if not x.replaced(self._regions.number).terms else (y, x)
            none = not zero.replaced(self._regions.number).terms
            return other if none and other.replaced(self._regions.number) == _VARIANCE else None
        return x + y.scaled(Fraction(1 if name == "add" else -1))

    def _in_place(self, operation: GraphOperation) -> bool:
        """Whether the operands broadcast element by element as the normalisation does: a reduced tensor that meets x
        has kept its axes, a constant runs along these axes alone, and a single number fits everywhere.
        """
        result = self._regions.shape(operation.outputs[0])
        for operand in operation.inputs.values():
            if not isinstance(operand, str) or self._regions.number(operand) is not None:
                continue
            shape = self._regions.shape(operand)
            if self._regions.is_constant(operand):
                if len(shape) != len(self._shape) or not all(map(self._along, range(len(shape)), shape)):
                    return False
            elif result == self._shape:
                if shape not in (self._shape, self._kept):
                    return False
            elif math.prod(result) != math.prod(self._kept) or math.prod(shape) != math.prod(result):
                return False
        return True

    def _along(self, axis: int, extent: int) -> bool:
        assert isinstance(self._axes, tuple)
        return extent == 1 or (axis in self._axes and extent == self._shape[axis])

    def _reduced(self, maker: GraphOperation, value: Polynomial, source: str) -> Polynomial | None:
        """The mean, or the sum, of a polynomial in x over the axes, or None."""
        if self._regions.shape(source) != self._shape or maker.attributes["axes"] != self._axes:
            return None
        total = Polynomial({})
        for monomial, factor in value.replaced(self._regions.number).terms.items():
            counts = dict(monomial)
            mean = {0: "", 1: _MEAN, 2: _SQUARES}.get(counts.pop(_X, 0))
            if mean is None or not set(counts) <= {_MEAN, _SQUARES}:
                return None
            total += Polynomial({tuple(sorted(counts.items())): factor}) * symbol(mean)
        whole = maker.name == "sum_reduce" and not maker.attributes["normalize"]
        return total.scaled(Fraction(self._count)) if whole else total

    # The result

    def _form(self, value: Polynomial, name: str) -> tuple[Operand, Operand] | None:
        """Scale and offset of a polynomial r (x - m) scale + offset; None for any other polynomial. Without the mean
        for an RMS normalisation.
        """
        centred = name == "layer_normalization"
        return self._split(value, centred) or self._split(value.replaced(self._regions.number), centred)

    def _split(self, value: Polynomial, centred: bool) -> tuple[Operand, Operand] | None:
        rising: dict[Monomial, Fraction] = {}
        falling: dict[Monomial, Fraction] = {}
        others: dict[Monomial, Fraction] = {}
        for monomial, factor in value.terms.items():
            counts = dict(monomial)
            kind = tuple(counts.pop(name, 0) for name in (_X, _MEAN, _SQUARES, _INVERSE))
            rest = tuple(sorted(counts.items()))
            if kind == (1, 0, 0, 1):
                rising[rest] = factor
            elif kind == (0, 1, 0, 1):
                falling[rest] = -factor
            elif kind == (0, 0, 0, 0):
                others[rest] = factor
            else:
                return None
        scale, offset = _operand(rising), _operand(others)
        if not rising or falling != (rising if centred else {}) or scale is None or offset is None:
            return None
        return scale, offset


def _operand(terms: dict[Monomial, Fraction]) -> Operand | None:
    """The operand for a polynomial that is a constant of the graph or a number; None for any other polynomial."""
    if not terms:
        return Fraction(0)
    ((monomial, factor), *more) = terms.items()
    if more:
        return None
    if not monomial:
        return factor
    return monomial[0][0] if len(monomial) == 1 and monomial[0][1] == 1 and factor == 1 else None
