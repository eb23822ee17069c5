"""The selections of tests: a part for each day, and every test within ten days in a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import PARTS, part_of


@dataclass(frozen=True)
class Item:
    nodeid: str


ITEMS: list[Any] = [Item(f"tests/a.py::test_{number:03}") for number in range(137)]


@pytest.mark.parametrize("first", [0, 7, 20780])
def test_ten_days_in_a_row_run_every_test_once(first: int) -> None:
    parts = [part_of(ITEMS, day) for day in range(first, first + PARTS)]
    assert sorted(item.nodeid for part in parts for item in part) == [item.nodeid for item in ITEMS]
    assert {len(part) for part in parts} == {13, 14}


def test_a_day_has_one_selection_whatever_the_order_of_collection() -> None:
    assert part_of(ITEMS, 5) == part_of(ITEMS[::-1], 5)
    assert part_of(ITEMS, 5) != part_of(ITEMS, 15)
    assert set(part_of(ITEMS, 5)) == set(part_of(ITEMS, 15))
