from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LINT = Path(__file__).parents[2] / "tools" / "lint_imports.py"


def lint(*arguments: str) -> tuple[int, list[str]]:
    result = subprocess.run([sys.executable, LINT, *arguments], capture_output=True, text=True, check=False)
    return result.returncode, result.stdout.splitlines()


def lint_one(root: Path, path: str, source: str) -> tuple[int, list[str]]:
    file = root / path
    file.parent.mkdir(parents=True)
    file.write_text(f'"""import cvm.executors, lark: only text."""\n{source}\n')
    return lint(str(root))


@pytest.mark.parametrize(
    ("path", "source", "what"),
    [
        ("formal/nn.py", "import cvm", "formal.nn imports cvm: formal must not"),
        ("formal/nn.py", "from cvm import errors", "formal.nn imports cvm.errors: formal must not"),
        ("formal/nn.py", "from cvm.program import codec", "formal.nn imports cvm.program.codec: formal must not"),
        ("formal/nn.py", "import cvm.ops.nn", "formal.nn imports cvm.ops.nn: formal must not"),
        ("cvm/ops/nn.py", "import cvm.executors", "cvm.ops.nn imports cvm.executors: cvm.ops must not"),
        ("cvm/ops/nn.py", "from cvm import program", "cvm.ops.nn imports cvm.program: cvm.ops must not"),
        ("cvm/ops/nn.py", "from ..lowering import x", "cvm.ops.nn imports cvm.lowering.x: cvm.ops must not"),
        ("cvm/ops/__init__.py", "from .. import frontends", "cvm.ops imports cvm.frontends: cvm.ops must not"),
        (
            "cvm/graph/model.py",
            "def f() -> None:\n    from cvm.frontends import nnef",
            "cvm.graph.model imports cvm.frontends.nnef: cvm.graph must not",
        ),
        (
            "cvm/frontends/nnef/reader.py",
            "if TYPE_CHECKING:\n    from cvm.program.model import Program",
            "cvm.frontends.nnef.reader imports cvm.program.model.Program: cvm.frontends must not",
        ),
        (
            "cvm/frontends/nnef/reader.py",
            "from cvm.lowering import lower",
            "cvm.frontends.nnef.reader imports cvm.lowering.lower: cvm.frontends must not",
        ),
        (
            "cvm/frontends/cvm_runtime/importer.py",
            "from cvm.lowering import lower",
            "cvm.frontends.cvm_runtime.importer imports cvm.lowering.lower: cvm.frontends must not",
        ),
        (
            "cvm/frontends/nnef/reader.py",
            "import importlib\nimportlib.import_module('cvm.executors.numpy')",
            "cvm.frontends.nnef.reader imports cvm.executors.numpy: cvm.frontends must not",
        ),
        (
            "cvm/lowering/nn.py",
            "from cvm.executors.numpy import run",
            "cvm.lowering.nn imports cvm.executors.numpy.run: cvm.lowering must not",
        ),
        (
            "cvm/executors/numpy/nn.py",
            "from ...frontends import nnef",
            "cvm.executors.numpy.nn imports cvm.frontends.nnef: cvm.executors must not",
        ),
        (
            "cvm/executors/numpy/nn.py",
            "import cvm.lowering as lowering",
            "cvm.executors.numpy.nn imports cvm.lowering: cvm.executors must not",
        ),
        ("cvm/program/codec.py", "import lark", "cvm.program.codec imports lark: only cvm.frontends may"),
        (
            "cvm/executors/numpy/nn.py",
            "from llvmlite import ir",
            "cvm.executors.numpy.nn imports llvmlite.ir: only cvm.executors.native may",
        ),
        ("cvm/session.py", "from rich.table import Table", "cvm.session imports rich.table.Table: only cvm.cli may"),
        ("cvm/__init__.py", "import typer", "cvm imports typer: only cvm.cli may"),
    ],
)
def test_a_violation_is_reported_with_file_and_line(tmp_path: Path, path: str, source: str, what: str) -> None:
    code, lines = lint_one(tmp_path, path, source)
    assert code == 1
    assert len(lines) == 1
    place, _, message = lines[0].partition(": ")
    assert place in (f"{tmp_path / path}:2", f"{tmp_path / path}:3")
    assert message == what


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("formal/executor.py", "from cvm.program.model import Node"),
        ("formal/executor.py", "import cvm.program.model"),
        ("formal/executor.py", "from cvm.program import model"),
        ("cvm/ops/nn.py", "from cvm.ops_table import x\nfrom .ranges import Range"),
        (
            "cvm/executors/numpy/nn.py",
            "from cvm.program.model import Node\nfrom cvm.ops import REGISTRY\nimport formal",
        ),
        ("cvm/executors/native/build.py", "import llvmlite.binding"),
        ("cvm/frontends/nnef/syntax.py", "from lark import Lark"),
        ("cvm/frontends/cvm_runtime/importer.py", "from cvm.program import ProgramBuilder"),
        ("cvm/cli/run.py", "import typer\nfrom rich import print"),
        ("cvm/cli/run.py", "from cvm.executors import numpy\nfrom cvm.frontends import nnef"),
    ],
)
def test_an_import_along_the_arrows_passes(tmp_path: Path, path: str, source: str) -> None:
    assert lint_one(tmp_path, path, source) == (0, [])


def test_a_folder_without_sources_fails(tmp_path: Path) -> None:
    assert lint(str(tmp_path))[0] == 1


def test_the_project_is_clean() -> None:
    assert lint() == (0, [])
