"""Check that FORMAL uses Python integers only, and nothing that could differ between machines.

    python tools/lint_formal.py [FOLDER]        (default: formal)

Findings are imports from outside formal, the allowed part of the standard library and cvm.program.model; true division;
float and complex literals; the builtins that make floats, depend on the process or escape this check; sets, which
have no order; and a literal negative exponent, which makes a float. Prints FILE:LINE: what, and exits 1 on a finding.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

ALLOWED_MODULES = (
    "__future__",
    "collections.abc",
    "cvm.program.model",
    "dataclasses",
    "formal",
    "functools",
    "itertools",
    "types",
    "typing",
)
"""Modules from which anything may be imported."""

ALLOWED_NAMES = {"math": ("prod",), "operator": ("index",)}
"""Modules from which only these names may be imported: the exact functions."""

FORBIDDEN_NAMES = {
    "float": "makes floats",
    "complex": "makes complex numbers",
    "round": "rounds by a rule of its own",
    "hash": "depends on the process",
    "id": "depends on the process",
    "set": "has no order",
    "frozenset": "has no order",
    "eval": "escapes this check",
    "exec": "escapes this check",
    "__import__": "escapes this check",
}
"""Builtins that FORMAL must not use, and why."""


def findings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The violations in a module: line and what is wrong."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    if not _allowed(alias.name):
                        yield node.lineno, f"import of {alias.name}"
            case ast.ImportFrom(module=module, names=names, level=level):
                if level:
                    yield node.lineno, "relative import"
                for alias in names:
                    if not level and not _allowed(module or "", alias.name):
                        yield node.lineno, f"import of {alias.name} from {module}"
            case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
                yield node.lineno, "true division (use //)"
            case ast.BinOp(op=ast.Pow(), right=ast.UnaryOp(op=ast.USub())):
                yield node.lineno, "negative exponent"
            case ast.Constant(value=float() | complex()):
                yield node.lineno, f"literal {node.value!r}"
            case ast.Set() | ast.SetComp():
                yield node.lineno, "set: has no order"
            case ast.Name(id=name) if name in FORBIDDEN_NAMES:
                yield node.lineno, f"{name}: {FORBIDDEN_NAMES[name]}"
            case ast.Attribute(attr="__truediv__" | "__rtruediv__" | "__float__" | "__hash__" as name):
                yield node.lineno, f"{name}: a way round this check"


def _allowed(module: str, name: str | None = None) -> bool:
    if name in ALLOWED_NAMES.get(module, ()):
        return True
    return any(module == allowed or module.startswith(allowed + ".") for allowed in ALLOWED_MODULES)


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else ROOT / "formal"
    files = sorted(folder.rglob("*.py"))
    if not files:
        print(f"{folder}: no Python files", file=sys.stderr)
        return 1
    found = [(file, *finding) for file in files for finding in sorted(findings(ast.parse(file.read_text("utf-8"))))]
    for file, line, what in found:
        print(f"{file}:{line}: {what}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
