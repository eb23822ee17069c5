"""What is proven of a rewritten program in parts is what `verify` proves of all of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from cvm.errors import Invalid
from cvm.passes.optimize import PASSES
from cvm.passes.optimize.dead import dead_code
from cvm.passes.optimize.reproving import reproven
from cvm.program import Program, ProgramBuilder, VerifiedProgram, verify
from cvm.program.model import Constant
from tests.passes.optimize.chains import add, built, const
from tests.passes.optimize.patterns import programs
from tests.selection import examples


def assert_as_verified(found: VerifiedProgram, program: Program) -> None:
    """The shapes, ranges, calls and gas that `verify` finds."""
    whole = verify(program, found.limits)
    assert found.program is program
    assert found.shapes == whole.shapes
    assert found.ranges.keys() == whole.ranges.keys()
    assert all(found.ranges[name].equals(bounds) for name, bounds in whole.ranges.items())
    for one, other in zip(found.calls, whole.calls, strict=True):
        assert (one.shapes, one.attributes) == (other.shapes, other.attributes)
        assert all(a.equals(b) for a, b in zip(one.ranges, other.ranges, strict=True))
    assert found.gas == whole.gas


@settings(
    max_examples=examples(60), derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
@given(programs())
def test_each_pass_of_random_programs_is_proven_as_a_whole(program: Program) -> None:
    verified = verify(program)
    for run in PASSES.values():
        after = dead_code(run(verified))
        if after is not verified.program:
            verified = reproven(after, verified)
            assert_as_verified(verified, after)


def doubled() -> Program:
    """A program that doubles its input, adds one and takes the larger of it and zero."""

    def grow(b: ProgramBuilder, x: str) -> str:
        return add(b, "relu", add(b, "broadcast_add", add(b, "broadcast_mul", x, const(b, [[2]])), const(b, [[1]])))

    return built(-5, 5, grow)


def test_a_constant_that_changed_is_proven_again() -> None:
    before = verify(doubled())
    constants = tuple(Constant.of(c.name, c.array().astype(np.int64) + 1, c.kind) for c in before.program.constants)
    nodes = tuple(replace(n, outputs=tuple(replace(v, lo=-(2**31) + 1, hi=2**31 - 1) for v in n.outputs))
                  for n in before.program.nodes)  # fmt: skip
    program = replace(before.program, constants=constants, nodes=nodes)
    found = reproven(program, before)
    assert_as_verified(found, program)
    name = program.nodes[-1].outputs[0].name
    assert not found.ranges[name].equals(before.ranges[name])


def test_a_node_of_another_op_is_proven_again() -> None:
    before = verify(doubled())
    last = before.program.nodes[-1]
    value = replace(last.outputs[0], lo=-(2**31) + 1, hi=2**31 - 1)
    program = replace(before.program, nodes=(*before.program.nodes[:-1], replace(last, op="abs", outputs=(value,))))
    assert_as_verified(reproven(program, before), program)


def test_a_value_that_is_not_there_is_refused() -> None:
    before = verify(doubled())
    program = replace(before.program, nodes=before.program.nodes[1:])
    with pytest.raises(Invalid, match="read before it is written"):
        reproven(program, before)
