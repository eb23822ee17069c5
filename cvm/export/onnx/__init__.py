"""Quantised models as ONNX files: an ONNX model keeps its own nodes; any other graph is written
operation by operation.
"""

from cvm.export.onnx.file import quantized_model
from cvm.export.onnx.graphs import graph_model, halves_rounded_otherwise

__all__ = ["graph_model", "halves_rounded_otherwise", "quantized_model"]
