"""The oracle is right: it agrees with recorded float64 evaluations, with arithmetic by hand, and with brute force."""

from __future__ import annotations

import ast
import struct
import sys
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .exact import Codes, Evaluation, Model, evaluate, load, model
from .exponential import exp_bounds, floor_of_share, share_bounds
from .rational import Rational, Surd, floor_of_root, from_floats, literal
from .reader import Reference, parse_document, parse_quantisation, read_tensor
from .windows import automatic_padding

HERE = Path(__file__).resolve().parent
MODELS = HERE.parents[2] / "shared" / "models" / "digits"
NEAR = Fraction(1, 10**9)
"""A float64 evaluation may round an item otherwise if (x - min) / (max - min) * r is this close to a half."""


def folder(name: str) -> Path:
    if not (MODELS / name / "graph.quant").is_file():
        pytest.skip(f"{name}: {MODELS / name} is absent")
    return MODELS / name


def recorded_ranges(network: Model) -> Model:
    """The model with min and max rounded to float32: the ranges with which the recorded arrays were computed.

    The recorded values lie on that grid up to 1e-13 steps, and on the grid of the decimal text up to 1e-6 steps only.
    """

    def rounded(bound: Fraction) -> Fraction:
        return Fraction(float(np.float32(float(bound))))

    ranges = {name: replace(q, min=rounded(q.min), max=rounded(q.max)) for name, q in network.quantisers.items()}
    return replace(network, quantisers=ranges)


def recorded_codes(values: npt.NDArray[np.float64], network: Model, name: str) -> Codes:
    """The codes that recorded pseudo-quantised values stand for; they must lie on the grid of the recorded ranges."""
    quantiser = recorded_ranges(network).quantisers[name]
    places = (values - float(quantiser.min)) / float(quantiser.step)
    codes = np.rint(places).astype(np.int64)
    assert np.abs(places - codes).max() < 1e-9
    return codes


def recorded_trace(name: str, network: Model) -> dict[str, Codes]:
    with np.load(folder(name) / "trace_sample0_pseudoquant.npz") as file:
        return {tensor: recorded_codes(file[tensor], network, tensor) for tensor in file.files}


def differences(left: Codes, right: Codes) -> set[tuple[int, ...]]:
    return {tuple(int(i) for i in index) for index in np.argwhere(left != right)}


def run(body: str, quant: str, x: object, **stored: object) -> Evaluation:
    """Evaluates `body`, a graph from input x to output y, with the given variables as labels."""
    array = np.asarray(x, dtype=np.float64)
    variables = {label: np.asarray(items, dtype=np.float64) for label, items in stored.items()}
    lines = [f"x = external(shape = {list(array.shape)});"]
    lines += [f"{k} = variable(shape = {list(v.shape)}, label = '{k}');" for k, v in variables.items()]
    text = "version 1.0; graph g( x ) -> ( y ) {" + " ".join([*lines, body]) + "}"
    return model(text, quant, variables.__getitem__).run(array, near=NEAR)


def quant(name: str, low: str, high: str, bits: int) -> str:
    return f'"{name}": linear_quantize(min = {low}, max = {high}, bits = {bits});\n'


def nothing_stored(label: str) -> npt.NDArray[np.float64]:
    raise KeyError(label)


def fractions(value: object) -> list[Fraction]:
    assert isinstance(value, Rational)
    return [value.item(*index) for index in np.ndindex(*value.shape)]


# --- independence -----------------------------------------------------------------------------------------------------


def test_the_oracle_imports_only_itself_numpy_and_the_standard_library() -> None:
    allowed = {*sys.stdlib_module_names, "numpy"}
    for path in HERE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [str(node.module)]
            roots = {name.partition(".")[0] for name in names}
            assert roots <= allowed | ({"pytest", "hypothesis"} if path.name.startswith("test_") else set()), path
            assert not isinstance(node, ast.ImportFrom) or node.level <= 1, path


# --- recorded float64 evaluations of trained networks -----------------------------------------------------------------

NETWORKS = ["lenet_digits", "mobilenet_digits", "mlp_cancer"]


@pytest.mark.parametrize("name", NETWORKS)
def test_each_operation_on_the_trace_s_operands_and_ranges_differs_from_it_at_near_ties_only(name: str) -> None:
    network, inputs = load(folder(name)), np.load(folder(name) / "test_inputs.npy")
    trace = recorded_trace(name, network)
    assert set(trace) == set(network.quantisers)
    exact = recorded_ranges(network).run(inputs[:1], near=NEAR, continue_with=trace)
    for tensor, codes in trace.items():
        assert differences(exact.codes[tensor], codes) <= set(exact.near_ties[tensor]), tensor


@pytest.mark.parametrize("name", NETWORKS)
def test_every_tensor_of_sample_0_has_the_codes_of_the_trace(name: str) -> None:
    exact = evaluate(folder(name), np.load(folder(name) / "test_inputs.npy")[:1])
    trace = recorded_trace(name, load(folder(name)))
    assert {tensor: differences(exact[tensor], codes) for tensor, codes in trace.items()} == {
        tensor: set() for tensor in exact
    }


@pytest.mark.parametrize("name", NETWORKS)
def test_the_outputs_of_samples_0_to_19_have_the_recorded_codes(name: str) -> None:
    network, inputs = load(folder(name)), np.load(folder(name) / "test_inputs.npy")
    recorded = recorded_codes(np.load(folder(name) / "pseudoquant_probs.npy")[:20], network, "probs")
    exact = [network.run(inputs[sample : sample + 1]).codes["probs"] for sample in range(20)]
    assert differences(np.concatenate(exact), recorded) == set()


@pytest.mark.parametrize("name", ["lenet_digits", "mobilenet_digits"])
def test_only_input_pixels_of_one_half_are_exact_ties_in_samples_0_to_19(name: str) -> None:
    network, inputs = load(folder(name)), np.load(folder(name) / "test_inputs.npy")
    for sample in range(20):
        image = inputs[sample : sample + 1]
        ties = network.run(image).ties  # of 255 * k / 16, k = 0..16, only k = 8 gives half an odd integer
        assert set(ties.pop("image")) == {tuple(index) for index in np.argwhere(image == 0.5).tolist()}
        assert not any(ties.values())


@pytest.mark.parametrize("name", NETWORKS)
def test_tensors_hold_python_integers_which_cannot_overflow(name: str) -> None:
    network, inputs = load(folder(name)), np.load(folder(name) / "test_inputs.npy")
    for tensor, value in network.run(inputs[:1]).values.items():
        assert isinstance(value, Rational)
        assert all(type(item) is int for item in value.numerators.flat), tensor


# --- by hand ----------------------------------------------------------------------------------------------------------


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
    assert model(
        "version 1.0; graph g( x ) -> ( x ) { x = external(shape = [1]); }",
        quant("x", "-1.0e-05", "3", 8),
        nothing_stored,
    ).quantisers["x"].step == Fraction(300001, 255 * 100000)


def test_integer_inputs_are_codes() -> None:
    text = "version 1.0; graph g( x ) -> ( x ) { x = external(shape = [3]); }"
    network = model(text, quant("x", "-0.3", "0.7", 8), nothing_stored)
    assert network.run(np.array([0, 77, 255])).codes["x"].tolist() == [0, 77, 255]
    with pytest.raises(ValueError, match="codes"):
        network.run(np.array([0, 77, 256]))


def test_conv_pads_with_real_zeros_and_adds_a_bias_per_channel() -> None:
    body = "y = conv(x, w, b, padding = [(1, 0), (0, 1)]);"
    result = run(body, "", [[[[1, 2], [3, 4]]]], w=[[[[0.5, 1], [2, 4]]], [[[0, 0], [0, 1]]]], b=[[0.25, -1]])
    assert fractions(result.values["y"]) == [10.25, 4.25, 24.75, 9.25, 1, -1, 3, -1]


def test_the_border_of_a_quantised_input_is_zero_though_zero_is_not_the_value_of_a_code() -> None:
    body = "y = conv(x, w, 0.0, padding = [(1, 1), (1, 1)]);"
    result = run(body, quant("x", "0.1", "0.4", 2), [[[[0.1]]]], w=[[np.ones((3, 3)).tolist()]])
    assert fractions(result.values["y"]) == [Fraction(1, 10)]


@pytest.mark.parametrize(("border", "expected"), [("constant", [1, 12, 12]), ("ignore", [3, 12, 18])])
def test_avg_pool_divides_by_the_kernel_volume_or_by_the_valid_items(border: str, expected: list[int]) -> None:
    window = f"border = '{border}', padding = [(0, 0), (0, 0), (2, 1)], stride = [1, 1, 2]"
    result = run(f"y = avg_pool(x, size = [1, 1, 3], {window});", "", [[[3, 6, 27, 9]]])
    assert fractions(result.values["y"]) == expected


@pytest.mark.parametrize(("border", "expected"), [("constant", [0, -3, -1]), ("ignore", [-3, -3, -1])])
def test_max_pool_counts_the_zeros_of_a_constant_border_only(border: str, expected: list[int]) -> None:
    window = f"border = '{border}', padding = [(0, 0), (0, 0), (1, 0)]"
    result = run(f"y = max_pool(x, size = [1, 1, 2], {window});", "", [[[-3, -6, -1]]])
    assert fractions(result.values["y"]) == expected


def test_automatic_padding_follows_the_formula_also_below_zero() -> None:
    assert automatic_padding(extent=4, size=3, stride=2, dilation=1) == (0, 1)
    assert automatic_padding(extent=5, size=3, stride=1, dilation=2) == (2, 2)
    assert automatic_padding(extent=4, size=1, stride=2, dilation=1) == (-1, 0)


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


def test_roots_are_decided_beyond_every_fixed_precision() -> None:
    p, q = 1, 1  # convergents p / q of sqrt(2), alternately below and above
    for _ in range(400):
        p, q = p + 2 * q, p + q
        floors, exact = Surd(literal(0), literal(Fraction(p, q)), literal(2)).floors(Fraction(1), Fraction(0))
        assert (int(floors), bool(exact)) == (int(p * p > 2 * q * q), False)
    assert q > 10**150


@pytest.mark.parametrize(("p", "n", "d"), [(p, n, d) for p in range(-5, 6) for n in range(11) for d in (1, 2, 3)])
def test_floor_of_root_is_the_only_integer_that_squares_admit(p: int, n: int, d: int) -> None:
    for sign in (1, -1):
        floor, exact = floor_of_root(p, sign, n, d)
        # floor * d - p <= sign * sqrt(n) < (floor + 1) * d - p, each side compared by its signed square
        low, high = floor * d - p, (floor + 1) * d - p
        assert low * abs(low) <= sign * n < high * abs(high)
        assert exact == (low * abs(low) == sign * n)


def test_softmax_of_equal_logits_is_rational_and_halves_round_up() -> None:
    result = run("y = softmax(x);", quant("y", "0.0", "1.0", 8), [[0.3, 0.3], [7, 7]])
    assert result.codes["y"].tolist() == [[128, 128]] * 2  # 255 / 2 = 127.5
    assert len(result.ties["y"]) == 4
    four = run("y = softmax(x, axes = [0, 1]);", quant("y", "0.0", "1.0", 8), [[0.3, 0.3], [0.3, 0.3]])
    assert (four.codes["y"].tolist(), four.ties["y"]) == ([[64, 64]] * 2, [])  # 63.75


def test_sigmoid_and_tanh_of_zero_are_ties() -> None:
    x = [-40.0, -1.0, 0.0, 1.0, 40.0]
    sigmoid = run("y = sigmoid(x);", quant("y", "0.0", "1.0", 8), x)
    assert (sigmoid.codes["y"].tolist(), sigmoid.ties["y"]) == ([0, 69, 128, 186, 255], [(2,)])
    tanh = run("y = tanh(x);", quant("y", "-1.0", "1.0", 8), x)
    assert (tanh.codes["y"].tolist(), tanh.ties["y"]) == ([0, 30, 128, 225, 255], [(2,)])


def test_shares_are_decided_beyond_every_fixed_precision() -> None:
    with localcontext() as context:
        context.prec = 300
        ln3 = Decimal(3).ln()
        below, above = Fraction(ln3.next_minus()), Fraction(ln3.next_plus())
    # e^-gap / (e^-gap + 1) reaches 1/4 for gaps up to ln 3: four times the share then has the floor 1
    assert floor_of_share((below, Fraction(0)), Fraction(4), Fraction(0)) == (1, False)
    assert floor_of_share((above, Fraction(0)), Fraction(4), Fraction(0)) == (0, False)


@given(gaps=st.lists(st.fractions(0, 60, max_denominator=10**6), min_size=1, max_size=4))
@settings(deadline=None)
def test_share_bounds_enclose_the_share(gaps: list[Fraction]) -> None:
    shifted = (Fraction(0), *gaps)
    low, high = share_bounds(shifted, 64)
    with localcontext() as context:
        context.prec = 100
        parts = [Fraction((Decimal(-gap.numerator) / Decimal(gap.denominator)).exp()) for gap in shifted]
    share, margin = parts[0] / sum(parts), Fraction(1, 10**90)
    assert low <= share + margin
    assert share - margin <= high


@given(gap=st.fractions(min_value=0, max_value=200, max_denominator=10**12), bits=st.sampled_from([64, 128, 512]))
@settings(deadline=None)
def test_exp_bounds_enclose_the_exponential_tightly(gap: Fraction, bits: int) -> None:
    low, high = exp_bounds(gap, bits)
    with localcontext() as context:
        context.prec = 400
        quotient = Decimal(-gap.numerator) / Decimal(gap.denominator)
        around = [Fraction(x.exp()) * 2**bits for x in (quotient.next_minus(), quotient, quotient.next_plus())]
    margin = Fraction(1, 10**300)
    assert low <= around[0] * (1 + margin)
    assert around[2] * (1 - margin) <= high
    assert high - low <= 2**20


def test_binary_operations_align_shapes_at_dimension_0() -> None:
    assert fractions(run("y = mul(x, w);", "", [[1, 2], [3, 4]], w=[10, 100]).values["y"]) == [10, 20, 300, 400]
    assert fractions(run("y = sub(0.1, x);", "", [1, 2]).values["y"]) == [Fraction(-9, 10), Fraction(-19, 10)]
    assert fractions(run("y = add(x, w);", "", [1, 2], w=[[0.5, 0.25]]).values["y"]) == [1.5, 1.25, 2.5, 2.25]


def test_products_reductions_and_shapes() -> None:
    x, w = [[1, 2], [3, 4]], [[1, 10], [100, 1000]]
    cases = {
        "matmul(x, w)": [201, 2010, 403, 4030],
        "matmul(x, w, transposeA = true)": [301, 3010, 402, 4020],
        "linear(x, w, 0.5)": [21.5, 2100.5, 43.5, 4300.5],
        "sum_reduce(x, axes = [0])": [4, 6],
        "mean_reduce(x, axes = [0, 1])": [2.5],
        "max_reduce(x, axes = [1])": [2, 4],
        "concat([x, w], axis = 1)": [1, 2, 1, 10, 3, 4, 100, 1000],
    }
    for call, expected in cases.items():
        assert fractions(run(f"y = {call};", "", x, w=w).values["y"]) == expected, call
    shaped = run(
        "a = reshape(x, shape = [0, 1, -1, 1]); b = squeeze(a, axes = [1, 3]); y = unsqueeze(b, axes = [0, 3]);", "", x
    )
    assert [shaped.values[name].shape for name in "aby"] == [(2, 1, 2, 1), (2, 2), (1, 2, 2, 1)]
    assert fractions(shaped.values["y"]) == [1, 2, 3, 4]


def test_an_irrational_tensor_without_a_quantiser_is_refused_where_it_is_used() -> None:
    with pytest.raises(TypeError, match="quantise irrational results"):
        run("a = sigmoid(x); y = relu(a);", "", [1.0])


# --- files ------------------------------------------------------------------------------------------------------------


def tensor_file(items: npt.NDArray[np.floating], code: int = 0) -> bytes:
    extents = [*items.shape, *[0] * (8 - items.ndim)]
    header = struct.pack("<4s11I", b"N\xef\x01\x00", items.nbytes, items.ndim, *extents, items.itemsize * 8)
    return (header + struct.pack("<I", code)).ljust(128, b"\0") + items.tobytes()


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8"])
def test_stored_floats_are_the_dyadic_rationals_they_are(dtype: str, tmp_path: Path) -> None:
    items = np.array([[0.1, -3.0, 6.1e-5]], dtype=dtype)
    (tmp_path / "a.dat").write_bytes(tensor_file(items))
    read = read_tensor(tmp_path / "a.dat")
    assert read.dtype == items.dtype
    assert fractions(from_floats(read)) == [Fraction(float(item)) for item in items.flat]
    (tmp_path / "b.dat").write_bytes(tensor_file(items, code=0x10))
    with pytest.raises(ValueError, match="storage code 0x10"):
        read_tensor(tmp_path / "b.dat")


def test_the_reader_takes_the_flat_grammar_and_nothing_else() -> None:
    text = """version 1.0; # a comment
    graph g( a, b ) -> ( c ) { c = op<scalar>(a, [b, -1], p = [(1, 2)], e = 1.0e-05, t = true, s = "q\\"'"); }"""
    (line,) = parse_document(text).assignments
    assert line.positional == (Reference("a"), [Reference("b"), -1])
    assert line.named == {"p": [(1, 2)], "e": Fraction(1, 100000), "t": True, "s": "q\"'"}
    for wrong in ("c = a + b;", "c = op(p = 1, a);", "c = op(p = 1, p = 2);", "c = op(a)", "[c] = op(a);"):
        with pytest.raises(ValueError, match=r"expected|lexical|follows|twice"):
            parse_document("version 1.0; graph g( a ) -> ( c ) {" + wrong + "}")
    logarithmic = '"a": logarithmic_quantize(max = 1.0, bits = 8);'
    for wrong in (logarithmic, quant("a", "1.0", "1.0", 8), quant("a", "0", "1", 0), quant("a", "true", "1", 8)):
        with pytest.raises(ValueError, match=r"expected|not a"):
            parse_quantisation(wrong)
