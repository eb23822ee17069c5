"""Programs of all ops that have kernels: native code gives NumPy's bytes, all captured and none, with states."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings

from cvm.executors import Capture
from cvm.executors.native.kernels.registry import PLANS
from cvm.program import verify
from tests.executors.native.comparison import MACHINES, compare_some, expected, require_equal
from tests.random_programs.strategies import Sample, samples

QUICK, FULL = 6, 5000


def agreement(programs: int, everything: bool) -> None:
    """Compare so many random programs: on all machines, threads and captures, or on one of each in turn."""
    numbers = count()

    @settings(max_examples=programs, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(samples(PLANS.keys()))
    def run(sample: Sample) -> None:
        number = next(numbers)
        if not everything:
            compare_some(sample.program, sample.runs, number, f"program {number}")
            return
        verified = verify(sample.program)
        known = expected(verified, sample.runs)
        for machine in MACHINES:
            for threads in (1, 2):
                capture: Capture = "all" if (number + threads) % 2 else frozenset()
                require_equal(verified, sample.runs, known, machine, threads, capture, f"program {number}")

    run()
    assert next(numbers) >= programs


@pytest.mark.slow
def test_random_programs_agree() -> None:
    agreement(QUICK, everything=False)


@pytest.mark.long
def test_five_thousand_random_programs_agree_on_every_machine_and_thread() -> None:
    agreement(FULL, everything=True)
