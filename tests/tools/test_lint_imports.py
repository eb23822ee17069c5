from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import lint_imports

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
        ("formal/nn.py", "import cvm", "formal.nn imports cvm: formal must not import cvm"),
        ("formal/nn.py", "from cvm import errors", "formal.nn imports cvm.errors: formal must not import errors"),
        (
            "formal/nn.py",
            "from cvm.program import codec",
            "formal.nn imports cvm.program.codec: formal imports cvm.program.model alone",
        ),
        ("formal/nn.py", "import cvm.ops.nn", "formal.nn imports cvm.ops.nn: formal must not import ops"),
        ("cvm/ops/nn.py", "import cvm.executors", "cvm.ops.nn imports cvm.executors: ops must not import executors"),
        ("cvm/ops/nn.py", "from cvm import program", "cvm.ops.nn imports cvm.program: ops must not import program"),
        (
            "cvm/ops/nn.py",
            "from ..lowering import x",
            "cvm.ops.nn imports cvm.lowering.x: ops must not import lowering",
        ),
        (
            "cvm/ops/__init__.py",
            "from .. import frontends",
            "cvm.ops imports cvm.frontends: ops must not import frontends",
        ),
        (
            "cvm/graph/model.py",
            "def f() -> None:\n    from cvm.frontends import nnef",
            "cvm.graph.model imports cvm.frontends.nnef: graph must not import frontends.nnef",
        ),
        (
            "cvm/frontends/nnef/reader.py",
            "if TYPE_CHECKING:\n    from cvm.program.model import Program",
            "cvm.frontends.nnef.reader imports cvm.program.model.Program: frontends.nnef must not import program",
        ),
        (
            "cvm/frontends/nnef/reader.py",
            "from cvm.lowering import lower",
            "cvm.frontends.nnef.reader imports cvm.lowering.lower: frontends.nnef must not import lowering",
        ),
        (
            "cvm/frontends/cvm_runtime/importer.py",
            "from cvm.lowering import lower",
            (
                "cvm.frontends.cvm_runtime.importer imports cvm.lowering.lower: "
                "frontends.cvm_runtime must not import lowering"
            ),
        ),
        (
            "cvm/frontends/nnef/reader.py",
            "import importlib\nimportlib.import_module('cvm.executors.numpy')",
            "cvm.frontends.nnef.reader imports cvm.executors.numpy: frontends.nnef must not import executors.numpy",
        ),
        (
            "cvm/lowering/nn.py",
            "from cvm.executors.numpy import run",
            "cvm.lowering.nn imports cvm.executors.numpy.run: lowering must not import executors.numpy",
        ),
        (
            "cvm/executors/numpy/nn.py",
            "from ...frontends import nnef",
            "cvm.executors.numpy.nn imports cvm.frontends.nnef: executors.numpy must not import frontends.nnef",
        ),
        (
            "cvm/executors/numpy/nn.py",
            "import cvm.lowering as lowering",
            "cvm.executors.numpy.nn imports cvm.lowering: executors.numpy must not import lowering",
        ),
        (
            "cvm/program/codec.py",
            "from cvm.passes.optimize import optimize",
            "cvm.program.codec imports cvm.passes.optimize.optimize: program must not import passes.optimize",
        ),
        (
            "cvm/program/codec.py",
            "def f() -> None:\n    import formal.executor",
            "cvm.program.codec imports formal.executor: program must not import formal",
        ),
        (
            "cvm/ops/nn.py",
            "import cvm.ops_table",
            "cvm.ops.nn imports cvm.ops_table, which is in no room of docs/architecture.md",
        ),
        (
            "cvm/upstairs/x.py",
            "",
            "cvm.upstairs.x is in no room of docs/architecture.md",
        ),
        ("cvm/program/codec.py", "import lark", "cvm.program.codec imports lark: only cvm.frontends may"),
        (
            "cvm/executors/numpy/nn.py",
            "from llvmlite import ir",
            "cvm.executors.numpy.nn imports llvmlite.ir: only cvm.executors.native and cvm.executors.cuda may",
        ),
        (
            "cvm/session/session.py",
            "from rich.table import Table",
            "cvm.session.session imports rich.table.Table: only cvm.cli may",
        ),
        ("cvm/__init__.py", "import typer", "cvm imports typer: only cvm.cli may"),
    ],
)
def test_a_violation_is_reported_with_file_and_line(tmp_path: Path, path: str, source: str, what: str) -> None:
    code, lines = lint_one(tmp_path, path, source)
    assert code == 1
    assert len(lines) == 1
    location, _, message = lines[0].partition(": ")
    assert location in {f"{tmp_path / path}:{line}" for line in (1, 2, 3)}
    assert message == what


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("formal/executor.py", "from cvm.program.model import Node"),
        ("formal/executor.py", "import cvm.program.model"),
        ("formal/executor.py", "from cvm.program import model"),
        ("cvm/ops/nn.py", "from .ranges import Range"),
        (
            "cvm/executors/numpy/nn.py",
            "from cvm.program.model import Node\nfrom cvm.ops import REGISTRY\nfrom cvm.executors.base import cores",
        ),
        ("cvm/executors/native/build.py", "import llvmlite.binding"),
        ("cvm/frontends/nnef/syntax.py", "from lark import Lark"),
        ("cvm/frontends/cvm_runtime/importer.py", "from cvm.program import ProgramBuilder"),
        ("cvm/cli/run.py", "import typer\nfrom rich import print"),
        ("cvm/cli/run.py", "from cvm.executors import create\nfrom cvm.frontends import nnef"),
    ],
)
def test_an_import_along_the_arrows_passes(tmp_path: Path, path: str, source: str) -> None:
    assert lint_one(tmp_path, path, source) == (0, [])


def written(root: Path, sources: dict[str, str]) -> Path:
    for path, source in sources.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source + "\n")
    return root


def test_modules_that_import_each_other_are_reported(tmp_path: Path) -> None:
    sources = {"cvm/ops/a.py": "import cvm.ops.b", "cvm/ops/b.py": "def f():\n    from cvm.ops import a"}
    assert lint(str(written(tmp_path, sources))) == (1, ["cvm.ops: a, b import each other"])


def test_folders_that_import_each_other_for_types_are_reported(tmp_path: Path) -> None:
    sources = {
        "cvm/lowering/rules/a.py": "from cvm.lowering.forms import b",
        "cvm/lowering/forms/b.py": "if TYPE_CHECKING:\n    from cvm.lowering.proofs import c",
        "cvm/lowering/proofs/c.py": "from cvm.lowering.rules.a import x",
    }
    assert lint(str(written(tmp_path, sources))) == (1, ["cvm.lowering: forms, proofs, rules import each other"])


PAGE = """
| `a` | first | `b`, `c` |
| `b` | second | `c` |
| `c` | third |  |
| `d` | known to all | *by all* |
  a --> b
  b --> c
"""
NEEDED = {("a", "b"), ("a", "c"), ("b", "c"), ("a", "d")}


def test_a_page_that_says_what_is_so_is_not_stale() -> None:
    page = lint_imports.architecture(PAGE)
    assert page.common == ["d"]
    assert list(lint_imports.stale(page, NEEDED)) == []


@pytest.mark.parametrize(
    ("old", "new", "used", "what"),
    [
        ("", "", NEEDED - {("a", "c")}, "a imports nothing of c"),
        ("b --> c", "c --> b", NEEDED, "the drawing has an arrow from c to b"),
        ("  b --> c\n", "  a --> c\n", NEEDED, "the drawing has no way from b to c"),
    ],
)
def test_a_page_that_says_otherwise_is_stale(old: str, new: str, used: set[tuple[str, str]], what: str) -> None:
    found = list(lint_imports.stale(lint_imports.architecture(PAGE.replace(old, new)), used))
    assert any(what in line for line in found)


def test_a_folder_without_sources_fails(tmp_path: Path) -> None:
    assert lint(str(tmp_path))[0] == 1


@pytest.mark.long  # `make lint` runs it
def test_the_project_is_clean() -> None:
    assert lint() == (0, [])
