"""Check that no function of cvm and formal has more than 50 lines, and that the formatter lays out signatures.

    python tools/lint_functions.py [ROOT]         (default: the repository)

Lines are counted from ``def`` to the end, with the docstring, decorators and inner functions.
``# fmt: skip`` is for tables of data; a signature that needs it has too many parameters. Prints FILE:LINE: what, and
exits 1 on a finding.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ("cvm", "formal")
MOST = 50
"""The most lines of a function."""


def functions(tree: ast.AST) -> Iterator[tuple[int, str, int]]:
    """The functions of a module: line, name, lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.lineno, node.name, node.end_lineno - node.lineno + 1


def signatures_kept_from_formatting(text: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The functions whose signature carries ``# fmt: skip``: line, name."""
    lines = text.splitlines()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if any("# fmt: skip" in line for line in lines[node.lineno - 1 : node.body[0].lineno - 1]):
            yield node.lineno, node.name


def findings(root: Path) -> Iterator[str]:
    """Functions that are too long, and signatures that the formatter is told to skip."""
    for file in sorted(file for package in PACKAGES for file in (root / package).rglob("*.py")):
        name = file.relative_to(root).as_posix()
        text = file.read_text("utf-8")
        tree = ast.parse(text)
        for line, function in signatures_kept_from_formatting(text, tree):
            yield f"{name}:{line}: the signature of {function} has # fmt: skip; use fewer parameters"
        for line, function, count in functions(tree):
            if count > MOST:
                yield f"{name}:{line}: {function} has {count} lines, at most {MOST} are good to read"


def main(arguments: list[str]) -> int:
    """The command line."""
    root = Path(arguments[0]) if arguments else REPOSITORY
    found = list(findings(root))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
