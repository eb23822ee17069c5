"""Programs that compute the same for less: `optimize`.

A pass is a function from a verified program to a program, one module each; ``draft`` is how they rewrite, ``driver``
runs them and checks each result.
"""

from cvm.passes.optimize.driver import PASSES, Pass, applied, optimize, optimize_built

__all__ = ["PASSES", "Pass", "applied", "optimize", "optimize_built"]
