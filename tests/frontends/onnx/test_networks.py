"""ResNet-18, MobileNetV2 and LeNet with random weights, in both forms of ONNX, against exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest

from cvm.frontends import onnx as front
from cvm.lowering import lower
from cvm.program import Program
from cvm.session import Session
from tools.bench.networks import NETWORKS, Layer, Network, parameters
from tools.bench.onnx_models import onnx_model

CASES = [
    ("lenet", "qdq"), ("lenet", "qlinear"),
    pytest.param("resnet18", "qdq", marks=pytest.mark.long), ("resnet18", "qlinear"),
    ("mobilenet_v2", "qdq"), pytest.param("mobilenet_v2", "qlinear", marks=pytest.mark.long),
]  # fmt: skip
NEAR = 2.0**-20
"""Codes nearer to a tie than this are decided in rationals; the float64 estimates are nearer to the truth than that."""


def rounded(sums: list[Any], ratios: list[Any], zero: int, offset: Any = None) -> Any:
    """The codes of sum of sums times exact ratios (per channel, or one for all), plus an offset: half to even, cut."""
    shape = sums[0].shape

    def spread(items: Any) -> Any:
        return np.reshape(items, (1, -1) + (1,) * (len(shape) - 2))

    floats = [np.array([float(r) for r in ratio]) for ratio in ratios]
    estimate = sum(total * spread(ratio) for total, ratio in zip(sums, floats, strict=True))
    if offset is not None:
        estimate = estimate + spread(np.array([float(o) for o in offset]))
    codes = np.rint(estimate)
    for place in zip(*np.nonzero(np.abs(np.abs(estimate - np.floor(estimate)) - 0.5) < NEAR), strict=True):
        channel = place[1]
        parts = [int(total[place]) * ratio[channel % len(ratio)] for total, ratio in zip(sums, ratios, strict=True)]
        codes[place] = round(sum(parts, Fraction(0) if offset is None else offset[channel]))
    return np.clip(codes + zero, 0, 255).astype(np.int64)


def evaluated(network: Network, image: Any, form: str) -> dict[str, Any]:
    """The codes of every layer; sums of integers are below 2^53, and so exact in float64."""
    codes = {"x": image.astype(np.int64)}
    for layer in network.layers:
        sources = [(codes[name] - network.codes(name).zero).astype(np.float64) for name in layer.sources]
        codes[layer.name] = _layer(network, layer, sources, codes, form)
    return codes


def _windows(layer: Layer, plane: Any, fill: float) -> Any:
    p = layer.padding
    padded = np.pad(plane, ((0, 0), (0, 0), (p, p), (p, p)), constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(padded, (layer.kernel, layer.kernel), axis=(2, 3))
    return view[:, :, :: layer.stride, :: layer.stride]


def _layer(network: Network, layer: Layer, sources: list[Any], codes: dict[str, Any], form: str) -> Any:
    ratios = [network.codes(name).scale / layer.codes.scale for name in layer.sources]
    if layer.kind == "max_pool":
        return _windows(layer, codes[layer.sources[0]].astype(float), -1.0).max(axis=(4, 5)).astype(np.int64)
    if layer.kind == "add":
        return rounded(sources, [[ratio] for ratio in ratios], layer.codes.zero)
    if layer.kind == "mean":
        count = sources[0].shape[2] * sources[0].shape[3]
        return rounded([sources[0].sum(axis=(2, 3), keepdims=True)], [[ratios[0] / count]], layer.codes.zero)
    found = parameters(network, layer)
    scales = [Fraction(float(scale)) for scale in found.scales]
    weights = found.weights.astype(np.float64)
    if layer.kind == "dense":
        total = sources[0].reshape(1, -1) @ weights.T
    elif layer.groups == 1:
        total = np.tensordot(_windows(layer, sources[0], 0.0), weights, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
    else:
        assert weights.shape[1] == 1
        total = np.einsum("nchwij,cij->nchw", _windows(layer, sources[0], 0.0), weights[:, 0])
    source = network.codes(layer.sources[0]).scale
    stored = [Fraction(float(np.float32(float(source)) * np.float32(float(scale)))) for scale in scales]
    biases = stored if form == "qdq" else [source * scale for scale in scales]
    offset = [int(bias) * unit / layer.codes.scale for bias, unit in zip(found.bias, biases, strict=True)]
    return rounded([total], [[ratios[0] * scale for scale in scales]], layer.codes.zero, offset)


@cache
def compiled(name: str, form: Literal["qdq", "qlinear"]) -> Program:
    return lower(front.loads(onnx_model(NETWORKS[name](), form).SerializeToString()).graph)


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "form"), CASES)
def test_every_output_is_that_of_exact_arithmetic(name: str, form: Literal["qdq", "qlinear"]) -> None:
    network, program = NETWORKS[name](), compiled(name, form)
    assert all(item.bound == 0 for item in program.provenance.exactness)
    random = np.random.default_rng(3)
    session = Session(program)
    for _ in range(2):
        image = random.integers(0, 256, (1, *network.input))
        expected = evaluated(network, image, form)[network.layers[-1].name]
        np.testing.assert_array_equal(session.run({"x": image})["y"].ravel(), expected.ravel())


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize(("name", "form"), CASES)
def test_executors_agree_on_every_tensor(name: str, form: Literal["qdq", "qlinear"]) -> None:
    """FORMAL only on the small network: it takes minutes for a large one."""
    image = np.random.default_rng(4).integers(0, 256, (1, *NETWORKS[name]().input))
    executors = ("formal", "numpy", "native") if name == "lenet" else ("numpy", "native")
    first, *others = (Session(compiled(name, form), one).run({"x": image}, capture="all") for one in executors)
    for other in others:
        assert set(other) == set(first)
        for tensor in first:
            np.testing.assert_array_equal(first[tensor], other[tensor], tensor)
