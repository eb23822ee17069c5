"""Models of ONNX on the command line: compiled, run, inspected, and refused with the node and the file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cvm.cli import main
from tests.frontends.onnx.making import made
from tools.onnx_networks.lenet import images

MODEL = Path(__file__).parents[1] / "frontends" / "onnx" / "models" / "lenet-qdq-channel-int8.onnx"


def test_a_model_is_compiled_run_and_inspected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, labels = images()
    np.save(tmp_path / "image.npy", data)
    program, output = tmp_path / "m.cvm", tmp_path / "out.npz"
    assert main(["compile", str(MODEL), "-o", str(program), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {item["tensor"] for item in document["tensors"] if not item["exact"]} <= {"probs_QuantizeLinear_Input"}
    assert main(["run", str(program), "-i", str(tmp_path / "image.npy"), "-o", str(output)]) == 0
    with np.load(output) as found:
        assert (found["probs"].argmax(axis=1) == labels).mean() > 0.95
    assert main(["run", str(MODEL), "-i", str(tmp_path / "image.npy"), "-o", str(tmp_path / "again.npz")]) == 0
    with np.load(output) as one, np.load(tmp_path / "again.npz") as other:
        np.testing.assert_array_equal(one["probs"], other["probs"])
    capsys.readouterr()
    assert main(["inspect", str(program)]) == 0
    assert "image" in capsys.readouterr().out


@pytest.mark.slow
def test_a_model_is_compared_with_itself_unrounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, labels = images()
    np.savez(tmp_path / "data.npz", image=data, label=labels)
    program = tmp_path / "m.cvm"
    given = ["-i", f"{tmp_path / 'data.npz'}:image", "--labels", f"{tmp_path / 'data.npz'}:label", "--json"]
    assert main(["compile", str(MODEL), "-o", str(program), "--json"]) == 0
    capsys.readouterr()
    found = []
    for words in ([str(MODEL)], [str(program), "--model", str(MODEL)]):
        assert main(["report", *words, *given]) == 0
        found.append(json.loads(capsys.readouterr().out))
    one, other = found
    assert one == other
    assert one["model"]["compiles_to_program"] is True
    assert one["classes"]["agreeing"] == one["classes"]["runs"] == len(labels)
    assert all(item["sqnr_db"] is None or item["sqnr_db"] > 30 for item in one["tensors"])
    assert all(sum((item["clipped"] or {"none": 0}).values()) == 0 for item in one["tensors"])


def test_a_report_takes_shapes_and_ranges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from onnx import helper

    path = tmp_path / "m.onnx"
    model = made([helper.make_node("Mul", ["x", "x"], ["y"], name="sq")], {"x": ("int32", (1, "w"))}, {"y": "int32"})
    path.write_bytes(model.SerializeToString())
    np.save(tmp_path / "x.npy", np.array([[[1, -2, 3, 9]]]))
    words = ["report", str(path), "-i", str(tmp_path / "x.npy"), "--json"]
    assert main(words) == 3
    capsys.readouterr()
    assert main([*words, "--input-shape", "x=1,4", "--input-range", "x=-9,9"]) == 0
    (square,) = [item for item in json.loads(capsys.readouterr().out)["tensors"] if item["tensor"] == "y"]
    assert (square["codes"], square["differing"]) == ([1, 81], 0)
    assert main([*words, "--quant", str(tmp_path / "x.npy")]) == 2
    assert main(["report", str(tmp_path), "-i", str(tmp_path / "x.npy"), "--input-shape", "x=1"]) == 2


def test_shapes_and_ranges_are_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from onnx import helper

    path = tmp_path / "m.onnx"
    model = made([helper.make_node("Mul", ["x", "x"], ["y"], name="sq")], {"x": ("int32", (1, "w"))}, {"y": "int32"})
    path.write_bytes(model.SerializeToString())
    assert main(["compile", str(path)]) == 3
    assert "--input-shape x=" in capsys.readouterr().err
    assert main(["compile", str(path), "--input-shape", "x=1,4"]) == 3
    error = capsys.readouterr().err
    assert "sq" in error
    assert "--input-range" in error
    assert str(path) in error.replace("\n", "")
    assert main(["compile", str(path), "--input-shape", "x=1,4", "--input-range", "x=-9,9"]) == 0
    for wrong in ("x", "x=", "x=a", "=1", "x=1,2,3"):
        assert main(["compile", str(path), "--input-range", wrong]) == 2
    assert main(["compile", str(path), "--input-shape", "x=1,4", "--input-shape", "x=1,5"]) == 2


def test_options_of_other_formats_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(MODEL), "--no-quant"]) == 2
    assert main(["compile", str(tmp_path), "--input-shape", "x=1"]) == 2


def test_wrong_files_are_refused_with_one_paragraph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, data in (("text.onnx", b"graph { }"), ("empty.onnx", b""), ("cut.onnx", MODEL.read_bytes()[:999])):
        path = tmp_path / name
        path.write_bytes(data)
        assert main(["compile", str(path)]) == 3
        error = capsys.readouterr().err
        assert name in error.replace("\n", "")
        assert "Traceback" not in error
    assert main(["compile", str(tmp_path / "missing.onnx")]) == 3
    (tmp_path / "folder.onnx").mkdir()
    assert main(["compile", str(tmp_path / "folder.onnx")]) == 3
