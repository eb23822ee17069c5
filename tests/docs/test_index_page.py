"""docs/index.md names every page, once, and nothing else."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_every_page_is_named_once() -> None:
    named = Counter(re.findall(r"\]\(([\w./-]+)\)", (DOCS / "index.md").read_text("utf-8")))
    pages = {path.name for path in DOCS.glob("*.md")} - {"index.md"}
    assert named == Counter(pages)


def test_every_page_has_a_line_that_says_what_it_is() -> None:
    lines = [line for line in (DOCS / "index.md").read_text("utf-8").splitlines() if line.startswith("* ")]
    assert all(re.fullmatch(r"\* \[([\w-]+\.md)\]\(\1\): .{20,}\.", line) for line in lines), lines
