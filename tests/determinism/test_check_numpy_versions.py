"""The comparison of NumPy versions finds what it looks for; the comparison itself needs a package index and minutes."""

from __future__ import annotations

import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tools import check_numpy_versions as tool

DOCUMENT: dict[str, Any] = {
    "circumstances": {"python": "3.11.7", "numpy": "2.0.0", "blas": "some 0.3"},
    "models": {
        "/a/demo/lenet": dict.fromkeys(tool.PARTS, "0" * 64),
        "/a/digits/lenet": dict.fromkeys(tool.PARTS, "1" * 64),
    },
}


def different(model: str, part: str) -> dict[str, Any]:
    document = deepcopy(DOCUMENT)
    document["models"][model][part] = "f" * 64
    return document


@pytest.mark.parametrize(
    ("dependency", "bound"),
    [("numpy>=2.0", "2.0"), ("numpy >= 2.0.1", "2.0.1"), ("numpy>=2.1,<3", "2.1")],
)
def test_the_oldest_version_is_the_bound_of_the_project(dependency: str, bound: str) -> None:
    assert tool.oldest(f'[project]\ndependencies = ["numpydoc>=1", "{dependency}"]\n') == bound


def test_a_project_without_a_bound_is_an_error() -> None:
    with pytest.raises(ValueError, match="no lower bound"):
        tool.oldest('[project]\ndependencies = ["numpy", "numpydoc>=1"]\n')


def test_the_project_has_a_bound_of_numpy_2() -> None:
    assert tool.oldest((tool.ROOT / "pyproject.toml").read_text("utf-8")).split(".")[0] == "2"


@pytest.mark.parametrize("part", tool.PARTS)
def test_any_hash_that_differs_is_a_failure_that_names_the_model(
    part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [tool.Row("this one", DOCUMENT), tool.Row("2.0", different("/a/digits/lenet", part))]
    monkeypatch.setattr(tool, "rows", lambda versions, models: found)
    assert tool.main([]) == 1
    printed = capsys.readouterr().out
    assert f"NumPy 2.0: digits/lenet differs in {part}" in printed
    assert [line.split()[-1] for line in printed.splitlines()[:5]] == ["same", "yes", "yes", "yes", "no"]


def test_equal_hashes_are_a_success(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tool, "rows", lambda versions, models: [tool.Row(name, DOCUMENT) for name in ("here", "2.0")])
    assert tool.main([]) == 0
    assert "differs" not in capsys.readouterr().out


def test_an_environment_that_cannot_be_made_is_neither(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(versions: object, models: object) -> list[tool.Row]:
        raise subprocess.CalledProcessError(1, ["pip", "install"], "", "no matching distribution")

    monkeypatch.setattr(tool, "rows", failing)
    assert tool.main(["--numpy", "0.1"]) == 2
    assert "no matching distribution" in capsys.readouterr().err


def test_building_leaves_nothing_in_the_tree(tmp_path: Path) -> None:
    copy = tool.copied(tmp_path / "source")
    assert (copy / "pyproject.toml").read_bytes() == (tool.ROOT / "pyproject.toml").read_bytes()
    assert (copy / "cvm" / "demo" / "lenet_digits" / "graph.nnef").is_file()
    assert not list(copy.rglob("__pycache__"))
