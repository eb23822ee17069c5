"""What every executor promises, for all executors."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cvm import ops
from cvm.errors import Invalid
from cvm.executors import EXECUTORS, Executor, RunResult, create, initial_state
from cvm.executors.base import feeds
from cvm.executors.numpy import KERNELS
from cvm.program import Output, Program, ProgramBuilder, verify
from tests.program.examples import example, programs
from tests.selection import examples

Arrays = dict[str, np.ndarray]

every_executor = pytest.mark.parametrize("name", list(EXECUTORS))


def network() -> Program:
    """Convolution, requantisation, residual addition, views, pooling, dense and state in one small program."""
    generator = np.random.default_rng(1)
    b = ProgramBuilder()
    x = b.input("x", (1, 3, 6, 6), -128, 127)
    w = b.constant(generator.integers(-127, 128, (4, 3, 3, 3)), "w")
    (sums,) = b.add(
        "conv2d", [x, w], {"padding": (1, 1), "stride": (1, 1), "dilation": (1, 1), "groups": 1}, "convolved"
    )
    m, c, s = (b.parameter(values) for values in (np.full((4, 1, 1), 2**20), [2**27], [28]))
    (codes,) = b.add("requantize", [sums, m, c, s], {"rounding": "half_up", "lo": -128, "hi": 127}, "codes")
    (active,) = b.add("relu", [codes], {}, "active")
    (again,) = b.add("relu", [active], {}, "again")
    (added,) = b.add("elemwise_add", [again, codes], {}, "added")
    (pooled,) = b.add(
        "max_pool2d",
        [added],
        {"pool_size": (2, 2), "padding": (0, 0), "strides": (2, 2), "ceil_mode": False},
        "pooled",
    )
    (row,) = b.add("reshape", [pooled], {"target_shape": (1, 36)}, "row")
    memory = b.state("memory", b.constant(np.zeros((1, 5), np.int32), "nothing"), -(2**20), 2**20)
    (scores,) = b.add("dense", [row, b.constant(generator.integers(-9, 10, (5, 36)), "v")], {}, "scores")
    (mixed,) = b.add("elemwise_add", [scores, memory], {}, "mixed")
    (kept,) = b.add("clip", [mixed], {"a_min": -(2**20), "a_max": 2**20}, "kept")
    b.update("memory", kept)
    return b.build([Output("y", kept), Output("same", kept), Output("row", row), Output("x", x), Output("w", w)])


def fed(program: Program, seed: int = 0) -> Arrays:
    generator = np.random.default_rng(seed)
    return {
        i.value.name: generator.integers(i.value.lo, i.value.hi, i.value.shape, np.int32, endpoint=True)
        for i in program.inputs
    }


def run(name: str, program: Program, capture: object = frozenset(), seed: int = 0) -> RunResult:
    return create(name, verify(program)).run(fed(program, seed), initial_state(program), capture)  # type: ignore[arg-type]


def assert_equal(one: Arrays, other: Arrays) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name, strict=True)


def test_there_is_a_kernel_for_every_op_and_no_other() -> None:
    assert KERNELS.keys() == ops.REGISTRY.keys()


def test_an_unknown_executor_is_invalid() -> None:
    with pytest.raises(Invalid, match="numpy") as error:
        create("abacus", verify(example()))
    assert error.value.code == "executors.unknown"


@every_executor
def test_an_executor_bears_its_name_and_explains_every_node(name: str) -> None:
    program = network()
    executor = create(name, verify(program), threads=1)
    assert executor.name == name
    lines = executor.explain()
    assert [line.split(" = ")[0] for line in lines] == [node.outputs[0].name for node in program.nodes]


def test_numpy_explains_the_proof_of_its_contractions() -> None:
    explained = "\n".join(create("numpy", verify(network())).explain())
    assert "convolved = conv2d: float32: sum |w||x| <= " in explained
    assert "again = relu: identity: the input is never negative" in explained


def test_executors_agree_on_every_value_and_the_state_from_run_to_run() -> None:
    program = network()
    executors = [create(name, verify(program)) for name in EXECUTORS]
    states = [initial_state(program) for _ in executors]
    for seed in range(3):
        results = [e.run(fed(program, seed), s, "all") for e, s in zip(executors, states, strict=True)]
        for result in results[1:]:
            assert_equal(result.values, results[0].values)
            assert_equal(result.state, results[0].state)
        states = [result.state for result in results]
    assert states[0]["memory"].any()


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(program=programs(), seed=st.integers(0, 3))
def test_numpy_equals_formal_on_any_program(program: Program, seed: int) -> None:
    formal, numpy = (run(name, program, "all", seed) for name in ("formal", "numpy"))
    assert_equal(numpy.values, formal.values)
    assert_equal(numpy.state, formal.state)


@every_executor
def test_a_run_returns_outputs_and_what_is_captured_and_nothing_else(name: str) -> None:
    program = network()
    assert run(name, program).values.keys() == {"kept", "row", "x", "w"}
    assert run(name, program, frozenset({"codes", "memory"})).values.keys() == {
        "kept",
        "row",
        "x",
        "w",
        "codes",
        "memory",
    }
    every = {node.outputs[0].name for node in program.nodes} | {"x", "w", "memory"}
    assert run(name, program, "all").values.keys() == every
    assert run(name, program).state.keys() == {"memory"}


@every_executor
@pytest.mark.parametrize("capture", [frozenset(), "all"])
def test_results_share_no_memory_with_anything_and_are_writable(name: str, capture: object) -> None:
    program = network()
    executor = create(name, verify(program))
    inputs, state = fed(program), initial_state(program)
    before = {key: array.copy() for key, array in (inputs | state).items()}
    first = executor.run(inputs, state, capture)  # type: ignore[arg-type]
    found = [*first.values.values(), *first.state.values()]
    for one, other in itertools.combinations([*found, *inputs.values(), *state.values()], 2):
        assert not np.shares_memory(one, other)
    assert_equal(inputs | state, before)
    kept = {key: array.copy() for key, array in first.values.items()}
    for array in found:
        assert array.dtype == np.int32
        assert array.flags.c_contiguous
        array[...] = 77
    assert_equal(executor.run(inputs, state, capture).values, kept)  # type: ignore[arg-type]


@every_executor
def test_inputs_may_be_read_only_and_of_any_layout(name: str) -> None:
    program = network()
    expected = run(name, program)
    x = fed(program)["x"]
    strided = np.zeros((2, *x.shape), np.int32)[0].repeat(2, axis=3)[..., ::2]
    strided[...] = x
    fortran = np.asfortranarray(x)
    fortran.setflags(write=False)
    for given_x in (strided, fortran, x[..., ::-1].copy()[..., ::-1]):
        result = create(name, verify(program)).run({"x": given_x}, initial_state(program))
        assert_equal(result.values, expected.values)


@every_executor
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda x: {}, "executors.input.names"),
        (lambda x: {"x": x, "z": x}, "executors.input.names"),
        (lambda x: {"x": x.astype(np.int64)}, "executors.input.dtype"),
        (lambda x: {"x": x.astype(np.float32)}, "executors.input.dtype"),
        (lambda x: {"x": x[0]}, "executors.input.shape"),
        (lambda x: {"x": x + 128}, "executors.input.interval"),
        (lambda x: {"x": x - 128}, "executors.input.interval"),
    ],
)
def test_an_input_that_is_not_what_the_program_declares_is_invalid(name: str, change: object, code: str) -> None:
    program = network()
    with pytest.raises(Invalid) as error:
        create(name, verify(program)).run(change(fed(program)["x"]), initial_state(program))  # type: ignore[operator]
    assert error.value.code == code


@every_executor
def test_a_state_outside_its_interval_and_a_capture_of_no_value_are_invalid(name: str) -> None:
    program = network()
    executor = create(name, verify(program))
    with pytest.raises(Invalid) as error:
        executor.run(fed(program), {"memory": np.full((1, 5), 2**20 + 1, np.int32)})
    assert error.value.code == "executors.state.interval"
    with pytest.raises(Invalid) as error:
        executor.run(fed(program), {})
    assert error.value.code == "executors.state.names"
    with pytest.raises(Invalid) as error:
        executor.run(fed(program), initial_state(program), frozenset({"nowhere"}))
    assert error.value.code == "executors.capture"


@every_executor
def test_a_program_without_nodes_gives_copies_of_its_inputs_and_constants(name: str) -> None:
    b = ProgramBuilder()
    b.input("x", (2,), 0, 9)
    program = b.build([Output("x", "x"), Output("again", "x"), Output("c", b.constant([1, 2], "c"))])
    inputs = {"x": np.array([3, 4], np.int32)}
    result = create(name, verify(program)).run(inputs, {})
    assert {key: array.tolist() for key, array in result.values.items()} == {"x": [3, 4], "c": [1, 2]}
    assert not np.shares_memory(result.values["x"], inputs["x"])


def test_kernels_are_fed_contiguous_arrays_and_the_callers_own_where_they_are() -> None:
    program = network()
    x = fed(program)["x"]
    assert feeds(program, {"x": x}, initial_state(program))["x"] is x
    assert feeds(program, {"x": np.asfortranarray(x)}, initial_state(program))["x"].flags.c_contiguous


def wide_digest() -> str:
    """The digest of a program whose contractions are large enough for BLAS to use several threads."""
    generator = np.random.default_rng(2)
    b = ProgramBuilder()
    x = b.input("x", (1, 64, 24, 24), -127, 127)
    attributes = {"padding": (1, 1), "stride": (1, 1), "dilation": (1, 1), "groups": 1}
    (y,) = b.add("conv2d", [x, b.constant(generator.integers(-127, 128, (64, 64, 3, 3)))], attributes)
    (z,) = b.add(
        "conv2d", [y, b.constant(generator.integers(-9, 10, (16, 64, 1, 1)))], {**attributes, "padding": (0, 0)}
    )
    program = b.build([Output("z", z)])
    executor = create("numpy", verify(program))
    assert any("float32" in line for line in executor.explain())
    assert any("float64" in line or "runs" in line for line in executor.explain())
    result = executor.run(fed(program), {}, "all")
    return hashlib.sha256(b"".join(result.values[name].tobytes() for name in sorted(result.values))).hexdigest()


def test_the_bytes_do_not_depend_on_the_number_of_blas_threads() -> None:
    script = "from tests.executors.test_executors import wide_digest; print(wide_digest())"
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True,
        ).stdout.strip()
        for threads in ("1", "2")
    }  # fmt: skip
    assert digests == {wide_digest()}


def test_no_setting_of_the_caller_makes_a_run_fail() -> None:
    program = network()
    executor: Executor = create("numpy", verify(program))
    with np.errstate(all="raise"):
        executor.run(fed(program), initial_state(program), "all")
