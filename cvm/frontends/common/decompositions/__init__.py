"""Operators of several formats, expressed as operations of a graph, each written once.

A function takes the graph under construction and the names of its tensors, and returns the name of the result. Front
ends check the rules of their format first, and map their operators and attributes to these functions.
"""
