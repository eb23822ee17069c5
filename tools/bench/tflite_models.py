"""The networks as TFLite models: int8 maps, channels last, weights with a scale per output channel.

A map's code is the network's code less 128. TFLite knows the paddings VALID and SAME. If SAME is not the network's
padding (a window of stride 2 over an even extent begins one row later), a PAD precedes, as converters write it.
``own_padding`` uses SAME nevertheless: the same work without a PAD, on windows at other positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from tools.bench.networks import Codes, Layer, Network, parameters

__all__ = ["tflite_model"]

_OPERATORS = {
    "conv": (schema.BuiltinOperator.CONV_2D, 3),
    "depthwise": (schema.BuiltinOperator.DEPTHWISE_CONV_2D, 3),
    "dense": (schema.BuiltinOperator.FULLY_CONNECTED, 4),
    "add": (schema.BuiltinOperator.ADD, 2),
    "max_pool": (schema.BuiltinOperator.MAX_POOL_2D, 2),
    "mean": (schema.BuiltinOperator.AVERAGE_POOL_2D, 2),
    "pad": (schema.BuiltinOperator.PADV2, 2),
}
"""The operator and its version, by kind of layer."""


def tflite_model(network: Network, batch: int = 1, own_padding: bool = False) -> bytes:
    """The network as a flatbuffer; the input is (N, H, W, C), the output likewise, or (N, C) behind a dense layer."""
    made = _Graph(batch, own_padding)
    made.map("x", network.input, network.input_codes)
    for layer in network.layers:
        made.layer(network, layer)
    builder = flatbuffers.Builder(1024)
    builder.Finish(made.model(network.name, "x", network.layers[-1].name).Pack(builder), b"TFL3")
    return bytes(builder.Output())


class _Graph:
    """Tensors by name, their buffers, and operators."""

    def __init__(self, batch: int, own_padding: bool) -> None:
        self.batch, self.own_padding = batch, own_padding
        self.numbers: dict[str, int] = {}
        self.tensors: list[Any] = []
        self.buffers: list[Any] = [schema.BufferT()]
        self.operators: list[Any] = []
        self.codes: list[str] = []

    def tensor(
        self, name: str, shape: Sequence[int], type_: int, quantization: Any, data: npt.NDArray[Any] | None
    ) -> None:
        made = schema.TensorT()
        made.name, made.shape, made.type, made.quantization = name.encode(), list(shape), type_, quantization
        made.buffer = 0
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            made.buffer = len(self.buffers)
            self.buffers.append(buffer)
        self.numbers[name] = len(self.tensors)
        self.tensors.append(made)

    def map(self, name: str, shape: tuple[int, int, int], codes: Codes, data: npt.NDArray[Any] | None = None) -> None:
        """A tensor of codes (C, H, W)."""
        channels, height, width = shape
        scales = np.array([float(codes.scale)], np.float32)
        quantization = _quantization(scales, [codes.zero - 128], 0)
        self.tensor(name, (self.batch, height, width, channels), schema.TensorType.INT8, quantization, data)

    def vector(self, name: str, shape: tuple[int, int], codes: Codes) -> None:
        """A tensor of codes (N, C)."""
        quantization = _quantization(np.array([float(codes.scale)], np.float32), [codes.zero - 128], 0)
        self.tensor(name, shape, schema.TensorType.INT8, quantization, None)

    def operator(self, kind: str, inputs: Sequence[str], output: str, options: Any, type_: int) -> None:
        made = schema.OperatorT()
        if kind not in self.codes:
            self.codes.append(kind)
        made.opcodeIndex = self.codes.index(kind)
        made.inputs, made.outputs = [self.numbers[name] for name in inputs], [self.numbers[output]]
        made.builtinOptions, made.builtinOptionsType = options, type_
        self.operators.append(made)

    def layer(self, network: Network, layer: Layer) -> None:
        if layer.kind == "dense":
            self.vector(layer.name, (self.batch, layer.shape[0]), layer.codes)
            self._dense(network, layer)
            return
        self.map(layer.name, layer.shape, layer.codes)
        if layer.kind == "add":
            self.operator("add", layer.sources, layer.name, schema.AddOptionsT(), schema.BuiltinOptions.AddOptions)
        elif layer.kind == "conv":
            self._convolution(network, layer)
        else:
            self._pool(network, layer)

    def _pool(self, network: Network, layer: Layer) -> None:
        options = schema.Pool2DOptionsT()
        _, height, width = network.shape(layer.sources[0])
        whole = layer.kind == "mean"
        options.filterHeight, options.filterWidth = (height, width) if whole else (layer.kernel,) * 2
        options.strideH = options.strideW = layer.stride
        source, options.padding = (layer.sources[0], schema.Padding.VALID) if whole else self._padded(network, layer)
        self.operator(layer.kind, [source], layer.name, options, schema.BuiltinOptions.Pool2DOptions)

    def _convolution(self, network: Network, layer: Layer) -> None:
        source, padding = self._padded(network, layer)
        depthwise = layer.groups > 1
        found = parameters(network, layer)
        order = (1, 2, 3, 0) if depthwise else (0, 2, 3, 1)
        self._weights(network, layer, found.weights.transpose(order), 3 if depthwise else 0)
        options = schema.DepthwiseConv2DOptionsT() if depthwise else schema.Conv2DOptionsT()
        if depthwise:
            options.depthMultiplier = 1
        options.padding, options.strideH, options.strideW = padding, layer.stride, layer.stride
        options.dilationHFactor = options.dilationWFactor = 1
        kind = schema.BuiltinOptions.DepthwiseConv2DOptions if depthwise else schema.BuiltinOptions.Conv2DOptions
        inputs = [source, f"{layer.name}.weights", f"{layer.name}.bias"]
        self.operator("depthwise" if depthwise else "conv", inputs, layer.name, options, kind)

    def _dense(self, network: Network, layer: Layer) -> None:
        found = parameters(network, layer)
        channels, height, width = network.shape(layer.sources[0])
        weights = found.weights.reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
        self._weights(network, layer, weights.reshape(found.weights.shape), 0)
        inputs = [layer.sources[0], f"{layer.name}.weights", f"{layer.name}.bias"]
        options = schema.FullyConnectedOptionsT()
        self.operator("dense", inputs, layer.name, options, schema.BuiltinOptions.FullyConnectedOptions)

    def _weights(self, network: Network, layer: Layer, weights: npt.NDArray[np.int8], axis: int) -> None:
        found = parameters(network, layer)
        zeros = [0] * len(found.scales)
        quantization = _quantization(found.scales, zeros, axis)
        self.tensor(f"{layer.name}.weights", weights.shape, schema.TensorType.INT8, quantization, weights)
        source = np.float32(float(network.codes(layer.sources[0]).scale))
        scales = _quantization(source * found.scales, zeros, 0)
        self.tensor(f"{layer.name}.bias", found.bias.shape, schema.TensorType.INT32, scales, found.bias)

    def _padded(self, network: Network, layer: Layer) -> tuple[str, int]:
        """The source of a window, padded by an operator if necessary, and the padding of the window itself."""
        source = layer.sources[0]
        if layer.padding == 0:
            return source, schema.Padding.VALID
        channels, *extents = network.shape(source)
        totals = [max(0, (-(-n // layer.stride) - 1) * layer.stride + layer.kernel - n) for n in extents]
        if self.own_padding or all(total == 2 * layer.padding for total in totals):
            return source, schema.Padding.SAME
        codes, name, edge = network.codes(source), f"{layer.name}.padded", layer.padding
        height, width = (n + 2 * edge for n in extents)
        self.map(name, (channels, height, width), codes)
        edges = np.array([[0, 0], [edge, edge], [edge, edge], [0, 0]], np.int32)
        self.tensor(f"{name}.edges", (4, 2), schema.TensorType.INT32, None, edges)
        least = -128 if layer.kind == "max_pool" else codes.zero - 128
        quantization = _quantization(np.array([float(codes.scale)], np.float32), [codes.zero - 128], 0)
        self.tensor(f"{name}.value", (1,), schema.TensorType.INT8, quantization, np.array([least], np.int8))
        inputs = [source, f"{name}.edges", f"{name}.value"]
        self.operator("pad", inputs, name, schema.PadV2OptionsT(), schema.BuiltinOptions.PadV2Options)
        return name, schema.Padding.VALID

    def model(self, name: str, source: str, result: str) -> Any:
        graph = schema.SubGraphT()
        graph.name, graph.tensors, graph.operators = name.encode(), self.tensors, self.operators
        graph.inputs, graph.outputs = [self.numbers[source]], [self.numbers[result]]
        made = schema.ModelT()
        made.version, made.description, made.subgraphs, made.buffers = 3, name.encode(), [graph], self.buffers
        made.operatorCodes = [_operator_code(*_OPERATORS[kind]) for kind in self.codes]
        return made


def _operator_code(number: int, version: int) -> Any:
    made = schema.OperatorCodeT()
    made.builtinCode, made.version = number, version
    made.deprecatedBuiltinCode = min(number, 127)
    return made


def _quantization(scales: npt.NDArray[np.float32], zeros: Sequence[int], axis: int) -> Any:
    made = schema.QuantizationParametersT()
    made.scale, made.zeroPoint, made.quantizedDimension = scales, np.array(zeros, np.int64), axis
    return made
