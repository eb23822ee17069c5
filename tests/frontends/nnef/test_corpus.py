"""Chapter 6 on the shared corpus: verdict, class and shapes of every document."""

from __future__ import annotations

from typing import Any

import pytest

from cvm.frontends import nnef
from tests.frontends.nnef.documents import SHARED, corpus, error_of

FOLDER = SHARED / "nnef" / "corpus"

OF_KHRONOS = {"quant/invalid/later_algorithm"}
"""Invalid in 1.0.1, and valid in the dialect that the current tools write."""


@pytest.mark.parametrize("entry", corpus("valid") + corpus("container-valid") + corpus("quant-valid"))
def test_valid_documents_are_accepted_with_their_shapes(entry: dict[str, Any]) -> None:
    path = FOLDER / entry["file"]
    report = nnef.check(path)
    assert report.valid, report.message
    assert report.dialect == "1.0.1"
    assert {name: list(report.shapes[name]) for name in entry.get("shapes", {})} == entry.get("shapes", {})
    nnef.load(path)


@pytest.mark.parametrize("entry", corpus("invalid"))
def test_invalid_documents_are_rejected_for_their_reason(entry: dict[str, Any]) -> None:
    report = nnef.check(FOLDER / entry["file"])
    assert not report.valid
    assert report.class_ == entry["class"]
    assert report.line is not None
    assert report.column is not None
    assert report.section is not None
    chapters = {"matmul_provisional_names": "3"}  # the manifest cites the operation, the rule is that of invocations
    chapter = chapters.get(entry["file"].partition("/")[2].partition(".")[0], entry["section"].strip()[0])
    assert report.section.partition(".")[0] == chapter
    error_of(lambda: nnef.load(FOLDER / entry["file"]))


@pytest.mark.parametrize("entry", corpus("container-invalid") + corpus("quant-invalid"))
def test_invalid_containers_and_quantization_files_are_rejected(entry: dict[str, Any]) -> None:
    dialect: Any = "auto"
    if entry["file"] in OF_KHRONOS:
        assert nnef.check(FOLDER / entry["file"]).dialect == "khronos"
        nnef.load(FOLDER / entry["file"])
        dialect = "1.0.1"
    report = nnef.check(FOLDER / entry["file"], dialect=dialect)
    assert not report.valid
    if "quant/" in entry["file"]:
        assert report.line is not None
    error_of(lambda: nnef.load(FOLDER / entry["file"], dialect=dialect))


def test_a_report_is_the_json_that_design_section_8_describes(tmp_path: Any) -> None:
    path = tmp_path / "graph.nnef"
    path.write_text("version 1.0;\ngraph g( x ) -> ( y )\n{\n    x = external(shape = [2]);\n    y = relu(x)\n}")
    assert nnef.check(path).to_json() == {
        "path": str(path),
        "valid": False,
        "class": "syntax",
        "section": "3.2",
        "line": 6,
        "column": 1,
        "message": f"{path}:6:1: found '}}'; expected ';' or '[' or 'if' or 'in' or an operator [nnef.syntax.token]",
        "shapes": {},
        "errors": [
            {
                "kind": "syntax",
                "class": "syntax",
                "verdict": "Malformed",
                "code": "nnef.syntax.token",
                "section": "3.2",
                "line": 6,
                "column": 1,
                "message": "found '}'; expected ';' or '[' or 'if' or 'in' or an operator",
                "expected": ["';'", "'['", "'if'", "'in'", "an operator"],
                "excerpt": "    6 | }\n      | ^",
                "trace": [],
            }
        ],
        "edition": "1.0.1",
        "dialect": None,
    }
    path.write_text(path.read_text().replace("relu(x)", "relu(x);"))
    assert nnef.check(path).to_json() == {
        "path": str(path),
        "valid": True,
        "class": None,
        "section": None,
        "line": None,
        "column": None,
        "message": None,
        "shapes": {"x": [2], "y": [2]},
        "errors": [],
        "edition": "1.0.1",
        "dialect": "1.0.1",
    }
