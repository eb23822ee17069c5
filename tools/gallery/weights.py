"""Random weights for a published architecture whose file says nothing about weights but their shapes.

The light models of the onnx package make every weight with ConstantOfShape. The weights that are drawn for them are
those that training would begin with: filters of normal numbers with the variance 2 / fan-in (He et al. 2015), scales
of normalisation 1/2, so that sums over residual branches stay small, variances 1, biases and means 0.
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
    model.ir_version = max(model.ir_version, 8)  # before 4, what is stored had to be an input as well
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
