"""Sessions on a driver that checks every call and runs kernels on this processor: all parts together."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import cvm
from cvm.executors.base import Int32Array
from cvm.executors.cuda import opened, ptx
from cvm.executors.cuda.emit import registry
from cvm.executors.native.runtime.trial import CLASSES
from tests.executors.cuda.executing import driver

PROGRAM = next(one for one in CLASSES if one.name == "windows").program().program


@pytest.fixture(autouse=True)
def plain_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Modules stay the text that this processor compiles, in plain forms, and the cache is empty."""
    monkeypatch.setenv("CVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "FAST", {})
    monkeypatch.setattr(ptx, "assembled", lambda ir, capability: ir.encode())
    yield
    opened._used.cache_clear()


def feeds(count: int) -> list[dict[str, Int32Array]]:
    random = np.random.default_rng(3)
    return [
        {
            item.value.name: random.integers(item.value.lo, item.value.hi + 1, item.value.shape).astype(np.int32)
            for item in PROGRAM.inputs
        }
        for _ in range(count)
    ]


def test_a_session_gives_the_bytes_of_numpy_and_gives_everything_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = driver(monkeypatch)
    ours, other = cvm.Session(PROGRAM, "cuda"), cvm.Session(PROGRAM, "numpy")
    assert not any("FAILED" in line or "no kernels" in line for line in ours.explain())
    fed = feeds(11)
    for one, expected in zip(ours.run_many(fed, codes=True), other.run_many(fed, codes=True), strict=True):
        assert all(np.array_equal(one[name], expected[name]) for name in expected)
    receipts = [session.run(fed[0], codes=True, receipt="trace").receipt for session in (ours, other)]
    assert receipts[0].claim == receipts[1].claim  # type: ignore[union-attr]
    del ours
    opened._used.cache_clear()
    assert not fake.left


def test_a_second_process_plans_and_tries_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for first in (True, False):
        fake = driver(monkeypatch)
        if not first:
            monkeypatch.setattr("cvm.executors.cuda.network.written", None)
        session = cvm.Session(PROGRAM, "cuda")
        assert any(one.grid[2] > 1 for one in fake.launched) == first, "the trial runs batches"
        session.run(feeds(1)[0], codes=True)
        del session
        opened._used.cache_clear()
        assert not fake.left


def test_threads_and_gpus_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = driver(monkeypatch, gpus=2)
    sessions = [cvm.Session(PROGRAM, "cuda", device=number % 2) for number in range(4)]
    fed = feeds(8)
    expected = [cvm.Session(PROGRAM, "numpy").run(feed, codes=True) for feed in fed]

    def run(number: int) -> bool:
        found = sessions[number % 4].run(fed[number % 8], codes=True)
        return all(np.array_equal(found[name], array) for name, array in expected[number % 8].items())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(32)))
    assert fake.retained == 2
