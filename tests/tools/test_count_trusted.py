"""The counts of docs/trust.md are those of the files, and the kernel keeps to its limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import count_trusted


def test_the_page_says_how_many_lines_there_are() -> None:
    text = count_trusted.PAGE.read_text("utf-8")
    assert count_trusted.counted(count_trusted.ROOT, text) == (text, [])


def page(rows: str, limit: int = 9) -> str:
    return f"# T\n\n| files | lines | what |\n|---|---:|---|\n{rows}\n| together | 0 | at most {limit} |\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.py").write_text("1\n2\n3\n")
    (tmp_path / "a" / "two.py").write_text("1\n2")
    return tmp_path


def test_lines_of_all_files_are_counted_but_for_those_left_out(root: Path) -> None:
    text, above = count_trusted.counted(root, page("| `a/*.py` | 7 | x |\n| `a/*.py` without `a/one.py` | 7 | y |"))
    assert "| `a/*.py` | 5 | x |\n| `a/*.py` without `a/one.py` | 2 | y |\n| together | 7 | at most 9 |" in text
    assert above == []


def test_a_sum_above_its_limit_is_found(root: Path) -> None:
    _, above = count_trusted.counted(root, page("| `a/*.py` | 5 | x |", limit=4))
    assert above == ["5 lines are trusted, at most 4 may be"]


def test_a_pattern_without_a_file_is_an_error(root: Path) -> None:
    with pytest.raises(ValueError, match=r"b/\*\.py matches no file"):
        count_trusted.counted(root, page("| `b/*.py` | 5 | x |"))
