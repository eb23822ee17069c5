"""The builder of graphs for front ends whose tensors have data types: it knows scales, zero points and wrapping
integers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cvm.frontends.common.data_types import EVERYTHING, bounds, is_float, unit
from cvm.frontends.common.grids import Grid, rational
from cvm.graph import GraphBuilder, GraphOperation, Operand
from cvm.limits import INT32_MAX
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer

__all__ = ["Emission"]


class Emission(GraphBuilder):
    """A graph of real numbers, in which an integer tensor holds integers.

    A front end may override hooks: which results may differ from the right integer by a multiple of 2^N (`modular`),
    which tensors an operator rounds (`rounded`), and which tensors need a quantiser that the model does not give
    (`left_open`).
    """

    def __init__(self, stage: str, overflow: Literal["wrap", "error"]) -> None:
        super().__init__(stage)
        self._overflow = overflow
        self._parts: dict[tuple[str, int, int, int, bool], str] = {}

    @property
    def overflow(self) -> str:
        """The rule for results of 8 and 16 bits that do not fit: "wrap" or "error"."""
        return self._overflow

    # Decisions of the front end

    def modular(self, data_type: str) -> bool:
        """Whether the current result may be any integer that equals the right one modulo 2^N."""
        return False

    def rounded(self, name: str) -> None:
        """Record a tensor that an operator rounds to integers."""

    def left_open(self, name: str) -> str:
        """Record a real tensor for which calibration must find a quantiser; returns its name."""
        return name

    # Shapes

    def aligned(self, name: str, rank: int) -> str:
        """A tensor reshaped to a higher rank with leading extents of 1, as NumPy broadcasts."""
        shape = self.shape(name)
        missing = max(rank, 1) - len(shape)
        return self.reshape(name, (1,) * missing + shape) if missing else name

    def transposed(self, name: str, axes: Sequence[int]) -> str:
        """A tensor with its axes permuted."""
        return self.emit("transpose", name, axes=tuple(axes))

    def taken(self, name: str, indices: npt.NDArray[np.int64], axis: int) -> str:
        """The elements of a tensor at constant indices along an axis."""
        return self.emit(
            "gather", name, self.constant(np.ascontiguousarray(indices, np.int64), indices.shape), axis=axis
        )

    def part_of_constant(self, name: str, axis: int, begin: int, end: int, drop: bool) -> str | None:
        """A part of a constant along an axis, as a constant; None where the tensor is not a constant.

        ``drop`` removes the axis. The same part of the same constant is added once.
        """
        tensor = self._tensors[name]
        data = tensor.data
        if tensor.kind != "constant" or data is None or isinstance(data.quantizer, LogarithmicQuantizer):
            return None
        key = (name, axis, begin, end, drop)
        if key not in self._parts:
            shape = tensor.shape[:axis] + (() if drop else (end - begin,)) + tensor.shape[axis + 1 :]
            values = np.take(data.values, range(begin, end), axis).reshape(shape)
            quantizer = _part_of_quantizer(data.quantizer, axis, begin, end, drop)
            self._parts[key] = self.constant(values, shape, quantizer)
        return self._parts[key]

    # Integers and real numbers

    def result(self, name: str, data_type: str) -> str:
        """A real result as it is; an integer result wrapped to its data type.

        Results of wide types must be proven to fit the machine. A result of an unsigned type may be negative where the
        front end says that only its low bits count (`modular`).
        """
        if is_float(data_type):
            return name
        lo, hi = bounds(data_type)
        if hi > INT32_MAX or lo < -INT32_MAX:
            lo, hi = -INT32_MAX if self.modular(data_type) else max(lo, -INT32_MAX), min(hi, INT32_MAX)
        return self.emit("wrap", name, quantizer=unit(lo, hi), lo=lo, hi=hi, overflow=self._overflow)

    def clamped(self, name: str, lo: Fraction | int, hi: Fraction | int, integer: bool = True) -> str:
        """A tensor clipped to [lo, hi]; with ``integer`` the result is quantised to integers."""
        least, most = (max(-INT32_MAX, min(INT32_MAX, math.floor(end))) for end in (lo, hi))
        quantizer = unit(least, max(most, least + 1)) if integer else None
        return self.emit("clamp", name, Fraction(lo), Fraction(hi), quantizer=quantizer)

    def selected(self, condition: str, yes: Operand, no: Operand, *, integer: bool = True) -> str:
        """The elements of ``yes`` where the condition holds, else those of ``no``."""
        return self.emit("select", condition, yes, no, quantizer=EVERYTHING if integer else None)

    def nonzero(self, name: str) -> str:
        """Whether each element differs from 0, as a truth value."""
        return self.emit("ne", name, Fraction(0))

    # Scales and zero points

    def numbers(self, values: npt.NDArray[Any], shape: Sequence[int]) -> Operand:
        """Scales or zero points for a tensor of ``shape``: a literal, or a constant with each
        block's number repeated.
        """
        flat = values.ravel()
        if (flat == flat[0]).all():
            return rational(flat[0])
        items = values.reshape((1,) * (len(shape) - values.ndim) + values.shape)
        for axis, (extent, blocks) in enumerate(zip(shape, items.shape, strict=True)):
            if blocks not in (1, extent):
                items = np.repeat(items, extent // blocks, axis)
        return self.constant(items, items.shape)

    def codes(self, name: str, shape: Sequence[int], grid: Grid) -> str:
        """The integers x / scale + zero point of real numbers x that all lie on the grid."""
        steps = self.emit("div", name, self.numbers(grid.scale, shape))
        return self.emit("add", steps, self.numbers(grid.zero_point, shape))

    def quantized(self, name: str, shape: Sequence[int], grid: Grid, rounded: bool) -> str:
        """The integers of real numbers, rounded once: here, or with ``rounded`` where the numbers were computed."""
        quantizer = grid.quantizer()
        if quantizer is not None:
            if not rounded:
                name = self.emit("copy", name, quantizer=quantizer)
                self.rounded(name)
            return self.codes(name, shape, grid)
        lo, hi = bounds(grid.data_type)
        zeros = grid.zero_point
        wide = unit(lo - int(zeros.max()), hi - int(zeros.min()))
        steps = self.emit("div", name, self.numbers(grid.scale, shape), quantizer=wide)
        self.rounded(steps)
        name = self.emit("add", steps, self.numbers(zeros, shape), quantizer=unit(lo, hi))
        self.rounded(name)
        return name

    def dequantized(self, name: str, shape: Sequence[int], grid: Grid) -> str:
        """(q - zero point) * scale, as operations that lowering merges with their neighbours."""
        steps = self.emit("sub", name, self.numbers(grid.zero_point, shape))
        return self.emit("mul", steps, self.numbers(grid.scale, shape))

    def quantize_where_computed(
        self,
        name: str,
        quantizer: LinearQuantizer,
        operations: Sequence[GraphOperation],
        moves: Collection[str] = ("reshape", "transpose"),
    ) -> str | None:
        """Give a quantiser to the tensor that one of ``operations`` computes; returns the tensor that got it, or None.

        If the tensor is a move of another one, that one gets the quantiser: a quantiser for the whole tensor rounds
        alike before and after a move. ``moves`` names the operations that count as moves.
        """
        sources = {item.outputs[0]: item for item in operations}
        if name not in sources:
            return None
        while sources[name].name in moves and sources[name].inputs["input"] in sources:
            name = str(sources[name].inputs["input"])
        if len(sources[name].outputs) > 1 or self._tensors[name].quantizer is not None:
            return None
        self._tensors[name] = replace(self._tensors[name], quantizer=quantizer)
        return name


def _part_of_quantizer(
    quantizer: LinearQuantizer | None, axis: int, begin: int, end: int, drop: bool
) -> LinearQuantizer | None:
    """The quantiser of a part of a stored tensor along an axis."""
    if quantizer is None or quantizer.axis is None:
        return quantizer
    if quantizer.axis != axis:
        return replace(quantizer, axis=quantizer.axis - (1 if drop and quantizer.axis > axis else 0))
    scale, offset = quantizer.scale[begin:end], quantizer.offset[begin:end]
    return replace(quantizer, scale=scale, offset=offset, axis=axis if end - begin > 1 else None)
