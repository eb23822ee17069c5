"""Check that the oldest and the newest NumPy that the project allows give the same bytes as the installed NumPy.

    python tools/check_numpy_versions.py [--numpy VERSION ..] [MODEL ..]

For each version a virtual environment is made in a temporary folder, with the project installed from a copy of the
tree. ``tests/determinism/fingerprint.py`` runs in it on the models (default: the one that comes with cvm, and those of
``../shared/models/digits`` that exist). Prints a table of all environments; exits with 1 if one differs from the
installed one, with 2 if one cannot be made. Needs a package index; pyproject.toml has the oldest version.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "tests" / "determinism" / "fingerprint.py"
DIGITS = ROOT.parent / "shared" / "models" / "digits"
MODELS = [ROOT / "cvm" / "demo" / "lenet_digits", DIGITS / "lenet_digits", DIGITS / "mobilenet_digits"]

NEWEST = "newest"
"""Used as a version: the newest that the index has."""

PARTS = ("bytes", "digest", "numpy", "formal")
"""The hashes of a fingerprint, in the order of the table."""

_SOURCES = ("cvm", "formal", "pyproject.toml", "README.md", "LICENSE")
"""The files that an installation is made from."""


@dataclass(frozen=True, eq=False)
class Row:
    """A fingerprint and the name of the environment that it was taken in."""

    name: str
    document: dict[str, Any]

    def differences(self, reference: Row) -> dict[str, list[str]]:
        """The models that differ from ``reference``, and which of their hashes differ."""
        mine, theirs = self.document["models"], reference.document["models"]
        parts = {model: [part for part in PARTS if mine[model][part] != theirs[model][part]] for model in theirs}
        return {model: different for model, different in parts.items() if different}


def oldest(pyproject: str) -> str:
    """The lower bound on NumPy in the text of a pyproject.toml. Raises ValueError if there is none."""
    dependencies = tomllib.loads(pyproject)["project"]["dependencies"]
    for dependency in dependencies:
        if found := re.fullmatch(r"numpy\s*>=\s*([0-9]+(?:\.[0-9]+)*)\s*(?:,.*)?", dependency):
            return found[1]
    raise ValueError(f"no lower bound on numpy in {dependencies}")


def run(*command: str | Path, folder: Path | None = None) -> str:
    """The standard output of a command that sees none of this Python's packages. Raises CalledProcessError."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "OPENBLAS_"))}
    process = subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True, encoding="utf-8"
    )
    return process.stdout


def copied(folder: Path) -> Path:
    """A copy of the files that an installation is made from, so that building leaves nothing in the tree."""
    for name in _SOURCES:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    return folder


def installed(folder: Path, source: Path, version: str) -> Path:
    """The Python of a new virtual environment with the project and a version of NumPy."""
    run(sys.executable, "-m", "venv", folder)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    numpy = "numpy" if version == NEWEST else f"numpy=={version}"
    quiet = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", "numpy")
    run(python, *quiet, source, numpy)
    return python


def fingerprint(python: Path, models: Sequence[Path], folder: Path) -> dict[str, Any]:
    """The output of ``fingerprint.py``, run from ``folder``."""
    document: dict[str, Any] = json.loads(run(python, SCRIPT, *models, folder=folder))
    return document


def label(model: str) -> str:
    """The name of a model's folder and of its parent."""
    return "/".join(Path(model).parts[-2:])


def table(rows: Sequence[Row]) -> str:
    """One row per line: the environment, the versions, the first digits of every hash; one model after the other."""
    head = ["environment", "Python", "NumPy", "BLAS", "model", *PARTS, "same"]
    lines = [head]
    for row in rows:
        at, different = row.document["circumstances"], row.differences(rows[0])
        for model, hashes in row.document["models"].items():
            short = [hashes[part][:12] for part in PARTS]
            same = "no" if model in different else "yes"
            lines.append([row.name, at["python"], at["numpy"], at["blas"], label(model), *short, same])
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def rows(versions: Sequence[str], models: Sequence[Path]) -> list[Row]:
    """The fingerprint of this environment, then one for each version. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="cvm-numpy-") as name:
        folder = Path(name)
        found = [Row("this one", fingerprint(Path(sys.executable), models, ROOT))]
        source = copied(folder / "source")
        for version in versions:
            print(f"installing with NumPy {version} ..", file=sys.stderr, flush=True)
            python = installed(folder / version, source, version)
            document = fingerprint(python, models, folder)
            if not Path(document["circumstances"]["cvm"]).resolve().is_relative_to(folder.resolve()):
                raise RuntimeError(f"not the installed cvm: {document['circumstances']['cvm']}")
            found.append(Row(version, document))
            shutil.rmtree(folder / version)
        return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="folders of NNEF models")
    parser.add_argument("--numpy", nargs="+", metavar="VERSION", help="versions in place of the oldest and the newest")
    parsed = parser.parse_args(arguments)
    versions = parsed.numpy or [oldest((ROOT / "pyproject.toml").read_text("utf-8")), NEWEST]
    models = [model.resolve() for model in parsed.models] or [model for model in MODELS if model.is_dir()]
    try:
        found = rows(versions, models)
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd))
        print(f"{command}\n{error.stdout}{error.stderr}\nexit code {error.returncode}", file=sys.stderr)
        return 2
    print(table(found))
    different = [(row.name, model, parts) for row in found for model, parts in row.differences(found[0]).items()]
    for name, model, parts in different:
        print(f"NumPy {name}: {label(model)} differs in {', '.join(parts)}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
