"""Fuzzer of documents: random ones, most of them damaged, go through everything that reads a document.

    python -m tools.fuzz.documents --count 200000 --seed 1

A valid document must have these properties. Printed from its tree, it is the same document. Printed flat, it is a
document of the same operations, and its flat text is a fixed point. The upgrade of a provisional document has the same
operations with the same shapes. For an invalid document, every error has a location in its text.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from cvm.errors import CvmError, LimitExceeded, Unsupported
from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.checker import Findings, check_document
from cvm.frontends.nnef.comments import attached
from cvm.frontends.nnef.diagnosis import diagnose
from cvm.frontends.nnef.flatten import flatten_document
from cvm.frontends.nnef.parser import decode, parse_document
from cvm.frontends.nnef.printer import print_graph
from cvm.frontends.nnef.propagation import propagate
from cvm.frontends.nnef.provisional import check_text, flat_form, is_provisional, upgrade_text
from cvm.frontends.nnef.unparse import unparse
from cvm.frontends.nnef.values import FlatGraph, FlatTensor
from tools.fuzz.grammar import document
from tools.fuzz.harness import Fuzzer, main
from tools.fuzz.mutation import mutate_text

__all__ = ["FUZZER", "check_locations", "check_round_trips", "check_upgrade", "same"]


def make(random_: random.Random) -> bytes:
    """A document: one in four as generated, the others with up to eight changes."""
    text = document(random_, provisional=random_.random() < 0.25).encode()
    if random_.random() < 0.25:
        return text
    return mutate_text(random_, text, random_.choice((1, 1, 1, 2, 2, 3, 5, 8)))


def examine(case: bytes) -> str:
    """The verdict on a document, and the properties of a valid one."""
    text = decode(case)
    findings = Findings()
    try:
        if is_provisional(text):
            check_text(text)
            check_upgrade(text)
            return "valid provisional"
        tree = parse_document(text)
        flat = propagate(tree, findings)
    except CvmError as error:
        check_locations(text, error.errors)
        raise
    if findings:
        check_locations(text, findings)
        return ".".join(findings[0].code.split(".")[:2])
    check_round_trips(text, tree, flat)
    return "valid"


def check_locations(text: str, errors: Iterable[CvmError]) -> None:
    """Require that every error can be shown with its line."""
    lines = text.split("\n")
    for error in errors:
        location = error.location
        if isinstance(error, LimitExceeded) and location.line is None:
            continue  # an error of the text as a whole
        assert location.line is not None, f"an error without a line: {error}"
        assert location.column is not None, f"an error without a column: {error}"
        assert 1 <= location.line <= len(lines), f"a line that is not there: {error}"
        assert 1 <= location.column <= len(lines[location.line - 1]) + 1, f"a column that is not there: {error}"
        assert diagnose(error, text).excerpt is not None


def check_round_trips(text: str, tree: syntax.Document, flat: FlatGraph) -> None:
    """Print and parse, and flatten and parse, a valid document; no comment may be lost."""
    comments = unparse(tree, attached(text, tree))
    assert same(tree, parse_document(comments)), "printed with its comments, a document is another one"
    again = parse_document(unparse(tree))
    assert same(tree, again), "printed from its tree, a document is another one"
    printed = print_graph(flat)
    flat_tree = parse_document(printed)
    second = flatten_document(flat_tree, check_document(flat_tree))
    assert operations(second) == operations(flat), "printed flat, a document has other operations"
    assert print_graph(second) == printed, "a flat document is not printed as it is"


def check_upgrade(text: str) -> None:
    """A valid provisional document and its upgrade have the same operations."""
    try:
        upgraded = upgrade_text(text)
    except Unsupported:
        return
    tree = parse_document(upgraded)
    flat = flatten_document(tree, check_document(tree))
    assert operations(flat) == operations(flat_form(text)), "an upgraded document has other operations"


def operations(graph: FlatGraph) -> list[tuple[Any, ...]]:
    """The content of a flat graph, without locations in the text and generated names."""
    return [
        (o.name, {key: _plain(value) for key, value in o.arguments.items()}, _plain(o.results))
        for o in graph.operations
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, FlatTensor):
        return value.dtype, value.shape
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def same(first: Any, second: Any) -> bool:
    """Whether two trees are equal except for locations in the text."""
    if type(first) is not type(second):
        return False
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, syntax.SyntaxNode):
        names = [field.name for field in fields(first) if field.name not in ("line", "column", "depth")]
        return all(same(getattr(first, name), getattr(second, name)) for name in names)
    return bool(first == second)


FUZZER = Fuzzer("tools.fuzz.documents", make, examine)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
