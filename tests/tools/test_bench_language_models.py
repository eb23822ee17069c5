"""The benchmark of language models: the network that all engines get, their turns, the table. No test judges a time."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest

from cvm.demo import LANGUAGE_MODEL
from cvm.executors.native.runtime.select import available
from tests.tools.test_tiny_gpt import BLOCKS, CONTEXT, TOKENS, VOCABULARY, WIDTH, logits_of, weights
from tools.bench import language_models, peak
from tools.bench.language import contest, table, worker
from tools.bench.language.contest import Job, Outcome
from tools.bench.language.engines import ENGINES
from tools.bench.language.network import Network, read
from tools.tiny_gpt.onnx_model import HEADS, model_of
from tools.tiny_gpt.prefill import programs_of

PEERS = [name for name in ENGINES if name != "cvm"]


@pytest.fixture(scope="module")
def network() -> Network:
    return Network(weights(), HEADS)


def test_the_network_is_that_of_the_weights(network, tmp_path):
    np.testing.assert_allclose(network.logits(TOKENS[0]), logits_of(weights(), TOKENS[0]), rtol=0, atol=2e-4)
    sizes = (network.width, network.blocks, network.vocabulary, network.context)
    assert sizes == (WIDTH, BLOCKS, VOCABULARY, CONTEXT)
    assert network.read_per_token == BLOCKS * 12 * WIDTH**2 + VOCABULARY * WIDTH
    np.savez(tmp_path / "weights.npz", vocabulary=np.arange(3), losses=np.zeros(2), **weights())
    assert set(read(tmp_path / "weights.npz", HEADS).weights) == set(weights())


def test_logits_are_compared_with_the_last_rows():
    wanted = np.array([[9.0, 0.0], [3.0, 4.0]], np.float32)
    assert worker.compared(np.array([[3.0, 4.5]]), wanted) == {"decibels": pytest.approx(20.0), "argmax": 1.0}
    assert worker.compared(np.array([[4.0, 3.0]]), wanted)["argmax"] == 0.0
    assert worker.compared(wanted, wanted)["decibels"] == np.inf


def test_memory_is_read_at_a_rate(monkeypatch):
    monkeypatch.setattr(peak, "_READ", 1 << 25)
    for machine in available():
        assert 1e7 < peak.read_peak(machine, 0.0) < 1e13
    assert 1e7 < peak.read_peak(available()[0], 0.0, 2) < 1e13


@pytest.mark.slow
def test_cvm_plays_both_tasks(tmp_path):
    one = {name: array for name, array in weights().items() if not name.startswith("blocks.1.")}
    network = Network(one, HEADS)
    programs = programs_of(model_of(one), {"token": TOKENS[:1, :, None]}, (CONTEXT,))
    for program, task, prompt in zip(programs, ("decode", "prefill"), (4, 0), strict=True):
        program.save(tmp_path / "program.cvm")
        player = ENGINES["cvm"].open(tmp_path / "program.cvm", task, 1)
        check = worker.compared(player.logits(TOKENS[0]), network.logits(TOKENS[0]))
        assert check["decibels"] > 25
        assert player.spent(TOKENS[0, :prompt], TOKENS[0, prompt:]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("engine", PEERS)
@pytest.mark.parametrize("task", ["decode", "prefill"])
def test_other_engines_compute_the_same_network(engine, task, tmp_path):
    if language_models.missing(engine) is not None:
        pytest.skip(f"needs the extra bench-language-models: {language_models.missing(engine)}")
    drawn = language_models.drawn(blocks=2, width=64, context=128, vocabulary=32)
    entry = language_models.Entry("net", Network(drawn, 2), tuple(range(32)) * 4, {}, True)
    path = language_models.file_of(engine, entry, task, tmp_path)
    assert language_models.file_of(engine, entry, task, tmp_path) == path
    tokens = np.array(entry.tokens)
    player = ENGINES[engine].open(path, task, 1)
    found = player.logits(tokens)
    assert worker.compared(found, entry.network.logits(tokens))["decibels"] > 20
    prompt = 64 if task == "decode" else 0
    assert player.spent(tokens[:prompt], tokens[prompt:]) > 0
    np.testing.assert_array_equal(player.logits(tokens), found)


def job(engine: str, file: str, reference: str = "") -> Job:
    return Job(engine, file, "decode", 1, (1, 2), (3, 4, 5), reference)


@pytest.mark.slow
def test_engines_go_on_when_others_fail(tmp_path):
    reference = str(tmp_path / "reference.npy")
    np.save(reference, np.random.default_rng(0).normal(size=(5, 65)))
    good, absent, other = contest.compete(
        [
            job("cvm", str(LANGUAGE_MODEL)),
            job("cvm", str(tmp_path / "absent.cvm")),
            job("cvm", str(LANGUAGE_MODEL), reference),
        ],
        rounds=2,
        seconds=0.0,
    )
    assert good.failure is None
    assert len(good.spent) == 2
    assert min(good.spent) > 0
    assert "absent.cvm" in str(absent.failure)
    assert "another network" in str(other.failure)


def test_a_process_that_says_nothing_has_failed(monkeypatch):
    monkeypatch.setattr(contest, "_PATIENCE", 0.01)
    (outcome,) = contest.compete([job("cvm", str(LANGUAGE_MODEL))], 1, 0.0)
    assert "said nothing" in str(outcome.failure)


def result(engine: str, spent: tuple[int, ...], failure: str | None = None) -> dict[str, object]:
    made = Job(engine, "", "decode", 2, (), tuple(range(10)), "")
    check = {"decibels": 30.0, "argmax": 0.5}
    return table.document_of("net", 10**8, Outcome(made, failure, spent, check, {"package": f"{engine} 1"}))


def test_the_table_has_speeds_ratios_and_shares():
    ours, theirs = result("cvm", (10**9, 2 * 10**9, 10**10)), result("llama.cpp Q8_0", (4 * 10**9,))
    assert ours["tokens_per_second"] == 5.0
    assert ours["quartiles"] == [3.0, 7.5]
    assert ours["bytes_per_second"] == 5e8
    assert theirs["bytes_per_second"] == 2.5 * 34 / 32 * 1e8
    lost = result("ONNX Runtime int8", (), "not installed: pip install onnxruntime onnx")
    document = {"machine": "generic", "bandwidth": {"2": 1e9}, "results": [ours, theirs, lost]}
    text = table.markdown(document)
    assert "| net, decode | 2 | cvm | 5 | 3 to 8 |  | 0.5 | 50 % | 30.0 | 50 % |" in text
    assert "| llama.cpp Q8_0 | 2 | 2 to 2 | 2.00 | 0.3 | 27 % |" in text
    assert "* ONNX Runtime int8 (net, decode): not installed: pip install onnxruntime onnx" in text
    assert "1.0 GB/s with 2 threads" in text


def test_the_table_takes_its_place_on_a_page():
    page = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    made = table.put_into_page("new", page)
    assert made == f"before\n{table.BEGIN}\n\nnew\n\n{table.END}\nafter\n"
    assert table.put_into_page("new", made) == made
    with pytest.raises(ValueError, match="no lines"):
        table.put_into_page("new", "a page")


@pytest.mark.slow
def test_the_command_names_what_is_missing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(language_models, "read_peak", lambda machine, seconds, threads: 1e9)
    monkeypatch.setattr(language_models, "find_spec", lambda module: None if module == "gguf" else find_spec(module))
    options = ["--threads", "1", "--rounds", "1", "--seconds", "0", "--peers", "llama.cpp Q8_0", "-o", str(tmp_path)]
    assert language_models.main(options) == 0
    text = capsys.readouterr().out
    assert "| tiny_gpt.cvm, decode | 1 | cvm |" in text
    assert "* llama.cpp Q8_0 (tiny_gpt.cvm, decode): not installed: pip install llama-cpp-python gguf" in text
    assert (tmp_path / "language-models.md").read_text() == text
    document = json.loads((tmp_path / "language-models.json").read_text())
    assert [item["engine"] for item in document["results"]] == ["cvm", "llama.cpp Q8_0"]


def test_wrong_files_are_named_before_anything_is_timed(tmp_path, capsys):
    for option, file in (("--tiny", "w.npz"), ("--page", "page.md"), ("--large", "weights.npz")):
        given = tmp_path if option == "--large" else tmp_path / file
        with pytest.raises(SystemExit):
            language_models.main([option, str(given)])
        assert f"there is no file {tmp_path / file}" in capsys.readouterr().err
    (tmp_path / "page.md").write_text("a page")
    with pytest.raises(ValueError, match="no lines"):
        language_models.main(["--page", str(tmp_path / "page.md")])
    entry = language_models.Entry("net", Network(weights(), HEADS), (1,), {"decode": tmp_path / "decode.cvm"}, True)
    with pytest.raises(FileNotFoundError, match="says how it is made"):
        language_models.file_of("cvm", entry, "decode", tmp_path)


def test_no_task_is_begun_when_the_time_is_over(capsys, monkeypatch):
    monkeypatch.setattr(language_models, "read_peak", lambda machine, seconds, threads: 1e9)
    assert language_models.main(["--minutes", "-1", "--threads", "1", "--peers", ""]) == 1
    assert "* cvm (tiny_gpt.cvm, decode): not timed: -1 minutes were over" in capsys.readouterr().out
