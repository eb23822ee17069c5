"""The writer of TFLite files, under the name that tests and fuzzers import."""

from cvm.frontends.tflite.writing import Array, Graph, Operator, Tensor, written

__all__ = ["Array", "Graph", "Operator", "Tensor", "written"]
