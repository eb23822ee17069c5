"""``session.run(.., out=..)``: codes are written into the caller's arrays, which are checked before the run."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import cvm
from cvm.errors import Invalid
from cvm.executors import EXECUTORS
from cvm.program import Output, Program, ProgramBuilder
from tests.api import small

CODES = np.array([[1, -2, 3]], np.int32)


def two(same: bool = False) -> Program:
    """-x and |x|; with ``same``, one value under two names."""
    builder = ProgramBuilder()
    x = builder.input("x", (1, 3), -9, 9)
    (y,) = builder.add("negative", [x])
    (z,) = builder.add("abs", [x])
    return builder.build([Output("minus", y), Output("size", y if same else z)])


def empty(samples: int = 1) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.full((samples, 3), 77, np.int32) for name in ("minus", "size")}


@pytest.mark.parametrize("executor", sorted(EXECUTORS))
def test_codes_are_written_into_the_arrays_and_the_result_holds_them(executor: str) -> None:
    session = cvm.Session(two(), executor)
    for samples in (1, 4):
        codes = np.concatenate([CODES * k for k in range(-1, samples - 1)])
        out = empty(samples)
        for times in (1, 0, -1):
            result = session.run({"x": codes * times}, out=out)
            assert result["minus"] is out["minus"]
            assert result["size"] is out["size"]
            assert out["minus"].tolist() == (-codes * times).tolist()
            assert out["size"].tolist() == abs(codes * times).tolist()


@pytest.mark.parametrize("executor", ["numpy", "native"])
def test_one_value_under_two_names_fills_both_arrays(executor: str) -> None:
    session, out = cvm.Session(two(same=True), executor), empty()
    session.run({"x": CODES}, out=out)
    assert out["minus"].tolist() == out["size"].tolist() == (-CODES).tolist()


def test_captured_tensors_and_receipts_come_beside_them() -> None:
    session, out = cvm.Session(two()), empty()
    result = session.run({"x": CODES}, "x", out=out)
    assert result["x"].tolist() == CODES.tolist()
    assert out["size"].tolist() == abs(CODES).tolist()
    out = empty()
    assert session.run({"x": CODES}, receipt=True, out=out).receipt is not None
    assert out["size"].tolist() == abs(CODES).tolist()


def test_a_program_with_state_writes_them_from_run_to_run() -> None:
    session, out = cvm.Session(small.counter()), {"count": np.empty((1, 2), np.int32)}
    for times in (1, 2, 3):
        session.run({"step": np.ones((1, 2), np.int32)}, out=out)
        assert out["count"].tolist() == [[100 + times, 200 + times]]


read_only = np.zeros((1, 3), np.int32)
read_only.flags.writeable = False
shared = np.zeros((2, 3), np.int32)


@pytest.mark.parametrize(
    ("out", "code", "said"),
    [
        ([], "out.names", "found list"),
        ({"minus": CODES}, "out.names", "no array for the output 'size'"),
        (empty() | {"more": CODES}, "out.names", "there is no output 'more'"),
        (empty() | {"size": [[1, 2, 3]]}, "out.type", "found list"),
        (empty() | {"size": np.zeros((1, 3), np.int64)}, "out.type", "an array of int64"),
        (empty() | {"size": np.zeros((1, 3), np.float32)}, "out.type", "an array of float32"),
        (empty() | {"size": np.zeros((1, 3), ">i4")}, "out.type", "an array of >i4"),
        (empty() | {"size": np.zeros(3, np.int32)}, "out.shape", r"shape \[1, 3\], found \[3\]"),
        (empty(2), "out.shape", r"shape \[1, 3\], found \[2, 3\]"),
        (empty() | {"size": np.zeros((1, 6), np.int32)[:, ::2]}, "out.layout", "not C-contiguous"),
        (empty() | {"size": read_only}, "out.layout", "cannot be written"),
        ({"minus": shared[:1], "size": shared.reshape(-1)[2:5].reshape(1, 3)}, "out.overlap", "the output 'minus'"),
    ],
)
@pytest.mark.parametrize("executor", ["numpy", "native"])
def test_arrays_that_do_not_fit_are_refused_before_the_run(executor: str, out: Any, code: str, said: str) -> None:
    session = cvm.Session(two(), executor)
    with pytest.raises(Invalid, match=said) as caught:
        session.run({"x": CODES}, out=out)
    assert caught.value.code == code
    good = empty()
    session.run({"x": CODES}, out=good)
    with pytest.raises(Invalid) as caught:
        session.run({"x": CODES}, out=out)
    assert caught.value.code == code


@pytest.mark.parametrize("executor", ["numpy", "native"])
def test_an_output_that_shares_memory_with_an_input_is_refused_whenever_it_comes(executor: str) -> None:
    session, out = cvm.Session(two(), executor), empty()
    for _ in range(2):
        session.run({"x": CODES}, out=out)
        out["size"][...] = 1
        with pytest.raises(Invalid) as caught:
            session.run({"x": out["size"]}, out=out)
        assert caught.value.code == "out.overlap"


def test_arrays_that_change_between_calls_are_checked_again() -> None:
    """A later call with the same objects trusts nothing that the caller may have changed."""
    session, out, given = cvm.Session(two(), "native"), empty(), CODES.copy()
    session.run({"x": given}, out=out)
    out["size"].flags.writeable = False
    with pytest.raises(Invalid) as caught:
        session.run({"x": given}, out=out)
    assert caught.value.code == "out.layout"
    out["size"].flags.writeable = True
    with pytest.raises(ValueError, match="resize"):
        out["size"].resize((10**6,), refcheck=False)
    session.run({"x": given}, out=out)
    given[0, 1] = 10
    with pytest.raises(Invalid, match=r"found 10 at \[0, 1\]") as caught:
        session.run({"x": given}, out=out)
    assert caught.value.code == "input.code"
    given[0, 1] = 4
    assert session.run({"x": given}, out=out)["size"].tolist() == [[1, 4, 3]]
    for other in (given.copy() * 2, np.asfortranarray(given * 2), (given * 2).astype(np.int64)):
        assert session.run({"x": other}, out=out)["size"].tolist() == [[2, 8, 6]]


def test_a_session_does_not_keep_the_arrays_alive() -> None:
    session = cvm.Session(two(), "native")
    for _ in range(40):
        given, out = {"x": CODES.copy()}, empty()
        session.run(given, out=out)
        references = [weakref.ref(array) for array in (*given.values(), *out.values())]
        del given, out
        gc.collect()
        assert [reference() for reference in references] == [None] * 3


def test_real_numbers_and_batches_in_place_of_a_leading_one() -> None:
    session = cvm.Session(two(), "native")
    out = {name: np.empty((5, 1, 3), np.int32) for name in ("minus", "size")}
    session.run({"x": np.stack([CODES] * 5)}, out=out)
    assert out["minus"].tolist() == [(-CODES).tolist()] * 5
    with pytest.raises(Invalid) as caught:
        session.run({"x": np.concatenate([CODES] * 5)}, out=out)
    assert caught.value.code == "out.shape"
