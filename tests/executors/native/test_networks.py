"""Random networks that aim at kernels: native code gives NumPy's bytes on every machine that this processor can be."""

from __future__ import annotations

import pytest

from cvm.program import verify
from tests.executors.native.comparison import MACHINES, compare, compare_some
from tools.feeds import feeds
from tools.planted.networks import AIMS, network

QUICK, FULL = 1, 800
"""Networks of each aim."""


@pytest.mark.sweep
@pytest.mark.parametrize("aim", AIMS)
def test_networks_agree(aim: str) -> None:
    for seed in range(QUICK):
        program = network(aim, seed)
        compare_some(program, feeds(program, 4, seed), seed, f"network({aim!r}, {seed})")


@pytest.mark.long
@pytest.mark.parametrize("aim", AIMS)
def test_many_networks_agree(aim: str) -> None:
    for seed in range(QUICK, FULL):
        program = network(aim, seed)
        compare_some(program, feeds(program, 4, seed), seed, f"network({aim!r}, {seed})")


@pytest.mark.long
@pytest.mark.parametrize("aim", AIMS)
def test_networks_agree_with_every_machine_thread_and_capture(aim: str) -> None:
    for seed in range(10_000, 10_060):
        program = network(aim, seed)
        compare(program, feeds(program, 4, seed), threads=(1, 2, 3), what=f"network({aim!r}, {seed})")


def test_networks_reach_every_kind_of_kernel() -> None:
    """The first networks of all aims, planned for the first machine: nothing that the tests aim at is missed."""
    from cvm.executors.native.kernels.registry import plan

    notes = set()
    for aim in AIMS:
        for seed in range(9):
            verified = verify(network(aim, seed))
            made = plan(verified, MACHINES[0], frozenset(output.value for output in verified.program.outputs))
            notes |= {call.note for call in made.calls}
    joined = "\n".join(notes)
    assert [kind for kind in KINDS if kind not in joined] == []


KINDS = ("8-bit dot products", "16-bit dot products", "32-bit multiply-adds", "2 passes", "3 passes",
         "depthwise, 1 part", "sums + requantize", "maxima of windows", "sum, modulo", "max, modulo",
         "copy by a table", "axes exchanged", "the weights are computed", "rows one after the other",
         "sorted by counting")  # fmt: skip
