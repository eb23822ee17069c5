"""Small models of ONNX for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cvm.errors import CvmError
from cvm.frontends import onnx as front
from cvm.lowering import lower
from cvm.program import Program
from cvm.session import Session

TYPES = {
    "float32": TensorProto.FLOAT, "int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int16": TensorProto.INT16,
    "int32": TensorProto.INT32, "int64": TensorProto.INT64, "bool": TensorProto.BOOL, "uint16": TensorProto.UINT16,
    "string": TensorProto.STRING, "complex64": TensorProto.COMPLEX64,
}  # fmt: skip

Shape = Sequence[int | str | None]


def value(name: str, data_type: str, shape: Shape | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TYPES[data_type], shape)


def made(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[str, Shape | None]],
    outputs: Mapping[str, str],
    constants: Mapping[str, Any] | None = None,
    opset: int = 21,
    **more: Any,
) -> onnx.ModelProto:
    """A model; constants are arrays, outputs have data types alone."""
    graph = helper.make_graph(
        nodes,
        "test",
        [value(name, *described) for name, described in inputs.items()],
        [value(name, data_type, None) for name, data_type in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, **more)


def compiled(model: onnx.ModelProto, op_set: int = 1, **settings: Any) -> Program:
    """The program of a model, with errors as the compiler gives them."""
    loaded = front.loads(model.SerializeToString(), front.Settings(**settings))
    try:
        return lower(loaded.graph, op_set=op_set)
    except CvmError as error:
        raise loaded.explained(error) from None


def results(model: onnx.ModelProto, data: Mapping[str, Any], op_set: int = 1, **settings: Any) -> dict[str, Any]:
    """The codes of all outputs."""
    program = compiled(model, op_set, **settings)
    found = Session(program, "numpy").run(
        {name: np.reshape(array, np.shape(array) or (1,)) for name, array in data.items()}, out_of_range="clamp"
    )
    return {item.name: found[item.name] for item in program.outputs}


def sandwich(
    op: str, shapes: Sequence[Sequence[int]], scale: float, attributes: Mapping[str, Any], constants: Mapping[str, Any]
) -> onnx.ModelProto:
    """DequantizeLinear of int8 inputs x0, x1, .. by 1/4, the operator, QuantizeLinear by ``scale``: y.

    ``constants`` follow as further operands, by names in order; empty arrays of name "" are left out.
    """
    fixed = {"quarter": np.float32(0.25), "scale": np.float32(scale), "zero": np.int8(0), **constants}
    nodes = [
        helper.make_node("DequantizeLinear", [f"x{i}", "quarter", "zero"], [f"real{i}"]) for i in range(len(shapes))
    ]
    operands = [f"real{i}" for i in range(len(shapes))] + list(constants)
    nodes.append(helper.make_node(op, operands, ["result"], name="tested", **attributes))
    nodes.append(helper.make_node("QuantizeLinear", ["result", "scale", "zero"], ["y"]))
    inputs: dict[str, tuple[str, Shape | None]] = {f"x{i}": ("int8", shape) for i, shape in enumerate(shapes)}
    return made(nodes, inputs, {"y": "int8"}, fixed)
