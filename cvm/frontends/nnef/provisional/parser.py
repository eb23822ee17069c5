"""From provisional text to a syntax tree with the classes of 1.0.1.

Differences of notation alone disappear in the tree: ``extent`` is ``integer``, and a comprehension has one iterator. A
tensor type, which does not state a data type, is the unbound ``tensor<>``.
"""

from __future__ import annotations

from typing import Any

from lark import Token

from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.parser import Edition, document_roots, parse_text
from cvm.frontends.nnef.tree import TreeBuilder, depth_above, position_of
from cvm.frontends.nnef.types import Primitive, TensorType, Type
from cvm.limits import DEFAULT, Limits

__all__ = ["parse_provisional"]


class _Builder(TreeBuilder):
    def type_name(self, c: list[Any]) -> Primitive:
        return Primitive(_current(c[0]))  # type: ignore[arg-type]  # the grammar admits data-types only

    def builtin_name(self, c: list[Any]) -> Token:
        return c[0].update(value=_current(c[0]))  # type: ignore[no-any-return]

    def tensor_type(self, c: list[Any]) -> Type:
        return TensorType(None)

    def comprehension(self, c: list[Any]) -> syntax.Comprehension:
        _, item, _, name, _, array, *rest = c
        expressions = [child for child in c if isinstance(child, syntax.ExpressionNode)]
        iterator = syntax.Identifier(name.line, name.column, str(name))
        condition = rest[1] if len(rest) == 3 else None
        return syntax.Comprehension(
            *position_of(c), ((iterator, array),), condition, item, depth=depth_above(expressions)
        )


def _current(token: Token) -> str:
    return "integer" if token.type == "EXTENT" else str(token)


_PROVISIONAL = Edition("cvm.frontends.nnef.provisional", ("document",), _Builder)


def parse_provisional(text: str, limits: Limits = DEFAULT) -> syntax.Document:
    """The syntax tree of a provisional document.

    Raises `Malformed` for a text that the grammar does not admit, `LimitExceeded` for text, nesting and numbers.
    """
    document: syntax.Document = parse_text(text, "document", document_roots, limits, _PROVISIONAL)
    return document
