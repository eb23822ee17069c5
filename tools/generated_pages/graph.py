"""The page ``docs/graph.md``: the declared operations of graphs."""

from __future__ import annotations

import ast
from pathlib import Path

from cvm.graph import Declaration, declarations
from cvm.graph.declaration import FILES, Parameter, operations_of
from cvm.graph.shapes import RULES as SHAPES
from cvm.graph.verifier import RULES
from cvm.lowering import CLAIMS
from cvm.lowering.claims import with_accuracy
from tools.generated_pages.page import DOCS, Page

__all__ = ["PAGE", "markdown"]

_FORMATS = {"ONNX": "onnx", "TFLite": "tflite", "WebNN": "webnn", "OpenVX": "openvx"}
_CVM = DOCS.parent / "cvm"
_BUILDERS = {"self", "graph", "translation", "windows"}
"""What the graph that is made, and the modules of shared functions, are called in readers."""
_TENSORS = ("external", "variable", "constant", "update")
"""Operations of NNEF that are kinds of tensors in a graph, whose names other readers use as well."""
_INTRODUCTION = """\
# Operations of graphs

Generated from the declarations in `cvm/graph` by `tools/generate_pages.py`; do not edit.

A graph is what every front end makes and lowering reads: operations on tensors of real numbers. Each result that
carries a quantiser is rounded once. The operations are declared once, in the notation of NNEF: names, inputs,
attributes with types and default values, results and meaning in `cvm/graph/*.nnef`, constraints and result shapes in
`cvm/graph/shapes`. A front end may leave out an attribute that has a default; it is filled in when the operation is
made. *Formats* are those whose reader emits the operation. *Lowers* says whether the integer program computes exactly
the codes that the operation means.

## What is verified

`cvm/graph/verifier.py` checks a graph after every front end and after calibration, in one walk over the operations:

| rule | what holds |
|---|---|
"""


def markdown() -> str:
    """The page."""
    lines = [_INTRODUCTION + "".join(f"| `graph.{rule.label}` | {rule.text} |\n" for rule in RULES)]
    lines += ["## The operations", "", "| operation | formats | lowers |", "|---|---|---|"]
    reached = _formats()
    entries = declarations()
    for name in entries:
        claim: str = CLAIMS[name].kind if name in CLAIMS else "refused"
        if fine := CLAIMS.get(with_accuracy(name, "fine")):
            claim += f"; {fine.kind} with accuracy 'fine'"
        lines.append(f"| [`{name}`](#{name}) | {', '.join(reached[name])} | {claim} |")
    for entry in entries.values():
        lines += ["", *_section(entry)]
    return "\n".join(lines) + "\n"


def _section(entry: Declaration) -> list[str]:
    shape = (SHAPES[entry.name].function.__doc__ or "").split("\n")[0]
    form = f"{', '.join(item.name for item in entry.results)} = {entry.name}({_example(entry)})"
    meaning = f"`{entry.meaning}`" if "=" in entry.meaning.split(" ")[1:2] else entry.meaning
    lines = [f"### {entry.name}", "", f"{meaning} ({entry.source}.)", "", f"    {form}", ""]
    lines += [f"* `{item.name}`: {item.type}{_default(item)}" for item in entry.parameters]
    return [*lines, f"* Shape of the result: {shape[:1].lower()}{shape[1:]}"]


def _example(entry: Declaration) -> str:
    attributes = (f"{item.name} = {_text(item.default)}" for item in entry.attributes if item.default is not None)
    return ", ".join([*(item.name for item in entry.inputs), *attributes])


def _default(item: Parameter) -> str:
    return "" if item.default is None else f", {_text(item.default)} if it is not given"


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, str) else f"{value}"


def _formats() -> dict[str, list[str]]:
    """The formats whose readers name each operation, directly or through a shared function that names it."""
    found: dict[str, list[str]] = {name: [] for name in declarations()}
    for file in FILES[:2]:
        for item in operations_of(file):
            if "NNEF" not in found[item.name]:
                found[item.name].append("NNEF")
    for format, folder in _FORMATS.items():
        shared = _shared()
        named, pending = set[str](), [_words(file) for file in (_CVM / "frontends" / folder).rglob("*.py")]
        while pending:
            texts, names = pending.pop()
            named |= texts
            pending += [shared.pop(name) for name in names & shared.keys()]
        for name in found:
            if name in named and name not in _TENSORS:
                found[name].append(format)
    return found


def _shared() -> dict[str, tuple[set[str], set[str]]]:
    """For each function that readers share: the strings in it, and the names that it uses."""
    files = [_CVM / "graph" / "builder.py", *(_CVM / "frontends" / "common").rglob("*.py")]
    trees = [ast.parse(file.read_text("utf-8")) for file in files]
    return {node.name: _words(node) for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _words(source: Path | ast.AST) -> tuple[set[str], set[str]]:
    """The strings in a file or a function, and the names that it imports or uses; for a file, no names of its own."""
    nodes = list(ast.walk(ast.parse(source.read_text("utf-8")) if isinstance(source, Path) else source))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    names = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _BUILDERS
    }
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cvm.frontends.common"):
            names |= {alias.name for alias in node.names}
    if not isinstance(source, Path):
        names |= {node.id for node in nodes if isinstance(node, ast.Name)}
    return texts, names


PAGE = Page("graph.md", markdown)
