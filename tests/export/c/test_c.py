"""Programs as C: every output and every tensor equal, under strict warnings and the sanitizers, for every op."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import cvm
from cvm.demo import IMAGES, LANGUAGE_MODEL, MODEL
from cvm.errors import Invalid
from cvm.executors import create, initial_state
from cvm.export.c import exported
from cvm.ops import REGISTRY
from cvm.program import Output, Program, ProgramBuilder, load, verify
from cvm.program.verifier import VerifiedProgram
from tests.api import small
from tools.c_driver import SANITIZED, build, compilers
from tools.c_targets import TARGETS
from tools.fuzz.c_programs import case, computed, covering, differences

COMPILERS = [
    pytest.param(name, id=name, marks=[pytest.mark.long] if number else []) for number, name in enumerate(compilers())
]
needs_compiler = pytest.mark.skipif(not COMPILERS, reason="no C compiler is installed (gcc or clang)")
pytestmark = needs_compiler
if not COMPILERS:
    COMPILERS = [pytest.param("gcc", id="gcc")]


def agree(verified: VerifiedProgram, feeds: list[Mapping[str, np.ndarray]], folder: Path, **options) -> None:
    """The outputs of the exported program, and every tensor of the traced one, are NumPy's."""
    expected = computed(verified, feeds)
    plain = build(verified, folder / "plain", **options).run(feeds)
    traced = build(verified, folder / "traced", traced=True, **options).run(feeds)
    made = {value.name for node in verified.program.nodes for value in node.outputs}
    for tensors, outputs, every in zip(expected, plain, traced, strict=True):
        for output in verified.program.outputs:
            np.testing.assert_array_equal(outputs[output.name], tensors[output.value], strict=True)
        assert made <= every.keys()
        for name, array in every.items():
            np.testing.assert_array_equal(array, tensors[name], err_msg=name, strict=True)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_demo_gives_its_probabilities(tmp_path, compiler):
    verified = verify(cvm.compile(MODEL))
    with np.load(IMAGES) as data:
        images = data["image"][:3]
    codes = [{"image": np.rint(image * 255).astype(np.int32)[None]} for image in images]
    agree(verified, codes, tmp_path, target=TARGETS[compiler], options=("-O1", *SANITIZED))


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("number", [1, 3, 5])
def test_random_programs_agree_under_the_sanitizers(tmp_path, compiler, number):
    program, feeds, _ = case(7, number)
    assert differences(program, feeds, tmp_path, TARGETS[compiler], ("-O1",)) == []


def test_every_op_has_its_c(tmp_path):
    """Random programs of all ops, each op at least once; those of op-set 2 too."""
    uses: set[str] = set()
    for op, program, feeds in covering():
        uses.update(node.op for node in program.nodes)
        agree(verify(program), list(feeds), tmp_path / op, options=("-O0", *SANITIZED))
    assert set(REGISTRY) - uses == set()


def test_state_goes_on_from_run_to_run_and_is_reset(tmp_path):
    verified = verify(small.counter())
    feeds = [{"step": np.array([[number, 9 - number]], np.int32)} for number in range(5)]
    agree(verified, feeds, tmp_path, options=("-O1", *SANITIZED))


def test_states_that_exchange_their_values(tmp_path):
    builder = ProgramBuilder()
    x = builder.input("x", (2,), 0, 100)
    one = builder.state("one", builder.constant(np.array([1, 2])), 0, 100)
    two = builder.state("two", builder.constant(np.array([3, 4])), 0, 100)
    (total,) = builder.add("elemwise_add", [one, x])
    builder.update(one, two)
    builder.update(two, one)
    verified = verify(builder.build([Output("total", total), Output("seen", one)]))
    agree(verified, [{"x": np.array([7, number], np.int32)} for number in range(4)], tmp_path)


def test_a_language_model_writes_the_same_logits(tmp_path):
    verified = verify(load(LANGUAGE_MODEL))
    feeds = [{"token": np.array([number], np.int32)} for number in (11, 50, 3)]
    feeds = [{verified.program.inputs[0].value.name: feed["token"].reshape(verified.program.inputs[0].value.shape)}
             for feed in feeds]  # fmt: skip
    numpy, state = create("numpy", verified), initial_state(verified.program)
    found = build(verified, tmp_path, options=("-O2",)).run(feeds)
    for feed, outputs in zip(feeds, found, strict=True):
        result = numpy.run(feed, state)
        state = result.state
        for output in verified.program.outputs:
            np.testing.assert_array_equal(outputs[output.name], result.values[output.value])


def test_inputs_out_of_their_interval_are_refused_by_number(tmp_path):
    builder = ProgramBuilder()
    a = builder.input("a", (3,), -5, 5)
    b = builder.input("b", (3,), 0, 1000)
    (y,) = builder.add("elemwise_add", [a, b])
    built = build(verify(builder.build([Output("y", y)])), tmp_path)
    good = {"a": np.array([-5, 0, 5], np.int32), "b": np.array([0, 1, 1000], np.int32)}
    assert built.run([good])[0]["y"].tolist() == [-5, 1, 1005]
    for name, wrong, status in (("a", 6, 1), ("a", -6, 1), ("b", 1001, 2)):
        feed = {**good, name: good[name].copy()}
        feed[name][1] = wrong
        with pytest.raises(RuntimeError, match=f"the run returned {status}"):
            built.run([feed])


def test_the_arena_is_what_the_largest_pair_of_neighbours_needs():
    builder = ProgramBuilder()
    x = builder.input("x", (1, 4, 10, 10), 0, 255)
    for number in range(6):
        weights = builder.constant(np.full((4, 4, 1, 1), number + 1))
        (y,) = builder.add(
            "conv2d", [x, weights], {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 1}
        )
        parameters = [builder.parameter([number]) for number in (1, 0, 2)]
        (x,) = builder.add("requantize", [y, *parameters], {"rounding": "half_up", "lo": 0, "hi": 255})
    verified = verify(builder.build([Output("x", x)]))
    made = exported(verified)
    assert made.arena_bytes == 2 * 400  # the sums are not stored, and two maps of bytes take turns
    assert made.constant_bytes == 6 * 16
    assert exported(verified, traced=True).arena_bytes == 800 + 400  # sums of 16 bits, and a map


def test_equal_programs_give_equal_files():
    first, second = (exported(verify(cvm.compile(MODEL))).files for _ in range(2))
    assert first == second
    assert list(first) == ["model.h", "model.c"]
    source = first["model.c"].decode()
    for word in ("float", "double", "malloc", "#include <"):
        assert word not in source


def test_names_are_identifiers_whatever_the_program_calls_its_tensors(tmp_path):
    builder = ProgramBuilder()
    names = ("int", "9 */ x", "a.b", "a_b", "é", "state")
    inputs = [builder.input(name, (2,), 0, 9) for name in names]
    total = inputs[0]
    for other in inputs[1:]:
        (total,) = builder.add("elemwise_add", [total, other])
    verified = verify(builder.build([Output("while", total), Output("*/", inputs[1])]))
    feed = {name: np.array([number, 9], np.int32) for number, name in enumerate(names)}
    found = build(verified, tmp_path).run([feed])[0]
    assert found["while"].tolist() == [15, 54]
    for name in ("", "Model", "1a", "a-b", "a" * 40):
        with pytest.raises(Invalid) as caught:
            exported(verified, name)
        assert caught.value.code == "export.name"


def test_two_programs_live_in_one_binary(tmp_path):
    for name in ("first", "second"):
        for file, data in exported(verify(small.negated()), name).files.items():
            (tmp_path / file).write_bytes(data)
    (tmp_path / "main.c").write_text(
        '#include "first.h"\n#include "second.h"\nint main(void) { return FIRST_OK + SECOND_OK; }\n'
    )
    command = [shutil.which("gcc") or "clang", "-std=c99", "first.c", "second.c", "main.c", "-o", "both"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0


@pytest.mark.long
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("options", ["-O0", "-O2"])
@pytest.mark.parametrize("number", range(100, 104))
def test_many_random_programs_agree_at_both_ends_of_optimisation(tmp_path, compiler, options, number):
    program, feeds, _ = case(11, number)
    assert isinstance(program, Program)
    assert differences(program, feeds, tmp_path, TARGETS[compiler], (options,)) == []
