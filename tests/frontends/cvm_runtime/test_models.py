"""The models that the C++ library was run on: bytes in, the same bytes out, and the same costs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import cvm
from cvm.errors import Invalid
from cvm.executors import create
from cvm.export.cvm_runtime import saved
from cvm.frontends import cvm_runtime
from cvm.program import verify

from .library import opened
from .models import given

FOLDER = Path(__file__).parents[4] / "shared" / "cvm_runtime" / "models"
NAMES = ("tiny_cnn_v100", "relu_i32", "detect")

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="../shared/cvm_runtime/models is not there")


def imported(name: str, compat: cvm_runtime.Compat = "correct") -> cvm_runtime.Imported:
    return cvm_runtime.load(FOLDER / f"{name}.json", FOLDER / f"{name}.params", compat)


@pytest.mark.parametrize("compat", ["correct", "cvm-1"])
@pytest.mark.parametrize("executor", ["formal", "numpy", "native"])
@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_both_backends(name: str, executor: str, compat: cvm_runtime.Compat) -> None:
    found = given(imported(name, compat), (FOLDER / f"{name}.input.bin").read_bytes(), executor)
    assert found == (FOLDER / f"{name}.output.formal.bin").read_bytes()
    assert found == (FOLDER / f"{name}.output.cpu.bin").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_lengths_costs_and_elements_are_the_expected_ones(name: str) -> None:
    expected = json.loads((FOLDER / f"{name}.expect.json").read_text("utf-8"))
    model = imported(name).model
    for backend in ("cpu", "formal"):
        assert expected[backend] == {
            "GetInputLength": model.interface.input_length,
            "GetInputTypeSize": model.interface.input_size,
            "GetOutputLength": model.interface.output_length,
            "GetOutputTypeSize": model.interface.output_size,
            "GetStorageSize": model.metering.storage,
            "GetGasFromModel": model.metering.gas,
            "PostprocessMethod": model.interface.postprocess,
            "rc": 0,
        }
    data = np.array(expected["input"], f"<i{model.interface.input_size}").tobytes()
    assert data == (FOLDER / f"{name}.input.bin").read_bytes()
    found = given(imported(name), data)
    assert np.frombuffer(found, f"<i{model.interface.output_size}").tolist() == expected["output"]


@pytest.mark.parametrize("name", NAMES)
def test_the_library_of_the_tests_runs_them_too(name: str) -> None:
    model = opened((FOLDER / f"{name}.json").read_text("utf-8"), (FOLDER / f"{name}.params").read_bytes())
    data = (FOLDER / f"{name}.input.bin").read_bytes()
    assert model.run(data, "formal") == (FOLDER / f"{name}.output.formal.bin").read_bytes()


def test_the_parameter_file_of_two_arrays() -> None:
    data = (FOLDER / "two_arrays.params").read_bytes()
    found = cvm_runtime.read_parameters(data)
    assert {name: (array.dtype.str, array.tolist()) for name, array in found.arrays.items()} == {
        "w": ("|i1", [[1, -2], [3, 4]]),
        "bias": ("<i4", [1000, -1000]),
    }
    assert cvm_runtime.write_parameters(found.arrays) == data


@pytest.mark.parametrize("name", ["tiny_cnn_v100", "relu_i32"])
def test_a_round_trip_keeps_the_program_to_its_digest(name: str) -> None:
    first = imported(name)
    files = saved(first.program)
    again = cvm_runtime.loads(files.content["model.json"], files.content["model.params"])
    assert again.program.digest == first.program.digest
    assert again.model.metering.gas == first.model.metering.gas


def test_a_round_trip_of_a_suppression_keeps_what_it_gives() -> None:
    """It leaves in more ops, since one backend of the library stops at the first negative id."""
    first = imported("detect")
    files = saved(first.program)
    again = cvm_runtime.loads(files.content["model.json"], files.content["model.params"])
    model = opened(files.content["model.json"].decode(), files.content["model.params"])
    rng = np.random.default_rng(5)
    for _ in range(50):
        rows = rng.integers(-3, 20, size=(1, 4, 6)).astype("<i4").tobytes()
        assert given(first, rows) == given(again, rows) == model.run(rows, "formal") == model.run(rows, "cpu")
    twice = saved(again.program)
    third = cvm_runtime.loads(twice.content["model.json"], twice.content["model.params"])
    rows = (FOLDER / "detect.input.bin").read_bytes()
    assert given(third, rows) == (FOLDER / "detect.output.formal.bin").read_bytes()


def test_the_public_surface_compiles_a_model() -> None:
    program = cvm.compile(FOLDER / "tiny_cnn_v100.json", params=FOLDER / "tiny_cnn_v100.params")
    assert program.digest == imported("tiny_cnn_v100").program.digest
    assert [node.op for node in program.nodes][:2] == ["cvm_clip", "conv2d"]
    assert (program.inputs[0].value.lo, program.inputs[0].value.hi) == (-128, 127)
    assert [item.tensor for item in program.provenance.exactness][-1] == "cvm_right_shift_1"


def test_options_of_nnef_models_are_refused() -> None:
    with pytest.raises(Invalid, match="for an NNEF model"):
        cvm.compile(FOLDER / "relu_i32.json", False, params=FOLDER / "relu_i32.params")


def test_every_executor_gives_every_tensor_alike() -> None:
    verified = verify(imported("tiny_cnn_v100").program)
    x = np.arange(-8, 8, dtype=np.int32).reshape(1, 1, 4, 4) * 15
    runs = [create(name, verified).run({"data": x}, {}, "all").values for name in ("formal", "numpy", "native")]
    for values in runs[1:]:
        assert values.keys() == runs[0].keys()
        assert all(np.array_equal(values[name], runs[0][name]) for name in values)
