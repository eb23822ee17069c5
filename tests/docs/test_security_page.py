"""Every attack on the page of security has a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
NAMED = re.compile(r"`(tests/[a-z_0-9/]+\.py)(?:::(\w+))?`")


def rows() -> list[str]:
    text = PAGE.read_text("utf-8")
    table = text.split("## Attacks that were tried")[1].split("## ")[0]
    return [line for line in table.splitlines() if line.startswith("| ") and "---" not in line][1:]


def test_there_is_a_row_for_every_kind_of_file() -> None:
    text = " ".join(rows())
    for kind in ("program", "document", "archive", "array", "receipt", "proof", "cache", "ONNX", "signatures"):
        assert kind in text


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.split("|")[1].strip())
def test_the_test_of_a_row_exists(row: str) -> None:
    found = NAMED.search(row)
    assert found is not None, row
    path, name = found.groups()
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert name in tests if name else any(one.startswith("test_") for one in tests)
