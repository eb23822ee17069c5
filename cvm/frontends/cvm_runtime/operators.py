"""The ops of cvm-runtime: their names, attributes and arity, and the op of cvm that each of them is.

The table is `OPERATORS`. The library checks shapes as the declarations of cvm do, except where `Operator.translate`
says more. Some names differ: ``strided_slice`` is slice, ``get_valid_counts`` is get_valid_count, ``axis`` is axes,
``shape`` is target_shape. The table of ``cvm_lut`` is its second input; ``flatten`` keeps the first dimension, so it is
a reshape here; the shape of ``reshape`` may hold codes (`cvm.frontends.cvm_runtime.reshaping`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from cvm import ops
from cvm.errors import Invalid
from cvm.frontends.cvm_runtime.attributes import (
    Attribute,
    boolean,
    choice,
    integer,
    integer_or_none,
    integers,
    parse_attributes,
)
from cvm.frontends.cvm_runtime.reshaping import target_shape
from cvm.limits import INT32_MAX
from cvm.ops import Call
from cvm.ops.axes import inside
from cvm.records import dataclass

__all__ = ["ALIASES", "OPERATORS", "Operator", "OperatorTranslation", "Shapes", "Use", "Values", "operator"]

Values: TypeAlias = Mapping[str, Any]
"""The attributes of a use, by their names in the library."""
Shapes: TypeAlias = tuple[tuple[int, ...], ...]

ATTRIBUTE_MAX = 4096


@dataclass(frozen=True, slots=True)
class OperatorTranslation:
    """The use of an op of the library as an op of cvm; ``inputs`` lists the inputs in cvm's order."""

    op: str
    attributes: Mapping[str, Any]
    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Use:
    """One use of an op of the library: typed attributes, shapes of inputs and outputs, and its translation to cvm."""

    operator: Operator
    values: Values
    shapes: Shapes
    out_shapes: Shapes
    translation: OperatorTranslation


@dataclass(frozen=True, slots=True)
class Operator:
    """An op of the library. ``least`` and ``most`` bound the number of its inputs (None: no bound).

    ``rename`` gives the attributes of the op of cvm; it raises `Invalid` where a rule of the library is broken.
    """

    name: str
    ours: str
    least: int = 1
    most: int | None = 1
    attributes: tuple[Attribute, ...] = ()
    rename: Callable[[Values, Shapes], Mapping[str, Any]] = lambda values, shapes: values
    outputs: int = 1
    in_place: bool = False
    """Whether a result may share the storage of an input."""
    inputs: tuple[int, ...] = ()
    """The order of the inputs in cvm, where it differs."""

    def use(self, texts: Mapping[str, str], shapes: Shapes) -> Use:
        """A use of the op, with its shapes inferred. Raises `Invalid` (``cvm_runtime.*``, ``ops.*``)."""
        if len(shapes) < self.least or (self.most is not None and len(shapes) > self.most):
            expected = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most or 'any number'}"
            raise Invalid("cvm_runtime.arity", f"{self.name} takes {expected} inputs, found {len(shapes)}")
        values = parse_attributes(self.name, self.attributes, texts)
        order = self.inputs or tuple(range(len(shapes)))
        attributes = {name: value for name, value in self.rename(values, shapes).items() if value is not None}
        declaration = ops.get(self.ours)
        typed = declaration.parse(attributes)
        inferred = declaration.infer(Call(tuple(shapes[index] for index in order), typed))
        return Use(self, values, shapes, inferred, OperatorTranslation(self.ours, attributes, order))


def _wrong(op: str, message: str) -> Invalid:
    return Invalid("cvm_runtime.operands", f"{op}: {message}")


def _renamed(**names: str) -> Callable[[Values, Shapes], Mapping[str, Any]]:
    """Rename attributes; ``names`` maps names of cvm to those of the library. Other attributes have only one valid
    value.
    """
    return lambda values, shapes: {ours: values[theirs] for ours, theirs in names.items()}


def _bounds(values: Values, shapes: Shapes) -> Mapping[str, Any]:
    if values["a_min"] >= values["a_max"]:
        raise _wrong("clip", f"expected a_min < a_max, found {values['a_min']} and {values['a_max']}")
    return values


def _flattened(values: Values, shapes: Shapes) -> Mapping[str, Any]:
    first, *others = shapes[0]
    return {"target_shape": (first, math.prod(others))}


def _reshaped(values: Values, shapes: Shapes) -> Mapping[str, Any]:
    return {"target_shape": target_shape(values["shape"], shapes[0])}


def _distinct(values: Values, shapes: Shapes) -> Mapping[str, Any]:
    """Remove repeated axes. The library allows them, and they change nothing."""
    rank, axes = len(shapes[0]), values["axis"]
    if not inside(axes, rank):
        return {"axes": axes}  # the shape rule of the op refuses such an axis
    return {"axes": tuple({axis % rank: axis for axis in reversed(axes)}.values())[::-1]}


def _sliced(values: Values, shapes: Shapes) -> Mapping[str, Any]:
    """Clamp 64-bit bounds to 32 bits. They select the same elements, since an extent is at most 2^24."""
    names = {"begin": "begin", "end": "end", "strides": "stride"}
    return {
        ours: tuple(min(max(item, -INT32_MAX), INT32_MAX) for item in values[theirs]) for ours, theirs in names.items()
    }


def _looked_up(values: Values, shapes: Shapes) -> Mapping[str, Any]:
    size = math.prod(shapes[1])
    if values["in_dim"] != size:
        raise _wrong("cvm_lut", f"in_dim is {values['in_dim']}, the table has {size} elements")
    return {}


def _biased(op: str, values: Values, shapes: Shapes) -> None:
    expected = 2 + bool(values["use_bias"])
    if len(shapes) != expected:
        raise _wrong(op, f"with use_bias {values['use_bias']} it takes {expected} inputs, found {len(shapes)}")


def _convolved(values: Values, shapes: Shapes) -> Mapping[str, Any]:
    _biased("conv2d", values, shapes)
    groups, channels = values["groups"], shapes[0][1] if len(shapes[0]) > 1 else 0
    if channels % groups:
        raise _wrong("conv2d", f"{channels} input channels cannot be split into {groups} groups")
    # The library does not check the shape of the weight, and reads beyond it where the shape is wrong.
    expected = (values["channels"], channels // groups, *values["kernel_size"])
    if len(shapes[0]) == 4 and shapes[1] != expected:
        raise _wrong("conv2d", f"expected a weight of shape {list(expected)}, found {list(shapes[1])}")
    return {name: values[theirs] for name, theirs in _CONVOLUTION.items()}


_CONVOLUTION = {"padding": "padding", "stride": "strides", "dilation": "dilation", "groups": "groups"}


def _dense(values: Values, shapes: Shapes) -> Mapping[str, Any]:
    _biased("dense", values, shapes)
    if shapes[1][0] != values["units"]:
        raise _wrong("dense", f"units is {values['units']}, the weight has shape {list(shapes[1])}")
    return {}


def _pooled(values: Values, shapes: Shapes) -> Mapping[str, Any]:
    padding = values["padding"]
    return {**_pool(values, shapes), "padding": padding * 2 if len(padding) == 1 else padding}


_pool = _renamed(pool_size="pool_size", strides="strides", ceil_mode="ceil_mode")


def _counted(values: Values, shapes: Shapes) -> Mapping[str, Any]:
    if len(shapes[0]) == 3 and shapes[0][2] >= 32:
        raise _wrong("get_valid_counts", f"expected rows of 2 to 31 values, found {shapes[0][2]}")
    # cvm has no threshold of -2^31; `importer` handles scores for which that makes a difference.
    return {"score_threshold": max(values["score_threshold"], -INT32_MAX)}


_SUPPRESSION = ("iou_threshold", "max_output_size", "force_suppress", "top_k")


def _only(name: str, value: str, *others: str) -> Attribute:
    """A text attribute with a single value, or with several that mean the same."""
    return Attribute(name, choice(value, *others), value)


def _fixed(name: str, value: int) -> Attribute:
    return Attribute(name, integer, str(value), value, value)


def _truth(name: str, value: bool) -> Attribute:
    """A logical attribute with a single value."""
    return Attribute(name, boolean, str(value), value, value)


_TYPES = ("float16", "float32", "float64", "int16", "int32", "int64", "int8", "uint16", "uint32", "uint64", "uint8")
_REDUCE = (
    Attribute("axis", integers, "()"),
    Attribute("keepdims", boolean, "False"),
    Attribute("exclude", boolean, "False"),
    Attribute("dtype", choice(*_TYPES), "int32"),
)
_PRECISION = Attribute("precision", integer, None, 1, 32)
_IS_SIGN = Attribute("is_sign", boolean, "True")
_SHIFT = (_PRECISION, Attribute("shift_bit", integer, None, 1, 32), _IS_SIGN)


def _pair(name: str, default: str | None, least: int | None, most: int | None = ATTRIBUTE_MAX) -> Attribute:
    return Attribute(name, integers, default, least, most, (2,))


_CONV2D = (
    Attribute("channels", integer, None, 1),
    _pair("kernel_size", None, 1, None),
    _pair("strides", "(1, 1)", 1),
    _pair("padding", "(0, 0)", 0),
    _pair("dilation", "(1, 1)", 1),
    Attribute("groups", integer, "1", 1),
    Attribute("use_bias", boolean, "True"),
    _only("layout", "NCHW"),
    _only("kernel_layout", "OIHW"),
    _only("out_layout", "__undef__", "NCHW"),
    _only("out_dtype", "same", "int32"),
)


def _unary(name: str, *attributes: Attribute, in_place: bool = True) -> Operator:
    return Operator(name, name, attributes=attributes, in_place=in_place)


def _binary(name: str, in_place: bool = False) -> Operator:
    return Operator(name, name, 2, 2, in_place=in_place)


def _reduce(name: str) -> Operator:
    rename = _renamed(axes="axis", keepdims="keepdims", exclude="exclude")
    return Operator(name, name, attributes=_REDUCE, rename=rename)


_ALL = (
    _unary("abs"),
    _unary("negative", in_place=False),  # the library's list of in-place ops misspells its name
    _unary("relu"),
    _unary("cvm_precision"),
    _binary("elemwise_add", in_place=True),
    _binary("elemwise_sub", in_place=True),
    Operator(
        "clip",
        "clip",
        attributes=(
            Attribute("a_min", integer, None, -INT32_MAX, INT32_MAX),
            Attribute("a_max", integer, None, -INT32_MAX, INT32_MAX),
        ),
        rename=_bounds,
        in_place=True,
    ),
    Operator(
        "cvm_clip", "cvm_clip", attributes=(_PRECISION, _IS_SIGN), rename=_renamed(precision="precision"), in_place=True
    ),
    *(
        Operator(
            name, name, attributes=_SHIFT, rename=_renamed(precision="precision", shift_bit="shift_bit"), in_place=True
        )
        for name in ("cvm_right_shift", "cvm_left_shift")
    ),
    Operator("flatten", "reshape", rename=_flattened, in_place=True),
    Operator("reshape", "reshape", attributes=(Attribute("shape", integers),), rename=_reshaped, in_place=True),
    *(_binary(f"broadcast_{name}") for name in ("add", "sub", "mul", "div", "max", "greater")),
    _reduce("sum"),
    _reduce("max"),
    Operator("concatenate", "concatenate", 1, None, (Attribute("axis", integer, "1"),)),
    _unary("repeat", Attribute("repeats", integer, None, 1), Attribute("axis", integer, "0"), in_place=False),
    _unary("tile", Attribute("reps", integers, "(0)", 1, ATTRIBUTE_MAX), in_place=False),
    _unary("expand_dims", Attribute("axis", integer), Attribute("num_newaxis", integer, "1", 1, ATTRIBUTE_MAX)),
    Operator("squeeze", "squeeze", attributes=(Attribute("axis", integers, "()"),), rename=_distinct, in_place=True),
    _unary("transpose", Attribute("axes", integers, "()"), in_place=False),
    Operator(
        "strided_slice",
        "slice",
        rename=_sliced,
        attributes=(
            Attribute("begin", integers, "(0)"),
            Attribute("end", integers, "(1)"),
            Attribute("stride", integers, "()", -(2**63 - 1)),
        ),
    ),
    Operator("slice_like", "slice_like", 2, 2, (Attribute("axis", integers, "()"),), _distinct),
    Operator("take", "take", 2, 2, (Attribute("axis", integer_or_none, "None"),)),
    Operator("cvm_lut", "cvm_lut", 2, 2, (Attribute("in_dim", integer),), _looked_up, inputs=(1, 0)),
    Operator("where", "where", 3, 3),
    Operator("conv2d", "conv2d", 2, 3, _CONV2D, _convolved),
    Operator(
        "dense", "dense", 2, 3, (Attribute("units", integer, None, 1), Attribute("use_bias", boolean, "True")), _dense
    ),
    Operator(
        "max_pool2d",
        "max_pool2d",
        rename=_pooled,
        attributes=(
            _pair("pool_size", None, 1, None),
            _pair("strides", "(1, 1)", 1),
            Attribute("padding", integers, "(0, 0)", 0, ATTRIBUTE_MAX, (1, 2)),
            Attribute("ceil_mode", boolean, "False"),
            _only("layout", "NCHW"),
        ),
    ),
    Operator(
        "upsampling",
        "upsampling",
        rename=_renamed(scale="scale"),
        attributes=(
            Attribute("scale", integer, None, 1, ATTRIBUTE_MAX),
            _only("method", "NEAREST_NEIGHBOR"),
            _only("layout", "NCHW"),
        ),
    ),
    Operator(
        "get_valid_counts",
        "get_valid_count",
        rename=_counted,
        outputs=2,
        attributes=(Attribute("score_threshold", integer, "0"),),
    ),
    Operator(
        "non_max_suppression",
        "non_max_suppression",
        2,
        2,
        (
            Attribute("iou_threshold", integer, "50", 1),
            Attribute("max_output_size", integer, "-1"),
            Attribute("force_suppress", boolean, "False"),
            Attribute("top_k", integer, "-1"),
            _fixed("coord_start", 2),
            _fixed("score_index", 1),
            _fixed("id_index", 0),
            _truth("return_indices", False),
            _truth("invalid_to_bottom", True),
        ),
        lambda values, shapes: {name: values[name] for name in _SUPPRESSION},
    ),
)

OPERATORS: Mapping[str, Operator] = MappingProxyType({item.name: item for item in _ALL})
"""Every op of the library, by its registered name."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "add": "elemwise_add",
        "__add_symbol__": "elemwise_add",
        "nn.relu": "relu",
        "vision.non_max_suppression": "non_max_suppression",
    }
)
"""Names that the library's front end accepts for other ops, and that its executors do not know."""


def operator(name: str) -> Operator:
    """The op that is registered under a name. Raises `Invalid` (``cvm_runtime.op``)."""
    if name not in OPERATORS:
        hint = f"; its executors know it as {ALIASES[name]}" if name in ALIASES else ""
        raise Invalid("cvm_runtime.op", f"cvm-runtime has no op {name[:80]!r}{hint}")
    return OPERATORS[name]
