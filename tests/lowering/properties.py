"""Properties of operations, each a function that draws a document and checks it: some cases always, many when asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.lowering.documents import Document, assert_exact

__all__ = ["Cases", "check", "drawn", "exhaustively"]

Cases = dict[str, Callable[[Random], None]]


def check(document: Document, output: str, count: int = 3) -> None:
    """The document means what its lowering computes."""
    with TemporaryDirectory() as folder:
        assert_exact(document, output, Path(folder), count)


Property = Callable[[str, Random], None]


def _property(cases: Cases, examples: int) -> Property:
    @pytest.mark.parametrize("operation", cases)
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(random=st.randoms(use_true_random=False))
    def test(operation: str, random: Random) -> None:
        cases[operation](random)

    made: Property = test
    return made


def drawn(cases: Cases, examples: int = 5) -> Property:
    """A test of the operations on a few documents, marked ``sweep``: of some always, of all in the long suites."""
    marked: Property = pytest.mark.sweep(_property(cases, examples))
    return marked


def exhaustively(cases: Cases, examples: int = 300) -> Property:
    """A test of every operation on many documents, marked ``long``."""
    marked: Property = pytest.mark.long(_property(cases, examples))
    return marked
