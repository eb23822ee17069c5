"""The exact codes of conformance cases, by rational arithmetic on what a layer says, and verdicts on mock engines."""

from __future__ import annotations

import sys
from fractions import Fraction
from itertools import product
from math import floor
from pathlib import Path

import numpy as np
import pytest

from cvm.comparison import setting
from cvm.conformance import Case, cases_for, markdown, statement
from cvm.conformance.cases import RANGES, Layer, Tensor
from cvm.conformance.running import prepared
from cvm.errors import Invalid, Unsupported

EXACT = setting("command:none")
SAMPLED = (
    "MatMul",
    "Conv",
    "Add",
    "Mul",
    "Relu",
    "com.microsoft.QLinearAdd",
    "FULLY_CONNECTED",
    "ADD",
    "MUL",
    "QUANTIZE",
)
FEW = 40
"""How many elements of a case are computed."""
ENGINE = """
import sys
from pathlib import Path
import numpy as np
from cvm.arrays import npz_arrays, npz_bytes
from cvm.comparison import opened, samples
model = opened(Path(sys.argv[1]), executor="numpy")
given = npz_arrays(Path(sys.argv[2]).read_bytes())
feeds = samples(model, {name: given[item.name] for name, item in model.inputs.items()}, codes=True).feeds
runs = [model.exact(feed) for feed in feeds]
(place,) = model.places
found = np.stack([run[place.name] for run in runs])
CHANGE
Path(sys.argv[3]).write_bytes(npz_bytes({place.name: found}))
"""


@pytest.fixture(autouse=True)
def packages() -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("tflite")


def real(tensor: Tensor, index: tuple[int, ...]) -> Fraction:
    """The number that an element stands for."""
    index = tuple(n % extent for n, extent in zip(index, tensor.values.shape, strict=True))
    scale = tensor.scales[index[tensor.axis] if len(tensor.scales) > 1 else 0]
    return (int(tensor.values[index]) - tensor.zero) * Fraction(float(np.float32(scale)))


def result(layer: Layer, index: tuple[int, ...]) -> Fraction:
    """One element of the result before it is rounded."""
    op = layer.op.rpartition(".")[2]
    x = layer.inputs[0]
    if op in ("MatMul", "FULLY_CONNECTED"):
        weights = layer.inputs[1]
        depth = x.values.shape[1]
        row, column = index
        places = ((column, k) if op == "FULLY_CONNECTED" else (k, column) for k in range(depth))
        total = sum((real(x, (row, k)) * real(weights, place) for k, place in enumerate(places)), Fraction(0))
        if len(layer.inputs) > 2:
            total += int(layer.inputs[2].values[column]) * _unit(layer, column)
        if layer.attributes.get("FusedActivationFunction"):
            total = max(total, Fraction(0))
        return total
    if op == "Conv":
        return convolved(layer, index)
    if op.upper() in ("RELU", "QUANTIZE"):
        number = real(x, index)
        return max(number, Fraction(0)) if op.upper() == "RELU" else number
    one, other = real(x, index), real(layer.inputs[1], index)
    total = one * other if op.upper() == "MUL" else one + other
    if layer.attributes.get("FusedActivationFunction"):
        total = min(max(total, Fraction(0)), Fraction(6))
    return total


def _unit(layer: Layer, channel: int) -> Fraction:
    """The scale of a bias of TFLite: the exact product of the scales of data and weights."""
    x, weights = layer.inputs[:2]
    scale = weights.scales[channel if len(weights.scales) > 1 else 0]
    return Fraction(float(np.float32(x.scales[0]))) * Fraction(float(np.float32(scale)))


def convolved(layer: Layer, index: tuple[int, ...]) -> Fraction:
    """One element of a convolution of ONNX; its bias is a number of its own scale."""
    x, weights, bias = layer.inputs
    batch, channel, row, column = index
    strides, steps = layer.attributes.get("strides", (1, 1)), layer.attributes.get("dilations", (1, 1))
    pads, groups = layer.attributes.get("pads", (0, 0, 0, 0)), layer.attributes.get("group", 1)
    results, depth, *window = weights.values.shape
    first = channel // (results // groups) * depth
    total = real(bias, (channel,))
    for inner, down, right in product(range(depth), range(window[0]), range(window[1])):
        at = row * strides[0] - pads[0] + down * steps[0], column * strides[1] - pads[1] + right * steps[1]
        if all(0 <= place < extent for place, extent in zip(at, x.values.shape[2:], strict=True)):
            total += real(x, (batch, first + inner, *at)) * real(weights, (channel, inner, down, right))
    return total


def code(case: Case, number: Fraction) -> int:
    """The code of a number: ties to even in ONNX, upward in TFLite."""
    steps = number / Fraction(float(np.float32(case.layer.scale)))
    rounded = round(steps) if case.kind == "onnx" else floor(steps + Fraction(1, 2))
    lo, hi = RANGES[case.layer.data_type]
    return min(max(rounded + case.layer.zero, lo), hi)


def check(case: Case, folder: Path, few: int) -> None:
    item = prepared(case, folder, 0)
    (codes,) = item.model.exact(item.samples.feeds[0]).values()
    shape = tuple(case.layer.shape) or codes.shape
    places = np.random.default_rng(0).choice(codes.size, min(few, codes.size), replace=False)
    for place in places:
        index = tuple(int(n) for n in np.unravel_index(place, shape))
        assert codes.flat[place] == code(case, result(case.layer, index)), (case.name, index)


@pytest.mark.parametrize("op", SAMPLED)
def test_exact_codes_are_those_of_rational_arithmetic(op: str, tmp_path: Path) -> None:
    cases = cases_for(EXACT, [op])
    for case in cases[:: max(1, len(cases) // 3)]:
        check(case, tmp_path, FEW)


@pytest.mark.long
@pytest.mark.parametrize("op", SAMPLED)
def test_all_exact_codes_are_those_of_rational_arithmetic(op: str, tmp_path: Path) -> None:
    for case in cases_for(EXACT, [op]):
        check(case, tmp_path, 4 * FEW)


@pytest.mark.long
def test_every_case_compiles_and_has_a_name_of_its_own(tmp_path: Path) -> None:
    cases = cases_for(EXACT)
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        assert len(prepared(case, tmp_path, 0).model.places) == 1


def mock(tmp_path: Path, change: str = "") -> str:
    """A setting with a command that computes a case exactly, and then changes what it found."""
    (tmp_path / "engine.py").write_text(ENGINE.replace("CHANGE", change))
    return f"command:{sys.executable} {tmp_path / 'engine.py'}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ("", "exact"),
        ("found[..., 0] ^= 1", "within one"),
        ("found[..., 0] ^= 4", "wrong"),
        ("sys.exit(3)", "refused"),
        ("found = found * 1.5", "refused"),
    ],
)
def test_verdicts_on_a_mock_engine(change: str, verdict: str, tmp_path: Path) -> None:
    found = statement([setting(mock(tmp_path, change))], ["PRELU"])
    (engine,) = found["engines"]
    assert {row["verdict"] for row in engine["cases"]} == {verdict}
    assert engine["counts"][verdict] == len(engine["cases"]) > 1
    page = markdown(found)
    assert f"| PRELU | int8 | 1 {verdict}" in page
    if verdict == "refused":
        assert ("the command ended with 3" if "exit" in change else "float64, not of codes") in page


@pytest.mark.slow
def test_a_case_that_ends_the_process_is_crashed_and_the_others_are_not(tmp_path: Path) -> None:
    from dataclasses import replace

    patch = (
        "import os, subprocess\nreal = subprocess.run\n"
        "def run(words, *rest, **more):\n"
        "    if any('case-2.' in str(word) for word in words):\n        os._exit(9)\n"
        "    return real(words, *rest, **more)\nsubprocess.run = run\n"
    )
    (tmp_path / "sitecustomize.py").write_text(patch)
    found = replace(setting(mock(tmp_path)), environment=(("PYTHONPATH", str(tmp_path)),))
    (engine,) = statement([found], ["RESIZE_NEAREST_NEIGHBOR"])["engines"]
    assert [row["verdict"] for row in engine["cases"]] == ["exact"] * 2 + ["crashed"] + ["exact"] * 3


def test_an_unknown_operator_is_named() -> None:
    with pytest.raises(Invalid, match=r"conformance\.op") as caught:
        cases_for(EXACT, ["Convolution"])
    assert "QLinearConv" in caught.value.message


@pytest.mark.slow
@pytest.mark.parametrize(("name", "op"), [("onnxruntime", "MatMulInteger"), ("openvino", "Relu"), ("litert", "PRELU")])
def test_real_engines_run_cases(name: str, op: str) -> None:
    pytest.importorskip({"litert": "ai_edge_litert"}.get(name, name))
    (engine,) = statement([setting(name)], [op])["engines"]
    assert engine["package"]
    assert engine["counts"]["exact"] + engine["counts"]["within one"] > 0


def test_a_missing_package_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with pytest.raises(Unsupported, match=r"flatbuffers: pip install 'cvm\[engines\]'") as refused:
        cases_for(EXACT)
    assert refused.value.code == "compare.extra"
