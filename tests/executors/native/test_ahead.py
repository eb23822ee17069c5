"""The trial of a plan's kernels begins while it is planned, and leaves nothing out."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from cvm.executors.native.runtime import ahead
from cvm.executors.native.runtime.ahead import FIRST, Ahead
from cvm.executors.native.runtime.distrust import Failed

WAIT = 60


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that are their own kinds."""
    monkeypatch.setattr(ahead, "kinds", lambda kernel: frozenset({kernel}))
    monkeypatch.setattr(ahead, "kinds_of", lambda plan: frozenset(plan.functions.values()))


def plan_of(kernels: list[str]) -> Any:
    """What `Ahead` knows of a plan."""
    return SimpleNamespace(functions=dict(enumerate(kernels)))


def numbered(count: int) -> list[str]:
    """So many kernels, of different kinds."""
    return [f"kind {number}" for number in range(count)]


def see(one: Ahead, kernels: list[str]) -> None:
    """Plan some kernels."""
    for kernel in kernels:
        one.saw(kernel)


def test_kinds_of_the_first_kernels_are_tried_before_the_plan_is_made() -> None:
    tried: list[frozenset[str]] = []
    begun = threading.Event()

    def attempt(found: frozenset[str]) -> None:
        tried.append(found)
        begun.set()

    one, kernels = Ahead(attempt), numbered(FIRST + 3)
    see(one, kernels)
    assert begun.wait(WAIT)
    assert tried == [frozenset(kernels[:FIRST])]
    one.rest(plan_of(kernels))
    assert tried == [frozenset(kernels[:FIRST]), frozenset(kernels[FIRST:])]
    one.close()


@pytest.mark.parametrize("count", [0, 1, FIRST - 1])
def test_kinds_of_few_kernels_are_tried_together(count: int) -> None:
    tried: list[frozenset[str]] = []
    one, kernels = Ahead(tried.append), numbered(count)
    see(one, kernels)
    one.rest(plan_of(kernels))
    one.close()
    assert tried == [frozenset(kernels)]


def test_a_plan_that_is_made_again_has_its_own_kinds_tried() -> None:
    """The first plan was not proven; the second one has kernels of other kinds."""
    tried: list[frozenset[str]] = []
    one, kernels = Ahead(tried.append), numbered(FIRST)
    see(one, [*kernels, "plain"])
    one.rest(plan_of(["plain", kernels[0]]))
    one.close()
    assert tried == [frozenset(kernels), {"plain"}]


def test_a_machine_that_fails_ahead_fails_the_plan() -> None:
    def attempt(found: frozenset[str]) -> None:
        raise Failed("wrong in a first kernel")

    one, kernels = Ahead(attempt), numbered(FIRST)
    see(one, kernels)
    with pytest.raises(Failed, match="first kernel"):
        one.rest(plan_of(kernels))
    one.close()


def test_without_threads_everything_is_tried_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def submit(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    tried: list[frozenset[str]] = []
    one, kernels = Ahead(tried.append), numbered(FIRST + 1)
    monkeypatch.setattr(one._threads, "submit", submit)
    see(one, kernels)
    one.rest(plan_of(kernels))
    one.close()
    assert tried == [frozenset(kernels)]


def test_a_trusted_machine_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object) -> None:
        raise AssertionError("a kind is asked for")

    monkeypatch.setattr(ahead, "kinds", ask)
    monkeypatch.setattr(ahead, "kinds_of", ask)
    one, kernels, before = Ahead(None), numbered(FIRST + 1), threading.active_count()
    see(one, kernels)
    one.rest(plan_of(kernels))
    assert threading.active_count() == before
    one.close()


def test_nothing_outlives_a_plan_that_fails() -> None:
    ended = threading.Event()
    go = threading.Event()

    def attempt(found: frozenset[str]) -> None:
        go.wait(WAIT)
        ended.set()

    one = Ahead(attempt)
    see(one, numbered(FIRST))
    threading.Timer(0.05, go.set).start()
    one.close()
    assert ended.is_set()
