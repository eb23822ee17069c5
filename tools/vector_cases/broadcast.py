"""Cases of the broadcast ops, and of broadcast_greater."""

from __future__ import annotations

from collections.abc import Callable

from tools.vector_cases.case import Cases, arange, tensor
from tools.vector_cases.stream import MAX, Stream

__all__ = ["FAMILY", "broadcast"]

SHAPES = (
    ((4,), (4,)), ((1,), (5,)), ((5,), (1,)), ((1,), (1,)), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 3), (1, 3)),
    ((2, 1), (1, 3)), ((1, 3), (2, 1)), ((2, 3), (2, 1)), ((2, 1), (3,)), ((3,), (1, 3)), ((1, 3), (3,)),
    ((2, 1), (1, 1, 2, 3)), ((3, 1), (1, 1)), ((2, 3, 4), (4,)),
    ((2, 3, 4), (3, 1)), ((3, 1), (2, 3, 4)), ((2, 1, 4), (3, 1)), ((1, 3, 1), (2, 1, 4)), ((2, 3, 4), (2, 3, 4)),
    ((2, 2), (2, 2, 2)), ((1, 2, 3, 1), (2, 1, 1, 2)), ((2, 1, 2, 1), (2, 1, 3)), ((1,), (2, 2, 2, 2)),
    ((2, 1, 1, 2, 1), (1, 2, 1, 2)), ((1, 1, 1, 1, 1), (2, 1, 2, 1, 2)), ((2, 1, 2, 1, 2, 1), (2, 1, 2, 1, 2)),
    ((1, 1, 2, 1, 2, 1, 1), (2, 2, 1, 1, 1, 2, 1)), ((2, 1, 1, 2, 1, 1, 2, 1), (3,)),
    ((1, 2, 1, 1, 2, 1, 1, 2), (2, 1, 1, 2, 1, 1, 2, 1)),
)  # fmt: skip
"""Shapes that broadcast with each other: on either side, on both, with ranks that differ."""

PAIRS = {
    "broadcast_add": [(MAX, 0), (-MAX, 0), (2**30, 2**30 - 1), (-(2**30), 1 - 2**30), (MAX, -MAX), (-MAX, MAX), (5, 7)],
    "broadcast_sub": [(MAX, 0), (0, MAX), (0, -MAX), (2**30, 1 - 2**30), (-(2**30), 2**30 - 1), (MAX, MAX), (5, -7)],
    "broadcast_mul": [(MAX, 1), (MAX, -1), (-MAX, -1), (MAX, 0), (46340, 46340), (-46340, 46341), (65536, 32767)],
    "broadcast_div": [
        (7, 2), (-7, 2), (7, -2), (-7, -2), (6, 2), (-6, 2), (6, -3), (-6, -3), (1, 2), (-1, 2), (1, -2), (-1, -2),
        (0, 5), (0, -5), (5, 0), (-5, 0), (0, 0), (MAX, 0), (-MAX, 0), (MAX, 1), (MAX, -1), (-MAX, 1), (-MAX, -1),
        (MAX, MAX), (MAX, -MAX), (-MAX, MAX), (MAX, 2), (-MAX, 2), (MAX - 1, MAX), (1 - MAX, MAX), (MAX, MAX - 1),
        (2**30, 2**15), (-(2**30), 3),
    ],
    "broadcast_max": [(1, 2), (2, 1), (-1, -2), (-2, -1), (0, 0), (MAX, -MAX), (-MAX, MAX), (-1, 0), (MAX, MAX - 1)],
    "broadcast_greater": [
        (1, 2), (2, 1), (2, 2), (-1, -2), (-2, -1), (0, 0), (MAX, -MAX), (-MAX, MAX), (MAX, MAX), (-MAX, -MAX),
        (MAX, MAX - 1), (MAX - 1, MAX), (0, -1), (-1, 0), (1, 0), (0, 1),
    ],
}  # fmt: skip
"""Pairs of elements that define OP, and pairs at its ends."""

MAGNITUDE = {"broadcast_add": 2**30 - 1, "broadcast_sub": 2**30 - 1, "broadcast_mul": 46340}
"""Elements up to this magnitude have results that fit, for every pair."""

OVERFLOW = {
    "broadcast_add": [(MAX, 1), (-MAX, -1)],
    "broadcast_sub": [(MAX, -1), (-MAX, 1)],
    "broadcast_mul": [(46341, 46341), (-MAX, 2), (65536, -32768)],
}
"""Pairs whose result is no legal element."""


def broadcast(op: str) -> Cases:
    """A broadcast op: all ways to broadcast, the pairs of the table, divisors around zero, magnitudes."""
    c = Cases(op)
    for index, (m, n) in enumerate(SHAPES):
        s = Stream(f"{op}/shapes_{index}")
        if op == "broadcast_greater":  # close elements, so that both answers occur
            a, b = s.tensor(m, -2, 2), s.tensor(n, -2, 2)
        elif op == "broadcast_div":
            a, b = s.tensor(m, -1000, 1000), s.tensor(n, -9, 9)
        else:
            largest = MAGNITUDE.get(op, MAX)
            a, b = s.tensor(m, -largest, largest), s.tensor(n, -largest, largest)
        c.value(f"shapes_{index:02}", f"{list(m)} with {list(n)}", a, b)
    pairs = PAIRS[op]
    for index, (x, y) in enumerate(pairs):
        c.value(f"pair_{index:02}", f"{x} and {y}", tensor((1,), [x]), tensor((1,), [y]))
    xs, ys = ([pair[side] for pair in pairs] for side in (0, 1))
    c.value("pairs", "all pairs of the table in one tensor", tensor((len(xs), 1), xs), tensor((len(ys), 1), ys))
    c.value("grid", "every pair of [-6, 6] x [-6, 6]", arange((13, 1), -6), arange((13,), -6))
    for k in (1, 4, 8, 12, 15) if op == "broadcast_mul" else (1, 4, 8, 16, 24, 29):
        s = Stream(f"{op}/magnitude_{k}")
        a, b = s.tensor((3, 4), -(2**k), 2**k), s.tensor((3, 4), -(2**k), 2**k)
        c.value(f"magnitude_{k:02}", f"elements up to 2^{k}", a, b)
    c.refused("C1", "extents 2 and 3", arange((2,)), arange((3,)))
    c.refused("C1", "shapes aligned at the left only", arange((2, 3)), arange((2,)))
    c.refused("C1", "extents that are multiples", arange((4,)), arange((2,)))
    c.refused("C1", "a wrong extent in the middle", arange((2, 3, 2)), arange((2, 2, 2)))
    for x, y in OVERFLOW.get(op, []):
        c.refused("program.range", f"{x} and {y}: not an int32", tensor((2,), [0, x]), tensor((2,), [0, y]))
    c.refused("arity", "one input", arange((3,)))
    c.refused("arity", "three inputs", arange((3,)), arange((3,)), arange((3,)))
    c.refused("attribute.axis", "an attribute that the op has not", arange((3,)), arange((3,)), axis=0)
    return c


FAMILY: dict[str, Callable[[str], Cases]] = {op: broadcast for op in PAIRS if op != "broadcast_greater"}
"""For each op, the function that makes its cases."""
