"""``cvm nnef`` and the options that concern files of NNEF."""

import tarfile

import numpy as np
import pytest

from cvm.frontends.nnef import ItemType, write_tensor


def test_nnef_check_prints_how_an_error_was_reached(cvm, files):
    (files / "bad.nnef").write_text(
        "version 1.0;\nextension KHR_enable_fragment_definitions;\n"
        "fragment f( x: tensor<scalar> ) -> ( y: tensor<scalar> )\n{\n  y = reshape(x, shape = [3]);\n}\n"
        "graph g( x ) -> ( y )\n{\n  x = external(shape = [1]);\n  y = f(x);\n}\n"
    )
    outcome = cvm("nnef", "check", "bad.nnef")
    assert outcome.code == 3
    first, excerpt, caret, trace = outcome.out.splitlines()
    assert first.startswith("invalid  bad.nnef:5:7: op reshape: ")
    assert first.endswith("(argument, shapes, section 4.5.1)")
    assert (excerpt, caret) == ("    5 |   y = reshape(x, shape = [3]);", "      |       ^")
    assert trace == "  in fragment f, invoked at 10:7"


def test_nnef_check_says_what_any_file_needs(cvm, files):
    (files / "old.nnef").write_text("version 1.0\ngraph g( x ) -> ( x )\n{\n  x = external(shape = [1,2])\n}\n")
    (files / "new.nnef").write_text(
        "version 1.0;\ngraph g( x ) -> ( y )\n{\n  x = external(shape = [1]);\n  y = gelu(x);\n}\n"
    )
    (files / "a.quant").write_text("'x': linear_quantize(min = 0.0, max = 1.0, bits = 8);")
    (files / "b.quant").write_text(
        "'x': zero_point_linear_quantize(zero_point = 1, scale = 0.5, bits = 8, signed = true, symmetric = false);"
    )
    (files / "a.dat").write_bytes(write_tensor(np.array([1.0])))
    (files / "b.dat").write_bytes(write_tensor(np.array([True])))
    (files / "c.dat").write_bytes(write_tensor(np.array([True]), item=ItemType.LOGICAL))
    outcome = cvm("nnef", "check", "old.nnef", "new.nnef", "a.quant", "b.quant", "a.dat", "b.dat", "c.dat", "--json")
    found = [(result["edition"], result["dialect"]) for result in outcome.document["results"]]
    new, plain = ("1.0.1", "khronos"), ("1.0.1", "1.0.1")
    assert found == [("provisional", None), new, plain, new, plain, plain, new]
    assert [
        line.partition(": ")[2] for line in cvm("nnef", "check", "old.nnef", "b.quant", "c.dat").out.splitlines()
    ] == [
        "provisional NNEF 1.0, 1 tensor",
        "NNEF 1.0.1 with what the dialect khronos adds",
        "NNEF 1.0.1 with what the dialect khronos adds, 1 tensor",
    ]
    strict = cvm("nnef", "check", "b.quant", "c.dat", "--dialect", "1.0.1", "--json")
    assert [result["valid"] for result in strict.document["results"]] == [False, False]


WEIGHTS = np.array([[1, -2, 3], [-4, 5, -6]], np.int8)
"""Items of 5 bits; the sums of their rows are 2 and -5."""


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
def test_the_bit_order_of_tensor_files_can_be_chosen_wherever_they_are_read(cvm, files, packed):
    name = "model.tgz" if packed else "model"
    parts = {
        "graph.nnef": b"version 1.0;\ngraph g( x ) -> ( y )\n{\n  x = external(shape = [1,3]);\n"
        b"  w = variable(shape = [2,3], label = 'a/w');\n  y = linear(x, w, 0.0);\n}\n",
        "graph.quant": b"'x': linear_quantize(min = 0.0, max = 31.0, bits = 5);\n"
        b"'y': linear_quantize(min = -127.0, max = 128.0, bits = 8);\n",
        "a/w.dat": write_tensor(WEIGHTS, bits=5, bit_order="msb"),
    }
    (files / "model" / "a").mkdir(parents=True)
    with tarfile.open(files / "model.tgz", "w:gz") as archive:
        for path, data in parts.items():
            (files / "model" / path).write_bytes(data)
            archive.add(files / "model" / path, path)
    (files / "x.dat").write_bytes(write_tensor(np.array([[2, 2, 2]], np.uint8), bits=5, bit_order="msb"))
    order = ("--bit-order", "msb")
    assert cvm("nnef", "run", name, "-i", "x.dat", *order, "-o", "y.npz").code == 0
    assert np.load("y.npz")["y"].tolist() == [[4.0, -10.0]]
    assert cvm("run", name, "-i", "x.dat", *order, "-o", "y.npz").code == 0
    assert np.load("y.npz")["y"].tolist() == [[4.0, -10.0]]
    digest = cvm("compile", name, *order, "-o", "m.cvm", "--json").document["digest"]
    assert cvm("inspect", name, *order, "--json").document["digest"] == digest
    assert cvm("check", name, "-i", "x.dat", *order).code == 0
    assert cvm("legalize", name, *order, "-o", "l.cvm").code == 0
    assert cvm("report", name, "-i", "x.dat", *order).code == 0
    assert cvm("run", "m.cvm", "-i", "x.dat", *order, "--json").document["outputs"][0]["codes"] == [[131, 117]]
    for command in (("nnef", "check", "x.dat"), ("run", "m.cvm", "-i", "x.dat"), ("nnef", "run", name, "-i", "x.dat")):
        assert cvm(*command, *order).code == 0
        wrong = cvm(*command)
        assert wrong.code == 3
        assert "in the other bit order they are" in wrong.out + wrong.err
    for command in (("compile", name), ("inspect", name), ("legalize", name), ("run", name, "-i", "x.dat")):
        assert "nnef.tensor-file.padding" in cvm(*command).err
    assert cvm("compile", name, "--bit-order", "middle").code == 2


def test_codes_of_a_tensor_file_are_numbers_for_inputs_without_their_quantiser(cvm, files):
    (files / "net.nnef").write_text(
        "version 1.0;\ngraph g( x ) -> ( y )\n{\n  x = external(shape = [4]);\n  y = copy(x);\n}\n"
    )
    (files / "net.quant").write_text(
        "'x': linear_quantize(min = 0.0, max = 1.0, bits = 2); 'y': linear_quantize(min = 0.0, max = 3.0, bits = 2);"
    )
    codes = np.array([0, 1, 2, 3], np.uint8)
    for item, low, expected in (
        (ItemType.LINEAR, -1.0, [-1.0, 0.0, 1.0, 2.0]),
        (ItemType.LOGARITHMIC, 0.0, [0.25, 0.5, 1.0, 2.0]),
    ):
        (files / "x.dat").write_bytes(write_tensor(codes, 2, item, low, 2.0))
        assert cvm("nnef", "run", "net.nnef", "-i", "x.dat", "-o", "y.npz").code == 0
        assert np.load("y.npz")["y"].tolist() == expected
    wide = write_tensor(np.array([0, 4093, 4094, 4095], np.uint16), 12, ItemType.LOGARITHMIC, 0.0, 1.0)
    (files / "x.dat").write_bytes(wide)
    assert cvm("nnef", "run", "net.nnef", "-i", "x.dat", "-o", "y.npz").code == 0
    assert np.load("y.npz")["y"].tolist() == [0.0, 0.25, 0.5, 1.0]
    assert cvm("compile", "net.nnef", "--quant", "net.quant", "-o", "m.cvm").code == 0
    assert cvm("run", "m.cvm", "-i", "x.dat", "--capture", "all", "--codes", "-o", "y.npz").code == 0
    assert np.load("y.npz")["x"].tolist() == [0, 1, 2, 3]


def test_a_version_of_the_weights_can_be_chosen(cvm, files):
    (files / "model").mkdir()
    (files / "model" / "graph.nnef").write_text(
        "version 1.0;\ngraph g( x ) -> ( y )\n{\n  x = external(shape = [1]);\n"
        "  w = variable(shape = [1], label = 'w');\n  y = mul(x, w);\n}\n"
    )
    lines = [f"'{name}': linear_quantize(min = 0.0, max = 15.0, bits = 4);" for name in "xy"]
    (files / "model" / "graph.quant").write_text("\n".join(lines))
    for name, value in (("w.dat", 2.0), ("w.dat.new", 3.0)):
        (files / "model" / name).write_bytes(write_tensor(np.array([value])))
    np.save("x.npy", np.array([2.0]))
    for options, expected in (((), 4.0), (("--variant", "new"), 6.0)):
        assert cvm("nnef", "check", "model", *options).code == 0
        assert cvm("nnef", "run", "model", "-i", "x.npy", "-o", "y.npz", *options).code == 0
        assert np.load("y.npz")["y"].tolist() == [expected]
        assert cvm("compile", "model", "-o", "m.cvm", *options).code == 0
        assert cvm("run", "m.cvm", "-i", "x.npy", "-o", "y.npz").code == 0
        assert np.load("y.npz")["y"].tolist() == [expected]
    assert "container.variant" in cvm("compile", "model", "--variant", "old").err
    assert cvm("nnef", "check", "model", "--variant", "old").code == 3


def test_statistics_of_infinities_are_words(cvm, files):
    (files / "net.nnef").write_text(
        "version 1.0;\ngraph g( x ) -> ( y )\n{\n  x = external(shape = [1,2]);\n  y = log(x);\n}\n"
    )
    np.save("x.npy", np.array([[0.0, 1.0]]))
    rows = cvm("nnef", "run", "net.nnef", "-i", "x.npy", "--statistics", "--json").document["statistics"]
    assert rows["y"] == {"min": "-inf", "max": 0.0, "mean": "-inf", "std": "nan"}
    assert rows["x"]["mean"] == 0.5
    lines = cvm("nnef", "run", "net.nnef", "-i", "x.npy", "--statistics").out.splitlines()
    assert lines[2].split() == ["y", "-inf", "0", "-inf", "nan"]


def test_an_error_of_an_evaluation_names_the_document(cvm, files):
    (files / "net.nnef").write_text(
        "version 1.0;\ngraph g( x ) -> ( y )\n{\n  x = external(shape = [1]);\n"
        "  w = variable(shape = [1], label = 'w');\n  y = add(x, w);\n}\n"
    )
    np.save("x.npy", np.zeros(1))
    assert cvm("nnef", "run", "net.nnef", "-i", "x.npy").err.startswith("cvm: net.nnef:5:7: op variable, tensor 'w': ")
    assert "the inputs are x [1]; 'z' is none of them" in cvm("nnef", "run", "net.nnef", "-i", "z=x.npy").err
    assert cvm("nnef", "flatten", "net.nnef", "--lower", "foo").err.count("\n") == 1
