"""The evaluator: pseudo-quantisation (7.1), variables and their updates (4.1.3, 4.8), inputs, captures, errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.errors import Invalid, Unsupported
from cvm.graph import GraphTensor, QuantizedGraph, TensorData
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer
from cvm.quantization.exact import dequantize, quantize
from cvm.reference import Reference, evaluator, statistics
from cvm.reference.registry import Array
from cvm.reference.values import Compact, pseudo_quantized
from tests.reference.graphs import computed, external, graph, operation, reals, variable

UNIT = LinearQuantizer.linear(Fraction(0), Fraction(1), 1)
QUARTERS = LinearQuantizer.linear(Fraction(0), Fraction(3, 4), 2)


def code_of(action: Callable[[], Any]) -> str:
    with pytest.raises((Invalid, Unsupported)) as caught:
        action()
    return caught.value.code


def adder(quantizer: LinearQuantizer | None = None) -> QuantizedGraph:
    """z = x + w with w = (0.1, 0.3)."""
    tensors = [external("x", (1, 2), quantizer=quantizer), variable("w", reals([0.1, 0.3]), quantizer)]
    return graph("x", "z", [*tensors, computed("z", (1, 2), quantizer)], operation("add", "z", x="x", y="w"))


def counter(quantizer: LinearQuantizer | None = None) -> QuantizedGraph:
    """next = n + x becomes n; seen = n, sum = n + next."""
    tensors = [external("x", (1, 1)), variable("n", reals([0]), quantizer)]
    tensors += [computed(name, (1, 1)) for name in ("total", "next", "seen", "sum")]
    return graph(
        "x",
        "seen sum",
        tensors,
        operation("add", "total", x="n", y="x"),
        operation("update", "next", variable="n", value="total"),
        operation("copy", "seen", x="n"),
        operation("add", "sum", x="n", y="next"),
    )


# Pseudo-quantisation


def test_without_pseudo_quantisation_quantisers_do_nothing() -> None:
    assert Reference(adder(QUARTERS)).run({"x": reals([0.1, 0.1])})["z"].tolist() == [[0.2, 0.4]]


def test_every_tensor_with_a_quantiser_is_rounded_once() -> None:
    found = Reference(adder(QUARTERS), pseudo_quantize=True).run({"x": reals([0.2, 9])}, "all")
    # x to 0.25 and 0.75, w to 0 and 0.25, z to 0.25 and 0.75 (clamped).
    assert {name: array.tolist() for name, array in found.items()} == {
        "z": [[0.25, 0.75]],
        "x": [[0.25, 0.75]],
        "w": [[0, 0.25]],
    }


def test_ties_go_up() -> None:
    assert pseudo_quantized(reals(0.5, 0.499), UNIT).tolist() == [1, 0]
    half = LinearQuantizer.zero_point((0,), (Fraction(1),), 4, signed=True, symmetric=False)
    assert pseudo_quantized(reals(-1.5, -0.5, 0.5, 1.5, 99, -99), half).tolist() == [-1, 0, 1, 2, 7, -8]


def test_a_tie_is_one_where_the_scale_is_no_float64() -> None:
    """(x - min) / (max - min) * r is 4095.5 exactly, x / scale a little less."""
    quantizer = LinearQuantizer.linear(Fraction(0), Fraction(3), 13)
    assert quantize(reals(1.5), quantizer).tolist() == [4096]
    np.testing.assert_allclose(pseudo_quantized(reals(1.5), quantizer), [4096 / 8191 * 3], rtol=1e-15)


def test_other_roundings() -> None:
    one, zero = (Fraction(1),), (Fraction(0),)
    x = reals(-1.5, -0.5, 0.5, 1.5, 2.5)
    even = LinearQuantizer(one, zero, -8, 7, rounding="half_even")
    assert pseudo_quantized(x, even).tolist() == [-2, 0, 0, 2, 2]
    down = LinearQuantizer(one, zero, -8, 7, rounding="toward_zero")
    assert pseudo_quantized(x, down).tolist() == [-1, 0, 0, 1, 2]


def test_quantisers_per_channel() -> None:
    by_zero_point = LinearQuantizer.zero_point((0, 1), (Fraction(1), Fraction(2)), 3, True, False, axis=1)
    x = reals([1.6, 1.6], [-20, -20])
    assert pseudo_quantized(x, by_zero_point).tolist() == [[2, 2], [-4, -10]]
    by_range = LinearQuantizer.min_max((Fraction(0), Fraction(0)), (Fraction(1), Fraction(4)), 1, False, False, axis=0)
    assert pseudo_quantized(x, by_range).tolist() == [[1, 1], [0, 0]]


def test_logarithmic_quantisers() -> None:
    quantizer = LogarithmicQuantizer.of(Fraction(6), 2)
    x = reals(-100, -1.5, -0.1, 0, 0.1, 1.4, 2.9, 100)
    assert pseudo_quantized(x, quantizer).tolist() == [-8, -2, -1, 0, 1, 1, 4, 8]
    tensors = [external("x", (3,), quantizer=quantizer), computed("y", (3,))]
    model = graph("x", "y", tensors, operation("copy", "y", x="x"))
    assert Reference(model).run({"x": np.array([-4, 0, 1])})["y"].tolist() == [-8, 0, 1]


@given(st.data())
def test_away_from_ties_float64_finds_the_exact_code(data: st.DataObject) -> None:
    low = Fraction(data.draw(st.integers(-999, 999)), 1000)
    high = low + Fraction(data.draw(st.integers(1, 2000)), 1000)
    bits = data.draw(st.integers(2, 8))
    signed = data.draw(st.booleans())
    quantizer = LinearQuantizer.min_max((low,), (high,), bits, signed, symmetric=False)
    x = reals(data.draw(st.floats(-2, 2)))
    steps = (Fraction(x.item()) - quantizer.offset[0]) / quantizer.scale[0] % 1
    if abs(steps - Fraction(1, 2)) > Fraction(1, 10**6):
        expected = dequantize(quantize(x, quantizer), quantizer)
        np.testing.assert_allclose(pseudo_quantized(x, quantizer), expected, rtol=1e-12, atol=1e-15)


def test_infinities_are_clamped_and_nan_stays() -> None:
    tensors = [external("x", (3,)), computed("y", (3,)), computed("z", (3,), UNIT)]
    model = graph("x", "z", tensors, operation("rcp", "y", x="x"), operation("neg", "z", x="y"))
    assert Reference(model, pseudo_quantize=True).run({"x": reals(0.0, -0.0, 1)})["z"].tolist() == [0, 1, 0]
    model = graph("x", "y", [tensors[0], computed("y", (3,), UNIT)], operation("log", "y", x="x"))
    found = Reference(model, pseudo_quantize=True).run({"x": reals(0, -1, 9)})["y"]
    assert found[[0, 2]].tolist() == [0, 1]
    assert np.isnan(found[1])


def test_stored_codes_and_literals_are_the_numbers_that_they_are() -> None:
    codes = LinearQuantizer((Fraction(1, 10),), (Fraction(1),), -128, 127)
    data = TensorData(np.array([[3, -1]], np.int8), codes)
    w = GraphTensor("w", (1, 2), "constant", data=data)
    model = graph("x", "z", [external("x", (1, 2)), w, computed("z", (1, 2))], operation("mul", "z", x="w", y="x"))
    assert Reference(model).run({"x": reals([1, 1])})["z"].tolist() == [[1.3, 0.9]]
    model = graph(
        "x",
        "z",
        [external("x", (1,)), computed("z", (1,))],
        operation("clamp", "z", x="x", a=Fraction(1, 3), b=Fraction(2**2000)),
    )
    assert Reference(model).run({"x": reals(0)})["z"].tolist() == [1 / 3]


def test_stored_codes_of_quantisers_per_channel() -> None:
    codes = LinearQuantizer((Fraction(1, 10), Fraction(2)), (Fraction(1), Fraction(-3)), -128, 127, axis=1)
    w = GraphTensor("w", (1, 2), "variable", quantizer=codes, data=TensorData(np.array([[3, -1]], np.int8), codes))
    for pseudo_quantize in (False, True):
        found = Reference(graph("", "w", [w]), pseudo_quantize).run({})
        np.testing.assert_allclose(found["w"], [[1.3, -5]], rtol=1e-15)


def test_data_types_are_kept() -> None:
    tensors = [external("x", (2,)), computed("i", (2,), dtype="integer"), computed("l", (2,), dtype="logical")]
    model = graph("x", "i l", tensors, operation("cast", "i", input="x"), operation("lt", "l", x="x", y=Fraction(0)))
    found = Reference(model).run({"x": reals(-1.5, 2.5)})
    assert found["i"].tolist() == [-1, 2]  # truncated
    assert [found[name].dtype.name for name in ("i", "l")] == ["int64", "bool"]


# State


def test_a_variable_keeps_its_value_until_the_cycle_ends() -> None:
    reference = Reference(counter())
    first = reference.run({"x": reals([2])}, "all")
    assert (first["seen"].item(), first["n"].item(), first["next"].item(), first["sum"].item()) == (0, 0, 2, 2)
    assert reference.state["n"].tolist() == [[2]]
    second = reference.run({"x": reals([3])})
    assert (second["seen"].item(), second["sum"].item()) == (2, 7)
    reference.reset()
    assert reference.state["n"].tolist() == [[0]]


def test_cycles_go_on_from_the_state() -> None:
    reference = Reference(counter())
    found = reference.run_cycles({"x": reals([[1]], [[2]], [[3]])})
    assert found["seen"].tolist() == [[[0]], [[1]], [[3]]]
    assert reference.run({"x": reals([0])})["seen"].tolist() == [[6]]


def test_every_sample_of_a_batch_begins_anew() -> None:
    reference = Reference(counter())
    reference.run({"x": reals([5])})
    cycles = reals([[1]], [[2]])
    found = reference.run_cycles({"x": np.stack([cycles, 10 * cycles])})
    assert found["sum"].tolist() == [[[[1]], [[4]]], [[[10]], [[40]]]]
    assert reference.state["n"].tolist() == [[5]]


def test_the_state_is_read_through_the_quantiser_of_the_variable() -> None:
    reference = Reference(counter(QUARTERS), pseudo_quantize=True)
    reference.run({"x": reals([0.2])})
    assert reference.state["n"].tolist() == [[0.25]]
    assert reference.run({"x": reals([9])})["seen"].tolist() == [[0.25]]
    assert reference.state["n"].tolist() == [[0.75]]


def test_variables_of_one_label_are_one_variable() -> None:
    tensors = [external("x", (1,)), variable("a", reals(0), label="S/v"), variable("b", reals(0), label="s/V")]
    tensors += [computed("r", (1,)), computed("y", (1,))]
    model = graph("x", "y", tensors, operation("update", "r", variable="a", value="x"), operation("copy", "y", x="b"))
    reference = Reference(model)
    assert [reference.run({"x": reals(i)})["y"].item() for i in (1, 2, 3)] == [0, 1, 2]
    assert {name: array.item() for name, array in reference.state.items()} == {"a": 3, "b": 3}


def test_an_error_within_a_cycle_leaves_the_state() -> None:
    tensors = [external("x", (1,)), external("i", (1,), "integer"), variable("n", reals(7))]
    tensors += [computed("r", (1,)), computed("y", (1,))]
    model = graph(
        "x i",
        "y",
        tensors,
        operation("update", "r", variable="n", value="x"),
        operation("gather", "y", {"axis": 0}, input="x", indices="i"),
    )
    reference = Reference(model)
    with pytest.raises(Invalid, match="index 9 is outside"):
        reference.run({"x": reals(1), "i": np.array([9])})
    assert reference.state["n"].tolist() == [7]


def test_state_and_results_are_copies() -> None:
    reference = Reference(counter())
    reference.state["n"][...] = 9
    found = reference.run({"x": reals([1])}, "all")
    found["n"][...] = 9
    found["next"][...] = 9
    assert reference.state["n"].tolist() == [[1]]


# Inputs and captures


def test_integers_are_codes_where_the_external_has_a_quantiser() -> None:
    reference = Reference(adder(QUARTERS))
    assert reference.run({"x": np.array([[0, 3]])}, ["x"])["x"].tolist() == [[0, 0.75]]
    assert code_of(lambda: reference.run({"x": np.array([[0, 4]])})) == "input.code"
    assert Reference(adder()).run({"x": np.array([[0, 4]])}, ["x"])["x"].tolist() == [[0, 4]]


def test_batches_stand_before_the_shape_or_in_place_of_a_leading_1() -> None:
    reference = Reference(adder())
    x = np.arange(6.0).reshape(3, 2)
    assert reference.run({"x": x})["z"].tolist() == (x + reals(0.1, 0.3)).tolist()
    assert reference.run({"x": x[:, None]})["z"].shape == (3, 1, 2)
    assert reference.run({"x": x[:1]})["z"].shape == (1, 2)


def test_inputs_agree_on_the_batch() -> None:
    tensors = [external("x", (1, 2)), external("y", (2,)), computed("z", (1, 2))]
    model = graph("x y", "z", tensors, operation("mul", "z", x="x", y=Fraction(1)))
    reference = Reference(model)
    both = {"x": np.ones((3, 2)), "y": np.ones((3, 2))}
    assert reference.run(both)["z"].shape == (3, 2)
    assert code_of(lambda: reference.run(both | {"y": np.ones((4, 2))})) == "input.batch"
    assert code_of(lambda: reference.run(both | {"y": np.ones(2)})) == "input.batch"


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({}, "input.names"),
        ({"x": reals([1, 2]), "y": reals(1)}, "input.names"),
        ({"x": reals([1, 2, 3])}, "input.shape"),
        ({"x": np.zeros((0, 2))}, "input.shape"),
        ({"x": np.zeros((2, 3, 1, 2))}, "input.shape"),
        ({"x": reals([1, np.nan])}, "input.real"),
        ({"x": reals([1, -np.inf])}, "input.real"),
        ({"x": np.array([[True, False]])}, "input.type"),
        ({"x": np.array([["1", "2"]])}, "input.type"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: dict[str, Array], code: str) -> None:
    assert code_of(lambda: Reference(adder()).run(inputs)) == code


def test_a_graph_without_state_has_no_cycles() -> None:
    assert code_of(lambda: Reference(adder()).run_cycles({"x": np.ones((2, 1, 2))})) == "input.cycles"


def test_captures_follow_the_outputs() -> None:
    reference = Reference(counter())
    inputs = {"x": reals([1])}
    assert list(reference.run(inputs)) == ["seen", "sum"]
    assert list(reference.run(inputs, "total")) == ["seen", "sum", "total"]
    assert list(reference.run(inputs, ["n", "seen"])) == ["seen", "sum", "n"]
    assert list(reference.run(inputs, "all")) == ["seen", "sum", "x", "n", "total", "next"]
    assert code_of(lambda: reference.run(inputs, ["nothing"])) == "reference.capture"


# Errors


def test_a_model_without_weights_cannot_be_evaluated() -> None:
    bare = GraphTensor("w", (1,), "variable", label="w")
    assert code_of(lambda: Reference(graph("", "w", [bare]))) == "reference.data"


def test_unknown_operations_are_unsupported() -> None:
    model = graph("x", "y", [external("x", (1,)), computed("y", (1,))], operation("mystery", "y", x="x"))
    assert code_of(lambda: Reference(model)) == "reference.operation"


def test_a_wrong_shape_is_found() -> None:
    model = graph("x", "y", [external("x", (2,)), computed("y", (3,))], operation("neg", "y", x="x"))
    with pytest.raises(Invalid, match="op neg: the shape of 'y'") as caught:
        Reference(model).run({"x": reals(1, 2)})
    assert caught.value.code == "reference.shape"


# Statistics


def test_statistics_over_samples_are_those_of_all_items_together() -> None:
    x = np.random.default_rng(1).normal(3.0, 2.0, (7, 2))
    found = statistics(Reference(adder()), {"x": x})
    assert list(found) == ["x", "w", "z"]
    for name, items in (("x", x), ("z", x + reals(0.1, 0.3))):
        expected = (items.min(), items.max(), items.mean(), items.std(ddof=1), items.size)
        figures = found[name]
        np.testing.assert_allclose((figures.min, figures.max, figures.mean, figures.std, figures.count), expected)


def test_statistics_over_cycles() -> None:
    found = statistics(Reference(counter()), {"x": reals([[1]], [[2]], [[3]])}, cycles=True)
    assert (found["n"].min, found["n"].max, found["n"].count) == (0, 3, 3)
    assert found["n"].mean == pytest.approx(4 / 3)
    single = statistics(Reference(counter()), {"x": reals([1])})["x"]
    assert (single.std, single.count) == (0, 1)


THIRDS = LinearQuantizer((Fraction(1, 3), Fraction(1, 7)), (Fraction(0), Fraction(1)), -128, 127, axis=0)


@pytest.mark.parametrize("quantizer", [QUARTERS, THIRDS])
@pytest.mark.parametrize("kind", ["constant", "variable"])
def test_large_weights_are_rounded_as_each_part_of_them_is(quantizer: LinearQuantizer, kind: Any) -> None:
    values = np.random.default_rng(3).normal(0, 9, (2, 3, 70_001)).astype(np.float32)
    w = GraphTensor("w", values.shape, kind, quantizer=quantizer, data=TensorData(values))
    tensors = [external("x", (2, 1, 1)), w, computed("y", values.shape)]
    model = graph("x", "y", tensors, operation("add", "y", x="x", y="w"))
    found = Reference(model, pseudo_quantize=True).run({"x": np.zeros((2, 1, 1))})["y"]
    assert found.dtype == np.float64
    for channel in (0, 1):
        scale, offset = (of[channel % len(of)] for of in (quantizer.scale, quantizer.offset))
        alone = replace(quantizer, scale=(scale,), offset=(offset,), axis=None)
        for cut in (slice(0, 100), slice(65_000, 66_000), slice(69_990, None)):
            part = values[channel, :, cut].astype(np.float64)
            assert (found[channel, :, cut] == pseudo_quantized(part, alone)).all()
            codes = quantize(part, alone)
            np.testing.assert_allclose(found[channel, :, cut], float(offset) + float(scale) * codes, atol=1e-9)


def test_constants_that_are_kept_narrow_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever memory they may take: products in float64, also of two constants, and a constant that is an output."""
    values = np.random.default_rng(4).normal(0, 1, (7, 7)).astype(np.float32)
    v, w = (
        GraphTensor(name, (7, 7), "constant", data=TensorData(values + shift)) for name, shift in (("v", 0), ("w", 1))
    )
    plain = {"transposeA": False, "transposeB": False}
    tensors = [external("x", (7, 7)), v, w, *(computed(name, (7, 7)) for name in ("y", "z"))]
    operations = operation("matmul", "y", A="v", B="w", **plain), operation("matmul", "z", A="x", B="y", **plain)
    model = graph("x", "z w", tensors, *operations)
    feed = {"x": np.random.default_rng(5).normal(0, 1, (7, 7))}
    wide = Reference(model).run(feed, "all")
    monkeypatch.setattr(evaluator, "_WIDE_BYTES", 0)
    narrow = Reference(model)
    held = narrow._fixed["w"]
    assert isinstance(held, Compact)
    assert held.items.dtype == np.float32
    found = narrow.run(feed, "all")
    for name, array in wide.items():
        assert found[name].dtype == array.dtype == np.float64
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("lo", [0, -128])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_large_matrix_of_codes_gives_the_same_numbers_in_parts(
    lo: int, axis: int | None, swapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codes of one byte instead of float64, and a product that is computed some columns at a time."""
    random = np.random.default_rng(3)
    values = random.normal(0, 1, (200, 300)).astype(np.float32)
    channels = 1 if axis is None else values.shape[axis]
    scale = tuple(Fraction(int(n), 10**5) for n in random.integers(900, 2500, channels))
    rounding = LinearQuantizer(scale, tuple(-(lo + 128) * s for s in scale), lo, lo + 255, axis)
    weights = GraphTensor("w", values.shape, "constant", quantizer=rounding, data=TensorData(values))
    transposes = {"transposeA": False, "transposeB": swapped}
    extents = values.shape[::-1] if swapped else values.shape
    tensors = [external("x", (3, extents[0])), weights, computed("y", (3, extents[1]))]
    model = graph("x", "y", tensors, operation("matmul", "y", transposes, A="x", B="w"))
    feed = {"x": random.normal(0, 1, (3, extents[0]))}
    wide = Reference(model, pseudo_quantize=True).run(feed, "all")
    monkeypatch.setattr(evaluator, "_WIDE_BYTES", 0)
    monkeypatch.setattr(evaluator, "_LARGE", 2**14)
    narrow = Reference(model, pseudo_quantize=True)
    held = narrow._fixed["w"]
    assert isinstance(held, Compact)
    assert held.items.dtype == (np.int8 if lo else np.uint8)
    found = narrow.run(feed, "all")
    for name, array in wide.items():
        np.testing.assert_array_equal(found[name], array)
