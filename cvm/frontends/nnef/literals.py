"""Arrays of plain numbers, read as one token.

A weight tensor that is written in a document has a million literals. A parser that makes a token, a reduction and a
node for each of them spends most of its time there. `PLAIN_ARRAY` is a pattern for arrays whose items are numbers, or
tuples of numbers, and nothing else; `plain_array` makes the node of such an array from its text.

A grammar uses it as one terminal with the text of the pattern and a priority above ``"["``, one more alternative
wherever an array literal may stand, and one method that calls `plain_array` with the token. An array with anything else
in it - a name, an operator, a mistake - does not match; it is parsed, and refused, item by item.
"""

from __future__ import annotations

import re
from fractions import Fraction

from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.exact import parse_number
from cvm.frontends.nnef.types import INTEGER, SCALAR, ArrayType, TupleType, Type
from cvm.frontends.nnef.values import Array, Value
from cvm.records import dataclass

__all__ = ["PLAIN_ARRAY", "PlainArray", "plain_array"]

_SPACE = r"(?:[ \t\r\n\f\v]++|#[^\n\f]*+)*+"
_NUMBER = r"[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+"
_ITEM = rf"(?:-{_SPACE})?+{_NUMBER}{_SPACE}"
_TUPLE = rf"\({_SPACE}{_ITEM}(?:,{_SPACE}{_ITEM})++\){_SPACE}"
PLAIN_ARRAY = rf"\[{_SPACE}(?:{_ITEM}(?:,{_SPACE}{_ITEM})*+|{_TUPLE}(?:,{_SPACE}{_TUPLE})*+)\]"
"""An array literal of numbers or of tuples of numbers, with white space and comments.

Every loop is possessive: matching fails in a single pass, without backtracking. Neither a match nor its first character
depends on the context, so the caller must be at a position where an expression may begin.
"""

_TOKEN = re.compile(rf"#[^\n\f]*+|{_NUMBER}|[-()\n]")
_COMMENT = re.compile(r"#[^\n\f]*+")
_BLANKS = re.compile(r"[ \t\r\n\f\v\[\]]++")
_LONG = 1000  # the most digits of an integer that is converted without further checks


@dataclass(frozen=True, slots=True, eq=False)
class PlainArray(syntax.ArrayExpression):
    """An array of numbers, or of tuples of numbers, of one type, whose value is known; its ``items`` are not kept."""

    type: Type
    value: Array


def plain_array(text: str, line: int, column: int) -> syntax.ArrayExpression:
    """The node of an array that matches `PLAIN_ARRAY` and begins at a position of the document.

    It is a `PlainArray` where all items have one type, as in every valid document; otherwise an ordinary array with a
    node for each item, so that an error can name the item. Raises `LimitExceeded` with the position of a number that is
    too large.
    """
    plain = _COMMENT.sub(" ", text) if "#" in text else text
    if "(" in plain:
        return _rows(text, line, column)
    numbers = _BLANKS.sub("", plain).split(",")
    try:
        integers = not any("." in number or "e" in number or "E" in number for number in numbers)
        values = _integers(numbers) if integers else _scalars(numbers)
    except ValueError:
        return _positioned(text, line, column)
    kind = INTEGER if integers else SCALAR
    return PlainArray(line, column, (), ArrayType(kind), Array.of_literals(values), depth=2)


def _integers(numbers: list[str]) -> list[int]:
    if max(map(len, numbers)) > _LONG:
        raise ValueError("too long to be converted without a look at its position")
    return list(map(int, numbers))


def _scalars(numbers: list[str]) -> list[Fraction]:
    """The values of scalars. Raises `ValueError` where one is an integer or too large; the caller then finds its
    position.
    """
    known: dict[str, Fraction] = {}
    for number in set(numbers):
        value = parse_number(number.removeprefix("-"))
        if not isinstance(value, Fraction):
            raise ValueError("an integer among scalars")
        known[number] = -value if number[0] == "-" else value
    return [known[number] for number in numbers]


def _rows(text: str, line: int, column: int) -> syntax.ArrayExpression:
    """An array of tuples, such as ``padding``."""
    array = _positioned(text, line, column)
    rows: list[Value] = []
    row_type: TupleType | None = None
    for item in array.items:
        assert isinstance(item, syntax.TupleExpression)
        values = tuple(map(_value, item.items))
        found = TupleType(tuple(INTEGER if isinstance(value, int) else SCALAR for value in values))
        if row_type not in (None, found):
            return array
        row_type = found
        rows.append(values)
    return PlainArray(line, column, (), ArrayType(row_type), Array(rows), depth=array.depth)


def _value(node: syntax.Expression) -> int | Fraction:
    if isinstance(node, syntax.Unary):
        return -_value(node.operand)
    assert isinstance(node, syntax.Literal)
    assert isinstance(node.value, int | Fraction)
    return node.value


def _positioned(text: str, line: int, column: int) -> syntax.ArrayExpression:
    """The array with a node for every item, with its position."""
    items: list[syntax.Expression] = []
    row: list[syntax.Expression] | None = None
    begin = 1 - column  # the offset of the first character of the line
    start = opened = line, column
    sign: tuple[int, int] | None = None
    for match in _TOKEN.finditer(text):
        symbol, position = match[0], (line, match.start() - begin + 1)
        if symbol == "\n":
            line, begin = line + 1, match.end()
        elif symbol == "-":
            sign = position
        elif symbol == "(":
            row, opened = [], position
        elif symbol == ")":
            assert row is not None
            items.append(syntax.TupleExpression(*opened, tuple(row), depth=1 + max(item.depth for item in row)))
            row = None
        elif symbol[0] != "#":
            number = syntax.Literal(*position, parse_number(symbol, syntax.SyntaxNode(*position)))
            item = number if sign is None else syntax.Unary(*sign, "-", number, depth=2)
            (items if row is None else row).append(item)
            sign = None
    return syntax.ArrayExpression(*start, tuple(items), depth=1 + max(item.depth for item in items))
