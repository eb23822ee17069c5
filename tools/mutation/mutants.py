"""The mutants of an op: every replacement at every node of the functions that contribute to its meaning."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from formal.registry import OPS
from tools.mutation.operators import replacements, results

__all__ = ["Mutant", "mutants", "nodes", "replaced", "sources"]

INFRASTRUCTURE = {"Tensor", "Stored", "elements", "indices", "stored", "materialize"}
"""The tensor classes of formal.tensor: the same for every op, and not part of an op's meaning."""


@dataclass(frozen=True)
class Mutant:
    """One change to one function: ``name`` identifies it, ``tree`` is the whole module with the change."""

    name: str
    module: str
    tree: ast.Module


def sources(folder: Path) -> dict[str, ast.Module]:
    """The modules of FORMAL by name, parsed."""
    return {
        "formal" if path.stem == "__init__" else f"formal.{path.stem}": ast.parse(path.read_text("utf-8"))
        for path in sorted(folder.glob("*.py"))
    }


def mutants(op: str, modules: dict[str, ast.Module]) -> Iterator[Mutant]:
    """All mutants of an op, in the order of the text; equal changes of one function are numbered."""
    function = OPS[op]
    for module, name in _meaning(function.__module__, function.__name__, modules):
        seen: Counter[str] = Counter()
        body = _function(modules[module], name)
        changes = [(node, other) for node in nodes(body) for other in replacements(node)]
        changes += [(result, other) for result in _elements(body) for other in results(result)]
        for node, other in changes:
            text = f"{module.removeprefix('formal.')}.{name}: {ast.unparse(node)} -> {ast.unparse(other)}"
            seen[text] += 1
            number = f" ({seen[text]})" if seen[text] > 1 else ""
            yield Mutant(text + number, module, replaced(modules[module], node, other))


def _meaning(module: str, name: str, modules: dict[str, ast.Module]) -> list[tuple[str, str]]:
    """A function and, transitively, the functions of FORMAL that it names."""
    found: list[tuple[str, str]] = []
    waiting = [(module, name)]
    while waiting:
        function = waiting.pop(0)
        if function in found or function[1] in INFRASTRUCTURE:
            continue
        found.append(function)
        homes = _homes(function[0], modules)
        names = [
            node.id for node in ast.walk(_function(modules[function[0]], function[1])) if isinstance(node, ast.Name)
        ]
        waiting += [(homes[other], other) for other in dict.fromkeys(names) if other in homes]
    return found


def _homes(module: str, modules: dict[str, ast.Module]) -> dict[str, str]:
    """The functions that a module can name, with the module that defines each."""
    homes = {}
    for item in modules[module].body:
        if isinstance(item, ast.FunctionDef):
            homes[item.name] = module
        elif isinstance(item, ast.ImportFrom) and item.module in modules:
            defined = {other.name for other in modules[item.module].body if isinstance(other, ast.FunctionDef)}
            homes.update({alias.name: item.module for alias in item.names if alias.name in defined})
    return homes


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    return next(item for item in tree.body if isinstance(item, ast.FunctionDef) and item.name == name)


def nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The expressions of a function's statements: no signatures, annotations, decorators, docstrings or messages."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop(0)
        match node:
            case ast.FunctionDef(body=body):
                waiting = [*body, *waiting]
            case ast.AnnAssign(value=value):
                waiting = [*([value] if value is not None else []), *waiting]
            case ast.Raise() | ast.Expr(value=ast.Constant()):
                continue
            case _:
                yield node
                waiting = [*ast.iter_child_nodes(node), *waiting]


def _elements(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """The integers that a function, or one inside it, returns."""
    for inner in ast.walk(function):
        if isinstance(inner, ast.FunctionDef) and isinstance(inner.returns, ast.Name) and inner.returns.id == "int":
            yield from (
                node.value for node in ast.walk(inner) if isinstance(node, ast.Return) and node.value is not None
            )


def replaced(tree: ast.Module, node: ast.AST, other: ast.expr) -> ast.Module:
    """A copy of the module with one node replaced."""
    number = next(index for index, found in enumerate(ast.walk(tree)) if found is node)
    changed = copy.deepcopy(tree)
    target = next(found for index, found in enumerate(ast.walk(changed)) if index == number)
    mutated = _Replace(target, copy.deepcopy(other)).visit(changed)
    assert isinstance(mutated, ast.Module)
    return ast.fix_missing_locations(mutated)


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, other: ast.expr) -> None:
        self._target, self._other = target, other

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self._target:
            return ast.copy_location(self._other, node)
        return self.generic_visit(node)
