import shutil
import sys
from pathlib import Path

import pytest

from cvm.bench import contest
from cvm.bench.contest import Contestant, check, compete, require
from cvm.errors import Invalid, Malformed, Mismatch, Unsupported
from tests.api import small


@pytest.fixture
def program(tmp_path):
    small.pair().save(tmp_path / "pair.cvm")
    return tmp_path / "pair.cvm"


@pytest.mark.slow
def test_executors_take_turns_in_their_processes_and_agree(program):
    done = []
    contestants = [Contestant(*case) for case in (("native", program, 2, 1), ("numpy", program, 1, 2))]
    contestants.append(Contestant("numpy", program, 1, 1))
    scores = compete(contestants, 2, 0.0, done.append)
    assert [score.contestant for score in scores] == contestants
    assert done == list(range(1, 10))
    for score in scores:
        assert score.failure is None
        assert score.run.calls == 10
        assert 0 < score.cold.open < score.cold.first_result
        assert score.facts == {"digest": small.pair().digest}
        assert score.memory["now"] <= score.memory["peak"]
    assert [score.cached is None for score in scores] == [False, True, True]
    assert [score.bound is None for score in scores] == [False, True, True]


@pytest.mark.slow
def test_a_program_with_state_is_timed(tmp_path):
    small.counter().save(tmp_path / "counter.cvm")
    (score,) = compete([Contestant("native", tmp_path / "counter.cvm", 1, 1)], 1, 0.0)
    assert score.run.calls == 5
    assert score.bound is None


def test_executors_that_differ_are_not_timed():
    file = Path("model.cvm")
    said = [(Contestant(name, file, 1, 1), {"roots": {"y": root}}) for name, root in (("native", "a"), ("numpy", "b"))]
    with pytest.raises(Mismatch, match=r"tensor 'y': native with 1 threads and numpy with 1 threads"):
        contest._compare(said)
    contest._compare([said[0], (Contestant("onnxruntime", file, 1, 1), {"roots": None})])
    contest._compare([said[0], (Contestant("numpy", file, 1, 8), said[1][1])])


def test_check_compares_without_timing(program):
    check([Contestant(name, program, 1, 1) for name in ("numpy", "formal")])


def test_an_executor_that_fails_says_its_own_error(tmp_path):
    file = tmp_path / "broken.cvm"
    file.write_bytes(b"nothing")
    for attempt in (lambda one: compete([one], 1, 0.0), lambda one: check([one])):
        with pytest.raises(Malformed):
            attempt(Contestant("numpy", file, 1, 1))


def test_a_process_that_dies_is_an_error(program, monkeypatch):
    if shutil.which("false") is None:
        pytest.skip("there is no program called false")
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(Unsupported, match="ended with 1"):
        compete([Contestant("numpy", program, 1, 1)], 1, 0.0)


@pytest.mark.parametrize(("engine", "suffix"), [("onnxruntime", ".onnx"), ("openvino", ".onnx"), ("litert", ".tflite")])
def test_another_engine_that_fails_has_its_reason_in_its_score(program, tmp_path, engine, suffix):
    try:
        require([engine])
    except Unsupported as error:
        pytest.skip(str(error))
    file = tmp_path / f"broken{suffix}"
    file.write_bytes(b"nothing")
    ours, other = compete([Contestant("numpy", program, 1, 1), Contestant(engine, file, 1, 1)], 1, 0.0)
    assert ours.failure is None
    assert other.failure
    assert other.run is None


def test_engines_are_known_and_installed(monkeypatch):
    require(["native", "numpy"])
    with pytest.raises(Invalid, match="there is no engine 'mine'"):
        require(["mine"])
    monkeypatch.setattr(contest, "find_spec", lambda package: None if package == "onnxruntime" else object())
    require(["native", "openvino"])
    with pytest.raises(Unsupported, match=r"onnxruntime is not installed.*pip install 'cvm\[bench\]'"):
        require(["onnxruntime"])
