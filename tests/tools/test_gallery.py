"""The gallery: its list is checked, files are found by digest, and networks are tried with the user's commands."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tflite", reason="the package tflite is not installed")

from cvm.frontends.tflite.writing import Graph, Operator, Tensor, written
from tools.gallery import measure
from tools.gallery.measure import measured
from tools.gallery.networks import Network, found_files, networks, read
from tools.gallery.results import rows
from tools.generated_pages import gallery

DIGEST = "0123456789abcdef" * 4
ENTRY = f"""
[[group]]
source = "https://example.org/models"
licence = "MIT"
network = [{{ name = "a", what = "nothing", path = "a.tflite", sha256 = "{DIGEST}", way = "compile" }}]
"""

RELU = Graph(
    [Tensor((1, 4), "int8", (0.5,), (1,)), Tensor((1, 4), "int8", (0.25,), (0,))],
    [Operator("RELU", [0], [1])],
    [0],
    [1],
)
FLOATS = Graph([Tensor((1, 4), "float32"), Tensor((1, 4), "float32")], [Operator("TANH", [0], [1])], [0], [1])


def network(data: bytes, way: str, path: str = "a.tflite") -> Network:
    text = ENTRY.replace(DIGEST, hashlib.sha256(data).hexdigest()).replace("compile", way).replace("a.tflite", path)
    return read(text)[0]


def test_an_entry_takes_source_and_licence_of_its_group() -> None:
    assert read(ENTRY) == [
        Network("a", "nothing", "https://example.org/models", "a.tflite", "MIT", DIGEST, "compile"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('licence = "MIT"\n', "", "missing keys \\['licence'\\]"),
        ("what =", "waht =", "unknown keys \\['waht'\\]"),
        (DIGEST, "0123", "'0123' is not a SHA-256"),
        ('"compile"', '"run"', "the way is compile or quantize, not 'run'"),
    ],
)
def test_a_wrong_entry_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(ENTRY.replace(old, new))


@pytest.mark.parametrize(("old", "new"), [('"a"', '"b"'), (DIGEST, DIGEST[::-1])])
def test_a_name_or_a_file_that_is_there_twice_is_refused(old: str, new: str) -> None:
    with pytest.raises(ValueError, match="is there twice"):
        read(ENTRY + ENTRY.replace(old, new))


def test_files_are_found_by_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "other name.tflite").write_bytes(b"the model")
    (tmp_path / "a.tflite").write_bytes(b"another model")
    assert found_files([network(b"the model", "compile")], [tmp_path]) == {"a": tmp_path / "deep" / "other name.tflite"}
    assert found_files([network(b"no model", "compile")], [tmp_path]) == {}


def test_a_quantised_network_is_compiled_compared_and_judged(tmp_path: Path) -> None:
    file = tmp_path / "a.tflite"
    file.write_bytes(written(RELU))
    row = measured(network(file.read_bytes(), "compile"), file, timed=False)
    assert row["agree"]
    assert row["judged"] > 0
    assert row["exact"] == row["tensors"] > 0
    assert "sqnr" not in row
    assert "refused" not in row


def test_a_network_of_floats_is_quantised(tmp_path: Path) -> None:
    file = tmp_path / "a.tflite"
    file.write_bytes(written(FLOATS))
    row = measured(network(file.read_bytes(), "quantize"), file, timed=False)
    assert row["agree"]
    assert len(row["sqnr"]) == 1
    assert row["sqnr"][0] > 30
    refused = measured(network(file.read_bytes(), "compile"), file, timed=False)
    assert refused["refused"]["code"] == "tflite.float"
    assert str(tmp_path) not in refused["refused"]["message"]


def test_the_list_has_forty_networks_and_every_row_belongs_to_one() -> None:
    names = [item.name for item in networks()]
    assert len(names) >= 40
    assert set(rows()) <= set(names)


def test_the_page_counts_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        "name": "a",
        "seconds": 1.0,
        "nodes": 2,
        "macs": 10,
        "tensors": 3,
        "exact": 2,
        "bound": "1/2",
        "agree": True,
    }
    monkeypatch.setattr(gallery, "networks", lambda: read(ENTRY))
    monkeypatch.setattr(gallery, "rows", lambda: {"a": made | {"sqnr": [40.0, 31.5, "inf"]}})
    page = gallery.markdown()
    assert "Of 1 networks, **1 become programs**, 0 of them exact in every tensor; 0 take over 20 seconds." in page
    assert "| a | nothing | compile | 1.0 | 2 | 1e-05 | 2 of 3, bound 0.5 | 31.5 | yes |  |  |" in page
    monkeypatch.setattr(gallery, "rows", lambda: {"a": made | {"refused": {"code": "x.y", "message": "why | not"}}})
    assert "* **a**: why \\| not [x.y]" in gallery.markdown()


def test_a_comparison_that_takes_too_long_is_not_called_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = measure._said

    def late(arguments: list[str]) -> dict[str, Any]:
        if arguments[0] == "check":
            return {"error": {"code": "time", "message": "took over 900 s"}}
        return said(arguments)

    monkeypatch.setattr(measure, "_said", late)
    file = tmp_path / "a.tflite"
    file.write_bytes(written(RELU))
    row = measured(network(file.read_bytes(), "compile"), file, timed=False)
    assert row["unchecked"] == {"code": "time", "message": "took over 900 s"}
    assert "agree" not in row
    monkeypatch.setattr(gallery, "networks", lambda: read(ENTRY))
    monkeypatch.setattr(gallery, "rows", lambda: {"a": row})
    page = gallery.markdown()
    assert "The executors agree on 0 of 1." in page
    assert "| not checked |" in page


@pytest.mark.parametrize("failure", [None, "ValueError: the file a.tflite\nis wrong"])
def test_an_engine_that_fails_is_named_with_its_words(
    failure: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = {"engine": "litert", "failure": failure, "run": None if failure else {"median": 500}}
    said = {"results": [{"engine": "native", "failure": None, "run": {"median": 2000}}, theirs]}
    monkeypatch.setattr(measure, "_said", lambda arguments: said)
    row = measure._timed(tmp_path / "a.cvm", tmp_path / "a.tflite", "litert")
    assert row["ours_us"] == 2.0
    assert (row.get("theirs_us"), row.get("engine_fails")) == (
        (None, "ValueError: the file a.tflite") if failure else (0.5, None)
    )
    cells = list(gallery._cells(row | {"seconds": 1, "nodes": 1, "macs": 1, "exact": 1, "tensors": 1, "agree": True}))
    assert cells[-1] == ("fails" if failure else "0.25")
