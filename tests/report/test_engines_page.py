"""The page of `cvm compare` and `cvm explain`: it loads nothing, escapes names, and has every table."""

from __future__ import annotations

import copy
from typing import Any

import pytest

DIFFERENT = {"of": 64, "differ": 3, "farthest": 2, "above": 1, "channels": 2, "border": 1, "image": True}
EXAMPLE = {
    "sample": 0,
    "index": [0, 1, 2, 3],
    "engine": 5,
    "exact": 4,
    "exact_result_in_steps": "4.4999",
    "zero_point": 0,
    "stages": [{"what": "accumulator", "value": "77"}, {"what": "rounded", "value": "5"}],
}
ENGINE: dict[str, Any] = {
    "setting": "engine(threads=2)",
    "package": "engine 1.0",
    "codes": 64,
    "own": 3,
    "total": 3,
    "first": "<script>alert(1)</script>",
    "changed_by_showing": {"y": 2},
    "hidden": {"h": "no codes"},
    "classes": {"tensor": "y", "changed": 1},
    "tensors": [{"tensor": "<script>alert(1)</script>", "operators": ["Conv"], "own": DIFFERENT, "total": DIFFERENT}],
}
DOCUMENT: dict[str, Any] = {
    "model": {"path": "model & co.onnx", "format": "onnx", "tensors": 1},
    "samples": 2,
    "engines": [ENGINE, {**ENGINE, "setting": "engine"}],
    "disagreements": [{"engine": "engine", "groups": [["a"], ["b", "c"]], "tensors": {"t": 1200}, "outputs": {}}],
    "exact": False,
}


def test_a_page_of_a_comparison() -> None:
    pytest.importorskip("jinja2")
    from cvm.report.engines import page

    made = page(DOCUMENT)
    assert "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" in made
    assert "<script>alert" not in made
    assert "&lt;script&gt;alert(1)" in made
    assert "http" not in made.replace("http-equiv", "")
    assert "engine disagrees with itself: 1,200 codes of 1 tensors" in made
    assert "1 at borders, 2 inside" in made
    assert "explained" not in made.split("Definitions</h2>")[0]
    assert page(copy.deepcopy(DOCUMENT)) == made


def test_a_page_of_explanations_works_an_element_out_both_ways() -> None:
    pytest.importorskip("jinja2")
    from cvm.report.engines import page

    item = {
        "tensor": ENGINE["tensors"][0]["tensor"],
        "differ": 3,
        "model": "a rule",
        "source": "its source",
        "explained": 3,
        "left": 0,
        "astray": 7,
        "example": EXAMPLE,
    }
    rewrites = {
        "levels": [{"level": "none", "own": 0, "outputs": 0, "of": 4, "dropped": ["q"], "new": ["Fused"]}],
        "rewritten": [{"tensor": "t", "exact_at": "none", "level": "all", "differ": 3, "operator": "Fused"}],
        "drops": [{"tensor": "q", "level": "all", "before": 4, "after": 0}],
    }
    engine = {**ENGINE, "explanations": [item], "explained": 3, "rewrites": rewrites}
    made = page({**DOCUMENT, "engines": [engine]})
    for words in ("a rule: 3 of 3 differing codes", "4.4999", "accumulator", "7 codes astray", "its source"):
        assert words in made
    assert "drops the quantiser <b>q</b>: 4 codes of the outputs are not exact, 0 if it is kept" in made
    assert "exact at level none, 3 codes differ with level all, which computes it by Fused" in made
