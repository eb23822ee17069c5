"""The WebNN graph-builder API for graphs of integers and for quantised graphs, over the integer machine.

`ML().create_context()` gives an `MLContext`, `MLGraphBuilder(context)` records a graph, its `build` compiles it to an
`MLGraph`, whose ``program`` is an ordinary `cvm.Program`. ``docs/webnn.md`` says what runs.
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
