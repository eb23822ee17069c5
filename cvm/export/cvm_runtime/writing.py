"""The ops of cvm in the notation of cvm-runtime: names, attribute strings, the order of the inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cvm.errors import Unsupported
from cvm.frontends.cvm_runtime.attributes import Value, written
from cvm.frontends.cvm_runtime.operators import Shapes
from cvm.records import dataclass

__all__ = ["Spelling", "spelled"]


@dataclass(frozen=True, slots=True)
class Spelling:
    """A use of an op in the notation of the library. ``order`` lists the inputs in the library's order."""

    name: str
    texts: Mapping[str, str]
    order: tuple[int, ...]


def spelled(op: str, attributes: Mapping[str, Any], shapes: Shapes) -> Spelling:
    """The notation for an op of cvm with complete attributes, on inputs of the given shapes.

    Raises `Unsupported` (``cvm_runtime.export.op``) for an op that the library does not have.
    """
    if op not in _NAMES:
        raise Unsupported("cvm_runtime.export.op", f"cvm-runtime has no op for {op}")
    name, values = _NAMES[op], _VALUES.get(op, _same)
    texts = {key: written(value) for key, value in values(attributes, shapes).items()}
    return Spelling(name, texts, (1, 0) if op == "cvm_lut" else tuple(range(len(shapes))))


_Values = Callable[[Mapping[str, Any], Shapes], Mapping[str, Value]]


def _same(attributes: Mapping[str, Any], shapes: Shapes) -> Mapping[str, Value]:
    return attributes


def _renamed(**names: str) -> _Values:
    """The library's attributes from those of cvm, where names differ; ``names`` maps cvm's names to the library's."""
    return lambda attributes, shapes: {names.get(key, key): value for key, value in attributes.items()}


def _convolution(attributes: Mapping[str, Any], shapes: Shapes) -> Mapping[str, Value]:
    channels, _, *kernel = shapes[1]
    return {
        "channels": channels,
        "kernel_size": tuple(kernel),
        "strides": attributes["stride"],
        "padding": attributes["padding"],
        "dilation": attributes["dilation"],
        "groups": attributes["groups"],
        "use_bias": len(shapes) > 2,
    }


def _dense(attributes: Mapping[str, Any], shapes: Shapes) -> Mapping[str, Value]:
    return {"units": shapes[1][0], "use_bias": len(shapes) > 2}


def _take(attributes: Mapping[str, Any], shapes: Shapes) -> Mapping[str, Value]:
    return {"axis": attributes.get("axis")}


def _table(attributes: Mapping[str, Any], shapes: Shapes) -> Mapping[str, Value]:
    return {"in_dim": math.prod(shapes[0])}


def _counts(attributes: Mapping[str, Any], shapes: Shapes) -> Mapping[str, Value]:
    return {"score_threshold": attributes["score_threshold"]}


_SAME: Sequence[str] = (
    "abs",
    "negative",
    "relu",
    "cvm_precision",
    "elemwise_add",
    "elemwise_sub",
    "clip",
    "cvm_clip",
    "cvm_right_shift",
    "broadcast_add",
    "broadcast_sub",
    "broadcast_mul",
    "broadcast_div",
    "broadcast_max",
    "broadcast_greater",
    "sum",
    "max",
    "concatenate",
    "repeat",
    "tile",
    "expand_dims",
    "squeeze",
    "transpose",
    "slice_like",
    "take",
    "cvm_lut",
    "where",
    "conv2d",
    "dense",
    "max_pool2d",
    "upsampling",
    "non_max_suppression",
    "reshape",
)
_NAMES = {**{name: name for name in _SAME}, "slice": "strided_slice", "get_valid_count": "get_valid_counts"}
_VALUES: Mapping[str, _Values] = {
    "sum": _renamed(axes="axis"),
    "max": _renamed(axes="axis"),
    "squeeze": _renamed(axes="axis"),
    "slice_like": _renamed(axes="axis"),
    "reshape": _renamed(target_shape="shape"),
    "slice": _renamed(strides="stride"),
    "take": _take,
    "cvm_lut": _table,
    "conv2d": _convolution,
    "dense": _dense,
    "get_valid_count": _counts,
}
