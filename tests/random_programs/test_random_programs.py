"""FORMAL and NumPy give the same bytes for every tensor of random valid programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from cvm.executors import create, initial_state
from cvm.executors.numpy import step
from cvm.executors.numpy.step import PlannedNode
from cvm.ops import REGISTRY, Call
from cvm.program import decode, verify
from tests.random_programs.strategies import GROWERS, Sample, samples

QUICK, FULL = 150, 2000
SHARE = 20
"""Of so many programs, each op must be used at least once: 100 uses in 2,000 programs."""
FEW = 60
"""The same for the quick run: of few draws some ops get less than their part, and which depends on the process."""


def compare(sample: Sample) -> None:
    """Both executors on all runs, every tensor compared; the program survives its bytes."""
    verified = verify(decode(sample.program.to_bytes()))
    assert verified.program.digest == sample.program.digest
    formal, numpy = create("formal", verified), create("numpy", verified)
    states = [initial_state(verified.program)] * 2
    for inputs in sample.runs:
        expected, found = formal.run(inputs, states[0], capture="all"), numpy.run(inputs, states[1], capture="all")
        assert expected.values.keys() == found.values.keys()
        for name, tensor in expected.values.items():
            np.testing.assert_array_equal(found.values[name], tensor, err_msg=name, strict=True)
        states = [expected.state, found.state]


def agreement(programs: int, phases: Collection[Phase] = tuple(Phase)) -> Counter[str]:
    """Compare so many random programs; the uses of every op in them."""
    uses: Counter[str] = Counter()

    @settings(
        max_examples=programs, derandomize=True, database=None, phases=phases, suppress_health_check=list(HealthCheck)
    )
    @given(samples())
    def run(sample: Sample) -> None:
        assert sample.depth >= 3
        uses.update(sample.ops)
        uses["programs"] += 1
        compare(sample)

    run()
    return uses


def table(uses: Counter[str]) -> str:
    """Uses of every op, four to a line."""
    entries = [f"{op:<22}{uses[op]:>6}" for op in REGISTRY]
    return "\n".join("  ".join(entries[index : index + 4]) for index in range(0, len(entries), 4))


def check_coverage(uses: Counter[str], programs: int, share: int = SHARE) -> None:
    print(f"\n{uses['programs']} programs\n{table(uses)}")
    assert uses["programs"] >= programs
    assert {op: uses[op] for op in REGISTRY if uses[op] < programs // share} == {}


@pytest.mark.parametrize("op", ["negative", "conv2d", "requantize", "non_max_suppression"])
def test_a_wrong_kernel_is_found(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = step.KERNELS[op]

    def wrong(call: Call) -> PlannedNode:
        planned = right(call)
        return PlannedNode(lambda arrays: tuple(_one_off(y) for y in planned.run(arrays)), "wrong", planned.reads)

    monkeypatch.setitem(step.KERNELS, op, wrong)
    with pytest.raises(AssertionError):
        agreement(QUICK, [Phase.generate])  # found is enough: nobody needs the smallest program


def _one_off(array: np.ndarray) -> np.ndarray:
    """The array with its last element one off."""
    changed = np.array(array)
    changed.reshape(-1)[-1] ^= 1
    return changed


def test_every_op_has_a_grower() -> None:
    assert set(GROWERS) == set(REGISTRY)


def test_formal_and_numpy_agree_on_random_programs() -> None:
    check_coverage(agreement(QUICK), QUICK, FEW)


@pytest.mark.long
def test_formal_and_numpy_agree_on_two_thousand_random_programs() -> None:
    check_coverage(agreement(FULL), FULL)
