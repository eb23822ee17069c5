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


@pytest.fixture
def network(tmp_path, monkeypatch):
    """A float model of ONNX with two layers, and data."""
    from tests.calibration.test_correction import convolutions

    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(convolutions().SerializeToString())
    np.savez("x.npz", x=np.random.default_rng(4).normal(size=(12, 1, 2, 6, 6)))
    return tmp_path


def test_the_document_says_what_was_chosen_and_done(cvm, network):
    arguments = ("quantize", "m.onnx", "-i", "x.npz", "--weight-bits", "3")
    document = cvm(*arguments, "--json").document
    assert {"method", "tried", "equalized", "corrected"} <= set(document)
    assert [item["method"] for item in document["tried"]][:3] == ["minmax", "mse", "percentile"]
    assert {item["kept"] for item in document["tried"]} == {True, False}
    plain = ("--method", "minmax", "--equalize", "off", "--correct-bias", "off", "--output-bits", "8")
    before = cvm(*arguments, *plain, "--json").document
    assert (before["tried"], before["equalized"], before["corrected"]) == ([], [], [])
    kept = [item["sqnr_db"] for item in document["tried"] if item["kept"]]
    assert kept == sorted(kept)
    said = cvm(*arguments).out
    assert f"ranges: {document['method']}, the best of 3 tried" in said
    forced = cvm(*arguments, "--equalize", "on", "--correct-bias", "on", "--json").document
    assert [item["added"] for item in forced["corrected"]] == [False, True, True, True, False]
    assert "means of channels corrected: 5 (c, d, e" in cvm(*arguments, "--correct-bias", "on").out


def test_changed_weights_are_written_where_they_can_be(cvm, digits):
    arguments = ("quantize", "model", "-i", "data.npz", "--correct-bias", "on")
    for output in ((), ("-o", "graph.quant")):
        outcome = cvm(*arguments, *output)
        assert outcome.code == 2
        assert "--correct-bias changes weights: say -o FILE.cvm, or --write-weights with graph.quant" in outcome.err
    assert cvm(*arguments, "-o", "new/graph.quant", "--write-weights").code == 0
    made = cvm(*arguments, "-o", "model.cvm", "--json").document
    assert made["corrected"]
    compiled = cvm("compile", "new", "-o", "again.cvm", "--json").document
    assert compiled["digest"] == made["digest"]
    assert "expected --equalize auto, on, off, found 'some'" in cvm("quantize", "model", "--equalize", "some").err


def test_the_choices_of_changes_are_those_that_there_are():
    from cvm.calibration import CHOICES
    from cvm.cli import quantize

    assert quantize._CHOICES == CHOICES


def test_a_goal_gives_more_bits_to_what_costs_most(cvm, digits):
    arguments = ("quantize", "model", "-i", "data.npz")
    plain = cvm(*arguments, "-o", "plain.cvm", "--json").document
    goal = plain["outputs"][0]["sqnr_db"] + 1
    found = cvm(*arguments, "--target-sqnr", f"{goal:.2f}", "-o", "model.cvm", "--json").document
    assert found["outputs"][0]["sqnr_db"] >= goal
    assert found["widened"]
    wide = {name for item in found["widened"] for name in item["tensors"]}
    given = {item["tensor"]: item["quantizer"] for item in found["tensors"]}
    assert all("bits = 16" in given[name] or "bits = 12" in given[name] for name in wide)
    assert (
        f"more bits for {len(found['widened'])}; the SQNR if only that one had 8: "
        in cvm(*arguments, "--target-sqnr", f"{goal:.2f}", "-o", "model.cvm").out
    )
    assert cvm(*arguments, "--target-sqnr", f"{goal:.2f}", "-o", "graph.quant").code == 0
    compiled = cvm("compile", "model", "--quant", "graph.quant", "-o", "again.cvm", "--json").document
    assert compiled["digest"] == found["digest"] != plain["digest"]
    refused = cvm(*arguments, "--max-bytes", "1", "-o", "model.cvm")
    assert (refused.code, "1 are wanted: give weights fewer bits" in refused.err) == (3, True)


def test_a_model_of_nnef_leaves_as_onnx(cvm, digits):
    document = cvm("quantize", "model", "-i", "data.npz", "-o", "out.onnx", "--json").document
    assert document["file"] == {"path": "out.onnx", "bytes": os.path.getsize("out.onnx")}
    assert document["outputs"][0]["sqnr_db"] > 40
    compiled = cvm("compile", "out.onnx", "-o", "m.cvm", "--json").document
    assert compiled["digest"] == document["digest"]
    refused = cvm("quantize", "model", "-i", "data.npz", "-o", "out.onnx", "--form", "logarithmic")
    assert (refused.code, "no logarithmic quantiser; keep the program" in refused.err) == (3, True)
