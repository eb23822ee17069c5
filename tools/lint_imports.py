"""Check that imports point one way: the arrows of docs/architecture.md, and no cycle of modules or folders.

    python tools/lint_imports.py [ROOT]         (default: the repository)

The page has a table of rooms: folders and modules of cvm, with the rooms that each may import. Findings are an import
of a room that the importing room's row does not name, an entry that no import needs, a module without a room, and a
drawing on the page with other arrows. All imports count: at the top, inside functions, for type checking only,
relative, and by name through importlib. Prints FILE:LINE: what, and exits 1 on a finding.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = Path("docs", "architecture.md")
PACKAGES = ("cvm", "formal")
"""The packages that the table covers."""

CONFINED: Mapping[str, tuple[str, ...]] = {
    "cryptography": ("cvm.audit",),
    "cuda": ("cvm.executors.cuda",),
    "jinja2": ("cvm.report",),
    "lark": ("cvm.frontends",),
    "llvmlite": ("cvm.executors.native", "cvm.executors.cuda"),
    "google": ("cvm.frontends.onnx",),
    "matplotlib": ("cvm.report",),
    "onnx": ("cvm.frontends.onnx", "cvm.export.onnx", "cvm.conformance.onnx_files", "cvm.reduction.onnx_form"),
    "pyarrow": ("cvm.mapping.tables",),
    "ray": ("cvm.workers.cluster",),
    "rich": ("cvm.cli",),
    "typer": ("cvm.cli",),
}
"""Third-party packages that only these parts may import."""

ONLY = {("formal", "program"): "cvm.program.model"}
"""Rooms of which only one module may be imported."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """The content of the page: the rooms that each room may import, those that all may, and the drawing's arrows."""

    rooms: Mapping[str, Collection[str]]
    common: Collection[str]
    drawing: Collection[tuple[str, str]]

    def room(self, module: str) -> str | None:
        """The room of a module: the longest room name that is the module or contains it."""
        name = module.removeprefix("cvm.")
        found = [room for room in self.rooms if under(name, room)]
        return max(found, key=len, default=None)


def architecture(text: str) -> Architecture:
    """Read the page. A row is ``| `room` | what it is | `room`, `room` |``; *by all*: every room may import it."""
    rows = re.findall(r"^\| `([\w.]+)` \| .* \| (.*) \|$", text, re.MULTILINE)
    rooms = {room: re.findall(r"`([\w.]+)`", imports) for room, imports in rows}
    common = [room for room, imports in rows if "by all" in imports]
    drawing = re.findall(r"^ +([\w.]+) --> ([\w.]+)$", text, re.MULTILINE)
    return Architecture(rooms, common, drawing)


def under(module: str, *parts: str) -> bool:
    """Whether ``module`` is one of ``parts`` or inside one of them."""
    return any(module == part or module.startswith(part + ".") for part in parts)


def imports(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """The imports of a module of ``package``: line and dotted name; names of ``from`` imports are appended."""
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


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the project: its file, and its imports with their lines."""

    file: Path
    imports: tuple[tuple[int, str], ...]


def modules(root: Path) -> dict[str, Module]:
    """All modules below ``root`` by dotted name."""
    found = {}
    for file in sorted(file for package in PACKAGES for file in (root / package).rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        package = ".".join(parts[:-1])
        name = package if parts[-1] == "__init__" else ".".join(parts)
        found[name] = Module(file, tuple(sorted(imports(ast.parse(file.read_text("utf-8")), package))))
    return found


def violations(found: Mapping[str, Module], page: Architecture, used: set[tuple[str, str]]) -> Iterator[str]:
    """Imports against the table and modules without a room. ``used`` gets the pairs of rooms that imports need."""
    for name, module in found.items():
        room = page.room(name)
        if room is None:
            yield f"{module.file}:1: {name} is in no room of {PAGE}"
            continue
        for line, imported in module.imports:
            homes = CONFINED.get(imported.split(".")[0])
            if homes is not None and not under(name, *homes):
                yield f"{module.file}:{line}: {name} imports {imported}: only {' and '.join(homes)} may"
            if not under(imported, *PACKAGES):
                continue
            other = page.room(imported)
            if other is None:
                yield f"{module.file}:{line}: {name} imports {imported}, which is in no room of {PAGE}"
                continue
            used.add((room, other))
            common = page.common if room != "formal" else ()
            if other != room and other not in (*common, *page.rooms[room]):
                yield f"{module.file}:{line}: {name} imports {imported}: {room} must not import {other}"
            alone = ONLY.get((room, other))
            if alone is not None and not under(imported, alone):
                yield f"{module.file}:{line}: {name} imports {imported}: {room} imports {alone} alone"


def stale(page: Architecture, used: Collection[tuple[str, str]]) -> Iterator[str]:
    """Entries of the table that no import needs, and arrows of the drawing that do not fit the table."""
    arrows = {(room, other) for room, others in page.rooms.items() for other in others if room not in page.common}
    for room, other in sorted(arrows - set(used)):
        yield f"{PAGE}: {room} imports nothing of {other}: take it out of the row"
    for room, other in sorted(set(page.drawing) - arrows):
        yield f"{PAGE}: the drawing has an arrow from {room} to {other}, which the table has not"
    drawn = {room for arrow in page.drawing for room in arrow}
    for room, other in sorted(arrows):
        if room in drawn and other in drawn and other not in _reached(room, page.drawing):
            yield f"{PAGE}: the drawing has no way from {room} to {other}, which it imports"


def _reached(room: str, arrows: Collection[tuple[str, str]]) -> set[str]:
    """The rooms that arrows lead to from a room, directly or indirectly."""
    found: set[str] = set()
    left = [room]
    while left:
        here = left.pop()
        new = {end for start, end in arrows if start == here} - found
        found |= new
        left += new
    return found


def cycles(found: Mapping[str, Module]) -> list[tuple[str, ...]]:
    """Modules and folders of one package that import each other, directly or indirectly: (package, name, ...)."""
    edges = {(name, _known(imported, found)) for name, module in found.items() for _, imported in module.imports}
    packages = sorted({name[: dot.start()] for name in found for dot in re.finditer(r"\.", name)})
    return [(package, *cycle) for package in packages for cycle in _components(package, edges)]


def _known(name: str, found: Mapping[str, Module]) -> str:
    """The module that an imported name is, or that contains it."""
    while name not in found and "." in name:
        name = name.rpartition(".")[0]
    return name


def _components(package: str, edges: Collection[tuple[str, str]]) -> list[tuple[str, ...]]:
    """The cycles among the direct members of a package."""
    prefix = f"{package}."
    inside = [(a, b) for a, b in edges if a.startswith(prefix) and b.startswith(prefix)]
    arrows = {tuple(name[len(prefix) :].split(".")[0] for name in edge) for edge in inside}
    pairs = [(a, b) for a, b in arrows if a != b]
    reached = {name: _reached(name, pairs) for name in {a for a, _ in pairs}}
    groups = {
        tuple(sorted(other for other in others if name in reached.get(other, ())))
        for name, others in reached.items()
        if name in others
    }
    return sorted(groups)


def main(arguments: list[str]) -> int:
    """The command line."""
    root = Path(arguments[0]) if arguments else REPOSITORY
    found = modules(root)
    if not found:
        print(f"{root}: no Python files under {' or '.join(PACKAGES)}", file=sys.stderr)
        return 1
    page = architecture((REPOSITORY / PAGE).read_text("utf-8"))
    used: set[tuple[str, str]] = set()
    lines = list(violations(found, page, used))
    lines += [f"{cycle[0]}: {', '.join(cycle[1:])} import each other" for cycle in cycles(found)]
    if root == REPOSITORY:
        lines += stale(page, used)
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
