"""Operators of the builder that move elements (WebNN 8.9.9, 8.9.19 to 8.9.22, 8.9.36, 8.9.42 to 8.9.55)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cvm.frontends.common.shapes import broadcast
from cvm.frontends.webnn.elementwise import cast_number
from cvm.frontends.webnn.operand import MLOperand, valid_shape
from cvm.frontends.webnn.recorder import RecordedCall, Recorder

__all__ = ["Movement"]

_MOST_PARTS = 8192


class Movement(Recorder):
    """Operators that move elements and do no arithmetic. Every method takes ``label``."""

    def concat(self, inputs: Sequence[MLOperand], axis: int, *, label: str = "") -> MLOperand:
        """Concatenate the inputs along an axis."""
        if not isinstance(inputs, list | tuple):
            inputs = [inputs]  # type: ignore[list-item]
        call = RecordedCall(self, "concat", label, {f"inputs[{i}]": item for i, item in enumerate(inputs)})
        if not 1 <= len(inputs) <= _MOST_PARTS:
            raise call.error("inputs", f"there must be 1 to {_MOST_PARTS} inputs, found {len(inputs)}")
        first = inputs[0]
        axis = call.unsigned("axis", axis, below=first.rank)
        call.same_type(*call.operands)
        total = 0
        for name, item in call.operands.items():
            others = [*item.shape[:axis], *item.shape[axis + 1 :]]
            if item.rank != first.rank or others != [*first.shape[:axis], *first.shape[axis + 1 :]]:
                message = f"has shape {list(item.shape)}, which differs from {list(first.shape)} beside axis {axis}"
                raise call.error("shape", message, name)
            total += item.shape[axis]
        return call.result(first.data_type, (*first.shape[:axis], total, *first.shape[axis + 1 :]), axis=axis)

    def expand(self, input: MLOperand, new_shape: Sequence[int], *, label: str = "") -> MLOperand:
        """The input broadcast to a shape, as NumPy broadcasts."""
        call = RecordedCall(self, "expand", label, {"input": input})
        shape = valid_shape(new_shape, "expand", label)
        if broadcast(input.shape, shape) != shape:
            raise call.error("newShape", f"{list(input.shape)} does not broadcast to {list(shape)}")
        return call.result(input.data_type, shape)

    def reshape(self, input: MLOperand, new_shape: Sequence[int], *, label: str = "") -> MLOperand:
        """The same elements in row-major order under another shape."""
        call = RecordedCall(self, "reshape", label, {"input": input})
        shape = valid_shape(new_shape, "reshape", label)
        if math.prod(shape) != math.prod(input.shape):
            raise call.error(
                "newShape",
                f"{list(shape)} and the shape {list(input.shape)} of the input have different numbers of elements",
            )
        return call.result(input.data_type, shape)

    def reverse(self, input: MLOperand, *, axes: Sequence[int] | None = None, label: str = "") -> MLOperand:
        """The input with the order of elements flipped along axes; along all axes for None."""
        call = RecordedCall(self, "reverse", label, {"input": input})
        return call.result(input.data_type, input.shape, axes=call.axes("axes", axes, input.rank))

    def slice(
        self,
        input: MLOperand,
        starts: Sequence[int],
        sizes: Sequence[int],
        *,
        strides: Sequence[int] | None = None,
        label: str = "",
    ) -> MLOperand:
        """Every strides-th element of the window of ``sizes`` elements from ``starts`` on, for each axis."""
        call = RecordedCall(self, "slice", label, {"input": input})
        first = call.integers("starts", starts, input.rank)
        extents = call.integers("sizes", sizes, input.rank, least=1)
        steps = call.integers("strides", (1,) * input.rank if strides is None else strides, input.rank, least=1)
        for axis, (start, size) in enumerate(zip(first, extents, strict=True)):
            if start + size > input.shape[axis]:
                message = f"start {start} and size {size} reach beyond the extent {input.shape[axis]} of axis {axis}"
                raise call.error("sizes", message)
        if input.rank == 0 and (list(starts) or list(sizes)):
            raise call.error("starts", "a scalar has no axes")
        shape = [-(-size // step) for size, step in zip(extents, steps, strict=True)]
        return call.result(input.data_type, shape, starts=first, sizes=extents, strides=steps)

    def split(
        self, input: MLOperand, splits: int | Sequence[int], *, axis: int = 0, label: str = ""
    ) -> list[MLOperand]:
        """Parts of the input along an axis; ``splits`` is their number, or the extent of each."""
        call = RecordedCall(self, "split", label, {"input": input})
        axis = call.unsigned("axis", axis, below=input.rank)
        extent = input.shape[axis]
        if isinstance(splits, Sequence) and not isinstance(splits, str):
            sizes = call.integers("splits", splits, least=1)
            if sum(sizes) != extent:
                raise call.error("splits", f"the sum of {list(sizes)} is not the extent {extent}")
        else:
            count = call.unsigned("splits", splits, least=1)
            if extent % count:
                raise call.error("splits", f"the extent {extent} cannot be split into {count}")
            sizes = (extent // count,) * count
        shapes = [(input.data_type, (*input.shape[:axis], size, *input.shape[axis + 1 :])) for size in sizes]
        return call.results(shapes, axis=axis, sizes=sizes)

    def tile(self, input: MLOperand, repetitions: Sequence[int], *, label: str = "") -> MLOperand:
        """The whole input repeated along each axis."""
        call = RecordedCall(self, "tile", label, {"input": input})
        times = call.integers("repetitions", repetitions, input.rank, least=1)
        shape = [extent * n for extent, n in zip(input.shape, times, strict=True)]
        return call.result(input.data_type, shape, repetitions=times)

    def transpose(self, input: MLOperand, *, permutation: Sequence[int] | None = None, label: str = "") -> MLOperand:
        """The input with its axes permuted; in reverse order for None."""
        call = RecordedCall(self, "transpose", label, {"input": input})
        order = tuple(reversed(range(input.rank))) if permutation is None else None
        if order is None:
            order = call.axes("permutation", permutation, input.rank)
            if len(order) != input.rank:
                raise call.error("permutation", f"{list(order)} is no permutation of {input.rank} axes")
        return call.result(input.data_type, [input.shape[axis] for axis in order], permutation=order)

    def triangular(self, input: MLOperand, *, upper: bool = True, diagonal: int = 0, label: str = "") -> MLOperand:
        """The upper or lower triangle of the last two axes, 0 elsewhere."""
        call = RecordedCall(self, "triangular", label, {"input": input})
        if isinstance(diagonal, bool) or not isinstance(diagonal, int) or abs(diagonal) >= 2**31:
            raise call.error("diagonal", f"diagonal must be a 32-bit integer, found {diagonal!r}")
        upper = call.flag("upper", upper)
        return call.result(input.data_type, input.shape, upper=upper, diagonal=diagonal)

    def pad(
        self,
        input: MLOperand,
        beginning_padding: Sequence[int],
        ending_padding: Sequence[int],
        *,
        mode: str = "constant",
        value: Any = 0,
        label: str = "",
    ) -> MLOperand:
        """The input with elements added before and after along each axis: a value, the edge, or the reflection."""
        call = RecordedCall(self, "pad", label, {"input": input})
        before = call.integers("beginningPadding", beginning_padding, input.rank)
        after = call.integers("endingPadding", ending_padding, input.rank)
        if input.rank == 0:
            raise call.error("rank", "has rank 0, which must be in 1..8", "input")
        mode = call.word("mode", mode, "constant", "edge", "reflection")
        if mode == "reflection" and any(max(p) >= n for *p, n in zip(before, after, input.shape, strict=True)):
            raise call.error("padding", "a reflection reaches at most to the opposite end: pad by less than the extent")
        shape = [p + n + q for p, n, q in zip(before, input.shape, after, strict=True)]
        number = cast_number(value, input.data_type)
        return call.result(input.data_type, shape, beginning=before, ending=after, mode=mode, value=number)

    # Gathers and scatters

    def gather(self, input: MLOperand, indices: MLOperand, *, axis: int = 0, label: str = "") -> MLOperand:
        """The slices of the input at the indices of an axis."""
        call = RecordedCall(self, "gather", label, {"input": input, "indices": indices})
        axis = call.unsigned("axis", axis, below=input.rank)
        shape = (*input.shape[:axis], *indices.shape, *input.shape[axis + 1 :])
        return call.result(input.data_type, shape, axis=axis)

    def gather_elements(self, input: MLOperand, indices: MLOperand, *, axis: int = 0, label: str = "") -> MLOperand:
        """For each index, the input element at the index's own coordinates, with the coordinate along the axis replaced
        by it.
        """
        call = RecordedCall(self, "gatherElements", label, {"input": input, "indices": indices})
        axis = call.unsigned("axis", axis, below=input.rank)
        self._require_beside(call, input, indices, axis)
        return call.result(input.data_type, indices.shape, axis=axis)

    def gather_nd(self, input: MLOperand, indices: MLOperand, *, label: str = "") -> MLOperand:
        """The slices of the input at coordinates, which are the vectors along the last axis of the indices."""
        call = RecordedCall(self, "gatherND", label, {"input": input, "indices": indices})
        count = indices.shape[-1]
        if count > input.rank:
            raise call.error("indices", f"has coordinates of {count} axes, but the input {input.rank}", "indices")
        return call.result(input.data_type, (*indices.shape[:-1], *input.shape[count:]))

    def scatter_elements(
        self, input: MLOperand, indices: MLOperand, updates: MLOperand, *, axis: int = 0, label: str = ""
    ) -> MLOperand:
        """The input with elements replaced by updates at the indices of an axis."""
        call = RecordedCall(self, "scatterElements", label, {"input": input, "indices": indices, "updates": updates})
        call.same_type("input", "updates")
        axis = call.unsigned("axis", axis, below=input.rank)
        self._require_beside(call, input, indices, axis)
        call.shaped("updates", indices.shape)
        return call.result(input.data_type, input.shape, axis=axis)

    def scatter_nd(self, input: MLOperand, indices: MLOperand, updates: MLOperand, *, label: str = "") -> MLOperand:
        """The input with slices replaced by updates at coordinates."""
        call = RecordedCall(self, "scatterND", label, {"input": input, "indices": indices, "updates": updates})
        call.same_type("input", "updates")
        count = indices.shape[-1]
        if count > input.rank:
            raise call.error("indices", f"has coordinates of {count} axes, but the input {input.rank}", "indices")
        call.shaped("updates", (*indices.shape[:-1], *input.shape[count:]))
        return call.result(input.data_type, input.shape)

    @staticmethod
    def _require_beside(call: RecordedCall, input: MLOperand, indices: MLOperand, axis: int) -> None:
        """Require indices with the input's rank, and with the input's extents along all axes but ``axis``."""
        others = [n for i, n in enumerate(indices.shape) if i != axis]
        if indices.rank != input.rank or others != [n for i, n in enumerate(input.shape) if i != axis]:
            message = f"has shape {list(indices.shape)}, which differs from {list(input.shape)} beside axis {axis}"
            raise call.error("shape", message, "indices")
