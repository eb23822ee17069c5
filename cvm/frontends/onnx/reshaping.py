"""Result shapes that attributes and constant operands determine: Reshape, Squeeze, Unsqueeze, Flatten."""

from __future__ import annotations

import math

from cvm.frontends.onnx.call import OnnxCall
from cvm.frontends.onnx.model import Shape

__all__ = ["shape_of_reshape"]


def shape_of_reshape(call: OnnxCall) -> Shape:
    """The shape of the result of a Reshape, Squeeze, Unsqueeze or Flatten."""
    return {"Reshape": _reshape, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Flatten": _flatten}[call.node.op](call)


def _reshape(call: OnnxCall) -> Shape:
    source, wish = call.operand(), call.constant_integers(1, "the shape") or ()
    zeros = call.flag("allowzero", False)
    found = []
    for axis, extent in enumerate(wish):
        if extent == 0 and not zeros and axis >= source.rank:
            raise call.invalid(
                "shape",
                f"{list(wish)} copies the extent of axis {axis}, which the input {list(source.shape)} does not have",
            )
        found.append(source.shape[axis] if extent == 0 and not zeros else extent)
    count = math.prod(source.shape)
    if found.count(-1) > 1 or any(extent < -1 for extent in found):
        raise call.invalid("shape", f"{list(wish)} is not a shape: extents must not be negative, but for one -1")
    rest = math.prod(extent for extent in found if extent != -1)
    if -1 in found and rest and count % rest == 0:
        found[found.index(-1)] = count // rest
    if -1 in found or math.prod(found) != count:
        raise call.invalid(
            "shape", f"the input {list(source.shape)} has {count} items, but the shape {list(wish)} does not"
        )
    return tuple(found)


def _squeeze(call: OnnxCall) -> Shape:
    source = call.operand()
    axes = call.constant_integers(1, "axes")
    if axes is None:
        return tuple(extent for extent in source.shape if extent != 1)
    wanted = call.axes(axes, source.rank)
    if any(source.shape[axis] != 1 for axis in wanted):
        raise call.invalid("shape", f"the axes {list(axes)} of {list(source.shape)} must all have the extent 1")
    return tuple(extent for axis, extent in enumerate(source.shape) if axis not in wanted)


def _unsqueeze(call: OnnxCall) -> Shape:
    source, axes = call.operand(), call.constant_integers(1, "axes") or ()
    wanted = call.axes(axes, source.rank + len(axes))
    rest = iter(source.shape)
    return tuple(1 if axis in wanted else next(rest) for axis in range(source.rank + len(axes)))


def _flatten(call: OnnxCall) -> Shape:
    source = call.operand()
    axis = call.integer("axis", 1)
    if not -source.rank <= axis <= source.rank:
        raise call.invalid("axis", f"axis {axis} is not in {-source.rank}..{source.rank}")
    axis = axis + source.rank if axis < 0 else axis
    return math.prod(source.shape[:axis]), math.prod(source.shape[axis:])
