"""Calibration of graphs: who gets a quantiser, who shares it, at which scale, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cvm
from cvm.calibration import Calibration, Settings, calibrate, plan
from cvm.calibration.codes import with_codes
from cvm.errors import CvmError, Invalid
from cvm.frontends import nnef
from cvm.graph import GraphTensor, QuantizedGraph, TensorData
from cvm.lowering import lower
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer
from cvm.reference import Reference
from cvm.session import Session

ROOT = Path(__file__).resolve().parents[2]
RANDOM = np.random.default_rng(7)


def written(folder: Path, body: str, outputs: str, stored: dict[str, np.ndarray], inputs: str = "x") -> Path:
    """A model with float weights in a folder."""
    folder.mkdir(exist_ok=True)
    lines = "\n".join(f"    {line.strip()};" for line in body.strip().split(";") if line.strip())
    (folder / "graph.nnef").write_text(f"version 1.0;\ngraph net({inputs}) -> ({outputs})\n{{\n{lines}\n}}\n")
    for label, items in stored.items():
        (folder / f"{label}.dat").write_bytes(nnef.write_tensor(np.asarray(items, np.float32)))
    return folder


CONV = """
    x = external(shape = [1, 2, 4, 4]);
    w = variable(shape = [3, 2, 3, 3], label = 'w'); b = variable(shape = [1, 3], label = 'b');
    mean = variable(shape = [1, 3], label = 'mean'); variance = variable(shape = [1, 3], label = 'variance');
    offset = variable(shape = [1, 3], label = 'offset'); scale = variable(shape = [1, 3], label = 'scale');
    c = conv(x, w, b, padding = [(1, 1), (1, 1)]);
    n = batch_normalization(c, mean, variance, offset, scale, epsilon = 0.001);
    r = relu(n); p = max_pool(r, size = [1, 1, 2, 2], stride = [1, 1, 2, 2], border = 'ignore', padding = []);
    y = reshape(p, shape = [1, -1])
"""

WEIGHTS = {
    "w": RANDOM.normal(size=(3, 2, 3, 3)),
    "b": RANDOM.normal(size=(1, 3)),
    "mean": RANDOM.normal(size=(1, 3)),
    "variance": RANDOM.uniform(0.5, 2.0, (1, 3)),
    "offset": RANDOM.normal(size=(1, 3)),
    "scale": RANDOM.uniform(0.5, 2.0, (1, 3)),
}

IMAGES = RANDOM.normal(size=(20, 2, 4, 4)) * 3.0 - 1.0


@pytest.fixture
def conv(tmp_path: Path) -> QuantizedGraph:
    return nnef.load(written(tmp_path / "conv", CONV, "y", WEIGHTS))


def linear(found: Calibration, name: str) -> LinearQuantizer:
    quantizer = found.quantizers[name]
    assert isinstance(quantizer, LinearQuantizer)
    return quantizer


# Who gets a quantiser


def test_a_convolution_goes_into_its_normalisation_unrounded(conv: QuantizedGraph) -> None:
    found = calibrate(conv, {"x": IMAGES})
    assert set(conv.tensors) - set(found.quantizers) == {"c"}
    assert "c" in calibrate(conv, {"x": IMAGES}, Settings(bits=10)).quantizers
    roles = {item.name: item.role for item in found.tensors}
    assert roles == dict.fromkeys(("x", "n", "r", "p", "y"), "activation") | {"w": "filter", "b": "bias"} | (
        dict.fromkeys(("mean", "variance", "offset", "scale"), "parameter")
    )


def test_what_is_only_clipped_or_moved_has_the_quantiser_of_what_is_left(conv: QuantizedGraph) -> None:
    found = calibrate(conv, {"x": IMAGES})
    assert len({found.quantizers[name] for name in ("n", "r", "p", "y")}) == 1
    assert linear(found, "n").offset == (0,)


def test_what_is_clipped_and_read_elsewhere_keeps_its_range(tmp_path: Path) -> None:
    body = "x = external(shape = [1, 4]); n = neg(x); r = relu(n); y = add(r, n)"
    found = cvm.quantize(written(tmp_path / "m", body, "y", {}), {"x": np.array([[-3.0, 1.0, 2.0, 5.0]])})
    assert found.quantizers["n"] == found.quantizers["r"]
    assert linear(found, "n").offset[0] < -4


@pytest.mark.parametrize(
    "body",
    [
        "a = neg(x); b = exp(x); y = concat([a, b], axis = 1)",
        "a = neg(x); b = exp(x); y = max(a, b)",
        "a = neg(x); b = transpose(a, axes = [1, 0]); y = slice(b, axes = [0], begin = [0], end = [2])",
        "a = neg(x); [b, y] = split(a, axis = 1, ratios = [1, 1])",
        "a = neg(x); b = exp(x); c = a > b; y = select(c, a, b)",
        "a = neg(x); b = stack([a, a], axis = 0); y = max_reduce(b, axes = [0])",
        "a = neg(x); b = clamp(a, -1.0, 1.0); c = unsqueeze(b, axes = [0]); y = squeeze(c, axes = [0])",
    ],
)
def test_tensors_between_which_data_moves_share_a_quantiser(tmp_path: Path, body: str) -> None:
    folder = written(tmp_path / "m", f"x = external(shape = [1, 4]); {body}", "y", {})
    document = folder / "graph.nnef"
    document.write_text(document.read_text().replace(";", ";\nextension KHR_enable_operator_expressions;", 1))
    found = cvm.quantize(folder, {"x": RANDOM.normal(size=(9, 1, 4))})
    shared = {name for name, tensor in found.graph.tensors.items() if tensor.dtype == "scalar"} - {"x"}
    assert len({found.quantizers[name] for name in shared}) == 1
    assert set(found.quantizers) == shared | {"x"}


def test_functions_with_known_ranges_have_these(tmp_path: Path) -> None:
    body = "x = external(shape = [1, 4]); s = sigmoid(x); t = tanh(x); y = softmax(x)"
    found = cvm.quantize(written(tmp_path / "m", body, "s, t, y", {}), {"x": np.full((1, 4), 0.25)})
    assert found.quantizers["s"] == found.quantizers["y"]
    for name, low in (("s", 0), ("t", -1)):
        quantizer = linear(found, name)
        assert quantizer.offset[0] == pytest.approx(low, abs=0.004)
        assert quantizer.offset[0] + 255 * quantizer.scale[0] == pytest.approx(1, abs=0.004)


def test_state_its_new_value_and_the_variable_share_a_quantiser(tmp_path: Path) -> None:
    body = "x = external(shape = [1, 2]); h = variable(shape = [1, 2], label = 'h'); n = add(h, x); y = update(h, n)"
    folder = written(tmp_path / "m", body, "y", {"h": np.array([[-100.0, 0.0]])})
    found = cvm.quantize(folder, {"x": np.ones((3, 5, 1, 2))}, cycles=True)
    assert len({found.quantizers[name] for name in ("h", "n", "y")}) == 1
    entry = next(item for item in found.tensors if item.name == "h")
    assert (entry.role, entry.min, entry.max) == ("activation", -100.0, 5.0)
    session = Session(lower(found.graph), executor="numpy")
    real = session.run({"x": np.ones((5, 1, 2))}, cycles=True).real("y")
    # Five sums, each rounded to a multiple of the scale.
    assert real[-1, 0] == pytest.approx([-95.0, 5.0], abs=5 * float(linear(found, "h").scale[0]) / 2)


def test_stored_outputs_and_moved_stored_outputs_have_quantisers(tmp_path: Path) -> None:
    body = """x = external(shape = [1, 2]); w = variable(shape = [2, 2], label = 'w'); t = transpose(w, axes = [1, 0]);
        k = constant(shape = [1], value = [0.5]); u = variable(shape = [1, 2], label = 'u'); y = neg(x)"""
    stored = {"w": RANDOM.normal(size=(2, 2)), "u": np.ones((1, 2))}
    found = cvm.quantize(written(tmp_path / "m", body, "y, t, k", stored), {"x": np.ones((1, 2))})
    assert set(found.quantizers) == {"x", "w", "t", "k", "u", "y"}
    assert {output.name for output in lower(found.graph).outputs} == {"y", "t", "k"}


def test_variables_with_one_label_share_a_quantiser(tmp_path: Path) -> None:
    body = """x = external(shape = [1, 2]); v = variable(shape = [2, 2], label = 'w');
        w = variable(shape = [2, 2], label = 'w'); a = linear(x, v); y = linear(a, w)"""
    found = cvm.quantize(
        written(tmp_path / "m", body, "y", {"w": RANDOM.normal(size=(2, 2))}), {"x": np.ones((1, 2))}, per_channel=True
    )
    assert found.quantizers["v"] == found.quantizers["w"]
    assert linear(found, "w").per_tensor


def test_every_tensor_is_once_in_the_plan(conv: QuantizedGraph) -> None:
    for accumulates in (False, True):
        what = plan(conv, accumulates)
        parts = [part.tensors for part in (*what.groups, *what.filters, *what.biases, *what.parameters)]
        names = [name for part in parts for name in part]
        assert sorted(names) == sorted(set(conv.tensors) - ({"c"} if accumulates else set()))


def test_the_bits_of_each_role(conv: QuantizedGraph) -> None:
    found = calibrate(conv, {"x": IMAGES}, Settings(bits=6, weight_bits=3, form="zero-point"))
    codes = {"activation": (-32, 31), "filter": (-3, 3), "bias": (-(2**31) + 1, 2**31 - 1)}
    codes["parameter"] = (-(2**15), 2**15 - 1)
    assert {(item.role, (item.quantizer.lo, item.quantizer.hi)) for item in found.tensors} == set(codes.items())


# Scales


@pytest.mark.parametrize("form", ["linear", "zero-point"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_biases_are_in_units_of_the_accumulator(conv: QuantizedGraph, form: str, per_channel: bool) -> None:
    found = calibrate(conv, {"x": IMAGES}, Settings(form=form, per_channel=per_channel))
    step = linear(found, "x").scale[0]
    weights, bias = linear(found, "w"), linear(found, "b")
    assert bias.scale == tuple(step * scale for scale in weights.scale)
    assert (weights.axis, bias.axis) == ((0, 1) if per_channel else (None, None))
    assert len(weights.scale) == (3 if per_channel else 1)
    assert all((offset / scale).denominator == 1 for offset, scale in zip(bias.offset, bias.scale, strict=True))


def test_a_bias_of_powers_of_two_is_in_units_of_the_least(conv: QuantizedGraph) -> None:
    found = calibrate(conv, {"x": IMAGES}, Settings(form="logarithmic"))
    weights = found.quantizers["w"]
    assert isinstance(weights, LogarithmicQuantizer)
    assert weights.bits == 4
    assert linear(found, "b").scale == (linear(found, "x").scale[0] * weights.value(1),)


def test_a_bias_added_to_a_product_is_one_as_well(tmp_path: Path) -> None:
    body = """x = external(shape = [1, 3]); w = variable(shape = [4, 3], label = 'w');
        b = variable(shape = [1, 4], label = 'b'); m = matmul(x, w, transposeB = true); y = add(m, b)"""
    stored = {"w": RANDOM.normal(size=(4, 3)), "b": RANDOM.normal(size=(1, 4))}
    found = cvm.quantize(written(tmp_path / "m", body, "y", stored), {"x": np.ones((1, 3))}, per_channel=True)
    assert "m" not in found.quantizers
    assert linear(found, "w").axis == 0
    assert linear(found, "b").scale == tuple(linear(found, "x").scale[0] * scale for scale in linear(found, "w").scale)


def test_the_channels_of_a_filter_are_followed_through_transposition(tmp_path: Path) -> None:
    body = """x = external(shape = [1, 2, 4, 4]); w = variable(shape = [5, 3, 3, 2], label = 'w');
        t = transpose(w, axes = [0, 3, 1, 2]); y = conv(x, t, 0.0)"""
    stored = {"w": RANDOM.normal(size=(5, 3, 3, 2))}
    found = cvm.quantize(written(tmp_path / "m", body, "y", stored), {"x": IMAGES}, per_channel=True)
    assert (linear(found, "w").axis, len(linear(found, "w").scale)) == (0, 5)
    assert "t" not in found.quantizers
    assert found.text.count("[") == 2
    lower(found.graph)


def test_a_bias_too_large_for_its_unit_has_a_multiple_of_it(tmp_path: Path) -> None:
    body = """x = external(shape = [1, 1]); w = variable(shape = [1, 1], label = 'w');
        b = variable(shape = [1, 1], label = 'b'); y = linear(x, w, b)"""
    stored = {"w": np.array([[1e-7]]), "b": np.array([[1e6]])}
    found = cvm.quantize(written(tmp_path / "m", body, "y", stored), {"x": np.ones((1, 1))})
    ratio = linear(found, "b").scale[0] / (linear(found, "x").scale[0] * linear(found, "w").scale[0])
    assert ratio.denominator == 1
    assert ratio.numerator.bit_count() == 1
    assert ratio > 1
    real = Session(lower(found.graph), executor="numpy").run({"x": np.ones((1, 1))}).real("y")
    assert real.item() == pytest.approx(1e6, rel=0.002)


def test_zero_is_a_code_of_what_is_padded_though_data_never_has_it(tmp_path: Path) -> None:
    body = "x = external(shape = [1, 1, 4]); y = avg_pool(x, size = [1, 1, 3], border = '{}', padding = [])"
    for border, contained in (("constant", True), ("ignore", False)):
        folder = written(tmp_path / border, body.format(border), "y", {})
        quantizer = linear(cvm.quantize(folder, {"x": np.full((1, 1, 4), 7.0) + np.arange(4)}), "x")
        zero = -quantizer.offset[0] / quantizer.scale[0]
        assert zero.denominator == 1
        assert (quantizer.lo <= zero <= quantizer.hi) == contained


def test_what_something_is_divided_by_never_is_zero(tmp_path: Path) -> None:
    body = "x = external(shape = [1, 2]); a = exp(x); y = div(1.0, a); z = neg(a)"
    items = {"x": np.array([[-9.0, 2.0]])}
    for outputs, nonzero in (("y, z", True), ("z", False)):
        text = body if nonzero else body.replace("y = div(1.0, a);", "")
        found = cvm.quantize(written(tmp_path / outputs, text, outputs, {}), items)
        assert (linear(found, "a").offset[0] > 0) == nonzero
        lower(found.graph)


def test_a_variance_never_is_zero(tmp_path: Path) -> None:
    body = """x = external(shape = [1, 2]); v = variable(shape = [1, 2], label = 'v');
        y = batch_normalization(x, 0.0, v, 0.0, 1.0, epsilon = 0.0)"""
    folder = written(tmp_path / "m", body, "y", {"v": np.array([[1e-7, 100.0]])})
    found = cvm.quantize(folder, {"x": np.array([[-1.0, 1.0]])})
    assert linear(found, "v").offset[0] > 0
    lower(found.graph)


def test_coordinates_have_scales_that_are_powers_of_two(tmp_path: Path) -> None:
    body = """x = external(shape = [1, 1, 4, 4]); r = external(shape = [2, 4]); i = external<integer>(shape = [2, 1]);
        y = avg_roi_align(x, r, i, output_size = [2, 2], sampling_rate = [1, 1])"""
    data = {"x": IMAGES[:, :1], "r": RANDOM.uniform(0.3, 3.7, (20, 2, 4)), "i": np.zeros((20, 2, 1), np.int64)}
    found = cvm.quantize(written(tmp_path / "m", body, "y", {}, "x, r, i"), data)
    (scale,), (offset,) = linear(found, "r").scale, linear(found, "r").offset
    assert scale == Fraction(1, 64)
    assert offset == 0
    lower(found.graph)


def test_all_zero_channels_have_the_scale_of_the_largest(conv: QuantizedGraph, tmp_path: Path) -> None:
    weights = WEIGHTS["w"].copy()
    weights[1] = 0.0
    folder = written(tmp_path / "m", CONV, "y", WEIGHTS | {"w": weights})
    found = cvm.quantize(folder, {"x": IMAGES}, per_channel=True)
    scales = linear(found, "w").scale
    assert scales[1] == max(scales)
    lower(found.graph)


# Data


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse", "entropy"])
@pytest.mark.parametrize(
    "items",
    [
        np.zeros((1, 2, 4, 4)),
        np.full((1, 2, 4, 4), 3.0),
        np.full((1, 2, 4, 4), -3.0),
        -1.0 - np.abs(IMAGES[:1]),
        IMAGES[:1] * 1e12,
        IMAGES[:1] * 1e-12,
    ],
    ids=["zero", "constant", "negative constant", "negative", "huge", "tiny"],
)
def test_odd_data_gives_programs_that_run(conv: QuantizedGraph, items: np.ndarray, method: str) -> None:
    found = calibrate(conv, {"x": items}, Settings(method=method))
    real = Session(lower(found.graph), executor="numpy").run({"x": items}).real("y")
    exact = Reference(conv).run({"x": items})["y"]
    assert real.shape == exact.shape
    if method == "minmax":
        assert np.abs(real - exact).max() <= 0.03 * np.abs(exact).max()
    else:
        assert np.abs(real).max() <= 1.01 * np.abs(exact).max()


def test_what_is_no_real_number_is_refused_by_name(conv: QuantizedGraph, tmp_path: Path) -> None:
    for item in (np.nan, np.inf):
        items = IMAGES.copy()
        items[3, 0, 1, 2] = item
        with pytest.raises(Invalid) as caught:
            calibrate(conv, {"x": items})
        assert caught.value.code == "input.real"
        assert caught.value.location.tensor == "x"
    folder = written(tmp_path / "m", "x = external(shape = [1, 2]); l = log(x); y = neg(l)", "y", {})
    with pytest.raises(Invalid) as caught:
        cvm.quantize(folder, {"x": np.array([[1.0, 0.0]])})
    assert (caught.value.code, caught.value.location.tensor) == ("calibration.real", "l")
    assert str(folder) in str(caught.value)


def test_weights_that_are_no_real_numbers_are_refused(conv: QuantizedGraph, tmp_path: Path) -> None:
    weights = WEIGHTS["w"].astype(np.float32)
    weights[0, 0, 0, 0] = np.nan
    with pytest.raises(CvmError) as caught:
        cvm.quantize(written(tmp_path / "m", CONV, "y", WEIGHTS | {"w": weights}), {"x": IMAGES})
    assert caught.value.code == "nnef.tensor-file.finite"
    broken = replace(conv.tensors["b"], data=TensorData(np.array([[1.0, np.inf, 0.0]])))
    graph = replace(conv, tensors=MappingProxyType({**conv.tensors, "b": broken}))
    with pytest.raises(Invalid) as caught:
        calibrate(graph, {"x": IMAGES})
    assert caught.value.code == "calibration.real"


def test_a_model_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        cvm.quantize(written(tmp_path / "m", CONV, "y", {}), {"x": IMAGES})
    assert caught.value.code == "reference.data"


def test_integers_are_codes_of_the_quantiser_that_an_input_has_already(tmp_path: Path) -> None:
    folder = written(tmp_path / "m", "x = external(shape = [1, 2]); y = neg(x)", "y", {})
    codes, reals = np.array([[0, 255]]), np.array([[-2.0, 2.0]])
    plain = cvm.quantize(folder, {"x": codes})
    assert next(item for item in plain.tensors if item.name == "x").max == 255.0
    (folder / "graph.quant").write_text('"x": linear_quantize(min = -2.0, max = 2.0, bits = 8);')
    assert cvm.quantize(folder, {"x": codes}, codes=True).text == cvm.quantize(folder, {"x": reals}, codes=True).text


@pytest.mark.parametrize(
    ("choice", "code"),
    [
        ({"bits": 1}, "bits"),
        ({"bits": 17}, "bits"),
        ({"weight_bits": 0}, "bits"),
        ({"method": "guess"}, "method"),
        ({"form": "cubic"}, "form"),
        ({"percentile": 0.0}, "percentile"),
        ({"percentile": float("nan")}, "percentile"),
        ({"form": "logarithmic", "per_channel": True}, "per-channel"),
    ],
)
def test_impossible_choices_are_refused(choice: dict, code: str) -> None:
    with pytest.raises(Invalid) as caught:
        Settings(**choice)
    assert caught.value.code == f"calibration.{code}"


# What is written


FORMS = [
    {"form": "linear"},
    {"form": "linear", "per_channel": True, "weight_bits": 4},
    {"form": "zero-point", "per_channel": True, "bits": 6},
    {"form": "zero-point"},
    {"form": "logarithmic"},
    {"form": "logarithmic", "weight_bits": 3, "bits": 10},
]


@pytest.mark.parametrize("choice", FORMS, ids=str)
def test_the_file_is_read_back_as_the_same_quantisers(tmp_path: Path, choice: dict) -> None:
    folder = written(tmp_path / "m", CONV, "y", WEIGHTS)
    found = cvm.quantize(folder, {"x": IMAGES}, **choice)
    (folder / "graph.quant").write_text(found.text)
    read = nnef.load(folder)
    assert {name: t.quantizer for name, t in read.tensors.items() if t.quantizer} == dict(found.quantizers)
    assert nnef.check(folder).valid


@pytest.mark.parametrize("choice", FORMS, ids=str)
@pytest.mark.parametrize("target", ["quantised", "quantised.tgz"])
def test_the_model_with_codes_is_the_same_program(tmp_path: Path, choice: dict, target: str) -> None:
    folder = written(tmp_path / "m", CONV, "y", WEIGHTS)
    found = cvm.quantize(folder, {"x": IMAGES}, **choice)
    found.save(tmp_path / target)
    (folder / "graph.quant").write_text(found.text)
    assert cvm.compile(tmp_path / target).digest == cvm.compile(folder).digest
    again = cvm.quantize(tmp_path / target, {"x": IMAGES}, **choice)
    assert {item.name for item in again.tensors} == {item.name for item in found.tensors}


def test_stored_codes_of_another_quantiser_are_rounded_once(tmp_path: Path) -> None:
    folder = written(tmp_path / "m", CONV, "y", WEIGHTS)
    cvm.quantize(folder, {"x": IMAGES}, form="zero-point", per_channel=True).save(tmp_path / "first")
    again = cvm.quantize(tmp_path / "first", {"x": IMAGES}, bits=5, form="linear")
    again.save(tmp_path / "second")
    (tmp_path / "again.quant").write_text(again.text)
    decoded = nnef.load(tmp_path / "first").tensors["w"].data
    assert decoded is not None
    assert isinstance(decoded.quantizer, LinearQuantizer)
    new = linear(again, "w")
    second = nnef.load(tmp_path / "second").tensors["w"].data
    assert second is not None
    for index in np.ndindex(decoded.values.shape):
        exact = decoded.quantizer.scale[index[0]] * int(decoded.values[index])
        steps = (exact - new.offset[0]) / new.scale[0] + Fraction(1, 2)
        assert int(second.values[index]) == min(max(steps.__floor__(), new.lo), new.hi)


_SCRIPT = """
import sys, numpy as np, cvm
x = np.random.default_rng(3).normal(size=(50, 2, 4, 4))
for method in ("minmax", "percentile", "mse", "entropy"):
    print(cvm.quantize(sys.argv[1], {"x": x}, method=method, per_channel=True).text)
"""


def test_the_same_data_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = written(tmp_path / "m", CONV, "y", WEIGHTS)
    texts = set()
    for seed, threads in (("0", "1"), ("1", "2"), ("12345", "1")):
        environment = os.environ | {"PYTHONHASHSEED": seed, "OPENBLAS_NUM_THREADS": threads, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", _SCRIPT, str(folder)]
        texts.add(subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, check=True).stdout)
    assert len(texts) == 1
    assert texts.pop().count(b'"w": zero_point_linear_quantize') == 4


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(range(12)))
def test_the_order_of_data_does_not_matter(order: list[int]) -> None:
    with TemporaryDirectory() as folder:
        graph = nnef.load(written(Path(folder) / "m", CONV, "y", WEIGHTS))
    text = calibrate(graph, {"x": IMAGES[:12]}, Settings(method="mse")).text
    assert calibrate(graph, {"x": IMAGES[list(order)]}, Settings(method="mse")).text == text


# Whether it is any good


@pytest.mark.parametrize("bits", range(2, 13))
def test_the_error_of_a_program_is_that_of_its_bits(conv: QuantizedGraph, bits: int) -> None:
    assert error(conv, bits) < 4 * 2.0 ** -min(bits, 8)


@pytest.mark.long
@pytest.mark.parametrize("bits", range(13, 17))
def test_the_error_of_a_program_is_that_of_its_many_bits(conv: QuantizedGraph, bits: int) -> None:
    assert error(conv, bits) < 2.0**-7


def error(graph: QuantizedGraph, bits: int) -> float:
    """The root of the mean squared error, relative to the root of the mean square."""
    found = calibrate(graph, {"x": IMAGES}, Settings(bits=bits))
    real = Session(lower(found.graph), executor="numpy").run({"x": IMAGES}).real("y")
    exact = Reference(graph).run({"x": IMAGES})["y"]
    return float(np.sqrt(np.square(real.reshape(exact.shape) - exact).mean() / np.square(exact).mean()))


def test_codes_are_stored_as_wide_as_the_least_and_the_greatest_take() -> None:
    """Codes from -129 to 127 take 16 bits, though the greatest takes 8."""
    quantizer = LinearQuantizer((Fraction(1),), (Fraction(0),), -129, 127)
    items = TensorData(np.array([-129.0, 127.0]))
    stored = GraphTensor("w", (2,), "variable", quantizer=quantizer, data=items)
    graph = with_codes(QuantizedGraph("net", (), (), {"w": stored}, ()))
    data = graph.tensors["w"].data
    assert data is not None
    assert data.values.tolist() == [-129, 127]
