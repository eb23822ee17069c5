"""layer_normalization and rms_normalization: every code is that of the exact number, by a model in rationals."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.errors import Unsupported
from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph, TensorData
from cvm.lowering import lower
from cvm.quantization import LinearQuantizer
from cvm.session import Session

HALF = Fraction(1, 2)
DYADIC = st.builds(lambda n, k: Fraction(n, 2**k), st.integers(-99, 99), st.integers(0, 9))
SIZES = st.builds(Fraction, st.integers(1, 99), st.sampled_from([1, 3, 64, 127, 1000]))


def network(
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    source: LinearQuantizer,
    result: LinearQuantizer,
    epsilon: Fraction,
    scale: np.ndarray,
    bias: np.ndarray,
    name: str = "layer_normalization",
) -> QuantizedGraph:
    tensors = {
        "x": GraphTensor("x", shape, "external", quantizer=source),
        "s": GraphTensor("s", scale.shape, "constant", data=TensorData(scale)),
        "b": GraphTensor("b", bias.shape, "constant", data=TensorData(bias)),
        "y": GraphTensor("y", shape, "computed", quantizer=result),
    }
    operation = GraphOperation(
        name, {"input": "x", "scale": "s", "offset": "b"}, {"axes": axes, "epsilon": epsilon}, ("y",)
    )
    return QuantizedGraph("g", ("x",), ("y",), tensors, (operation,))


def at_least(n: Fraction, square: Fraction, bound: Fraction) -> int:
    """The sign of n / sqrt(square) - bound, for a positive square."""
    left, right = (n > 0) - (n < 0), (bound > 0) - (bound < 0)
    if left != right:
        return left - right
    difference = n * n - bound * bound * square
    return left * ((difference > 0) - (difference < 0))


def code(n: Fraction, square: Fraction, bias: Fraction, quantizer: LinearQuantizer, channel: int) -> int:
    """The code of bias + n / sqrt(square), by trying codes: what reaches one reaches all below it."""
    low, high = quantizer.lo, quantizer.hi
    while low < high:
        k = (low + high + 1) // 2
        step = quantizer.offset[channel] + (k - HALF) * quantizer.scale[channel]
        side = at_least(n, square, step - bias)
        if side > 0 or (side == 0 and (quantizer.rounding == "half_up" or k % 2 == 0)):
            low = k
        else:
            high = k - 1
    return low


def expected(
    codes: np.ndarray,
    axes: tuple[int, ...],
    source: LinearQuantizer,
    result: LinearQuantizer,
    epsilon: Fraction,
    scale: np.ndarray,
    bias: np.ndarray,
    name: str = "layer_normalization",
) -> np.ndarray:
    channel = np.indices(codes.shape)[source.axis] if source.axis is not None else np.zeros(codes.shape, int)
    reals = np.array(
        [source.offset[c] + source.scale[c] * int(q) for q, c in zip(codes.ravel(), channel.ravel(), strict=True)],
        dtype=object,
    ).reshape(codes.shape)
    count = math.prod(codes.shape[axis] for axis in axes)
    mean = reals.sum(axis=axes, keepdims=True) / Fraction(count)
    if name == "rms_normalization":
        mean = mean * Fraction(0)
    distance = reals - mean
    variance = (distance * distance).sum(axis=axes, keepdims=True) / Fraction(count) + epsilon
    parts = np.broadcast_arrays(distance, variance, scale, bias)
    found = np.empty(codes.shape, np.int64)
    for at in product(*map(range, codes.shape)):
        d, v, s, b = (part[at] for part in parts)
        place = at[result.axis] if result.axis is not None else 0
        found[at] = code(Fraction(d) * Fraction(s.item()), Fraction(v), Fraction(b.item()), result, place)
    return found


@st.composite
def draws(draw: st.DrawFn) -> tuple[object, ...]:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    axes = tuple(draw(st.sets(st.integers(0, len(shape) - 1))))
    extents = tuple(n if axis in axes else 1 for axis, n in enumerate(shape))

    def parameter() -> np.ndarray:
        items = draw(st.lists(DYADIC, min_size=math.prod(extents), max_size=math.prod(extents)))
        return np.array([float(item) for item in items], np.float32).reshape(extents)

    zero = draw(st.integers(-128, 127))
    size = draw(SIZES)
    source = LinearQuantizer((size,), (-size * zero,), -128, 127)
    rounding = draw(st.sampled_from(["half_even", "half_up"]))
    step = draw(SIZES)
    low = draw(st.integers(-9, 3))
    result = LinearQuantizer((step,), (step * draw(st.integers(-3, 3)),), low, low + draw(st.integers(1, 40)),
                             rounding=rounding)  # fmt: skip
    epsilon = draw(st.sampled_from([Fraction(1e-5), Fraction(1), Fraction(1, 2**20), Fraction(3, 7)]))
    codes = draw(st.lists(st.integers(-128, 127), min_size=math.prod(shape), max_size=math.prod(shape)))
    return np.array(codes).reshape(shape), axes, source, result, epsilon, parameter(), parameter()


@settings(max_examples=15, deadline=None)
@given(draws())
def test_every_code_is_that_of_the_exact_number(case: tuple[object, ...]) -> None:
    check(case)


@settings(max_examples=15, deadline=None)
@given(draws())
def test_every_code_is_that_of_the_exact_number_without_the_mean(case: tuple[object, ...]) -> None:
    check(case, "rms_normalization")


@pytest.mark.long
@settings(max_examples=600, deadline=None)
@given(draws())
def test_every_code_is_that_of_the_exact_number_in_many_cases(case: tuple[object, ...]) -> None:
    check(case)


def check(case: tuple[object, ...], name: str = "layer_normalization") -> None:
    codes, *rest = case
    graph = network(codes.shape, *rest, name=name)  # type: ignore[attr-defined, arg-type]
    wanted = expected(*case, name=name)  # type: ignore[arg-type]
    for op_set in (1, 2):
        program = lower(graph, op_set=op_set)
        found = Session(program, executor="numpy").run({"x": codes}, codes=True)["y"]  # type: ignore[dict-item]
        np.testing.assert_array_equal(found, wanted, err_msg=f"op-set {op_set}")


@pytest.mark.parametrize("rounding", ["half_up", "half_even"])
def test_ties_are_seen(rounding: str) -> None:
    """d = -+ 3, variance 9, epsilon 7: d / 4 = -+ 0.75, which is a tie of steps of 1/2, between 1 and 2."""
    source = LinearQuantizer((Fraction(1),), (Fraction(0),), -128, 127)
    result = LinearQuantizer((HALF,), (Fraction(0),), -128, 127, rounding=rounding)  # type: ignore[arg-type]
    one, none = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)
    codes = np.array([[1, 7]])
    case = ((1,), source, result, Fraction(7), one, none)
    for op_set in (1, 2):
        program = lower(network((1, 2), *case), op_set=op_set)
        found = Session(program, executor="numpy").run({"x": codes}, codes=True)["y"]
        np.testing.assert_array_equal(found, expected(codes, *case))
        assert found.tolist() == [[-1 if rounding == "half_up" else -2, 2]]


def test_quantisers_per_channel() -> None:
    random = np.random.default_rng(5)
    codes = random.integers(-128, 128, (2, 3, 4))
    scales, offsets = (Fraction(1, 3), Fraction(2), Fraction(1, 64)), (Fraction(0), Fraction(1, 7), Fraction(-5))
    source = LinearQuantizer(scales, offsets, -128, 127, axis=1)
    result = LinearQuantizer((Fraction(1, 30), Fraction(1, 7), Fraction(1, 64)), (Fraction(0),) * 3, -128, 127, axis=1,
                             rounding="half_even")  # fmt: skip
    scale, bias = (random.normal(size=(1, 1, 4)).astype(np.float32) for _ in range(2))
    case = ((2,), source, result, Fraction(1e-5), scale, bias)
    found = Session(lower(network(codes.shape, *case)), executor="numpy").run({"x": codes}, codes=True)["y"]
    np.testing.assert_array_equal(found, expected(codes, *case))


@pytest.mark.parametrize("op_set", [1, 2])
def test_mean_squares_of_items_with_scales_of_their_own(op_set: int) -> None:
    random = np.random.default_rng(7)
    codes = random.integers(-128, 128, (3, 4))
    scales = tuple(Fraction(float(np.float32(item))) for item in (0.013, 0.5, 0.0071, 0.25))
    source = LinearQuantizer(scales, tuple(scale * 3 for scale in scales), -128, 127, axis=1)
    result = LinearQuantizer((Fraction(1, 60),), (Fraction(0),), -128, 127, rounding="half_even")
    scale, bias = (random.normal(size=(1, 4)).astype(np.float32) for _ in range(2))
    case = ((1,), source, result, Fraction(1e-5), scale, bias)
    program = lower(network(codes.shape, *case, name="rms_normalization"), op_set=op_set)
    found = Session(program, executor="numpy").run({"x": codes}, codes=True)["y"]
    np.testing.assert_array_equal(found, expected(codes, *case, name="rms_normalization"))


@pytest.mark.parametrize("count", [96, *(pytest.param(count, marks=pytest.mark.long) for count in (256, 768))])
def test_long_rows_of_all_codes_on_every_executor(count: int) -> None:
    random = np.random.default_rng(6)
    codes = random.integers(-128, 128, (1, count))
    source = LinearQuantizer((Fraction(float(np.float32(0.031))),), (Fraction(0),), -128, 127)
    result = LinearQuantizer((Fraction(float(np.float32(0.024))),), (Fraction(0),), -128, 127, rounding="half_even")
    scale, bias = (random.normal(size=(1, count)).astype(np.float32) for _ in range(2))
    case = ((1,), source, result, Fraction(1e-5), scale, bias)
    program = lower(network(codes.shape, *case))
    wanted = expected(codes, *case)
    for executor in ("numpy", "native", "formal"):
        np.testing.assert_array_equal(Session(program, executor=executor).run({"x": codes}, codes=True)["y"], wanted)


@pytest.mark.sweep
@pytest.mark.parametrize("rounding", ["half_up", "half_even"])
@pytest.mark.parametrize("count", [1, 7, pytest.param(300, marks=pytest.mark.slow)])
def test_codes_of_sixteen_bits(count: int, rounding: str) -> None:
    """Also rows that are nearly alike, whose roots are small; and the program stays small."""
    random = np.random.default_rng(8)
    codes = random.integers(0, 2**16, (5, count))
    codes[1:3] = 2**15 + random.integers(-2, 3, (2, count))
    codes[3] = random.choice([0, 2**16 - 1], count)
    codes[4] = 77
    size, step = Fraction(float(np.float32(0.00013))), Fraction(float(np.float32(0.0001)))
    source = LinearQuantizer((size,), (-32700 * size,), 0, 2**16 - 1)
    result = LinearQuantizer((step,), (Fraction(0),), -(2**15), 2**15 - 1, rounding=rounding)  # type: ignore[arg-type]
    scale, bias = (random.normal(size=(1, count)).astype(np.float32) for _ in range(2))
    case = ((1,), source, result, Fraction(float(np.float32(1e-5))), scale, bias)
    program = lower(network(codes.shape, *case))
    found = Session(program, executor="numpy").run({"x": codes}, codes=True)["y"]
    np.testing.assert_array_equal(found, expected(codes, *case))
    assert len(program.nodes) < 2000


@pytest.mark.parametrize("bits", [8, 16])
def test_rows_of_any_width_are_two_ops_of_op_set_2(bits: int) -> None:
    """One row of 768 codes, with scales of float32: the zero is subtracted, and one op does the rest."""
    random = np.random.default_rng(bits)
    most = 2 ** (bits - 1)
    codes = random.integers(-most, most, (2, 768))
    source = LinearQuantizer(
        (Fraction(float(np.float32(9 / most))),), (Fraction(float(np.float32(9 / most))) * 3,), -most, most - 1
    )
    result = LinearQuantizer(
        (Fraction(float(np.float32(7 / most))),), (Fraction(0),), -most, most - 1, rounding="half_even"
    )
    scale, bias = (random.normal(size=(1, 768)).astype(np.float32) for _ in range(2))
    case = ((1,), source, result, Fraction(float(np.float32(1e-5))), scale, bias)
    program = lower(network(codes.shape, *case), op_set=2)
    assert [node.op for node in program.nodes] == ["broadcast_sub", "normalize"]
    found = Session(program, executor="native").run({"x": codes}, codes=True)["y"]
    np.testing.assert_array_equal(found, expected(codes, *case))


@pytest.mark.parametrize("zero", [Fraction(3), Fraction(5, 2)])
@pytest.mark.parametrize("bits", [8, 16])
def test_rows_are_divided_by_their_mean_square_in_a_few_ops_of_op_set_2(bits: int, zero: Fraction) -> None:
    """One row of 768 codes; also where zero is half-way between two codes, so that integers are doubled."""
    random = np.random.default_rng(bits)
    most = 2 ** (bits - 1)
    codes = random.integers(-most, most, (2, 768))
    size = Fraction(float(np.float32(9 / most)))
    source = LinearQuantizer((size,), (size * zero,), -most, most - 1)
    step = Fraction(float(np.float32(7 / most)))
    result = LinearQuantizer((step,), (Fraction(0),), -most, most - 1, rounding="half_even")
    scale, bias = (random.normal(size=(1, 768)).astype(np.float32) for _ in range(2))
    case = ((1,), source, result, Fraction(float(np.float32(1e-5))), scale, bias)
    program = lower(network(codes.shape, *case, name="rms_normalization"), op_set=2)
    assert len(program.nodes) <= 5
    assert program.nodes[-1].op == "normalize"
    found = Session(program, executor="native").run({"x": codes}, codes=True)["y"]
    np.testing.assert_array_equal(found, expected(codes, *case, name="rms_normalization"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"result": None}, "needs a quantiser"),
        ({"epsilon": Fraction(0)}, "epsilon must be above 0"),
        ({"result": LinearQuantizer((Fraction(1),), (Fraction(0),), 0, 2**31 - 1)}, "more than 262144 codes"),
    ],
)
def test_what_is_refused_has_a_reason(change: dict[str, object], message: str) -> None:
    source = LinearQuantizer((Fraction(1),), (Fraction(0),), -128, 127)
    one = np.ones((1, 1), np.float32)
    arguments = {"source": source, "result": source, "epsilon": Fraction(1), "scale": one, "bias": one, **change}
    with pytest.raises(Unsupported, match=message):
        lower(network((1, 2), (1,), **arguments))  # type: ignore[arg-type]
