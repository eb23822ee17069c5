"""``session.run`` without ``out``: every call gives new arrays, whatever the calls before it were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cvm
from cvm.errors import Invalid
from cvm.executors import EXECUTORS
from cvm.program import Output, Program, ProgramBuilder
from tests.api import small

CODES = np.array([[1, -2, 3, 0], [4, 5, -6, 9]], np.int32)


def three() -> Program:
    """The outputs -x + y, |x|, and x's greatest codes; their values are computed in another order."""
    builder = ProgramBuilder()
    x, y = (builder.input(name, (2, 4), -9, 9) for name in ("x", "y"))
    (most,) = builder.add("max", [x], {"axes": (1,), "keepdims": False})
    (size,) = builder.add("abs", [x])
    (less,) = builder.add("elemwise_sub", [y, x])
    return builder.build([Output("less", less), Output("size", size), Output("most", most)])


def expected(x: Any, y: Any) -> dict[str, list[Any]]:
    return {"less": (y - x).tolist(), "size": abs(x).tolist(), "most": x.max(axis=1).tolist()}


def frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


FORMS: dict[str, Any] = {
    "plain": lambda codes: codes.copy(),
    "read-only": lambda codes: frozen(codes.copy()),
    "column by column": np.asfortranarray,
    "every second": lambda codes: np.repeat(codes, 2, axis=1)[:, ::2],
    "64 bits": lambda codes: codes.astype(np.int64),
    "other byte order": lambda codes: codes.astype(">i4"),
}


@pytest.mark.parametrize("executor", sorted(EXECUTORS))
def test_arrays_of_every_form_give_the_same_codes_in_any_order_of_calls(executor: str) -> None:
    session = cvm.Session(three(), executor)
    for number, name in enumerate(["plain", *FORMS, "plain", *reversed(FORMS)]):
        x, y = np.roll(CODES, number), CODES - number % 3
        result = session.run({"y": FORMS[name](y), "x": FORMS["plain"](x)})
        assert list(result) == ["less", "size", "most"]
        assert {name: array.tolist() for name, array in result.items()} == expected(x, y)
        result = session.run({"x": FORMS[name](x), "y": FORMS[name](y)}, codes=True)
        assert {name: array.tolist() for name, array in result.items()} == expected(x, y)


@pytest.mark.parametrize("executor", ["numpy", "native"])
def test_every_call_has_arrays_of_its_own(executor: str) -> None:
    session, feed = cvm.Session(three(), executor), {"x": CODES, "y": CODES}
    results = [session.run(feed) for _ in range(3)]
    for result in results[1:]:
        for name, array in result.items():
            assert array.dtype == np.int32
            array[...] = 77
            assert not any(np.shares_memory(array, other) for other in (CODES, results[0][name]))
    assert {name: array.tolist() for name, array in results[0].items()} == expected(CODES, CODES)


@pytest.mark.parametrize("executor", ["numpy", "native"])
def test_what_is_wrong_is_refused_after_right_calls_too(executor: str) -> None:
    session, feed = cvm.Session(three(), executor), {"x": CODES, "y": CODES}
    session.run(feed)
    beyond = CODES.copy()
    beyond[1, 3] = 10
    for wrong, code in (
        ({"x": CODES, "y": beyond}, "input.code"),
        ({"x": CODES}, "input.names"),
        ({"x": CODES, "z": CODES}, "input.names"),
        ({"x": CODES, "y": CODES[:, :3]}, "input.shape"),
    ):
        with pytest.raises(Invalid) as refused:
            session.run(wrong)
        with pytest.raises(Invalid) as first:
            cvm.Session(three(), "formal").run(wrong)
        assert refused.value.code == code
        assert str(refused.value) == str(first.value)
        assert session.run(feed)["size"].tolist() == abs(CODES).tolist()


def test_two_outputs_of_one_value_and_a_program_with_state() -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (1, 3), -9, 9)
    (y,) = builder.add("negative", [x])
    session = cvm.Session(builder.build([Output("a", y), Output("b", y)]))
    for times in (1, 2, 3):
        result = session.run({"x": np.full((1, 3), times, np.int32)})
        assert result["a"].tolist() == result["b"].tolist() == [[-times] * 3]
    session = cvm.Session(small.counter())
    for times in (1, 2, 3):
        count = session.run({"step": np.ones((1, 2), np.int32)})["count"]
        assert count.tolist() == [[100 + times, 200 + times]]
