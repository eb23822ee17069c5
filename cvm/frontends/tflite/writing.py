"""Small TFLite models, written with the classes of the schema: for conformance cases, tests and fuzzers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
import tflite

from cvm.records import dataclass

__all__ = ["Array", "Graph", "Operator", "Tensor", "written"]

Array = npt.NDArray[Any]

_DTYPES = {
    "float32": 0,
    "int32": 2,
    "uint8": 3,
    "int64": 4,
    "bool": 6,
    "int16": 7,
    "int8": 9,
    "resource": 13,
    "int4": 17,
}


@dataclass(frozen=True, eq=False)
class Tensor:
    """One tensor: a constant if it has values. Scales are float32."""

    shape: Sequence[int]
    data_type: str = "int8"
    scales: Sequence[float] = ()
    zeros: Sequence[int] = ()
    axis: int = 0
    values: Array | None = None
    name: str = ""
    is_variable: bool = False
    signature: Sequence[int] | None = None

    def encoded(self) -> bytes:
        """The bytes of a constant."""
        if self.values is None:
            return b""
        if self.data_type == "int4":
            items = np.append(self.values.ravel().astype(np.int64) & 15, np.zeros(self.values.size % 2, np.int64))
            return bytes((items[::2] | items[1::2] << 4).astype(np.uint8))
        return np.ascontiguousarray(self.values, np.dtype(self.data_type)).tobytes()


@dataclass(frozen=True)
class Operator:
    """One operator: its name in the schema, numbers of tensors, the class of its options and their fields."""

    op: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    kind: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    intermediates: Sequence[int] = ()
    custom: bytes = b""


@dataclass(frozen=True)
class Graph:
    """A subgraph."""

    tensors: Sequence[Tensor]
    operators: Sequence[Operator]
    inputs: Sequence[int]
    outputs: Sequence[int]


def written(*graphs: Graph, version: int = 3) -> bytes:
    """The file of a model."""
    builder = flatbuffers.Builder(1024)
    codes = list(dict.fromkeys(operator.op for graph in graphs for operator in graph.operators))
    code_tables = [_code(builder, code) for code in codes]
    buffers: list[bytes] = [b""]
    subgraphs = [_graph(builder, graph, codes, buffers) for graph in graphs]
    stored = [_buffer(builder, data) for data in buffers]
    vectors = [_vector(builder, items) for items in (code_tables, subgraphs, stored)]
    tflite.ModelStart(builder)
    tflite.ModelAddVersion(builder, version)
    tflite.ModelAddOperatorCodes(builder, vectors[0])
    tflite.ModelAddSubgraphs(builder, vectors[1])
    tflite.ModelAddBuffers(builder, vectors[2])
    builder.Finish(tflite.ModelEnd(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _vector(builder: Any, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    found: int = builder.EndVector()
    return found


def _numbers(builder: Any, items: Sequence[float], dtype: type[np.generic] = np.int32) -> int:
    found: int = builder.CreateNumpyVector(np.array(items, dtype))
    return found


def _code(builder: Any, code: str) -> int:
    custom = builder.CreateString(code.removeprefix("CUSTOM.")) if code.startswith("CUSTOM.") else None
    number = getattr(tflite.BuiltinOperator, "CUSTOM" if custom else code)
    tflite.OperatorCodeStart(builder)
    tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, min(number, 127))
    tflite.OperatorCodeAddBuiltinCode(builder, number)
    if custom:
        tflite.OperatorCodeAddCustomCode(builder, custom)
    found: int = tflite.OperatorCodeEnd(builder)
    return found


def _buffer(builder: Any, data: bytes) -> int:
    contents = builder.CreateNumpyVector(np.frombuffer(data, np.uint8)) if data else None
    tflite.BufferStart(builder)
    if contents is not None:
        tflite.BufferAddData(builder, contents)
    found: int = tflite.BufferEnd(builder)
    return found


def _graph(builder: Any, graph: Graph, codes: Sequence[str], buffers: list[bytes]) -> int:
    tensors = _vector(builder, [_tensor(builder, tensor, i, buffers) for i, tensor in enumerate(graph.tensors)])
    operators = _vector(builder, [_operator(builder, operator, codes) for operator in graph.operators])
    inputs, outputs = _numbers(builder, graph.inputs), _numbers(builder, graph.outputs)
    tflite.SubGraphStart(builder)
    tflite.SubGraphAddTensors(builder, tensors)
    tflite.SubGraphAddInputs(builder, inputs)
    tflite.SubGraphAddOutputs(builder, outputs)
    tflite.SubGraphAddOperators(builder, operators)
    found: int = tflite.SubGraphEnd(builder)
    return found


def _tensor(builder: Any, tensor: Tensor, index: int, buffers: list[bytes]) -> int:
    number = 0
    if tensor.values is not None:
        number = len(buffers)
        buffers.append(tensor.encoded())
    name, shape = builder.CreateString(tensor.name or f"t{index}"), _numbers(builder, tensor.shape)
    signature = None if tensor.signature is None else _numbers(builder, tensor.signature)
    quantization = None
    if tensor.scales:
        scales = _numbers(builder, tensor.scales, np.float32)
        zeros = _numbers(builder, tensor.zeros or [0] * len(tensor.scales), np.int64)
        tflite.QuantizationParametersStart(builder)
        tflite.QuantizationParametersAddScale(builder, scales)
        tflite.QuantizationParametersAddZeroPoint(builder, zeros)
        tflite.QuantizationParametersAddQuantizedDimension(builder, tensor.axis)
        quantization = tflite.QuantizationParametersEnd(builder)
    tflite.TensorStart(builder)
    tflite.TensorAddShape(builder, shape)
    tflite.TensorAddType(builder, _DTYPES[tensor.data_type])
    tflite.TensorAddBuffer(builder, number)
    tflite.TensorAddName(builder, name)
    tflite.TensorAddIsVariable(builder, tensor.is_variable)
    if quantization is not None:
        tflite.TensorAddQuantization(builder, quantization)
    if signature is not None:
        tflite.TensorAddShapeSignature(builder, signature)
    found: int = tflite.TensorEnd(builder)
    return found


def _operator(builder: Any, operator: Operator, codes: Sequence[str]) -> int:
    lists = [_numbers(builder, items) for items in (operator.inputs, operator.outputs, operator.intermediates)]
    custom = builder.CreateNumpyVector(np.frombuffer(operator.custom, np.uint8)) if operator.custom else None
    options = None
    if operator.kind:
        made = {}
        for name, value in operator.options.items():
            if isinstance(value, str):
                made[name] = builder.CreateString(value)
            else:
                made[name] = _numbers(builder, value) if isinstance(value, list | tuple) else value
        getattr(tflite, f"{operator.kind}Start")(builder)
        for name, value in made.items():
            getattr(tflite, f"{operator.kind}Add{name}")(builder, value)
        options = getattr(tflite, f"{operator.kind}End")(builder)
    tflite.OperatorStart(builder)
    tflite.OperatorAddOpcodeIndex(builder, codes.index(operator.op))
    tflite.OperatorAddInputs(builder, lists[0])
    tflite.OperatorAddOutputs(builder, lists[1])
    if operator.intermediates:
        tflite.OperatorAddIntermediates(builder, lists[2])
    if options is not None:
        tflite.OperatorAddBuiltinOptionsType(builder, getattr(tflite.BuiltinOptions, operator.kind))
        tflite.OperatorAddBuiltinOptions(builder, options)
    if custom is not None:
        tflite.OperatorAddCustomOptions(builder, custom)
    found: int = tflite.OperatorEnd(builder)
    return found
