"""Rounding models of float32 arithmetic, beside the same steps with rational numbers, one element after the other."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import product
from math import floor, frexp
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.comparison import setting
from cvm.comparison.arithmetic import fused_multiply_add
from cvm.comparison.model import in_file
from cvm.comparison.models import MODELS
from cvm.comparison.numbers import Numbers
from cvm.comparison.regions import Region, Regions
from cvm.conformance import Case, statement
from cvm.conformance.cases import Layer, Tensor
from cvm.conformance.onnx_cases import onnx_cases
from cvm.conformance.running import prepared
from cvm.conformance.tflite_cases import tflite_cases

Array = npt.NDArray[Any]
Step = Callable[[Layer, tuple[int, ...]], Fraction]
FEW = 60
"""How many elements of a case are computed."""
HALF = Fraction(1, 2)


def single(x: Fraction) -> Fraction:
    """The nearest float32 number, ties to even."""
    if x == 0:
        return x
    exponent = frexp(float(x))[1]  # 2^(exponent - 1) <= |x| <= 2^exponent, if float rounded up
    unit = Fraction(2) ** max(exponent - 24, -149)
    return round(x / unit) * unit


def scale(tensor: Tensor, channel: int = 0) -> Fraction:
    return Fraction(float(np.float32(tensor.scales[channel if len(tensor.scales) > 1 else 0])))


def real(tensor: Tensor, index: tuple[int, ...], channel: int = 0) -> Fraction:
    """A dequantised element in float32."""
    return single((int(tensor.values[index]) - tensor.zero) * scale(tensor, channel))


def step(layer: Layer) -> Fraction:
    return Fraction(float(np.float32(layer.scale)))


def divided(layer: Layer, value: Fraction) -> Fraction:
    return Fraction(round(single(value / step(layer))) + layer.zero)


def transposed(layer: Layer, index: tuple[int, ...]) -> Fraction:
    """ConvTranspose: fused products over channels, these sums over the kernel, then the bias."""
    x, weights, bias = layer.inputs
    _, channel, *place = index
    groups, pads = layer.attributes.get("group", 1), layer.attributes.get("pads", [0, 0, 0, 0])
    results, depth = weights.values.shape[1], weights.values.shape[0] // groups
    group, inner = divmod(channel, results)
    total = Fraction(0)
    for kernel in product(*map(range, weights.values.shape[2:])):
        at = [divmod(place[n] + pads[n] - kernel[n], layer.attributes["strides"][n]) for n in (0, 1)]
        row, column = at[0][0], at[1][0]
        if at[0][1] or at[1][1] or not (0 <= row < x.values.shape[2] and 0 <= column < x.values.shape[3]):
            continue
        part = Fraction(0)
        for below in range(group * depth, (group + 1) * depth):
            part = single(real(x, (0, below, row, column)) * real(weights, (below, inner, *kernel), inner) + part)
        total = single(total + part)
    return divided(layer, single(total + real(bias, (channel,), inner)))


def resized(layer: Layer, index: tuple[int, ...]) -> Fraction:
    """Resize by 2, linear: the coordinates in float32, and four products of weights and neighbours, one by one."""
    (x, *_), mode = layer.inputs, layer.attributes.get("coordinate_transformation_mode", "half_pixel")
    sides = []
    for axis in (2, 3):
        size, place = x.values.shape[axis], Fraction(index[axis])
        if mode == "align_corners":
            where = single(place * (size - 1) / (2 * size - 1))
        else:
            where = place / 2 if mode == "asymmetric" else (place + HALF) / 2 - HALF
        where = min(max(where, Fraction(0)), Fraction(size - 1))
        low, high = floor(where), min(floor(where) + 1, size - 1)
        below, above = (HALF, HALF) if low == high else (single(high - where), single(where - low))
        sides.append(((low, below), (high, above)))
    total = Fraction(0)
    for (row, height), (column, width) in product(*sides):
        weighted = single(single(width * height) * real(x, (*index[:2], row, column)))
        total = single(total + weighted)
    return divided(layer, total)


def averaged(layer: Layer, index: tuple[int, ...]) -> Fraction:
    """AveragePool: numbers added row by row, divided by their count."""
    (x,), (kernel, pads) = layer.inputs, (layer.attributes["kernel_shape"], layer.attributes.get("pads", [0] * 4))
    strides, total, count = layer.attributes.get("strides", [1, 1]), Fraction(0), 0
    for within in product(*map(range, kernel)):
        place = [index[2 + n] * strides[n] - pads[n] + within[n] for n in (0, 1)]
        if all(0 <= place[n] < x.values.shape[2 + n] for n in (0, 1)):
            total, count = single(total + real(x, (*index[:2], *place))), count + 1
    return divided(layer, single(total / (count if not layer.attributes.get("count_include_pad") else 9)))


def subtracted(layer: Layer, index: tuple[int, ...]) -> Fraction:
    a, b = (real(item, _fitted(item, index)) for item in layer.inputs)
    return divided(layer, single(a - b))


def multiplied(layer: Layer, index: tuple[int, ...]) -> Fraction:
    """QLinearMul: the product of codes times a ratio of scales, the zero point in float32."""
    a, b = layer.inputs
    codes = [int(item.values[_fitted(item, index)]) - item.zero for item in (a, b)]
    ratio = single(single(scale(a) * scale(b)) / step(layer))
    return Fraction(round(single(single(codes[0] * codes[1] * ratio) + layer.zero)))


def requantised(layer: Layer, index: tuple[int, ...]) -> Fraction:
    """A product of matrices whose data is quantised to 8 bits once more, by blocks of 32."""
    x, weights = layer.inputs
    row, column = index
    total = Fraction(0)
    for first in range(0, x.values.shape[1], 32):
        block = [real(x, (row, k)) for k in range(first, min(first + 32, x.values.shape[1]))]
        most = max(map(abs, block))
        inverse = single(127 / most)
        integers = [round(single(item * inverse)) for item in block]
        found = sum(a * (int(weights.values[first + k, column]) - weights.zero) for k, a in enumerate(integers))
        total = single(total + single(found * single(single(most / 127) * scale(weights, column))))
    return divided(layer, total)


def leaky(layer: Layer, index: tuple[int, ...]) -> Fraction:
    """XNNPACK: a multiplier of 8 fractional bits for each sign, one rounding upward."""
    (x,) = layer.inputs
    code = int(x.values[index]) - x.zero
    slope = Fraction(float(np.float32(layer.attributes["Alpha"]))) if code < 0 else 1
    multiplier = round(256 * single(scale(x) / step(layer) * slope))
    return Fraction(floor(Fraction(code * multiplier, 256) + HALF) + layer.zero)


def _fitted(tensor: Tensor, index: tuple[int, ...]) -> tuple[int, ...]:
    shape = tensor.values.shape
    return tuple(n % extent for n, extent in zip(index[len(index) - len(shape) :], shape, strict=True))


CHECKED: tuple[tuple[str, str, str, Step], ...] = (
    (
        "ConvTranspose",
        "int8 x int8, strides, near ties",
        "float32 products by fused multiply-adds, channels",
        transposed,
    ),
    ("ConvTranspose", "uint8 x uint8, padding, near ties", "float32 products by fused multiply-adds", transposed),
    ("ConvTranspose", "int8, per channel, two groups, near", "float32 products by fused multiply-adds", transposed),
    ("Resize", "int8, linear, align_corners, by 2, near ties", "float32 sum of four neighbours", resized),
    ("Resize", "uint8, linear, asymmetric, by 2, near ties", "float32 sum of four neighbours", resized),
    ("AveragePool", "int8, 3 x 3, padding, near ties", "float32 average of the window, row by row", averaged),
    ("AveragePool", "int16, 3 x 3, padding counts, near", "float32 average of the window, row by row", averaged),
    ("Sub", "int8, near ties", "float32 operands, result by division", subtracted),
    ("Mul", "uint8, near ties", "product of codes times a float32 ratio", multiplied),
    ("MatMul", "int16 x int8, per channel, near ties", "data quantised to 8 bits once more", requantised),
    ("LEAKY_RELU", "int8, zero points at the upper ends", "multiplier of 8 fractional bits", leaky),
)


@cache
def cases() -> dict[str, Case]:
    pytest.importorskip("onnx")
    pytest.importorskip("tflite")
    return {case.name: case for made in (onnx_cases, tflite_cases) for case in made()}


def described(op: str, words: str) -> Case:
    return next(case for name, case in cases().items() if name.startswith(f"{op} (") and words in name)


def opened_at(case: Case, folder: Path) -> tuple[Region, Numbers, Regions, Array]:
    """The region of a case, its numbers, and its exact codes."""
    found = prepared(case, folder, 0)
    regions, (feed,) = Regions(found.model), found.samples.feeds
    (place,) = found.model.places
    exact = {place.name: found.model.exact(feed)[place.name].astype(np.int64)}
    region = regions.regions[place.name]
    return region, Numbers(region, regions.values(feed, exact), regions), regions, exact[place.name]


def computed(op: str, words: str, model: str, folder: Path) -> tuple[Case, Array, Array]:
    """A case, the codes of a model in the layout of the file, and the exact ones."""
    case = described(op, words)
    region, numbers, regions, exact = opened_at(case, folder)
    each = next(item for item in MODELS[region.kind] if item.name.startswith(model))
    codes = in_file(regions.carried(region, each.stages(numbers)[-1][1]), region.place).reshape(exact.shape)
    return case, codes, exact


@pytest.mark.parametrize(
    ("op", "words", "model", "by_hand"), CHECKED, ids=lambda item: getattr(item, "__name__", str(item)[:40])
)
def test_a_model_takes_the_steps_that_it_names(op: str, words: str, model: str, by_hand: Step, tmp_path: Path) -> None:
    case, codes, exact = computed(op, words, model, tmp_path)
    lo, hi = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}[case.layer.data_type]
    places = list(map(tuple, np.argwhere(codes != exact).tolist()))
    assert places, "a case without differences says little"
    others = [tuple(map(int, np.unravel_index(n, codes.shape))) for n in range(0, codes.size, codes.size // 20)]
    for index in [*places[:FEW], *others]:
        assert codes[index] == min(max(by_hand(case.layer, index), lo), hi), index


def test_padding_that_counts_is_the_code_zero(tmp_path: Path) -> None:
    words = "int8, 3 x 3, padding counts, scales that are not powers of two"
    case, codes, exact = computed("AveragePool", words, "average with the code 0 as padding", tmp_path)
    assert (codes[:, :, 1:-1, 1:-1] == exact[:, :, 1:-1, 1:-1]).all()
    (x,) = case.layer.inputs
    corner = Fraction(int(x.values[0, 0, :2, :2].sum()), 9) - x.zero
    assert codes[0, 0, 0, 0] == round(corner * scale(x) / step(case.layer)) + case.layer.zero != exact[0, 0, 0, 0]


@pytest.mark.parametrize(
    ("op", "model"),
    [
        ("QUANTIZE", "quantiser on the operand's codes by a fused multiply-add, zero point left out"),
        ("FULLY_CONNECTED", "zero point of the data left out"),
        ("ADD", "codes in steps of the first operand, quantiser on them, zero points left out"),
    ],
)
def test_a_zero_point_that_is_left_out_moves_the_result_by_as_much(op: str, model: str, tmp_path: Path) -> None:
    case = described(op, "int8, tiny scales" if op != "FULLY_CONNECTED" else "int8 x int8, tiny scales")
    _, codes, exact = computed(op, case.name.partition("), ")[2], model, tmp_path)
    x = case.layer.inputs[0]
    if op == "FULLY_CONNECTED":
        weights = case.layer.inputs[1]
        moved = x.zero * (weights.values.astype(np.int64) - weights.zero).sum(axis=1)
        steps = [float(int(n) * scale(x) * scale(weights, c) / step(case.layer)) for c, n in enumerate(moved)]
        shift: Array = np.broadcast_to(np.array(steps), codes.shape)
    else:
        shift = np.full(
            codes.shape, float(sum(item.zero * scale(item) for item in case.layer.inputs) / step(case.layer))
        )
    inside = (np.abs(codes) < 120) & (np.abs(exact) < 120)
    assert inside.any()
    assert (np.abs(codes - exact - shift)[inside] <= 1).all()
    assert np.abs(shift).max() > 1


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**60), max_value=2.0**60)


@given(FLOATS, FLOATS, FLOATS)
def test_a_fused_multiply_add_is_rounded_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    found = fused_multiply_add(np.array([a], np.float32), np.array([b], np.float32), np.array([c], np.float32))
    assert Fraction(float(found[0])) == single(exact)


def test_a_fused_multiply_add_is_not_rounded_in_float64_first() -> None:
    a, b, c = (np.array([x], np.float32) for x in (1 + 2.0**-12, 1 + 2.0**-12, 2.0**-60))
    assert float(fused_multiply_add(a, b, c)[0]) == 1 + 2.0**-11 + 2.0**-23
    twice = np.asarray(np.float64(a) * np.float64(b) + np.float64(c)).astype(np.float32)
    assert float(twice[0]) == 1 + 2.0**-11


@pytest.mark.long
@pytest.mark.parametrize("op", ["ConvTranspose", "Resize", "AveragePool", "Sub", "Mul", "com.microsoft.QLinearMul"])
def test_the_models_give_all_codes_of_onnx_runtime(op: str) -> None:
    pytest.importorskip("onnxruntime")
    (engine,) = statement([setting("onnxruntime")], [op])["engines"]
    differing = [row for row in engine["cases"] if "differ" in row]
    assert differing
    assert [row for row in differing if row["explained"] < row["differ"] or row["astray"]] == []
