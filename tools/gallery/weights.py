"""Random weights for a published architecture whose file states only the shapes of its weights.

The light models of the onnx package make every weight with ConstantOfShape. The drawn weights are those with which
training would begin: normal filters with the variance 2 / fan-in (He et al. 2015), normalisation scales
of 1/2, so that sums over residual branches stay small, variances of 1, biases and means of 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["with_drawn_weights"]

_NORMALIZATION = {1: 0.5, 2: 0.0, 3: 0.0, 4: 1.0}
"""The weights of BatchNormalization by number of the input: scale, bias, mean, variance."""


def with_drawn_weights(data: bytes, seed: int = 0) -> bytes:
    """The model of ONNX with an initializer in place of every ConstantOfShape of a constant shape."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load_model_from_string(data)
    graph = model.graph
    constants = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    generator = np.random.default_rng(seed)
    kept = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in constants:
            shape = tuple(constants[node.input[0]].tolist())
            items = _drawn(graph, node.output[0], shape, generator)
            graph.initializer.append(numpy_helper.from_array(items.astype(np.float32), node.output[0]))
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)
    model.ir_version = max(model.ir_version, 8)  # before version 4, every initializer had to be an input as well
    found: bytes = model.SerializeToString()
    return found


def _drawn(graph: Any, name: str, shape: tuple[int, ...], generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """Weights for the operator that reads them, directly or after an Unsqueeze."""
    reader, index = next((node, list(node.input).index(name)) for node in graph.node if name in node.input)
    if reader.op_type == "Unsqueeze":
        return _drawn(graph, reader.output[0], shape, generator)
    if reader.op_type in ("Conv", "Gemm") and index == 1:
        return generator.normal(size=shape) * math.sqrt(2 / math.prod(shape[1:]))
    if reader.op_type == "BatchNormalization":
        return np.full(shape, _NORMALIZATION[index])
    return np.full(shape, 1.0 if reader.op_type == "Mul" else 0.0)
