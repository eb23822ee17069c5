import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from cvm.demo import MODEL
from cvm.errors import LimitExceeded


def python(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "cvm", *map(str, arguments)], capture_output=True, text=True, timeout=120, **options
    )


def named(item):
    return " ".join(map(str, item)) if isinstance(item, list) else ""


USAGE = [
    (["nothing"], "No such command 'nothing'"),
    (["run"], "Missing argument 'PROGRAM'"),
    (["run", "negated.cvm", "--nothing"], "No such option"),
    (["run", "negated.cvm"], "no -i option gives the input 'image'; the inputs are image [1, 2, 3]"),
    (["run", "negated.cvm", "-i", "codes.npy", "--codes", "--threads", "0"], "threads"),
    (["run", "negated.cvm", "-i", "codes.npy", "--codes", "--threads", "two"], "Invalid value for '--threads'"),
    (["run", "negated.cvm", "-i", "=codes.npy"], "expected -i [NAME=]FILE[:MEMBER]"),
    (["run", "negated.cvm", "-i", "other.npz"], "'label', which is no input (image)"),
    (["run", "negated.cvm", "-i", "codes.npy:image"], "there is no member 'image' in it"),
    (["run", "negated.cvm", "-i", "codes.npy", "--codes", "-i", "image=codes.npy"], "'image' is given twice"),
    (
        ["run", "pair.cvm", "-i", "codes.npy", "--codes"],
        "say which input codes.npy is: -i NAME=codes.npy; the inputs are a, b",
    ),
    (["run", "pair.cvm", "-i", "b=other.npz"], "say which array: -i b=other.npz:MEMBER; there are image, label"),
    (["compile", "model", "--quant", "a", "--no-quant"], "exclude each other"),
    (["check", "negated.cvm", "-i", "codes.npy", "--codes", "--executors", "formal"], "nothing to compare"),
    (
        ["check", "negated.cvm", "-i", "codes.npy", "--codes", "--executors", "formal", "--sample", "3"],
        "nothing to compare",
    ),
    (["check", "negated.cvm", "-i", "codes.npy", "--codes", "--executors", "numpy,numpy"], "named twice"),
    (["check", "negated.cvm", "-i", "codes.npy", "--codes", "--sample", "0"], "sample"),
    (["vectors", "check", "."], "expected one of --executor and --command"),
    (["vectors", "check", ".", "--executor", "x"], "there is no executor 'x'"),
]

INVALID = [
    (["run", "nothing.cvm"], "nothing.cvm: cannot be read: No such file"),
    (["run", "nothing"], "nothing: cannot be read: No such file"),
    (["inspect", "."], "graph.nnef"),
    (["inspect", "text.txt"], "text.txt:1:1: "),
    (["inspect", "codes.npy"], "codes.npy"),
    (["inspect", "text.cvm"], "text.cvm"),
    (["inspect", "short.cvm"], "short.cvm"),
    (["inspect", "lying.cvm"], "lying.cvm"),
    (["compile", "text.txt"], "text.txt:1:1: "),
    (["compile", "nothing.tgz"], "nothing.tgz: cannot be read"),
    (["compile", MODEL, "--quant", "text.txt"], "text.txt"),
    (["compile", MODEL, "-o", "nowhere/x.cvm"], "nowhere/x.cvm: cannot be written: No such file or directory"),
    (["run", "negated.cvm", "-i", "codes.npy", "--codes", "-o", "."], "cannot be written"),
    (["run", "negated.cvm", "-i", "codes.npy", "--codes", "--executor", "opencl"], "there is no executor 'opencl'"),
    (["run", "negated.cvm", "-i", "codes.npy", "--codes", "--capture", "y,no"], "there is no value"),
    (["run", "negated.cvm", "-i", "nothing.npy"], "nothing.npy: cannot be read: No such file or directory"),
    (["run", "negated.cvm", "-i", "."], ".: cannot be read"),
    (["run", "negated.cvm", "-i", "text.txt"], "text.txt: expected a .npy, .npz or NNEF .dat file"),
    (["run", "negated.cvm", "-i", "x=codes.npy", "-i", "image=codes.npy", "--codes"], "there is no input 'x'"),
    (["run", "negated.cvm", "-i", "image.npz:nothing"], "there is no array 'nothing'; there are image"),
    (["run", "negated.cvm", "-i", "short.npz"], "short.npz: this is not a whole .npz file"),
    (["run", "negated.cvm", "-i", "short.npy"], "short.npy: an array of [2, 2, 3] int64 takes 96 bytes, found 95"),
    (["run", "negated.cvm", "-i", "short.dat"], "short.dat: the header has 128 bytes"),
    (["run", "negated.cvm", "-i", "objects.npy"], "objects.npy: expected integers, booleans or floats"),
    (
        ["run", "negated.cvm", "-i", "large.npy", "--codes"],
        "tensor 'image': expected codes in [0, 255], found 256 at [0, 0, 0]",
    ),
    (["run", "negated.cvm", "-i", "nan.npy"], "tensor 'image': expected real numbers, found nan at [0, 0, 0]"),
    (["run", "negated.cvm", "-i", "shape.npy"], "expected an array of shape [1, 2, 3]"),
    (["run", "negated.cvm", "-i", "codes.npy", "--codes", "--cycles"], "it has no cycles"),
    (
        ["check", "negated.cvm", "-i", "codes.npy", "--codes", "--executors", "formal,opencl"],
        "there is no executor 'opencl'",
    ),
    (["ops", "conv3d"], "there is no op 'conv3d'; did you mean 'conv2d'?"),
    (["ops", "--nnef", "sofmax"], "there is no NNEF operation 'sofmax'; did you mean 'softmax'?"),
    (["nnef", "flatten", "text.txt"], "text.txt:1:1: "),
    (["vectors", "check", "nothing", "--executor", "numpy"], "there are no vectors here"),
    (["vectors", "check", ".", "--command", "./nothing"], "cannot be started"),
]


@pytest.fixture
def broken(files):
    (files / "text.cvm").write_text("version 1.0;\n")
    program = (files / "negated.cvm").read_bytes()
    (files / "short.cvm").write_bytes(program[:-1])
    assert program.count(b"\xcc\xff") >= 1
    (files / "lying.cvm").write_bytes(program.replace(b"\xcc\xff", b"\xcc\xfe"))
    (files / "short.npz").write_bytes((files / "image.npz").read_bytes()[:-1])
    (files / "short.npy").write_bytes((files / "codes.npy").read_bytes()[:-1])
    (files / "short.dat").write_bytes(b"N\xef\1\0")
    np.save("objects.npy", np.array([[[1, 2, 3], [4, 5, None]]], object))
    np.save("large.npy", np.full((1, 2, 3), 256))
    np.save("nan.npy", np.full((1, 2, 3), np.nan))
    np.save("shape.npy", np.zeros((3, 2)))
    return files


def explained(outcome, words):
    """One clear paragraph, that says what and where, on stderr and in the document; then the rule and the line."""
    assert words in outcome.err
    assert outcome.err.startswith("cvm: ")
    assert "\n\n" not in outcome.err
    lines = outcome.err.splitlines()
    assert len([line for line in lines if not line.startswith((" ", "("))]) <= 2
    assert len(lines) <= 5  # the error, three lines about the place in the file, the next step


@pytest.mark.parametrize(("arguments", "words"), USAGE, ids=named)
def test_wrong_usage_is_2(cvm, broken, arguments, words):
    outcome = cvm(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    explained(outcome, words)
    assert "--help'." in outcome.err
    failed = cvm(*arguments, "--json")
    assert failed.code == 2
    assert failed.document["error"]["class"] == "Usage"
    assert words in failed.document["error"]["message"]


@pytest.mark.parametrize(("arguments", "words"), INVALID, ids=named)
def test_models_and_data_that_are_not_valid_are_3(cvm, broken, arguments, words):
    before = sorted(os.listdir())
    outcome = cvm(*arguments)
    assert outcome.code == 3
    assert outcome.out == ""
    explained(outcome, words)
    failed = cvm(*arguments, "--json")
    assert failed.code == 3
    error = failed.document["error"]
    assert error["class"] in ("Malformed", "Invalid", "Unsupported")
    assert error["code"]
    assert sorted(os.listdir()) == before, "nothing is left behind"


def test_a_difference_is_1(cvm, files, monkeypatch):
    from cvm import executors
    from tests.api.test_agreement import Liar

    honest = executors.create

    def create(name, verified, threads=None):
        return honest("formal", verified) if name == "formal" else Liar(verified, "difference", (0, 1, 1))

    monkeypatch.setattr("cvm.executors.create", create)
    outcome = cvm("check", "negated.cvm", "-i", "codes.npy", "--codes", "--executors", "formal,numpy")
    assert outcome.code == 1
    assert outcome.out == (
        "DIFFER   formal, liar: 1 run, 3 tensors each, 12 elements\n"
        "first difference: run 0, op broadcast_sub, tensor 'difference', index [0, 1, 1]: "
        "formal has 251, liar has 252\n"
    )
    failed = cvm("check", "negated.cvm", "-i", "codes.npy", "--codes", "--executors", "formal,numpy", "--json")
    assert failed.code == 1
    assert failed.document["difference"] == {
        "run": 0,
        "op": "broadcast_sub",
        "tensor": "difference",
        "index": [0, 1, 1],
        "values": {"formal": 251, "liar": 252},
    }
    sampled = cvm(
        "check", "negated.cvm", "-i", "codes.npy", "--codes", "--executors", "numpy", "--sample", "6", "--json"
    )
    assert sampled.code == 1
    assert sampled.document["difference"]["tensor"] == "difference"


def test_a_limit_is_4(cvm, files):
    header = "{'descr': '<i8', 'fortran_order': False, 'shape': (1073741824,), }"
    (files / "huge.npy").write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode())
    outcome = cvm("run", "negated.cvm", "-i", "huge.npy")
    assert outcome.code == 4
    explained(outcome, "huge.npy: elements of the array: 1073741824 exceeds the limit of 268435456 [limit.elements]")
    assert cvm("run", "negated.cvm", "-i", "huge.npy", "--json").document["error"]["class"] == "LimitExceeded"


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), LimitExceeded.exit_code, "memory is exhausted"),
        (RuntimeError("a\nb"), 70, "this is a bug in cvm, not in your input: RuntimeError: a b (test_cli_failures.py:"),
        (RecursionError("deep"), 70, "RecursionError: deep"),
        (AssertionError(), 70, "AssertionError"),
    ],
)
def test_whatever_happens_there_is_a_code_and_a_document(cvm, files, monkeypatch, raised, code, words):
    def fail(path, *options):
        raise raised

    monkeypatch.setattr("cvm.cli.models.open_program", fail)
    outcome = cvm("inspect", "negated.cvm")
    assert outcome.code == code
    explained(outcome, words)
    if code == 70:
        assert "'cvm inspect negated.cvm'" in outcome.err
        assert f"NumPy {np.__version__}" in outcome.err
        assert "CVM_DEBUG=1" in outcome.err
    failed = cvm("inspect", "negated.cvm", "--json")
    assert failed.code == code
    assert failed.document["error"]["class"] in ("Interrupted", "LimitExceeded", "Bug")


def test_the_traceback_of_a_bug_is_for_those_who_ask(files, capfd, monkeypatch):
    from cvm.cli import main

    def fail(path, *options):
        raise RuntimeError("here")

    monkeypatch.setattr("cvm.cli.models.open_program", fail)
    monkeypatch.setenv("CVM_DEBUG", "1")
    assert main(["inspect", "negated.cvm"]) == 70
    assert "Traceback (most recent call last)" in capfd.readouterr().err


def test_control_characters_of_a_file_do_not_reach_the_terminal(cvm, files):
    name = "a\x1b[31m\u202eb\x07.npy"
    outcome = cvm("run", "negated.cvm", "-i", name)
    assert outcome.code == 3
    assert "a\\x1b[31m\\u202eb\\x07.npy" in outcome.err


def test_an_interrupted_process_ends_with_130_and_leaves_no_file(tmp_path, tmp_path_factory):
    many = tmp_path_factory.mktemp("inputs") / "many.npy"
    np.save(many, np.zeros((2_000, 1, 8, 8), np.int64))
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "cvm",
            "run",
            str(MODEL),
            "-i",
            str(many),
            "--codes",
            "--executor",
            "formal",
            "-o",
            "out.npz",
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # it is ignored where the tests are a job
    )
    time.sleep(5)  # it has started by then, also on a busy machine, and FORMAL takes minutes
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "cvm: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_a_closed_pipe_is_no_error(tmp_path):
    for arguments, expected in ((["ops", "--json"], 0), (["--help"], 0), (["inspect", "nothing", "--json"], 3)):
        reader, writer = os.pipe()
        os.close(reader)
        process = subprocess.run(
            [sys.executable, "-m", "cvm", *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60
        )
        os.close(writer)
        assert process.returncode == expected
        assert "Broken pipe" not in process.stderr
        assert "Traceback" not in process.stderr


def test_output_of_any_encoding(files):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    outcome = python("inspect", "größe.txt", env=environment, cwd=files)
    assert outcome.returncode == 3
    assert "e.txt: cannot be read" in outcome.stderr
    assert outcome.stderr.isascii()
    assert python("ops", env=environment).returncode == 0


BENCH_MISTAKES = [
    (("--executor", "numpy,numpy"), "an engine is named twice"),
    (("--executor", "onnxruntime"), "--executor takes native, numpy, cuda, formal; found 'onnxruntime'"),
    (("--compare", "numpy"), "--compare takes onnxruntime, openvino, litert; found 'numpy'"),
    (("--threads", "0"), "--threads takes numbers from 1 to"),
    (("--threads", "1,,2"), "--threads takes numbers from 1 to"),
    (("--batch", "-1"), "--batch takes numbers from 1 to"),
    (("--seconds", "nan"), "--seconds takes a number from 0 to 3600, found nan"),
    (("--seconds", "-1"), "--seconds takes a number from 0 to 3600, found -1"),
    (("--batch", "99999"), "--batch takes numbers from 1 to"),
    (("--model", "a.onnx"), "--compare, which is missing"),
    (("--compare", "litert", "--model", "a.onnx"), "litert needs --model FILE, with a file that ends in .tflite"),
    (("--compare", "litert", "--model", "a.tflite"), "there is no file a.tflite"),
]


@pytest.mark.parametrize(("arguments", "message"), BENCH_MISTAKES, ids=lambda item: "-".join(item)[:40])
def test_bench_says_what_is_wrong_before_it_times(cvm, files, monkeypatch, arguments, message):
    monkeypatch.setattr("cvm.bench.contest.find_spec", lambda package: object())
    outcome = cvm("bench", "pair.cvm", *arguments)
    assert outcome.code == 2
    assert message in outcome.err


def test_bench_refuses_an_engine_that_is_not_installed(cvm, files, monkeypatch):
    monkeypatch.setattr("cvm.bench.contest.find_spec", lambda package: None if package == "openvino" else object())
    (files / "model.onnx").write_bytes(b"")
    outcome = cvm("bench", "pair.cvm", "--compare", "openvino", "--model", "model.onnx")
    assert outcome.code == 3
    assert "openvino is not installed; install the extra: pip install 'cvm[bench]'" in outcome.err
