"""``cvm quantize`` of a float model of ONNX: from data to a program, and what is refused."""

from __future__ import annotations

import hashlib
import shutil

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.frontends.onnx.making import made

F32 = np.float32


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A folder, made the working one, with a float network, and data."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(5)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], name="first"),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["y"]),
    ]
    constants = {
        "w": random.normal(size=(4, 3, 3, 3)).astype(F32), "b": random.normal(size=4).astype(F32),
        "v": random.normal(size=(4, 2)).astype(F32),
    }  # fmt: skip
    network = made(nodes, {"x": ("float32", ("n", 3, 5, 5))}, {"y": "float32"}, constants)
    onnx.save(network, "float.onnx")
    np.save("x.npy", random.normal(size=(20, 3, 5, 5)))
    return tmp_path


def test_compile_says_what_to_type_and_that_gives_a_program(cvm, model):
    refused = cvm("compile", "float.onnx", "--json")
    assert (refused.code, refused.document["error"]["code"]) == (3, "onnx.float")
    assert "`cvm quantize float.onnx -i DATA -o model.cvm`" in refused.document["error"]["message"]
    made_one = cvm("quantize", "float.onnx", "-i", "x.npy", "-o", "model.cvm")
    assert (made_one.code, made_one.err) == (0, "")
    lines = made_one.out.splitlines()
    assert any(line.startswith("wrote  model.cvm (") for line in lines)
    assert "quantisers added: 4 activations, 2 filters" in lines
    assert cvm("run", "model.cvm", "-i", "x.npy", "-o", "out.npz").code == 0
    assert cvm("check", "model.cvm", "-i", "x.npy").code == 0


def test_a_report_on_a_float_model_says_how_to_get_one(cvm, model):
    assert cvm("quantize", "float.onnx", "-i", "x.npy", "-o", "model.cvm").code == 0
    refused = cvm("report", "model.cvm", "--model", "float.onnx", "-i", "x.npy")
    assert refused.code == 3
    assert "`cvm quantize float.onnx -i DATA -o quantised.onnx`" in refused.err.replace("\n", " ")
    assert refused.err.count("cvm quantize") == 1  # the other command would write no model
    assert cvm("quantize", "float.onnx", "-i", "x.npy", "-o", "quantised.onnx").code == 0
    assert cvm("report", "quantised.onnx", "-i", "x.npy").code == 0


def test_the_document_names_what_was_added_and_what_it_costs(cvm, model):
    document = cvm("quantize", "float.onnx", "-i", "x.npy", "-o", "model.cvm", "--json").document
    assert set(document) == {
        "version", "model", "data", "bits", "tensors", "remedies", "widened", "outputs", "digest", "gas", "nodes",
        "constant_bytes", "exact", "file", "method", "tried", "equalized", "corrected",
    }  # fmt: skip
    assert document["data"] == {"runs": 20}
    assert document["exact"] is True
    assert {item["tensor"]: item["role"] for item in document["tensors"]} == {
        "x": "activation", "w": "filter", "r": "activation", "f": "activation", "v": "filter", "y": "activation",
    }  # fmt: skip
    (output,) = document["outputs"]
    assert output["output"] == "y"
    assert output["sqnr_db"] > 30
    assert document["file"] == {"path": "model.cvm", "bytes": (model / "model.cvm").stat().st_size}
    assert cvm("inspect", "model.cvm", "--json").document["digest"] == document["digest"]


def test_the_same_data_give_the_same_file_and_more_bits_less_noise(cvm, model):
    found = {}
    for bits in (4, 8, 12):
        files = []
        for _ in range(2):
            outcome = cvm("quantize", "float.onnx", "-i", "x.npy", "-o", "m.cvm", "--bits", bits, "--json")
            files.append(hashlib.sha256((model / "m.cvm").read_bytes()).hexdigest())
        assert files[0] == files[1]
        found[bits] = outcome.document["outputs"][0]["sqnr_db"]
    assert found[4] + 12 < found[8] < found[12]


def test_a_goal_gives_more_bits_to_what_costs_most(cvm, model):
    given = ("quantize", "float.onnx", "-i", "x.npy", "-o", "m.cvm")
    before = cvm(*given, "--json").document
    assert before["widened"] == []
    goal = before["outputs"][0]["sqnr_db"] + 3
    found = cvm(*given, "--target-sqnr", goal, "--json").document
    assert found["outputs"][0]["sqnr_db"] >= goal
    named = [name for item in found["widened"] for name in item["tensors"]]
    assert named
    assert set(named) < {item["tensor"] for item in found["tensors"]}
    assert f"more bits for {len(found['widened'])}; " in cvm(*given, "--target-sqnr", goal).out
    size = found["file"]["bytes"]
    assert cvm(*given, "--max-bytes", size, "--json").document["file"]["bytes"] <= size
    for options, what in ((("--target-sqnr", 300), "300 are wanted"), (("--max-bytes", 1), "1 are wanted")):
        outcome = cvm(*given, *options)
        assert outcome.code == 3
        assert what in outcome.err
        assert "calibration.goal" in outcome.err


def test_the_quantised_model_leaves_as_onnx(cvm, model):
    document = cvm("quantize", "float.onnx", "-i", "x.npy", "-o", "quantised.onnx", "--json").document
    assert document["file"] == {"path": "quantised.onnx", "bytes": (model / "quantised.onnx").stat().st_size}
    compiled = cvm("compile", "quantised.onnx", "-o", "m.cvm", "--json").document
    assert compiled["digest"] == document["digest"]
    assert document["outputs"][0]["sqnr_db"] > 30
    outcome = cvm("quantize", "float.onnx", "-i", "x.npy", "-o", "quantised.onnx", "--bits", "7")
    assert outcome.code == 3
    assert "codes of 7 bits have no type in ONNX: use --bits 8 or 16" in outcome.err
    wrong = cvm("quantize", "float.onnx", "-i", "x.npy", "-o", "m.pt")
    assert "say -o FILE.cvm, or FILE.onnx for a quantised model of ONNX" in wrong.err


def test_a_quantised_model_of_onnx_has_the_weights_that_its_source_keeps_in_a_file_beside_it(cvm, model):
    """As torch.onnx.export writes them."""
    one = cvm("quantize", "float.onnx", "-i", "x.npy", "-o", "one.onnx", "--json").document
    (model / "apart").mkdir()
    apart = onnx.load("float.onnx")
    onnx.save(apart, "apart/float.onnx", save_as_external_data=True, location="float.data", size_threshold=0)
    two = cvm("quantize", "apart/float.onnx", "-i", "x.npy", "-o", "two.onnx", "--json").document
    assert (two["digest"], two["outputs"]) == (one["digest"], one["outputs"])
    shutil.rmtree("apart")
    assert cvm("compile", "two.onnx", "--json").document["digest"] == one["digest"]


@pytest.mark.parametrize("option", ["--equalize", "--correct-bias"])
@pytest.mark.parametrize("choice", ["on", "auto"])
def test_a_model_of_onnx_keeps_its_weights_when_it_leaves(cvm, model, option, choice):
    outcome = cvm("quantize", "float.onnx", "-i", "x.npy", "-o", "quantised.onnx", option, choice)
    assert outcome.code == 2
    assert f"{option} changes weights, which a quantised model of ONNX has as before: say -o FILE.cvm" in outcome.err
    assert not (model / "quantised.onnx").exists()
    assert cvm("quantize", "float.onnx", "-i", "x.npy", "-o", "quantised.onnx", option, "off").code == 0


def test_options_for_data_shapes_and_scales(cvm, model):
    assert cvm("quantize", "float.onnx", "-i", "x.npy", "--input-shape", "x=1,3,5,5", "--no-optimize").code == 0
    assert cvm("quantize", "float.onnx", "-i", "x.npy", "--per-tensor", "--method", "mse").code == 0
    drawn = cvm("quantize", "float.onnx", "--random", "8", "--seed", "3", "--random-range", "0,2", "--json").document
    assert drawn["data"] == {"runs": 8, "random": {"seed": 3, "range": [0.0, 2.0]}}
    (given,) = [item for item in drawn["tensors"] if item["tensor"] == "x"]
    assert 0 <= given["min"] < given["max"] < 2
    said = cvm("quantize", "float.onnx", "--random", "8", "--seed", "3").out
    assert "data: 8 random samples (seed 3): the ranges are theirs" in said
    assert not list(model.glob("*.cvm"))


def test_numbers_drawn_outside_of_what_a_function_is_defined_for_name_the_option(cvm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(made([helper.make_node("Log", ["x"], ["y"])], {"x": ("float32", (3,))}, {"y": "float32"}), "log.onnx")
    refused = cvm("quantize", "log.onnx", "--random", "8", "--json").document["error"]
    assert (refused["code"], refused["location"]["tensor"]) == ("calibration.real", "y")
    assert "no result for some number of [-1, 1), from which --random draws; give" in refused["message"]
    assert "`--random-range 0.1,0.9`" in refused["message"]
    assert cvm("quantize", "log.onnx", "--random", "8", "--random-range", "0.1,0.9").code == 0


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([], "no -i option gives the input 'x'; the inputs are x [1, 3, 5, 5]; --random N draws random data"),
        (["-i", "x.npy", "--random", "2"], "--random is instead of -i and --cycles"),
        (["--random", "0"], "Invalid value for '--random'"),
        (["--random", "2", "--random-range", "1,-1"], "expected --random-range LO,HI with LO below HI"),
        (["--random", "2", "--random-range", "nan,1"], "expected --random-range LO,HI with LO below HI"),
        (["--random", "2", "--random-range", "some"], "expected --random-range LO,HI, found 'some'"),
        (["-i", "x.npy", "-o", "graph.quant"], "a model of ONNX or TFLite becomes a program: say -o FILE.cvm"),
        (["-i", "x.npy", "-o", "new/graph.quant", "--write-weights"], "a model of ONNX or TFLite becomes a program"),
        (["-i", "z=x.npy"], "no -i option gives the input 'x'"),
    ],
)
def test_wrong_usage(cvm, model, arguments, what):
    outcome = cvm("quantize", "float.onnx", *arguments)
    assert outcome.code == 2
    assert what in " ".join(outcome.err.split())


def test_data_of_another_shape_and_data_that_are_no_numbers_are_refused(cvm, model):
    np.save("wrong.npy", np.zeros((20, 3, 4, 4)))
    error = cvm("quantize", "float.onnx", "-i", "wrong.npy", "--json").document["error"]
    assert (error["code"], error["location"]["tensor"]) == ("input.shape", "x")
    broken = np.load("x.npy")
    broken[3, 0, 1, 2] = np.nan
    np.save("nan.npy", broken)
    error = cvm("quantize", "float.onnx", "-i", "nan.npy", "--json").document["error"]
    assert (error["code"], error["location"]["tensor"]) == ("input.real", "x")
    assert (
        cvm("quantize", "float.onnx", "-i", "x.npy", "--cycles", "--json").document["error"]["code"] == "input.cycles"
    )
    assert (
        cvm("quantize", "float.onnx", "-i", "x.npy", "--bits", "1", "--json").document["error"]["code"]
        == "calibration.bits"
    )


def test_weights_that_are_no_numbers_are_refused(cvm, model):
    network = onnx.load("float.onnx")
    weights = numpy_helper.to_array(network.graph.initializer[0]).copy()
    weights[0, 0, 0, 0] = np.inf
    network.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w"))
    onnx.save(network, "broken.onnx")
    error = cvm("quantize", "broken.onnx", "-i", "x.npy", "--json").document["error"]
    assert error["class"] == "Unsupported"
    assert "NaN or an infinity" in error["message"]


def test_a_model_with_an_operator_that_is_not_read_is_refused_in_its_words(cvm, model):
    network = made([helper.make_node("Det", ["x"], ["y"], name="odd")], {"x": ("float32", (2, 2))}, {"y": "float32"})
    onnx.save(network, "odd.onnx")
    error = cvm("quantize", "odd.onnx", "--random", "1", "--json").document["error"]
    assert error["class"] == "Unsupported"
    assert "node 'odd', Det" in error["message"]


def test_nnef_models_become_programs_too(cvm, model):
    """The program is the one of the quantisation file that the same command writes."""
    import os
    import shutil

    from cvm.arrays import npz_bytes, read_npz
    from cvm.demo import IMAGES, MODEL

    shutil.copytree(MODEL, "nnef")
    os.remove("nnef/graph.quant")
    (model / "images.npz").write_bytes(npz_bytes({"image": read_npz(IMAGES, "image")}))
    document = cvm("quantize", "nnef", "-i", "images.npz", "-o", "nnef.cvm", "--json").document
    assert cvm("quantize", "nnef", "-i", "images.npz", "-o", "graph.quant").code == 0
    compiled = cvm("compile", "nnef", "--quant", "graph.quant", "--json").document
    assert compiled["digest"] == document["digest"]
    assert [item["output"] for item in document["outputs"]] == ["probs"]
    assert document["outputs"][0]["sqnr_db"] > 20
    assert cvm("quantize", "nnef", "-i", "images.npz", "--input-shape", "image=1,1,8,8").code == 2


def test_a_model_without_inputs_needs_no_data(cvm, model):
    constant = numpy_helper.from_array(np.array([1.5, -2.0, 3.0], F32))
    network = made([helper.make_node("Constant", [], ["c"], value=constant), helper.make_node("Neg", ["c"], ["y"])],
                   {}, {"y": "float32"})  # fmt: skip
    onnx.save(network, "constant.onnx")
    document = cvm("quantize", "constant.onnx", "-o", "constant.cvm", "--json").document
    assert document["outputs"][0]["sqnr_db"] > 40
    assert cvm("run", "constant.cvm", "-o", "out.npz").code == 0


def test_bits_outputs_and_op_set_are_chosen(cvm, tmp_path, monkeypatch):
    """A normalised product whose result goes on in the next cycle: by one op with op-set 2, and only with it."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(6)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "h"], ["s"]),
             helper.make_node("LayerNormalization", ["s", "g"], ["n"], axis=-1),
             helper.make_node("MatMul", ["n", "v"], ["y"])]  # fmt: skip
    drawn = {"w": (6, 6), "g": (6,), "v": (6, 3)}
    constants = {name: random.normal(size=shape).astype(F32) for name, shape in drawn.items()}
    shapes = {"x": ("float32", (1, 6)), "h": ("float32", (1, 6))}
    onnx.save(made(nodes, shapes, {"y": "float32", "n": "float32"}, constants), "float.onnx")
    np.save("x.npy", random.normal(size=(2, 20, 1, 6)))
    asked = ("quantize", "float.onnx", "-i", "x.npy", "--state", "h=n", "--only-output", "y", "--method", "minmax")
    ops = {}
    for op_set in ("1", "2"):
        document = cvm(*asked, "--bits-of", "s=16", "--op-set", op_set, "-o", "model.cvm", "--json").document
        assert [item["output"] for item in document["outputs"]] == ["y"]
        (quantizer,) = [item["quantizer"] for item in document["tensors"] if item["tensor"] == "s"]
        assert "bits = 16" in quantizer
        program = cvm("inspect", "model.cvm", "--json").document
        assert program["op_set"] == int(op_set)
        ops[op_set] = document["nodes"]
    assert ops["2"] < 20 < ops["1"]
    for words, message in (
        (("--bits-of", "s"), "expected --bits-of NAME=N, found 's'"),
        (("--bits-of", "s=many"), "expected --bits-of NAME=N, found 's=many'"),
        (("--bits-of", "t=9"), "no tensor has a name like 't'"),
        (("--only-output", "z"), "there is no output 'z'"),
    ):
        refused = cvm(*asked, *words, "-o", "model.cvm")
        assert refused.code in (2, 3)
        assert message in " ".join(refused.err.split())
