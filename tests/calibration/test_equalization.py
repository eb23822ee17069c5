"""Equalisation: the function of the graph stays, bit for bit; what may not be changed is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from cvm.calibration import Settings
from cvm.calibration.equalization import equalized
from cvm.quantizing import decibels, quantize_completed
from cvm.reference import Reference
from tests.calibration.test_completion import FLOAT, IMAGE, ROWS, loaded, node
from tests.frontends.onnx.making import made

F32 = np.float32
RANDOM = np.random.default_rng(11)
START = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Every test draws the same numbers, whichever ran before it."""
    RANDOM.bit_generator.state = START


def uneven(*shape: int) -> np.ndarray:
    """Weights whose output channels differ by up to three orders of magnitude."""
    spread = 10.0 ** RANDOM.permutation(np.linspace(-1.5, 1.5, shape[0])).reshape(-1, *(1,) * (len(shape) - 1))
    return (RANDOM.normal(size=shape) * spread).astype(F32)


def two_convolutions(between: list[onnx.NodeProto], last: str = "r", **more: np.ndarray) -> onnx.ModelProto:
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1]),
        *between,
        node("Conv", f"{last} w2 b2", "y"),
    ]
    constants = {
        "w": uneven(4, 2, 3, 3), "b": RANDOM.normal(size=4).astype(F32),
        "w2": RANDOM.normal(size=(3, 4, 3, 3)).astype(F32), "b2": RANDOM.normal(size=3).astype(F32), **more,
    }  # fmt: skip
    return made(nodes, IMAGE, FLOAT, constants)


def dense() -> onnx.ModelProto:
    """Three dense layers: the middle one is the second of one pair and the first of the next."""
    nodes = [
        node("Gemm", "x w b", "g", transB=1),
        node("Relu", "g", "r"),
        node("MatMul", "r w2", "m"),
        node("Add", "m b2", "a"),
        node("LeakyRelu", "a", "l", alpha=0.1),
        node("Gemm", "l w3", "y"),
    ]
    constants = {
        "w": uneven(5, 6), "b": RANDOM.normal(size=5).astype(F32), "w2": uneven(5, 4),
        "b2": RANDOM.normal(size=4).astype(F32), "w3": RANDOM.normal(size=(4, 3)).astype(F32),
    }  # fmt: skip
    return made(nodes, ROWS, FLOAT, constants)


def depthwise() -> onnx.ModelProto:
    """A convolution, one of each channel alone, one of groups, and a transposed one."""
    nodes = [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("Conv", "r w2", "d", group=4, pads=[1, 1, 1, 1]),
        node("PRelu", "d s", "p"),
        node("Conv", "p w3", "e", group=2),
        node("ConvTranspose", "e w4", "y"),
    ]
    constants = {
        "w": uneven(4, 2, 3, 3), "w2": uneven(4, 1, 3, 3), "s": RANDOM.uniform(-1, 1, (4, 1, 1)).astype(F32),
        "w3": uneven(6, 2, 3, 3), "w4": RANDOM.normal(size=(6, 2, 3, 3)).astype(F32),
    }  # fmt: skip
    return made(nodes, IMAGE, FLOAT, constants)


RELU = [node("Relu", "c", "r")]
NORMAL = [node("BatchNormalization", "c g o m v", "n"), node("Relu", "n", "r")]
STATISTICS = {
    "g": uneven(4), "o": RANDOM.normal(size=4).astype(F32), "m": RANDOM.normal(size=4).astype(F32),
    "v": RANDOM.uniform(0.5, 2.0, 4).astype(F32),
}  # fmt: skip

CASES: dict[str, tuple[Any, int]] = {
    "relu": (lambda: two_convolutions(RELU), 1),
    "nothing": (lambda: two_convolutions([], "c"), 1),
    "normalised": (lambda: two_convolutions(NORMAL, **STATISTICS), 1),
    "dense": (dense, 2),
    "depthwise": (depthwise, 3),
}


def feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    graph = loaded(model).graph
    return {name: RANDOM.normal(size=(3, *graph.tensors[name].shape)) for name in graph.inputs}


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_function_stays_what_it_was_bit_for_bit(name: str, per_channel: bool) -> None:
    make, pairs = CASES[name]
    graph = loaded(make()).graph
    data = feeds(make())
    found, rescaled = equalized(graph, data, per_channel=per_channel)
    assert len(rescaled) == pairs
    before, after = (Reference(item).run(data, "all") for item in (graph, found))
    for output in graph.outputs:
        np.testing.assert_array_equal(before[output], after[output])
    for item in rescaled:
        assert any(item.exponents)
        factors = np.exp2(item.exponents)
        shape = [-1 if extent == len(factors) else 1 for extent in graph.tensors[item.tensor].shape]
        np.testing.assert_array_equal(after[item.tensor], before[item.tensor] * factors.reshape(shape))


@pytest.mark.parametrize("per_channel", [False, True])
def test_channels_meet_halfway_but_for_the_rounding_to_powers_of_two(per_channel: bool) -> None:
    """The factor of each channel is within sqrt(2) of sqrt(r2 / r1), all divided by their median."""
    model = two_convolutions(RELU)
    graph, data = loaded(model).graph, feeds(model)
    _, (pair,) = equalized(graph, data, per_channel=per_channel)
    if per_channel:
        first = np.abs(Reference(graph).run(data, ["r"])["r"]).max(axis=(0, 1, 3, 4))
    else:
        first = np.abs(graph.tensors["w"].data.values.astype(float)).max(axis=(1, 2, 3))
    second = np.abs(graph.tensors["w2"].data.values.astype(float)).max(axis=(0, 2, 3))
    used = first > 0
    wanted = np.log2(np.sqrt(second[used] / first[used]))
    exponents = np.array(pair.exponents)
    assert np.abs(exponents[used] - (wanted - np.median(wanted))).max() <= 0.5
    assert not exponents[~used].any()


def test_one_scale_for_all_channels_gains_much_by_it() -> None:
    """The case that it is for: channels that differ by orders of magnitude, and count alike in the next layer."""
    model = two_convolutions(RELU)
    factors = (10.0 ** np.array([-1.5, -0.5, 0.5, 1.5])).astype(F32)
    for name, shape, power in (("w", (4, 1, 1, 1), 0.0), ("b", (4,), 1.0), ("w2", (1, 4, 1, 1), -1.0)):
        initializer = next(item for item in model.graph.initializer if item.name == name)
        values = onnx.numpy_helper.to_array(initializer)
        if name == "w":
            values = RANDOM.normal(size=values.shape).astype(F32) * factors.reshape(shape)
        initializer.CopyFrom(onnx.numpy_helper.from_array(values * factors.reshape(shape) ** F32(power), name))
    data = feeds(model)
    ratios = []
    for equalize in ("off", "on", "auto"):
        settings = Settings(weight_bits=4, equalize=equalize)
        found = quantize_completed("m.onnx", loaded(model), data, settings)
        ratios.append(min(decibels(found, data).values()))
    assert ratios[1] > ratios[0] + 3
    assert ratios[2] == ratios[1]


def unchanged(model: onnx.ModelProto) -> bool:
    graph = loaded(model).graph
    data = feeds(model)
    return not any(equalized(graph, data, per_channel=choice)[1] for choice in (False, True))


def test_what_is_read_elsewhere_stays() -> None:
    also = two_convolutions([*RELU, node("Relu", "c", "other")])
    also.graph.output.append(onnx.helper.make_tensor_value_info("other", onnx.TensorProto.FLOAT, None))
    assert unchanged(also)
    shown = two_convolutions(RELU)
    shown.graph.output.append(onnx.helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, None))
    assert unchanged(shown)


def test_a_filter_that_two_layers_share_stays() -> None:
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "r"), node("MatMul", "r w", "y")]
    assert unchanged(made(nodes, ROWS, FLOAT, {"w": uneven(6, 6)}))


def test_a_bias_that_two_layers_share_stays() -> None:
    nodes = [
        node("Gemm", "x w b", "a"),
        node("Relu", "a", "r"),
        node("Gemm", "r w2 b", "y"),
    ]
    assert unchanged(made(nodes, ROWS, FLOAT, {"w": uneven(6, 6).T.copy(), "w2": uneven(6, 6), "b": uneven(6)}))


@pytest.mark.parametrize("op", ["Sigmoid", "Tanh", "Elu", "Exp"])
def test_what_is_not_homogeneous_separates_layers(op: str) -> None:
    assert unchanged(two_convolutions([node(op, "c", "r")]))


def test_a_clip_separates_layers() -> None:
    assert unchanged(two_convolutions([node("Clip", "c lo hi", "r")], lo=np.array(0, F32), hi=np.array(6, F32)))


def test_channels_of_zeros_stay_as_they_are() -> None:
    model = two_convolutions(RELU)
    for name, index in (("w", 0), ("b", 0), ("w2", (slice(None), 1))):
        initializer = next(item for item in model.graph.initializer if item.name == name)
        values = onnx.numpy_helper.to_array(initializer).copy()
        values[index] = 0
        if name == "w":
            values[3] = 1000 * values[2]
        if name == "b":
            values[2:] = 3  # a channel that is zero behind the relu has no range
        initializer.CopyFrom(onnx.numpy_helper.from_array(values, name))
    for per_channel in (False, True):
        found, rescaled = equalized(loaded(model).graph, feeds(model), per_channel=per_channel)
        (pair,) = rescaled
        assert pair.exponents[:2] == (0, 0)
        assert all(np.isfinite(item.data.values).all() for item in found.tensors.values() if item.data is not None)


def test_numbers_that_would_be_rounded_stay() -> None:
    """A weight near the least float32 has no half: then nothing of the pair changes."""
    model = two_convolutions(RELU)
    initializer = next(item for item in model.graph.initializer if item.name == "w2")
    values = onnx.numpy_helper.to_array(initializer).copy()
    values[0, :, 0, 0] = np.float32(2.0**-149) * 3
    initializer.CopyFrom(onnx.numpy_helper.from_array(values, "w2"))
    assert unchanged(model)


def test_what_has_codes_stays() -> None:
    nodes = [
        node("DequantizeLinear", "wq s z", "w"),
        node("MatMul", "x w", "a"),
        node("Relu", "a", "r"),
        node("MatMul", "r w2", "y"),
    ]
    constants = {
        "wq": RANDOM.integers(-127, 128, (6, 5)).astype(np.int8), "s": np.array(0.1, F32), "z": np.array(0, np.int8),
        "w2": uneven(5, 3),
    }  # fmt: skip
    assert unchanged(made(nodes, ROWS, FLOAT, constants))
