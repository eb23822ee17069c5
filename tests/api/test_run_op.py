import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cvm
from cvm.errors import CvmError, Invalid
from cvm.executors import EXECUTORS


@pytest.mark.parametrize("executor", sorted(EXECUTORS))
def test_one_op_on_arrays(executor):
    x, w = np.ones((1, 1, 3, 3), np.int8), np.ones((1, 1, 3, 3), np.uint8)
    (y,) = cvm.run_op("conv2d", [x, w], {"padding": (1, 1)}, executor=executor)
    assert y.dtype == np.int32
    assert y[0, 0].tolist() == [[4, 6, 4], [6, 9, 6], [4, 6, 4]]


@pytest.mark.parametrize("executor", sorted(EXECUTORS))
def test_parameters_are_int64(executor):
    (y,) = cvm.run_op(
        "requantize",
        [np.array([1, 2, 3]), np.array([2**40]), np.array([-(2**40)]), np.array([41])],
        {"rounding": "half_even", "lo": -10, "hi": 10},
        executor,
    )
    assert y.tolist() == [0, 0, 1]


def test_arrays_count_with_their_true_values():
    large = np.array([2**31 - 2])
    assert cvm.run_op("elemwise_add", [large, np.array([1])])[0].tolist() == [2**31 - 1]
    with pytest.raises(Invalid, match="proven") as caught:
        cvm.run_op("elemwise_add", [large, np.array([2])])
    assert caught.value.code == "program.range"


def test_ops_with_several_outputs_give_them_all():
    boxes = np.array([[[0, 60, 0, 0, 1, 1], [1, 5, 0, 0, 1, 1]]])
    count, kept = cvm.run_op("get_valid_count", [boxes], {"score_threshold": 10})
    assert count.tolist() == [1]
    assert kept.shape == boxes.shape


@pytest.mark.parametrize(
    ("op", "arrays", "attributes", "code"),
    [
        ("none", [[1]], {}, "ops.unknown"),
        ("abs", [], {}, "ops.abs.arity"),
        ("abs", [[1], [1]], {}, "ops.abs.arity"),
        ("abs", [[1]], {"axis": 1}, "ops.abs.attribute.axis"),
        ("elemwise_add", [[1], [1, 2]], {}, "ops.elemwise_add.C1"),
        ("abs", [[-(2**31)]], {}, "program.constant.value"),
        ("abs", [[2**31]], {}, "program.constant.value"),
        ("abs", [np.array([2**63], np.uint64)], {}, "input.code"),
        ("abs", [[1.5]], {}, "input.type"),
        ("abs", [[True]], {}, "input.type"),
        ("abs", [["a"]], {}, "input.type"),
        ("abs", [[[1], [1, 2]]], {}, "input.type"),
        ("abs", [[]], {}, "input.type"),
        ("abs", [np.zeros((2, 0), int)], {}, "input.shape"),
        ("abs", [5], {}, "input.shape"),
    ],
)
def test_errors_come_through(op, arrays, attributes, code):
    with pytest.raises(Invalid) as caught:
        cvm.run_op(op, arrays, attributes)
    assert caught.value.code == code


def test_an_unknown_executor_is_invalid():
    with pytest.raises(Invalid, match="there is no executor 'x'"):
        cvm.run_op("abs", [[1]], executor="x")


@given(
    st.lists(st.integers(-(2**31) + 1, 2**31 - 1), min_size=1, max_size=4),
    st.sampled_from(["abs", "negative", "relu", "elemwise_add", "broadcast_mul", "broadcast_div", "broadcast_max"]),
)
def test_executors_agree_on_an_op_or_refuse_it_alike(items, op):
    arrays = [items] if op in ("abs", "negative", "relu") else [items, items[::-1]]
    outcomes = []
    for name in EXECUTORS:
        try:
            outcomes.append([array.tolist() for array in cvm.run_op(op, arrays, executor=name)])
        except CvmError as error:
            outcomes.append(error.code)
    assert all(outcome == outcomes[0] for outcome in outcomes)
