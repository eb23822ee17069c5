"""The NumPy executor frees every tensor after its last reader."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence

import numpy as np
import pytest

from cvm.executors import create
from cvm.executors.numpy import KERNELS, PlannedNode
from cvm.ops import Call
from cvm.ops.ranges import Exact
from cvm.program import Output, Program, ProgramBuilder, verify


class Watch:
    """Counts, before each step, how many results of earlier steps are alive."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.alive: list[int] = []
        self._results: list[weakref.ref[np.ndarray]] = []
        for op, plan in list(KERNELS.items()):
            monkeypatch.setitem(KERNELS, op, lambda call, plan=plan: self._watched(plan(call), call))

    def _watched(self, step: PlannedNode, call: Call) -> PlannedNode:
        def run(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
            self.alive.append(sum(result() is not None for result in self._results))
            results = tuple(np.array(result) for result in step.run(arrays))
            self._results += [weakref.ref(result) for result in results]
            return results

        return PlannedNode(run, step.note, step.reads)


def count(program: Program, monkeypatch: pytest.MonkeyPatch, capture: frozenset[str] = frozenset()) -> list[int]:
    watch = Watch(monkeypatch)
    gc.disable()  # references alone must do
    try:
        create("numpy", verify(program)).run({"x": np.arange(4, dtype=np.int32)}, {}, capture)
    finally:
        gc.enable()
    return watch.alive


def chain(*outputs: str) -> Program:
    b = ProgramBuilder()
    name = b.input("x", (4,), 0, 9)
    for index in range(5):
        (name,) = b.add("negative", [name], {}, f"t{index}")
    return b.build([Output(output, output) for output in outputs])


def test_along_a_chain_one_tensor_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    assert count(chain("t4"), monkeypatch) == [0, 1, 1, 1, 1]


def test_outputs_and_captured_tensors_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    assert count(chain("t1", "t4"), monkeypatch) == [0, 1, 1, 2, 2]


def test_captured_tensors_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    assert count(chain("t4"), monkeypatch, frozenset({"t0", "t1"})) == [0, 1, 2, 3, 3]


def test_a_tensor_lives_until_its_last_reader_and_one_that_nothing_reads_dies_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = ProgramBuilder()
    x = b.input("x", (4,), 0, 9)
    (kept,) = b.add("negative", [x], {}, "kept")  # alive before: 0
    b.add("abs", [kept], {}, "unread")  # kept
    (left,) = b.add("abs", [kept], {}, "left")  # kept
    (right,) = b.add("negative", [left], {}, "right")  # kept, left
    (joined,) = b.add("elemwise_add", [right, kept], {}, "joined")  # kept, right
    (last,) = b.add("abs", [joined], {}, "last")  # joined
    assert count(b.build([Output("y", last)]), monkeypatch) == [0, 1, 1, 2, 2, 1]


def test_weights_that_planning_used_up_are_not_kept_as_constants() -> None:
    b = ProgramBuilder()
    x = b.input("x", (1, 2), 0, 9)
    w, v = b.constant([[1, 2]], "w"), b.constant([[3, 4]], "v")
    (y,) = b.add("dense", [x, w], {}, "y")
    program = b.build([Output("y", y), Output("v", v)])
    assert create("numpy", verify(program))._constants.keys() == {"v"}  # type: ignore[attr-defined]


def test_an_executor_does_not_keep_what_was_proven_alive() -> None:
    b = ProgramBuilder()
    x, w = b.input("x", (1, 2, 1, 1), 0, 9), b.constant([[[[1]], [[2]]]], "w")
    (y,) = b.add("conv2d", [x, w], {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 1})
    (row,) = b.add("flatten", [y], {})
    (table,) = b.add("cvm_lut", [b.constant([5, 6, 7], "table"), row], {})
    (m, c, s) = (b.parameter([value], name) for value, name in ((3, "m"), (4, "c"), (1, "s")))
    (z,) = b.add("requantize", [table, m, c, s], {"rounding": "half_up", "lo": 0, "hi": 9})
    verified = verify(b.build([Output("z", z)]))
    ranges = [bounds for call in verified.calls for bounds in call.ranges]
    proven = [weakref.ref(bounds.values if isinstance(bounds, Exact) else bounds.lo) for bounds in ranges]
    del ranges
    executor = create("numpy", verified)
    assert all(reference() is not None for reference in proven)
    del verified, b
    gc.collect()
    assert [reference() for reference in proven] == [None] * len(proven)
    assert executor.explain()


@pytest.mark.parametrize("op", ["dense", "conv2d"])
def test_large_weights_are_kept_as_stored_and_give_the_same_codes(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    b, items = ProgramBuilder(), np.arange(-60, 60).reshape(10, 12)
    shape = (3, 12) if op == "dense" else (3, 12, 1, 1)
    x = b.input("x", shape, -9, 9)
    w = b.constant(items.reshape(10, *shape[1:]), "w")
    attributes = {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 1} if op == "conv2d" else {}
    (y,) = b.add(op, [x, w], attributes, "y")
    verified = verify(b.build([Output("y", y)]))
    feed = {"x": np.random.default_rng(2).integers(-9, 10, shape).astype(np.int32)}
    expected = create("numpy", verified).run(feed, {}).values["y"]
    monkeypatch.setattr("cvm.executors.numpy.nn._HELD", 0)
    kept = create("numpy", verified)
    assert not kept._constants  # type: ignore[attr-defined]
    np.testing.assert_array_equal(kept.run(feed, {}).values["y"], expected)
    np.testing.assert_array_equal(expected.reshape(3, 10), feed["x"].reshape(3, 12) @ items.T)
