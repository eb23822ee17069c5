"""Graphs of floats, built with representative inputs: what they compute, how exactly, and what their report states."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cvm import webnn
from cvm.errors import Invalid
from tests.selection import mostly_long

Floats = npt.NDArray[Any]
Draw = Callable[..., Floats]


@pytest.fixture
def draw() -> Draw:
    generator = np.random.default_rng(7)
    return lambda *shape: generator.standard_normal(shape).astype(np.float32)


def started(**options: Any) -> tuple[webnn.MLContext, webnn.MLGraphBuilder]:
    context = webnn.ML().create_context(executor="numpy", **options)
    return context, webnn.MLGraphBuilder(context)


def require_stated_error(graph: webnn.MLGraph, samples: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """What the graph gives for its samples is as far from the model as the report states, and no farther."""
    for name, error in graph.quantization_errors.items():
        found = [
            np.abs(graph.context.compute(graph, sample)[name].astype(np.float64) - real[name]).max()
            for sample, real in zip(samples, expected, strict=True)
        ]
        assert max(found) == pytest.approx(error.max_error, rel=1e-4, abs=1e-5)
        assert error.samples == len(samples)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


# The first example of the specification: two constants, two inputs, C = A + B twice, and their product


def test_the_example_of_the_specification() -> None:
    context, builder = started()
    descriptor = {"dataType": "float32", "shape": [1, 2, 2, 2]}
    half = builder.constant(descriptor, np.full(8, 0.5, np.float32))
    inputs = [builder.input(f"input{i}", descriptor) for i in (1, 2)]
    sums = [builder.add(half, item) for item in inputs]
    values = np.ones((1, 2, 2, 2), np.float32)
    sample = {"input1": values, "input2": values}
    graph = builder.build({"output": builder.mul(*sums)}, calibration=[sample])
    found = context.compute(graph, sample)["output"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, 2.25, atol=graph.quantization_errors["output"].max_error + 1e-6)
    assert graph.quantization_errors["output"].decibels > 40


def test_scale_and_bias_of_a_normalisation_may_be_inputs(draw: Draw) -> None:
    """Layer normalisation wants exact numbers for them; where they are given, the product and the sum are rounded."""
    _, builder = started()
    x = builder.input("x", ("float32", [3, 8]))
    scale, bias = builder.input("scale", ("float32", [8])), builder.input("bias", ("float32", [8]))
    samples = [{"x": draw(3, 8), "scale": draw(8), "bias": draw(8)} for _ in range(6)]
    graph = builder.build({"y": builder.layer_normalization(x, scale=scale, bias=bias)}, calibration=samples)

    def model(x: Floats, scale: Floats, bias: Floats) -> dict[str, Floats]:
        x = x.astype(np.float64)
        centred = x - x.mean(axis=1, keepdims=True)
        return {"y": centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * scale + bias}

    require_stated_error(graph, samples, [model(**sample) for sample in samples])
    assert graph.quantization_errors["y"].decibels > 30


def test_a_network_is_as_near_to_float64_as_its_report_states(draw: Draw) -> None:
    context, builder = started()
    x = builder.input("x", ("float32", [1, 2, 6, 6]))
    weights, bias, dense, shift = draw(4, 2, 3, 3), draw(4), draw(4, 5), draw(1, 5)
    hidden = builder.relu(builder.conv2d(x, builder.constant(weights), bias=builder.constant(bias)), label="first")
    mean = builder.reshape(builder.reduce_mean(hidden, axes=[2, 3]), [1, 4])
    logits = builder.gemm(mean, builder.constant(dense), c=builder.constant(shift))
    samples = [{"x": draw(1, 2, 6, 6)} for _ in range(6)]
    graph = builder.build({"p": builder.softmax(logits, 1), "logits": logits}, calibration=samples)

    def model(x: Floats) -> dict[str, Floats]:
        x = x.astype(np.float64)
        patches = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
        hidden = np.maximum(np.einsum("nchwij,ocij->nohw", patches, weights) + bias[:, None, None], 0)
        logits = hidden.mean((2, 3)) @ dense.astype(np.float64) + shift
        return {"logits": logits, "p": np.exp(logits) / np.exp(logits).sum(1, keepdims=True)}

    require_stated_error(graph, samples, [model(sample["x"]) for sample in samples])
    assert min(error.decibels for error in graph.quantization_errors.values()) > 25
    new = {"x": (samples[0]["x"] + samples[1]["x"]) / np.float32(2)}
    found, real = context.compute(graph, new), model(new["x"])
    assert np.abs(found["logits"] - real["logits"]).max() < 0.2
    assert found["p"].argmax() == real["p"].argmax()
    assert "error at most" in graph.explain()


def test_sixteen_bits_are_finer_than_eight(draw: Draw) -> None:
    samples = [{"x": draw(2, 8)} for _ in range(4)]
    found = []
    for bits in (8, 16):
        _, builder = started()
        x = builder.input("x", ("float32", [2, 8]))
        graph = builder.build({"y": builder.tanh(x)}, calibration=samples, bits=bits)
        found.append(graph.quantization_errors["y"].max_error)
    assert found[1] < found[0] / 20


def test_accumulators_go_on_unrounded_into_clipping_and_constants(draw: Draw) -> None:
    _, builder = started()
    x = builder.input("x", ("float32", [1, 4]))
    product = builder.matmul(x, builder.constant(draw(4, 3)))
    shifted = builder.add(product, builder.constant(draw(3)))
    graph = builder.build({"y": builder.clamp(shifted, min_value=-1, max_value=1)}, calibration=[{"x": draw(1, 4)}])
    tensors = graph.quantized_graph.tensors
    assert tensors[product.name].quantizer is tensors[shifted.name].quantizer is None
    assert tensors["x"].quantizer
    assert tensors["y"].quantizer


def test_quantisers_of_the_graph_are_kept(draw: Draw) -> None:
    context, builder = started()
    scale, zero = (builder.constant(item) for item in (np.full((1, 1), 0.25, np.float32), np.zeros((1, 1), np.int8)))
    x = builder.input("x", ("int8", [1, 4]))
    real = builder.dequantize_linear(x, scale, zero)
    halves = builder.quantize_linear(builder.relu(real), scale, zero)
    floats = builder.sigmoid(real)
    samples = [{"x": np.array([[-8, -1, 3, 100]], np.int8)}]
    graph = builder.build({"codes": halves, "floats": floats}, calibration=samples)
    found = context.compute(graph, samples[0])
    assert found["codes"].tolist() == [[0, 0, 3, 100]]
    assert graph.quantization_errors["codes"].max_error == 0
    np.testing.assert_allclose(found["floats"], sigmoid(samples[0]["x"] * 0.25), atol=1 / 255)


# Recurrent networks, against the formulas of the specification in float64


def lstm_step(x: Floats, h: Floats, c: Floats, w: Floats, r: Floats, b: Floats, p: Floats) -> tuple[Floats, Floats]:
    """Gates in the order i, o, f, g; all peepholes see the state of before."""
    n = h.shape[1]
    i, o, f, g = np.split(x @ w.T + h @ r.T + b, 4, axis=1)
    new = sigmoid(f + c * p[2 * n :]) * c + sigmoid(i + c * p[:n]) * np.tanh(g)
    return sigmoid(o + c * p[n : 2 * n]) * np.tanh(new), new


def gru_step(x: Floats, h: Floats, w: Floats, r: Floats, b: Floats, rb: Floats, after: bool) -> Floats:
    """Gates in the order z, r, n."""
    n = h.shape[1]
    z = sigmoid((x @ w.T + b + h @ r.T + rb)[:, :n])
    reset = sigmoid((x @ w.T + b + h @ r.T + rb)[:, n : 2 * n])
    recurrent = reset * (h @ r[2 * n :].T + rb[2 * n :]) if after else (reset * h) @ r[2 * n :].T + rb[2 * n :]
    return z * h + (1 - z) * np.tanh((x @ w.T + b)[:, 2 * n :] + recurrent)


@pytest.mark.parametrize("size", mostly_long([2, 4], always=[2]))
@pytest.mark.parametrize("direction", mostly_long(["forward", "backward", "both"], always=["backward"]))
def test_lstm_is_its_decomposition(draw: Draw, direction: str, size: int) -> None:
    steps, batch, inputs, n = size, 2, 3, size
    count = 2 if direction == "both" else 1
    w, r, b, p = draw(count, 4 * n, inputs), draw(count, 4 * n, n), draw(count, 4 * n), draw(count, 3 * n)
    h0, c0 = draw(count, batch, n), draw(count, batch, n)
    _, builder = started()
    x = builder.input("x", ("float32", [steps, batch, inputs]))
    constants = [builder.constant(item) for item in (w, r, b, p, h0, c0)]
    last, cell, sequence = builder.lstm(
        x, constants[0], constants[1], steps, n, bias=constants[2], peephole_weight=constants[3],
        initial_hidden_state=constants[4], initial_cell_state=constants[5], return_sequence=True, direction=direction,
    )  # fmt: skip
    samples = [{"x": draw(steps, batch, inputs)} for _ in range(3)]
    graph = builder.build({"last": last, "cell": cell, "sequence": sequence}, calibration=samples)

    def model(x: Floats) -> dict[str, Floats]:
        sequences, ends = np.zeros((steps, count, batch, n)), []
        for d in range(count):
            h, c = h0[d].astype(np.float64), c0[d].astype(np.float64)
            backward = d == 1 or direction == "backward"
            for t in reversed(range(steps)) if backward else range(steps):
                h, c = lstm_step(x[t].astype(np.float64), h, c, w[d], r[d], b[d], p[d])
                sequences[t, d] = h
            ends.append((h, c))
        h, c = (np.stack(part) for part in zip(*ends, strict=True))
        return {"last": h, "cell": c, "sequence": sequences}

    require_stated_error(graph, samples, [model(sample["x"]) for sample in samples])
    assert min(error.decibels for error in graph.quantization_errors.values()) > 20


@pytest.mark.sweep
@pytest.mark.parametrize(("layout", "reset_after"), [("zrn", True), ("rzn", False)])
def test_gru_is_its_decomposition(draw: Draw, layout: str, reset_after: bool) -> None:
    steps, batch, inputs, n = 3, 2, 3, 4
    w, r, b, rb = draw(12, inputs), draw(12, n), draw(12), draw(12)
    order = [("zrn".index(gate) * n + i) for gate in layout for i in range(n)]
    _, builder = started()
    x = builder.input("x", ("float32", [steps, batch, inputs]))
    given = [builder.constant(item[None, order]) for item in (w, r, b, rb)]
    (last,) = builder.gru(
        x, given[0], given[1], steps, n, bias=given[2], recurrent_bias=given[3], layout=layout, reset_after=reset_after
    )
    samples = [{"x": draw(steps, batch, inputs)} for _ in range(3)]
    graph = builder.build({"last": last}, calibration=samples)

    def model(x: Floats) -> dict[str, Floats]:
        h = np.zeros((batch, n))
        for t in range(steps):
            h = gru_step(x[t].astype(np.float64), h, w, r, b, rb, reset_after)
        return {"last": h[None]}

    require_stated_error(graph, samples, [model(sample["x"]) for sample in samples])
    assert graph.quantization_errors["last"].decibels > 20


def test_cells_are_single_steps(draw: Draw) -> None:
    batch, inputs, n = 2, 3, 2
    w, r, b, p = draw(4 * n, inputs), draw(4 * n, n), draw(4 * n), draw(3 * n)
    v, s, q = draw(3 * n, inputs), draw(3 * n, n), draw(3 * n)
    _, builder = started()
    x, h, c = (builder.input(name, ("float32", [batch, k])) for name, k in (("x", inputs), ("h", n), ("c", n)))
    w_, r_, b_, p_, v_, s_, q_ = (builder.constant(item) for item in (w, r, b, p, v, s, q))
    hidden, cell = builder.lstm_cell(x, w_, r_, h, c, n, bias=b_, peephole_weight=p_)
    unit = builder.gru_cell(x, v_, s_, h, n, recurrent_bias=q_)
    samples = [{"x": draw(batch, inputs), "h": draw(batch, n), "c": draw(batch, n)} for _ in range(3)]
    graph = builder.build({"hidden": hidden, "cell": cell, "unit": unit}, calibration=samples)

    def model(sample: dict[str, Floats]) -> dict[str, Floats]:
        x, h, c = (sample[name].astype(np.float64) for name in "xhc")
        hidden, cell = lstm_step(x, h, c, w, r, b, p)
        return {"hidden": hidden, "cell": cell, "unit": gru_step(x, h, v, s, np.zeros(3 * n), q, True)}

    require_stated_error(graph, samples, [model(sample) for sample in samples])
    assert min(error.decibels for error in graph.quantization_errors.values()) > 20


def test_recurrent_networks_need_calibration(draw: Draw) -> None:
    _, builder = started()
    x = builder.input("x", ("float32", [1, 2, 3]))
    found = builder.gru(x, builder.constant(draw(1, 12, 3)), builder.constant(draw(1, 12, 4)), 1, 4, label="units")
    with pytest.raises(webnn.NotSupportedError, match=r"\[units\] gru.*rounds its states.*calibration"):
        builder.build({"y": found[0]})


# What has another form than in a quantised region


@pytest.mark.parametrize("number", [-3.7, -1.0, -0.2, 0.0, 0.9, 2.5])
def test_casts_to_integers_truncate(number: float) -> None:
    context, builder = started()
    x = builder.input("x", ("float32", [2]))
    sample = {"x": np.array([number, 4.0], np.float32)}
    graph = builder.build({"y": builder.cast(x, "int8")}, calibration=[{"x": np.array([-4, 4], np.float32)}])
    # A number that is not near to an integer has its truncation, whatever it is rounded to.
    found = context.compute(graph, sample)["y"][0]
    near = abs(number - round(number)) < 0.05
    assert found in ([int(number), int(number) - 1, int(number) + 1] if near else [int(number)])


def test_divisors_of_both_signs_are_never_zero(draw: Draw) -> None:
    context, builder = started()
    x = builder.input("x", ("float32", [8]))
    sample = {"x": np.array([-4, -3, -2, -1, 1, 2, 3, 4], np.float32)}
    graph = builder.build({"y": builder.reciprocal(x)}, calibration=[sample])
    np.testing.assert_allclose(context.compute(graph, sample)["y"], 1 / sample["x"], atol=0.3)
    assert np.isfinite(context.compute(graph, {"x": np.zeros(8, np.float32)})["y"]).all()


def test_integers_stay_integers_beside_floats() -> None:
    context, builder = started()
    x, i = builder.input("x", ("float32", [4])), builder.input("i", ("int32", [3]), value_range=(-9, 9))
    picked = builder.gather(x, i)
    sample = {"x": np.array([0.5, -1, 2, 8], np.float32), "i": np.array([-9, 1, 9], np.int32)}
    outputs = {"y": picked, "n": builder.add(i, i), "most": builder.arg_max(x, 0)}
    graph = builder.build(outputs, calibration=[sample])
    found = context.compute(graph, sample)
    assert found["n"].tolist() == [-18, 2, 18]
    assert found["most"].tolist() == 3
    np.testing.assert_allclose(found["y"], [0.5, -1, 8], atol=graph.quantization_errors["y"].step)


# What calibration refuses


def test_samples_and_settings_are_checked(draw: Draw) -> None:
    good = {"x": draw(1, 4)}
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ([], {}, "at least one"),
        ("x", {}, "list of dictionaries"),
        ([{"y": draw(1, 4)}], {}, "inputs are"),
        ([{"x": draw(1, 5)}], {}, r"float32\[1, 5\]"),
        ([{"x": np.zeros((1, 4))}], {}, "float64"),
        ([good], {"bit": 8}, "no setting 'bit'"),
        (None, {"bits": 8}, "give calibration"),
    ]
    for samples, settings, message in wrong:
        _, builder = started()
        output = builder.exp(builder.input("x", ("float32", [1, 4])))
        with pytest.raises(webnn.MLTypeError, match=message):
            builder.build({"y": output}, calibration=samples, **settings)
    _, builder = started()
    with pytest.raises(Invalid, match=r"2\.\.16"):
        builder.build({"y": builder.exp(builder.input("x", ("float32", [1, 4])))}, calibration=good, bits=1)


def test_numbers_that_are_none_are_refused_by_the_call_that_gives_them() -> None:
    _, builder = started()
    output = builder.log(builder.input("x", ("float32", [2])), label="inner")
    with pytest.raises(webnn.NotSupportedError, match=r"\[inner\] log: .*NaN or infinite.*clamp"):
        builder.build({"y": output}, calibration=[{"x": np.array([-1, 1], np.float32)}])


def test_infinite_constants_are_refused_by_name() -> None:
    _, builder = started()
    x = builder.input("x", ("float32", [2]))
    mask = builder.constant(np.array([0, -np.inf], np.float32), name="mask")
    with pytest.raises(webnn.NotSupportedError, match=r"'mask'.*infinity.*finite number"):
        builder.build({"y": builder.add(x, mask)}, calibration=[{"x": np.zeros(2, np.float32)}])


def eighths(*shape: int) -> Floats:
    """Numbers whose sums float64 holds exactly, in any order: every machine finds the same quantisers."""
    return ((np.arange(np.prod(shape)) * 7 % 23 - 11) / 8).reshape(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("settings", "kept", "digest"),
    [
        ({}, False, "5ece6212df043010d4bbc57aed6680ec69a3032a26e475145208b9385115c1af"),
        (
            {"per_channel": False, "method": "mse", "weight_bits": 4},
            False,
            "fa07156a29ba5c786a41167c444533f870ea582983d9ac09d5b565fd8e5c3c1d",
        ),
        ({"bits": 16}, False, "c7e0095397bdfbeaa67cf7f0d76dcc9f6743ea625949e480ae9115354faa17e4"),
        ({}, True, "e0201f4fd94ddde4ff2201dc96382951fe50b9cc2c19c2eca9356c9d640eaae9"),
        (
            {"method": "percentile", "percentile": 90.0},
            True,
            "a05c625f96d02740b905f5f711caa0b0513e33a61427664baca1db3a64213d24",
        ),
    ],
)
def test_the_program_of_the_same_numbers_is_the_same(settings: dict[str, Any], kept: bool, digest: str) -> None:
    """Also where the graph has a quantiser of its own, which stays (``kept``)."""
    _, builder = started()
    x = builder.input("x", ("float32", [1, 2, 5, 5]))
    value: Any = x
    if kept:
        scale, zero = builder.constant(np.full((1, 1, 1, 1), 0.125, np.float32)), np.zeros((1, 1, 1, 1), np.int8)
        codes = builder.quantize_linear(x, scale, builder.constant(zero))
        value = builder.dequantize_linear(codes, scale, builder.constant(zero))
    weights, bias, dense = eighths(3, 2, 3, 3), eighths(3), eighths(27, 4)
    hidden = builder.relu(builder.conv2d(value, builder.constant(weights), bias=builder.constant(bias)))
    logits = builder.gemm(builder.reshape(hidden, [1, 27]), builder.constant(dense))
    outputs = {"y": builder.max(logits, builder.constant(eighths(1, 4))), "r": hidden}
    samples = [{"x": eighths(4, 2, 5, 5)[i : i + 1]} for i in range(4)]
    assert builder.build(outputs, calibration=samples, **settings).program.digest == digest
