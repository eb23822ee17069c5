"""The axis that a per-channel quantiser belongs to.

A quantization file of the Khronos tools gives a list of scales, but not the axis that they belong to. It is the axis
whose extent is the length of the list. Where several axes have that extent, it is the one that becomes the output
channel of an operation that uses the tensor, such as axis 0 of a filter of conv. That operation is found by following
the tensor through operations that only move elements or compute element by element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from cvm.frontends.nnef.faults import Placed, invalid, too_large
from cvm.frontends.nnef.values import FlatGraph, FlatOperation, FlatTensor, Value

__all__ = ["ChannelAxes"]

Origins: TypeAlias = "tuple[int | None, ...]"
"""For each axis of a tensor, the axis of the tensor in question that it comes from; None where it comes from none."""

Shape: TypeAlias = "tuple[int, ...]"


_MOST_STEPS = 5_000_000
"""The most uses of tensors that are followed for the lists of one file; real networks need a few per list."""


class ChannelAxes:
    """Finds the axes of lists of scales for the tensors of one graph."""

    def __init__(self, graph: FlatGraph) -> None:
        self._graph = graph
        self._uses: dict[FlatTensor, list[tuple[FlatOperation, str]]] = {}
        self._steps = _MOST_STEPS

    def axis(self, tensor: FlatTensor, length: int, at: Placed | None = None) -> int:
        """The axis of ``tensor`` that a list of ``length`` items belongs to.

        Raises `Invalid` where no axis has that extent, or where several have it and the uses of the tensor do not
        decide; `LimitExceeded` where the uses of all tensors together are too many to follow.
        """
        shape = tensor.shape or ()
        candidates = [axis for axis, extent in enumerate(shape) if extent == length]
        if not candidates:
            message = f"a list of {length} items, but no axis of {tensor.name!r} has that extent; its shape is"
            raise invalid("quantization.channels", f"{message} {list(shape)}", at)
        if len(candidates) == 1:
            return candidates[0]
        chosen: dict[int, FlatOperation] = {}
        for axis, operation in self._channels(tensor, at):
            if axis in candidates:
                chosen.setdefault(axis, operation)
        which = " or ".join(map(str, candidates))
        message = f"a list of {length} items may belong to axis {which} of {tensor.name!r}, of shape {list(shape)}"
        if not chosen:
            raise invalid("quantization.channels", f"{message}; no use of the tensor makes one its channels", at)
        if len(chosen) > 1:
            reasons = [f"{used.name} at line {used.location.line} takes axis {axis}" for axis, used in chosen.items()]
            raise invalid("quantization.channels", f"{message}: {', but '.join(reasons)}", at)
        return next(iter(chosen))

    def _channels(self, tensor: FlatTensor, at: Placed | None) -> Iterator[tuple[int, FlatOperation]]:
        """The axes of ``tensor`` that operations use as channels, each with the operation."""
        start: Origins = tuple(range(len(tensor.shape or ())))
        pending, seen = [(tensor, start)], {(tensor, start)}
        while pending:
            current, origins = pending.pop()
            for operation, parameter in self._used_by(current):
                self._steps -= 1
                if self._steps < 0:
                    raise too_large("expansion", f"more than {_MOST_STEPS} uses of tensors are followed", at)
                channel = _channel(operation, parameter, tensor)
                if channel is not None and 0 <= channel < len(origins) and origins[channel] is not None:
                    yield origins[channel] or 0, operation
                for step in _followed(operation, parameter, current, origins):
                    if step not in seen and any(axis is not None for axis in step[1]):
                        seen.add(step)
                        pending.append(step)

    def _used_by(self, tensor: FlatTensor) -> list[tuple[FlatOperation, str]]:
        if not self._uses:
            for operation in self._graph.operations:
                for parameter, value in operation.arguments.items():
                    for used in _tensors(value):
                        self._uses.setdefault(used, []).append((operation, parameter))
        return self._uses.get(tensor, [])


def _tensors(value: Value) -> Iterator[FlatTensor]:
    if isinstance(value, FlatTensor):
        yield value
    elif isinstance(value, tuple) and value and isinstance(value[0], FlatTensor | tuple):
        for item in value:
            yield from _tensors(item)


# Operations that distinguish channels


def _depthwise(operation: FlatOperation) -> bool:
    """Whether a convolution is depthwise: one group for each input channel."""
    image, groups = operation.arguments["input"], operation.arguments["groups"]
    return groups == 0 or (isinstance(image, FlatTensor) and bool(image.shape) and groups == _extent(image, 1))


def _extent(tensor: FlatTensor, axis: int) -> int | None:
    return tensor.shape[axis] if tensor.shape is not None and axis < len(tensor.shape) else None


def _transposed(operation: FlatOperation, parameter: str, tensor: FlatTensor) -> int | None:
    """The axis of a filter of deconv that holds the output channels."""
    kernel = operation.arguments[parameter]
    groups = operation.arguments["groups"]
    if isinstance(kernel, FlatTensor) and _extent(kernel, 1) == 1 and groups != 1:
        return 0
    return 1 if groups == 1 else None


def _product(operation: FlatOperation, parameter: str, tensor: FlatTensor) -> int | None:
    """The axis of an operand of matmul that becomes columns of the result; rows, for stored data on the left."""
    operand = operation.arguments[parameter]
    if not isinstance(operand, FlatTensor) or operand.shape is None:
        return None
    rank = len(operand.shape)
    if parameter == "B":
        return rank - 2 if operation.arguments["transposeB"] else rank - 1
    if tensor.operation not in ("variable", "constant"):
        return None
    return rank - 1 if operation.arguments["transposeA"] else rank - 2


def _image(operation: FlatOperation, parameter: str, tensor: FlatTensor) -> int | None:
    """The channel axis of the input of a convolution, if it is depthwise: its output channels are the input's."""
    return 1 if _depthwise(operation) else None


def _always(axis: int) -> Callable[[FlatOperation, str, FlatTensor], int | None]:
    return lambda operation, parameter, tensor: axis


_FIRST, _SECOND = _always(0), _always(1)

_CHANNELS: Mapping[tuple[str, str], Callable[[FlatOperation, str, FlatTensor], int | None]] = MappingProxyType(
    {
        ("conv", "input"): _image,
        ("conv", "filter"): _FIRST,
        ("conv", "bias"): _SECOND,
        ("deconv", "input"): _image,
        ("deconv", "filter"): _transposed,
        ("deconv", "bias"): _SECOND,
        ("separable_conv", "plane_filter"): _FIRST,
        ("separable_conv", "point_filter"): _FIRST,
        ("separable_conv", "bias"): _SECOND,
        ("separable_deconv", "plane_filter"): _FIRST,
        ("separable_deconv", "point_filter"): _transposed,
        ("separable_deconv", "bias"): _SECOND,
        ("linear", "filter"): _FIRST,
        ("linear", "bias"): _SECOND,
        ("matmul", "A"): _product,
        ("matmul", "B"): _product,
        ("prelu", "alpha"): _SECOND,
    }
    | {("batch_normalization", name): _SECOND for name in ("input", "mean", "variance", "offset", "scale")}
    | {
        (name, "input"): _SECOND
        for name in (
            *("max_pool", "avg_pool", "rms_pool", "max_pool_with_index", "box", "debox", "argmax_pool"),
            *("nearest_downsample", "area_downsample", "nearest_upsample", "multilinear_upsample"),
            *("avg_roi_pool", "max_roi_pool", "roi_resample", "avg_roi_align", "max_roi_align"),
        )
    }
)
"""For an operation and a parameter, the function that gives the axis that is, or becomes, the
channels of the result.
"""


def _channel(operation: FlatOperation, parameter: str, tensor: FlatTensor) -> int | None:
    found = _CHANNELS.get((operation.name, parameter))
    return None if found is None else found(operation, parameter, tensor)


# Operations that the tensor is followed through


def _followed(
    operation: FlatOperation, parameter: str, tensor: FlatTensor, origins: Origins
) -> list[tuple[FlatTensor, Origins]]:
    """The results of an operation that hold elements of ``tensor``, and the origins of their axes."""
    results = [result for value in operation.results for result in _tensors(value)]
    old = tensor.shape or ()
    name = operation.name
    steps: list[tuple[FlatTensor, Origins]] = []
    for result in results:
        new = result.shape or ()
        if name == "transpose":
            axes = operation.arguments["axes"]
            assert isinstance(axes, tuple)
            moved = (*(origins[int(axis)] for axis in axes), *origins[len(axes) :])  # type: ignore[arg-type]
            steps.append((result, moved))
        elif name in _RESHAPING:
            steps.append((result, _reshaped(old, new, origins)))
        elif name in _ITEMWISE:
            kept = (origins[axis] if axis < len(old) and old[axis] == new[axis] else None for axis in range(len(new)))
            steps.append((result, tuple(kept)))
    return steps


_RESHAPING = frozenset({"reshape", "squeeze", "unsqueeze", "stack", "unstack"})

_ITEMWISE = frozenset(
    {
        *("copy", "copy_n", "pad", "slice", "split", "concat", "tile", "cast", "select", "add_n", "clamp", "update"),
        *("neg", "rcp", "exp", "log", "abs", "sign", "floor", "ceil", "round", "sqr", "sqrt", "rsqr", "rsqrt", "log2"),
        *("add", "sub", "mul", "div", "pow", "min", "max", "relu", "prelu", "leaky_relu", "elu", "sigmoid", "tanh"),
        *("softplus", "selu", "gelu", "silu", "softabs", "linear_quantize", "logarithmic_quantize"),
        *("min_max_linear_quantize", "zero_point_linear_quantize"),
    }
)
"""Operations whose result has an element for each element of the tensor; an axis whose extent
changes is not followed.
"""


def _reshaped(old: Shape, new: Shape, origins: Origins) -> Origins:
    """The origins of the axes that survive a change of shape: those with the same extent and the same volume before
    them.
    """
    axes = {(math.prod(old[:axis]), extent): origins[axis] for axis, extent in enumerate(old) if extent > 1}
    return tuple(axes.get((math.prod(new[:axis]), extent)) if extent > 1 else None for axis, extent in enumerate(new))
