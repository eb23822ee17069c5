"""Mutations: the changes at one node of a syntax tree after which the result is still a program.

Every operator takes a node and yields its replacements: another comparison, another arithmetic operation, a
number that differs by one, swapped branches, min for max, a bound or an axis that is one greater, another result.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

__all__ = ["replacements", "results"]

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_ARITHMETIC: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.Div: (ast.Mult,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitOr,),
    ast.MatMult: (),
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sum": "max", "sorted": "list", "prod": "sum"}


def replacements(node: ast.AST) -> Iterator[ast.expr]:
    """The nodes that may replace ``node``."""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for number, op in enumerate(ops):
                for other in _COMPARISONS[type(op)]:
                    yield ast.Compare(left, [*ops[:number], other(), *ops[number + 1 :]], comparators)
        case ast.BinOp(left=left, op=op, right=right):
            for changed in _ARITHMETIC[type(op)]:
                yield ast.BinOp(left, changed(), right)
            if isinstance(op, ast.FloorDiv):  # rounds up instead of down
                yield ast.UnaryOp(ast.USub(), ast.BinOp(ast.UnaryOp(ast.USub(), left), ast.FloorDiv(), right))
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int(number)):
            yield from (ast.Constant(number + 1), ast.Constant(number - 1))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _CALLS:
            yield ast.Call(ast.Name(_CALLS[name], ast.Load()), args, [] if name == "sorted" else keywords)
        case ast.Call(func=ast.Name(id="abs"), args=[argument]):
            yield argument
        case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper, step=step)):
            for bounds in ((_further(lower), upper), (lower, _further(upper))):
                if bounds != (lower, upper):
                    yield ast.Subscript(value, ast.Slice(*bounds, step), ast.Load())
        case ast.Subscript(value=ast.Name(id=tensor), slice=ast.Name(id=index)) if (
            tensor[0].isupper() and index in "dyk"
        ):
            reverse = ast.Slice(None, None, ast.Constant(-1))
            yield ast.Subscript(node.value, ast.Subscript(ast.Name(index, ast.Load()), reverse, ast.Load()), ast.Load())
        case ast.Lambda(args=arguments, body=body):
            yield from (ast.Lambda(arguments, other) for other in results(body))


def _further(bound: ast.expr | None) -> ast.expr | None:
    """A bound that is one greater; a missing bound stays missing."""
    return None if bound is None else ast.BinOp(bound, ast.Add(), ast.Constant(1))


def results(result: ast.expr) -> Iterator[ast.expr]:
    """Other results in place of an element: one more, one less, the negative. (Numbers are changed as numbers.)"""
    if isinstance(result, ast.Constant):
        return
    yield ast.BinOp(result, ast.Add(), ast.Constant(1))
    yield ast.BinOp(result, ast.Sub(), ast.Constant(1))
    yield ast.UnaryOp(ast.USub(), result)
