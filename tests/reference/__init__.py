"""An exact evaluator of quantised NNEF documents that shares no code with the product: the oracle of its tests.

It imports nothing but the standard library and numpy (to read `.npy` files and to hold arrays of Python integers).
`exact` is the interface; `reader`, `rational`, `exponential` and `operations` are its parts.
"""
