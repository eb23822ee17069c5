"""The WebNN graph-builder API for integer graphs and quantised graphs, on the integer machine.

`ML().create_context()` gives an `MLContext`; `MLGraphBuilder(context)` records a graph; its `build` compiles the graph
to an `MLGraph`, whose ``program`` is an ordinary `cvm.Program`. ``docs/webnn.md`` lists what runs.
"""

from cvm.frontends.webnn import (
    InvalidStateError,
    MLError,
    MLGraphBuilder,
    MLOperand,
    MLOperandDescriptor,
    MLTensorDescriptor,
    MLTypeError,
    NotSupportedError,
    OperationError,
)
from cvm.webnn.calibrated import QuantizationError
from cvm.webnn.context import ML, MLContext
from cvm.webnn.graph import MLGraph
from cvm.webnn.lost import MLContextLostInfo
from cvm.webnn.tensor import MLTensor

__all__ = [
    "ML",
    "InvalidStateError",
    "MLContext",
    "MLContextLostInfo",
    "MLError",
    "MLGraph",
    "MLGraphBuilder",
    "MLOperand",
    "MLOperandDescriptor",
    "MLTensor",
    "MLTensorDescriptor",
    "MLTypeError",
    "NotSupportedError",
    "OperationError",
    "QuantizationError",
]
