"""What each lowering rule claims, held against random documents: exact is exact, a bound is a bound.

The short run draws a few documents of every operation; the long one 300, and prints what it measured.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from cvm.frontends.nnef.declarations import khronos_library
from cvm.lowering import CLAIMS, REFUSALS, RULES
from cvm.operations import nnef_operations
from tests.lowering.draws import DRAWS
from tests.lowering.measured import Measured, measure
from tools.generated_pages.nnef_operations import markdown

FEW, MANY = 2, 300

Record = Callable[[str, object], None]


def assert_claimed(found: Measured) -> None:
    """No code is further off than its report says, and none is off at all where the rule claims exactness."""
    assert not found.broken, "\n".join(found.broken[:3])
    if CLAIMS[found.operation].kind == "exact":
        assert (found.bound, found.differing) == (0, 0)
    assert set(found.refused) <= {"lowering.operation", *REFUSALS}


@pytest.mark.sweep
@pytest.mark.parametrize("operation", DRAWS)
def test_a_few_documents_are_as_claimed(operation: str) -> None:
    found = measure(operation, FEW)
    assert found.cases == FEW
    assert_claimed(found)


@pytest.mark.long
@pytest.mark.parametrize("operation", DRAWS)
def test_many_documents_are_as_claimed(operation: str, record_property: Record) -> None:
    found = measure(operation, MANY, seed=1)
    record_property("measured", found.row())
    assert found.cases == MANY
    assert_claimed(found)


def test_every_operation_of_chapter_4_and_of_the_dialect_has_a_claim_and_documents() -> None:
    operations = set(khronos_library())
    assert operations == {entry["name"] for entry in nnef_operations()} == set(DRAWS)
    assert operations <= set(CLAIMS)
    assert set(CLAIMS) - set(RULES) == {"external", "variable", "constant"}


def test_a_bound_has_a_reason_and_exactness_needs_none() -> None:
    for name, claim in CLAIMS.items():
        assert claim.how, name
        assert bool(claim.reason) == (claim.kind == "bounded"), name


def test_the_page_has_a_row_for_every_operation_and_refusal() -> None:
    rows = [line.split("|")[1].strip() for line in markdown().splitlines() if line.startswith("| `")]
    assert rows == [f"`{name}`" for name in (*khronos_library(), *REFUSALS)]


def test_a_document_is_drawn_alike_every_time() -> None:
    def drawn(operation: str) -> Any:
        document, output = DRAWS[operation](Random(7))
        return document.text(output), document.quantisation()

    assert all(drawn(operation) == drawn(operation) for operation in DRAWS)
