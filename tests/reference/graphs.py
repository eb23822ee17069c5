"""Graphs of one operation, made by hand; their shapes are those that the front end infers."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cvm.frontends.nnef.declarations import standard_library
from cvm.frontends.nnef.types import ArrayType, TensorType, has_tensor
from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph, TensorData
from cvm.graph.shapes import ShapeCall, infer_shapes
from cvm.quantization import Quantizer
from cvm.reference import OPERATIONS, Reference
from cvm.reference.registry import Array

DataType = Literal["scalar", "integer", "logical"]
_KINDS: Mapping[str, DataType] = {"f": "scalar", "i": "integer", "u": "integer", "b": "logical"}


def reals(*values: Any) -> npt.NDArray[np.float64]:
    """An array of scalars, row by row."""
    return np.array(values, np.float64)


def apply(name: str, **arguments: Any) -> Any:
    """The function of an operation, on arrays: for operations and attributes that 1.0.1 does not have."""
    return OPERATIONS[name].function(**arguments)


def data_type(x: Array) -> DataType:
    return _KINDS[x.dtype.kind]


def _exact(value: Any) -> Any:
    """An attribute as a graph holds it."""
    if isinstance(value, list | tuple):
        return tuple(map(_exact, value))
    return Fraction(value) if isinstance(value, float) else value


def graph_of(name: str, **arguments: Any) -> tuple[QuantizedGraph, dict[str, Array]]:
    """A graph that applies one operation of chapter 4 to externals, and the inputs to run it with.

    Tensor parameters are arrays, lists of arrays, or Python numbers, which stand for literals; what is not given has
    its default.
    """
    fragment = standard_library()[name]
    tensors: dict[str, GraphTensor] = {}
    feeds: dict[str, Array] = {}
    inputs: dict[str, Any] = {}
    shapes: dict[str, Any] = {}
    attributes: dict[str, Any] = {}

    def introduce(label: str, value: Any) -> tuple[Any, tuple[int, ...]]:
        if not isinstance(value, np.ndarray):
            return (value if isinstance(value, bool) else Fraction(value)), ()
        tensors[label] = GraphTensor(label, value.shape, "external", data_type(value))
        feeds[label] = value
        return label, value.shape

    for parameter in fragment.parameters:
        if not has_tensor(parameter.type):
            if parameter.name in arguments:
                attributes[parameter.name] = _exact(arguments.pop(parameter.name))
            else:
                assert parameter.default is not None, f"{name} needs {parameter.name}"
                attributes[parameter.name] = _DEFAULTS[name, parameter.name]
            continue
        value = arguments.pop(parameter.name, 0.0 if parameter.name == "bias" else None)
        assert value is not None, f"{name} needs {parameter.name}"
        if isinstance(value, list):
            pairs = [introduce(f"{parameter.name}{index}", item) for index, item in enumerate(value)]
            inputs[parameter.name] = tuple(label for label, _ in pairs)
            shapes[parameter.name] = [shape for _, shape in pairs]
        else:
            inputs[parameter.name], shapes[parameter.name] = introduce(parameter.name, value)
    assert not arguments, f"{name} has no {list(arguments)}"
    outputs: list[str] = []
    first: DataType = next((data_type(feed) for feed in reversed(feeds.values())), "scalar")
    for result, found in zip(fragment.results, infer_shapes(ShapeCall(name, shapes, attributes)), strict=True):
        item = result.type.item if isinstance(result.type, ArrayType) else result.type
        assert isinstance(item, TensorType)
        dtype: Any = first if item.name == "?" else item.name
        for shape in found if isinstance(found, list) else [found]:
            label = f"result{len(outputs)}"
            outputs.append(label)
            tensors[label] = GraphTensor(label, shape, "computed", dtype)
    operation = GraphOperation(name, inputs, attributes, tuple(outputs))
    return QuantizedGraph("one", tuple(feeds), tuple(outputs), tensors, (operation,)), feeds


def evaluate(name: str, **arguments: Any) -> tuple[Array, ...]:
    """The results of one operation of chapter 4."""
    graph, feeds = graph_of(name, **arguments)
    results = Reference(graph).run(feeds)
    return tuple(results[output] for output in graph.outputs)


def one(name: str, **arguments: Any) -> Array:
    """The only result of one operation of chapter 4."""
    (result,) = evaluate(name, **arguments)
    return result


def external(
    name: str, shape: tuple[int, ...], dtype: DataType = "scalar", quantizer: Quantizer | None = None
) -> GraphTensor:
    return GraphTensor(name, shape, "external", dtype, quantizer)


def computed(name: str, shape: tuple[int, ...], quantizer: Any = None, dtype: DataType = "scalar") -> GraphTensor:
    return GraphTensor(name, shape, "computed", dtype, quantizer)


def variable(name: str, values: Array, quantizer: Any = None, label: str | None = None) -> GraphTensor:
    data = TensorData(values)
    return GraphTensor(name, values.shape, "variable", data_type(values), quantizer, data, label or name)


def operation(name: str, outputs: str, attributes: Mapping[str, Any] | None = None, **inputs: Any) -> GraphOperation:
    """An operation; ``outputs`` are names separated by blanks."""
    return GraphOperation(name, inputs, attributes or {}, tuple(outputs.split()))


def graph(inputs: str, outputs: str, tensors: list[GraphTensor], *operations: GraphOperation) -> QuantizedGraph:
    """A graph; names separated by blanks."""
    table = {tensor.name: tensor for tensor in tensors}
    return QuantizedGraph("test", tuple(inputs.split()), tuple(outputs.split()), table, operations)


_EMPTY = ("padding", "stride", "dilation", "output_shape")
_WINDOWED = ("conv", "deconv", "box", "debox", "argmax_pool", "sample", "desample", "max_pool_with_index", "max_pool")
_DEFAULTS: dict[tuple[str, str], Any] = {
    (name, attribute): value
    for name in (*_WINDOWED, "avg_pool", "rms_pool", "separable_conv", "separable_deconv")
    for attribute, value in [("border", "constant"), ("groups", 1), ("normalize", False), *((e, ()) for e in _EMPTY)]
} | {
    ("multilinear_upsample", "method"): "symmetric",
    ("multilinear_upsample", "border"): "replicate",
    ("sum_reduce", "normalize"): False,
    ("roi_resample", "method"): "symmetric",
    ("avg_roi_align", "resize_method"): "symmetric",
    ("max_roi_align", "resize_method"): "symmetric",
    ("matmul", "transposeA"): False,
    ("matmul", "transposeB"): False,
    ("softmax", "axes"): (1,),
    ("local_response_normalization", "alpha"): Fraction(1),
    ("local_response_normalization", "beta"): Fraction(1, 2),
    ("local_response_normalization", "bias"): Fraction(1),
    **{
        (f"{name}_normalization", attribute): Fraction(0)
        for name in ("local_variance", "local_contrast", "l1", "l2")
        for attribute in ("bias", "epsilon")
    },
}
"""Default values of attributes, as the document prints them."""
