"""From a quantised graph to a program: lowering, then the optimisation passes, with equal proofs made once."""

from __future__ import annotations

from cvm.graph import QuantizedGraph
from cvm.program import Program
from cvm.repeated import remembering
from cvm.timing import timed

__all__ = ["program_of"]


def program_of(graph: QuantizedGraph, optimize: bool = True, op_set: int = 1) -> Program:
    """The program of a graph, with ops of op-sets up to ``op_set``. Raises the errors of `cvm.lowering.lower`."""
    with timed("importing"):
        from cvm.lowering import lower
        from cvm.passes.optimize import optimize_built

    with remembering():
        program = lower(graph, op_set=op_set)
        return optimize_built(program) if optimize else program
