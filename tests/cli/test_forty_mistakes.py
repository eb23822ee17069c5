"""What new users do wrong: messages name the thing, the place and the next step, and nothing internal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm as library
from cvm.bench import contest
from cvm.demo import MODEL
from cvm.errors import CvmError
from tests.cli.conftest import Outcome

Cvm = Callable[..., Outcome]

INTERNAL = re.compile(
    r"Traceback|object has no attribute|NoneType|<class|<function| at 0x|\.py\b|errno|Errno|KeyError|TypeError"
    r"|unpack|ValueError|IndexError|AttributeError|\bself\b|cvm\.[a-z_]+\.[a-z_]+\.|this is a bug"
)
"""What only who wrote cvm understands."""

RUN = ["run", "negated.cvm"]
VERIFY = ["receipt", "verify", "r.receipt", "--program"]
TRY = "--help'"

MISTAKES: list[tuple[list[str], int, list[str]]] = [
    # Commands and options
    (["rnu", "negated.cvm"], 2, ["'rnu'", "'run'", TRY]),
    (["run"], 2, ["'PROGRAM'", TRY]),
    (["receipt"], 2, ["command", "'cvm receipt --help'"]),
    (["receipt", "veryfy"], 2, ["'veryfy'", "'verify'"]),
    ([*RUN, "--thread", "2"], 2, ["--thread", "--threads"]),
    ([*RUN, "codes.npy"], 2, ["codes.npy", "-i codes.npy", TRY]),
    ([*RUN], 2, ["'image'", "-i", "[1, 2, 3]"]),
    ([*RUN, "-i", "img=reals.npy"], 2, ["'img'", "'image'", "[1, 2, 3]"]),
    ([*RUN, "-i", "reals.npy", "--executor", "opencl"], 3, ["'opencl'", "formal, numpy, native"]),
    ([*RUN, "-i", "reals.npy", "--threads", "0"], 2, ["--threads", "1"]),
    ([*RUN, "-i", "reals.npy", "--capture", "nothing"], 3, ["'nothing'", "`cvm inspect PROGRAM`"]),
    ([*RUN, "-i", "reals.npy", "--expect-digest", "abc"], 3, ["'abc'", "64 hexadecimal digits"]),
    ([*RUN, "-i", "reals.npy", "--expect-digest", 64 * "0"], 1, ["negated.cvm", 64 * "0", "found "]),
    ([*RUN, "-i", "reals.npy", "--out-of-range", "all"], 2, ["'all'", "--out-of-range", "refuse or warn or clamp"]),
    ([*RUN, "-i", "reals.npy", "--trace"], 2, ["--trace", "--receipt FILE"]),
    (["check", "negated.cvm", "-i", "reals.npy", "--executors", "numpy"], 2, ["'numpy'", "--executors numpy,native"]),
    (["ops", "Conv"], 3, ["'Conv'", "'conv2d'"]),
    (["export", "negated.cvm", "-o", "x"], 2, ["--format", TRY]),
    (["report", "negated.cvm"], 2, ["--model MODEL"]),
    (["inspect", "negated.cvm", "--draw", "x.png"], 2, ["SVG", "--draw x.svg"]),
    (["completion", "tcsh"], 2, ["'tcsh'", "bash, zsh, fish"]),
    (["quantize", str(MODEL)], 2, ["'image'", "--random N"]),
    # Wrong files in place of a program or a model
    (["run", "nowhere.cvm", "-i", "reals.npy"], 3, ["nowhere.cvm", "No such file"]),
    (["run", "empty.cvm", "-i", "reals.npy"], 3, ["empty.cvm", "byte 0", "copy the file again"]),
    (["run", "short.cvm", "-i", "reals.npy"], 3, ["short.cvm", "byte 97", "copy the file again"]),
    (["run", "flipped.cvm", "-i", "reals.npy"], 3, ["flipped.cvm", "copy the file again"]),
    (["run", "other.cvm", "-i", "reals.npy"], 3, ["other.cvm", "'difference'", "copy the file again"]),
    (["run", "r.receipt", "-i", "reals.npy"], 3, ["r.receipt", "a receipt", "`cvm receipt verify`"]),
    (["run", "codes.npy", "-i", "reals.npy"], 3, ["codes.npy", "an array", "with -i"]),
    (["run", "folder", "-i", "reals.npy"], 3, ["folder", "graph.nnef", "give the file itself"]),
    (["compile", "net.pt", "-o", "x.cvm"], 3, ["net.pt", "PyTorch", "torch.onnx.export"]),
    (["compile", "old.pt", "-o", "x.cvm"], 3, ["old.pt", "pickle", "torch.onnx.export"]),
    (["compile", "picture.png", "-o", "x.cvm"], 3, ["picture.png", "a picture", "numpy.save"]),
    (["compile", "text.txt"], 3, ["text.txt:1:1", "'hello'", "right file"]),
    (["compile", "negated.cvm", "-o", "x.cvm"], 3, ["negated.cvm", "a program", "`cvm run`"]),
    (["compile", "nothing.txt"], 3, ["nothing.txt:1:1", "There is nothing in it: copy the file again"]),
    (["compile", "graph.json"], 2, ["graph.json", "cvm-runtime", "--params FILE", TRY]),
    (["compile", "cut.onnx"], 3, ["cut.onnx", "byte 7", "export it again"]),
    (["compile", "cut.tflite"], 3, ["cut.tflite", "leads nowhere", "export it again"]),
    (["quantize", "negated.cvm", "-i", "reals.npy", "-o", "x.cvm"], 3, ["negated.cvm", "a program", "`cvm run`"]),
    (["digest", "text.txt"], 3, ["text.txt", "a program, a receipt, a trace"]),
    (["digest", "picture.png"], 3, ["picture.png", "a picture", "numpy.save"]),
    (["digest", "folder"], 3, ["folder", "a program, a receipt"]),
    (["nnef", "run", "codes.npy"], 3, ["codes.npy", "a model of NNEF", "with -i"]),
    (["dispute", "verify-step", "r.receipt"], 3, ["r.receipt", "a proof of one step", "`cvm receipt verify`"]),
    (["dispute", "verify-step", "text.txt"], 3, ["text.txt", "a proof of one step", "right file"]),
    (["vectors", "check", "negated.cvm", "--executor", "numpy"], 3, ["negated.cvm", "vectors", "`cvm run`"]),
    (["vectors", "check", "folder", "--executor", "numpy"], 3, ["folder", "*.msgpack"]),
    # Wrong arrays
    ([*RUN, "-i", "nowhere.npy"], 3, ["nowhere.npy", "No such file"]),
    ([*RUN, "-i", "folder"], 3, ["folder", "directory", "Name a file in this folder", "`cvm map "]),
    ([*RUN, "-i", "cut.npy"], 3, ["cut.npy", "takes 48 bytes, found 40", "copy it again"]),
    ([*RUN, "-i", "cut.npz"], 3, ["cut.npz", "the record of its end is missing", "copy it again"]),
    ([*RUN, "-i", "picture.png"], 3, ["picture.png", "a picture", "numpy.save"]),
    ([*RUN, "-i", "data.csv"], 3, ["data.csv", "numpy.loadtxt"]),
    ([*RUN, "-i", "objects.npy"], 3, ["objects.npy", "found Python objects", "astype"]),
    ([*RUN, "-i", "words.npy"], 3, ["words.npy", "found text", "astype"]),
    ([*RUN, "-i", "complex.npy"], 3, ["complex.npy", "found complex numbers", "astype"]),
    ([*RUN, "-i", "bool.npy"], 3, ["'image'", "logical values", "astype"]),
    ([*RUN, "-i", "codes.npy"], 3, ["codes.npy", "'image'", "from 0 to 1", "--codes"]),
    ([*RUN, "-i", "int.npy", "--codes"], 3, ["'image'", "[0, 255]", "300 at [0, 0, 0]"]),
    ([*RUN, "-i", "far.npy", "--out-of-range", "refuse"], 3, ["'image'", "1e+09", "--out-of-range clamp"]),
    ([*RUN, "-i", "nan.npy"], 3, ["'image'", "nan at [0, 0, 0]", "numpy.nan_to_num"]),
    ([*RUN, "-i", "inf.npy"], 3, ["'image'", "-inf at [0, 0, 0]", "numpy.nan_to_num"]),
    ([*RUN, "-i", "shape.npy"], 3, ["'image'", "[1, 2, 3]", "[3, 5]"]),
    ([*RUN, "-i", "nothing.npy"], 3, ["'image'", "at least one element", "[0, 2, 3]"]),
    ([*RUN, "-i", "other.npz"], 2, ["other.npz", "'label'", "other.npz:MEMBER"]),
    ([*RUN, "-i", "image.npz:no"], 3, ["image.npz", "'no'", "there are image"]),
    (["run", "pair.cvm", "-i", "codes.npy"], 2, ["codes.npy", "-i NAME=codes.npy", "a, b"]),
    ([*RUN, "-i", "odd 'name'\x1b[31m.npy"], 3, ["odd 'name'\\x1b[31m.npy", "--codes"]),
    # Wrong places to write
    ([*RUN, "-i", "reals.npy", "-o", "nowhere/x.npz"], 3, ["nowhere/x.npz", "no folder nowhere", "make it"]),
    ([*RUN, "-i", "reals.npy", "-o", "folder"], 3, ["folder", "Name a file in this folder"]),
    (["export", "negated.cvm", "--format", "c", "-o", "text.txt"], 3, ["text.txt", "name another folder"]),
    (["cache", "clear"], 3, ["CVM_CACHE is empty"]),
    # Receipts
    ([*VERIFY[:3], "-i", "reals.npy"], 2, ["--program", TRY]),
    ([*VERIFY, "pair.cvm", "-i", "reals.npy"], 5, ["the receipt is of program", "the program at hand is"]),
    ([*VERIFY, "negated.cvm"], 5, ["no inputs are given", "-i"]),
    ([*VERIFY, "negated.cvm", "-i", "reals.npy", "--signer", "text.txt"], 3, ["text.txt", "openssl pkey -pubout"]),
    ([*VERIFY, "negated.cvm", "-i", "reals.npy", "--signer", 61 * "a"], 3, ["64 hexadecimal digits, this has 61"]),
    (["receipt", "verify", ".", "--program", "negated.cvm", "--resume", "text.txt"], 3, ["text.txt", "another file"]),
    (["receipt", "verify", "negated.cvm", "--program", "negated.cvm"], 3, ["expected a receipt", "`cvm run`"]),
    (["receipt", "sign", "r.receipt", "--key", "text.txt"], 3, ["text.txt", "private key", "openssl genpkey"]),
    (["receipt", "show", "cut.receipt"], 3, ["cut.receipt", "copy the file again"]),
    (["dispute", "locate", "r.receipt", "r.receipt"], 3, ["r.receipt", "expected a trace", "`cvm receipt verify`"]),
]  # fmt: skip
"""Command lines, their exit codes, and what the message must hold: the thing, the place, the next step."""


@pytest.fixture
def mess(cvm: Cvm, files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all that people give by mistake."""
    assert cvm("run", "negated.cvm", "-i", "reals.npy", "--receipt", "r.receipt").code == 0
    monkeypatch.setenv("CVM_CACHE", "")
    program = (files / "negated.cvm").read_bytes()
    flipped = bytearray(program)
    flipped[len(program) // 2] ^= 255
    texts = {
        "empty.cvm": b"", "short.cvm": program[:100], "flipped.cvm": bytes(flipped), "old.pt": b"\x80\x02}q\0.",
        "picture.png": b"\x89PNG\r\n\x1a\n" + bytes(90), "data.csv": b"1,2,3\n", "cut.onnx": b"\x08\x08\x12\x07pyt",
        "cut.tflite": b"\x1c\0\0\0TFL3\x14\0", "cut.receipt": (files / "r.receipt").read_bytes()[:-9],
        "other.cvm": program.replace(b"\xc4\x02\xff\x00", b"\xc4\x02\xf0\x00"),  # the constant 255 is 240 there
        "nothing.txt": b"", "graph.json": b'{"nodes": []}',
        "cut.npz": (files / "image.npz").read_bytes()[:-30],
        "odd 'name'\x1b[31m.npy": (files / "codes.npy").read_bytes(),
    }  # fmt: skip
    for name, data in texts.items():
        (files / name).write_bytes(data)
    arrays: dict[str, Any] = {
        "objects": np.array([None, {}], object), "words": np.array(["a", "b"]), "complex": np.zeros((1, 2, 3), complex),
        "bool": np.ones((1, 2, 3), bool), "int": np.full((1, 2, 3), 300), "far": np.full((1, 2, 3), 1e9),
        "nan": np.full((1, 2, 3), np.nan), "inf": np.full((1, 2, 3), -np.inf),
        "cut": np.zeros((1, 2, 3)), "shape": np.zeros((3, 5)), "nothing": np.zeros((0, 2, 3)),
    }  # fmt: skip
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)
    (files / "cut.npy").write_bytes((files / "cut.npy").read_bytes()[:-8])
    with zipfile.ZipFile("net.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\0.")
    (files / "folder").mkdir()
    return files


def told(message: str, held: list[str]) -> None:
    """The message holds what it must, and nothing internal."""
    words = " ".join(message.split())
    assert [part for part in held if part not in words] == []
    assert INTERNAL.search(message) is None
    assert "\x1b" not in message


def named(item: object) -> str:
    return " ".join(item).encode("unicode_escape").decode() if isinstance(item, list) else ""


@pytest.mark.parametrize(("arguments", "code", "held"), MISTAKES, ids=named)
def test_a_mistake_is_explained(cvm: Cvm, mess: Path, arguments: list[str], code: int, held: list[str]) -> None:
    outcome = cvm(*arguments)
    told(outcome.err + (outcome.out if code == 5 else ""), held)
    assert outcome.code == code
    if code != 5:
        assert outcome.out == ""
        assert outcome.err.startswith("cvm: ")
        assert 1 <= len(outcome.err.splitlines()) <= 5


def test_the_next_step_stands_below_the_line_of_the_file(cvm: Cvm, mess: Path) -> None:
    error = cvm("compile", "text.txt").err.splitlines()
    assert error[0].startswith("cvm: text.txt:1:1: ")
    assert error[0].endswith(" [nnef.syntax.token]")
    assert error[2:4] == ["    1 | hello", "      | ^"]
    assert error[-1].endswith("look whether it is the right file.")


def test_floats_for_an_input_that_takes_integers_are_no_matter_of_nan(cvm: Cvm, mess: Path) -> None:
    np.save("zeros.npy", np.zeros(4))
    error = cvm("run", "pair.cvm", "-i", "a=inputs.npz:a", "-i", "b=zeros.npy").err
    assert "takes integers only" in error
    assert "nan_to_num" not in error


def test_there_are_forty_and_more() -> None:
    assert len(MISTAKES) + len(CALLS) + len(EXTRAS) >= 70


def _session(**options: Any) -> library.Session:
    return library.Session("negated.cvm", **options)


IMAGE = np.zeros((1, 2, 3))
CALLS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "a model is loaded": (lambda: library.load("net.pt"), ["net.pt", "PyTorch", "torch.onnx.export"]),
    "nothing is loaded": (lambda: library.load(None), ["None", "path of a program"]),  # type: ignore[arg-type]
    "a session of a number": (lambda: library.Session(3), ["3", "program"]),  # type: ignore[arg-type]
    "a session of a picture": (lambda: library.Session("picture.png"), ["picture.png", "a picture", "numpy.save"]),
    "threads as a text": (lambda: _session(threads="two"), ["'two'", "number of threads"]),
    "an executor that is not there": (lambda: _session(executor="opencl"), ["'opencl'", "formal, numpy, native"]),
    "an array without a name": (lambda: _session().run(IMAGE), ["{'image': array}"]),
    "a wrong name": (lambda: _session().run({"img": IMAGE}), ["'img'", "image"]),
    "a wrong shape": (lambda: _session().run({"image": np.zeros(5)}), ["'image'", "[1, 2, 3]", "[5]"]),
    "integers": (lambda: _session().run({"image": IMAGE.astype(int)}), ["'image'", "codes=True", "astype"]),
    "texts": (lambda: _session().run({"image": [["a"]]}), ["'image'", "real numbers"]),
    "lists of different lengths": (
        lambda: _session().run({"image": [[1.0], [1.0, 2.0]]}),
        ["'image'", "different lengths"],
    ),
    "one input for many": (lambda: _session().run_many({"image": IMAGE}), ["[{...}, {...}]", "`run` takes one"]),
    "one of many is wrong": (
        lambda: _session().run_many([{"image": IMAGE}, {"image": np.zeros(5)}]),
        ["number 1 of the 2 inputs", "[1, 2, 3]"],
    ),
    "a receipt of another kind": (
        lambda: _session().run({"image": IMAGE}, receipt="yes"),  # type: ignore[arg-type]
        ["'yes'", "False, True or 'trace'"],
    ),
    "one array for an op": (
        lambda: library.run_op("relu", IMAGE.astype(int)),  # type: ignore[arg-type]
        ["a list of arrays", "ndarray"],
    ),
    "attributes of an op as a list": (
        lambda: library.run_op("relu", [[1]], [1]),  # type: ignore[arg-type]
        ["attributes by name", "{'axis': 1}", "list"],
    ),
    "an attribute that an op does not have": (
        lambda: library.run_op("clip", [[1]], {"min": 0, "a_min": 0, "a_max": 1}),
        ["attribute min", "there are a_min, a_max"],
    ),
    "an attribute that is missing": (lambda: library.run_op("clip", [[1]], {"a_min": 0}), ["a_max", "must be given"]),
    "an attribute of a wrong type": (
        lambda: library.run_op("max_pool2d", [[1]], {"pool_size": "ab"}),
        ["pool_size", "expected a tuple of 2 integers", "'ab'"],
    ),
    "too many numbers for an attribute": (
        lambda: library.run_op("max_pool2d", [[1]], {"pool_size": (1, 2, 3)}),
        ["pool_size", "expected a tuple of 2 integers", "(1, 2, 3)"],
    ),
    "data without names": (
        lambda: library.quantize(MODEL, IMAGE),  # type: ignore[arg-type]
        ["{'image': array}", "ndarray"],
    ),
    "data for a program without names": (
        lambda: library.quantize_program(MODEL, [IMAGE]),  # type: ignore[arg-type]
        ["{'image': array}", "list"],
    ),
    "quantisation that is no file": (
        lambda: library.compile(MODEL, quant=3),  # type: ignore[arg-type]
        ["graph.quant", "None or False", "found 3"],
    ),
    "a program is saved into a number": (
        lambda: library.load("negated.cvm").save(3),  # type: ignore[arg-type]
        ["path of a file", "found 3"],
    ),
    "an op of another name": (lambda: library.run_op("Conv", [IMAGE]), ["'Conv'", "'conv2d'", "`cvm ops`"]),
    "a receipt of a program": (lambda: library.Receipt.load("negated.cvm"), ["negated.cvm", "expected a receipt"]),
    "a level that is none": (
        lambda: library.verify("r.receipt", "negated.cvm", level="all"),  # type: ignore[arg-type]
        ["'all'", "structure, roots, outputs, trace, formal"],
    ),
}
"""Calls from Python."""


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_is_explained(mess: Path, name: str) -> None:
    call, held = CALLS[name]
    with pytest.raises(CvmError) as caught:
        call()
    told(str(caught.value), held)


def test_a_tensor_that_a_result_does_not_have_is_named_with_those_that_it_has(mess: Path) -> None:
    result = _session().run({"image": IMAGE})
    with pytest.raises(KeyError, match="no tensor 'probs' in the result; there are y, total"):
        result["probs"]
    with pytest.raises(KeyError, match="there are y, total"):
        result.real("probs")
    assert "probs" not in result


def test_what_cannot_be_saved_is_called_by_its_own_name(mess: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        library.load("negated.cvm").save("nowhere/x.cvm")
    assert str(caught.value.filename).endswith("nowhere/x.cvm")


EXTRAS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "onnx": (["compile", "cut.onnx"], ["onnx"], ["pip install 'cvm[onnx]'"]),
    "tflite": (["compile", "cut.tflite"], ["tflite", "flatbuffers"], ["pip install 'cvm[tflite]'"]),
    "sign": (["receipt", "sign", "r.receipt", "--key", "text.txt"], ["cryptography"], ["pip install 'cvm[sign]'"]),
    "bench": (["bench", "negated.cvm", "--compare", "openvino"], ["openvino"], ["pip install 'cvm[bench]'"]),
}  # fmt: skip
"""Commands, the packages that they need, and what to install."""


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_missing_extra_is_named(cvm: Cvm, mess: Path, monkeypatch: pytest.MonkeyPatch, extra: str) -> None:
    arguments, packages, held = EXTRAS[extra]
    for name in list(sys.modules):
        if name.split(".")[0] in packages:
            monkeypatch.delitem(sys.modules, name)
    for name in packages:
        monkeypatch.setitem(sys.modules, name, None)
    found = find_spec
    monkeypatch.setattr(contest, "find_spec", lambda name: None if name in packages else found(name))
    outcome = cvm(*arguments)
    assert outcome.code == 3
    told(outcome.err, held)


def ended(folder: Path, arguments: list[str], shell: str = "", **environment: str) -> tuple[int, str, str]:
    """The exit code and the streams of a process with this environment alone."""
    kept = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(library.__file__).parents[1])}
    command = ["sh", "-c", f'"$@" {shell}', "sh", sys.executable, "-m", "cvm", *arguments]
    result = subprocess.run(
        command, cwd=folder, env=kept | environment, capture_output=True, text=True, timeout=120, check=False
    )
    return result.returncode, result.stdout, result.stderr


def test_a_user_without_a_home_is_served(mess: Path) -> None:
    """No cache can be kept then; nothing else changes."""
    (mess / "file").write_text("")
    for home in ({}, {"HOME": ""}, {"HOME": str(mess / "file" / "home")}):
        code, out, err = ended(mess, [*RUN, "-i", "reals.npy"], **home)
        assert (code, err) == (0, "")
        assert out.startswith("output")
    code, out, err = ended(mess, ["cache", "show"], HOME=str(mess / "file" / "home"))
    assert code == 0
    assert "not used: " in out
    told(out + err, ["file/home"])


@pytest.mark.sweep
@pytest.mark.parametrize("locale", ["C", "POSIX", "nothing"])
def test_a_poor_locale_is_no_trouble(mess: Path, locale: str) -> None:
    np.save(mess / "größe.npy", np.zeros((1, 2, 3)))
    code, _, err = ended(mess, [*RUN, "-i", "größe.npy"], LC_ALL=locale, CVM_CACHE="")
    assert (code, err) == (0, "")


def test_nobody_reads_the_output(mess: Path) -> None:
    code, out, err = ended(mess, ["ops", "--json"], "| head -c 1", CVM_CACHE="")
    assert (code, out, err) == (0, "{", "")
    code, _, err = ended(mess, [*RUN, "-i", "reals.npy"], ">&-", CVM_CACHE="")
    assert code == 74
    told(err, ["stdout cannot be written", "it is closed"])
