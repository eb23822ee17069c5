"""The meeting point of all front ends."""

from cvm.graph.model import Attribute, GraphOperation, GraphTensor, Operand, QuantizedGraph, TensorData

__all__ = ["Attribute", "GraphOperation", "GraphTensor", "Operand", "QuantizedGraph", "TensorData"]
