"""Tables are, integer by integer, those that enclosures in decimals decided entry by entry, before floats helped."""

from __future__ import annotations

import json
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from time import process_time

import pytest

from tests.lowering.table_cases import TableCase, cases, ranged, refusal_or_digest

DIGESTS: dict[str, str] = json.loads((Path(__file__).parent / "table_digests.json").read_text())
"""Written by the compiler that decided each entry alone."""

CASES: dict[str, list[TableCase]] = defaultdict(list)
for _case in cases():
    CASES[_case.name].append(_case)


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES))
def test_the_tables_of_a_function_have_not_changed(name: str) -> None:
    found = {case.key: refusal_or_digest(case) for case in CASES[name]}
    assert found == {key: DIGESTS[key] for key in found}


def test_every_digest_is_compared() -> None:
    assert {case.key for items in CASES.values() for case in items} == set(DIGESTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sigmoid", "tanh", "exp", "log", "gelu_erf"])
def test_the_entries_of_a_large_table_are_not_evaluated_one_by_one(name: str) -> None:
    case = next(case for case in CASES[name] if case.sources[0].hi - case.sources[0].lo == 2**16 - 1)
    start = process_time()
    case.digest()
    assert process_time() - start < 5  # where each entry is evaluated exactly, 65,536 of them take 10 to 30 s


def test_a_scale_at_which_all_entries_are_ties_is_decided_exactly() -> None:
    """Floor of codes of 1/4 under steps of 2: every number is an integer, every odd one a tie."""
    source = ranged(("-32", "31.75"), 8)
    assert source.scale == (Fraction(1, 4),)
    for rounding, expected in (("half_up", lambda n: (n + 1) // 2), ("half_even", lambda n: round(Fraction(n, 2)))):
        result = ranged(("-512", "510"), 9, rounding, -256)  # type: ignore[arg-type]
        assert result.scale == (Fraction(2),)
        assert result.offset == (Fraction(0),)
        (table,) = TableCase("floor", (source,), result).program().constants
        assert table.array().ravel().tolist() == [expected(code // 4 - 32) for code in range(256)]
