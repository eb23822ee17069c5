"""The speed of reading documents, in seconds of the processor, which other programs on the machine do not change."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cvm.frontends import nnef
from tools.bench_nnef import DOCUMENTS, integers, literals, operations


def seconds(path: Path, text: str) -> float:
    """How long a check takes."""
    path.write_text(text)
    begun = time.process_time()
    report = nnef.check(path)
    taken = time.process_time() - begun
    assert report.valid, report.message
    return taken


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("make", "count", "bound"), [(operations, 100_000, 15), (literals, 1_000_000, 10), (integers, 1_000_000, 10)]
)
@pytest.mark.parametrize("share", [10, pytest.param(1, marks=pytest.mark.long)])
def test_large_documents_are_checked_in_their_time(
    tmp_path: Path, make: Callable[[int], str], count: int, bound: float, share: int
) -> None:
    nnef.check(tmp_path)  # which reads the grammar and the declarations
    assert seconds(tmp_path / "graph.nnef", make(count // share)) < bound / share


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
