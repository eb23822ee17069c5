import json
import subprocess
import sys

import pytest

import cvm
from cvm.demo import IMAGES, MODEL
from cvm.errors import CvmError

HEAVY = ("lark", "rich", "typer", "llvmlite", "pydantic", "numpy", "msgpack")


def test_importing_cvm_imports_nothing_heavy():
    code = "import sys, json, cvm; cvm.errors.CvmError; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert not [name for name in HEAVY if name in loaded]


@pytest.mark.parametrize(
    ("use", "unused"),
    [
        ("cvm.Session", ("lark", "rich", "typer", "llvmlite")),
        ("cvm.run_op('abs', [[1]])", ("lark", "rich", "typer", "llvmlite")),
        (f"cvm.compile({str(MODEL)!r})", ("rich", "typer", "llvmlite")),
    ],
)
def test_a_part_imports_only_what_it_uses(use, unused):
    code = f"import sys, json, cvm; {use}; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert not [name for name in unused if name in loaded]


def test_all_names_are_there():
    for name in cvm.__all__:
        assert getattr(cvm, name) is not None
        assert name in dir(cvm)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        cvm.nothing  # noqa: B018


def test_from_a_model_to_probabilities(tmp_path):
    from cvm.arrays import read_npz

    program = cvm.compile(MODEL)
    program.save(tmp_path / "digits.cvm")
    loaded = cvm.load(tmp_path / "digits.cvm")
    assert loaded.digest == program.digest
    assert [item.value.name for item in loaded.inputs] == ["image"]
    assert [item.name for item in loaded.outputs] == ["probs"]
    images, labels = read_npz(IMAGES, "image"), read_npz(IMAGES, "label")
    result = cvm.Session(loaded).run({"image": images})
    assert result["probs"].shape == (40, 10)
    assert (result["probs"].argmax(axis=1) == labels).all()
    assert (abs(result.real("probs").sum(axis=1) - 1) < 0.02).all()


def test_what_cannot_be_read_is_an_error_of_cvm(tmp_path):
    with pytest.raises(CvmError, match=r"nothing.nnef: cannot be read"):
        cvm.compile(tmp_path / "nothing.nnef")
    (tmp_path / "text.cvm").write_text("version 1.0;")
    with pytest.raises(CvmError, match=r"text.cvm"):
        cvm.load(tmp_path / "text.cvm")
    with pytest.raises(FileNotFoundError):
        cvm.load(tmp_path / "nothing.cvm")


def test_a_float_model_becomes_a_program_from_data(tmp_path):
    import numpy as np
    from onnx import helper

    from tests.frontends.onnx.making import made

    path = tmp_path / "m.onnx"
    model = made([helper.make_node("Tanh", ["x"], ["y"])], {"x": ("float32", (2, 3))}, {"y": "float32"})
    path.write_bytes(model.SerializeToString())
    data = {"x": np.linspace(-2, 2, 6).reshape(2, 3)}
    with pytest.raises(CvmError, match="`cvm quantize "):
        cvm.compile(path)
    with pytest.raises(CvmError, match=r"use cvm\.quantize_program"):
        cvm.quantize(path, data)
    program = cvm.quantize_program(path, data).program
    assert abs(cvm.Session(program).run(data).real("y") - np.tanh(data["x"])).max() < 4 / 255 + 2 / 255
    with pytest.raises(CvmError, match="input shapes and ranges, states and chosen outputs are for a model of ONNX"):
        cvm.quantize_program(MODEL, {}, input_shapes={"image": (1,)})


def test_a_float_model_of_tflite_becomes_a_program_from_data():
    import numpy as np

    from tests.oracle.harness import shared

    path = shared("gallery", "mlperf_tiny", "kws_ref_model_float32.tflite")
    data = {"input_1": np.random.default_rng(0).uniform(-1, 1, (2, 1, 49, 10, 1))}
    with pytest.raises(CvmError, match="`cvm quantize "):
        cvm.compile(path)
    made = cvm.quantize_program(path, data)
    assert {item.role for item in made.calibration.tensors} == {"activation", "filter"}
    assert cvm.Session(made.program).run(data).real("Identity").shape == (2, 1, 12)
