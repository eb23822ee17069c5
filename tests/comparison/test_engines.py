"""Engines in processes of their own: settings, files with other outputs, and engines that fail or lie."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from cvm.comparison import compared, drawn, opened, setting, shown
from cvm.comparison.openvino import codes_of
from cvm.errors import Invalid, Unsupported
from cvm.frontends import tflite
from cvm.frontends.tflite.outputs import with_outputs
from tools import page_files

FAMILY = Path(__file__).parents[1] / "frontends" / "onnx" / "family"
RESNET = FAMILY / "resnet-qdq-channel-int8.onnx"
ENGINE = """
import sys
from pathlib import Path
import numpy as np
from cvm.arrays import npz_arrays, npz_bytes
from cvm.comparison import opened, samples
model = opened(Path(sys.argv[1]), executor="numpy")
given = npz_arrays(Path(sys.argv[2]).read_bytes())
feeds = samples(model, {name: given[item.name] for name, item in model.inputs.items()}).feeds
runs = [model.exact(feed) for feed in feeds]
found = {place.name: np.stack([run[place.name] for run in runs]) for place in model.places}
CHANGE
Path(sys.argv[3]).write_bytes(npz_bytes(found))
"""


def engine(tmp_path: Path, change: str = "") -> str:
    """A setting with a command that computes a model exactly, and then changes what it found."""
    script = tmp_path / "engine.py"
    script.write_text(ENGINE.replace("CHANGE", change))
    return f"command:{sys.executable} {script}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("onnx", "there is no engine 'onnx'; there are onnxruntime, openvino, litert, tflite-reference, command:WORDS"),
        ("torch", "there is no engine 'torch'"),
        ("litert:threads", "settings like threads=2, found 'threads'"),
        ("litert:threads=0", "a number from 1 to 1024, found '0'"),
        ("litert:threads=many", "a number from 1 to 1024, found 'many'"),
        ("onnxruntime:optimization=most", "none, basic, extended, all, found 'most'"),
        ("command:", "needs the words of a command"),
        ("command:'", "the words of the command"),
    ],
)
def test_a_wrong_setting_says_what_there_is(text: str, words: str) -> None:
    with pytest.raises(Invalid, match=r"compare\.engine") as caught:
        setting(text)
    assert words in caught.value.message


def test_a_setting_is_written_as_it_was_read() -> None:
    found = setting("openvino:threads=2,property.INFERENCE_PRECISION_HINT=f32,ONEDNN_MAX_CPU_ISA=AVX2")
    assert found.threads == 2
    assert found.properties == (("INFERENCE_PRECISION_HINT", "f32"),)
    assert found.environment == (("ONEDNN_MAX_CPU_ISA", "AVX2"),)
    assert found.label == "openvino(threads=2, INFERENCE_PRECISION_HINT=f32, ONEDNN_MAX_CPU_ISA=AVX2)"


@pytest.mark.slow
def test_a_command_is_an_engine(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    model = opened(RESNET, executor="numpy")
    given = drawn(model, 2)
    exact = compared(model, shown(model, setting(engine(tmp_path)), given.inputs), given.feeds)
    assert exact.first is None
    assert all(item.total.differ == 0 for item in exact.tensors)
    last = model.places[-1].name
    changed = f"found[{last!r}] = np.clip(found[{last!r}] + 1, -128, 127); del found[model.places[0].name]"
    found = shown(model, setting(engine(tmp_path, changed)), given.inputs)
    assert list(found.hidden) == [model.places[0].name]
    other = compared(model, found, given.feeds)
    assert other.first is not None
    assert other.first.name == last
    assert len(other.tensors) == len(model.places) - 1
    assert other.first.own.farthest == 1
    assert other.first.own.above == other.first.own.differ


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("sys.exit(3)", "ended with 3 and wrote no outputs"),
        ("found[model.places[0].name] = found[model.places[0].name][..., :1]", ""),
        ("found[model.places[0].name] = found[model.places[0].name] * 1.5", ""),
        ("found[model.places[0].name] = found[model.places[0].name] + 1000", ""),
    ],
)
def test_an_engine_that_fails_or_lies_is_named(tmp_path: Path, change: str, words: str) -> None:
    pytest.importorskip("onnx")
    model = opened(RESNET, executor="numpy")
    given = drawn(model, 1)
    if words:
        with pytest.raises(Unsupported, match=r"compare\.failed") as caught:
            shown(model, setting(engine(tmp_path, change)), given.inputs)
        assert words in caught.value.message
        return
    found = shown(model, setting(engine(tmp_path, change)), given.inputs)
    assert list(found.hidden) == [model.places[0].name]


def test_a_file_of_tflite_with_other_outputs_is_the_same_model(tmp_path: Path) -> None:
    pytest.importorskip("tflite")
    page_files.tflite(tmp_path)
    data = (tmp_path / "model.tflite").read_bytes()
    (place,) = tflite.loads(data).places
    assert place.name == "maps"
    other = tflite.loads(with_outputs(data, [place.index, place.index]))
    assert len(other.graph.outputs) == 2
    assert with_outputs(data, [place.index])[: len(data) - 64].count(b"TFL3") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["onnxruntime", "onnxruntime:optimization=none", "openvino:property.INFERENCE_PRECISION_HINT=f32"],
)
def test_engines_for_onnx(name: str) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip(name.partition(":")[0])
    model = opened(RESNET)
    given = drawn(model, 2)
    found = compared(model, shown(model, setting(name), given.inputs), given.feeds)
    assert len(found.tensors) == len(model.places)  # every quantised tensor is shown
    assert sum(item.own.differ for item in found.tensors) <= 4


def test_dequantised_numbers_are_read_as_codes_only_if_they_are_steps() -> None:
    codes = np.array([-32768, -1, 0, 9, 32767])
    real = (codes - 5).astype(np.float32) * np.float32(0.1)
    assert (codes_of(real, float(np.float32(0.1)), 5) == codes).all()
    other = real + np.float32(0.01)
    assert codes_of(other, float(np.float32(0.1)), 5) is other
    infinite = np.array([np.inf], np.float32)
    assert codes_of(infinite, 0.5, 0) is infinite


@pytest.mark.slow
@pytest.mark.parametrize("name", ["litert", "tflite-reference"])
def test_engines_for_tflite(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    pytest.importorskip("tflite")
    page_files.tflite(tmp_path)
    model = opened(tmp_path / "model.tflite")
    given = drawn(model, 8)
    found = shown(model, setting(name), given.inputs)
    assert found.package.startswith("ai-edge-litert ")
    assert not any(found.changed.values())
    difference = compared(model, found, given.feeds).tensors[0]
    assert difference.own.to_json() == difference.total.to_json()  # there is only one operator
    assert difference.own.farthest <= 1


def test_a_model_of_another_format_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"compare\.format"):
        opened(Path(__file__).parents[2] / "cvm" / "demo" / "lenet_digits")


def test_the_answer_of_the_worker_is_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from cvm.comparison.worker import main

    (tmp_path / "request.json").write_text(json.dumps({"setting": {"engine": "none"}}))
    assert main([str(tmp_path / name) for name in ("request.json", "in.npz", "out.npz")]) == 1
    assert "error" in json.loads(capfd.readouterr().out)


def test_counts_tell_where_codes_differ() -> None:
    from cvm.comparison import Counts

    counts = Counts()
    exact = np.zeros((1, 4, 4, 2), np.int64)
    engine = exact.copy()
    engine[0, 0, 1, 1], engine[0, 2, 2, 1] = 3, -1
    counts.add(5, engine, exact, -1)
    assert (counts.of, counts.differ, counts.farthest, counts.above) == (32, 2, 3, 1)
    assert (counts.channels, counts.border, counts.first) == ({1}, 1, (5, (0, 0, 1, 1), 3, 0))


@pytest.mark.slow
def test_a_comparison_is_written_as_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("jinja2")
    from cvm.cli.compare import command

    change = "found[model.places[2].name] = np.clip(found[model.places[2].name] + 1, -128, 127)"
    page = tmp_path / "page.html"
    assert command(RESNET, [engine(tmp_path, change)], random=1, output=page, as_json=True) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["file"] == {"path": str(page), "bytes": page.stat().st_size}
    assert document["disagreements"] == []
    assert document["engines"][0]["first"] in page.read_text("utf-8")
