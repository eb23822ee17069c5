"""Small documents for tests, and the shared material where it is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cvm.errors import CvmError
from cvm.frontends.nnef.checker import check_document
from cvm.frontends.nnef.flatten import flatten_document
from cvm.frontends.nnef.parser import decode, parse_document
from cvm.frontends.nnef.values import FlatGraph
from cvm.limits import DEFAULT, Limits

SHARED = Path(__file__).resolve().parents[4] / "shared"
EXTENSIONS = "extension KHR_enable_fragment_definitions KHR_enable_operator_expressions;"


def flatten_text(text: str, limits: Limits = DEFAULT) -> FlatGraph:
    document = parse_document(decode(text.encode(), limits), limits)
    return flatten_document(document, check_document(document), limits)


def graph(body: str, shape: str = "[2,3]", fragments: str = "", extensions: str = EXTENSIONS) -> str:
    """A document with one external ``x``, one result ``y``; ``body`` begins on line 6, column 5."""
    return f"""version 1.0;
{extensions} {fragments}
graph net( x ) -> ( y )
{{
    x = external(shape = {shape});
    {body}
}}
"""


def flat(body: str, shape: str = "[2,3]") -> str:
    """As `graph`, without extensions."""
    return graph(body, shape, extensions="")


def error_of(action: Callable[[], Any]) -> CvmError:
    with pytest.raises(CvmError) as caught:
        action()
    return caught.value


def corpus(kind: str) -> list[Any]:
    """The entries of the shared corpus of one kind, or one skipped case that says what is missing."""
    manifest = SHARED / "nnef" / "corpus" / "manifest.json"
    if not manifest.is_file():
        return [missing(f"nnef/corpus ({kind})")]
    entries = json.loads(manifest.read_text("utf-8"))
    return [pytest.param(entry, id=entry["file"]) for entry in entries if entry["kind"] == kind]


def folders(where: str) -> list[Any]:
    """The model folders below a shared folder, or one skipped case that says what is missing."""
    found = sorted(path.parent for path in (SHARED / where).glob("*/graph.nnef"))
    return [pytest.param(path, id=path.name) for path in found] or [missing(where)]


def missing(what: str) -> Any:
    return pytest.param(None, id=f"missing-{what}", marks=pytest.mark.skip(reason=f"../shared/{what} is not there"))
