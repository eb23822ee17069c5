"""The mutants of a module as changes of its text, one spot at a time.

A change has a key that survives edits elsewhere: the module, the function, the old text of the changed lines and the
new one (and a number, if a function has the same change more than once).

Some code is not changed, since no result depends on it: texts (docstrings, messages, ``__all__``), annotations and type
aliases, decorators, imports, blocks for type checkers, raised errors, messages of assertions, arguments of error
constructors, arguments called ``note``, ``label``, ``message`` or ``description``, and functions that only explain or
estimate (`EXPLAINING`).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tools.mutation.operators import replacements, results

__all__ = ["Change", "Key", "changes", "is_program", "modules", "mutated"]

EXPLAINING = {
    *("explain", "explained", "note", "_note", "cost", "estimate", "_estimate"),
    *("__repr__", "__str__", "__rich_repr__"),
}
"""Functions whose results only people read, or that choose among plans with the same bytes."""
TEXTS = {"note", "label", "message", "description"}
"""Keyword arguments that hold texts."""
ERRORS = {"Malformed", "Invalid", "Unsupported", "LimitExceeded", "Mismatch", "Location"}
"""Constructors of errors and of their parts, besides those whose name ends in Error."""
_SPELLED = {
    "Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=", "Eq": "==", "NotEq": "!=", "In": "in", "NotIn": "not in",
    "Is": "is", "IsNot": "is not", "And": "and", "Or": "or", "Add": "+", "Sub": "-", "Mult": "*", "Div": "/",
    "FloorDiv": "//", "Mod": "%", "Pow": "**", "LShift": "<<", "RShift": ">>", "BitAnd": "&", "BitOr": "|",
    "BitXor": "^", "MatMult": "@",
}  # fmt: skip
"""The text of an operator, by its class."""
_ATOMS = (ast.Name, ast.Constant, ast.Call, ast.Subscript, ast.Attribute, ast.List, ast.Tuple, ast.Dict, ast.Set)


@dataclass(frozen=True, order=True)
class Key:
    """The name of a change: it stays the same while the function and the changed lines do."""

    module: str
    """Path of the file below the root, with slashes."""
    function: str
    old: str
    new: str
    occurrence: int = 1

    def __str__(self) -> str:
        number = f" ({self.occurrence})" if self.occurrence > 1 else ""
        return f"{self.module}: {self.function}: {self.old!r} -> {self.new!r}{number}"


@dataclass(frozen=True)
class Change:
    """One mutant of a module. ``text`` replaces the bytes from ``start`` to ``end``."""

    key: Key
    line: int
    lines: tuple[int, ...]
    """The lines of the statement with the change, without those of statements inside it."""
    imported: bool
    """Whether the statement runs when the module is imported."""
    start: int
    end: int
    text: bytes


@dataclass(frozen=True)
class _Scope:
    """The state of the walk: the function's name, whether its statements run on import, whether it returns integers."""

    function: str = "<module>"
    imported: bool = True
    integer: bool = False
    lines: tuple[int, ...] = ()


def modules(root: Path, package: str) -> list[str]:
    """The files of a package, below the root."""
    return [path.relative_to(root).as_posix() for path in sorted((root / package).rglob("*.py"))]


def mutated(source: bytes, change: Change) -> bytes:
    """The text of the module with the change."""
    return source[: change.start] + change.text + source[change.end :]


def changes(module: str, source: bytes) -> list[Change]:
    """All changes of a module, in the order of its text. Some may not parse; the parser tells."""
    walk = _Walk(module, source)
    walk.statements(ast.parse(source).body, _Scope())
    return walk.found


class _Walk:
    """Collects the changes of a module."""

    def __init__(self, module: str, source: bytes) -> None:
        self.found: list[Change] = []
        self._module = module
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._seen: Counter[tuple[str, str, str]] = Counter()

    def statements(self, body: Sequence[ast.stmt], scope: _Scope) -> None:
        for statement in body:
            self._statement(statement, replace(scope, lines=_header(statement)))

    def _statement(self, statement: ast.stmt, scope: _Scope) -> None:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if statement.name in EXPLAINING:
                    return
                for default in (*statement.args.defaults, *statement.args.kw_defaults):
                    if default is not None:
                        self._expression(default, scope)
                integer = isinstance(statement.returns, ast.Name) and statement.returns.id == "int"
                self.statements(statement.body, _Scope(_below(scope, statement.name), False, integer))
            case ast.ClassDef():
                self.statements(statement.body, replace(scope, function=_below(scope, statement.name)))
            case ast.AnnAssign(annotation=annotation, value=value):
                if value is not None and not ast.unparse(annotation).endswith("TypeAlias"):
                    self._expression(value, scope)
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                self.statements(statement.orelse, scope)
            case ast.Assert(test=test):
                self._expression(test, scope)
            case ast.Raise() | ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                return
            case ast.Return(value=ast.expr() as value) if scope.integer:
                for other in results(value):
                    self._add(value, other, scope)
                self._expression(value, scope)
            case _:
                self._children(statement, scope)

    def _children(self, node: ast.AST, scope: _Scope) -> None:
        if isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(
            node.test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant
        ):
            self._add(node.test, ast.UnaryOp(ast.Not(), node.test), scope)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self._statement(child, replace(scope, lines=_header(child)))
            elif isinstance(child, ast.expr):
                self._expression(child, scope)
            else:
                self._children(child, scope)

    def _expression(self, node: ast.expr, scope: _Scope) -> None:
        if isinstance(node, ast.JoinedStr) or _is_error(node):
            return
        for other in replacements(node):
            self._add(node, other, scope)
        if isinstance(node, ast.Call):
            for child in (node.func, *node.args, *(item.value for item in node.keywords if item.arg not in TEXTS)):
                self._expression(child, scope)
        else:
            self._children(node, scope)

    def _add(self, node: ast.expr, other: ast.expr, scope: _Scope) -> None:
        start, end, text = self._respelled(node, other)
        if self._source[start:end] == text:
            return
        old, new = self._lines(start, end, self._source[start:end]), self._lines(start, end, text)
        self._seen[scope.function, old, new] += 1
        key = Key(self._module, scope.function, old, new, self._seen[scope.function, old, new])
        line = self._source.count(b"\n", 0, start) + 1
        self.found.append(Change(key, line, scope.lines, scope.imported, start, end, text))

    def _lines(self, start: int, end: int, text: bytes) -> str:
        """The whole lines around a span, with ``text`` in place of the span, without indentation."""
        first = self._source.rfind(b"\n", 0, start) + 1
        last = self._source.find(b"\n", end)
        found = self._source[first:start] + text + self._source[end : last if last >= 0 else None]
        return "\n".join(line.strip() for line in found.decode("utf-8").splitlines())

    def _respelled(self, node: ast.expr, other: ast.expr) -> tuple[int, int, bytes]:
        """The smallest span that changes ``node`` into ``other``, and its new text; just an operator if possible."""
        found: tuple[int, int, bytes] | None = None
        match node, other:
            case ast.Compare(), ast.Compare(comparators=comparators) if comparators == node.comparators:
                index = next(i for i, op in enumerate(node.ops) if op is not other.ops[i])
                left = node.left if index == 0 else node.comparators[index - 1]
                found = self._operator(left, node.comparators[index], node.ops[index], other.ops[index])
            case ast.BinOp(), ast.BinOp(left=left, right=right) if (left, right) == (node.left, node.right):
                found = self._operator(left, right, node.op, other.op)
            case ast.BoolOp(values=[left, right]), ast.BoolOp():
                found = self._operator(left, right, node.op, other.op)
        if found is not None:
            return found
        text = ast.unparse(ast.fix_missing_locations(other))
        simple = isinstance(other, _ATOMS)
        return *self._span(node), (text if simple else f"({text})").encode("utf-8")

    def _operator(self, left: ast.expr, right: ast.expr, old: ast.AST, new: ast.AST) -> tuple[int, int, bytes] | None:
        """The operator between two operands and its replacement; None if the text does not show it clearly."""
        start, end = self._span(left)[1], self._span(right)[0]
        pattern = re.escape(_SPELLED[type(old).__name__]).replace(r"\ ", r"\s+")
        matches = list(re.finditer(pattern.encode(), self._source[start:end]))
        if len(matches) != 1 or b"#" in self._source[start:end]:
            return None
        return start + matches[0].start(), start + matches[0].end(), _SPELLED[type(new).__name__].encode()

    def _span(self, node: ast.expr) -> tuple[int, int]:
        """The span of a node in the text, in bytes."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset


def _below(scope: _Scope, name: str) -> str:
    return name if scope.function == "<module>" else f"{scope.function}.{name}"


def _header(statement: ast.stmt) -> tuple[int, ...]:
    """The lines of a statement; for a compound statement, the lines before its body."""
    assert statement.end_lineno is not None
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    if not body:
        return tuple(range(statement.lineno, statement.end_lineno + 1))
    first = body[0].pattern.lineno if isinstance(body[0], ast.match_case) else body[0].lineno
    return tuple(range(statement.lineno, max(statement.lineno + 1, first)))


def _is_error(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in ERRORS or name.endswith("Error")


def is_program(source: bytes) -> bool:
    """Whether the parser accepts a text."""
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True
