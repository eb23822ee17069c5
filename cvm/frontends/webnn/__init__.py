"""The WebNN graph builder: it records and validates operators, and makes a `cvm.graph.QuantizedGraph` of them.

`cvm.webnn` has the whole interface; this package is the part that knows neither programs nor executors.
"""

from cvm.frontends.webnn.builder import MLGraphBuilder
from cvm.frontends.webnn.errors import InvalidStateError, MLError, MLTypeError, NotSupportedError, OperationError
from cvm.frontends.webnn.operand import MLOperand, MLOperandDescriptor, MLTensorDescriptor

__all__ = [
    "InvalidStateError",
    "MLError",
    "MLGraphBuilder",
    "MLOperand",
    "MLOperandDescriptor",
    "MLTensorDescriptor",
    "MLTypeError",
    "NotSupportedError",
    "OperationError",
]
