"""Constant folding of what exporters compute at compile time: shapes of tensors and numbers derived from them.

Integers and truth values are folded in NumPy, where 64-bit integers must not overflow. Floats are folded where they
are only moved, or where the result is exactly a float64. A tensor that is not folded is no constant to the rules;
lowering may still find it constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError
from cvm.frontends.common.data_types import bounds, is_float
from cvm.frontends.common.registry import entering
from cvm.frontends.onnx.call import OnnxCall, Operand, target_of_cast
from cvm.frontends.onnx.model import Refused, Tensor
from cvm.frontends.onnx.reshaping import shape_of_reshape
from cvm.frontends.onnx.tensors import data_type_of
from cvm.limits import DEFAULT, elements

__all__ = ["fold"]

Array: TypeAlias = "npt.NDArray[Any]"
Folded: TypeAlias = "tuple[Array, str] | list[tuple[Array, str]]"
_Fold: TypeAlias = "Callable[[OnnxCall], Folded | None]"

_FOLDS: dict[str, _Fold] = {}


def fold(call: OnnxCall) -> list[tuple[Array, str]] | None:
    """The results of a node as values and data types; None where the node is not folded.

    Raises `CvmError` for a node that breaks a rule.
    """
    found = _FOLDS.get(call.node.op)
    shape_alone = call.node.op in ("Shape", "Size", "EyeLike", "IsNaN")
    needed = call.operands[:1] if call.node.op == "CastLike" else call.operands
    if found is None or call.node.domain:
        return None
    if not shape_alone and any(item is not None and item.values is None for item in needed):
        return None
    try:
        with np.errstate(all="ignore"):
            results = found(call)
    except CvmError:
        raise
    except (ValueError, IndexError, OverflowError, TypeError) as error:
        raise call.invalid("constant", f"its constant operands have no result: {error}") from None
    if results is None:
        return None
    return results if isinstance(results, list) else [results]


_fold = entering(_FOLDS)


def _values(operand: Operand) -> Array:
    assert operand.values is not None
    return operand.values


def _list(call: OnnxCall, index: int, what: str) -> tuple[int, ...]:
    return call.constant_integers(index, what) or ()


# Nodes without operands, and nodes that need only the shapes of their operands


@_fold("Constant")
def _constant(call: OnnxCall) -> Folded:
    if len(call.node.attributes) != 1:
        raise call.invalid("attribute", "a Constant has one attribute")
    (name,) = call.node.attributes
    found = call.node.attributes[name]
    call.ignore(name)
    if isinstance(found, Tensor) and name == "value":
        return found.values, found.data_type
    if isinstance(found, Refused) or name not in ("value_float", "value_floats", "value_int", "value_ints"):
        raise call.refuse(f"a constant given as {name} is not read", "give it as a tensor of numbers")
    data_type = "float32" if name.startswith("value_float") else "int64"
    return np.array(found, data_type), data_type


@_fold("Shape")
def _shape(call: OnnxCall) -> Folded:
    rank = call.operand().rank
    start, end = (call.integer(name, default) for name, default in (("start", 0), ("end", rank)))
    return np.array(call.operand().shape[slice(start, end)], np.int64), "int64"


@_fold("Size")
def _size(call: OnnxCall) -> Folded:
    return np.array(np.prod(call.operand().shape, dtype=object), np.int64), "int64"


@_fold("ConstantOfShape")
def _constant_of_shape(call: OnnxCall) -> Folded:
    shape, item = _list(call, 0, "the shape"), call.tensor("value") or Tensor(np.zeros(1, np.float32), "float32")
    if any(extent < 0 for extent in shape) or item.values.size != 1:
        raise call.invalid(
            "shape", f"a constant needs extents of 0 or more and a single value, found the shape {list(shape)}"
        )
    elements(shape, DEFAULT, call.node.label)
    return np.full(shape, item.values.ravel()[0]), item.data_type


@_fold("Range")
def _range(call: OnnxCall) -> Folded | None:
    data_type = call.same_type(*call.every())
    if is_float(data_type):
        return None
    start, limit, delta = (int(_values(call.operand(i)).reshape(())) for i in range(3))
    if delta == 0:
        raise call.invalid("constant", "the delta of a range is 0")
    elements((len(range(start, limit, delta)),), DEFAULT, call.node.label)
    return np.array(range(start, limit, delta), data_type), data_type


@_fold("EyeLike")
def _eye(call: OnnxCall) -> Folded:
    source = call.operand()
    if source.rank != 2:
        raise call.invalid("shape", f"expected two axes, found {list(source.shape)}")
    wish = call.integer("dtype", 0)
    data_type = data_type_of(wish, "dtype") if wish else source.data_type
    k = min(max(call.integer("k", 0), -max(source.shape)), max(source.shape))
    return np.eye(source.shape[0], source.shape[1], k).astype(_numpy(data_type)), data_type


def _numpy(data_type: str) -> str:
    narrow = {"int4": "int8", "int2": "int8", "uint4": "uint8", "uint2": "uint8", "bfloat16": "float32"}
    return narrow.get(data_type, data_type)


# Arithmetic


def _exactly(items: Array, data_type: str) -> tuple[Array, str] | None:
    """Python integers or rationals as values of a data type, or None where a float would be rounded."""
    if is_float(data_type):
        floats = np.array([float(item) for item in items.ravel().tolist()]).reshape(items.shape)
        exact = all(
            np.isfinite(a) and Fraction(a) == b
            for a, b in zip(floats.ravel().tolist(), items.ravel().tolist(), strict=True)
        )
        return (floats, data_type) if exact else None
    lo, hi = bounds(data_type)
    flat = items.ravel().tolist()
    if any(not lo <= item <= hi for item in flat):
        flat = [(item - lo) % (hi - lo + 1) + lo for item in flat]
    return np.array(flat, _numpy(data_type)).reshape(items.shape), data_type


_MOST_COMPUTED = 2**16
"""The most elements of a constant that folding computes with: exporters compute shapes, which are short."""


def _numbers(operand: Operand) -> Array:
    """The elements as Python integers, or rationals for floats."""
    flat = _values(operand).ravel().tolist()
    made = np.empty(len(flat), dtype=object)
    made[:] = [Fraction(item) for item in flat] if operand.real else [int(item) for item in flat]
    return made.reshape(operand.shape)


def _truncated(a: Any, b: Any) -> Any:
    if isinstance(a, Fraction):
        return a / b
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b, "Div": _truncated,
    "Max": max, "Min": min, "Mod": lambda a, b: a % b if b else a,
}  # fmt: skip
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "Equal": lambda a, b: a == b, "Greater": lambda a, b: a > b, "GreaterOrEqual": lambda a, b: a >= b,
    "Less": lambda a, b: a < b, "LessOrEqual": lambda a, b: a <= b, "And": lambda a, b: a and b,
    "Or": lambda a, b: a or b, "Xor": lambda a, b: a != b,
}  # fmt: skip


@_fold(*_BINARY, *_COMPARED)
def _binary(call: OnnxCall) -> Folded | None:
    operands = call.every()
    data_type = call.same_type(*operands)
    elements(call.broadcast(*operands), DEFAULT, call.node.label)
    if any(operand.real and not np.isfinite(_values(operand)).all() for operand in operands):
        return None
    if max(_values(operand).size for operand in operands) > _MOST_COMPUTED:
        return None
    if call.node.op == "Mod" and (call.flag("fmod", False) or operands[0].real):
        return None  # its remainder has the sign of the dividend
    compared = call.node.op in _COMPARED
    function = np.frompyfunc((_COMPARED if compared else _BINARY)[call.node.op], 2, 1)
    found = _numbers(operands[0])
    for operand in operands[1:]:
        if call.node.op == "Div" and operand.real and not _values(operand).all():
            return None
        found = np.asarray(function(found, _numbers(operand)), dtype=object)
    return (found.astype(bool), "bool") if compared else _exactly(found, data_type)


@_fold("Neg", "Abs", "Floor", "Ceil", "Not")
def _unary(call: OnnxCall) -> Folded | None:
    operand = call.operand()
    if call.node.op == "Not":
        return ~_values(operand).astype(bool), "bool"
    if _values(operand).size > _MOST_COMPUTED or (operand.real and not np.isfinite(_values(operand)).all()):
        return None
    function = {
        "Neg": lambda x: -x, "Abs": abs, "Floor": lambda x: Fraction(x // 1), "Ceil": lambda x: Fraction(-(-x // 1))
    }[call.node.op]  # fmt: skip
    return _exactly(np.asarray(np.frompyfunc(function, 1, 1)(_numbers(operand)), dtype=object), operand.data_type)


@_fold("Cast", "CastLike")
def _cast(call: OnnxCall) -> Folded | None:
    source, data_type = call.operand(), target_of_cast(call)
    values = _values(source)
    if data_type == source.data_type or (source.real and is_float(data_type)):
        return values, data_type
    if data_type == "bool":
        return values != 0, data_type
    if values.size > _MOST_COMPUTED or (source.real and not np.isfinite(values).all()):
        return None
    whole = np.frompyfunc(int, 1, 1)(_numbers(source))
    return _exactly(np.asarray(whole, dtype=object), data_type)


@_fold("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin")
def _reduced(call: OnnxCall) -> Folded | None:
    source = call.operand()
    if source.real or source.values is None or source.values.size > _MOST_COMPUTED or source.values.size == 0:
        return None
    axes = _list(call, 1, "axes") or call.integers("axes") or ()
    if not axes and call.flag("noop_with_empty_axes", False):
        return _values(source), source.data_type
    wanted = call.axes(axes, source.rank) or tuple(range(source.rank))
    reduce: dict[str, Any] = {
        "ReduceProd": np.multiply,
        "ReduceSum": np.add,
        "ReduceMax": np.maximum,
        "ReduceMin": np.minimum,
    }
    keep = call.flag("keepdims", True)
    found = reduce[call.node.op].reduce(_numbers(source), axis=wanted, keepdims=keep)
    return _exactly(np.asarray(found, dtype=object), source.data_type)


# Movement of elements of any type


@_fold("Identity")
def _identity(call: OnnxCall) -> Folded:
    return _values(call.operand()), call.operand().data_type


@_fold("Concat")
def _concat(call: OnnxCall) -> Folded:
    parts = call.every()
    axis = call.integer("axis", 0)
    return np.concatenate([_values(part) for part in parts], call.axis(axis, max(parts[0].rank, 1))), call.same_type(
        *parts
    )


@_fold("Gather")
def _gather(call: OnnxCall) -> Folded:
    source, axis = call.operand(), call.axis(call.integer("axis", 0), call.operand().rank)
    return np.take(_values(source), _values(call.operand(1)).astype(np.int64), axis), source.data_type


@_fold("Slice")
def _slice(call: OnnxCall) -> Folded:
    source = call.operand()
    starts, ends = _list(call, 1, "starts"), _list(call, 2, "ends")
    axes = call.axes(call.constant_integers(3, "axes") or tuple(range(len(starts))), source.rank)
    steps = call.constant_integers(4, "steps") or (1,) * len(starts)
    slices = [slice(None)] * source.rank
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        slices[axis] = slice(*slice_bounds(start, end, step, source.shape[axis]))
    return _values(source)[tuple(slices)], source.data_type


def slice_bounds(start: int, end: int, step: int, extent: int) -> tuple[int, int | None, int]:
    """Start, end and step as Python slices have them, from those of ONNX, which clamp; an end
    before index 0 is None.
    """
    if step == 0:
        raise ValueError("a step is 0")
    begin = start + extent if start < 0 else start
    stop = end + extent if end < 0 else end
    if step > 0:
        return min(max(begin, 0), extent), min(max(stop, 0), extent), step
    begin, stop = min(max(begin, 0), extent - 1), min(max(stop, -1), extent - 1)
    return begin, None if stop < 0 else stop, step


@_fold("Squeeze", "Unsqueeze", "Reshape", "Flatten")
def _reshaped(call: OnnxCall) -> Folded:
    source = call.operand()
    return _values(source).reshape(shape_of_reshape(call)), source.data_type


@_fold("Transpose")
def _transpose(call: OnnxCall) -> Folded:
    source = call.operand()
    return np.transpose(_values(source), call.integers("perm")), source.data_type


@_fold("Expand")
def _expand(call: OnnxCall) -> Folded:
    source = call.operand()
    shape = np.broadcast_shapes(source.shape, _list(call, 1, "the shape"))
    elements(shape, DEFAULT, call.node.label)
    return np.broadcast_to(_values(source), shape), source.data_type


@_fold("Tile")
def _tile(call: OnnxCall) -> Folded:
    source, repeats = call.operand(), _list(call, 1, "repeats")
    if len(repeats) != source.rank or any(item < 0 for item in repeats):
        raise call.invalid("shape", f"repeats {list(repeats)} for {list(source.shape)}")
    elements([n * m for n, m in zip(source.shape, repeats, strict=True)], DEFAULT, call.node.label)
    return np.tile(_values(source), repeats), source.data_type


@_fold("Trilu")
def _triangle(call: OnnxCall) -> Folded | None:
    """Fold Trilu of infinite elements; other elements are multiplied by a triangle of ones."""
    source = call.operand()
    if not source.real or not np.isinf(_values(source)).any():
        return None
    if source.rank < 2:
        raise call.invalid("shape", f"the input must have at least two axes, found {list(source.shape)}")
    upper = call.flag("upper", True)
    (k,) = _list(call, 1, "k") or (0,)
    k = min(max(k, -max(source.shape)), max(source.shape))
    return (np.triu if upper else np.tril)(_values(source), k), source.data_type


@_fold("GatherElements")
def _gather_elements(call: OnnxCall) -> Folded | None:
    """Fold GatherElements of integers and truth values, which exporters use to compute shapes."""
    source, axis = call.operand(), call.axis(call.integer("axis", 0), call.operand().rank)
    if source.real:
        return None
    return np.take_along_axis(_values(source), _values(call.operand(1)).astype(np.int64), axis), source.data_type


@_fold("ScatterND")
def _scatter(call: OnnxCall) -> Folded | None:
    """Fold ScatterND of integers and truth values, which exporters use to compute shapes."""
    source, indices, updates = call.every()
    if source.real or call.text("reduction", "none") != "none":
        return None
    found = np.array(_values(source))
    found[tuple(np.moveaxis(_values(indices).astype(np.int64), -1, 0))] = _values(updates)
    return found, call.same_type(source, updates)


@_fold("Where")
def _where(call: OnnxCall) -> Folded:
    condition, *arms = call.every()
    data_type = call.same_type(*arms)
    elements(call.broadcast(condition, *arms), DEFAULT, call.node.label)
    return np.where(_values(condition), *(_values(arm) for arm in arms)), data_type


@_fold("IsNaN", "IsInf")
def _special(call: OnnxCall) -> Folded:
    """Whether numbers are NaN or infinite. No computed number is NaN."""
    source = call.operand()
    elements(source.shape, DEFAULT, call.node.label)
    if source.values is None:
        return np.zeros(source.shape, bool), "bool"
    if call.node.op == "IsNaN":
        return np.isnan(source.values), "bool"
    signs = [sign for sign in ("negative", "positive") if call.flag(f"detect_{sign}", True)]
    infinite = np.isinf(source.values)
    found = {"negative": infinite & (source.values < 0), "positive": infinite & (source.values > 0)}
    return np.any([found[sign] for sign in signs], axis=0) if signs else infinite & False, "bool"


@_fold("NonZero")
def _nonzero(call: OnnxCall) -> Folded:
    return np.array(np.nonzero(np.atleast_1d(_values(call.operand()))), np.int64), "int64"


def parts_of_split(call: OnnxCall, extent: int) -> Sequence[int]:
    """The extents of the parts of a Split."""
    sizes = call.constant_integers(1, "split")
    number = call.integer("num_outputs", 0) or len(call.node.outputs)
    if sizes is None:
        if call.version < 18 and extent % number:
            raise call.invalid("shape", f"{extent} items cannot be split into {number} equal parts")
        size = -(-extent // number)
        sizes = tuple(min(size, extent - i * size) for i in range(number))
    if sum(sizes) != extent or len(sizes) != len(call.node.outputs) or any(size < 1 for size in sizes):
        raise call.invalid("shape", f"parts of {list(sizes)} items do not make {extent} items and {number} results")
    return sizes


@_fold("Split")
def _split(call: OnnxCall) -> Folded:
    source, axis = call.operand(), call.axis(call.integer("axis", 0), call.operand().rank)
    at = np.cumsum(parts_of_split(call, source.shape[axis]))[:-1]
    return [(part, source.data_type) for part in np.split(_values(source), at, axis)]
