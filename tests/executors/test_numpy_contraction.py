"""The proofs of the float methods, at the very limits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.executors.numpy import KERNELS, contraction
from cvm.executors.numpy.contraction import choose
from cvm.ops import Range

from .kernels import LARGEST, Array, call_of, int32, run_step


def dense(X: Array, W: Array, bound: Array | None = None, bias: Array | None = None) -> tuple[str, Array]:
    """The note and the result of dense for constant W, where |X[:, k]| <= bound[k] (by default its own maxima)."""
    largest = (np.abs(X).max(axis=0) if bound is None else bound).astype(np.int64)[None, :]
    arrays = [X, W] if bias is None else [X, W, bias]
    call = call_of("dense", arrays, constants=(1, 2)[: len(arrays) - 1], ranges={0: Range(-largest, largest)})
    step = KERNELS["dense"](call)
    (Y,) = run_step(step, call, arrays)
    return step.note, Y


def exactly(X: Array, W: Array) -> list[list[int]]:
    """X W^T in Python integers."""
    return [[sum(x * w for x, w in zip(row, column, strict=True)) for column in W.tolist()] for row in X.tolist()]


@pytest.mark.parametrize(
    ("factors", "method"),
    [
        ([2**24 - 1, 1], "float32: sum |w||x| <= 16777216 <= 2^24"),
        ([2**24, 1], "float64: sum |w||x| <= 16777217 <= 2^53"),
        ([2**24 + 1], "float64: sum |w||x| <= 16777217 <= 2^53"),
        ([2**23, 2**23], "float32: sum |w||x| <= 16777216 <= 2^24"),
        ([2**23, 2**23, 1], "float64: sum |w||x| <= 16777217 <= 2^53"),
    ],
)
def test_float32_is_chosen_up_to_sums_of_exactly_two_to_the_24(factors: list[int], method: str) -> None:
    X = int32([[1] * len(factors), [-1] * len(factors), [(-1) ** k for k in range(len(factors))]])
    for W in (int32([factors]), int32([factors[::-1]]), int32([[-w for w in factors], factors])):
        note, Y = dense(X, W)
        assert note == method
        assert Y.tolist() == exactly(X, W)


def test_127_times_127_fits_float32_1040_times_and_not_1041_times() -> None:
    for count, method in ((1040, "float32:"), (1041, "float64:")):
        X, W = np.full((1, count), 127, np.int32), np.full((3, count), 127, np.int32)
        W[1] *= -1
        W[2, ::2] *= -1
        W[:, -1] = 126  # an odd sum would not survive rounding
        W[:, 0] = 127
        note, Y = dense(X, W)
        assert note.startswith(method)
        assert Y.tolist() == exactly(X, W)


def positive(X: Array, W: Array) -> tuple[str, Array]:
    """The note and the result of dense for constant W, where 0 <= X[:, k] <= max X[:, k]."""
    largest = X.max(axis=0).astype(np.int64)[None, :]
    call = call_of("dense", [X, W], constants=(1,), ranges={0: Range(np.zeros_like(largest), largest)})
    step = KERNELS["dense"](call)
    (Y,) = run_step(step, call, [X, W])
    return step.note, Y


@pytest.mark.parametrize(
    ("weights", "method"),
    [
        ([[2**23, 2**23, -(2**23), -(2**23)]], "float32: sum |wx| by sign <= 16777216 <= 2^24"),
        ([[2**24, -(2**24)], [1, 2]], "float32: sum |wx| by sign <= 16777216 <= 2^24"),
        ([[2**24 - 1, 1, -3]], "float32: sum |wx| by sign <= 16777216 <= 2^24"),
        ([[-(2**24), -1, 5]], "float64: sum |w||x| <= 16777222 <= 2^53"),
        ([[2**24, 1, -5]], "float64: sum |w||x| <= 16777222 <= 2^53"),
        ([[2**23, -(2**23)]], "float32: sum |w||x| <= 16777216 <= 2^24"),
    ],
)
def test_products_of_both_signs_count_for_themselves_where_no_input_is_negative(
    weights: list[list[int]], method: str
) -> None:
    W = int32(weights)
    X = int32([[1] * W.shape[1], *np.eye(W.shape[1], dtype=int).tolist(), *np.tri(W.shape[1], dtype=int).tolist()])
    note, Y = positive(X, W)
    assert note == method
    assert Y.tolist() == exactly(X, W)
    assert "by sign" not in dense(X, W)[0]


@pytest.mark.parametrize("order", ["as they are drawn", "positive first", "in turn"])
def test_long_sums_of_bytes_stay_in_one_run_of_float32(order: str) -> None:
    generator = np.random.default_rng(5)
    W = generator.integers(-40, 41, (48, 4608)).astype(np.int32)
    if order == "positive first":
        W = -np.sort(-W, axis=1)
    if order == "in turn":
        W = np.abs(W) * np.where(np.arange(4608) % 2, -1, 1).astype(np.int32)
    X = generator.integers(0, 256, (33, 4608)).astype(np.int32)
    X[0], X[1] = 255, np.where(W[0] > 0, 255, 0)
    X[2] = np.where(W[0] > 0, 0, 255)
    note, Y = positive(X, W)
    largest = max(int(255 * part.sum(axis=1).max()) for part in (np.maximum(W, 0), np.maximum(-W, 0)))
    assert note == f"float32: sum |wx| by sign <= {largest} <= 2^24"
    np.testing.assert_array_equal(Y, X.astype(np.int64) @ W.T.astype(np.int64))


@pytest.mark.parametrize(("lo", "method"), [(0, "float32: sum |wx| by sign"), (-1, "float64: sum |w||x|")])
def test_conv2d_of_inputs_that_may_be_negative_bounds_both_signs_together(lo: int, method: str) -> None:
    W = int32([2**20, -(2**20)], (1, 2, 1, 1))
    X = int32([16, 16], (1, 2, 1, 1))
    attributes = {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 1}
    call = call_of("conv2d", [X, W], attributes, (1,), {0: Range.uniform(4, lo, 16)})
    step = KERNELS["conv2d"](call)
    assert step.note.startswith(method)
    assert run_step(step, call, [X])[0].ravel().tolist() == [0]


def test_a_long_reduction_is_split_into_runs_of_float32() -> None:
    X, W = np.full((16, 4096), 127, np.int32), np.full((32, 4096), 127, np.int32)
    X[1], W[1], W[2, ::2], W[3, -1] = -127, -127, -127, 126
    note, Y = dense(X, W)
    assert note == f"float32 in 4 runs: sum |w||x| <= {4096 * 127 * 127}, within a run <= 2^24"
    np.testing.assert_array_equal(Y, X.astype(np.int64) @ W.T.astype(np.int64))


def test_float64_is_chosen_up_to_sums_of_exactly_two_to_the_53_then_in_runs() -> None:
    x, w = 2**30, 2**22
    X = int32([[x, x - 511], [x - 1, x], [-x, -x]])
    note, Y = dense(X, int32([[w, -w]]), bound=int32([x, x]))
    assert note == "float64: sum |w||x| <= 9007199254740992 <= 2^53"
    assert Y.tolist() == exactly(X, int32([[w, -w]]))
    X, W = np.concatenate([X, int32([[1], [-1], [1]])], axis=1), int32([[w, -w, 1]])
    note, Y = dense(X, W, bound=int32([x, x, 1]))
    assert note == "float64 in 2 runs: sum |w||x| <= 9007199254740993, within a run <= 2^53"
    assert Y.tolist() == exactly(X, W)


def test_a_product_beyond_two_to_the_53_is_taken_in_int64_even_where_sums_leave_int64() -> None:
    W = int32([[LARGEST, -LARGEST] * 8 + [1], [-1, 1] * 8 + [0]])
    X = int32([[LARGEST] * 16 + [5], [-LARGEST] * 16 + [LARGEST], [LARGEST - 1] * 16 + [-LARGEST]])
    note, Y = dense(X, W)
    assert note == f"int64: sum |w||x| <= {16 * LARGEST**2 + LARGEST}"
    assert Y.tolist() == exactly(X, W)


def test_an_operand_that_no_float_holds_meets_only_zeros() -> None:
    note, Y = dense(int32([[2**24 + 1, 3], [LARGEST, -3]]), int32([[0, 5], [0, -(2**22)]]))
    assert note.startswith("float32:")
    assert Y.tolist() == [[15, -3 * 2**22], [-15, 3 * 2**22]]


def test_a_sum_beyond_int32_that_the_bias_brings_back_is_kept() -> None:
    X, W = int32([[2**15, 2**15]]), int32([[2**15, 2**15], [1, 1]])
    note, Y = dense(X, W, bias=int32([-5, 7]))
    assert note.startswith("float64: sum |w||x| <= 2147483648")
    assert Y.tolist() == [[2**31 - 5, 2**16 + 7]]


def test_conv2d_uses_the_true_weights_and_the_range_of_every_channel() -> None:
    W = np.zeros((2, 2, 1, 1), np.int32)
    W[0, 0], W[1, 1] = 2**20, 1
    X = np.zeros((1, 2, 1, 1), np.int32)
    X[0, :, 0, 0] = 16, 2**24
    lo = -np.array([16, 2**24], np.int64).reshape(1, 2, 1, 1)
    attributes = {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 1}
    for ranges, constants, method in (
        ({0: Range(lo, -lo)}, (1,), "float32: sum |w||x| <= 16777216 <= 2^24"),
        ({0: Range.uniform(4, -(2**24), 2**24)}, (1,), "float64:"),
        ({0: Range(lo, -lo)}, (), "float64:"),
    ):
        call = call_of("conv2d", [X, W], attributes, constants, ranges)
        step = KERNELS["conv2d"](call)
        assert step.note.startswith(method)
        (Y,) = run_step(step, call, [X, W])
        assert Y.ravel().tolist() == [2**24, 2**24]
        assert step.reads == ((0,) if constants else (0, 1))


def test_conv2d_gives_every_group_the_ranges_of_its_own_channels() -> None:
    W = int32([2**20, 1], (2, 1, 1, 1))
    attributes = {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 2}
    for bounds, method in (([16, 2**24], "float32: sum |w||x| <= 16777216"), ([2**10, 16], "float64:")):
        X = int32(bounds, (1, 2, 1, 1))
        call = call_of("conv2d", [X, W], attributes, (1,), {0: Range(-X.astype(np.int64), X.astype(np.int64))})
        step = KERNELS["conv2d"](call)
        assert step.note.startswith(method)
        (Y,) = run_step(step, call, [X])
        assert Y.ravel().tolist() == [2**20 * bounds[0], bounds[1]]


@given(
    terms=st.lists(st.lists(st.integers(0, 12), min_size=6, max_size=6), min_size=1, max_size=3),
    limit=st.integers(1, 40),
    together=st.integers(1, 20),
)
def test_runs_cover_the_reduction_within_the_limit_and_none_could_be_longer(
    terms: list[list[int]], limit: int, together: int
) -> None:
    """However many terms are computed at a time."""
    table = np.array(terms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contraction, "_TERMS", together)
        runs = contraction._runs(contraction._Terms.of(-table, None), limit)
    if runs is None:
        assert table.max() > limit
        return
    assert [k for run in runs for k in range(run.start, run.stop)] == list(range(6))
    for run in runs:
        assert table[:, run].sum(axis=1).max() <= limit
        assert run.stop == 6 or table[:, run.start : run.stop + 1].sum(axis=1).max() > limit


@pytest.fixture
def forgetful_self_test() -> Iterator[None]:
    contraction._self_test.cache_clear()
    yield
    contraction._self_test.cache_clear()


@pytest.mark.usefixtures("forgetful_self_test")
def test_a_blas_that_computes_in_less_than_its_type_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    true = np.matmul

    def coarse(a: Array, b: Array) -> Array:
        if a.dtype == np.float32:  # operands rounded to the 8 bits of bfloat16, as in "fast math" modes
            a, b = ((m.view(np.uint32) & 0xFFFF0000).view(np.float32) for m in (a, b))
        return true(a, b)

    monkeypatch.setattr(np, "matmul", coarse)
    assert choose(np.array([[5, 5]]), 1).dtype is np.float64


@given(
    kind=st.sampled_from([np.int8, np.int16, np.int32, np.int64]),
    rows=st.lists(st.lists(st.integers(-(2**62), 2**62), min_size=3, max_size=3), min_size=1, max_size=4),
    x=st.one_of(
        st.none(),
        st.lists(st.integers(0, 2**31), min_size=3, max_size=3),
        st.integers(0, 2**31).map(lambda one: [one] * 3),
    ),
)
def test_the_bound_is_the_largest_sum_of_a_row_in_integers_of_any_size(
    kind: type[np.integer], rows: list[list[int]], x: list[int] | None
) -> None:
    least, largest = np.iinfo(kind).min, np.iinfo(kind).max
    weights = np.array([[max(least, min(w, largest)) for w in row] for row in rows], kind)
    found = choose(weights, 1, None if x is None else np.array(x, np.int64))
    factors = x or [1, 1, 1]
    sums = [sum(abs(w) * f for w, f in zip(row, factors, strict=True)) for row in weights.tolist()]
    assert found.bound == max(sums)


@given(
    kind=st.sampled_from([np.int8, np.int16, np.int32]),
    rows=st.lists(st.lists(st.integers(-(2**15), 2**15), min_size=3, max_size=3), min_size=1, max_size=4),
    x=st.one_of(
        st.lists(st.integers(0, 2**17), min_size=3, max_size=3), st.integers(0, 2**17).map(lambda one: [one] * 3)
    ),
)
def test_the_bound_by_sign_is_the_larger_sum_of_one_sign(
    kind: type[np.integer], rows: list[list[int]], x: list[int]
) -> None:
    least, largest = np.iinfo(kind).min, np.iinfo(kind).max
    weights = np.array([[max(least, min(w, largest)) for w in row] for row in rows], kind)
    found = choose(weights, 1, np.array(x, np.int64), positive=True)
    terms = [[w * f for w, f in zip(row, x, strict=True)] for row in weights.tolist()]
    both = max(sum(map(abs, row)) for row in terms)
    less = max(max(sum(t for t in row if t > 0), -sum(t for t in row if t < 0)) for row in terms)
    assert found.by_sign == (less <= 2**24 < both)
    assert found.bound == (less if found.by_sign else both)


@pytest.mark.parametrize("total", [2**31 - 1, 2**31, 2**31 + 1])
def test_sums_around_32_bits_are_bounded_exactly(total: int) -> None:
    assert choose(np.array([[-(2**30), total - 2**30]]), 1).bound == total
    assert choose(np.array([[-128, 1]], np.int8), 1, np.array([2**24 - 1, total - 2**31 + 128])).bound == total


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("uniform", [True, False])
def test_a_conv2d_is_bounded_by_the_inputs_of_its_own_channels(groups: int, uniform: bool) -> None:
    random = np.random.default_rng(groups)
    X = random.integers(-9, 10, (1, 4, 5, 5)).astype(np.int32)
    W = random.integers(-128, 128, (6, 4 // groups, 3, 2)).astype(np.int32)
    X[:, :, 0, 0] = [9, -9, 9, -9] if uniform else [1, -2, 30, -400]
    largest = np.full((1, 1, 1, 1), 9) if uniform else np.abs(X).max(axis=(0, 2, 3), keepdims=True)
    attributes = {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": groups}
    call = call_of("conv2d", [X, W], attributes, constants=(1,), ranges={0: Range(-largest, largest)})
    bounds = np.broadcast_to(largest, (1, 4, 1, 1)).reshape(groups, 4 // groups, 1, 1)
    sums = [(np.abs(w) * bounds[o * groups // 6]).sum() for o, w in enumerate(W.astype(np.int64))]
    assert f"<= {max(sums)}" in KERNELS["conv2d"](call).note
