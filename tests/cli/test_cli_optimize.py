"""--no-optimize, of `cvm compile` and of every command that compiles a model on the way."""

from __future__ import annotations

import numpy as np
import pytest

import cvm as package
from cvm.arrays import npz_bytes
from cvm.passes.optimize import optimize

DOCUMENT = """version 1.0;
graph net( x ) -> ( y )
{
    x = external(shape = [1, 2, 3, 4]);
    t = transpose(x, axes = [0, 2, 3, 1]);
    r = relu(t);
    y = transpose(r, axes = [0, 3, 1, 2]);
}
"""
QUANT = "".join(f'"{name}": linear_quantize(min = 0.0, max = 1.0, bits = 8);\n' for name in "xtry")


@pytest.fixture
def model(files):
    folder = files / "model"
    folder.mkdir()
    (folder / "graph.nnef").write_text(DOCUMENT)
    (folder / "graph.quant").write_text(QUANT)
    (files / "x.npz").write_bytes(npz_bytes({"x": np.arange(24).reshape(1, 2, 3, 4)}))
    return folder


def test_compile_optimises_unless_it_is_told_not_to(cvm, model):
    short, whole = (cvm("compile", model, *options, "--json").document for options in ((), ("--no-optimize",)))
    assert short["nodes"] < whole["nodes"]
    assert short["gas"] < whole["gas"]
    assert whole["digest"] == package.compile(model, optimize=False).digest
    assert short["digest"] == package.compile(model).digest == optimize(package.compile(model, optimize=False)).digest
    assert [item["tensor"] for item in short["tensors"]] == [item["tensor"] for item in whole["tensors"]]


@pytest.mark.parametrize("command", ["inspect", "legalize"])
def test_commands_that_show_a_model_take_it(cvm, model, command):
    found = [cvm(command, model, *options, "--json").document for options in ((), ("--no-optimize",))]
    assert found[0] != found[1]


def test_run_and_check_take_it(cvm, model):
    for options in ((), ("--no-optimize",)):
        assert cvm("run", model, "-i", "x.npz", "-o", f"out{len(options)}.npz", "--codes", *options).code == 0
        assert cvm("check", model, "-i", "x.npz", "--codes", *options).code == 0
    with np.load("out0.npz") as short, np.load("out1.npz") as whole:
        np.testing.assert_array_equal(short["y"], whole["y"])


def test_all_tensors_of_the_document_can_be_captured_without_it(cvm, model):
    assert cvm("run", model, "-i", "x.npz", "--codes", "-o", "o.npz", "--capture", "t", "--no-optimize").code == 0
    refused = cvm("run", model, "-i", "x.npz", "--codes", "-o", "o.npz", "--capture", "t")
    assert refused.code != 0
    assert "--no-optimize" in refused.err


@pytest.mark.parametrize("command", ["inspect", "legalize", "run", "check"])
def test_a_program_runs_as_it_is(cvm, files, command):
    outcome = cvm(command, "negated.cvm", "--no-optimize")
    assert outcome.code == 2
    assert "--no-optimize" in outcome.err
