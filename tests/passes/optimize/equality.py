"""What every optimised program is held to: the same outputs and states, and a report that is true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cvm.executors import create, initial_state
from cvm.passes.optimize import PASSES, applied, optimize
from cvm.program import Program, VerifiedProgram, verify

Feed = Mapping[str, np.ndarray]

__all__ = ["Feed", "assert_equal", "extremes", "passed", "steps"]


def steps(program: Program) -> list[tuple[str, VerifiedProgram]]:
    """The program, and what it is after each pass of one round that changed it, with the pass's name."""
    found = [("", verify(program))]
    for name, run in PASSES.items():
        after = applied(run, found[-1][1])
        if after is not found[-1][1]:
            found.append((name, after))
    return found


def passed(name: str, program: Program) -> Program:
    """What one pass makes of a program, without dead code."""
    return applied(PASSES[name], verify(program)).program


def outputs(program: Program, runs: Sequence[Feed], executor: str) -> list[dict[str, np.ndarray]]:
    """Outputs by name and states by name, run after run."""
    run = create(executor, verify(program)).run
    state, found = initial_state(program), []
    for feeds in runs:
        result = run(feeds, state)
        state = result.state
        codes = {item.name: result.values[item.value] for item in program.outputs}
        found.append(codes | {f"state {name}": array for name, array in state.items()})
    return found


def assert_equal(before: Program, after: Program, runs: Sequence[Feed], executor: str = "formal") -> None:
    """The same interface, outputs and states; no more gas; every tensor that the report names has its codes."""
    assert after.inputs == before.inputs
    assert [(item.name, item.quantizer) for item in after.outputs] == [(o.name, o.quantizer) for o in before.outputs]
    assert [item.value for item in after.state] == [item.value for item in before.state]
    assert verify(after).gas <= verify(before).gas
    for one, other in zip(outputs(before, runs, executor), outputs(after, runs, executor), strict=True):
        assert one.keys() == other.keys()
        for name, array in one.items():
            np.testing.assert_array_equal(other[name], array, err_msg=name, strict=True)


def extremes(program: Program, count: int = 4, seed: int = 0) -> list[Feed]:
    """Inputs for some runs: all at their least, all at their largest, the two mixed, then random."""
    random = np.random.default_rng(seed)
    found: list[Feed] = []
    for number in range(count):
        feeds = {}
        for item in program.inputs:
            value = item.value
            least, largest = np.full(value.shape, value.lo), np.full(value.shape, value.hi)
            ends = np.where(random.integers(0, 2, value.shape), least, largest)
            any_ = random.integers(value.lo, value.hi + 1, value.shape)
            feeds[value.name] = (least, largest, ends, any_)[min(number, 3)].astype(np.int32)
        found.append(feeds)
    return found


def optimized(program: Program) -> Program:
    """The program after all passes, which find nothing more to do."""
    after = optimize(program)
    assert optimize(after) is after
    return after
