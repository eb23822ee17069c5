"""One node as a graph: built with the interface, verified, processed, and the same program on every executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cvm import openvx as vx
from cvm.agreement import compare
from cvm.executors import create
from cvm.program.verifier import verify

Array = npt.NDArray[Any]
Compat = Literal["spec", "khronos-sample-1.3"]

FORMATS = {"U8": (vx.TYPE_UINT8, 0), "S8": (vx.TYPE_INT8, 0), "S16": (vx.TYPE_INT16, 8)}
DTYPES = {"U8": np.uint8, "S8": np.int8, "S16": np.int16}

_PREFIXES = {
    "overflow_policy": "CONVERT_POLICY_",
    "rounding_policy": "ROUND_POLICY_",
    "down_scale_size_rounding": "NN_DS_SIZE_ROUNDING_",
    "rounding": "NN_DS_SIZE_ROUNDING_",
    "pooling_type": "NN_POOLING_",
    "pool_type": "NN_POOLING_",
    "function": "NN_ACTIVATION_",
    "type": "NN_NORMALIZATION_",
}


def enumerated(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with the enumerators that their names stand for."""
    return {
        name: getattr(vx, _PREFIXES[name] + value) if name in _PREFIXES else value for name, value in params.items()
    }


class Case:
    """A graph of one node, verified."""

    def __init__(
        self,
        kernel: str,
        fmt: str,
        params: Mapping[str, Any],
        arrays: Mapping[str, Array],
        shape: Sequence[int],
        compat: Compat = "spec",
        executor: str = "numpy",
    ) -> None:
        self.context = vx.create_context(executor=executor)
        self.graph = vx.create_graph(self.context, compat)
        data_type, point = FORMATS[fmt]
        self.tensors = {
            name: vx.create_tensor(self.context, items.shape[::-1], data_type, point, name).copy_from(items)
            for name, items in arrays.items()
        }
        self.output = vx.create_tensor(self.context, tuple(shape)[::-1], data_type, point, "outputs")
        self.node = self._node(kernel, enumerated(params))
        self.graph.verify()

    def _node(self, kernel: str, p: dict[str, Any]) -> vx.OpenvxNode:
        graph, t, y = self.graph, self.tensors, self.output
        x = t.get("inputs", y)
        if kernel == "convolution":
            names = vx.NNConvolutionParams.__dataclass_fields__
            params = vx.NNConvolutionParams(**{name: p[name] for name in names})
            return vx.convolution_layer(graph, x, t["weights"], t.get("biases"), params, y)
        if kernel == "deconvolution":
            names = vx.NNDeconvolutionParams.__dataclass_fields__
            transposed = vx.NNDeconvolutionParams(**{name: p[name] for name in names})
            return vx.deconvolution_layer(graph, x, t["weights"], t.get("biases"), transposed, y)
        if kernel == "fully_connected":
            policies = p["overflow_policy"], p["rounding_policy"]
            return vx.fully_connected_layer(graph, x, t["weights"], t.get("biases"), *policies, y)
        if kernel == "pooling":
            keys = ("pooling_size_x", "pooling_size_y", "pooling_padding_x", "pooling_padding_y")
            sizes = {key: p[key] for key in keys}
            return vx.pooling_layer(graph, x, p["pooling_type"], rounding=p["rounding"], outputs=y, **sizes)
        if kernel == "softmax":
            return vx.softmax_layer(graph, x, y)
        if kernel == "activation":
            return vx.activation_layer(graph, x, p["function"], p["a"], p["b"], y)
        if kernel == "roi_pooling":
            return vx.roi_pooling_layer(graph, t["input_data"], t["input_rois"], vx.NNROIPoolParams(), y)
        arguments = p["type"], p["normalization_size"], p["alpha"], p["beta"]
        if p.get("bias", 1) == 1:
            return vx.normalization_layer(graph, x, *arguments, y)
        return vx.local_response_normalization_layer(graph, x, *arguments, p["bias"], y)

    def result(self) -> Array:
        """The output of one run."""
        self.graph.process()
        return self.output.numpy()

    def agree(self, executors: Sequence[str] = ("numpy", "formal", "native")) -> None:
        """Assert that all tensors of the program are the same on all executors."""
        verified = verify(self.graph.program)
        feeds = {
            item.value.name: tensor.numpy().astype(np.int32)
            for item, tensor in zip(self.graph.program.inputs, self.graph.inputs, strict=True)
        }
        machines = [create(name, verified, 1) for name in executors]
        agreement = compare(self.graph.program, machines, [[feeds]])
        assert agreement.difference is None
        assert agreement.elements > 0
