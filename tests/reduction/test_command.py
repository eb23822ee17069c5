"""``cvm reduce``: what it writes, what fails in other processes, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvm.api import compile
from cvm.arrays import npz_bytes
from cvm.errors import CvmError, Invalid, Unsupported
from cvm.executors import RunResult, create
from cvm.program import VerifiedProgram, load
from cvm.reduction import Bound, Comparison, Judge, opened, reduced, smallest, stacked, worker
from cvm.reduction.network import Network
from tests.api import small
from tests.cli.conftest import Outcome, cvm, files
from tests.reduction.networks import subject

__all__ = ["cvm", "files"]

Cvm = Callable[..., Outcome]

CHECK = """\
import sys
import zipfile
data = open(sys.argv[1], "rb").read()
names = zipfile.ZipFile(sys.argv[2]).namelist()
assert names and all(name.endswith(".npy") for name in names)
if b"max_pool2d" in data:
    {end}
"""


def checking(folder: Path, end: str) -> str:
    path = folder / "check.py"
    path.write_text(CHECK.replace("{end}", end))
    return f"{sys.executable} {path}"


@pytest.mark.parametrize(
    ("end", "how"),
    [
        pytest.param("sys.exit(7)", "ended with 7", marks=pytest.mark.long),
        ("import os; os.abort()", "ended by SIGABRT"),
    ],
)
def test_a_command_says_what_fails(cvm: Cvm, tmp_path: Path, end: str, how: str) -> None:
    subject("cvm", 3, 50, tmp_path)
    path, out = tmp_path / "network.cvm", tmp_path / "small.cvm"
    asked = checking(tmp_path, end)
    outcome = cvm("reduce", path, "-o", out, "--random", 2, "--command", asked, "--json")
    assert outcome.code == 0, outcome.err
    found = outcome.document
    assert (found["outcome"], found["operations"]) == (how, ["max_pool2d"])
    assert found["complete"]
    assert [node.op for node in load(out).nodes] == ["max_pool2d"]
    assert np.load(tmp_path / "small.npz").files == [load(out).inputs[0].value.name]
    test = (tmp_path / "test_small.py").read_text()
    assert test == found["test"]
    ran = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "test_small.py"],
                         capture_output=True, text=True, cwd=Path(__file__).parents[2])  # fmt: skip
    assert ran.returncode == 1
    assert "1 failed" in ran.stdout


def test_the_test_of_a_program_builds_it(tmp_path: Path) -> None:
    from cvm.reduction.texts import program_test

    found = subject("cvm", 3, 50, tmp_path)
    whole = found.drawn(1, seed=0)
    one = reduced(whole, found.form, lambda network: any(node.op == "clip" for node in network.nodes)).network
    program = found.form.built(one)  # type: ignore[union-attr]
    text = program_test(program, one.runs, Comparison(executors=("numpy", "formal")), tmp_path / "a b.cvm")
    scope: dict[str, Callable[[], None]] = {}
    exec(text, scope)
    scope["test_a_b"]()  # the executors agree, so the test passes


def test_nothing_is_reduced_that_does_not_fail(cvm: Cvm, files: Path) -> None:
    outcome = cvm("reduce", "negated.cvm", "-o", "small.cvm", "--random", 1, "--executors", "formal,numpy")
    assert outcome.code == 3
    assert "nothing fails with this data" in outcome.err
    assert not (files / "small.cvm").exists()


def test_a_state_becomes_an_input_where_it_is_not_needed(tmp_path: Path) -> None:
    program = small.counter()
    program.save(tmp_path / "counter.cvm")
    found = opened(tmp_path / "counter.cvm")
    assert program.state
    whole = found.drawn(4, seed=1)
    assert len(whole.runs) == 4
    op = whole.nodes[-1].op
    result = reduced(whole, found.form, lambda network: any(node.op == op for node in network.nodes), Bound())
    assert not result.network.state
    assert len(result.network.runs) == 1
    with pytest.raises(Invalid, match="in cycles") as caught:
        found.with_data({program.inputs[0].value.name: np.zeros((2, *program.inputs[0].value.shape), np.int32)}, True)
    assert caught.value.code == "reduce.cycles"


def test_an_engine_is_compared_with_the_exact_codes(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    found = subject("onnx", 3, 10, tmp_path)
    engine = tmp_path / "engine.py"
    engine.write_text(ENGINE)
    from cvm.comparison import setting

    how = Comparison(engine=setting(f"command:{sys.executable} {engine}"))
    result = smallest(found, found.drawn(1, seed=0), how, Bound(tries=9, seconds=100))
    assert result.outcome == "differs"
    operations = [node.op for node in result.reduced.network.nodes if found.form.counts(node)]
    assert operations[-1:] == ["Relu"]
    assert len(operations) <= 3


ENGINE = """\
import sys
import numpy as np
import onnx
graph = onnx.load(sys.argv[1]).graph
wrong = any(node.op_type == "Relu" for node in graph.node)
np.savez(sys.argv[3], **{item.name: np.zeros(1) for item in graph.output if wrong}, other=np.zeros(1))
"""


def test_executors_that_differ_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker, in this process, with an executor that is wrong wherever it clips."""

    class Wrong:
        name = "wrong"

        def __init__(self, verified: VerifiedProgram) -> None:
            self.inner, self.program = create("numpy", verified), verified.program

        def run(self, *arguments: Any) -> RunResult:
            found = self.inner.run(*arguments)
            clips = {node.outputs[0].name for node in self.program.nodes if node.op == "clip"}
            return RunResult({name: a ^ (name in clips) for name, a in found.values.items()}, found.state)

    def made(name: str, verified: VerifiedProgram) -> Any:
        return Wrong(verified) if name == "native" else create(name, verified)

    monkeypatch.setattr(worker, "create", made)
    found = subject("cvm", 3, 50, tmp_path)
    whole = found.drawn(1, seed=0)

    def fails(network: Network) -> bool:
        path, inputs = tmp_path / "tried.cvm", tmp_path / "tried.npz"
        found.form.save(network, path)
        inputs.write_bytes(npz_bytes(stacked(network)))
        asked = {"model": str(path), "inputs": str(inputs), "names": list(network.inputs), "cycles": False}
        return worker.executors_differ(["numpy", "native"], asked) == "differs"

    assert fails(whole)
    result = reduced(whole, found.form, fails)
    assert [node.op for node in result.network.nodes] == ["clip"]
    assert max(array.size for array in result.network.runs[0].values()) == 1


def test_a_process_that_dies_is_a_failure_and_another_one_goes_on(tmp_path: Path) -> None:
    small.negated().save(tmp_path / "negated.cvm")
    found = opened(tmp_path / "negated.cvm")
    network = found.drawn(1, seed=0)
    with Judge(found.form, Comparison(executors=("numpy", "formal"))) as judge:
        words = ["sh", "-c", "read line; kill -SEGV $$"]
        judge.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert judge.outcome(network) == "ended by SIGSEGV"
        assert judge.outcome(network) == ""


def test_the_bound_on_time_ends_the_search(tmp_path: Path) -> None:
    found = subject("cvm", 3, 50, tmp_path)
    whole = found.drawn(2, seed=0)
    ticks = iter(range(10**6))
    result = reduced(whole, found.form, lambda _: True, Bound(seconds=5), clock=lambda: float(next(ticks)))
    assert not result.complete
    assert 1 <= result.tries <= 5
    assert result.after < result.before


def test_the_same_search_gives_the_same_bytes(tmp_path: Path) -> None:
    found = subject("cvm", 3, 50, tmp_path)
    results = []
    for _ in range(2):
        whole = found.drawn(2, seed=0)
        result = reduced(whole, found.form, lambda network: any(node.op == "cvm_lut" for node in network.nodes))
        results.append((result.tries, found.form.built(result.network).to_bytes()))  # type: ignore[union-attr]
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "small.onnx", "--random", "1"], "a name that ends in .cvm"),
        (["-o", "small.cvm"], "give inputs with -i"),
        (["-o", "small.cvm", "--random", "1", "--executors", "numpy"], "takes two or more names"),
        (["-o", "small.cvm", "--random", "1", "--executors", "a,b", "--command", "c"], "by one of"),
        (["-o", "small.cvm", "--random", "1", "--command", '"'], "cannot be told apart"),
        (["-o", "small.cvm", "--random", "1", "--command", " "], "needs the words"),
    ],
)
def test_wrong_usage(cvm: Cvm, files: Path, words: list[str], said: str) -> None:
    outcome = cvm("reduce", "negated.cvm", *words)
    assert outcome.code == 2
    assert said in " ".join(outcome.err.split())


@pytest.mark.parametrize(
    ("comparison", "code"),
    [
        (Comparison(command=("/no/such/program",)), "reduce.command"),
        (Comparison(executors=("numpy", "abacus")), "executors.unknown"),
    ],
)
def test_what_cannot_be_compared(tmp_path: Path, comparison: Comparison, code: str) -> None:
    small.negated().save(tmp_path / "negated.cvm")
    found = opened(tmp_path / "negated.cvm")
    with pytest.raises(CvmError) as caught:
        smallest(found, found.drawn(1, 0), comparison)
    assert caught.value.code == code


def test_engines_read_onnx_alone(cvm: Cvm, files: Path) -> None:
    outcome = cvm("reduce", "negated.cvm", "-o", "small.cvm", "--random", 1, "--engine", "onnxruntime", "--json")
    assert (outcome.code, outcome.document["error"]["code"]) == (3, "compare.format")


def test_models_of_tflite_are_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(b"\0\0\0\0TFL3" + bytes(40))
    with pytest.raises(Unsupported, match=r"cvm compile MODEL -o model\.cvm") as caught:
        opened(path)
    assert caught.value.code == "reduce.format"


def test_broken_programs_have_their_own_errors(tmp_path: Path) -> None:
    path = tmp_path / "broken.cvm"
    data = small.negated().to_bytes()
    for content in (data[: len(data) // 2], b"", bytes(64), data + b"x"):
        path.write_bytes(content)
        with pytest.raises(CvmError):
            opened(path)
    for name in ("missing.cvm", "missing.onnx", "missing"):
        with pytest.raises(CvmError):
            opened(tmp_path / name)
    pytest.importorskip("onnx")
    (tmp_path / "broken.onnx").write_bytes(b"\x08\x08\x12\x04test" + bytes(20))
    with pytest.raises(CvmError):
        opened(tmp_path / "broken.onnx")


def test_nodes_with_graphs_are_refused(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    found = subject("onnx", 3, 50, tmp_path)
    helper = onnx.helper
    model = onnx.load(str(tmp_path / "network.onnx"))
    inner = helper.make_graph([], "inner", [], [helper.make_tensor_value_info("image", 1, None)])
    model.graph.node.append(helper.make_node("If", ["image"], ["chosen"], then_branch=inner, else_branch=inner))
    path = tmp_path / "branches.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(Unsupported) as caught:
        opened(path)
    assert caught.value.code == "reduce.subgraph"
    assert found.form.suffix == ".onnx"


def test_a_model_is_compiled_for_executors(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    found = subject("nnef", 3, 4, tmp_path)
    assert compile(tmp_path / "network").digest == found.program.digest
    with pytest.raises(Invalid, match="nothing fails") as caught:
        smallest(found, found.drawn(1, 0), Comparison(executors=("numpy", "native")))
    assert caught.value.code == "reduce.passes"
