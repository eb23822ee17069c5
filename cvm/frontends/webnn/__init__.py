"""The WebNN graph builder: operators that are recorded and validated, and made into a `cvm.graph.QuantizedGraph`.

`cvm.webnn` has the whole interface; this package is its part that knows nothing of programs and executors.
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
