"""Whole programs: every value keeps its name and its codes, and nothing but the document's ops is left."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import cvm
from cvm.errors import LimitExceeded, Unsupported
from cvm.executors import create, initial_state
from cvm.limits import DEFAULT
from cvm.ops import REGISTRY
from cvm.passes.legalize import expansions, legalize, rewrite
from cvm.passes.legalize.expressions import Unprovable
from cvm.program import Exactness, Output, Program, ProgramBuilder, Provenance, decode, verifier, verify
from tests.models.digits import SHARED, SMALL, Network
from tests.random_programs.strategies import Sample, samples
from tests.spec_vectors.shipped import op_cases, program_cases

VALUES = [case for case in program_cases() if case.verdict == "value"]


def is_extended(program: Program) -> bool:
    return any(REGISTRY[node.op].extension for node in program.nodes)


def legalized(program: Program) -> Program:
    """The legalised program, after its bytes; what must hold of it whatever it computes is checked."""
    found = decode(legalize(program).to_bytes())
    verify(found)
    assert not is_extended(found)
    assert all(constant.kind == "tensor" for constant in found.constants)
    assert (found.digest != program.digest) == (found is not program and is_extended(program))
    assert (found.inputs, found.outputs, found.state) == (program.inputs, program.outputs, program.state)
    declared = {value.name: value for node in found.nodes for value in node.outputs}
    for node in program.nodes:
        for value in node.outputs:
            assert declared[value.name] == value
    return found


def assert_same_runs(program: Program, feeds: list[dict[str, np.ndarray]], found: Program | None = None) -> None:
    """Both programs give the same codes of every value, run after run."""
    other = legalized(program) if found is None else found
    executors = [create("numpy", verify(item)) for item in (program, other)]
    states = [initial_state(item) for item in (program, other)]
    for inputs in feeds:
        expected, result = (
            executor.run(inputs, state, "all") for executor, state in zip(executors, states, strict=True)
        )
        for name, codes in expected.values.items():
            np.testing.assert_array_equal(result.values[name], codes, err_msg=name, strict=True)
        states = [expected.state, result.state]


@pytest.mark.parametrize("case", VALUES, ids=lambda case: case.id)
def test_shipped_programs(case) -> None:
    feeds = [{name: np.array(tensor.array()) for name, tensor in run.inputs.items()} for run in case.runs]
    assert_same_runs(decode(case.program), feeds)


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("constants", [False, True], ids=["inputs", "constants"])
@pytest.mark.parametrize("op", [name for name, op in REGISTRY.items() if op.extension])
def test_shipped_vectors_of_extension_ops(op: str, constants: bool) -> None:
    cases = [case for case in op_cases(op) if case.verdict == "value"]
    assert len(cases) > 30
    wide = op in ("quotient", "normalize")  # some hundred nodes or thousands for each
    for case in cases[:: len(cases) // 20 if wide else 1]:
        builder = ProgramBuilder()
        inputs, feed = [], {}
        for index, tensor in enumerate(case.inputs):
            items = tensor.array()
            if items.dtype == np.int64:
                inputs.append(builder.parameter(items))
            elif constants:
                inputs.append(builder.constant(items))
            else:
                inputs.append(builder.input(f"x{index}", items.shape, int(items.min()), int(items.max())))
                feed[f"x{index}"] = np.array(items)
        (y,) = builder.add(op, inputs, case.attributes, name="y")
        program = legalized(builder.build([Output("y", y)]))
        (expected,) = case.outputs
        found = create("numpy", verify(program)).run(feed, {}).values["y"]
        np.testing.assert_array_equal(found, expected.array(), err_msg=case.id, strict=True)


@pytest.mark.parametrize("network", SMALL, ids=lambda network: network.name)
def test_networks(network: Network) -> None:
    found = legalized(network.program)
    assert len(found.nodes) < 7 * len(network.program.nodes)
    assert_same_runs(network.program, network.feeds[:10], found)


@pytest.mark.parametrize("name", ["lenet_digits_qdat", "mlp_cancer"])
def test_further_networks_on_random_codes(name: str) -> None:
    if not (SHARED / name).is_dir():
        pytest.skip(f"there is no ../shared/models/digits/{name}")
    program = cvm.compile(SHARED / name)
    generator = np.random.default_rng(1)
    feeds = [
        {
            item.value.name: generator.integers(item.value.lo, item.value.hi + 1, item.value.shape).astype(np.int32)
            for item in program.inputs
        }
        for _ in range(5)
    ]
    assert_same_runs(program, feeds)


@settings(max_examples=20, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(samples())
def test_random_programs(sample: Sample) -> None:
    assert_same_runs(sample.program, list(sample.runs))


@pytest.mark.long
@settings(max_examples=1000, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(samples())
def test_many_random_programs(sample: Sample) -> None:
    assert_same_runs(sample.program, list(sample.runs))


def test_a_program_in_the_documents_ops_is_itself() -> None:
    program = next(decode(case.program) for case in VALUES if not is_extended(decode(case.program)))
    assert legalize(program) is program
    extended = next(decode(case.program) for case in VALUES if is_extended(decode(case.program)))
    once = legalize(extended)
    assert legalize(once) is once


def requantized(
    builder: ProgramBuilder, x: str, name: str, rounding: str = "half_up", multiplier: int = 1234567
) -> str:
    parameters = [builder.parameter(np.array([item])) for item in (multiplier, 99, 30)]
    (y,) = builder.add("requantize", [x, *parameters], {"rounding": rounding, "lo": 0, "hi": 255}, name=name)
    return y


def test_names_that_exist_are_not_taken_and_long_ones_are_cut() -> None:
    long = "é" * (DEFAULT.name_bytes // 2)
    builder = ProgramBuilder()
    x = builder.input("x", (1, 4), -(2**26), 2**26)
    y = requantized(builder, x, "y")
    names = [item for part in legalize(builder.build([Output("y", y)])).nodes for item in (part.outputs[0].name,)]
    for taken in {*names, "y.constant"} - {"y"}:
        (y,) = builder.add("negative", [y], name=taken)
    y = requantized(builder, y, long)
    program = builder.build([Output("y", y)])
    assert_same_runs(program, [{"x": np.array([[-(2**26), 5, 777777, 2**26]], np.int32)}])


def test_digits_are_taken_once() -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (1, 4), -(2**29), 2**29)
    one = requantized(builder, x, "one")
    single = len(legalize(builder.build([Output("one", one)])).nodes)
    two = requantized(builder, x, "two", multiplier=7654321)
    same = requantized(builder, x, "same")
    program = builder.build([Output("one", one), Output("two", two), Output("same", same)])
    first, second, third = expansions(verify(program), verify(legalized(program)))
    assert len(first.nodes) == single
    assert len(second.nodes) < single
    assert [node.op for node in third.nodes] == ["clip"]
    assert_same_runs(program, [{"x": np.array([[-(2**29), 5, 777777, 2**29]], np.int32)}])


def test_a_tensor_that_is_added_twice_is_one_term() -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (1, 4), -(2**20), 2**20)
    parameters = [builder.parameter(np.array([item])) for item in (5, -5, 99, 3)]
    (y,) = builder.add("requantize", [x, x, *parameters], {"rounding": "half_up", "lo": -9, "hi": 255}, name="y")
    program = builder.build([Output("y", y)])
    assert len(legalized(program).nodes) == 1
    assert_same_runs(program, [{"x": np.array([[-(2**20), 0, 7, 2**20]], np.int32)}])


def test_bounds_per_channel_are_kept_where_a_later_op_needs_them() -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (1, 2, 4), -(2**20), 2**20)
    parameters = [builder.parameter(np.array(item)) for item in ([[1], [1024]], [[5], [7]], [[1], [1]])]
    limits = {"rounding": "half_even", "lo": -(2**31) + 1, "hi": 2**31 - 1}
    (y,) = builder.add("requantize", [x, *parameters], limits, name="y")
    (z,) = builder.add("broadcast_mul", [y, builder.constant(np.array([[[1023], [3]]]))], name="z")
    program = builder.build([Output("z", z)])
    found = legalized(program)
    assert verify(program).ranges["y"].contains(verify(found).ranges["y"])
    generator = np.random.default_rng(1)
    assert_same_runs(program, [{"x": generator.integers(-(2**20), 2**20 + 1, (1, 2, 4)).astype(np.int32)}], found)


def test_provenance_says_that_the_program_was_legalised() -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (1, 4), -9, 9)
    exactness = (Exactness("tensor", "y", Fraction(0), (-5, 5), "a note"),)
    program = builder.build(
        [Output("y", requantized(builder, x, "y"))], Provenance("cvm", "model", "digest", exactness)
    )
    assert legalized(program).provenance == Provenance("cvm, legalised", "model", "digest", exactness)


def test_what_cannot_be_proven_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise Unprovable("too wide")

    monkeypatch.setattr(rewrite, "requantize", fail)
    builder = ProgramBuilder()
    program = builder.build([Output("y", requantized(builder, builder.input("x", (1, 4), -9, 9), "y"))])
    with pytest.raises(Unsupported, match="too wide") as caught:
        legalize(program)
    assert caught.value.code == "legalize.unprovable"
    assert (caught.value.location.op, caught.value.location.tensor) == ("requantize", "y")


def test_an_expansion_beyond_the_limits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = ProgramBuilder()
    program = builder.build([Output("y", requantized(builder, builder.input("x", (1, 4), -(2**20), 2**20), "y"))])
    gas = verify(program).gas
    monkeypatch.setattr(verifier, "PROFILES", {"default": replace(DEFAULT, work=gas)})
    with pytest.raises(LimitExceeded):
        legalize(program)
