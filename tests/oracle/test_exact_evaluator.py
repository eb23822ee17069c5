"""The evaluator shares nothing with the product, and quantises as the document and the Khronos tools say."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .exact import Undecided, model
from .harness import fractions, nothing_stored, quant, run
from .products import matrix_product, narrowed
from .quantization import (
    ALGORITHMS,
    Powers,
    Quantiser,
    linear,
    logarithmic,
    min_max_linear,
    quantise,
    zero_point_linear,
)
from .real import Real, exp, power
from .tensors import Tensor, exact, from_array, from_numbers

HERE = Path(__file__).resolve().parent


def test_the_oracle_imports_only_itself_numpy_and_the_standard_library() -> None:
    allowed = {*sys.stdlib_module_names, "numpy"}
    for path in HERE.glob("*.py"):
        tests = path.name.startswith("test_") or path.name == "harness.py"
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [str(node.module)]
            # How many examples a property tries is the only thing that these tests share with others.
            roots = {name.partition(".")[0] for name in names if not (tests and name == "tests.selection")}
            assert roots <= allowed | ({"pytest", "hypothesis"} if tests else set()), path
            assert not isinstance(node, ast.ImportFrom) or node.level <= 1, path


# --- linear quantisation ----------------------------------------------------------------------------------------------


def test_quantisation_rounds_halves_up_clamps_and_names_the_ties() -> None:
    result = run("y = relu(x);", quant("x", "-1.0", "2.0", 2), [-1.5, -1.0, -0.75, -0.5, 0.5, 1.4999, 1.5, 2.0, 2.5])
    assert result.codes["x"].tolist() == [0, 0, 0, 1, 2, 2, 3, 3, 3]
    assert result.ties["x"] == [(3,), (4,), (6,)]
    assert "y" not in result.codes
    assert fractions(result.values["y"]) == [0, 0, 0, 0, 1, 1, 2, 2, 2]


def test_a_near_tie_is_within_a_billionth_of_a_step_of_a_half() -> None:
    result = run("y = relu(x);", quant("x", "0.0", "1.0", 1), [0.5, 0.5 - 2**-31, 0.5 + 2**-31, 0.5 - 2**-29, 0.0])
    assert result.ties["x"] == [(0,)]
    assert result.near_ties["x"] == [(0,), (1,), (2,)]


def test_ranges_are_the_rationals_of_their_decimal_text() -> None:
    result = run("y = relu(x);", quant("x", "0.1", "0.4", 8), [0.1, float(np.nextafter(0.1, 0))])
    assert fractions(result.values["y"]) == [Fraction(1, 10)] * 2
    text = "version 1.0; graph g( x ) -> ( x ) { x = external(shape = [1]); }"
    (grid,) = model(text, quant("x", "-1.0e-05", "3", 8), nothing_stored).quantisers["x"].channels
    assert grid == linear(Fraction(-1, 100000), 3, 8).channels[0]
    assert fractions(grid.values(np.array([0, 1, 255]))) == [
        Fraction(-1, 100000),
        Fraction(-1, 100000) + Fraction(300001, 255 * 100000),
        3,
    ]


def test_integer_inputs_are_codes_of_a_scalar_and_values_of_other_tensors() -> None:
    text = "version 1.0; graph g( x ) -> ( x ) { x = external(shape = [3]); }"
    network = model(text, quant("x", "-0.3", "0.7", 8), nothing_stored)
    assert network.run(np.array([0, 77, 255])).codes["x"].tolist() == [0, 77, 255]
    with pytest.raises(ValueError, match="codes"):
        network.run(np.array([0, 77, 256]))
    with pytest.raises(TypeError, match="neither"):
        model(text, "", nothing_stored).run(np.array([0, 77, 255]))
    for kind, array in (("integer", np.array([0, -7, 9])), ("logical", np.array([True, False, True]))):
        typed = model(text.replace("external", f"external<{kind}>"), "", nothing_stored)
        assert fractions(typed.run(array).values["x"]) == array.tolist()


def test_nan_and_infinities_are_refused() -> None:
    for wrong in (np.nan, np.inf):
        with pytest.raises((ValueError, OverflowError)):
            run("y = relu(x);", quant("x", "0", "1", 8), [wrong])


def codes(quantiser: Quantiser, items: Sequence[object]) -> list[int]:
    array = np.empty(len(items), dtype=object)
    array[:] = [item if isinstance(item, Real) else Fraction(str(item)) for item in items]
    found: list[int] = quantise(from_numbers(array), quantiser).codes.tolist()
    return found


ITEMS = [-1000, -2, -1.25, -0.5, -0.25, 0, 0.25, 0.75, 1, 1.25, 1000]


@pytest.mark.parametrize(
    ("signed", "symmetric", "zero_point", "expected"),
    [
        (True, False, 1, [-8, -3, -1, 0, 1, 1, 2, 3, 3, 4, 7]),  # round(x / 0.5) + 1 in -8..7
        (True, True, 1, [-7, -3, -1, 0, 1, 1, 2, 3, 3, 4, 7]),
        (False, False, 3, [0, 0, 1, 2, 3, 3, 4, 5, 5, 6, 15]),
    ],
)
def test_zero_point_linear_quantize(signed: bool, symmetric: bool, zero_point: int, expected: list[int]) -> None:
    quantiser = zero_point_linear(zero_point, Fraction(1, 2), 4, signed, symmetric)
    assert codes(quantiser, ITEMS) == expected
    assert fractions(quantiser.values(np.array([3, zero_point]))) == [Fraction(3 - zero_point, 2), 0]


@pytest.mark.parametrize(
    ("signed", "symmetric", "lo", "hi", "step"),
    [
        (False, False, 0, 15, Fraction(3, 15)),
        (True, False, -8, 7, Fraction(3, 15)),
        (True, True, -7, 7, Fraction(3, 14)),
        (False, True, 0, 15, Fraction(3, 15)),
    ],
)
def test_min_max_linear_quantize(signed: bool, symmetric: bool, lo: int, hi: int, step: Fraction) -> None:
    quantiser = min_max_linear(-1, 2, 4, signed, symmetric)
    (grid,) = quantiser.channels
    assert (grid.lo, grid.hi, fractions(grid.values(np.array([grid.lo, grid.hi])))) == (lo, hi, [-1, 2])
    for item in ITEMS:
        x = min(max(Fraction(item), Fraction(-1)), Fraction(2))
        q = ((x + 1) / step + Fraction(1, 2)).__floor__()
        assert codes(quantiser, [item]) == [q + lo]
        assert fractions(quantiser.values(np.array([q + lo]))) == [q * step - 1]


def test_a_quantiser_with_lists_runs_along_the_only_fitting_axis_or_the_given_one() -> None:
    line = '"y": zero_point_linear_quantize(zero_point = [0, 1], scale = [0.5, 0.25], bits = 8, signed = true, '
    line += "symmetric = false);"
    text = "version 1.0; graph g( x ) -> ( y ) {{ x = external(shape = {}); y = copy(x); }}"
    only = model(text.format("[1, 2, 3]"), line, nothing_stored).run(np.ones((1, 2, 3)))
    assert only.codes["y"].tolist() == [[[2, 2, 2], [5, 5, 5]]]
    assert fractions(only.values["y"]) == [1] * 6
    square = text.format("[2, 2]")
    with pytest.raises(ValueError, match="needs an axis among"):
        model(square, line, nothing_stored).run(np.ones((2, 2)))
    for axis, expected in ((0, [[2, 2], [5, 5]]), (1, [[2, 5], [2, 5]])):
        result = model(square, line, nothing_stored, axes={"y": axis}).run(np.ones((2, 2)))
        assert result.codes["y"].tolist() == expected


def test_graph_quant_may_name_four_algorithms() -> None:
    assert set(ALGORITHMS) == {
        f"{kind}_quantize" for kind in ("linear", "logarithmic", "zero_point_linear", "min_max_linear")
    }


# --- logarithmic quantisation -----------------------------------------------------------------------------------------


def test_logarithmic_codes_count_exponents_from_the_least_and_carry_the_sign() -> None:
    quantiser = logarithmic(6, 2)  # m = 3, r = 3: exponents 0..3 have the codes 1..4
    assert codes(quantiser, [0, 1, -1, 2, 4, 8, -100, "0.001", "-0.001", 3, "2.8", "2.9"]) == (
        [0, 1, -1, 2, 3, 4, -4, 1, -1, 3, 2, 3]
    )
    assert fractions(quantiser.values(np.array([0, 1, -2, 4]))) == [0, 1, -2, 8]


@pytest.mark.parametrize(("bound", "highest"), [("1", 0), ("0.75", 0), ("0.5", -1), ("0.51", 0), ("6", 3), ("8", 3)])
def test_the_highest_exponent_is_the_logarithm_of_max_rounded_up(bound: str, highest: int) -> None:
    assert logarithmic(Fraction(bound), 3).channels == (Powers(highest, 3),)


def test_a_logarithmic_tie_needs_an_irrational_item_and_is_rounded_up() -> None:
    root = power(2, Fraction(1, 2))
    result = quantise(
        from_numbers(np.array([root, -root, root * 4, exp(1), root / 8], dtype=object)), logarithmic(4, 2)
    )
    assert result.codes.tolist() == [3, -3, 4, 3, 1]  # exponents 1, 1, 2 (of 2.5), 1 (of 1.44), -1 (of -2.5)
    assert result.ties == [(0,), (1,)]


@given(st.fractions(Fraction(1, 10**6), 10**6))
@settings(deadline=None)
def test_a_logarithmic_code_is_the_exponent_whose_interval_holds_the_square(x: Fraction) -> None:
    (code,) = codes(logarithmic(2**20, 8), [x])
    k = code - 1 + 20 - 255
    assert Fraction(2) ** (2 * k - 1) <= x * x < Fraction(2) ** (2 * k + 1)


def test_near_ties_of_a_logarithmic_quantiser_are_relative() -> None:
    result = quantise(from_array(np.array([np.sqrt(2), 1.42, 0.0])), logarithmic(4, 2), near=Fraction(1, 10**9))
    assert (result.codes.tolist(), result.ties, result.near_ties) == ([3, 3, 0], [], [(0,)])


# --- quantisation in the graph (7.1, 7.2) -----------------------------------------------------------------------------


def test_linear_quantize_in_the_graph_gives_codes_and_values() -> None:
    result = run("y = linear_quantize(x, min = -1.0, max = 2.0, bits = 2);", "", [-1.5, -0.5, 0.49, 0.5, 7.0])
    assert result.codes["y"].tolist() == [0, 1, 1, 2, 3]
    assert fractions(result.values["y"]) == [-1, 0, 0, 1, 2]
    twice = run("y = linear_quantize(x, -1.0, 2.0, bits = 2);", quant("y", "0", "1", 1), [-1.5, -0.5, 0.49, 0.5, 7.0])
    assert twice.codes["y"].tolist() == [0, 0, 0, 1, 1]


def test_ranges_may_be_computed_at_run_time_for_each_channel() -> None:
    body = "m = max_reduce(x, axes = [1]); y = linear_quantize(x, 0.0, m, bits = 2);"
    result = run(body, "", [[1.0, 3.0, 6.0], [0.5, 0.25, 0.0], [0.0, 0.0, -1.0]])
    assert result.codes["y"].tolist() == [[1, 2, 3], [3, 2, 0], [0, 0, 0]]
    assert fractions(result.values["y"]) == [2, 4, 6, Fraction(1, 2), Fraction(1, 3), 0, 0, 0, 0]


def test_ranges_may_be_irrational() -> None:
    body = "s = exp(x); m = max_reduce(s, axes = [0]); y = linear_quantize(s, 0.0, m, bits = 8);"
    result = run(body, "", [0.0, 1.0, -1.0, 0.5])
    assert result.codes["y"].tolist() == [94, 255, 35, 155]  # 255 * e^-1, 255, 255 * e^-2, 255 * e^-0.5
    assert result.values["y"].item(1) == exp(1)
    logarithm = run("s = exp(x); y = logarithmic_quantize(s, s, bits = 1);", "", [1.0])
    assert (logarithm.codes["y"].tolist(), fractions(logarithm.values["y"])) == ([1], [2])  # m = 2, round(1.44) = 1


def test_quantisers_of_the_khronos_tools_and_logarithms_in_the_graph() -> None:
    body = "y = zero_point_linear_quantize(x, zero_point = 1, scale = 0.5, bits = 4, signed = true, symmetric = false);"
    assert run(body, "", ITEMS).codes["y"].tolist() == [-8, -3, -1, 0, 1, 1, 2, 3, 3, 4, 7]
    body = "y = min_max_linear_quantize(x, min = -1.0, max = 2.0, bits = 4, signed = true, symmetric = true);"
    assert run(body, "", ITEMS).codes["y"].tolist() == codes(min_max_linear(-1, 2, 4, True, True), ITEMS)
    assert run("y = logarithmic_quantize(x, max = 4.0, bits = 2);", "", [0.0, 3.0, -1.0]).codes["y"].tolist() == [
        0,
        4,
        -2,
    ]


# --- chains of irrational operations ----------------------------------------------------------------------------------


def test_unquantised_irrational_operations_are_followed_exactly_to_the_next_quantiser() -> None:
    body = "a = sigmoid(x); b = mul(a, 1.5); c = tanh(b); d = sub(c, a); y = add(d, a);"
    result = run(body, quant("y", "0.0", "1.0", 8), [-2.0, 0.0, 3.0])
    wanted = [Fraction(float(np.tanh(1.5 / (1 + np.exp(-x))))) for x in (-2.0, 0.0, 3.0)]
    assert result.codes["y"].tolist() == [round(255 * item) for item in wanted]
    cancelled = run(
        "a = exp(x); b = neg(x); c = exp(b); d = mul(a, c); y = mul(d, 0.5);", quant("y", "0", "1", 8), [3.0]
    )
    assert (cancelled.codes["y"].tolist(), cancelled.ties["y"]) == ([128], [(0,)])


def test_an_equality_that_no_rule_knows_is_refused_with_a_clear_error() -> None:
    with pytest.raises(Undecided, match="400 digits"):  # ln 6 = ln 2 + ln 3
        run(
            "a = log(x); b = mul(a, w); y = sum_reduce(b, axes = [0]);",
            quant("y", "-1", "1", 1),
            [6, 2, 3],
            w=[1, -1, -1],
        )


def test_softmax_of_equal_logits_is_rational_and_halves_round_up() -> None:
    result = run("y = softmax(x);", quant("y", "0.0", "1.0", 8), [[0.3, 0.3], [7, 7]])
    assert result.codes["y"].tolist() == [[128, 128]] * 2  # 255 / 2 = 127.5
    assert len(result.ties["y"]) == 4
    four = run("y = softmax(x, axes = [0, 1]);", quant("y", "0.0", "1.0", 8), [[0.3, 0.3], [0.3, 0.3]])
    assert (four.codes["y"].tolist(), four.ties["y"]) == ([[64, 64]] * 2, [])  # 63.75


def test_the_sum_of_a_softmax_is_one() -> None:
    body = "p = softmax(x); s = sum_reduce(p, axes = [1]); y = mul(s, 0.5);"
    result = run(body, quant("y", "0", "1", 8), [[0.25, 1.5, -3.0, 0.0]])
    assert (result.codes["y"].tolist(), result.ties["y"]) == ([[128]], [(0, 0)])


def test_sigmoid_and_tanh_of_zero_are_ties() -> None:
    x = [-40.0, -1.0, 0.0, 1.0, 40.0]
    sigmoid = run("y = sigmoid(x);", quant("y", "0.0", "1.0", 8), x)
    assert (sigmoid.codes["y"].tolist(), sigmoid.ties["y"]) == ([0, 69, 128, 186, 255], [(2,)])
    tanh = run("y = tanh(x);", quant("y", "-1.0", "1.0", 8), x)
    assert (tanh.codes["y"].tolist(), tanh.ties["y"]) == ([0, 30, 128, 225, 255], [(2,)])


BATCH_NORM = "y = batch_normalization(x, m, v, o, s, epsilon = {});"


def test_batch_normalization_with_a_perfect_square_is_rational_and_its_ties_are_found() -> None:
    grid = quant("y", "0", "15", 4)
    parts = {"m": [[1, 1]], "v": [[0.25, 0.25]], "o": [[1, 1]], "s": [[3, 0.25]]}
    result = run(BATCH_NORM.format("0.0"), grid, [[2, 2]], **parts)  # 1 + 3 / 0.5 = 7; 1 + 0.25 / 0.5 = 1.5
    assert (result.codes["y"].tolist(), result.ties["y"]) == ([[7, 2]], [(0, 1)])
    decimal = run(BATCH_NORM.format("1.0e-02"), grid, [[0.25]], m=[[0]], v=[[0]], o=[[0]], s=[[1]])  # 0.25 / 0.1
    assert (decimal.codes["y"].tolist(), decimal.ties["y"]) == ([[3]], [(0, 0)])


def test_batch_normalization_with_an_irrational_root_has_no_ties() -> None:
    parts = {"m": [[0, 0, 0]], "v": [[2, 2, 2]], "o": [[0, 2, 2]], "s": [[1, -1, 0]]}
    result = run(BATCH_NORM.format("0.0"), quant("y", "0", "15", 4), [[1, 1, 1]], **parts)
    assert (result.codes["y"].tolist(), result.ties["y"]) == ([[1, 1, 2]], [])  # 0.707, 2 - 0.707, 2


# --- variables and cycles (4.1.3, 4.8) --------------------------------------------------------------------------------

COUNTER = """version 1.0; graph g( x ) -> ( r ) {
    x = external(shape = [1]); s = variable(shape = [1], label = 'State'); t = variable(shape = [1], label = 'sTATE');
    n = add(s, x); r = update(s, n); y = add(s, t); }"""


def test_updates_take_effect_at_the_end_of_the_cycle_and_labels_are_shared_whatever_their_case() -> None:
    network = model(COUNTER, "", lambda _: np.array([5.0]))
    cycles = network.run_cycles([np.array([1.0]), np.array([2.0]), np.array([4.0])])
    assert [[cycle.values[name].item(0) for name in "strny"] for cycle in cycles] == [
        [5, 5, 6, 6, 10],
        [6, 6, 8, 8, 12],
        [8, 8, 12, 12, 16],
    ]
    assert [cycle.state["state"].item(0) for cycle in cycles] == [6, 8, 12]
    assert network.run(np.array([1.0])).values["s"].item(0) == 5
    assert network.run(np.array([1.0]), state=cycles[1].state).values["s"].item(0) == 8


def test_the_state_is_read_through_the_variable_s_quantiser_and_the_result_has_its_own() -> None:
    quantisers = quant("s", "0", "10", 1) + quant("r", "0", "3", 2)
    cycles = model(COUNTER, quantisers, lambda _: np.array([6.0])).run_cycles([np.array([-7.5])] * 2)
    assert [[cycle.values[name].item(0) for name in "snrt"] for cycle in cycles] == [
        [10, Fraction(5, 2), 3, 6],  # the variable reads 10 for 6; t has no quantiser
        [0, Fraction(-15, 2), 0, Fraction(5, 2)],
    ]


def test_an_update_of_another_shape_is_refused() -> None:
    text = COUNTER.replace("n = add(s, x)", "m = add(s, x); n = concat([m, m], axis = 0)")
    with pytest.raises(ValueError, match="shape of value"):
        model(text, "", lambda _: np.array([5.0])).run(np.array([1.0]))


# --- tensors ----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 2**40, 2**70]), st.sampled_from([7, 30, 58, 62]))
@settings(deadline=None, max_examples=30)
def test_the_int64_product_is_the_product_of_python_integers(seed: int, factor: int, width: int) -> None:
    generator = np.random.default_rng(seed)
    weights = exact(generator.integers(-(2**4), 2**4, (5, 100))) * factor
    items = exact(generator.integers(-(2**width), 2**width, (100, 60))) * factor
    found = matrix_product(weights, items)
    assert (narrowed(weights, items) is None) == (width == 58 or width == 62)
    np.testing.assert_array_equal(found, np.matmul(weights, items))
    assert all(type(item) is int for item in found.flat)


def test_int64_is_used_exactly_where_no_sum_can_overflow() -> None:
    ones = exact(np.ones((1, 1 << 12), dtype=np.int64))
    limit = (2**63 - 1) // 2**12
    for largest, fits in ((limit, True), (-limit, True), (limit + 1, False), (-limit - 1, False)):
        items = exact(np.ones(1 << 12, dtype=np.int64))
        items[0] = largest
        assert (narrowed(ones, items) is not None) == fits
    fraction = exact(np.ones(1 << 12, dtype=np.int64))
    fraction[7] = Fraction(1, 2)
    assert narrowed(ones, fraction) is None


def test_the_floor_of_an_irrational_tensor_is_found_item_by_item() -> None:
    mixed = Tensor(exact(np.array([exp(1), Fraction(5, 2), 7], dtype=object)), 2)  # e / 2, 5 / 4, 7 / 2
    floors, whole = mixed.floors(Fraction(2), Fraction(0))
    assert (floors.tolist(), whole.tolist()) == ([2, 2, 7], [False, False, True])
