"""``cvm quantize``: from a model with float weights and data to a file that the compiler takes."""

import os
import shutil

import numpy as np
import pytest

from cvm.arrays import npz_bytes, read_npz
from cvm.demo import IMAGES, MODEL
from cvm.frontends import nnef


@pytest.fixture
def digits(tmp_path, monkeypatch):
    """A folder, made the working one, with the model of the package without its quantisation, and data."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(MODEL, "model")
    os.remove("model/graph.quant")
    (tmp_path / "data.npz").write_bytes(npz_bytes({"image": read_npz(IMAGES, "image")}))
    return tmp_path


def test_a_float_model_is_offered_calibration_and_compiles_after_it(cvm, digits):
    refused = cvm("compile", "model", "--json")
    assert refused.code == 3
    error = refused.document["error"]
    assert error["code"] == "lowering.unquantized"
    assert error["location"]["tensor"] == "image"
    assert "`cvm quantize MODEL -i data.npz -o graph.quant`" in error["message"]
    outcome = cvm("quantize", "model", "-i", "data.npz", "-o", "graph.quant")
    assert outcome.code == 0
    assert "wrote  graph.quant (" in outcome.out
    assert outcome.err == ""
    assert cvm("compile", "model", "--quant", "graph.quant", "-o", "model.cvm").code == 0
    assert cvm("run", "model.cvm", "-i", "image=data.npz", "-o", "out.npz", "--executor", "numpy").code == 0
    shutil.copy("graph.quant", "model")
    assert cvm("nnef", "check", "model").code == 0


def test_the_document_says_what_was_found_for_every_tensor(cvm, digits):
    document = cvm("quantize", "model", "-i", "data.npz", "-o", "graph.quant", "--json").document
    assert set(document) == {"version", "model", "tensors", "file"}
    assert document["file"] == {"path": "graph.quant", "bytes": (digits / "graph.quant").stat().st_size}
    by_name = {item["tensor"]: item for item in document["tensors"]}
    lines = (digits / "graph.quant").read_text().splitlines()
    assert lines == [f'"{name}": {item["quantizer"]};' for name, item in by_name.items()]
    assert by_name["image"] == {
        "tensor": "image",
        "role": "activation",
        "min": 0.0,
        "max": 1.0,
        "clipped": 0.0,
        "quantizer": "linear_quantize(min = 0.0, max = 1.00000035, bits = 8)",
    }
    assert {item["role"] for item in by_name.values()} == {"activation", "filter", "bias", "parameter"}


def test_without_a_file_nothing_is_written(cvm, digits):
    before = sorted(digits.rglob("*"))
    outcome = cvm("quantize", "model", "-i", "data.npz", "--per-channel", "--weight-bits", "4", "--method", "mse")
    assert outcome.code == 0
    assert outcome.out.splitlines()[0].split() == ["tensor", "role", "min", "max", "clipped", "quantiser"]
    assert sorted(digits.rglob("*")) == before


@pytest.mark.parametrize("form", ["linear", "zero-point", "logarithmic"])
def test_whole_models_are_written_with_their_weights_as_codes(cvm, digits, form):
    document = cvm(
        "quantize", "model", "-i", "data.npz", "-o", f"{form}/graph.quant", "--write-weights", "--form", form, "--json"
    ).document
    assert document["folder"] == form
    assert cvm("quantize", "model", "-i", "data.npz", "-o", "other.quant", "--form", form).code == 0
    assert (digits / form / "graph.quant").read_bytes() == (digits / "other.quant").read_bytes()
    weights = nnef.load(form).tensors["w1"].data
    kind = weights.values.dtype
    assert kind == {"linear": np.uint8, "zero-point": np.int8, "logarithmic": np.float32}[form]
    digest = cvm("compile", form, "--json").document["digest"]
    assert digest == cvm("compile", "model", "--quant", "other.quant", "--json").document["digest"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([], "no -i option gives the input 'image'"),
        (["-i", "data.npz", "--method", "guess"], "expected --method minmax, percentile, mse, entropy, found 'guess'"),
        (["-i", "data.npz", "--form", "cubic"], "expected --form linear, zero-point, logarithmic, found 'cubic'"),
        (["-i", "data.npz", "--write-weights"], "say -o FOLDER/graph.quant"),
        (["-i", "data.npz", "--write-weights", "-o", "new/model.quant"], "say -o FOLDER/graph.quant"),
        (["-i", "data.npz", "--bits", "many"], "Invalid value for '--bits'"),
    ],
)
def test_wrong_usage(cvm, digits, arguments, what):
    outcome = cvm("quantize", "model", *arguments)
    assert outcome.code == 2
    assert what in outcome.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--bits", "1"], "calibration.bits"),
        (["--weight-bits", "33"], "calibration.bits"),
        (["--percentile", "101"], "calibration.percentile"),
        (["--form", "logarithmic", "--per-channel"], "calibration.per-channel"),
        (["--cycles"], "input.cycles"),
        (["-o", "missing/graph.quant"], "output.unwritable"),
        (["-o", "model/graph.quant", "--write-weights"], "nnef.container.exists"),
    ],
)
def test_what_cannot_be_done_is_refused(cvm, digits, arguments, code):
    outcome = cvm("quantize", "model", "-i", "data.npz", *arguments, "--json")
    assert outcome.code == 3
    assert outcome.document["error"]["code"] == code


def test_data_that_is_no_real_number_is_refused(cvm, digits):
    images = read_npz(IMAGES, "image").astype(np.float64)
    images[3, 0, 4, 5] = np.nan
    np.save("broken.npy", images)
    error = cvm("quantize", "model", "-i", "broken.npy", "--json").document["error"]
    assert (error["code"], error["location"]["tensor"]) == ("input.real", "image")


def test_the_choices_named_by_the_command_are_those_that_there_are():
    from cvm.calibration import FORMS
    from cvm.cli import quantize
    from cvm.quantization.calibration import METHODS

    assert (quantize._METHODS, quantize._FORMS) == (METHODS, FORMS)
