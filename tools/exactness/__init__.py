"""Exact evaluation of graphs, element by element, for `tools/check_exactness.py`.

A graph says what a document means: operations on real numbers, and a rounding at each tensor with a quantiser. Here
its operations are evaluated once more, by formulas that share nothing with lowering, in rational numbers and in the
computable real numbers of `tests.oracle.real`. Only elements that are asked for are computed.
"""
