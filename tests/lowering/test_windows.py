"""Sliding-window operations of NNEF 1.0.1 section 4.3, and their compounds, are lowered exactly.

Each case draws a document of one operation: rank, geometry, border, stored values, and ranges whose zero is a code, no
code or outside; every code of every quantised tensor is compared with the independent evaluator.
"""

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lowering.documents import assert_exact
from tests.lowering.window_documents import OPERATIONS

RANDOMS = st.randoms(use_true_random=False)


def check(operation: str, random: Random) -> None:
    document, output = OPERATIONS[operation](random)
    with TemporaryDirectory() as folder:
        assert_exact(document, output, Path(folder))


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
@settings(max_examples=10, deadline=None)
@given(random=RANDOMS)
def test_operation_is_exact(operation: str, random: Random) -> None:
    check(operation, random)


@pytest.mark.long
@pytest.mark.parametrize("operation", OPERATIONS)
@settings(max_examples=300, deadline=None)
@given(random=RANDOMS)
def test_operation_is_exact_in_many_cases(operation: str, random: Random) -> None:
    check(operation, random)
