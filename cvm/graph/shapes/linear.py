"""Shapes of matrix multiplications: NNEF 1.0.1 sections 4.7 and 4.9.2 (linear)."""

from __future__ import annotations

from cvm.graph.shapes.shape_call import Results, Shape, ShapeCall, rule

__all__: list[str] = []


def _matmul(call: ShapeCall, a: Shape, b: Shape, transpose_a: bool, transpose_b: bool) -> Shape:
    if len(a) < 2 or len(a) != len(b):
        raise call.conflict("rank", f"operands must have one rank, at least 2; found {len(a)} and {len(b)}")
    rows, inner = (a[-1], a[-2]) if transpose_a else (a[-2], a[-1])
    other, columns = (b[-1], b[-2]) if transpose_b else (b[-2], b[-1])
    if inner != other:
        raise call.conflict("inner", f"inner extents {inner} and {other} differ, of {list(a)} and {list(b)}")
    return (*call.broadcast(a[:-2], b[:-2]), rows, columns)


@rule("4.7", "matmul")
def matmul(call: ShapeCall) -> Results:
    """The rows of A and the columns of B, after the broadcast batch dimensions."""
    attributes = call.attributes
    a, b = call.shape("A"), call.shape("B")
    return (_matmul(call, a, b, attributes["transposeA"], attributes["transposeB"]),)


@rule("4.9.2", "linear")
def linear(call: ShapeCall) -> Results:
    """The shape of the product with the transposed filter, which must broadcast with the bias."""
    product = _matmul(call, call.shape("input"), call.shape("filter"), False, True)
    return (call.broadcast(product, call.shape("bias")),)
