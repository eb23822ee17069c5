"""The vectors come with the package, all of them."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackagePath
from pathlib import Path

import pytest

from cvm.errors import Invalid
import cvm.vectors.shipped as module
from cvm.vectors.shipped import shipped

ROOT = Path(__file__).parents[2]


def test_a_checkout_has_them_beside_the_package() -> None:
    assert shipped() == ROOT / "spec_vectors"


def test_an_installation_has_them_among_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "share" / "cvm" / "spec_vectors"
    folder.mkdir(parents=True)
    (folder / "README.md").touch()
    (tmp_path / "cvm" / "vectors").mkdir(parents=True)

    class Found(PackagePath):
        def locate(self) -> Path:
            return tmp_path / str(self)

    listed = [Found("cvm/__init__.py"), Found("share/cvm/spec_vectors/README.md")]
    monkeypatch.setattr(module, "__file__", str(tmp_path / "cvm" / "vectors" / "shipped.py"))
    monkeypatch.setattr(module, "files", lambda name: listed)
    assert shipped() == folder
    listed.pop()
    with pytest.raises(Invalid, match="name a folder of them") as caught:
        shipped()
    assert caught.value.code == "vectors.none"


def test_the_package_takes_every_file_of_the_folder() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["data-files"]
    taken = {path for patterns in declared.values() for pattern in patterns for path in ROOT.glob(pattern)}
    vectors = {path for path in (ROOT / "spec_vectors").rglob("*") if path.is_file()}
    pages = {*(ROOT / "docs").glob("*.md"), *(ROOT / name for name in ("CHANGELOG.md", "README.md", "formal/ERRATA.md"))}
    assert taken == vectors | pages
    for target, patterns in declared.items():
        assert all(Path("share/cvm", pattern).parent == Path(target) for pattern in patterns)
