"""Operators that ONNX and WebNN both have, as operations of a graph, each written once.

Functions take the graph that is made and the names of its tensors, and give the name of the result. Readers check what
their format demands before, and map their operators and attributes to these.
"""
