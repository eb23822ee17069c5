"""The comments of a document, each attached to a part of the syntax tree (NNEF 1.0.1 section 3.1).

A comment on a line of its own belongs to the part that follows it, a comment at the end of a line to the part before
it, and a comment within the brackets of a statement to that statement.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import TypeAlias

from cvm.frontends.nnef import syntax
from cvm.records import dataclass

__all__ = ["NO_COMMENTS", "Comments", "attached"]

_TOKEN = re.compile(r"""#[^\n\f]*|'(?:[^'\\\n]++|\\.)*+'|"(?:[^"\\\n]++|\\.)*+"|[()\[\]{}]""")
_BEGIN = re.compile(r"(?:\s++|#[^\n\f]*+)*+")


@dataclass(frozen=True, slots=True)
class Comments:
    """The comments of a statement, a fragment, the graph or a whole document, each with its ``#``.

    ``before`` holds those on the lines before the part; ``beside`` those at the end of its line - after the closing
    brace of a body, after the version of a document; ``end`` those before a closing brace, or at the end of a document.
    """

    before: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    end: tuple[str, ...] = ()

    def above(self) -> Comments:
        """The same comments, with those in ``beside`` moved to the lines before."""
        return replace(self, before=(*self.before, *self.beside), beside=())


NO_COMMENTS = Comments()

_Position: TypeAlias = "tuple[int, int]"


@dataclass(frozen=True, slots=True)
class _Comment:
    text: str
    position: _Position
    alone: bool
    nested: bool


@dataclass(slots=True)
class _Scan:
    """The parts of a text that its syntax tree lacks: comments, and the positions of braces."""

    comments: list[_Comment] = field(default_factory=list)
    opened: list[_Position] = field(default_factory=list)
    closed: list[_Position] = field(default_factory=list)


def attached(text: str, document: syntax.Document) -> Mapping[int, Comments]:
    """The comments of a text, by the identity of their tree node: an assignment, fragment, graph or document."""
    found: dict[int, Comments] = {}
    for comment, node, where in _owners(text, document):
        known = found.get(id(node), NO_COMMENTS)
        found[id(node)] = replace(known, **{where: (*getattr(known, where), comment)})
    return found


def _owners(text: str, document: syntax.Document) -> Iterator[tuple[str, syntax.SyntaxNode, str]]:
    """For each comment, the node that it belongs to, and the field of `Comments` that holds it."""
    scan = _scan(text)
    bodies: list[tuple[syntax.Fragment | syntax.Graph, tuple[syntax.Assignment, ...]]] = []
    bodies += [(fragment, fragment.body) for fragment in document.fragments if fragment.body is not None]
    bodies.append((document.graph, document.graph.body))
    starts = [[(assignment.line, assignment.column) for assignment in body] for _, body in bodies]
    first = _positions(text)(_BEGIN.match(text).end())  # type: ignore[union-attr]  # it matches the empty text, too
    for comment in scan.comments:
        text_, position, kind = comment.text, comment.position, "before" if comment.alone else "beside"
        index = bisect_left(scan.closed, position)
        before = bodies[index - 1][0] if index > 0 else None
        if before is not None and not comment.alone and scan.closed[index - 1][0] == position[0]:
            yield text_, before, "beside"
        elif index == len(bodies):
            yield text_, document, "end"
        elif position < scan.opened[index]:
            node = bodies[index][0]
            if before is None and (position < first or (not comment.alone and position < (node.line, node.column))):
                yield text_, document, kind
            else:
                yield text_, node, "before"
        else:
            node, body = bodies[index]
            latest = bisect_right(starts[index], position) - 1
            if latest >= 0 and (comment.nested or not comment.alone):
                yield text_, body[latest], kind
            elif latest + 1 < len(body):
                yield text_, body[latest + 1], "before"
            else:
                yield text_, node, "end"


def _scan(text: str) -> _Scan:
    scan, position, depth = _Scan(), _positions(text), 0
    for match in _TOKEN.finditer(text):
        symbol = match[0]
        if symbol in ("(", "["):
            depth += 1
        elif symbol in (")", "]"):
            depth -= 1
        elif symbol == "{":
            scan.opened.append(position(match.start()))
        elif symbol == "}":
            scan.closed.append(position(match.start()))
        elif symbol[0] == "#":
            alone = not text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
            scan.comments.append(_Comment(symbol.rstrip(), position(match.start()), alone, depth > 0))
    return scan


def _positions(text: str) -> Callable[[int], _Position]:
    """The function that gives the line and the column of an offset in a text."""
    lines = [0, *(match.end() for match in re.finditer("\n", text))]

    def position(offset: int) -> _Position:
        line = bisect_right(lines, offset)
        return line, offset - lines[line - 1] + 1

    return position
