"""The driver: all passes on all kinds of programs; outputs and states are the same, nothing costs more."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from cvm.errors import Invalid
from cvm.ops import Range
from cvm.passes.optimize import PASSES, applied, driver, optimize
from cvm.program import Output, ProgramBuilder, decode, verify
from tests.passes.optimize.chains import add, built, const, every, requantize
from tests.passes.optimize.equality import assert_equal, extremes, optimized, steps
from tests.passes.optimize.patterns import programs
from tests.random_programs.strategies import Sample, samples

QUICK, INVITING, FULL = 60, 200, 2000
SETTINGS = {"derandomize": True, "database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}


def random_programs(count: int) -> None:
    @settings(max_examples=count, **SETTINGS)
    @given(samples())
    def run(sample: Sample) -> None:
        # Whatever the program computes is an output: the more there is to keep.
        last = [Output(f"last {n}", node.outputs[0].name) for n, node in enumerate(sample.program.nodes[-3:])]
        program = replace(sample.program, outputs=(*sample.program.outputs, *last))
        assert_equal(program, optimized(program), sample.runs)
        assert_equal(sample.program, optimized(sample.program), sample.runs)

    run()


def pattern_programs(count: int) -> Counter[str]:
    """How often each pass has rewritten something, and how often a result was dropped since it cost more."""
    uses: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(programs())
    def run(program) -> None:
        verified = verify(program)
        for name, pass_ in PASSES.items():
            result = driver.dead_code(pass_(verified))
            if result is not verified.program:
                uses[name] += pass_(verified) is not verified.program
                after = verify(result)
                assert after.gas <= verified.gas, name
                verified = after
        assert_equal(program, verified.program, extremes(program), "numpy")
        assert_equal(program, optimized(program), extremes(program, 3), "formal")

    run()
    return uses


@pytest.mark.slow
def test_random_programs_keep_their_outputs_and_states():
    random_programs(QUICK)


@pytest.mark.long
def test_two_thousand_random_programs_keep_their_outputs_and_states():
    random_programs(FULL)


@pytest.mark.slow
def test_programs_that_invite_the_passes_keep_their_outputs_and_states():
    uses = pattern_programs(INVITING)
    assert {name for name in PASSES if not uses[name]} <= {"merged clamps", "common subexpressions", "composed tables"}


@pytest.mark.long
def test_two_thousand_programs_that_invite_the_passes_keep_their_outputs_and_states():
    uses = pattern_programs(FULL)
    print(f"\n{dict(uses)}")
    assert {name: uses[name] for name in PASSES if uses[name] < 10} == {}


def network():
    """Something for every pass."""

    def grow(b, x):
        transposed = add(b, "transpose", x, axes=(0, 2, 3, 1))
        back = add(b, "transpose", add(b, "relu", transposed), axes=(0, 3, 1, 2), name="data")
        moved = add(b, "broadcast_sub", back, add(b, "negative", const(b, [5])))
        total = add(b, "conv2d", moved, const(b, np.arange(-9, 9).reshape(3, 2, 1, 3)))
        coded = requantize(b, total, 3, 1, 4, -128, 127, name="coded")
        again = requantize(b, coded, 2**30, -1, 30, -20, 127, name="again")
        step = add(b, "broadcast_add", requantize(b, again, 5, 0, 3, -90, 90), const(b, [3]))
        table = add(b, "cvm_lut", const(b, np.arange(90)[::-1]), add(b, "cvm_lut", const(b, np.arange(50) // 2), step))
        return [add(b, "clip", table, a_min=-100, a_max=100), add(b, "flatten", add(b, "flatten", x)), back]

    return built(-128, 127, grow, shape=(1, 2, 8, 9), named=["data", "coded", "again"])


def test_the_result_is_a_fixed_point_and_every_step_of_it_is_right():
    program = network()
    after = optimized(program)
    assert_equal(program, after, every(program))
    assert len(after.nodes) < len(program.nodes)
    for name, verified in steps(program)[1:]:
        assert_equal(program, verified.program, every(program))
        assert verified.gas < verify(program).gas, name


def test_a_program_that_cannot_be_improved_is_returned_as_it_is():
    program = built(-3, 3, lambda b, x: add(b, "negative", x))
    assert optimize(program) is program


def test_provenance_says_that_it_was_optimised_and_keeps_the_rest():
    program = network()
    after = optimize(program)
    assert after.provenance.tool == "test, optimised"
    assert [item.tensor for item in after.provenance.exactness] == ["tensor data", "tensor coded", "tensor again"]
    assert {item.value for item in after.provenance.exactness} <= {"", *after.value_names()}
    assert decode(after.to_bytes()).provenance == after.provenance


def test_the_sum_of_a_tensor_that_is_no_longer_rounded_from_one_is_not_reported():
    program = network()
    sums = [replace(item, accumulator=(-1, 1)) for item in program.provenance.exactness]
    program = replace(program, provenance=replace(program.provenance, exactness=tuple(sums)))
    found = {item.tensor: item.accumulator for item in optimize(program).provenance.exactness}
    assert found == {"tensor data": None, "tensor coded": (-1, 1), "tensor again": None}


def test_tensors_of_the_document_keep_their_codes():
    from cvm.executors import create

    program = network()
    after = optimize(program)
    values = [create("formal", verify(item)).run(every(program)[2], {}, "all").values for item in (program, after)]
    pairs = zip(program.provenance.exactness, after.provenance.exactness, strict=True)
    kept = [(old.value, new.value) for old, new in pairs if new.value]
    assert len(kept) == 3
    for old, new in kept:
        np.testing.assert_array_equal(values[0][old], values[1][new])


def test_an_input_that_is_an_output_and_one_that_nothing_reads_stay():
    builder = ProgramBuilder()
    x, _ = builder.input("x", (2,), 0, 9), builder.input("unread", (2,), 0, 9)
    program = builder.build([Output("y", x), Output("z", add(builder, "relu", x))])
    after = optimize(program)
    assert after.inputs == program.inputs
    assert [(item.name, item.value) for item in after.outputs] == [("y", "x"), ("z", "x")]
    assert_equal(program, after, extremes(program))
    assert_equal(program, after, extremes(program), "numpy")


def test_an_invalid_program_is_refused_as_by_verify():
    program = network()
    broken = replace(program, nodes=program.nodes[1:])
    with pytest.raises(Invalid) as caught:
        optimize(broken)
    assert caught.value.code == "program.undefined"


def test_long_names_stay_within_the_limits():
    def grow(b, x):
        step = add(b, "broadcast_add", x, const(b, [3]))
        return requantize(b, step, 3, 0, 1, -9, 9, name="n" * 1024)

    program = built(-3, 3, grow)
    assert_equal(program, optimized(program), every(program))


def test_a_pass_that_costs_more_is_not_taken():
    program = built(-3, 3, lambda b, x: add(b, "negative", x))

    def dearer(verified):
        return built(-3, 3, lambda b, x: add(b, "broadcast_sub", const(b, [0]), x))

    verified = verify(program)
    assert applied(dearer, verified) is verified


@pytest.mark.parametrize("wrong", [
    lambda b, x: add(b, "abs", x),
    lambda b, x: add(b, "clip", x, a_min=-3, a_max=2),
])  # fmt: skip
def test_a_pass_that_promises_less_is_a_defect(wrong):
    program = built(-3, 2, lambda b, x: add(b, "cvm_clip", x, precision=2))
    with pytest.raises(AssertionError):
        applied(lambda _: built(-3, 2, wrong), verify(program))


def test_a_pass_that_changes_the_interface_is_a_defect():
    program = network()
    for changed in (
        replace(program, inputs=tuple(replace(item, value=replace(item.value, lo=-127)) for item in program.inputs)),
        replace(program, outputs=program.outputs[:-1]),
        replace(program, outputs=(replace(program.outputs[0], name="other"), *program.outputs[1:])),
    ):
        with pytest.raises(AssertionError):
            applied(lambda _, changed=changed: changed, verify(program))


@pytest.mark.sweep
@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_the_bytes_do_not_depend_on_the_seed_of_hashes(seed):
    script = (
        "from tests.passes.optimize.test_driver import network\n"
        "from cvm.passes.optimize import optimize\n"
        "print(optimize(network()).to_bytes().hex())"
    )
    run = subprocess.run([sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True)
    assert run.stdout.decode().strip() == optimize(network()).to_bytes().hex()


def test_nothing_is_rewritten_where_a_range_would_be_wider(monkeypatch):
    program = built(-9, 9, lambda b, x: add(b, "negative", add(b, "clip", x, a_min=-99, a_max=99)))
    monkeypatch.setattr(Range, "contains", lambda *_: False)
    assert optimize(program) is program
