"""Small programs that still fail, for fuzzers: `cvm.reduction` makes them smaller.

The caller gives a function that says whether a program and its inputs still fail in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cvm.program import Program
from cvm.reduction.network import Network
from cvm.reduction.program_form import ProgramForm
from cvm.reduction.search import Bound, reduced
from cvm.reduction.texts import builder_lines, runs_text
from tools.fuzz.edge_feeds import Feed

__all__ = ["Case", "regression_test", "shrunk"]


@dataclass(frozen=True, slots=True)
class Case:
    """A program and inputs for its runs."""

    program: Program
    runs: tuple[Feed, ...]


def shrunk(case: Case, fails: Callable[[Case], bool], tries: int = 400) -> Case:
    """The smallest case that was found to fail; ``fails`` is called at most ``tries`` times."""
    form = ProgramForm(case.program)

    def case_of(network: Network) -> Case:
        runs = tuple({name: np.ascontiguousarray(array, np.int32) for name, array in r.items()} for r in network.runs)
        return Case(form.built(network), runs)

    whole = form.network(case.runs)
    found = reduced(whole, form, lambda network: fails(case_of(network)), Bound(tries, seconds=float("inf")))
    return case if found.network is whole else case_of(found.network)


def regression_test(case: Case, name: str) -> str:
    """The text of a test that builds the program and compares native code with NumPy."""
    lines = [*builder_lines(case.program), f"compare(program, {runs_text(case.runs)})"]
    return "\n".join([f"def test_{name}() -> None:", *(f"    {line}" for line in lines), ""])
