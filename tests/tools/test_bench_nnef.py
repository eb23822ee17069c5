"""The work of reading documents grows with their length: counted in calls, which no other program changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from cvm.frontends import nnef
from tools.bench_nnef import DOCUMENTS, expansions, integers, literals, operations


def calls(path: Path, text: str) -> int:
    """How many functions a check calls, those of Python and those in C."""
    path.write_text(text)
    count = 0

    def seen(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        report = nnef.check(path)
    finally:
        sys.setprofile(before)
    assert report.valid, report.message
    return count


@pytest.mark.sweep
@pytest.mark.parametrize("make", [operations, expansions, literals, integers])
@pytest.mark.parametrize("count", [200, pytest.param(2_000, marks=pytest.mark.long)])
def test_four_times_the_document_takes_four_times_the_calls(
    tmp_path: Path, make: Callable[[int], str], count: int
) -> None:
    path = tmp_path / "graph.nnef"
    calls(path, make(10))  # which reads the grammar and the declarations
    assert calls(path, make(4 * count)) < 4.4 * calls(path, make(count))


def test_the_documents_of_the_benchmark_are_valid_and_of_their_size(tmp_path: Path) -> None:
    assert len(DOCUMENTS) == 4
    for make in (operations, integers, literals):
        (tmp_path / "graph.nnef").write_text(make(1000))
        assert nnef.check(tmp_path).valid
    flat = nnef.load(tmp_path / "graph.nnef")
    data = flat.tensors["c"].data
    assert data is not None
    assert data.values.size == 1000
    (tmp_path / "graph.nnef").write_text(operations(1000))
    assert len(nnef.load(tmp_path).operations) == 1000
