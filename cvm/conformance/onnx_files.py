"""Layers written as models of ONNX: between QuantizeLinear and DequantizeLinear, or as operators on codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cvm.conformance.cases import Array, Layer, Tensor

__all__ = ["integer_model", "qdq_model", "qoperator_model"]

_OPSET, _IR = 21, 10


def qdq_model(layer: Layer) -> tuple[bytes, dict[str, Array]]:
    """The operator on floats, with DequantizeLinear before and QuantizeLinear after it, and the codes of its inputs.

    The result "y" is dequantised once more, since some engines give no integers.
    """
    made = _Model()
    operands = [made.dequantised(f"x{number}", tensor) for number, tensor in enumerate(layer.inputs)]
    made.node(layer.op, operands, ["real"], layer.attributes)
    quantiser = made.quantiser("y", (layer.scale,), layer.zero, layer.data_type)
    made.node("QuantizeLinear", ["real", *quantiser], ["y"], {})
    return made.finished(quantiser)


def qoperator_model(layer: Layer, bias: Tensor | None = None) -> tuple[bytes, dict[str, Array]]:
    """An operator on codes, such as QLinearConv: each operand is followed by its scale and its zero point."""
    made = _Model()
    operands = []
    for number, tensor in enumerate(layer.inputs):
        operands += [made.values(f"x{number}", tensor)]
        if tensor.scales:
            operands += made.quantiser(f"x{number}", tensor.scales, tensor.zero, tensor.data_type)
    biases = [] if bias is None else [made.values("bias", bias)]
    quantiser = made.quantiser("y", (layer.scale,), layer.zero, layer.data_type)
    if layer.op == "com.microsoft.QLinearConcat":
        operands = [*quantiser, *operands]
    elif layer.op == "com.microsoft.QGemm":
        operands = [*operands, *(biases or [""]), *quantiser]
    else:
        operands = [*operands, *quantiser, *biases]
    made.node(layer.op, operands, ["y"], layer.attributes)
    return made.finished(quantiser)


def integer_model(layer: Layer) -> tuple[bytes, dict[str, Array]]:
    """ConvInteger or MatMulInteger, and a quantisation of its sums: the sums are codes of ``layer.scale`` there."""
    made = _Model()
    operands = [made.values(f"x{number}", tensor) for number, tensor in enumerate(layer.inputs)]
    zeros = [
        made.quantiser(f"x{number}", (1.0,), tensor.zero, tensor.data_type)[1]
        for number, tensor in enumerate(layer.inputs)
    ]
    made.node(layer.op, [*operands, *zeros], ["sums"], layer.attributes)
    made.node("Cast", ["sums"], ["real"], {"to": 1})
    quantiser = made.quantiser("y", (layer.scale,), layer.zero, layer.data_type)
    made.node("QuantizeLinear", ["real", *quantiser], ["y"], {})
    return made.finished(quantiser)


class _Model:
    """A model under construction."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: dict[str, Array] = {}
        self._inputs: dict[str, Array] = {}

    def values(self, name: str, tensor: Tensor) -> str:
        """The integers of a tensor, as a constant or an input."""
        array = np.asarray(tensor.values).astype(tensor.data_type)
        (self._constants if tensor.stored else self._inputs)[name] = array
        return name

    def quantiser(self, name: str, scales: tuple[float, ...], zero: int, data_type: str) -> list[str]:
        """The names of constants with a scale and a zero point."""
        scale: Array = np.array(scales, np.float32)
        points = np.full(scale.shape, zero, data_type)
        single = len(scales) == 1
        self._constants[f"{name}_scale"] = scale.reshape(()) if single else scale
        self._constants[f"{name}_zero"] = points.reshape(()) if single else points
        return [f"{name}_scale", f"{name}_zero"]

    def dequantised(self, name: str, tensor: Tensor) -> str:
        """The name of the real numbers of a tensor; plain values are themselves."""
        held = self.values(name, tensor)
        if not tensor.scales:
            return held
        quantiser = self.quantiser(name, tensor.scales, tensor.zero, tensor.data_type)
        axis = {"axis": tensor.axis} if len(tensor.scales) > 1 else {}
        self.node("DequantizeLinear", [held, *quantiser], [f"{name}_real"], axis)
        return f"{name}_real"

    def node(self, op: str, operands: list[str], results: list[str], attributes: Mapping[str, Any]) -> None:
        """Add a node. The domain stands before the name of an operator."""
        from onnx import helper

        domain, _, name = op.rpartition(".")
        self._nodes.append(helper.make_node(name, operands, results, name=results[0], domain=domain, **attributes))

    def finished(self, quantiser: list[str]) -> tuple[bytes, dict[str, Array]]:
        """The file, whose output is "y", dequantised, and the codes of its inputs."""
        from onnx import TensorProto, helper, numpy_helper

        self.node("DequantizeLinear", ["y", *quantiser], ["value"], {})
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self._inputs.items()
        ]
        constants = [numpy_helper.from_array(array, name) for name, array in self._constants.items()]
        output = helper.make_tensor_value_info("value", TensorProto.FLOAT, None)
        graph = helper.make_graph(self._nodes, "conformance", inputs, [output], constants)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR)
        return model.SerializeToString(), dict(self._inputs)
