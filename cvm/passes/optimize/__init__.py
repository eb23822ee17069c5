"""`optimize` makes a program with the same outputs that costs less gas.

A pass is a function from a verified program to a program; each has a module. Passes rewrite programs by means of
``draft``; ``driver`` runs the passes and checks each result.
"""

from cvm.passes.optimize.driver import PASSES, Pass, applied, optimize, optimize_built

__all__ = ["PASSES", "Pass", "applied", "optimize", "optimize_built"]
