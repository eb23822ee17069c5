"""The common parameters of sliding-window operations: NNEF 1.0.1 section 4.3."""

from __future__ import annotations

from collections.abc import Sequence

from cvm.graph.shapes.shape_call import Shape, ShapeCall
from cvm.records import dataclass

__all__ = ["BORDERS", "FILTER_BORDERS", "Window"]

FILTER_BORDERS = ("constant", "replicate", "reflect", "reflect-even")
BORDERS = ("ignore", *FILTER_BORDERS)


@dataclass(frozen=True, slots=True)
class Window:
    """A window: kernel size, padding (None: automatic), stride and dilation for each dimension that the window slides
    along.
    """

    call: ShapeCall
    size: Sequence[int]
    padding: Sequence[tuple[int, int]] | None
    stride: Sequence[int]
    dilation: Sequence[int]
    border: str

    @staticmethod
    def of(call: ShapeCall, size: Sequence[int], borders: Sequence[str] = BORDERS) -> Window:
        """The window of a call with the kernel ``size``; each further list is empty or has one item per dimension."""
        if any(extent < 1 for extent in size):
            raise call.invalid("size", f"items of size must be positive, found {list(size)}")
        border = call.one_of("border", *borders)
        rank = len(size)
        lists = {}
        for name in ("stride", "dilation"):
            items = call.positive(name)
            if len(items) not in (0, rank):
                raise call.invalid(name, f"{name} must have {rank} items or none, found {len(items)}")
            lists[name] = items or (1,) * rank
        padding = call.attributes["padding"]
        if len(padding) not in (0, rank):
            raise call.invalid("padding", f"padding must have {rank} items or none, found {len(padding)}")
        return Window(call, size, padding if rank and padding else None, lists["stride"], lists["dilation"], border)

    def dilated(self, dimension: int) -> int:
        """The extent that the dilated kernel covers in a dimension: (size - 1) * dilation + 1."""
        return (self.size[dimension] - 1) * self.dilation[dimension] + 1

    def down(self, extents: Sequence[int]) -> Shape:
        """The output extents of a window that slides over an input of these extents."""
        return tuple(self._down(dimension, extent) for dimension, extent in enumerate(extents))

    def _down(self, dimension: int, extent: int) -> int:
        stride, covered = self.stride[dimension], self.dilated(dimension)
        if self.padding is None:
            result = -(-extent // stride)
            total = (result - 1) * stride + covered - extent
            before, after = total // 2, total - total // 2
        else:
            before, after = self.padding[dimension]
            room = before + extent + after - covered
            if room < 0:
                message = f"a window of {covered} is larger than the padded extent {before + extent + after}"
                raise self.call.conflict("window", f"{message} in dimension {dimension} of the window")
            result = room // stride + 1
        last = (result - 1) * stride + covered - 1 - before
        reach = {"reflect": extent - 1, "reflect-even": extent}.get(self.border)
        if reach is not None and max(before, last - extent + 1) > reach:
            message = f"border {self.border!r} cannot be reflected beyond an extent of {extent}"
            raise self.call.conflict("border", message)
        return result

    def up(self, extents: Sequence[int], reference: Sequence[int]) -> Shape:
        """Up-scaled extents of down-scaled ones; ``reference`` is the extents asked for, or empty.

        With automatic padding the extents are ``x * stride``, whose down-scaling gives x again.
        """
        if reference:
            plain = Window(self.call, self.size, self.padding, self.stride, self.dilation, "constant")
            if any(extent < 1 for extent in reference) or plain.down(reference) != tuple(extents):
                message = f"output_shape {list(reference)} does not down-scale to {list(extents)}"
                raise self.call.conflict("output_shape", message)
            return tuple(reference)
        result = []
        for dimension, extent in enumerate(extents):
            stride = self.stride[dimension]
            if self.padding is None:
                result.append(extent * stride)
            else:
                result.append((extent - 1) * stride + self.dilated(dimension) - sum(self.padding[dimension]))
        return tuple(result)
