"""Completion of graphs that lack quantisers: exact, only where lowering needs one, and what the file has stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from math import log10
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from cvm.calibration import Calibration, Completer, Settings
from cvm.calibration.placement import Placement
from cvm.errors import CvmError, Invalid, Location, Unsupported
from cvm.frontends import onnx as front
from cvm.graph import QuantizedGraph
from cvm.lowering import lower
from cvm.passes.optimize import optimize
from cvm.quantization import LinearQuantizer
from cvm.quantization.exact import quantize
from cvm.quantizing import Quantized, decibels, quantize_completed, random_inputs
from cvm.reference import Reference
from cvm.session import Session
from tests.frontends.onnx.making import made

RANDOM = np.random.default_rng(3)
F32 = np.float32


def loaded(model: onnx.ModelProto) -> front.Loaded:
    return front.loads(model.SerializeToString(), front.Settings(floats=True))


def completed(model: onnx.ModelProto, data: Mapping[str, Any], **settings: Any) -> Quantized:
    chosen = Settings(**{"per_channel": True, **settings})
    return quantize_completed("m.onnx", loaded(model), data, chosen)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(F32)


IMAGE = {"x": ("float32", (1, 2, 6, 6))}
ROWS = {"x": ("float32", (2, 6))}
FLOAT = {"y": "float32"}


def convolutional() -> onnx.ModelProto:
    """Convolutions with a normalisation, a residual sum, pooling and a dense layer."""
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c g o m v", "n"),
        node("Relu", "n", "r"),
        node("Conv", "r w2", "d", pads=[1, 1, 1, 1], group=3),
        node("Add", "d r", "s"),
        node("MaxPool", "s", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "p", "f"),
        node("Gemm", "f w3 b3", "l", transB=1),
        node("Softmax", "l", "y", axis=1),
    ]
    constants = {
        "w": normal(3, 2, 3, 3), "b": normal(3), "g": normal(3), "o": normal(3), "m": normal(3),
        "v": RANDOM.uniform(0.5, 2.0, 3).astype(F32), "w2": normal(3, 1, 3, 3), "w3": normal(4, 27), "b3": normal(4),
    }  # fmt: skip
    return made(nodes, IMAGE, FLOAT, constants)


def gated() -> onnx.ModelProto:
    """Products of computed tensors, functions of one tensor, a choice, a maximum and a concatenation."""
    nodes = [
        node("MatMul", "x w", "a"),
        node("Sigmoid", "a", "s"),
        node("Mul", "a s", "g"),
        node("Tanh", "g", "t"),
        node("Greater", "t z", "big"),
        node("Where", "big t g", "c"),
        node("Max", "c t", "m"),
        node("Concat", "m t", "k", axis=1),
        node("ReduceMean", "k axes", "y", keepdims=1),
    ]
    constants = {"w": normal(6, 4), "z": np.array(0.1, F32), "axes": np.array([1])}
    return made(nodes, ROWS, FLOAT, constants)


def normalised() -> onnx.ModelProto:
    """A layer normalisation written out in primitives, and one that is not."""
    nodes = [
        node("ReduceMean", "x axes", "mean"),
        node("Sub", "x mean", "d"),
        node("Mul", "d d", "sq"),
        node("ReduceMean", "sq axes", "var"),
        node("Add", "var eps", "e"),
        node("Sqrt", "e", "root"),
        node("Div", "d root", "q"),
        node("Mul", "q g", "r"),
        node("LayerNormalization", "r g", "y", axis=-1),
    ]
    constants = {"axes": np.array([-1]), "eps": np.array(0.01, F32), "g": normal(6)}
    return made(nodes, ROWS, FLOAT, constants)


def functions() -> onnx.ModelProto:
    """Functions of one tensor, one inside the other: the input and the output alone are rounded."""
    nodes = [
        node("Mul", "x half", "a"),
        node("Sigmoid", "a", "b"),
        node("Mul", "a b", "c"),
        node("Exp", "c", "d"),
        node("Neg", "d", "y"),
    ]
    return made(nodes, ROWS, FLOAT, {"half": np.array(0.5, F32)})


def moved() -> onnx.ModelProto:
    """Movement alone."""
    nodes = [
        node("Transpose", "x", "t"),
        node("Reshape", "t shape", "r"),
        node("Slice", "r s e", "y"),
    ]
    return made(nodes, ROWS, FLOAT, {"shape": np.array([3, 4]), "s": np.array([1]), "e": np.array([3])})


def embedded() -> onnx.ModelProto:
    """Rows of a table of floats, at indices that are given."""
    nodes = [node("Gather", "t x", "g", axis=0), node("MatMul", "g w", "y")]
    return made(nodes, {"x": ("int64", (1, 5))}, FLOAT, {"t": normal(10, 4), "w": normal(4, 3)})


def partly() -> onnx.ModelProto:
    """A quantised convolution, a float function behind it, and a dense layer whose weights have codes."""
    nodes = [
        node("QuantizeLinear", "x sx zx", "q"),
        node("DequantizeLinear", "q sx zx", "xd"),
        node("DequantizeLinear", "wq sw zw", "wd", axis=0),
        node("Conv", "xd wd", "c"),
        node("Tanh", "c", "t"),
        node("Flatten", "t", "f"),
        node("MatMul", "f w", "m"),
        node("QuantizeLinear", "m sm zm", "mq"),
        node("DequantizeLinear", "mq sm zm", "y"),
    ]
    constants = {
        "sx": np.array(0.02, F32), "zx": np.array(3, np.uint8),
        "wq": RANDOM.integers(-127, 128, (2, 2, 3, 3)).astype(np.int8),
        "sw": np.array([0.01, 0.02], F32), "zw": np.zeros(2, np.int8), "w": normal(32, 3),
        "sm": np.array(0.05, F32), "zm": np.array(-4, np.int8),
    }  # fmt: skip
    return made(nodes, IMAGE, FLOAT, constants)


MODELS = {
    "convolutional": convolutional, "gated": gated, "normalised": normalised, "functions": functions,
    "moved": moved, "embedded": embedded, "partly": partly,
}  # fmt: skip


def case(name: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    model = MODELS[name]()
    return model, random_inputs(loaded(model).graph, 6, 1)


# The program is the meaning of the completed graph


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "bits"),
    [*((name, bits) for name in MODELS for bits in (4, 8)), ("moved", 16), ("embedded", 16)],
)
def test_the_program_rounds_the_completed_graph_once_per_quantiser(name, bits):
    """Codes of the program are those that float64 arithmetic gives on the completed graph, but near ties."""
    model, data = case(name)
    found = completed(model, data, bits=bits)
    graph = found.calibration.graph
    wanted = Reference(graph, pseudo_quantize=True).run(data)
    given = Session(found.program, "numpy").run(data, codes=True)
    bounds = {item.tensor: item.bound for item in found.program.provenance.exactness}
    for output in graph.outputs:
        codes = quantize(wanted[output], graph.tensors[output].quantizer)
        apart = np.abs(codes - given[output])
        assert apart.max() <= 1 + max(bounds.values())
        assert (apart == 0).mean() > 0.9


def rational(items: np.ndarray, quantizer: LinearQuantizer) -> list[Any]:
    """The exact numbers of the codes of an array, row by row."""
    codes = quantize(items, quantizer)
    steps = [
        (quantizer.scale[i % len(quantizer.scale)], quantizer.offset[i % len(quantizer.offset)]) for i in range(99)
    ]
    if quantizer.axis is None:
        return [[steps[0][1] + steps[0][0] * int(code) for code in row] for row in codes]
    along = [(i if quantizer.axis == 0 else None) for i in range(len(codes))]
    return [
        [steps[j if i is None else i][1] + steps[j if i is None else i][0] * int(code) for j, code in enumerate(row)]
        for i, row in zip(along, codes, strict=True)
    ]


@pytest.mark.parametrize("per_channel", [True, False])
def test_two_dense_layers_are_exact_in_rational_arithmetic(per_channel):
    """Every code, from the quantisers of the calibration alone; biases are the floats that they are, unrounded."""
    weights, bias = [normal(6, 5), normal(5, 3)], [normal(5), normal(3)]
    nodes = [
        node("MatMul", "x w0", "m0"),
        node("Add", "m0 b0", "a0"),
        node("Relu", "a0", "r"),
        node("MatMul", "r w1", "m1"),
        node("Add", "m1 b1", "y"),
    ]
    model = made(nodes, ROWS, FLOAT, {"w0": weights[0], "w1": weights[1], "b0": bias[0], "b1": bias[1]})
    data = {"x": RANDOM.normal(size=(9, 2, 6))}
    found = completed(model, data, per_channel=per_channel)
    quantizers = found.calibration.quantizers
    assert set(quantizers) == {"x", "w0", "w1", "r", "y"}
    given = Session(found.program, "numpy").run(data)["y"]
    for sample, codes in zip(data["x"], given, strict=True):
        rows = rational(sample, quantizers["x"])
        for layer, result in enumerate(("r", "y")):
            w = rational(weights[layer], quantizers[f"w{layer}"])
            b = [Fraction(float(item)) for item in bias[layer]]
            sums = [[sum(a * w[k][j] for k, a in enumerate(row)) + b[j] for j in range(len(b))] for row in rows]
            quantizer = quantizers[result]
            units = [[(item - quantizer.offset[0]) / quantizer.scale[0] for item in row] for row in sums]
            rounded = [[int((2 * u + 1) // 2) for u in row] for row in units]
            clipped = [[min(max(code, quantizer.lo), quantizer.hi) for code in row] for row in rounded]
            rows = [[quantizer.offset[0] + quantizer.scale[0] * code for code in row] for row in clipped]
        np.testing.assert_array_equal(codes, clipped)


def test_the_completed_graph_alone_gives_the_program():
    """Completion adds quantisers to the graph and does nothing else: the graph lowers to the same program."""
    model, data = case("gated")
    found = completed(model, data)
    assert not found.remedies
    graph = found.calibration.graph
    assert optimize(lower(graph)).digest == found.program.digest


# Quantisers are where lowering needs one


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("normalised", "embedded")])
def test_no_quantiser_can_be_left_out(name):
    """Without any one of the quantisers that were added to activations, lowering refuses the graph."""
    model, data = case(name)
    found = completed(model, data).calibration
    added = [item for item in found.tensors if item.role == "activation"]
    groups: dict[str, list[str]] = {}
    for item in added:
        groups.setdefault(str(item.quantizer), []).append(item.name)
    for names in groups.values():
        with pytest.raises(Unsupported):
            lower(without(found.graph, names))


def without(graph: QuantizedGraph, names: list[str]) -> QuantizedGraph:
    tensors = {
        name: replace(tensor, quantizer=None) if name in names else tensor for name, tensor in graph.tensors.items()
    }
    return replace(graph, tensors=MappingProxyType(tensors))


@pytest.mark.parametrize(
    ("name", "added"),
    [
        ("convolutional", {"x", "w", "r", "w2", "s", "w3", "l", "y.2", "y"}),
        ("functions", {"x", "y"}),
        ("moved", {"x", "y"}),
        ("embedded", {"t", "w", "y"}),
        ("partly", {"c", "f", "w"}),
    ],
)
def test_which_tensors_get_one(name, added):
    model, data = case(name)
    assert {item.name for item in completed(model, data).calibration.tensors} == added


def test_what_only_moves_shares_a_quantiser():
    model, data = case("moved")
    quantizers = completed(model, data).calibration.quantizers
    assert quantizers["x"] == quantizers["y"]


def test_what_the_file_has_stays():
    """Quantisers and codes of the file are those of the completed graph, and its outputs are the file's codes."""
    model, data = case("partly")
    found = completed(model, data)
    source = loaded(model).graph
    for name, tensor in source.tensors.items():
        if tensor.quantizer is not None:
            assert found.calibration.graph.tensors[name].quantizer == tensor.quantizer
        if tensor.data is not None:
            assert found.calibration.graph.tensors[name].data.quantizer == tensor.data.quantizer
    (output,) = found.program.outputs
    assert (output.quantizer.scale, output.quantizer.lo, output.quantizer.hi) == (
        (Fraction(float(F32(0.05))),),
        -128,
        127,
    )


def test_a_wholly_quantised_model_stays_as_it_is():
    """Nothing is added, and the program is the one that `cvm.compile` gives."""
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("Relu", "d", "r"),
        node("QuantizeLinear", "r s z", "p"),
        node("DequantizeLinear", "p s z", "y"),
    ]
    model = made(nodes, ROWS, FLOAT, {"s": np.array(0.1, F32), "z": np.array(0, np.int8)})
    found = completed(model, {"x": RANDOM.normal(size=(3, 2, 6))})
    assert found.calibration.tensors == ()
    plain = lower(front.loads(model.SerializeToString(), front.Settings()).graph)
    assert lower(found.calibration.graph).digest == plain.digest


def test_integers_need_no_quantiser():
    """Integer arithmetic inside of a float model is exact as it is; an output of whole numbers is one of integers."""
    nodes = [
        node("Floor", "x", "f"),
        node("Cast", "i", "c", to=onnx.TensorProto.FLOAT),
        node("Add", "f c", "y"),
    ]
    model = made(nodes, {**ROWS, "i": ("int32", (2, 6))}, FLOAT)
    data = {"x": RANDOM.uniform(-3, 3, (4, 2, 6)), "i": RANDOM.integers(-9, 9, (4, 2, 6))}
    found = completed(model, data, bits=12)
    by_name = {item.name: item.quantizer for item in found.calibration.tensors}
    assert set(by_name) == {"x", "y"}
    assert by_name["y"].scale == (1,)
    codes = Session(found.program, "numpy").run(data)
    steps = by_name["x"]
    x = np.array([float(steps.value(int(code))) for code in quantize(data["x"], steps).ravel()]).reshape(4, 2, 6)
    np.testing.assert_array_equal(codes["y"], np.floor(x) + data["i"])


# How far the program is from the floats


@pytest.mark.parametrize("bits", [4, 6, 8, 12, 16])
def test_the_noise_of_one_rounding_follows_from_the_bits(bits):
    """Each number is at most half a step from its code, and a step is the range over 2^bits - 1 (to six digits)."""
    model, _ = case("moved")
    data = {"x": RANDOM.uniform(-1, 1, (50, 2, 6))}
    found = completed(model, data, bits=bits)
    ratio = decibels(found, data)["y"]
    step = (data["x"].max() - data["x"].min()) / (2**bits - 1) * (1 + 1e-5)
    signal = float(np.square(Reference(found.source).run(data)["y"]).mean())
    assert ratio is not None
    assert ratio >= 10 * log10(signal / (step / 2) ** 2)
    assert ratio <= 10 * log10(signal / (step**2 / 12)) + 2


def test_the_error_of_a_dense_layer_is_within_what_its_three_quantisers_allow():
    w, b = normal(6, 4), normal(4)
    model = made([node("Gemm", "x w b", "y")], ROWS, FLOAT, {"w": w, "b": b})
    data = {"x": RANDOM.normal(size=(20, 2, 6))}
    found = completed(model, data)
    steps = {name: np.array([float(s) for s in q.scale]) for name, q in found.calibration.quantizers.items()}
    wanted = data["x"] @ w.astype(float) + b
    given = Session(found.program, "numpy").run(data).real("y")
    x = np.abs(data["x"]) + steps["x"] / 2
    bound = x @ np.broadcast_to(steps["w"] / 2, w.shape) + (steps["x"] / 2) * np.abs(w).sum(axis=0) + steps["y"] / 2
    assert (np.abs(wanted - given) <= bound * (1 + 1e-9)).all()


def test_equal_numbers_have_an_infinite_ratio_and_zeros_none():
    model = made([node("Identity", "x", "y")], ROWS, FLOAT)
    zeros = {"x": np.zeros((1, 2, 6))}
    assert decibels(completed(model, zeros), zeros) == {"y": float("inf")}
    ones = {"x": np.ones((1, 2, 6))}
    found = completed(model, ones)
    assert decibels(found, {"x": np.full((1, 2, 6), 0.0)})["y"] is None


# What is refused


def test_numbers_that_are_none_are_refused_by_name():
    model = made([node("Log", "x", "y")], ROWS, FLOAT)
    with pytest.raises(CvmError, match=r"NaN") as caught:
        completed(model, {"x": -np.ones((1, 2, 6))})
    assert (caught.value.code, caught.value.location.tensor, caught.value.location.file) == (
        "calibration.real", "y", "m.onnx",
    )  # fmt: skip


def test_a_divisor_that_may_be_zero_is_refused_in_the_words_of_the_model():
    model = made([node("Div", "a x", "y", name="quotient")], {**ROWS, "a": ("float32", (2, 6))}, FLOAT)
    with pytest.raises(Unsupported, match="node 'quotient', Div"):
        completed(model, {"x": RANDOM.uniform(-1, 1, (1, 2, 6)), "a": RANDOM.uniform(-1, 1, (1, 2, 6))})


def test_operands_that_have_codes_get_fewer_bits():
    """Where nothing is left to round, an operation that is refused gets operands and a result of 8 bits."""
    graph = loaded(
        made([node("Pow", "x e", "p"), node("Neg", "p", "y")], {**ROWS, "e": ("float32", (2, 6))}, FLOAT)
    ).graph
    completer = Completer(graph, random_inputs(graph, 2, 0, 1.0, 2.0), Settings(bits=12))
    widths = [len(range(item.quantizer.lo, item.quantizer.hi + 1)) for item in completer.calibration().tensors]
    assert set(widths) == {2**12}
    refused = Unsupported("lowering.unquantized", "no", Location(tensor="p"))
    assert completer.remedy(refused)
    found = {item.name: item.quantizer.hi - item.quantizer.lo + 1 for item in completer.calibration().tensors}
    assert found == {"x": 2**8, "e": 2**8, "p": 2**8, "y": 2**12}
    assert not completer.remedy(refused)


def test_a_remedy_is_to_round_one_tensor_more():
    """An operation that is refused has its operands rounded, then its result; then there is nothing more to do."""
    graph = loaded(functions()).graph
    data = random_inputs(graph, 2, 0)
    completer = Completer(graph, data, Settings(per_channel=True))
    assert isinstance(completer.calibration(), Calibration)
    before = set(Placement(graph).needed)
    refused = Unsupported("lowering.unquantized", "no", Location(tensor="c"))
    assert completer.remedy(refused)
    assert {item.name for item in completer.calibration().tensors} - before == {"a", "b", "c"}
    assert not completer.remedy(refused)
    assert not completer.remedy(Unsupported("lowering.unquantized", "no", Location(tensor="nothing")))


def test_single_tensors_get_their_own_bits_by_name() -> None:
    """The last pattern that fits counts; what shares a quantiser with a named tensor has its bits too."""
    model, data = case("gated")
    plain = completed(model, data).calibration
    names = [item.name for item in plain.tensors if item.role == "activation"]
    chosen = completed(model, data, bits_of=(("*", 10), (names[1], 12))).calibration

    def bits(found: Calibration) -> dict[str, int]:
        every = {item.name: item.quantizer for item in found.tensors if item.role == "activation"}
        return {name: (q.hi - q.lo).bit_length() for name, q in every.items() if isinstance(q, LinearQuantizer)}

    assert set(bits(plain).values()) == {8}
    assert bits(chosen)[names[1]] == 12
    assert set(bits(chosen).values()) == {10, 12}
    with pytest.raises(Invalid, match="no tensor has a name like 'nothing\\*'"):
        completed(model, data, bits_of=(("nothing*", 8),))
    with pytest.raises(Invalid, match=r"bits must be in 2..16, found 17"):
        Settings(bits_of=(("*", 17),))


def test_what_a_layer_normalisation_reads_has_a_scale_of_few_bits() -> None:
    """Its epsilon over the square of the scale fits one op of op-set 2 then, at any number of bits."""
    model, data = case("normalised")
    made = completed(model, data, bits=16)
    graph = made.calibration.graph
    read = {op.inputs["input"] for op in graph.operations if op.name == "layer_normalization"}
    scales = [graph.tensors[name].quantizer.scale[0] for name in read if graph.tensors[name].quantizer]
    assert scales
    for scale in scales:
        numerator = scale.numerator
        assert (numerator // (numerator & -numerator)).bit_length() <= 10
        assert scale.denominator & (scale.denominator - 1) == 0
