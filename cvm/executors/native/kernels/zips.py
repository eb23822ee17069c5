"""Zips: the elements of several vectors in turn."""

from __future__ import annotations

from collections.abc import Sequence

from cvm.executors.native.emit.ir import Code, V, lanes

__all__ = ["zipped"]


def zipped(code: Code, rows: Sequence[Sequence[V]], most: int) -> list[V]:
    """The elements of 2^n rows, all first ones in the order of the rows, then all second ones, and so on.

    A row is a list of vectors that follow one another. The results have ``most`` lanes, or fewer if there are fewer
    elements.
    """
    left = [list(row) for row in rows]
    while len(left) > 1:
        half = len(left) // 2
        left = [_pair(code, left[number], left[number + half], most) for number in range(half)]
    return left[0]


def _pair(code: Code, a: Sequence[V], b: Sequence[V], most: int) -> list[V]:
    """The elements of two rows in turn."""
    found = []
    for one, other in zip(a, b, strict=True):
        count = lanes(one.type)
        if count == 1:
            found.append(code.gathered([one, other]))
            continue
        order = [index for lane in range(count) for index in (lane, count + lane)]
        pieces = [order] if 2 * count <= most else [order[:count], order[count:]]
        found += [code.shuffle(one, other, piece) for piece in pieces]
    return found
