"""Operators that are written out as others: the numbers of their graphs and the codes of their programs.

The graphs are evaluated in float64 without rounding and held against the reference evaluator of the package onnx, or
against NumPy where that has no such operator; what the integer programs give is held against the same, rounded.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from cvm.errors import CvmError, Invalid, LimitExceeded, Unsupported
from cvm.frontends import onnx as front
from cvm.reference import Reference
from tests.frontends.onnx.making import compiled, made, results, sandwich

RANDOM = np.random.default_rng(7)


def floats(*shape: int) -> Any:
    return RANDOM.integers(-16, 17, shape).astype(np.float32) / 16


def codes_of(model: Any, seed: int = 5) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    shapes = {item.name: [d.dim_value for d in item.type.tensor_type.shape.dim] for item in model.graph.input}
    return {name: random.integers(-9, 10, shape).astype(np.int8) for name, shape in shapes.items()}


def real_result(model: Any, data: dict[str, Any]) -> Any:
    """What the graph of a sandwich means before it is rounded; its scale is 1."""
    graph = front.loads(model.SerializeToString()).graph
    return Reference(graph).run({name: array.astype(float) for name, array in data.items()})["y"]


def of_reference(model: Any, data: dict[str, Any]) -> Any:
    inner = made(list(model.graph.node)[:-1], {k: ("int8", v.shape) for k, v in data.items()}, {"result": "float32"})
    inner.graph.initializer.extend(model.graph.initializer)
    del inner.opset_import[:]
    inner.opset_import.extend(model.opset_import)
    return ReferenceEvaluator(inner).run(None, data)[0]


def in_domain(model: Any, domain: str = "com.microsoft") -> Any:
    next(node for node in model.graph.node if node.name == "tested").domain = domain
    return model


# Recurrent networks


def recurrent(op: str, gates: int, direction: str, more: Any, biased: bool = True, states: int = 0) -> Any:
    count, hidden, batch = (2 if direction == "bidirectional" else 1), 3, 2
    constants = {"w": floats(count, gates * hidden, 4), "r": floats(count, gates * hidden, hidden)}
    if biased:
        constants["b"] = floats(count, 2 * gates * hidden)
    operands = ["real0", *constants]
    first = ["h", "c"][:states]
    for name in first:
        constants[name] = floats(count, batch, hidden)
    if states:
        operands += ["" for _ in range(5 - len(operands))] + first
    model = sandwich(op, [(4, batch, 4)], 1, {"hidden_size": hidden, "direction": direction, **more}, constants)
    node = next(node for node in model.graph.node if node.name == "tested")
    del node.input[:]
    node.input.extend(operands)
    return model


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize(("biased", "states"), [(True, 0), (False, 0), (True, 1), (True, 2)])
def test_recurrent_networks_are_those_of_the_reference(op: str, gates: int, biased: bool, states: int) -> None:
    states = min(states, 2 if op == "LSTM" else 1)
    model = recurrent(op, gates, "forward", {}, biased, states)
    data = codes_of(model)
    np.testing.assert_allclose(real_result(model, data), of_reference(model, data), atol=1e-5)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def lstm(x: Any, c: dict[str, Any], forget: bool, peepholes: Any, clip: float) -> Any:
    """ONNX's equations, one direction, the states after each step."""
    hidden = c["r"].shape[1]
    h = s = np.zeros((x.shape[1], hidden))
    found = []
    for item in x:
        i, o, f, g = np.split(item @ c["w"].T + h @ c["r"].T + c["b"][: 4 * hidden] + c["b"][4 * hidden :], 4, axis=1)
        pi, po, pf = peepholes
        i = sigmoid(np.clip(i + pi * s, -clip, clip))
        f = 1 - i if forget else sigmoid(np.clip(f + pf * s, -clip, clip))
        s = f * s + i * np.tanh(np.clip(g, -clip, clip))
        o = sigmoid(np.clip(o + po * s, -clip, clip))
        h = o * np.tanh(np.clip(s, -clip, clip))
        found.append(h)
    return np.stack(found)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("layout", [0, 1])
def test_directions_peepholes_clips_and_layouts_of_an_lstm(direction: str, layout: int) -> None:
    more = {"clip": 0.5, "layout": layout, "input_forget": layout}
    model = recurrent("LSTM", 4, direction, more)
    count = 2 if direction == "bidirectional" else 1
    holes = floats(count, 9)
    node = next(node for node in model.graph.node if node.name == "tested")
    node.input.extend(["", "", "", "p"])
    model.graph.initializer.extend(made([], {}, {}, {"p": holes}).graph.initializer)
    data = codes_of(model)
    fixed = {item.name: np.frombuffer(item.raw_data, np.float32).reshape(item.dims) for item in model.graph.initializer
             if item.name in ("w", "r", "b")}  # fmt: skip
    x = data["x0"] / 4
    if layout:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
        model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4
        data = {"x0": data["x0"].transpose(1, 0, 2)}
    parts = []
    for index in range(count):
        own = {key: value[index].astype(float) for key, value in fixed.items()}
        back = direction == "reverse" or index == 1
        hole = np.split(holes[index].astype(float), 3)
        found = lstm(x[::-1] if back else x, own, bool(layout), hole, 0.5)
        parts.append(found[::-1] if back else found)
    wanted = np.stack(parts, axis=1)
    np.testing.assert_allclose(real_result(model, data), wanted.transpose(2, 0, 1, 3) if layout else wanted, atol=1e-9)


def test_a_gru_may_reset_after_the_product() -> None:
    for after in (0, 1):
        model = recurrent("GRU", 3, "forward", {"linear_before_reset": after})
        data = codes_of(model)
        np.testing.assert_allclose(real_result(model, data), of_reference(model, data), atol=1e-5)


def test_activations_and_last_states() -> None:
    more = {"activations": ["HardSigmoid", "Relu", "ScaledTanh"], "activation_alpha": [0.5, 2.0],
            "activation_beta": [0.25, 0.5]}  # fmt: skip
    model = recurrent("LSTM", 4, "forward", more)
    data = codes_of(model)
    fixed = {item.name: np.frombuffer(item.raw_data, np.float32).reshape(item.dims)[0].astype(float)
             for item in model.graph.initializer if item.name in ("w", "r", "b")}  # fmt: skip
    h = s = np.zeros((2, 3))
    for item in data["x0"] / 4:
        i, o, f, g = np.split(item @ fixed["w"].T + h @ fixed["r"].T + fixed["b"][:12] + fixed["b"][12:], 4, axis=1)
        i, o, f = (np.clip(0.5 * part + 0.25, 0, 1) for part in (i, o, f))
        s = f * s + i * np.maximum(g, 0)
        h = o * 2 * np.tanh(0.5 * s)
    node = next(node for node in model.graph.node if node.name == "tested")
    del node.output[:]
    for outputs, wanted in ((["", "result"], h), (["", "", "result"], s)):
        del node.output[:]
        node.output.extend(outputs)
        np.testing.assert_allclose(real_result(model, data)[0], wanted, atol=1e-9)


def test_recurrent_networks_that_are_not_read_say_why() -> None:
    with pytest.raises(Unsupported, match="Foo"):
        compiled(recurrent("RNN", 1, "forward", {"activations": ["Foo"]}))
    with pytest.raises(Invalid):
        compiled(recurrent("GRU", 3, "forward", {"hidden_size": 4}))
    model = recurrent("LSTM", 4, "forward", {})
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 10**6
    with pytest.raises(LimitExceeded):
        compiled(model)
    with pytest.raises(CvmError) as found:
        compiled(recurrent("LSTM", 4, "forward", {}))
    assert "'tested', LSTM (its " in str(found.value)
    assert "cvm quantize MODEL.onnx -i DATA -o model.cvm" in str(found.value)
    assert "quantise the model's inputs too" not in str(found.value)


# Products


EQUATIONS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]), ("bhid,bhjd->bhij", [(1, 2, 3, 4), (1, 2, 5, 4)]), ("ii->i", [(3, 3)]),
    ("ii", [(3, 3)]), ("ij->", [(3, 4)]), ("...ij,...jk", [(2, 3, 4), (2, 4, 2)]), ("i,j->ji", [(3,), (4,)]),
    ("ijk->kji", [(2, 3, 4)]), ("bi,bi,b->i", [(2, 3), (2, 3), (2,)]), ("...ij,jk->...ik", [(2, 2, 3), (3, 2)]),
    ("bij,kj->ikb", [(2, 3, 4), (5, 4)]), ("ba", [(2, 3)]), ("iji->j", [(2, 3, 2)]), ("ij,ij->", [(2, 3), (2, 3)]),
    ("ab,ac->bc", [(2, 3), (1, 4)]),
]  # fmt: skip


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS, ids=str)
def test_an_einsum_of_codes_is_exact(equation: str, shapes: Any) -> None:
    model = sandwich("Einsum", shapes, 1 / 64, {"equation": equation}, {})
    next(node for node in model.graph.node if node.op_type == "QuantizeLinear").input[2] = "wide"
    model.graph.initializer.extend(made([], {}, {}, {"wide": np.int16(0)}).graph.initializer)
    model.graph.output[0].type.tensor_type.elem_type = 5
    data = codes_of(model)
    # Products of n factors of a quarter: at most three, so that 64ths are exact.
    wanted = np.einsum(equation, *(array.astype(np.int64) for array in data.values())) * 64 // 4 ** len(shapes)
    np.testing.assert_array_equal(results(model, data)["y"], np.reshape(wanted, np.shape(wanted) or (1,)))


def test_an_einsum_that_is_none_is_invalid() -> None:
    for equation, shapes in (("ij,jk->iz", [(2, 3), (3, 2)]), ("ij", [(2,)]), ("i1->i", [(2, 2)]), ("ij,kl", [(2, 2)]),
                             ("ij,jk->ik", [(2, 3), (4, 2)]), ("ii->i", [(2, 3)])):  # fmt: skip
        with pytest.raises(Invalid):
            compiled(sandwich("Einsum", shapes, 1, {"equation": equation}, {}))


# Normalisations


ALIKE: list[tuple[str, Any, dict[str, Any], dict[str, Any], int]] = [
    ("LogSoftmax", (3, 4), {}, {}, 21), ("LogSoftmax", (3, 4), {"axis": 0}, {}, 21),
    ("MeanVarianceNormalization", (1, 2, 3, 3), {}, {}, 21),
    ("GroupNormalization", (2, 4, 3, 3), {"num_groups": 2},
     {"s": np.float32([1, 2, 0.5, 1]), "b": np.float32([0, 1, -1, 0])}, 21),
    ("RMSNormalization", (2, 3, 8), {}, {"s": floats(8)}, 23),
    ("RMSNormalization", (2, 3, 4), {"axis": 1, "epsilon": 0.5}, {"s": floats(3, 4)}, 23),
    ("LpNormalization", (3, 4), {"p": 2, "axis": 0}, {}, 21),
    ("LpPool", (1, 2, 5, 5), {"kernel_shape": [2, 3], "p": 2, "strides": [2, 1]}, {}, 21),
    ("LpPool", (1, 2, 5, 5), {"kernel_shape": [2, 2], "p": 1, "pads": [1, 0, 0, 1]}, {}, 21),
]  # fmt: skip


@pytest.mark.parametrize(("op", "shape", "attributes", "constants", "opset"), ALIKE, ids=lambda item: str(item)[:20])
def test_real_numbers_are_those_of_the_reference(
    op: str, shape: Any, attributes: Any, constants: Any, opset: int
) -> None:
    model = sandwich(op, [shape], 1, attributes, constants)
    model.opset_import[0].version = opset
    data = {"x0": codes_of(model)["x0"]}
    data["x0"].ravel()[:2] = 3, 5  # no row is all 0
    np.testing.assert_allclose(real_result(model, data), of_reference(model, data), rtol=1e-4, atol=1e-5)


def test_responses_and_norms_that_the_reference_gets_wrong() -> None:
    """The reference evaluator normalises as many channels as the batch has items, and takes no magnitudes."""
    small = float(np.float32(1e-4))
    for attributes, (before, after, alpha, beta) in (
        ({"size": 3, "alpha": 0.5, "beta": 0.5}, (1, 1, 0.5, 0.5)),
        ({"size": 4}, (1, 2, small, 0.75)),
    ):
        model = sandwich("LRN", [(1, 6, 2, 2)], 1, attributes, {})
        data = codes_of(model)
        x = data["x0"] / 4
        squares = [(x[:, max(c - before, 0) : c + after + 1] ** 2).sum(1) for c in range(6)]
        wanted = x / (1 + alpha / attributes["size"] * np.stack(squares, 1)) ** beta
        np.testing.assert_allclose(real_result(model, data), wanted, rtol=1e-9)
    model = sandwich("LpNormalization", [(3, 4)], 1, {"p": 1}, {})
    x = (data := codes_of(model))["x0"] / 4
    np.testing.assert_allclose(real_result(model, data), x / np.abs(x).sum(1, keepdims=True), rtol=1e-9)


def test_codes_of_a_root_mean_square_are_exact() -> None:
    scale = np.float32([1, 0.5, -2, 0.25, 3, 1, 1, 1])
    for op, opset, attributes in (
        ("RMSNormalization", 23, {}), ("SimplifiedLayerNormalization", 17, {"epsilon": 1e-5}),
    ):  # fmt: skip
        model = sandwich(op, [(2, 8)], 0.125, attributes, {"s": scale})
        model.opset_import[0].version = opset
        data = codes_of(model)
        epsilon, wanted = Fraction(10995116, 2**40), []
        for row in data["x0"].tolist():
            inside = Fraction(sum(x * x for x in row), 16 * 8) + epsilon
            for x, factor in zip(row, scale.tolist(), strict=True):
                # |y| = |x s / 4| / sqrt(inside); the greatest code whose lower edge, a half less, is not above it
                square = (Fraction(x) * Fraction(factor) / 4) ** 2 / inside * 64
                code = math.isqrt(math.floor(4 * square))  # floor(2 |y| / scale)
                wanted.append((code + 1) // 2 * (1 if x * factor >= 0 else -1))
        np.testing.assert_array_equal(results(model, data)["y"].ravel(), np.clip(wanted, -128, 127))


def test_a_group_normalisation_before_version_21_has_parameters_per_group() -> None:
    constants = {"s": np.float32([2, 0.5]), "b": np.float32([0, 1])}
    model = sandwich("GroupNormalization", [(1, 4, 3)], 0.25, {"num_groups": 2}, constants)
    data = codes_of(model)
    model.opset_import[0].version = 18
    newest = sandwich("GroupNormalization", [(1, 4, 3)], 0.25, {"num_groups": 2},
                      {key: value.repeat(2) for key, value in constants.items()})  # fmt: skip
    np.testing.assert_array_equal(results(model, data)["y"], results(newest, data)["y"])


def test_a_norm_of_each_channel() -> None:
    for p in (1, 2):
        model = sandwich("GlobalLpPool", [(1, 2, 3, 3)], 1, {"p": p}, {})
        data = codes_of(model)
        x = np.abs(data["x0"].astype(float) / 4).reshape(1, 2, 9)
        wanted = x.sum(2) if p == 1 else np.sqrt((x * x).sum(2))
        np.testing.assert_allclose(real_result(model, data).ravel(), wanted.ravel(), rtol=1e-12)


# com.microsoft


def test_products_of_com_microsoft() -> None:
    for shapes, attributes, formula in (
        ([(2, 4, 3), (2, 4, 5)], {"transA": 1, "alpha": 0.5}, "bki,bkj->bij"),
        ([(3, 2, 4), (2, 4, 5)], {"transBatchA": 1, "alpha": 0.5}, "ibk,bkj->bij"),
        ([(2, 3, 4), (5, 2, 4)], {"transBatchB": 1, "transB": 1, "alpha": 0.5}, "bik,jbk->bij"),
    ):
        model = in_domain(sandwich("FusedMatMul", shapes, 0.5, attributes, {}))
        data = codes_of(model)
        exact = np.einsum(formula, *(array.astype(np.int64) for array in data.values()))  # over 16, times 1/2
        np.testing.assert_array_equal(results(model, data)["y"], np.clip(np.rint(exact / 16), -128, 127))
    w = floats(4, 3)
    model = in_domain(sandwich("FusedGemm", [(2, 3)], 0.25, {"activation": "LeakyRelu", "activation_alpha": 0.5,
                                                            "transB": 1}, {"w": w}))  # fmt: skip
    data = codes_of(model)
    x = data["x0"].astype(float) / 4 @ w.T
    np.testing.assert_array_equal(results(model, data)["y"], np.rint(np.where(x > 0, x, x / 2) / 0.25))


def test_a_fused_convolution_adds_and_clips() -> None:
    w = floats(2, 2, 1, 1)
    attributes = {"activation": "Clip", "activation_params": [-1.0, 1.5]}
    constants = {"w": w, "b": np.float32([0.5, 0]), "z": np.full((1, 2, 2, 2), 0.25, np.float32)}
    model = in_domain(sandwich("FusedConv", [(1, 2, 2, 2)], 0.25, attributes, constants))
    data = codes_of(model)
    x = np.einsum("oc,nchw->nohw", w[:, :, 0, 0], data["x0"] / 4) + np.float32([0.5, 0]).reshape(1, 2, 1, 1) + 0.25
    np.testing.assert_array_equal(results(model, data)["y"], np.rint(np.clip(x, -1, 1.5) / 0.25))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_weights_of_few_bits(bits: int, zeros: bool) -> None:
    k, n, block = 20, 3, 16
    random = np.random.default_rng(bits)
    codes = random.integers(0, 2**bits, (n, 2, block))
    points = random.integers(0, 2**bits, (n, 2)) if zeros else np.full((n, 2), 2 ** (bits - 1))
    scales = np.float32([[1, 2], [0.5, 1], [0.25, 2]])

    def packed(items: Any) -> Any:
        wide = np.zeros((*items.shape[:-1], -(-items.shape[-1] * bits // 8) * 8 // bits), int)
        wide[..., : items.shape[-1]] = items
        parts = wide.reshape(*wide.shape[:-1], -1, 8 // bits)
        return sum(parts[..., i] << bits * i for i in range(8 // bits)).astype(np.uint8)

    constants = {"w": packed(codes), "s": scales.ravel()}
    if zeros:
        constants["z"] = packed(points).ravel()
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block}
    model = in_domain(sandwich("MatMulNBits", [(2, k)], 2 if bits < 8 else 64, attributes, constants))
    weights = ((codes - points[:, :, None]) * scales[:, :, None]).reshape(n, -1)[:, :k]
    data = codes_of(model)
    wanted = np.rint(data["x0"] / 4 @ weights.T / (2 if bits < 8 else 64))
    np.testing.assert_array_equal(results(model, data)["y"], np.clip(wanted, -128, 127))


def test_the_gelu_family_and_skips_of_com_microsoft() -> None:
    def inner(x: Any) -> Any:
        return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))

    def tanh(x: Any) -> Any:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    for op, shapes, formula in (
        ("BiasGelu", [(2, 3), (3,)], lambda x, b: inner(x + b)), ("FastGelu", [(2, 3), (3,)], lambda x, b: tanh(x + b)),
        ("FastGelu", [(2, 3)], tanh), ("QuickGelu", [(2, 3)], lambda x: x * sigmoid(float(np.float32(1.702)) * x)),
    ):  # fmt: skip
        model = in_domain(sandwich(op, shapes, 1, {}, {}))
        data = codes_of(model)
        np.testing.assert_allclose(real_result(model, data), formula(*(x / 4 for x in data.values())), rtol=1e-6)
    gamma, beta, bias = floats(8), floats(8), floats(8)
    model = in_domain(sandwich("SkipLayerNormalization", [(1, 2, 8), (1, 2, 8)], 1, {"epsilon": 0.25},
                               {"g": gamma, "b": beta, "s": bias}))  # fmt: skip
    node = next(node for node in model.graph.node if node.name == "tested")
    data = codes_of(model)
    total = data["x0"] / 4 + data["x1"] / 4 + bias
    centred = total - total.mean(-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + 0.25)
    np.testing.assert_allclose(real_result(model, data), centred / deviation * gamma + beta, rtol=1e-9)
    del node.output[:]
    node.output.extend(["", "", "", "result"])
    np.testing.assert_allclose(real_result(model, data), total, rtol=1e-9)


def test_channels_last_pools() -> None:
    codes = np.random.default_rng(4).integers(-9, 10, (1, 3, 3, 2)).astype(np.int8)
    fixed = {"s": np.float32(0.5), "z": np.int8(1), "t": np.float32(0.25), "u": np.int8(-1)}
    node = helper.make_node("QLinearGlobalAveragePool", ["x", "s", "z", "t", "u"], ["y"], channels_last=1,
                            domain="com.microsoft")  # fmt: skip
    model = made([node], {"x": ("int8", codes.shape)}, {"y": "int8"}, fixed)
    mean = (codes.astype(int) - 1).sum((1, 2))  # over 9, times 2
    wanted = [round(Fraction(int(item) * 2, 9)) - 1 for item in mean.ravel()]
    assert results(model, {"x": codes})["y"].ravel().tolist() == wanted


# Infinite constants


def test_infinite_constants_are_beyond_every_number() -> None:
    codes = (np.arange(6).reshape(2, 3) * 20 - 60).astype(np.int8)
    x, low, mask = codes / 4, -np.inf, np.array([[True, False, True], [True, True, False]])
    rows: list[tuple[str, Any, Any]] = [
        ("Max", np.float32(low), x), ("Min", np.float32(np.inf), x), ("Max", np.float32(np.inf), np.full((2, 3), 99.0)),
        ("Min", np.full((2, 3), low, np.float32), np.full((2, 3), -99.0)), ("Add", np.float32(low), x * 0 - 99),
        ("Add", np.float32([0, low, np.inf]), np.stack([x[:, 0], x[:, 1] * 0 - 99, x[:, 2] * 0 + 99], 1)),
        ("Max", np.full((2, 2, 3), low, np.float32), np.stack([x, x])),
    ]  # fmt: skip
    for op, constant, wanted in rows:
        found = results(sandwich(op, [(2, 3)], 0.5, {}, {"c": constant}), {"x0": codes})["y"]
        np.testing.assert_array_equal(found, np.clip(np.rint(wanted / 0.5), -128, 127))
    model = sandwich("Where", [(2, 3)], 0.5, {}, {"c": np.float32(low), "m": mask})
    node = next(node for node in model.graph.node if node.name == "tested")
    node.input[:] = ["m", "real0", "c"]
    np.testing.assert_array_equal(
        results(model, {"x0": codes})["y"], np.where(mask, np.rint(x / 0.5), -128).astype(np.int8)
    )
    with pytest.raises(Unsupported, match="infinity"):
        compiled(sandwich("Mul", [(2, 3)], 0.5, {}, {"c": np.float32(low)}))
    with pytest.raises(Unsupported, match="NaN"):
        compiled(sandwich("Max", [(2, 3)], 0.5, {}, {"c": np.float32(np.nan)}))


def test_a_causal_mask_of_infinities_is_a_constant() -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "q"], ["r"]), helper.make_node("Trilu", ["inf", "k"], ["mask"]),
        helper.make_node("Add", ["r", "mask"], ["o"]), helper.make_node("QuantizeLinear", ["o", "q", "z"], ["y"]),
    ]  # fmt: skip
    fixed = {"q": np.float32(0.25), "z": np.int8(0), "k": np.array(1), "inf": np.full((3, 3), -np.inf, np.float32)}
    model = made(nodes, {"x": ("int8", (3, 3))}, {"y": "int8"}, fixed)
    codes = np.arange(9, dtype=np.int8).reshape(3, 3)
    found = results(model, {"x": codes})["y"]
    np.testing.assert_array_equal(found, np.where(np.triu(np.ones((3, 3)), 1) > 0, -128, codes))
