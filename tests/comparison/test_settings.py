"""Engines with several settings: instruction sets, levels of optimisation, and an engine that disagrees with itself."""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvm.comparison import Setting, Shown, disagreements, drawn, opened, searched, setting, shown, variants
from cvm.comparison.instruction_sets import limited
from cvm.comparison.openvino import Twin, corrected
from cvm.comparison.saturation import lost
from cvm.conformance.running import _lines
from cvm.errors import Invalid, Unsupported
from cvm.reduction import Comparison, Judge
from cvm.reduction.onnx_form import OnnxForm


def test_a_setting_has_each_number_of_threads_and_each_instruction_set() -> None:
    found = variants(setting("openvino:property.X=1"), [1, 2], ["default", "avx512"])
    assert [each.label for each in found] == [
        "openvino(X=1)",
        "openvino(threads=2, X=1)",
        "openvino(isa=avx512, X=1)",
        "openvino(threads=2, isa=avx512, X=1)",
    ]
    command = setting("command:engine")
    assert variants(command, [1, 2], ["avx2"]) == [command]
    assert variants(setting("litert:threads=3"), [], []) == [setting("litert:threads=3")]


class Started(Exception):
    """A process was started, with these words and this environment."""


@pytest.mark.parametrize("command", ["conformance", "reduce"])
def test_other_commands_run_an_engine_on_the_instruction_set_of_the_setting_too(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def start(words: list[str], *, env: dict[str, str], **_: Any) -> Any:
        raise Started(words, env)

    monkeypatch.setattr("subprocess.run", start)
    monkeypatch.setattr("subprocess.Popen", start)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    emulated = ["/bin/qemu-x86_64", "-cpu", "Haswell-noTSX"]
    for name, before, variables in (
        ("onnxruntime:isa=avx2,X=1", emulated, {"X": "1"}),
        ("openvino:isa=avx2", [], {"ONEDNN_MAX_CPU_ISA": "AVX2", "OV_CPU_MAX_ISA": "AVX2"}),
    ):
        judge = Judge(OnnxForm.__new__(OnnxForm), Comparison(engine=setting(name)))
        run = partial(_lines, tmp_path, 0, setting(name)) if command == "conformance" else judge._started
        with pytest.raises(Started) as caught:
            run()
        words, environment = caught.value.args
        assert words[: len(before) + 1] == [*before, sys.executable]
        assert variables.items() <= environment.items()


def test_a_setting_passes_through_its_document() -> None:
    for text in ("onnxruntime:threads=3,optimization=basic,property.a=b", "command:engine --fast"):
        assert Setting.of(json.loads(json.dumps(setting(text).document()))) == setting(text)


def test_an_instruction_set_is_a_variable_or_an_emulated_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limited("onnxruntime", "default") == ([], {})
    assert limited("openvino", "avx512") == ([], {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"})
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert limited("litert", "avx2") == (["/bin/qemu-x86_64", "-cpu", "Haswell-noTSX"], {})
    with pytest.raises(Unsupported, match=r"compare\.isa"):
        limited("litert", "avx512")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Unsupported, match=r"qemu-x86_64 is not installed"):
        limited("litert", "avx2")
    with pytest.raises(Invalid, match=r"compare\.engine"):
        setting("openvino:isa=mmx")


def run(name: str, threads: int, codes: list[int], output: list[int]) -> Shown:
    """What an engine with one tensor and one output showed."""
    found = {"same": np.zeros((1, 2), np.int64), "t": np.array([codes])}
    return Shown(Setting(name, threads), "", found, {}, {}, {"y": np.array([output])})


def test_an_engine_that_disagrees_with_itself_is_named() -> None:
    runs = [run("a", 1, [1, 2], [5]), run("a", 2, [1, 3], [5]), run("a", 3, [1, 2], [5]), run("b", 1, [9, 9], [9])]
    (found,) = disagreements(runs)
    assert found.engine == "a"
    assert found.groups == (("a", "a(threads=3)"), ("a(threads=2)",))
    assert (found.tensors, found.outputs) == ({"t": 1}, {})
    (hidden,) = disagreements([run("a", 1, [1], [5]), run("a", 2, [1], [6])])
    assert (hidden.tensors, hidden.outputs) == ({}, {"y": 1})
    assert disagreements([runs[0], runs[2], runs[3]]) == []


def test_codes_that_openvino_reads_are_those_of_its_real_numbers() -> None:
    twin = Twin("", 0.5, -128)
    codes = np.array([-128, 0, 100, 127], np.int8)
    exact = (codes.astype(np.float64) + 128) * 0.5
    assert (corrected(codes, exact, twin) == codes).all()
    assert (corrected(codes, exact * (1 + 2**-9), twin) == codes).all()  # a bfloat16 may be so far off
    assert corrected(codes, exact + np.array([0, 1, 0, -1]), twin).tolist() == [-128, 2, 100, 125]


class _Operation:
    """As much of an operation as `lost` looks at."""

    def __init__(self, name: str, **attributes: Any) -> None:
        self.name, self.attributes = name, attributes


class _Region:
    def __init__(self, name: str, **attributes: Any) -> None:
        self.operation = _Operation(name, **attributes)


def test_pairs_of_products_saturate() -> None:
    data = np.array([[255, 255, 1, 255]])
    weights = np.array([[127, 127, 1, 1], [-128, -128, 0, 0], [127, -127, 1, 1]])
    found = lost(_Region("linear"), data, weights, (1, 3), 0)  # type: ignore[arg-type]
    assert found is not None
    assert found.tolist() == [[32767 - 2 * 255 * 127, -32768 + 2 * 255 * 128, 0]]


def test_saturated_convolutions_lose_what_their_pairs_lose() -> None:
    random = np.random.default_rng(1)
    data = random.integers(0, 256, (1, 4, 5, 6))
    weights = random.integers(-128, 128, (3, 4, 3, 3))
    region = _Region("conv", stride=(2, 1), padding=[(1, 1), (1, 1)], dilation=(1, 1))
    found = lost(region, data, weights, (1, 3, 3, 6), 7)  # type: ignore[arg-type]
    assert found is not None
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=7)
    for o, y, x in ((0, 0, 0), (1, 2, 5), (2, 1, 3)):
        away = 0
        for row in range(3):
            for column in range(3):
                for c in (0, 2):
                    place = padded[0, c : c + 2, 2 * y + row, x + column]
                    pair = int((place * weights[o, c : c + 2, row, column]).sum())
                    away += min(max(pair, -32768), 32767) - pair
        assert found[0, o, y, x] == away
    assert found.any()


@pytest.mark.long
def test_a_rewrite_is_found_by_levels(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from onnx import helper, numpy_helper, save

    random = np.random.default_rng(2)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "z"], ["codes"]),
        helper.make_node("DequantizeLinear", ["codes", "sx", "z"], ["real"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["weights"]),
        helper.make_node("MatMul", ["real", "weights"], ["product"]),
        helper.make_node("QuantizeLinear", ["product", "sy", "z"], ["made"]),
        helper.make_node("DequantizeLinear", ["made", "sy", "z"], ["y"]),
    ]
    constants = {
        "sx": np.float32(1e-4),
        "sy": np.float32(2e-4),
        "z": np.uint16(32768),
        "w": random.integers(-127, 128, (64, 8)).astype(np.int8),
        "sw": np.float32(0.01),
        "zw": np.int8(0),
    }
    graph = helper.make_graph(
        nodes,
        "rewritten",
        [helper.make_tensor_value_info("x", 1, [1, 64])],
        [helper.make_tensor_value_info("y", 1, [1, 8])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    model.ir_version = 10
    save(model, tmp_path / "model.onnx")
    read = opened(tmp_path / "model.onnx", executor="numpy")
    given = drawn(read, 2)
    found = searched(read, setting("onnxruntime"), given.inputs, given.feeds)
    assert found is not None
    assert [(item.level, item.own == 0, item.outputs == 0) for item in found.levels] == [
        ("none", True, True),
        ("basic", True, True),
        ("extended", False, False),
        ("all", False, False),
    ]
    (item,) = found.rewritten
    assert (item.name, item.exact_at, item.level, item.operator) == ("made", "basic", "extended", "MatMulNBits")
    assert found.levels[2].new == ("MatMulNBits",)
    assert searched(read, setting("onnxruntime:optimization=none"), given.inputs, given.feeds) is None


@pytest.mark.long
def test_an_engine_runs_on_an_emulated_processor(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    if shutil.which("qemu-x86_64") is None:
        pytest.skip("qemu-x86_64 is not installed")
    family = Path(__file__).parents[1] / "frontends" / "onnx" / "family"
    read = opened(family / "resnet-qdq-channel-int8.onnx", executor="numpy")
    given = drawn(read, 1)
    found = shown(read, setting("onnxruntime:isa=avx2"), given.inputs)
    assert set(found.codes) == {place.name for place in read.places}
