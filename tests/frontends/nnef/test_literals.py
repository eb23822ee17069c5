"""Arrays of numbers in one piece mean what they mean item by item, and are refused at the same place."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.errors import CvmError
from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.literals import PLAIN_ARRAY, PlainArray, _positioned, plain_array
from cvm.frontends.nnef.parser import parse_document
from tests.frontends.nnef.documents import error_of, flatten_text, graph

_PATTERN = re.compile(PLAIN_ARRAY)
_SPACES = st.sampled_from(["", "", " ", "\n", " \t", "# 1, (2]\n", "\r\n  "])
_NUMBERS = st.sampled_from(
    ["0", "1", "007", "12345678901234567890", "0.5", "1.0e3", "2E-2", "3e+1", "- 4", "-1", "-0.25"]
)
_STRANGE = st.sampled_from(["x", "1.", "+1", "--1", "'a'", "[1]", "(1)", "true", "1 2", "", "1x", "(2, 3.0)", ".5"])


@st.composite
def arrays(draw: st.DrawFn, items: st.SearchStrategy[str]) -> str:
    def spaced(text: str) -> str:
        return draw(_SPACES) + text + draw(_SPACES)

    def row(values: list[str]) -> str:
        return ",".join(map(spaced, values))

    rows = draw(st.lists(st.lists(items, min_size=2, max_size=3), min_size=1, max_size=4))
    if draw(st.booleans()):
        return f"[{','.join(spaced(f'({row(values)})') for values in rows)}]"
    return f"[{row([value for values in rows for value in values])}]"


def parsed(text: str, before: str = "") -> Any:
    """The argument ``value`` of a constant, with what stands before the array on its line."""
    document = parse_document(graph(f"y = constant(shape = [1], {before}value = {text});"))
    call: Any = document.graph.body[1].value
    return call.arguments[-1].value


def described(node: Any) -> Any:
    """A tree without the difference that is tested."""
    match node:
        case PlainArray(type=kind, value=value):
            return node.line, node.column, node.depth, kind, value
        case syntax.ArrayExpression(items=items) | syntax.TupleExpression(items=items):
            return type(node).__name__, node.line, node.column, node.depth, [described(item) for item in items]
        case syntax.Unary(operand=operand):
            return "-", node.line, node.column, described(operand)
    return node.line, node.column, node.value


@given(arrays(_NUMBERS))
def test_every_array_of_numbers_is_one_piece_of_the_same_value(text: str) -> None:
    assert _PATTERN.fullmatch(text)
    whole = plain_array(text, 8, 9)
    assert described(whole) == described(read := parsed(text, "\n" * 2))
    assert type(read) is type(whole)


@given(arrays(_NUMBERS), st.integers(0, 30))
def test_a_piece_that_is_taken_apart_is_what_the_parser_makes_of_its_items(text: str, indent: int) -> None:
    """``x`` keeps the parser from reading the array as one piece; all other items must be as they were."""
    text = " " * indent + text
    begin = text.index("[")
    document = parse_document(f"version 1.0; graph g(x) -> (y) {{ y = f(a = x,\n{text[:-1]}, x]); }}")
    call: Any = document.graph.body[0].value
    slow = call.arguments[1].value
    fast = _positioned(text[begin:], 2, begin + 1)
    assert [described(item) for item in fast.items] == [described(item) for item in slow.items[:-1]]
    assert (fast.line, fast.column) == (slow.line, slow.column)


@given(arrays(_NUMBERS | _STRANGE))
def test_what_is_not_an_array_of_numbers_does_not_match(text: str) -> None:
    match = _PATTERN.match(text)
    if match is None or match.end() != len(text):
        try:
            value = parsed(text)
        except CvmError:
            return
        assert not isinstance(value, PlainArray)


@pytest.mark.parametrize(
    ("value", "rule", "line", "column"),
    [
        ("[1.0,\n  2.0, 3]", "nnef.types.array-items", 7, 8),
        ("[1, # one\n\n -2.0, 3]", "nnef.types.array-items", 8, 2),
        ("[(1,2),\n (1,2.0)]", "nnef.types.array-items", 7, 2),
        ("[1.0, 1e9999]", "limit.number", 6, 45),
        (f"[0.5,\n{'9' * 1500}]", "limit.number", 7, 1),
        (f"[5,\n{'9' * 1500}]", "limit.number", 7, 1),
        ("[1, 2", "nnef.syntax.token", 6, 44),
        ("[1, 2,]", "nnef.syntax.token", 6, 45),
        ("[1, 2 3]", "nnef.syntax.token", 6, 45),
    ],
)
def test_mistakes_in_long_arrays_have_their_place(value: str, rule: str, line: int, column: int) -> None:
    error = error_of(lambda: flatten_text(graph(f"y = constant(shape = [3], value = {value});")))
    assert (error.code, error.location.line, error.location.column) == (rule, line, column)


def test_the_value_of_an_array_is_exact() -> None:
    array = plain_array("[0.1, -2.5e-1, 1e2]", 1, 1)
    assert isinstance(array, PlainArray)
    assert tuple(array.value) == (Fraction(1, 10), Fraction(-1, 4), Fraction(100))
    assert array.value.leaves == 3


def test_hostile_arrays_take_one_pass() -> None:
    for text in ("[" + "1," * 200_000, "[" + "(1,2)," * 100_000, "[" * 100_000, "[1" + " " * 500_000, "[#" * 100_000):
        assert _PATTERN.match(text) is None
