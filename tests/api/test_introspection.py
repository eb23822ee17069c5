"""What a program takes and gives, said by the objects themselves; and arguments of the wrong type."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from fractions import Fraction
from importlib.metadata import version

import numpy as np
import pytest

import cvm
from cvm.demo import MODEL
from cvm.errors import CvmError, Invalid
from cvm.program import Output, ProgramBuilder, Provenance, decode
from cvm.program.verifier import verify
from cvm.quantization import LinearQuantizer
from tests.api import small

SMALL = ("negated", "channels", "pair", "counter", "powers")


def test_inputs_and_outputs_say_what_they_are():
    session = cvm.Session(small.negated(), "numpy")
    (image,) = session.inputs
    y, total = session.outputs
    assert (image.name, image.shape, image.dtype, image.codes, image.real) == (
        "image", (1, 2, 3), "real", (0, 255), (0.0, 1.0),
    )  # fmt: skip
    assert image.quantizer == "scale 0.00392157, zero point 0, ties up"
    assert repr(image) == "image [1, 2, 3] real 0 to 1, codes 0..255: scale 0.00392157, zero point 0, ties up"
    assert (y.real, y.codes) == ((0.0, 1.0), (0, 255))
    assert (total.dtype, total.real, total.quantizer, total.codes) == ("int32", None, None, (0, 6 * 255))
    assert repr(total) == "total [1] int32 codes 0..1530"


def test_quantisers_in_words():
    assert cvm.Session(small.channels()).inputs[0].quantizer == "3 scales along axis 1, 0.1 to 3, ties up"
    assert cvm.Session(small.channels()).inputs[0].real == (-384.0, 381.0)
    assert cvm.Session(small.powers()).inputs[0].quantizer == "powers of two from 2^-2 to 2^1, their negatives, and 0"
    builder = ProgramBuilder()
    uneven = LinearQuantizer((Fraction(1, 2),), (Fraction(1, 3),), -128, 127, None, "half_even")
    x = builder.input("x", (2,), quantizer=uneven)
    (port,) = cvm.Session(builder.build([Output("x", x, uneven)])).outputs
    assert port.quantizer == "scale 0.5, offset 0.333333, ties to even"


@pytest.mark.parametrize("name", ["negated", "powers"])
def test_real_ranges_are_those_of_the_ends_of_the_codes(name):
    session = cvm.Session(getattr(small, name)(), "numpy")
    (port,) = session.inputs
    for code, real in zip(port.codes, port.real, strict=True):
        given = np.full(port.shape, real)
        result = session.run({port.name: given}, capture=[port.name], out_of_range="refuse")
        assert (result[port.name] == code).all()


def test_a_session_is_made_from_a_program_or_the_path_of_one(tmp_path):
    program = small.negated()
    program.save(tmp_path / "p.cvm")
    given = {"image": np.zeros((1, 2, 3))}
    expected = cvm.Session(program).run(given)["y"].tolist()
    for source in (tmp_path / "p.cvm", str(tmp_path / "p.cvm"), verify(program)):
        assert cvm.Session(source).run(given)["y"].tolist() == expected
    with pytest.raises(FileNotFoundError):
        cvm.Session(tmp_path / "nothing.cvm")
    (tmp_path / "m.tflite").write_bytes(b"\x1c\0\0\0TFL3" + bytes(64))
    with pytest.raises(CvmError, match=r"found a model of TFLite; `cvm compile` makes a program of it"):
        cvm.Session(tmp_path / "m.tflite")


@pytest.mark.parametrize("name", SMALL)
def test_reprs_are_short(name):
    program = getattr(small, name)()
    session = cvm.Session(program, "numpy")
    for item in (program, verify(program), session, *session.inputs, *session.outputs):
        assert len(repr(item)) < 200
        assert "object at 0x" not in repr(item)
    assert repr(small.negated()) == "Program(image [1, 2, 3] -> y, total; 2 nodes)"


def test_reprs_of_large_things_are_short(tmp_path):
    program = cvm.compile(MODEL)
    assert repr(program) == "Program(image [1, 1, 8, 8] -> probs; 28 nodes)"
    (tmp_path / "graph.nnef").write_text(
        "version 1.0;\ngraph g(x) -> (y) { x = external<scalar>(shape = [1, 3]); y = relu(x); }\n"
    )
    made = cvm.quantize_program(tmp_path, {"x": np.ones((1, 3))})
    assert repr(made) == "Quantized(Program(x [1, 3] -> y; 0 nodes), Calibration(2 tensors of 'g'))"
    assert repr(made.source) == "QuantizedGraph('g': 1 inputs, 1 outputs, 1 operations, 2 tensors)"
    assert (
        repr(program.provenance)
        == f"Provenance('cvm' from 'lenet_digits' {program.provenance.source_digest}; 30 tensors)"
    )
    scales = tuple(Fraction(number, 7) for number in range(1, 501))
    quantizer = LinearQuantizer(scales, (Fraction(0),) * 500, -8, 7, 1)
    assert repr(quantizer) == "LinearQuantizer(500 scales from 1/7 to 500/7 along axis 1, codes -8..7, half_up)"
    one = LinearQuantizer((Fraction(1, 3),), (Fraction(-1),), 0, 9, None, "half_even")
    assert repr(one) == "LinearQuantizer(scale=1/3, offset=-1, codes 0..9, half_even)"
    many = ProgramBuilder()
    names = [many.input(f"input{number}", (1,), 0, 9) for number in range(50)]
    assert "and more" not in repr(many.build([Output(name, name) for name in names]))
    assert len(repr(many.build([Output(name, name) for name in names]))) < 200


def test_a_notebook_shows_a_drawing_that_names_cannot_break():
    builder = ProgramBuilder()
    x = builder.input("<script>&\"'", (2,), 0, 9)
    memory = builder.state("memory", builder.constant(np.array([1, 2])), 0, 1000)
    (raised,) = builder.add("elemwise_add", [memory, x])
    (y,) = builder.add("clip", [raised], {"a_min": 0, "a_max": 1000}, name="y")
    builder.update(memory, y)
    program = builder.build([Output("y", y)])
    for shown in (program._repr_html_(), cvm.Session(program)._repr_html_()):
        root = ElementTree.fromstring(shown.replace("<br>", "<br/>"))
        texts = [item.text for item in root.iter("{http://www.w3.org/2000/svg}text")]
        assert {"input", "state", "elemwise_add", "clip", "memory", "y"} <= set(texts)
        assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) == 3
        assert program.digest in shown
        assert "<script" not in shown
    assert "executor" in cvm.Session(program)._repr_html_()
    assert len(list(re.finditer("<rect", cvm.compile(MODEL)._repr_html_()))) == 29


def test_what_is_too_large_is_not_drawn():
    builder = ProgramBuilder()
    x = builder.input("x", (1,), 0, 1)
    for _ in range(401):
        (x,) = builder.add("abs", [x])
    assert "402 steps are too many to draw" in builder.build([Output("y", x)])._repr_html_()


def test_programs_are_equal_where_their_digests_are():
    one, same, other = small.negated(), decode(small.negated().to_bytes()), small.channels()
    assert one == same
    assert one != other
    assert one != one.digest
    assert len({one, same, other}) == 2
    assert replace(one, provenance=Provenance("another tool")) == one


def test_what_was_proven_of_a_program_is_not_believed_of_an_equal_one(tmp_path):
    small.negated().save(tmp_path / "p.cvm")
    proven = cvm.load(tmp_path / "p.cvm")
    forged = replace(proven, nodes=(replace(proven.nodes[0], op="broadcast_div"), *proven.nodes[1:]))
    forged.__dict__["digest"] = proven.digest
    assert forged == proven
    with pytest.raises(CvmError):
        verify(replace(forged, outputs=(Output("y", "nothing"),)))
    assert verify(forged).calls != verify(proven).calls or verify(forged).ranges != verify(proven).ranges


def test_the_version_is_that_of_the_package():
    assert cvm.__version__ == version("cvm")


SESSION = cvm.Session(small.negated(), "numpy")
IMAGE = np.zeros((1, 2, 3))


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        (lambda: cvm.Session(3), "argument.program", "expected a program (cvm.load, cvm.compile) or the path"),
        (lambda: cvm.Session(None), "argument.program", "found None"),
        (lambda: cvm.Session(small.negated(), threads="2"), "argument.threads", "a number of threads, found '2'"),
        (lambda: cvm.Session(small.negated(), 5), "executors.unknown", "there is no executor 5; there are formal"),
        (lambda: cvm.load(small.negated()), "argument.path", "found an object of type cvm.program.program.Program"),
        (lambda: cvm.load(0), "argument.path", "expected the path of a program, found 0"),
        (lambda: cvm.compile(None), "argument.path", "expected the path of a model, found None"),
        (lambda: cvm.quantize(7, {}), "argument.path", "expected the path of a model, found 7"),
        (lambda: cvm.quantize_program([], {}), "argument.path", "found an object of type list"),
        (lambda: SESSION.run(IMAGE), "argument.inputs", "{'image': array}, found an object of type ndarray"),
        (lambda: SESSION.run(None), "argument.inputs", "found None"),
        (lambda: SESSION.run({"image": IMAGE}, capture=3), "argument.capture", "found 3"),
        (lambda: SESSION.run({"image": "a.npy"}), "input.type", "found an array of dtype <U5"),
        (lambda: SESSION.run_many({"image": IMAGE}), "argument.inputs", "[{...}, {...}]; `run` takes one"),
        (lambda: SESSION.run_many(3), "argument.inputs", "found 3"),
        (lambda: SESSION.run_many([{"image": IMAGE}, IMAGE]), "argument.inputs", "number 1 of the 2 inputs"),
        (lambda: SESSION.run_many([{"image": IMAGE}, {}]), "input.names", "number 1 of the 2 inputs of run_many"),
        (lambda: cvm.run_op("Conv", [[1]]), "ops.unknown", "there is no op 'Conv'; did you mean 'conv2d'?"),
        (lambda: cvm.run_op("MaxPool", [[1]]), "ops.unknown", "did you mean 'max_pool2d'?"),
        (lambda: cvm.run_op("Reshape", [[1]]), "ops.unknown", "did you mean 'reshape'?"),
        (lambda: cvm.run_op("zzz", [[1]]), "ops.unknown", "there is no op 'zzz'; `cvm ops` lists all"),
        (lambda: cvm.run_op(3, [[1]]), "argument.op", "expected the name of an op"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_with_what_to_give(call, code, words):
    with pytest.raises(Invalid) as caught:
        call()
    assert caught.value.code == code
    assert words in caught.value.message
