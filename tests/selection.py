"""Parameters of which some are tried always, and all others by the long suites."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings

__all__ = ["examples", "mostly_long"]


def mostly_long(items: Iterable[Any], always: Collection[Any]) -> list[Any]:
    """The items in their order, those that are not in ``always`` marked ``long``; ``always`` must be among them."""
    listed = list(items)
    missing = [item for item in always if item not in listed]
    if missing:
        raise ValueError(f"no such parameters: {missing}")
    return [item if item in always else pytest.param(item, marks=pytest.mark.long) for item in listed]


def examples(count: int) -> int:
    """The examples of a property that needs ``count`` of them: all in the long suites, a quarter in the usual run.

    A hundred is what properties have that do not say how many; the profiles of conftest.py scale all others by it.
    """
    return max(1, count * settings().max_examples // 100)
