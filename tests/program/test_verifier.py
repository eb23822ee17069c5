"""What verification gives, and that it does not depend on who asks. The refusals are in test_codes.py."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from cvm.errors import CvmError, LimitExceeded
from cvm.limits import DEFAULT, LARGE
from cvm.ops import Range
from cvm.program import Constant, Input, Node, Output, Program, ProgramBuilder, Value, verify
from tests.program.examples import SHAPE, example, programs
from tests.program.mutations import mutations
from tests.selection import examples


def test_every_value_has_its_proven_range_and_shape():
    verified = verify(example())
    assert {name: found.hull() for name, found in verified.ranges.items()} == {
        "x": (0, 15), "bias": (-3, 2), "nothing": (0, 0), "memory": (-100, 100),
        "shifted": (-3, 17), "raw": (-103, 117), "sum": (-100, 100),
    }  # fmt: skip
    assert set(verified.shapes.values()) == {SHAPE}
    with pytest.raises(TypeError):
        verified.ranges["x"] = Range.uniform(3, 0, 0)


def test_constants_count_with_their_values_and_results_per_channel():
    verified = verify(example())
    bias = np.arange(-3, 3).reshape(SHAPE)
    assert (verified.ranges["bias"].lo == bias).all()
    assert verified.ranges["shifted"].lo.tolist() == [[[-3], [0]]]
    assert verified.ranges["shifted"].hi.tolist() == [[[14], [17]]]


def test_a_call_has_the_ranges_that_its_op_was_proven_with():
    program = example()
    verified = verify(program)
    assert len(verified.calls) == len(program.nodes)
    for node, call in zip(program.nodes, verified.calls, strict=True):
        assert call.shapes == tuple(verified.shapes[name] for name in node.inputs)
        assert all(found is verified.ranges[name] for name, found in zip(node.inputs, call.ranges, strict=True))
        assert {**node.attributes} == dict(call.attributes)


def test_the_proven_interval_counts_and_not_the_declared_one():
    x = Input(Value("x", (2,), 0, 10))
    wide = Node("negative", ("x",), (Value("wide", (2,), -1000, 1000),))
    after = Node("negative", ("wide",), (Value("after", (2,), 0, 10),))
    program = Program((x,), (Output("y", "after"),), nodes=(wide, after))
    assert verify(program).ranges["after"].hull() == (0, 10)


def test_gas_adds_up():
    program = example()
    assert verify(program).gas == sum(1 + 3 * 6 if node.op == "elemwise_add" else 1 + 2 * 6 for node in program.nodes)


def test_the_stricter_of_the_profile_and_the_callers_limits_holds():
    large = replace(example(), limits="large")
    big = Constant.of("big", np.zeros(8, np.int8))
    assert verify(large).limits == LARGE
    assert verify(example(), LARGE).limits.elements == DEFAULT.elements
    assert verify(large, DEFAULT).limits.elements == DEFAULT.elements
    with pytest.raises(LimitExceeded):
        verify(replace(large, constants=(*large.constants, big)), replace(DEFAULT, elements=7))


@settings(max_examples=examples(100))
@given(programs())
def test_what_the_builder_builds_verifies_with_the_same_intervals(program):
    verified = verify(program)
    for node in program.nodes:
        for value in node.outputs:
            assert verified.ranges[value.name].hull() == (value.lo, value.hi)
            assert verified.shapes[value.name] == value.shape


@settings(max_examples=examples(50), deadline=None)
@given(programs())
def test_a_changed_program_is_refused_as_one_of_ours_or_is_valid(program):
    changes = [other for path, other in mutations(program) if not path.startswith(".provenance")]
    for other in random.Random(0).sample(changes, min(60, len(changes))):
        # Any other exception is a failure.
        with contextlib.suppress(CvmError):
            assert verify(other).gas >= 0


def test_a_long_chain_needs_no_recursion():
    builder = ProgramBuilder()
    name = builder.input("x", (4,), -5, 5)
    for _ in range(5_000):
        (name,) = builder.add("negative", [name])
    program = builder.build([Output("y", name)])
    assert verify(program).gas == builder.gas
    assert Program.to_bytes(program) == program.to_bytes()
    assert len(program.digest) == 64
