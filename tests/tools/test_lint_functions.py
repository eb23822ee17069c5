"""Long functions and signatures without formatting are found; the project has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import lint_functions


def module(root: Path, lines: int) -> Path:
    (root / "cvm").mkdir()
    body = "\n".join(f"    x = {k}" for k in range(lines - 1))
    (root / "cvm" / "a.py").write_text(f'"""A."""\n\ndef f():\n{body}\n')
    return root


def test_a_function_of_fifty_lines_passes(tmp_path: Path) -> None:
    assert list(lint_functions.findings(module(tmp_path, 50))) == []


def test_a_longer_one_is_found(tmp_path: Path) -> None:
    found = list(lint_functions.findings(module(tmp_path, 51)))
    assert found == ["cvm/a.py:3: f has 51 lines, at most 50 are good to read"]


def test_a_signature_that_the_formatter_must_not_touch_is_found(tmp_path: Path) -> None:
    (tmp_path / "cvm").mkdir()
    table = "X = [1,\n     2]  # fmt: skip\n\n\n"
    text = table + "def f(\n    a, b,\n) -> int:  # fmt: skip\n    return [a,\n            b]  # fmt: skip\n"
    (tmp_path / "cvm" / "a.py").write_text(text)
    found = list(lint_functions.findings(tmp_path))
    assert found == ["cvm/a.py:5: the signature of f has # fmt: skip; use fewer parameters"]


@pytest.mark.long  # `make lint` runs it
def test_the_project_is_clean() -> None:
    assert lint_functions.main([]) == 0
