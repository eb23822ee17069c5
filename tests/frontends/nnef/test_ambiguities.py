"""docs/nnef-ambiguities.md: every ambiguous case of the shared corpus has a decision, and the reader keeps to it."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from cvm.errors import Malformed
from cvm.frontends import nnef
from cvm.frontends.nnef import BitOrder
from tests.frontends.nnef.documents import SHARED, missing

FOLDER = SHARED / "nnef" / "corpus"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "nnef-ambiguities.md"
_VERDICT = re.compile(r"(?:`--([a-z-]+) ([a-z0-9.]+)`: )?`([a-z.-]+)`")


@dataclass(frozen=True)
class Row:
    """One decision: the cases, the sections of its rule, and each verdict with the options that it needs."""

    cases: tuple[str, ...]
    sections: frozenset[str]
    verdicts: tuple[tuple[dict[str, Any], str], ...]

    def has(self, file: str) -> bool:
        return any(fnmatchcase(file, pattern) for pattern in self.cases)


def rows(text: str) -> list[Row]:
    found = []
    for line in text.splitlines():
        if line.startswith("| `"):
            cases, question, decision, rule, verdict = (cell.strip() for cell in line.strip("|").split(" | "))
            assert question.endswith(("?", "."))
            assert decision.endswith(".")
            verdicts = []
            for option, value, word in (match.groups() for match in _VERDICT.finditer(verdict)):
                verdicts.append(({option.replace("-", "_"): value} if option else {}, word))
            assert _VERDICT.sub("", verdict).strip(", ") == ""
            found.append(Row(tuple(re.findall("`([^`]+)`", cases)), frozenset(rule.split(", ")), tuple(verdicts)))
    return found


ROWS = rows(PAGE.read_text("utf-8"))


def ambiguous() -> list[Any]:
    """The entries of the corpus that are marked as ambiguous, or one skipped case that says what is missing."""
    manifest = FOLDER / "manifest.json"
    if not manifest.is_file():
        return [missing("nnef/corpus")]
    entries = json.loads(manifest.read_text("utf-8"))
    return [pytest.param(entry, id=entry["file"]) for entry in entries if entry.get("ambiguous")]


def test_the_page_has_decisions() -> None:
    assert len(ROWS) > 30
    assert all(row.cases and row.sections and row.verdicts for row in ROWS)


@pytest.mark.parametrize("entry", ambiguous())
def test_every_ambiguous_case_has_a_decision_which_is_kept_to(entry: dict[str, Any]) -> None:
    decisions = [row for row in ROWS if row.has(entry["file"])]
    assert decisions
    for row in decisions:
        assert entry["section"].split()[0].rstrip(";") in row.sections
        for options, verdict in row.verdicts:
            report = nnef.check(FOLDER / entry["file"], **options)
            assert ("valid" if report.valid else report.errors[0].code) == verdict
            assert report.valid or report.section in row.sections


def test_every_decision_has_a_case() -> None:
    files = [entry.values[0]["file"] for entry in ambiguous() if entry.values[0] is not None]
    for row in ROWS if files else []:
        for pattern in row.cases:
            assert any(fnmatchcase(file, pattern) for file in files), pattern


def packed() -> list[Any]:
    """Those of them whose items do not fill whole bytes of a known order."""
    files = [entry for entry in ambiguous() if entry.values[0] is None or entry.id.endswith(("_lsb.dat", "_msb.dat"))]
    assert files
    return files


@pytest.mark.parametrize("entry", packed())
def test_a_bit_order_that_is_ambiguous_matters(entry: dict[str, Any]) -> None:
    data = (FOLDER / entry["file"]).read_bytes()
    order: BitOrder = entry["bit_order"]
    other: BitOrder = "msb" if order == "lsb" else "lsb"
    expected = nnef.read_tensor(data, bit_order=order).data.values
    found = None
    with suppress(Malformed):  # bits behind the last item that are not zero
        found = nnef.read_tensor(data, bit_order=other).data.values.tolist()
    assert found != expected.tolist()
