"""Cases of the ops of op-set 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tools.vector_cases.case import Cases, arange, filled, tensor
from tools.vector_cases.stream import MAX, Stream

__all__ = ["FAMILY"]

PLAIN: dict[str, Any] = {"transpose_a": False, "transpose_b": False}


def _matrix_shapes(c: Cases) -> None:
    """Small matrices, transposed or not, in batches; B has all matrices, some, or one."""
    batches: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((), ()), ((3,), (3,)), ((4,), (2,)), ((4,), (1,)), ((6,), (2,)), ((2, 4), (1, 2)), ((2, 3), (2, 1)),
        ((1, 1, 2), (1, 1, 2)), ((2, 1, 2, 1, 2, 2), (1, 1, 2, 1, 2, 1)),
    )  # fmt: skip
    for number, (of_a, of_b) in enumerate(batches):
        for m, k, n in ((1, 1, 1), (2, 3, 4), (3, 2, 1), (1, 5, 2)) if number < 7 else ((2, 3, 2),):
            for transpose_a, transpose_b in ((False, False), (True, False), (False, True), (True, True)):
                name = f"batch_{number}_{m}_{k}_{n}_{'t' if transpose_a else 'n'}{'t' if transpose_b else 'n'}"
                s = Stream(f"matmul/{name}")
                a = s.spread((*of_a, *((k, m) if transpose_a else (m, k))), -127, 127)
                b = s.spread((*of_b, *((n, k) if transpose_b else (k, n))), -127, 127)
                aim = f"batches {list(of_a)} and {list(of_b)}, {m} by {k} by {n}"
                c.value(name, aim, a, b, transpose_a=transpose_a, transpose_b=transpose_b)


def matmul(op: str) -> Cases:
    """Products of matrices: batches that are shared, transpositions, the extremes."""
    c = Cases(op)
    _matrix_shapes(c)
    one = filled((1, 1), 1)
    c.value("largest_result", "2^31 - 1", filled((1, 1), MAX), one, **PLAIN)
    c.value("least_result", "-(2^31 - 1)", filled((1, 1), MAX), filled((1, 1), -1), **PLAIN)
    cancelling = tensor((2, 1), [32767, -32767])
    c.value("cancel", "large products that cancel", tensor((1, 2), [32767, 32767]), cancelling, **PLAIN)
    c.value("defaults", "no attribute is given", arange((2, 3)), arange((3, 2), -4))
    s = Stream(f"{op}/long")
    c.value("long", "600 products", s.tensor((1, 600), -127, 127), s.tensor((600, 1), -127, 127), **PLAIN)
    x, w = arange((2, 3)), arange((3, 4))
    c.refused("C1", "vectors", arange((3,)), arange((3,)), **PLAIN)
    c.refused("C1", "B of one dimension less", arange((1, 2, 3)), w, **PLAIN)
    c.refused("C1", "B of one dimension more", x, arange((1, 3, 4)), **PLAIN)
    c.refused("C2", "more matrices of B than of A", arange((1, 2, 3)), arange((2, 3, 4)), **PLAIN)
    c.refused("C2", "2 matrices for 3", arange((3, 2, 3)), arange((2, 3, 4)), **PLAIN)
    c.refused("C2", "the second batch axis", arange((2, 3, 2, 3)), arange((2, 2, 3, 4)), **PLAIN)
    c.refused("C3", "another K", x, arange((4, 3)), **PLAIN)
    c.refused("C3", "another K of a transposed A", x, w, transpose_a=True, transpose_b=False)
    c.refused("C3", "another K of a transposed B", x, w, transpose_a=False, transpose_b=True)
    c.refused("attribute.transpose_a", "an integer", x, w, **{**PLAIN, "transpose_a": 0})
    c.refused("attribute.transpose_b", "an integer", x, w, **{**PLAIN, "transpose_b": 1})
    c.refused("attribute.axis", "an attribute that the op has not", x, w, **PLAIN, axis=1)
    c.refused("arity", "one matrix", x, **PLAIN)
    c.refused("arity", "a bias", x, w, arange((4,)), **PLAIN)
    c.refused("program.range", "a product beyond int32", filled((1, 1), 65536), filled((1, 1), 32768), **PLAIN)
    c.refused("program.range", "a sum of 2^31", filled((1, 2), 32768), filled((2, 1), 32768), **PLAIN)
    return c


FAMILY: dict[str, Callable[[str], Cases]] = {"matmul": matmul}
"""For each op, the function that makes its cases."""
