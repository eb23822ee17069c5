"""Defects drawn at random: one token of one function changed."""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Iterator

from tools.mutation.mutants import nodes, replaced
from tools.mutation.operators import replacements
from tools.planted.defect import MODULES, Defect, source

__all__ = ["drawn", "mutants"]

WORDS = {"blocks", "cost", "how", "note", "products", "results", "streamed"}
"""Variables that only describe a call: its words, or its duration."""
SAID = {"call": 4, "prefetch": 0}
"""Methods, and how many of their arguments come before those that only describe."""


def drawn(count: int, seed: int, machine: str) -> list[Defect]:
    """``count`` different mutants for a machine: first a module is drawn, then one of its mutants."""
    random_ = random.Random(seed)
    every = {module: list(mutants(module)) for module in MODULES if module != "tiles" or machine == "amx"}
    modules = [module for module, those in every.items() if those]
    found: dict[str, Defect] = {}
    while len(found) < count:
        module = random_.choice(modules)
        name, number, other = random_.choice(every[module])
        if name not in found:
            tree = ast.parse(source(module))
            node = next(node for index, node in enumerate(ast.walk(tree)) if index == number)
            found[name] = Defect(name, "drawn", module, ast.unparse(replaced(tree, node, other)))
    return list(found.values())


def mutants(module: str) -> Iterator[tuple[str, int, ast.expr]]:
    """The mutants of a module: name, number of the node in the order of `ast.walk`, and its replacement."""
    tree = ast.parse(source(module))
    numbers = {node: number for number, node in enumerate(ast.walk(tree))}
    silent = {node for node in ast.walk(tree) if isinstance(getattr(node, "ctx", None), ast.Store)}
    silent |= {inner for node in ast.walk(tree) for said in _said(node) for inner in ast.walk(said)}
    seen: Counter[str] = Counter()
    functions = [one for part in tree.body for one in (part.body if isinstance(part, ast.ClassDef) else [part])]
    for function in (one for one in functions if isinstance(one, ast.FunctionDef)):
        for node in nodes(function):
            for other in replacements(node) if node not in silent else ():
                text = f"{module}.{function.name}: {ast.unparse(node)} -> {ast.unparse(other)}"
                seen[text] += 1
                yield text + (f" ({seen[text]})" if seen[text] > 1 else ""), numbers[node], other


def _said(node: ast.AST) -> list[ast.expr]:
    """Expressions of a node that do not influence any byte."""
    match node:
        case ast.JoinedStr():
            return [node]
        case ast.Assert(msg=ast.expr() as message):
            return [message]
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in WORDS:
            return [value]
        case ast.AugAssign(target=ast.Name(id=name), value=value) if name in WORDS:
            return [value]
        case ast.Call(func=ast.Attribute(attr=name), args=arguments) if name in SAID:
            return arguments[SAID[name] :]
        case _:
            return []
