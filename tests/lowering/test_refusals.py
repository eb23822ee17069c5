"""Every refusal that is claimed happens, and every refusal that can happen is claimed."""

from __future__ import annotations

import ast
import re
import traceback
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import cvm.lowering
from cvm.errors import CvmError
from cvm.lowering import CLAIMS, REFUSALS, lower
from tests.lowering.refusals import CASES as OF_NNEF
from tests.lowering.refusals import Case
from tests.lowering.refusals_of_other_formats import CASES as OF_OTHERS

CASES = [*OF_NNEF, *OF_OTHERS]
SOURCES = Path(cvm.lowering.__file__).parent

UNREACHED = {
    "activations.gelu": "front ends name functions that there are",
    "__init__.lower": "every operation that a front end gives has a rule",
    "context.tensor": "the type of the parameter is a tensor that is computed",
    "context.operand_of": "the type of the parameter is a tensor, not an array",
    "context._contents": "quantisers are checked where they are read",
    "context._stored": "items are checked where they are read",
    "elementwise.add_n": "the type of the parameter is an array",
    "norms._selected": "2^18 thresholds leave sums of squares that fit",
    "digits.narrow_digits": "a tensor of more than 2^28 items would be added up",
    "digits.square": "a tensor of more than 2^28 items would be added up",
    "digits.weighed_digits": "a tensor of more than 2^28 items would be added up",
    "ratio.root_codes": "squares that are added up fit, or are refused before",
    "layer_normalization._codes": "products are kept small enough to be added up",
    "ordering.by_ranks": "a maximum of undecided numbers takes long to be refused; `reduce` has the same case",
    "regions._weights": "methods are checked where they are read",
    "sampling._index": "the type of the parameter is a tensor of integers",
    "shape._parts": "the type of the parameter is an array",
    "shape._reflected": "borders are checked where they are read",
    "shape._positions": "the type of the parameter is a tensor of integers",
}
"""Functions with a refusal that no document of NNEF meets, since its reader says no first, and why that is so."""

Site = tuple[str, int]
"""A module of the package, and the line of a ``raise``."""


def sites() -> dict[Site, str]:
    """Every place that refuses a document, and its function as module.name."""
    found: dict[Site, str] = {}

    def visit(node: ast.AST, module: str, function: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = child.name if isinstance(child, ast.FunctionDef) else function
            if isinstance(child, ast.Raise) and child.exc is not None:
                raised = ast.unparse(child.exc)
                if not raised.startswith(("AssertionError", "TooWide", "Unprovable")):
                    found[module, child.lineno] = f"{module}.{name}"
            visit(child, module, name)

    for path in sorted(SOURCES.rglob("*.py")):
        visit(ast.parse(path.read_text(encoding="utf-8")), path.stem, "")
    return found


def raised_at(error: BaseException | None) -> Iterator[Site]:
    """Where an error, and those that it was raised on account of, came from."""
    while error is not None:
        for frame, line in traceback.walk_tb(error.__traceback__):
            yield Path(frame.f_code.co_filename).stem, line
        error = error.__context__


@lru_cache(maxsize=1)
def outcomes() -> tuple[list[CvmError | None], frozenset[Site]]:
    """The error of each case, and the ``raise`` statements that were executed for it."""
    wanted, reached = sites(), set()
    errors: list[CvmError | None] = []
    for case in CASES:
        with TemporaryDirectory() as folder:
            graph = case.graph(Path(folder))
        try:
            lower(graph)
            errors.append(None)
        except CvmError as error:
            reached |= set(wanted) & set(raised_at(error))
            errors.append(error)
    return errors, frozenset(reached)


def names() -> Iterator[str]:
    for number, case in enumerate(CASES):
        yield f"{number} {case.operation}: {case.why}"


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CASES)), ids=names())
def test_a_document_is_refused_with_its_code_and_place(number: int) -> None:
    case, error = CASES[number], outcomes()[0][number]
    assert error is not None, case.body
    assert error.code == case.code
    assert error.location.op is not None or error.location.tensor is not None
    assert error.location.line is not None or case.code == "lowering.contents"


def test_every_condition_of_a_claim_has_a_document() -> None:
    claimed = {(name, condition) for name, claim in CLAIMS.items() for condition in claim.refuses}
    shown = {(case.operation, case.why) for case in CASES if case.why not in REFUSALS}
    assert shown == claimed


def test_every_code_has_a_document() -> None:
    assert {case.code for case in CASES} == {"lowering.operation", *REFUSALS}


def test_every_place_that_refuses_is_reached_or_cannot_be() -> None:
    _, reached = outcomes()
    places = sites()
    assert {places[site] for site in set(places) - reached} <= set(UNREACHED)
    assert set(UNREACHED) <= set(places.values())


def test_every_code_in_the_sources_is_listed() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    literal = set(re.findall(r'"(lowering\.[a-z]+)"', text))
    completed = {f"lowering.{rule}" for rule in re.findall(r'_refused\(lowering, operation, "([a-z]+)"', text)}
    completed |= {f"lowering.{what}" for what in re.findall(r'what = "([a-z]+)" if .* else "[a-z]+"', text)}
    completed |= {f"lowering.{what}" for what in re.findall(r'what = "[a-z]+" if .* else "([a-z]+)"', text)}
    assert literal | completed == {"lowering.operation", *REFUSALS} - {"quantization.range"}
    assert set(re.findall(r'f"(lowering\.\{\w+\})"', text)) <= {"lowering.{rule}", "lowering.{what}"}


def test_a_case_names_an_operation_of_nnef() -> None:
    assert all(isinstance(case, Case) and case.operation in CLAIMS for case in CASES)
