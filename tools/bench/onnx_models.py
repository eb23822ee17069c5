"""The networks as ONNX models: ``qdq`` (float operators between DequantizeLinear and QuantizeLinear) and ``qlinear``.

Maps are uint8, weights int8 with a scale per output channel, biases int32, as quantisation tools write them for CPUs.
A rectifier is the lower end of the codes, to which both forms saturate. The input is ``x`` (N, C, H, W), the output is
``y``. ``symmetric_model`` is the form that quantisation tools write for GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.bench.networks import Layer, Network, parameters

__all__ = ["onnx_model", "symmetric_model"]

OPSET = 17
MICROSOFT = "com.microsoft"


def onnx_model(network: Network, form: Literal["qdq", "qlinear"], batch: int = 1) -> onnx.ModelProto:
    """The network in one of the two forms, for a fixed batch."""
    made = _Graph(network)
    write = made.qdq if form == "qdq" else made.qlinear
    for layer in network.layers:
        write(layer)
    last = network.layers[-1]
    shape = (batch, *last.shape) if last.kind != "dense" else (batch, last.shape[0])
    made.node("Identity", [last.name], "y")
    graph = helper.make_graph(
        made.nodes,
        network.name,
        [helper.make_tensor_value_info("x", TensorProto.UINT8, (batch, *network.input))],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, shape)],
        list(made.constants.values()),
    )
    domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=domains)
    model.ir_version = 8
    return model


def symmetric_model(network: Network, batch: int) -> onnx.ModelProto:
    """The network in ``qdq`` form with signed codes without zero points, and real inputs and outputs.

    TensorRT accepts no other codes. They are not those of the other forms, so this form serves timing alone.
    """
    made = _Symmetric(network)
    made.node("QuantizeLinear", ["given", *made.codes("x")], "x")
    for layer in network.layers:
        made.qdq(layer)
    last = network.layers[-1]
    made.node("DequantizeLinear", [last.name, *made.codes(last.name)], "y")
    shape = (batch, *last.shape) if last.kind != "dense" else (batch, last.shape[0])
    graph = helper.make_graph(
        made.nodes,
        network.name,
        [helper.make_tensor_value_info("given", TensorProto.FLOAT, (batch, *network.input))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        list(made.constants.values()),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = 8
    return model


class _Graph:
    """Nodes and constants; every tensor of codes has the layer's name."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self._real: set[str] = set()

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        domain = MICROSOFT if op in ("QLinearAdd", "QLinearGlobalAveragePool", "QGemm") else ""
        self.nodes.append(helper.make_node(op, inputs, [output], domain=domain, **attributes))
        return output

    def constant(self, name: str, values: Any) -> str:
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.asarray(values, order="C"), name)
        return name

    def codes(self, name: str) -> tuple[str, str]:
        """The scale and the zero point of a tensor."""
        codes = self.network.codes(name)
        scale, zero = np.float32(float(codes.scale)), np.uint8(codes.zero)
        return self.constant(f"{name}.scale", scale), self.constant(f"{name}.zero", zero)

    def flat(self, layer: Layer, source: str) -> str:
        """The source of a dense layer, with two axes."""
        producer = {item.name: item.kind for item in self.network.layers}.get(layer.sources[0])
        return source if producer == "dense" else self.node("Flatten", [source], f"{layer.name}.flat")

    # QDQ ------------------------------------------------------------------------------------------------------------

    def real(self, name: str) -> str:
        """The real numbers of a tensor."""
        output = f"{name}.real"
        if name not in self._real:
            self._real.add(name)
            self.node("DequantizeLinear", [name, *self.codes(name)], output)
        return output

    def real_parameters(self, layer: Layer) -> list[str]:
        """The real weights, in the order of Conv or Gemm with transB, and biases."""
        found = parameters(self.network, layer)
        scales = self.constant(f"{layer.name}.scales", found.scales)
        zeros = self.constant(f"{layer.name}.zeros", np.zeros(len(found.scales), np.int8))
        weights = self.constant(f"{layer.name}.weights", found.weights)
        source = np.float32(float(self.network.codes(layer.sources[0]).scale))
        bias = self.constant(f"{layer.name}.bias", found.bias)
        bias_scales = self.constant(f"{layer.name}.bias.scales", source * found.scales)
        bias_zeros = self.constant(f"{layer.name}.bias.zeros", np.zeros(len(found.scales), np.int32))
        return [
            self.node("DequantizeLinear", [weights, scales, zeros], f"{layer.name}.weights.real", axis=0),
            self.node("DequantizeLinear", [bias, bias_scales, bias_zeros], f"{layer.name}.bias.real", axis=0),
        ]

    def qdq(self, layer: Layer) -> None:
        sources = [self.real(name) for name in layer.sources]
        unrounded = f"{layer.name}.unrounded"
        if layer.kind == "conv":
            inputs = [*sources, *self.real_parameters(layer)]
            self.node("Conv", inputs, unrounded, **_geometry(layer), group=layer.groups)
        elif layer.kind == "dense":
            self.node("Gemm", [self.flat(layer, sources[0]), *self.real_parameters(layer)], unrounded, transB=1)
        elif layer.kind == "max_pool":
            self.node("MaxPool", sources, unrounded, **_geometry(layer))
        else:
            self.node({"add": "Add", "mean": "GlobalAveragePool"}[layer.kind], sources, unrounded)
        self.node("QuantizeLinear", [unrounded, *self.codes(layer.name)], layer.name)

    # QLinear --------------------------------------------------------------------------------------------------------

    def qlinear(self, layer: Layer) -> None:
        source = layer.sources[0]
        given, target = (source, *self.codes(source)), self.codes(layer.name)
        if layer.kind == "max_pool":
            self.node("MaxPool", [source], layer.name, **_geometry(layer))
        elif layer.kind == "mean":
            self.node("QLinearGlobalAveragePool", [*given, *target], layer.name, channels_last=0)
        elif layer.kind == "add":
            other = layer.sources[1]
            self.node("QLinearAdd", [*given, other, *self.codes(other), *target], layer.name)
        else:
            found = parameters(self.network, layer)
            scales = self.constant(f"{layer.name}.scales", found.scales)
            zeros = self.constant(f"{layer.name}.zeros", np.zeros(len(found.scales), np.int8))
            bias = self.constant(f"{layer.name}.bias", found.bias)
            if layer.kind == "conv":
                weights = self.constant(f"{layer.name}.weights", found.weights)
                inputs = [*given, weights, scales, zeros, *target, bias]
                self.node("QLinearConv", inputs, layer.name, **_geometry(layer), group=layer.groups)
            else:
                weights = self.constant(f"{layer.name}.weights", found.weights.T)
                inputs = [self.flat(layer, source), *given[1:], weights, scales, zeros, bias, *target]
                self.node("QGemm", inputs, layer.name)


class _Symmetric(_Graph):
    """See `symmetric_model`. A rectifier is a node of its own, since the codes of its result do not end at zero."""

    def codes(self, name: str) -> tuple[str, str]:
        scale = np.float32(float(self.network.codes(name).scale))
        return self.constant(f"{name}.scale", scale), self.constant(f"{name}.zero", np.int8(0))

    def real_parameters(self, layer: Layer) -> list[str]:
        weights = super().real_parameters(layer)[0]
        self.nodes.pop()
        found = parameters(self.network, layer)
        source = np.float32(float(self.network.codes(layer.sources[0]).scale))
        return [
            weights,
            self.constant(f"{layer.name}.real.bias", (found.bias * source * found.scales).astype(np.float32)),
        ]

    def qdq(self, layer: Layer) -> None:
        super().qdq(layer)
        if layer.kind in ("conv", "dense", "add") and not self.network.codes(layer.name).zero:
            last = self.nodes.pop()
            last.input[0] = self.node("Relu", [last.input[0]], f"{layer.name}.rectified")
            self.nodes.append(last)


def _geometry(layer: Layer) -> dict[str, list[int]]:
    return {
        "kernel_shape": [layer.kernel] * 2, "strides": [layer.stride] * 2, "pads": [layer.padding] * 4
    }  # fmt: skip
