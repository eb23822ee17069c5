"""Operations of a graph as ONNX nodes, with one rule for each operation that has a mapping.

A rule gets the writer of the model and an operation; it adds nodes, the last of which give the results of the
operation. All shapes are known from the graph, so operations that reshape become Reshape.

Source: ONNX operators of opset 21; NNEF 1.0.1 chapter 4, whose operands of lower rank are extended at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import prod
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.graph import GraphOperation, GraphTensor, Operand
from cvm.reference.operations.windows import Sliding, down_windows

__all__ = ["RULES", "NoMapping", "Nodes"]


class NoMapping(Exception):
    """A feature of an operation that ONNX does not have; the message names it."""


class Nodes(Protocol):
    """The interface of the writer that a rule uses."""

    def tensor(self, name: str) -> GraphTensor:
        """A tensor of the graph."""

    def constant(self, values: npt.NDArray[Any]) -> str:
        """Store a tensor with these elements; returns its name."""

    def node(self, op: str, inputs: Sequence[str], outputs: Sequence[str] | None = None, **attributes: Any) -> str:
        """Add a node; returns the name of its first result, a new name if ``outputs`` is not given."""


Rule: TypeAlias = Callable[[Nodes, GraphOperation], None]

_SAME = MappingProxyType(
    {"copy": "Identity", "neg": "Neg", "rcp": "Reciprocal", "exp": "Exp", "log": "Log", "abs": "Abs", "sign": "Sign",
     "floor": "Floor", "ceil": "Ceil", "sqrt": "Sqrt", "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh",
     "softplus": "Softplus", "softsign": "Softsign", "erf": "Erf", "hard_swish": "HardSwish", "sin": "Sin",
     "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
     "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh",
     "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "prelu": "PRelu"}
)  # fmt: skip
_REDUCING = MappingProxyType(
    {"sum_reduce": "ReduceSum", "mean_reduce": "ReduceMean", "max_reduce": "ReduceMax", "min_reduce": "ReduceMin"}
)


def _operands(nodes: Nodes, operation: GraphOperation, *parameters: str) -> list[str]:
    """The operands with these names, each in the rank of the result, as ONNX broadcasts them."""
    rank = len(nodes.tensor(operation.outputs[0]).shape)
    return [_extended(nodes, operation.inputs[name], rank) for name in parameters or tuple(operation.inputs)]


def _extended(nodes: Nodes, operand: Operand, rank: int) -> str:
    if isinstance(operand, Fraction):
        return nodes.constant(np.array(float(operand), np.float32))
    if not isinstance(operand, str):
        raise NoMapping("a literal that is no number")
    shape = nodes.tensor(operand).shape
    return operand if len(shape) == rank else _reshaped(nodes, operand, (*shape, *(1,) * (rank - len(shape))))


def _reshaped(nodes: Nodes, name: str, shape: Sequence[int], outputs: Sequence[str] | None = None) -> str:
    return nodes.node("Reshape", [name, nodes.constant(np.array(shape, np.int64))], outputs)


def _name(operand: Operand) -> str:
    if not isinstance(operand, str):
        raise NoMapping("an operand that is a literal")
    return operand


def _channels(nodes: Nodes, operand: Operand, extent: int) -> str:
    """An operand that has one number per channel, or a single number, as a vector over the channels."""
    if isinstance(operand, Fraction):
        return nodes.constant(np.full(extent, float(operand), np.float32))
    name = _name(operand)
    if prod(nodes.tensor(name).shape) != extent:
        raise NoMapping("numbers that are not one for each channel")
    return _reshaped(nodes, name, (extent,))


def _integers(operation: GraphOperation, name: str) -> list[int]:
    return [int(item) for item in operation.attributes[name]]  # type: ignore[union-attr, arg-type]


def _same(nodes: Nodes, operation: GraphOperation) -> None:
    nodes.node(_SAME[operation.name], _operands(nodes, operation), operation.outputs)


def _chosen(nodes: Nodes, operation: GraphOperation) -> None:
    nodes.node({"min": "Min", "max": "Max"}[operation.name], _operands(nodes, operation), operation.outputs)


def _clamp(nodes: Nodes, operation: GraphOperation) -> None:
    x, low, high = _operands(nodes, operation, "x", "a", "b")
    nodes.node("Min", [nodes.node("Max", [x, low]), high], operation.outputs)


def _square(nodes: Nodes, operation: GraphOperation) -> None:
    (x,) = _operands(nodes, operation)
    nodes.node("Mul", [x, x], operation.outputs)


def _inverse_root(nodes: Nodes, operation: GraphOperation) -> None:
    nodes.node("Reciprocal", [nodes.node("Sqrt", _operands(nodes, operation))], operation.outputs)


def _with_alpha(nodes: Nodes, operation: GraphOperation) -> None:
    alpha = float(operation.attributes.get("alpha", operation.inputs.get("alpha", 1)))  # type: ignore[arg-type]
    op = {"leaky_relu": "LeakyRelu", "elu": "Elu"}[operation.name]
    nodes.node(op, _operands(nodes, operation, "x"), operation.outputs, alpha=alpha)


def _softmax(nodes: Nodes, operation: GraphOperation) -> None:
    axes = _integers(operation, "axes")
    if len(axes) != 1:
        raise NoMapping("softmax over several axes")
    nodes.node("Softmax", _operands(nodes, operation, "x"), operation.outputs, axis=axes[0])


def _masked_softmax(nodes: Nodes, operation: GraphOperation) -> None:
    axes = _integers(operation, "axes")
    if len(axes) != 1:
        raise NoMapping("softmax over several axes")
    seen, x = _operands(nodes, operation, "seen", "x")
    least = np.finfo(np.float32).min
    below = nodes.constant(np.array(max(float(operation.attributes["below"]), least), np.float32))  # type: ignore[arg-type]
    if operation.attributes["added"]:
        masked = nodes.node("Add", [x, nodes.node("Where", [seen, nodes.constant(np.zeros((), np.float32)), below])])
    else:
        masked = nodes.node("Where", [seen, x, below])
    nodes.node("Softmax", [masked], operation.outputs, axis=axes[0])


def _windows(shape: Sequence[int], sizes: Sequence[int], operation: GraphOperation) -> dict[str, list[int]]:
    """Strides, dilations and pads of windows over the last axes of a shape. Raises `NoMapping`
    where the windows crop.
    """
    attributes: dict[str, Any] = {name: operation.attributes[name] for name in ("padding", "stride", "dilation")}
    windows = down_windows(tuple(shape), tuple(sizes), Sliding(**attributes))
    after = [(w.x - 1) * w.s + (w.f - 1) * w.d + 1 - w.X - w.p for w in windows]
    if any(w.p < 0 or last <= -w.s for w, last in zip(windows, after, strict=True)):
        raise NoMapping("a negative padding")
    pads = [w.p for w in windows] + [max(last, 0) for last in after]
    return {"strides": [w.s for w in windows], "dilations": [w.d for w in windows], "pads": pads}


def _conv(nodes: Nodes, operation: GraphOperation) -> None:
    data, weights = _name(operation.inputs["input"]), _name(operation.inputs["filter"])
    shape, sizes = nodes.tensor(data).shape, nodes.tensor(weights).shape
    windows = _windows(shape[2:], sizes[2:], operation)
    if operation.attributes["border"] != "constant" and any(windows["pads"]):
        raise NoMapping(f"a border {operation.attributes['border']!r}")
    groups = int(operation.attributes["groups"]) or shape[1]  # type: ignore[arg-type]
    bias = _channels(nodes, operation.inputs["bias"], sizes[0])
    nodes.node("Conv", [data, weights, bias], operation.outputs, group=groups, **windows)


def _linear(nodes: Nodes, operation: GraphOperation) -> None:
    data, weights = _name(operation.inputs["input"]), _name(operation.inputs["filter"])
    bias = _channels(nodes, operation.inputs["bias"], nodes.tensor(weights).shape[0])
    nodes.node("Gemm", [data, weights, bias], operation.outputs, transB=1)


def _matmul(nodes: Nodes, operation: GraphOperation) -> None:
    names = []
    for name in ("A", "B"):
        operand = _name(operation.inputs[name])
        axes = list(range(len(nodes.tensor(operand).shape)))
        if operation.attributes[f"transpose{name}"]:
            operand = nodes.node("Transpose", [operand], perm=[*axes[:-2], axes[-1], axes[-2]])
        names.append(operand)
    nodes.node("MatMul", names, operation.outputs)


def _pool(nodes: Nodes, operation: GraphOperation) -> None:
    data, sizes = _name(operation.inputs["input"]), _integers(operation, "size")
    found = _windows(nodes.tensor(data).shape, sizes, operation)
    rank, border = len(sizes), operation.attributes["border"]
    outer = [found["strides"][i] == sizes[i] == 1 and not found["pads"][i] + found["pads"][rank + i] for i in (0, 1)]
    if not all(outer):
        raise NoMapping("windows over batch or channels")
    inner = {"strides": found["strides"][2:], "pads": [*found["pads"][2:rank], *found["pads"][rank + 2 :]]}
    inner |= {"dilations": found["dilations"][2:], "kernel_shape": sizes[2:]}
    if operation.name == "max_pool":
        if border != "ignore" and any(inner["pads"]):
            raise NoMapping(f"a border {border!r}")
        nodes.node("MaxPool", [data], operation.outputs, **inner)
    elif border in ("constant", "ignore") or not any(inner["pads"]):
        nodes.node("AveragePool", [data], operation.outputs, count_include_pad=int(border == "constant"), **inner)
    else:
        raise NoMapping(f"a border {border!r}")


def _reduced(nodes: Nodes, operation: GraphOperation) -> None:
    op = "ReduceMean" if operation.attributes.get("normalize") else _REDUCING[operation.name]
    axes = nodes.constant(np.array(_integers(operation, "axes"), np.int64))
    nodes.node(op, [_name(operation.inputs["input"]), axes], operation.outputs, keepdims=1)


def _normalised(nodes: Nodes, operation: GraphOperation) -> None:
    extent = nodes.tensor(operation.outputs[0]).shape[1]
    numbers = [_channels(nodes, operation.inputs[name], extent) for name in ("scale", "offset", "mean", "variance")]
    inputs = [_name(operation.inputs["input"]), *numbers]
    nodes.node("BatchNormalization", inputs, operation.outputs, epsilon=float(operation.attributes["epsilon"]))  # type: ignore[arg-type]


def _shaped(nodes: Nodes, operation: GraphOperation) -> None:
    shape = nodes.tensor(operation.outputs[0]).shape
    _reshaped(nodes, _name(operation.inputs["input"]), shape, operation.outputs)


def _transpose(nodes: Nodes, operation: GraphOperation) -> None:
    data, axes = _name(operation.inputs["input"]), _integers(operation, "axes")
    rest = range(len(axes), len(nodes.tensor(data).shape))
    nodes.node("Transpose", [data], operation.outputs, perm=[*axes, *rest])


def _concat(nodes: Nodes, operation: GraphOperation) -> None:
    values = operation.inputs["values"]
    names = [_name(item) for item in values] if isinstance(values, tuple) else [_name(values)]
    nodes.node("Concat", names, operation.outputs, axis=int(operation.attributes["axis"]))  # type: ignore[arg-type]


def _slice(nodes: Nodes, operation: GraphOperation) -> None:
    """A slice whose end is computed from the extents, since an end of 0 stands for the end of the axis."""
    data, axes = _name(operation.inputs["input"]), _integers(operation, "axes")
    begins = _integers(operation, "begin")
    strides = _integers(operation, "stride") if operation.attributes.get("stride") else [1] * len(axes)
    if any(step < 1 for step in strides):
        raise NoMapping("a negative stride")
    shape, result = nodes.tensor(data).shape, nodes.tensor(operation.outputs[0]).shape
    starts = [begin + shape[axis] if begin < 0 else begin for axis, begin in zip(axes, begins, strict=True)]
    ends = [s + (result[axis] - 1) * step + 1 for s, axis, step in zip(starts, axes, strides, strict=True)]
    parameters = [nodes.constant(np.array(items, np.int64)) for items in (starts, ends, axes, strides)]
    nodes.node("Slice", [data, *parameters], operation.outputs)


def _pad(nodes: Nodes, operation: GraphOperation) -> None:
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
    border = str(operation.attributes["border"])
    if border not in modes:
        raise NoMapping(f"a border {border!r}")
    pairs = [[int(item) for item in pair] for pair in operation.attributes["padding"]]  # type: ignore[union-attr, arg-type]
    pads = np.array([pair[0] for pair in pairs] + [pair[1] for pair in pairs], np.int64)
    value = np.array(float(operation.attributes["value"]), np.float32)  # type: ignore[arg-type]
    inputs = [_name(operation.inputs["input"]), nodes.constant(pads), nodes.constant(value)]
    nodes.node("Pad", inputs, operation.outputs, mode=modes[border])


def _rules() -> dict[str, Rule]:
    found: dict[str, Rule] = dict.fromkeys(_SAME, _same)
    found |= dict.fromkeys(_REDUCING, _reduced)
    found |= dict.fromkeys(("reshape", "squeeze", "unsqueeze"), _shaped)
    found |= dict.fromkeys(("min", "max"), _chosen) | dict.fromkeys(("leaky_relu", "elu"), _with_alpha)
    found |= dict.fromkeys(("max_pool", "avg_pool"), _pool)
    found |= {"clamp": _clamp, "sqr": _square, "rsqrt": _inverse_root, "softmax": _softmax, "conv": _conv}
    found["masked_softmax"] = _masked_softmax
    found |= {"linear": _linear, "matmul": _matmul, "batch_normalization": _normalised, "transpose": _transpose}
    return found | {"concat": _concat, "slice": _slice, "pad": _pad}


RULES: MappingProxyType[str, Rule] = MappingProxyType(_rules())
"""The rules, by operation of the graph."""
