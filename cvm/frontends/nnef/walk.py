"""Walks over syntax trees: the parts of an expression, and the same expression with other parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from cvm.frontends.nnef import syntax

__all__ = ["Visit", "children", "descendants", "rebuild"]

Visit = Callable[[syntax.Expression], syntax.Expression]


def children(node: syntax.Expression) -> tuple[syntax.Expression, ...]:
    """The expressions directly inside of an expression, in the order of the text; iterators are not among them."""
    match node:
        case syntax.ArrayExpression(items=items) | syntax.TupleExpression(items=items):
            return items
        case syntax.Paren(operand=operand) | syntax.Unary(operand=operand):
            return (operand,)
        case syntax.Chain(first=first, rest=rest):
            return (first, *(operand for _, operand in rest))
        case syntax.IfElse():
            return (node.consequence, node.condition, node.alternative)
        case syntax.Comprehension(iterators=iterators, condition=condition, item=item):
            return (*(array for _, array in iterators), *(() if condition is None else (condition,)), item)
        case syntax.Subscript(sequence=sequence, index=index):
            return (sequence, index)
        case syntax.RangeSubscript(sequence=sequence):
            return (sequence, *(bound for bound in (node.begin, node.end) if bound is not None))
        case syntax.Builtin(argument=argument):
            return (argument,)
        case syntax.Invocation(arguments=arguments):
            return tuple(argument.value for argument in arguments)
    return ()


def descendants(root: syntax.Expression) -> Iterator[syntax.Expression]:
    """An expression and all expressions inside of it."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(children(node)))


def rebuild(node: syntax.Expression, visit: Visit) -> syntax.Expression:
    """The same expression with ``visit`` applied to each expression directly inside of it."""

    def maybe(part: syntax.Expression | None) -> syntax.Expression | None:
        return None if part is None else visit(part)

    match node:
        case syntax.ArrayExpression(items=items) | syntax.TupleExpression(items=items):
            return replace(node, items=tuple(map(visit, items)))
        case syntax.Paren(operand=operand) | syntax.Unary(operand=operand):
            return replace(node, operand=visit(operand))
        case syntax.Chain(first=first, rest=rest):
            return replace(node, first=visit(first), rest=tuple((symbol, visit(operand)) for symbol, operand in rest))
        case syntax.IfElse():
            return replace(
                node,
                consequence=visit(node.consequence),
                condition=visit(node.condition),
                alternative=visit(node.alternative),
            )
        case syntax.Comprehension(iterators=iterators, condition=condition, item=item):
            arrays = tuple((iterator, visit(array)) for iterator, array in iterators)
            return replace(node, iterators=arrays, condition=maybe(condition), item=visit(item))
        case syntax.Subscript(sequence=sequence, index=index):
            return replace(node, sequence=visit(sequence), index=visit(index))
        case syntax.RangeSubscript(sequence=sequence):
            return replace(node, sequence=visit(sequence), begin=maybe(node.begin), end=maybe(node.end))
        case syntax.Builtin(argument=argument):
            return replace(node, argument=visit(argument))
        case syntax.Invocation(arguments=arguments):
            return replace(node, arguments=tuple(replace(a, value=visit(a.value)) for a in arguments))
    return node
