"""The shared corpus of provisional documents: verdicts, classes, shapes, and what they become in 1.0.1."""

from __future__ import annotations

from typing import Any

import pytest

from cvm.frontends import nnef
from cvm.frontends.nnef.provisional import is_provisional
from tests.frontends.nnef.documents import SHARED, corpus

FOLDER = SHARED / "nnef" / "corpus"

BOTH_GRAMMARS = "provisional/valid/prov_both_grammars.nnef"
"""Its version line ends in a semicolon, so by the manifest's own note it is a 1.0.1 document."""


@pytest.mark.parametrize("entry", corpus("provisional-valid"))
def test_valid_documents_are_accepted_with_their_shapes(entry: dict[str, Any]) -> None:
    report = nnef.check(FOLDER / entry["file"])
    assert report.valid, report.message
    assert report.edition == ("1.0.1" if entry["file"] == BOTH_GRAMMARS else "provisional")
    assert {name: list(report.shapes[name]) for name in entry["shapes"]} == entry["shapes"]


@pytest.mark.parametrize("entry", corpus("provisional-invalid"))
def test_invalid_documents_are_rejected_for_their_reason(entry: dict[str, Any]) -> None:
    report = nnef.check(FOLDER / entry["file"])
    assert not report.valid
    assert len(report.errors) == 1
    assert report.class_ == entry["class"]
    assert report.line is not None
    assert report.column is not None
    if entry["section"].startswith("P"):
        section = entry["section"][1:]
        chapters = {"3.2.1", "3.2.2", "3.2.3", "3.2.4"}
        expected = "3.2" if section in chapters else section
        assert report.section == expected


@pytest.mark.parametrize("entry", corpus("provisional-valid"))
def test_an_upgraded_document_is_valid_and_has_the_same_shapes(entry: dict[str, Any], tmp_path: Any) -> None:
    path = tmp_path / "graph.nnef"
    path.write_text(nnef.upgrade(FOLDER / entry["file"]))
    assert not is_provisional(path.read_text())
    report = nnef.check(path, dialect="1.0.1")
    assert report.valid, report.message
    found = nnef.check(FOLDER / entry["file"]).shapes
    assert list(report.shapes.values()) == list(found.values())


@pytest.mark.parametrize("entry", [*corpus("valid"), *corpus("invalid")])
def test_no_document_of_1_0_1_is_taken_for_a_provisional_one(entry: dict[str, Any]) -> None:
    assert not is_provisional((FOLDER / entry["file"]).read_bytes().decode("latin-1"))
