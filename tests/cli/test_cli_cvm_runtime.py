"""Models of cvm-runtime on the command line: compile, inspect, export."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cvm.frontends import cvm_runtime
from cvm.program import load
from tests.frontends.cvm_runtime.models import Op, Variable, document, parameters

SHIFT = {"precision": "8", "shift_bit": "1"}
MODEL = document(
    Variable("data", (1, 4)), Variable("w", (3, 4)), Op("dense", [0, 1], [(1, 3)], {"units": "3", "use_bias": "0"}),
    Op("cvm_right_shift", [2], [(1, 3)], SHIFT),
)  # fmt: skip
PARAMS = parameters(("w", np.arange(-6, 6, dtype=np.int8).reshape(3, 4)))


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.json").write_text(json.dumps(MODEL))
    (tmp_path / "model.params").write_bytes(PARAMS)
    return tmp_path


def test_a_model_is_compiled_run_and_exported_again(cvm, model):
    compiled = cvm("compile", "model.json", "--params", "model.params", "-o", "model.cvm", "--json").document
    assert (compiled["compat"], compiled["exact"], compiled["notes"]) == ("correct", True, [])
    assert compiled["cvm_runtime"]["gas"] == 5 * 22 + 3 * 4 * 3 + 3
    assert compiled["cvm_runtime"]["storage_bytes"] == 4 * 22
    assert load("model.cvm").digest == compiled["digest"]
    np.save("x.npy", np.array([[1, 2, -128, 4]], np.int8))
    ran = cvm("run", "model.cvm", "-i", "x.npy", "--json").document
    w = np.arange(-6, 6).reshape(3, 4)
    expected = np.clip((w @ [1, 2, -127, 4] + 1) >> 1, -127, 127).tolist()
    assert ran["outputs"][0]["codes"] == [expected]
    exported = cvm("export", "model.cvm", "--format", "cvm-runtime", "-o", "there/deep", "--json").document
    assert exported["cvm_runtime"]["gas"] == compiled["cvm_runtime"]["gas"]
    assert [item["path"] for item in exported["files"]] == [
        f"there/deep/{name}" for name in ("model.json", "model.params", "interface.json")
    ]
    again = cvm_runtime.load("there/deep/model.json", "there/deep/model.params")
    assert again.program.digest == compiled["digest"]
    described = json.loads((model / "there/deep/interface.json").read_text())
    assert described["input"]["codes"] == [-128, 127]
    assert described["program"] == compiled["digest"]


def test_what_is_printed_for_people_has_both_costs(cvm, model):
    out = cvm("compile", "model.json", "--params", "model.params").out
    assert "cvm-runtime: gas 149, storage 88 bytes" in out
    out = cvm("inspect", "model.json").out
    assert "clamped to [-127, 127]" in out
    assert "cvm-runtime: gas 149, storage 88 bytes" in out
    out = cvm("export", "model.cvm", "--format", "cvm-runtime", "-o", "there")
    assert out.code == 3  # there is no such program yet
    cvm("compile", "model.json", "--params", "model.params", "-o", "model.cvm")
    out = cvm("export", "model.cvm", "--format", "cvm-runtime", "-o", "there").out
    assert "3 nodes become 2, 1 parameters" in out
    assert "wrote   there/model.params" in out


def test_inspect_shows_the_graph_or_the_program(cvm, model):
    graph = cvm("inspect", "model.json", "--json").document
    assert (graph["format"], graph["format_version"], graph["nodes"]) == ("cvm-runtime", "cvm_1.0.0", 2)
    assert [entry["precision"] for entry in graph["entries"]] == [8, 8, 19, 8]
    assert graph["input"]["clamped_to"] == [-127, 127]
    program = cvm("inspect", "model.json", "--params", "model.params", "--json").document
    assert [node["op"] for node in program["nodes"]] == ["cvm_clip", "dense", "cvm_right_shift"]
    cost = cvm("inspect", "model.json", "--params", "model.params", "--cost", "--json").document
    assert cost["macs"] == 12


def test_a_model_whose_gas_is_refused_is_shown_all_the_same(cvm, model):
    huge = document(
        Variable("data", (16384, 16384)), Variable("w", (16384, 16384)),
        Op("dense", [0, 1], [(16384, 16384)], {"units": "16384", "use_bias": "False"}),
    )  # fmt: skip
    (model / "huge.json").write_text(json.dumps(huge))
    found = cvm("inspect", "huge.json", "--json").document
    assert found["gas"] is None
    assert found["gas_refusal"]["code"] == "limit.cvm_runtime.ops"
    assert "gas refused" in cvm("inspect", "huge.json").out


def test_the_mode_is_an_option(cvm, model):
    made = document(Variable("data", (2, 2)), Op("max", [0], [(1,)]))
    (model / "max.json").write_text(json.dumps(made))
    (model / "none.params").write_bytes(parameters())
    digests = {
        mode: cvm("compile", "max.json", "--params", "none.params", "--compat", mode, "--json").document["digest"]
        for mode in ("correct", "cvm-1")
    }
    assert len(set(digests.values())) == 2


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["compile", "model.json"], 2, "which needs its other file: --params FILE"),
        (["compile", "model.json", "--params", "missing"], 3, "cvm_runtime.unreadable"),
        (["compile", "missing.json", "--params", "model.params"], 3, "cvm_runtime.unreadable"),
        (["compile", "model.params", "--params", "model.params"], 3, "cvm_runtime.json"),
        (["compile", "model.json", "--params", "model.json"], 3, "cvm_runtime.params.magic"),
        (["compile", "model.json", "--params", "/dev/null"], 3, "file"),
        (
            ["compile", "model.json", "--params", "model.params", "--compat", "old"],
            2,
            "correct or cvm-1 or tflite",
        ),
        (["compile", "model.json", "--params", "model.params", "--no-quant"], 2, "are for an NNEF model"),
        (["compile", "model", "--compat", "cvm-1"], 2, "--compat is for a model of cvm-runtime"),
        (["run", "model.json"], 2, "is compiled first"),
        (["inspect", "missing.json"], 3, "cvm_runtime.unreadable"),
        (["export", "model.json", "--format", "cvm-runtime", "-o", "x"], 2, "is compiled first"),
        (["export", "model.cvm", "--format", "onnx", "-o", "x"], 2, "expected c or wasm or object or cvm-runtime"),
        (["export", "model.cvm", "-o", "x"], 2, "--format"),
    ],
)
def test_mistakes_end_in_one_paragraph(cvm, model, words, code, message):
    outcome = cvm(*words)
    assert outcome.code == code
    assert message in outcome.err


def test_an_error_names_the_file_the_node_and_the_op(cvm, model):
    made = document(Variable("data", (2,)), Op("relu", [0], [(3,)]))
    (model / "bad.json").write_text(json.dumps(made))
    outcome = cvm("inspect", "bad.json", "--json")
    assert outcome.code == 3
    error = outcome.document["error"]
    assert (error["class"], error["code"]) == ("Invalid", "cvm_runtime.shape")
    assert error["location"] == {"file": "bad.json", "tensor": "relu_1", "op": "relu"}


def test_what_cannot_leave_is_refused_before_anything_is_written(cvm, files):
    outcome = cvm("export", "counter.cvm", "--format", "cvm-runtime", "-o", "there")
    assert outcome.code == 3
    assert "keeps no state" in outcome.err
    assert not (files / "there").exists()


def test_a_folder_that_cannot_be_made_is_named(cvm, model):
    cvm("compile", "model.json", "--params", "model.params", "-o", "model.cvm")
    outcome = cvm("export", "model.cvm", "--format", "cvm-runtime", "-o", "model.json/x")
    assert outcome.code == 3
    assert "output.unwritable" in outcome.err
