"""Builds a float ONNX model: nodes, and constants from a fixed seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Array", "Net"]

OPSET = 17
IR_VERSION = 8

Array = npt.NDArray[Any]
_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}


class Net:
    """A model with inputs and outputs of fixed shapes; ``add`` writes a node and names its result."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name = name
        self.random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._shared: dict[tuple[Any, ...], str] = {}

    def input(self, name: str, shape: Sequence[int], data_type: str = "float32") -> str:
        """An input of the model."""
        self._inputs.append(helper.make_tensor_value_info(name, _TYPES[data_type], shape))
        return name

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """A node; returns its first result."""
        return self.add_many(op, *inputs, outputs=outputs, **attributes)[0]

    def add_many(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        """A node with several results."""
        name = f"{op.lower()}_{len(self._nodes)}"
        results = [name if not i else f"{name}.{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(op, inputs, results, name=name, **attributes))
        return results

    def constant(self, values: Any, wish: str = "constant") -> str:
        """A constant; floats are float32, integers int64."""
        array = np.asarray(values)
        array = array.astype({"f": np.float32, "b": np.bool_}.get(array.dtype.kind, np.int64))
        name = f"{wish}_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def shared(self, *values: int) -> str:
        """A constant list of integers, stored once."""
        if values not in self._shared:
            self._shared[values] = self.constant(np.array(values), "list")
        return self._shared[values]

    def weights(self, *shape: int, spread: float | None = None) -> str:
        """Random normal weights with the spread that keeps the size of numbers."""
        fan = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        deviation = spread if spread is not None else (2 / fan) ** 0.5
        return self.constant(self.random.normal(0, deviation, shape), "weights")

    def bias(self, count: int) -> str:
        """A random bias."""
        return self.constant(self.random.normal(0, 0.1, count), "bias")

    def made(self, *outputs: str) -> onnx.ModelProto:
        """The model."""
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self._nodes, self.name, self._inputs, results, self._constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = IR_VERSION
        model = onnx.shape_inference.infer_shapes(model)
        onnx.checker.check_model(model)
        return model
