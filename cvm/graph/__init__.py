"""The graph IR: declared operations on real tensors. Every front end produces it; lowering and the
reference read it.
"""

from cvm.graph.builder import GraphBuilder
from cvm.graph.declaration import Declaration, declaration, declarations
from cvm.graph.model import Attribute, GraphOperation, GraphTensor, Operand, QuantizedGraph, TensorData
from cvm.graph.uses import REARRANGING, computed_from_inputs, makers, names_in, readers
from cvm.graph.verifier import verify

__all__ = [
    "REARRANGING",
    "Attribute",
    "Declaration",
    "GraphBuilder",
    "GraphOperation",
    "GraphTensor",
    "Operand",
    "QuantizedGraph",
    "TensorData",
    "computed_from_inputs",
    "declaration",
    "declarations",
    "makers",
    "names_in",
    "readers",
    "verify",
]
