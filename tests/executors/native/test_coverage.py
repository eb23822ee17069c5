"""Every way of a `requantize` through native code is taken by some program, and gives NumPy's bytes.

The ways are cells of a table: how the operand is stored, the arithmetic, who adds what sums begin with, how results are
stored, the kernel and the machine. Cells that cannot be are listed with the reason in `tools.fuzz.native_cells`.
"""

from __future__ import annotations

from random import Random

import pytest

from cvm.errors import CvmError
from cvm.program import Program, verify
from cvm.program.merging import merged
from tests.executors.native.comparison import MACHINES
from tests.selection import mostly_long
from tools.fuzz.edge_feeds import feeds
from tools.fuzz.native_agreement import Way, differences, known_results, prepared
from tools.fuzz.native_cells import IMPOSSIBLE, Cell, Coverage, cells, covering, possible, why_impossible
from tools.fuzz.wide_documents import OPERATIONS, compiled, document

SEED, ROUNDS = 1, 30
"""Cells are mostly filled in the first round; each is aimed at in so many before the test gives up."""
BY_NAME = {machine.name: machine for machine in MACHINES}


@pytest.fixture(scope="module")
def coverage() -> Coverage:
    return covering(MACHINES, SEED, ROUNDS)


@pytest.mark.slow
def test_every_possible_cell_is_filled(coverage: Coverage) -> None:
    wanted = {cell for machine in MACHINES for cell in possible(machine)}
    assert sorted(wanted - coverage.filled) == []


@pytest.mark.slow
def test_no_impossible_cell_is_filled(coverage: Coverage) -> None:
    found = {cell: why_impossible(cell, BY_NAME[cell.machine]) for cell in coverage.filled}
    assert {cell: reason for cell, reason in found.items() if reason is not None} == {}


def test_every_reason_is_needed() -> None:
    """Without any one of the rules the table would have more cells, here or on a machine that this one is not."""
    from cvm.executors.native.emit.machine import MACHINES as KNOWN

    for rule in IMPOSSIBLE:
        others = [other for other in IMPOSSIBLE if other is not rule]
        alone = [
            cell
            for machine in KNOWN
            for cell in every_cell(machine.name)
            if rule.holds(cell, machine) and not any(other.holds(cell, machine) for other in others)
        ]
        assert alone, rule.reason


def every_cell(machine: str) -> list[Cell]:
    from itertools import product

    from tools.fuzz.edge_programs import ARITHMETICS, KERNELS, STARTS, STORES
    from tools.fuzz.edges import FORMATS

    return [Cell(machine, *words) for words in product(KERNELS, FORMATS, ARITHMETICS, STARTS, STORES)]


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_long(BY_NAME, {MACHINES[0].name, MACHINES[-1].name}))
def test_programs_of_all_cells_agree(name: str, coverage: Coverage) -> None:
    programs = coverage.programs[name]
    assert len(programs) > 50
    for first in range(0, len(programs), 25):
        require_agreement(merged(programs[first : first + 25]), name, f"covering, seed {SEED}, programs from {first}")


@pytest.mark.slow
def test_wide_documents_agree() -> None:
    """One document of each operation on all machines; some go through sums of wide unsigned operands."""
    programs = []
    for index, operation in enumerate(OPERATIONS):
        for attempt in range(5):
            try:
                programs.append(compiled(document(Random(f"{index}:{attempt}"), operation)))
                break
            except CvmError:
                continue
    assert len(programs) == len(OPERATIONS)
    program = merged(programs)
    found = {cell.operand for cell in cells(verify(program), MACHINES[0])}
    assert found & {"i16", "u16"}
    for name in BY_NAME:
        require_agreement(program, name, "documents")


def require_agreement(program: Program, name: str, what: str) -> None:
    runs = feeds(program, 8, Random(SEED))
    known = known_results(verify(program), runs)
    with prepared(level=0):
        wrong = differences(program, runs, known, [Way(BY_NAME[name], 1, False)])
    assert [(str(one.way), one.kind, one.values) for one in wrong] == [], what
