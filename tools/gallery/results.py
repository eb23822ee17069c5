"""The measured rows of the gallery (results.json), by the names of their networks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["RESULTS", "rows"]

RESULTS = Path(__file__).with_name("results.json")


def rows() -> dict[str, dict[str, Any]]:
    """The measured rows, in the order of the list."""
    if not RESULTS.is_file():
        return {}
    return {row["name"]: row for row in json.loads(RESULTS.read_text(encoding="utf-8"))}
