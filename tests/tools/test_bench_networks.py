"""The networks of the benchmarks: what they are, and that every form of them computes the same."""

from __future__ import annotations

import importlib.util
import math
import warnings
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from cvm.executors import create
from cvm.program import verify
from tools.bench.networks import NETWORKS, Codes, Layer, Network, parameters
from tools.bench.programs import BITS, moved, multiplier, program_of

MACS = {
    "resnet18": 1_814_073_344,
    "resnet50": 4_089_184_256,
    "mobilenet_v1": 568_740_352,
    "mobilenet_v2": 300_774_272,
    "lenet": 2_293_000,
    "chain_conv3x3": 8 * 64 * 64 * 9 * 56 * 56,
    "chain_conv1x1": 8 * 256 * 512 * 14 * 14,
    "chain_depthwise": 8 * 64 * 9 * 112 * 112,
    "chain_dense": 8 * 1024 * 1000,
}
"""As published for the networks (the strides of ResNet-50 in the 3x3 convolutions)."""


def small() -> Network:
    """Every kind of layer, of stride 1 and 2, with zeros and without, and a residual addition."""
    scale = [Fraction(float(np.float32(value))) for value in (0.021, 0.017, 0.033, 0.027, 0.052)]
    layers = (
        Layer("a", "conv", ("x",), (8, 10, 10), Codes(scale[1], 0), 3, 1, 1),
        Layer("b", "conv", ("a",), (8, 10, 10), Codes(scale[2], 0), 3, 1, 1, 8),
        Layer("c", "conv", ("b",), (8, 10, 10), Codes(scale[3], 131), 1),
        Layer("d", "add", ("c", "a"), (8, 10, 10), Codes(scale[4], 77)),
        Layer("e", "max_pool", ("d",), (8, 5, 5), Codes(scale[4], 77), 3, 2, 1),
        Layer("f", "conv", ("e",), (12, 3, 3), Codes(scale[0], 120), 3, 2, 1),
        Layer("g", "mean", ("f",), (12, 1, 1), Codes(scale[0], 120)),
        Layer("h", "dense", ("g",), (20, 1, 1), Codes(scale[2], 0)),
        Layer("i", "dense", ("h",), (7, 1, 1), Codes(scale[1], 140)),
    )
    return Network("small", (4, 10, 10), Codes(scale[0], 118), layers)


def ours(network: Network) -> np.ndarray:
    """The codes of the result, as the other engines count them."""
    image = network.image().astype(np.int32) - network.input_codes.zero
    (result,) = create("numpy", verify(program_of(network))).run({"x": image}, {}).values.values()
    return result + network.layers[-1].codes.zero


def exact(network: Network) -> np.ndarray:
    """The codes of the result by rational numbers: sums in the order of the definition, one rounding per layer."""
    tensors = {"x": (network.image()[0].astype(int), network.input_codes)}
    for layer in network.layers:
        sources = [tensors[name] for name in layer.sources]
        tensors[layer.name] = (_layer(network, layer, sources), layer.codes)
    return tensors[network.layers[-1].name][0]


def _layer(network, layer, sources):
    codes, source = sources[0]
    if layer.kind == "max_pool":
        edges = [(0, 0)] + [(layer.padding, layer.padding)] * 2
        return _windows(layer, np.pad(codes, edges, constant_values=-1), lambda window: window.max(axis=(1, 2)))
    if layer.kind == "add":
        reals = sum((codes - source.zero) * source.scale for codes, source in sources)
    elif layer.kind == "mean":
        reals = (codes - source.zero).sum(axis=(1, 2), keepdims=True) * source.scale / math.prod(codes.shape[1:])
    else:
        found = parameters(network, layer)
        scales = np.array([Fraction(float(scale)) for scale in found.scales]).reshape(-1, 1, 1)
        sums = _sums(layer, codes - source.zero, found.weights.astype(int)) + found.bias.reshape(-1, 1, 1)
        reals = sums * scales * source.scale
    rounded = np.vectorize(lambda real: math.floor(real / layer.codes.scale + Fraction(1, 2)), otypes=[int])(reals)
    return np.clip(rounded + layer.codes.zero, 0, 255)


def _sums(layer, centred, weights):
    if layer.kind == "dense":
        return (weights @ centred.reshape(-1)).reshape(-1, 1, 1).astype(object)
    edges = [(0, 0)] + [(layer.padding, layer.padding)] * 2
    channels = layer.shape[0]
    inputs = centred.shape[0] // layer.groups

    def one(window, channel):
        first = channel // (channels // layer.groups) * inputs
        return int((window[first : first + inputs] * weights[channel]).sum())

    padded = np.pad(centred, edges)
    sums = _windows(layer, padded, lambda window: [one(window, channel) for channel in range(channels)])
    return sums.astype(object)


def _windows(layer, padded, of):
    channels, rows, columns = layer.shape
    result = np.zeros((channels, rows, columns), int)
    for row, column in product(range(rows), range(columns)):
        top, left = row * layer.stride, column * layer.stride
        window = padded[:, top : top + layer.kernel, left : left + layer.kernel]
        result[:, row, column] = of(window)
    return result


def test_the_networks_are_those_that_are_meant():
    assert {name: make().macs for name, make in NETWORKS.items()} == MACS
    for make in NETWORKS.values():
        network = make()
        known = {"x"}
        for layer in network.layers:
            assert set(layer.sources) <= known
            known.add(layer.name)


def test_scales_are_float32_numbers_and_no_powers_of_two():
    for make in NETWORKS.values():
        network = make()
        for codes in (network.input_codes, *(layer.codes for layer in network.layers)):
            assert Fraction(float(np.float32(float(codes.scale)))) == codes.scale
            assert codes.scale.numerator != 1
            assert 0 <= codes.zero <= 255
    network = NETWORKS["lenet"]()
    found = parameters(network, network.layers[0])
    assert found.scales.dtype == np.float32
    assert len(set(found.scales.tolist())) == 20
    assert not any(math.frexp(scale)[0] == 0.5 for scale in found.scales.tolist())
    assert np.abs(found.weights.astype(int)).max() <= 127


def test_parameters_are_the_same_every_time_and_other_ones_in_every_layer():
    network = NETWORKS["chain_conv1x1"]()
    first, again, third = (parameters(network, network.layers[index]) for index in (0, 0, 2))
    assert np.array_equal(first.weights, again.weights)
    assert not np.array_equal(first.weights, third.weights)
    assert int(first.weights.astype(int).sum()) == 19876
    assert int(network.image().astype(int).sum()) == 6374589


def test_multipliers_have_31_bits_and_equal_the_ratio_to_2_to_the_minus_31():
    random = np.random.default_rng(0)
    for value in (2.0 ** random.uniform(-20, 4, 2000)).tolist():
        ratio = Fraction(value)
        found, shift = multiplier(ratio)
        assert found.bit_length() == BITS
        assert abs(Fraction(found, 2**shift) - ratio) <= ratio / 2**31
    assert multiplier(Fraction(2**32 - 1, 2**40)) == (2**30, 38)


def test_programs_use_wide_multipliers_per_channel():
    program = program_of(NETWORKS["lenet"]())
    constants = {constant.name: constant for constant in program.constants}
    found = [node for node in program.nodes if node.op == "requantize"]
    assert len(found) == 4
    for node in found:
        multipliers, shifts = (constants[node.inputs[index]].array().ravel() for index in (1, 3))
        assert len(multipliers) == node.outputs[0].shape[1]
        assert ((multipliers >= 2**30) & (multipliers < 2**31)).all()
        assert not (multipliers & (multipliers - 1) == 0).any()
        assert shifts.shape == multipliers.shape


def test_the_program_of_a_small_network_computes_its_meaning():
    network = small()
    expected = exact(network)
    assert np.array_equal(ours(network).ravel(), expected.ravel())
    assert len(np.unique(expected)) > 4
    assert moved(Codes(Fraction(1), 118)) == (-118, 137)


@pytest.mark.parametrize("index", range(9))
def test_every_tensor_of_the_small_network_has_many_codes_and_few_at_the_ends(index):
    network = small()
    part = Network(network.name, network.input, network.input_codes, network.layers[: index + 1])
    codes = ours(part).ravel()
    assert len(np.unique(codes)) >= min(6, len(codes))
    assert (codes == 255).mean() < 0.3


# Other engines ------------------------------------------------------------------------------------------------------


def importorskip(name):
    """A module of the extra ``bench``; what it warns of while it is imported is its own affair."""
    if importlib.util.find_spec(name.split(".")[0]) is None:
        pytest.skip(f"{name} is not installed (extra bench)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def assert_close(found, network):
    """Within two codes, and less than one on average: floats decide the others' roundings, and every layer rounds."""
    differences = np.abs(found.astype(int).ravel() - ours(network).ravel())
    assert differences.max() <= 2
    assert differences.mean() < 0.75


def parts():
    network = small()
    for count in range(1, len(network.layers) + 1):
        yield Network(network.name, network.input, network.input_codes, network.layers[:count])


@pytest.mark.parametrize("form", ["qdq", "qlinear"])
def test_onnx_runtime_computes_the_same(form):
    importorskip("onnx")
    onnxruntime = importorskip("onnxruntime")
    from tools.bench.onnx_models import onnx_model

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    for network in parts():
        data = onnx_model(network, form).SerializeToString()
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {"x": network.image()})
        assert_close(found, network)


def test_openvino_computes_the_same(tmp_path):
    importorskip("onnx")
    openvino = importorskip("openvino")
    from tools.bench.onnx_models import onnx_model

    for index, network in enumerate(parts()):
        file = tmp_path / f"{index}.onnx"
        file.write_bytes(onnx_model(network, "qdq").SerializeToString())
        compiled = openvino.Core().compile_model(file, "CPU", {"INFERENCE_NUM_THREADS": 1})
        assert_close(compiled.create_infer_request().infer({0: network.image()})[0], network)


def test_litert_computes_the_same():
    importorskip("flatbuffers")
    interpreter = importorskip("ai_edge_litert.interpreter")
    from tools.bench.tflite_models import tflite_model

    for network in parts():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = interpreter.Interpreter(model_content=tflite_model(network), num_threads=1)
        made.allocate_tensors()
        codes = (network.image().astype(int) - 128).astype(np.int8).transpose(0, 2, 3, 1)
        made.set_tensor(made.get_input_details()[0]["index"], np.ascontiguousarray(codes))
        made.invoke()
        found = made.get_tensor(made.get_output_details()[0]["index"])
        found = found.transpose(0, 3, 1, 2) if found.ndim == 4 else found
        assert_close(found.astype(int) + 128, network)


def test_own_padding_leaves_out_the_pads_and_nothing_else():
    importorskip("flatbuffers")
    schema = importorskip("ai_edge_litert.schema_py_generated")
    from tools.bench.tflite_models import tflite_model

    def operators(own_padding):
        model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(tflite_model(small(), own_padding=own_padding)))
        return [model.operatorCodes[one.opcodeIndex].builtinCode for one in model.subgraphs[0].operators]

    pad = schema.BuiltinOperator.PADV2
    assert operators(False).count(pad) == 1  # the pool over 10 rows; over 5 rows SAME is ours
    assert operators(True) == [one for one in operators(False) if one != pad]
