"""Check that imports point one way: the arrows of the project's layout, as a table.

    python tools/lint_imports.py [ROOT]         (default: the repository)

All imports count: at the top, inside functions, for type checking only, relative, and by name through importlib.
Prints FILE:LINE: what, and exits 1 on a finding.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("cvm", "formal")
"""The packages that the table speaks about."""


@dataclass(frozen=True)
class Rule:
    """Modules under ``importer`` import nothing under ``forbidden``, but for what is under ``except_for``.

    It does not hold for importers under ``exempt``.
    """

    importer: str
    forbidden: tuple[str, ...]
    except_for: tuple[str, ...] = ()
    exempt: tuple[str, ...] = ()


RULES = (
    Rule("formal", ("cvm",), except_for=("cvm.program.model",)),
    Rule("cvm.ops", ("cvm.executors", "cvm.frontends", "cvm.lowering", "cvm.program")),
    Rule("cvm.graph", ("cvm.frontends",)),
    Rule("cvm.reference", ("cvm.executors", "cvm.frontends", "cvm.lowering", "cvm.program")),
    Rule("cvm.calibration", ("cvm.executors", "cvm.lowering", "cvm.program")),
    Rule("cvm.export", ("cvm.executors", "cvm.lowering", "cvm.reference", "cvm.calibration")),
    Rule("cvm.frontends", ("cvm.executors", "cvm.lowering", "cvm.reference", "cvm.calibration", "cvm.export")),
    # Models of cvm-runtime are programs of the same ops: there is nothing to lower, in either direction.
    Rule("cvm.frontends", ("cvm.program",), exempt=("cvm.frontends.cvm_runtime",)),
    Rule("cvm.lowering", ("cvm.executors",)),
    Rule("cvm.executors", ("cvm.frontends", "cvm.lowering")),
    Rule("cvm.report", ("cvm.cli",)),
    Rule("cvm.audit", ("cvm.cli", "cvm.frontends", "cvm.lowering")),
)
"""Who must not know whom."""

CONFINED = {
    "cryptography": "cvm.audit",
    "jinja2": "cvm.report",
    "lark": "cvm.frontends",
    "llvmlite": "cvm.executors.native",
    "google": "cvm.frontends.onnx",
    "matplotlib": "cvm.report",
    "onnx": "cvm.frontends.onnx",
    "rich": "cvm.cli",
    "typer": "cvm.cli",
}
"""Third-party packages that one part alone may import."""


def under(module: str, *parts: str) -> bool:
    """Whether ``module`` is one of ``parts`` or inside one of them."""
    return any(module == part or module.startswith(part + ".") for part in parts)


def imports(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """What a module of ``package`` imports: line and dotted name, names of ``from`` imports appended."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                parts = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                source = ".".join([*parts, *([module] if module else [])])
                yield from ((node.lineno, f"{source}.{alias.name}") for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def findings(tree: ast.AST, module: str, package: str) -> Iterator[tuple[int, str]]:
    """The violations in the module called ``module``: line and what is wrong."""
    for line, name in imports(tree, package):
        for rule in RULES:
            if not under(module, rule.importer) or under(module, *rule.exempt):
                continue
            if under(name, *rule.forbidden) and not under(name, *rule.except_for):
                yield line, f"{module} imports {name}: {rule.importer} must not"
        home = CONFINED.get(name.split(".")[0])
        if home is not None and not under(module, home):
            yield line, f"{module} imports {name}: only {home} may"


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    files = sorted(file for package in PACKAGES for file in (root / package).rglob("*.py"))
    if not files:
        print(f"{root}: no Python files under {' or '.join(PACKAGES)}", file=sys.stderr)
        return 1
    found = []
    for file in files:
        parts = file.relative_to(root).with_suffix("").parts
        package = ".".join(parts[:-1])
        module = package if parts[-1] == "__init__" else ".".join(parts)
        found += [(file, *finding) for finding in sorted(findings(ast.parse(file.read_text("utf-8")), module, package))]
    for file, line, what in found:
        print(f"{file}:{line}: {what}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
