"""The syntax tree of an NNEF document: frozen nodes with their positions.

Source: NNEF 1.0.1 section 3.2. One class per construction of the grammar, except that operators of equal precedence
in a row form one `Chain`, so that a long sum is not a deep tree. Left-value expressions use the classes of the
right-value expressions that look like them.
"""

from __future__ import annotations

from dataclasses import field
from fractions import Fraction
from typing import TypeAlias

from cvm.frontends.nnef.types import DataType, Type
from cvm.records import dataclass

__all__ = [
    "Argument",
    "ArrayExpression",
    "Assignment",
    "Builtin",
    "Chain",
    "Comprehension",
    "Document",
    "Entry",
    "Expression",
    "Extension",
    "Fragment",
    "Graph",
    "Identifier",
    "IfElse",
    "Invocation",
    "Literal",
    "Parameter",
    "Paren",
    "RangeSubscript",
    "Result",
    "Subscript",
    "SyntaxNode",
    "TupleExpression",
    "Unary",
]


@dataclass(frozen=True, slots=True, eq=False)
class SyntaxNode:
    """A node with a position in the text; lines and columns count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, eq=False)
class ExpressionNode(SyntaxNode):
    """An expression; ``depth`` is the height of its tree, checked against the nesting limit before any walk."""

    depth: int = field(default=1, kw_only=True, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Identifier(ExpressionNode):
    """A name."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Literal(ExpressionNode):
    """An integer, exact scalar, logical or string literal."""

    value: int | Fraction | bool | str


@dataclass(frozen=True, slots=True, eq=False)
class ArrayExpression(ExpressionNode):
    """``[a, b]``."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TupleExpression(ExpressionNode):
    """``(a, b)``, or ``a, b`` on the left of an assignment."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Paren(ExpressionNode):
    """``(a)``; kept because flat syntax does not have it."""

    operand: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Unary(ExpressionNode):
    """``+a``, ``-a`` or ``!a``."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Chain(ExpressionNode):
    """Operands joined by binary operators of one precedence, evaluated from the left."""

    first: Expression
    rest: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True, eq=False)
class IfElse(ExpressionNode):
    """``consequence if condition else alternative``."""

    consequence: Expression
    condition: Expression
    alternative: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Comprehension(ExpressionNode):
    """``[for i in a, j in b if condition yield item]``."""

    iterators: tuple[tuple[Identifier, Expression], ...]
    condition: Expression | None
    item: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Subscript(ExpressionNode):
    """``sequence[index]``."""

    sequence: Expression
    index: Expression


@dataclass(frozen=True, slots=True, eq=False)
class RangeSubscript(ExpressionNode):
    """``sequence[begin:end]``."""

    sequence: Expression
    begin: Expression | None
    end: Expression | None


@dataclass(frozen=True, slots=True, eq=False)
class Builtin(ExpressionNode):
    """``shape_of(a)`` and the like."""

    name: str
    argument: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Argument(SyntaxNode):
    """One argument of an invocation, positional when ``name`` is None."""

    name: str | None
    value: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Invocation(ExpressionNode):
    """``name<generic>(arguments)``."""

    name: str
    generic: DataType | None
    arguments: tuple[Argument, ...]


Expression: TypeAlias = (
    Identifier
    | Literal
    | ArrayExpression
    | TupleExpression
    | Paren
    | Unary
    | Chain
    | IfElse
    | Comprehension
    | Subscript
    | RangeSubscript
    | Builtin
    | Invocation
)


@dataclass(frozen=True, slots=True, eq=False)
class Assignment(SyntaxNode):
    """``target = value;``."""

    target: Expression
    value: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Parameter(SyntaxNode):
    """A formal parameter of a fragment."""

    name: str
    type: Type
    default: Expression | None


@dataclass(frozen=True, slots=True, eq=False)
class Result(SyntaxNode):
    """A result of a fragment."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True, eq=False)
class Fragment(SyntaxNode):
    """A fragment. Without a body it is a custom operation, or a primitive operation of the standard library."""

    name: str
    generic: bool
    generic_default: DataType | None
    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]
    body: tuple[Assignment, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class Graph(SyntaxNode):
    """The graph of a document."""

    name: str
    parameters: tuple[Identifier, ...]
    results: tuple[Identifier, ...]
    body: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Extension(SyntaxNode):
    """One name of an extension line."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Document(SyntaxNode):
    """A whole structure description (section 3.2.4)."""

    extensions: tuple[Extension, ...]
    fragments: tuple[Fragment, ...]
    graph: Graph


@dataclass(frozen=True, slots=True, eq=False)
class Entry(SyntaxNode):
    """One line of a quantization file: the algorithm, without its tensor argument, for one named tensor."""

    tensor: str
    algorithm: str
    arguments: tuple[Argument, ...]
