"""Provisional expressions as 1.0.1 expressions of the same meaning.

Names of operations and attributes, and names that have become keywords, are replaced. ``shape_of``, which gives at
least two extents, is extended to that length, and so are the lists of a window that has fewer dimensions than its
tensor. The parser has read comprehensions, types and tuples in their 1.0.1 form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.declarations import declare
from cvm.frontends.nnef.expressions import PADDED_SHAPE_OF
from cvm.frontends.nnef.provisional.checker import with_names
from cvm.frontends.nnef.provisional.operations import definitions, form_of
from cvm.frontends.nnef.types import has_tensor
from cvm.frontends.nnef.walk import descendants, rebuild

__all__ = ["Rewriter"]

_NEW_KEYWORDS = ("version", "extension", "integer", "yield")
_MIN_RANK = 2  # the least length of the list that shape_of gives


class Rewriter:
    """Rewrites the expressions of one document.

    ``fragments`` holds the 1.0.1 name of every fragment of the document, ``definitions`` that of every operation that
    is replaced by a definition.
    """

    def __init__(self, document: syntax.Document) -> None:
        self._declarations = {fragment.name: fragment for fragment in document.fragments}
        self._taken = set(declare(())) | _identifiers(document)
        reserved = {*declare(()), *_NEW_KEYWORDS}
        self.fragments = {f.name: self.new_name(f.name) if f.name in reserved else f.name for f in document.fragments}
        self.definitions = {name: self.new_name(name) if name in self._taken else name for name in definitions()}
        self._taken.update(self.definitions.values())
        self._names = {name: self.new_name(name) for name in _NEW_KEYWORDS}
        self.short_windows: set[tuple[int | None, int | None]] = set()
        """The positions of invocations whose window has fewer dimensions than the tensor, and must be extended."""

    def new_name(self, like: str) -> str:
        """A name that the document does not use; it is taken from now on."""
        name = f"{like}_"
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def name(self, name: str) -> str:
        """The 1.0.1 form of an identifier."""
        return self._names.get(name, name)

    def expression(self, node: syntax.Expression, call: Mapping[int, str] | None = None) -> syntax.Expression:
        """The 1.0.1 form of an expression; ``call`` maps invocations to the names of the fragments that they invoke."""
        calls = call or {}

        def visit(node: syntax.Expression) -> syntax.Expression:
            inner = rebuild(node, visit)
            match inner:
                case syntax.Identifier(name=name):
                    return replace(inner, name=self.name(name))
                case syntax.Comprehension(iterators=iterators):
                    renamed = tuple((replace(i, name=self.name(i.name)), array) for i, array in iterators)
                    return replace(inner, iterators=renamed)
                case syntax.Builtin(name="shape_of"):
                    return _shape_of(inner)
                case syntax.Invocation():
                    return self._invocation(inner, calls.get(id(node)))
            return inner

        return visit(node)

    def _invocation(self, node: syntax.Invocation, name: str | None) -> syntax.Invocation:
        if name is None and node.name in self.fragments:
            name = self.fragments[node.name]
        if name is None:
            form = form_of(node)
            if form is not None:
                if (node.line, node.column) in self.short_windows:
                    node = _extended(node)
                named = tuple(replace(a, name=form.renamed.get(a.name or "", a.name)) for a in node.arguments)
                added = tuple(
                    syntax.Argument(node.line, node.column, key, syntax.Literal(node.line, node.column, value))
                    for key, value in form.added.items()
                )
                return replace(node, name=form.name, arguments=(*named, *added))
            return replace(node, name=self.definitions[node.name])
        named = with_names(node, self._declarations[node.name]).arguments
        arguments = tuple(replace(a, name=None if a.name is None else self.name(a.name)) for a in named)
        return replace(node, name=name, arguments=arguments)

    def assignments(
        self, body: Iterable[syntax.Assignment], call: Mapping[int, str] | None = None
    ) -> tuple[syntax.Assignment, ...]:
        """The 1.0.1 form of a body."""
        return tuple(replace(a, target=self.expression(a.target), value=self.expression(a.value, call)) for a in body)

    def fragment(self, fragment: syntax.Fragment, name: str, call: Mapping[int, str] | None = None) -> syntax.Fragment:
        """The 1.0.1 form of a fragment under a name: tensors come before attributes; default values do not change."""
        parameters = [replace(p, name=self.name(p.name)) for p in fragment.parameters]
        parameters.sort(key=lambda parameter: not has_tensor(parameter.type))
        results = tuple(replace(r, name=self.name(r.name)) for r in fragment.results)
        return replace(
            fragment,
            name=name,
            parameters=tuple(parameters),
            results=results,
            body=self.assignments(fragment.body or (), call),
        )

    def definition(self, name: str) -> syntax.Fragment:
        """The definition of an operation, under the name that it has in this document."""
        fragment = definitions()[name]
        return replace(fragment, name=self.definitions[name])


def _shape_of(node: syntax.Builtin) -> syntax.Expression:
    """``(shape_of(x) + [1] * (2 - length_of(shape_of(x))) if length_of(shape_of(x)) < 2 else shape_of(x))``.

    1.0.1 has no such expression for an operand other than a name or a literal, since the operand would be repeated.
    """
    if not isinstance(node.argument, syntax.Identifier | syntax.Literal):
        return replace(node, name=PADDED_SHAPE_OF)
    at = node.line, node.column
    length = syntax.Builtin(*at, "length_of", node)
    minimum = syntax.Literal(*at, _MIN_RANK)
    missing = syntax.Paren(*at, syntax.Chain(*at, minimum, (("-", length),)))
    ones = syntax.Chain(*at, syntax.ArrayExpression(*at, (syntax.Literal(*at, 1),)), (("*", missing),))
    extended = syntax.Chain(*at, node, (("+", ones),))
    short = syntax.Chain(*at, length, (("<", minimum),))
    return syntax.Paren(*at, syntax.IfElse(*at, extended, short, node))


_WINDOW: Mapping[str | None, int | None] = MappingProxyType({"size": 1, "stride": 1, "dilation": 1, "padding": None})
"""The values that complete the lists of a window in dimensions they omit (window size 1); None is the padding
``(0,0)``.
"""


def _extended(node: syntax.Invocation) -> syntax.Invocation:
    """An invocation with ``list + [1] * (length_of(shape_of(x)) - length_of(list))`` for each list of its window."""
    operand = node.arguments[0].value
    arguments = list(node.arguments)
    for index, argument in enumerate(arguments):
        if argument.name in _WINDOW and isinstance(operand, syntax.Identifier):
            at = argument.line, argument.column
            rank = syntax.Builtin(*at, "length_of", syntax.Builtin(*at, "shape_of", operand))
            known = syntax.Builtin(*at, "length_of", argument.value)
            missing = syntax.Paren(*at, syntax.Chain(*at, rank, (("-", known),)))
            fill, zero = _WINDOW[argument.name], syntax.Literal(*at, 0)
            pair = syntax.TupleExpression(*at, (zero, zero))
            item = syntax.ArrayExpression(*at, (pair if fill is None else syntax.Literal(*at, fill),))
            rest = syntax.Chain(*at, item, (("*", missing),))
            arguments[index] = replace(argument, value=syntax.Chain(*at, argument.value, (("+", rest),)))
    return replace(node, arguments=tuple(arguments))


def _identifiers(document: syntax.Document) -> set[str]:
    """Every name in a document, of whatever kind."""
    names = {document.graph.name, *(i.name for i in (*document.graph.parameters, *document.graph.results))}
    for fragment in document.fragments:
        names.update((fragment.name, *(p.name for p in fragment.parameters), *(r.name for r in fragment.results)))
    bodies = [*(fragment.body or () for fragment in document.fragments), document.graph.body]
    for assignment in (assignment for body in bodies for assignment in body):
        for root in (assignment.target, assignment.value):
            for node in descendants(root):
                if isinstance(node, syntax.Identifier):
                    names.add(node.name)
                elif isinstance(node, syntax.Comprehension):
                    names.update(iterator.name for iterator, _ in node.iterators)
    return names
