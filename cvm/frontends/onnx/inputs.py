"""The shapes of the inputs of a model: as declared, as the caller asks, or 1 for a leading extent that is left open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Literal

from cvm.errors import Invalid, Location, Unsupported
from cvm.frontends.onnx.model import Dimension, Model, Shape, Value
from cvm.limits import Limits, elements
from cvm.records import dataclass

__all__ = ["Settings", "shapes_of_inputs"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The choices of the caller for a model: shapes and promised ranges of inputs, and the rule for integer overflow.

    With ``floats``, real inputs and outputs need no QuantizeLinear: such a graph is for calibration. ``states`` maps
    each input that is state to the output that it becomes after a run. ``outputs`` are those that the graph has; if it
    is empty, they are all of the model.
    """

    shapes: Mapping[str, Shape] = field(default_factory=lambda: MappingProxyType({}))
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=lambda: MappingProxyType({}))
    overflow: Literal["wrap", "error"] = "wrap"
    floats: bool = False
    states: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    outputs: tuple[str, ...] = ()


def shapes_of_inputs(model: Model, settings: Settings, limits: Limits) -> dict[str, Shape]:
    """The shape of every input. A named extent has one size everywhere; a leading extent that is open is 1.

    Raises `Invalid` for a wish that does not fit, `Unsupported` for any other open extent, and `LimitExceeded`.
    """
    names = {value.name for value in model.inputs}
    for name in (*settings.shapes, *settings.ranges, *settings.states):
        if name not in names:
            listed = ", ".join(map(repr, sorted(names))) or "none"
            raise Invalid("onnx.input", f"there is no input {name!r}; the inputs are {listed}")
    sizes: dict[str, int] = {}
    for value in model.inputs:
        wish = settings.shapes.get(value.name)
        if wish is not None:
            _bind(value, wish, sizes)
    return {value.name: _shape(value, settings.shapes.get(value.name), sizes, limits) for value in model.inputs}


def _bind(value: Value, wish: Shape, sizes: dict[str, int]) -> None:
    where = Location(tensor=value.name)
    dims: tuple[Dimension, ...] = (None,) * len(wish) if value.dims is None else value.dims
    if len(dims) != len(wish) or any(size < 1 for size in wish):
        raise Invalid("onnx.input", f"the shape {list(wish)} does not fit {_said(value)}", where)
    for size, extent in zip(wish, dims, strict=True):
        if isinstance(extent, int) and extent > 0 and extent != size:
            raise Invalid("onnx.input", f"the shape {list(wish)} does not fit {_said(value)}", where)
        if isinstance(extent, str) and sizes.setdefault(extent, size) != size:
            raise Invalid("onnx.input", f"the extent {extent!r} would be {sizes[extent]} and {size}", where)


def _shape(value: Value, wish: Shape | None, sizes: Mapping[str, int], limits: Limits) -> Shape:
    if wish is None:
        if value.dims is not None and 0 in value.dims:
            raise Unsupported("onnx.input", f"{_said(value)} has an extent of 0", Location(tensor=value.name))
        if value.dims is None:
            raise _open(value, "its number of axes")
        wish = tuple(_size(value, axis, extent, sizes) for axis, extent in enumerate(value.dims))
    elements(wish, limits, f"the input {value.name!r}")
    return wish


def _size(value: Value, axis: int, extent: Dimension, sizes: Mapping[str, int]) -> int:
    if isinstance(extent, int) and extent > 0:
        return extent
    if isinstance(extent, str) and extent in sizes:
        return sizes[extent]
    if axis == 0:
        return 1
    raise _open(value, f"the extent of axis {axis}" + (f" ({extent})" if isinstance(extent, str) else ""))


def _open(value: Value, what: str) -> Unsupported:
    message = f"{what} is not stated: {_said(value)}; say it with --input-shape {value.name}=1,.."
    return Unsupported("onnx.input", message, Location(tensor=value.name))


def _said(value: Value) -> str:
    if value.dims is None:
        return f"the input {value.name!r} of any shape"
    return f"the input {value.name!r} of shape [{', '.join('?' if d is None else str(d) for d in value.dims)}]"
