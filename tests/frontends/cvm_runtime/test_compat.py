"""``compat="cvm-1"``: what the FORMAL backend of the library computes, to the element, or a refusal with the reason."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cvm.errors import CvmError, Invalid, Unsupported

from .backends import computed
from .library_rules import attributes_of
from .models import Op, Variable, codes, document, loaded, parameters

INT32 = 2**31 - 1


def one(op: str, shape: Sequence[int], bits: int, out: Sequence[int] | None = None, **attributes: str) -> Any:
    """A model of one op."""
    return document(Variable("data", shape, bits), Op(op, [0], [out or shape], attributes))


@pytest.mark.parametrize("precision", [1, 8, 31, 32])
@pytest.mark.parametrize("bits", [31, 32])
def test_a_right_shift_by_one_wraps_at_the_largest_integer(precision: int, bits: int) -> None:
    made = one("cvm_right_shift", (9,), bits, precision=str(precision), shift_bit="1")
    x = [INT32, INT32 - 1, INT32 - 2, 2**30, 1, 0, -1, -2, -INT32]
    bound = 2 ** (bits - 1) - 1
    clamped = np.clip(np.array(x), -bound, bound)
    attributes = attributes_of("cvm_right_shift", {"precision": str(precision), "shift_bit": "1"})
    assert (
        codes(loaded(made, compat="cvm-1"), x)
        == computed("formal", "cvm_right_shift", attributes, [clamped])[0].tolist()
    )
    alpha = 2 ** (precision - 1) - 1
    assert codes(loaded(made), x) == np.clip((clamped + 1) >> 1, -alpha, alpha).tolist()


def test_only_a_shift_that_may_wrap_takes_more_ops() -> None:
    narrow = one("cvm_right_shift", (2,), 31, precision="8", shift_bit="1")
    assert loaded(narrow).program.digest == loaded(narrow, compat="cvm-1").program.digest


@pytest.mark.parametrize("keepdims", ["True", "False"])
def test_a_maximum_over_no_axes_begins_at_zero(keepdims: str) -> None:
    out = (1, 1) if keepdims == "True" else (1,)
    made = one("max", (2, 2), 8, out, keepdims=keepdims)
    assert codes(loaded(made), [-5, -3, -9, -7]) == [-3]
    assert codes(loaded(made, compat="cvm-1"), [-5, -3, -9, -7]) == [0]
    for others in ({"axis": "(0, 1)"}, {"exclude": "True"}):
        listed = one("max", (2, 2), 8, (1,), **others)
        assert codes(loaded(listed, compat="cvm-1"), [-5, -3, -9, -7]) == [-3]


def selection(condition: int, a: int, b: int, rows: bool = False) -> Any:
    shape = (2, 2)
    return document(
        Variable("data", (2,) if rows else shape, condition),
        Variable("a", shape, a),
        Variable("b", shape, b),
        Op("where", [0, 1, 2], [shape]),
    )


ARRAYS = parameters(("a", np.array([[1, 2], [3, 4]], np.int32)), ("b", np.array([[300, -300], [500, -500]], np.int32)))


def test_where_has_the_precision_of_its_condition_and_the_output_its_size() -> None:
    imported = loaded(selection(2, 8, 16), ARRAYS, "cvm-1")
    assert imported.model.inferred.precisions[-1] == 2
    assert imported.model.interface.output_size == 1
    assert codes(imported, [1, 0, 0, 1]) == [1, -300 + 256, 500 - 512, 4]
    correct = loaded(selection(2, 8, 16), ARRAYS)
    assert correct.model.inferred.precisions[-1] == 16
    assert codes(correct, [1, 0, 0, 1]) == [1, -300, 500, 4]


def test_rows_of_where_are_selected_or_refused() -> None:
    made = selection(2, 8, 16, rows=True)
    assert codes(loaded(made, ARRAYS), [1, 0]) == [1, 2, 500, -500]
    with pytest.raises(Unsupported, match="a quarter of each selected row") as caught:
        loaded(made, ARRAYS, "cvm-1")
    assert caught.value.code == "cvm_runtime.undefined"
    assert caught.value.location.op == "where"


@pytest.mark.parametrize(
    ("bits", "code"), [(16, None), (28, None), (29, "cvm_runtime.coarse"), (31, "cvm_runtime.coarse")]
)
def test_suppression_of_large_boxes_is_refused(bits: int, code: str | None) -> None:
    made = document(
        Variable("data", (1, 3, 6), bits), Variable("n", (1,)), Op("non_max_suppression", [0, 1], [(1, 3, 6)])
    )
    params = parameters(("n", np.array([3], np.int8)))
    if code is None:
        loaded(made, params, "cvm-1")
        return
    with pytest.raises(Unsupported) as caught:
        loaded(made, params, "cvm-1")
    assert caught.value.code == code


def test_boxes_of_more_than_30_bits_are_invalid_where_overlaps_should_be_right() -> None:
    made = document(
        Variable("data", (1, 3, 6), 31), Variable("n", (1,)), Op("non_max_suppression", [0, 1], [(1, 3, 6)])
    )
    with pytest.raises(Invalid, match="at most 30 bits") as caught:
        loaded(made, parameters(("n", np.array([3], np.int8))))
    assert caught.value.code == "cvm_runtime.precision"


def test_a_sum_that_wraps_is_refused() -> None:
    """A precision that where loses lets numbers of 32 bits be added."""
    shape = (2,)
    made = document(
        Variable("data", shape, 2),
        Variable("a", shape, 32),
        Op("where", [0, 1, 1], [shape]),
        Op("elemwise_add", [2, 2], [shape]),
    )
    params = parameters(("a", np.array([INT32, 0], np.int32)))
    with pytest.raises(Unsupported, match="modulo 2\\^32") as caught:
        loaded(made, params, "cvm-1")
    assert caught.value.code == "cvm_runtime.undefined"
    with pytest.raises(Invalid, match="33 bits"):
        loaded(made, params)


def test_a_left_shift_that_wraps_before_it_is_cut_is_refused() -> None:
    shape = (2,)
    shift = Op("cvm_left_shift", [2], [shape], {"precision": "8", "shift_bit": "30"})
    made = document(Variable("data", shape, 2), Variable("a", shape, 16), Op("where", [0, 1, 1], [shape]), shift)
    with pytest.raises(Unsupported, match="may exceed int32 before it is clipped") as caught:
        loaded(made, parameters(("a", np.array([5, 0], np.int32))), "cvm-1")
    assert caught.value.code == "cvm_runtime.undefined"
    assert codes(loaded(made, parameters(("a", np.array([1, 0], np.int32))), "cvm-1"), [0, 0]) == [127, 0]


@pytest.mark.sweep
@pytest.mark.parametrize("precision", [2, 8, 9, 16, 24, 31, 32])
def test_argmax_compares_the_lowest_bytes(precision: int) -> None:
    bound = 2 ** (precision - 1) - 1
    rng = np.random.default_rng(precision)
    made = one("negative", (1, 7), precision)
    made["postprocess"] = "argmax"
    wrapped, right = loaded(made, compat="cvm-1"), loaded(made)
    for _ in range(50):
        x = rng.integers(-bound, bound + 1, size=7)
        x[rng.integers(7)] = rng.choice([bound, -bound])
        values = -x
        assert codes(right, x.tolist()) == [int(values.argmax())]
        assert codes(wrapped, x.tolist()) == [int(values.astype(np.int8).argmax())]


@pytest.mark.parametrize("shape", [(1, 5), (5,), (3, 1), (1, 1, 4)])
def test_argmax_over_one_row_or_rows_of_one(shape: tuple[int, ...]) -> None:
    made = one("relu", shape, 8)
    made["postprocess"] = "argmax"
    x = [3, 1, 4, 1, 5][: int(np.prod(shape))]
    expected = np.argmax(np.reshape(x, shape), axis=-1).ravel().tolist()
    for compat in ("correct", "cvm-1"):
        imported = loaded(made, compat=compat)
        assert codes(imported, x) == expected
        assert imported.model.interface.output_length == 4 * len(expected)


def test_argmax_of_several_heads_is_one_after_the_other() -> None:
    nodes = [Variable("data", (2, 3)), Op("negative", [0], [(2, 3)]), Op("reshape", [0], [(6,)], {"shape": "(-1,)"})]
    made = document(*nodes, heads=[1, 2]) | {"postprocess": "argmax"}
    imported = loaded(made)
    assert codes(imported, [1, 3, 2, 5, 4, 6]) == [0, 1, 5]
    assert imported.model.interface.output_length == 12
    with pytest.raises(Unsupported, match="argmax visits only 1 of 2 rows"):
        loaded(made, compat="cvm-1")


def test_equal_maxima_give_the_first_place() -> None:
    made = one("relu", (2, 4), 8)
    made["postprocess"] = "argmax"
    assert codes(loaded(made), [2, 7, 7, 7, -1, -1, -2, -3]) == [1, 0]


def test_a_mode_that_does_not_exist_is_invalid() -> None:
    with pytest.raises(CvmError) as caught:
        loaded(one("relu", (2,), 8), compat="cvm-2")
    assert caught.value.code == "cvm_runtime.compat"


@pytest.mark.parametrize(
    ("storage", "what"),
    [
        ([0, 0, 1, 2], "storage of another one"),
        ([0, 1, 1, 2], "overwrites a parameter"),
        ([0, 1, 0, 2], "has been overwritten"),
        ([0, 1, 2, 3], None),
    ],
)
def test_storage_plans_that_destroy_values_are_refused(storage: list[int], what: str | None) -> None:
    shape = (2,)
    made = document(
        Variable("data", shape),
        Variable("w", shape),
        Op("elemwise_add", [0, 1], [shape]),
        Op("elemwise_sub", [2, 0], [shape]),
        storage=storage,
    )
    params = parameters(("w", np.array([5, 6], np.int8)))
    assert codes(loaded(json.dumps(made), params), [1, 2]) == [5, 6]
    if what is None:
        assert codes(loaded(made, params, "cvm-1"), [1, 2]) == [5, 6]
    else:
        with pytest.raises(Unsupported, match=what):
            loaded(made, params, "cvm-1")
