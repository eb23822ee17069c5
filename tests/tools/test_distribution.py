"""The wheel that is built has what users need: programs, verifiers that stand alone, vectors, and the specification."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_a_wheel_has_the_verifiers_the_vectors_and_the_pages(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("cvm", "formal", "spec_vectors", "docs"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(tree)]
    subprocess.run(pip, check=True, stdin=subprocess.DEVNULL)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "in")
        names = set(archive.namelist())
    (data,) = (tmp_path / "in").glob("*.data/data/share/cvm")
    shared = {path.relative_to(data).as_posix() for path in data.rglob("*") if path.is_file()}
    for folder in ("spec_vectors", "docs"):
        files = (path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix != ".json")
        assert {path.relative_to(ROOT).as_posix() for path in files} <= shared
    assert {"README.md", "CHANGELOG.md", "formal/ERRATA.md"} <= shared
    modules = {path.relative_to(ROOT).as_posix() for part in ("cvm", "formal") for path in (ROOT / part).rglob("*.py")}
    assert modules | {"cvm/py.typed"} <= names
    for tool in ("verify_receipt", "verify_step"):
        file = tmp_path / "in" / "cvm" / "standalone" / f"{tool}.py"
        command = [sys.executable, "-I", "-S", str(file), "--vectors", str(data / "spec_vectors")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert "wrong: []" in done.stdout
