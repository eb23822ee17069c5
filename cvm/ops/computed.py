"""Ops of op-set 2: what attention and normalisation need between computed tensors.

Each has a FORMAL definition like any op, and an exact expansion into the document's ops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from cvm.limits import INT64_MAX
from cvm.ops.attributes import INT32, INTEGER, INTEGERS, TRUTH, Attribute, Integer, TypedAttributes, Word
from cvm.ops.axes import axis_rule, axis_rules, normal
from cvm.ops.broadcast import broadcasts_to
from cvm.ops.declaration import Call, Constraint, Input, InputKind, Op, register
from cvm.ops.ranges import Bounds, Range, Shape, aligned, contracted, pointwise

__all__ = ["MAX_DIVISOR_TERMS", "MAX_QUOTIENT_TERMS", "Matmul", "Normalize", "Quotient", "UpdateSlice"]

MAX_QUOTIENT_TERMS, MAX_DIVISOR_TERMS = 6, 3
"""The largest numbers of terms of the numerator and of the divisor of a quotient: a step of a dispute adds one term of
the numerator, and the last one opens the whole divisor, whose factors have one element each for that reason."""


class _MatmulAttributes(TypedAttributes):
    """Which operands are transposed."""

    transpose_a = Attribute(TRUTH, "whether A is (.., K, M) and not (.., M, K)", default=False)
    transpose_b = Attribute(TRUTH, "whether B is (.., N, K) and not (.., K, N)", default=False)


def _contracted_axes(call: Call) -> tuple[int, int]:
    """The axes of A and of B that are summed over."""
    rank, a = len(call.shapes[0]), call.attributes
    return rank - 2 if a.transpose_a else rank - 1, rank - 1 if a.transpose_b else rank - 2


def _terms_agree(call: Call) -> bool:
    of_a, of_b = _contracted_axes(call)
    return call.shapes[0][of_a] == call.shapes[1][of_b]


@register
class Matmul(Op):
    """A product of matrices in batches: Y[b, m, n] = sum over k of A[b, m, k] * B[b', k, n].

    The batch axes are all but the last two. Along each of them, the extent of A is n times that of B, and each matrix
    of B multiplies n neighbouring matrices of A. An extent of 1 broadcasts; fewer heads of keys than of queries are
    shared in this way.
    """

    name = "matmul"
    family = "computed"
    source = "op-set 2 of cvm"
    op_set = 2
    inputs = (
        Input("A", "matrices, (.., M, K), or (.., K, M) if transpose_a"),
        Input("B", "matrices, (.., K, N), or (.., N, K) if transpose_b"),
    )
    Attributes = _MatmulAttributes
    constraints = (
        Constraint(
            "C1", "A of 2 or more dimensions, and B of as many", lambda c: 2 <= len(c.shapes[0]) == len(c.shapes[1])
        ),
        Constraint(
            "C2",
            "extents of B that divide those of A, but for the last two",
            lambda c: all(n % m == 0 for n, m in zip(c.shapes[0][:-2], c.shapes[1][:-2], strict=True)),
        ),
        Constraint("C3", "A and B of the same K", _terms_agree),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        (A, B), a = call.shapes, call.attributes
        return ((*A[:-2], A[-1] if a.transpose_a else A[-2], B[-2] if a.transpose_b else B[-1]),)

    def range(self, call: Call) -> tuple[Range, ...]:
        rank, axes = len(call.shapes[0]), _contracted_axes(call)
        a, b = (
            bounds.over([axis for axis in range(rank) if axis != along])
            for bounds, along in zip(call.ranges, axes, strict=True)
        )
        row, column = a.moved(lambda ends: ends.reshape(1, 1, -1)), b.moved(lambda ends: ends.reshape(1, -1, 1))
        sums = contracted(row, column, call.shapes[0][axes[0]])
        return (sums.moved(lambda ends: ends.reshape((1,) * rank)),)

    def work(self, call: Call) -> int:
        return math.prod(self.shape(call)[0]) * call.shapes[0][_contracted_axes(call)[0]]


class _QuotientAttributes(TypedAttributes):
    """How the inputs are split, how to round, and the bounds of the result."""

    terms = Attribute(Integer(1, MAX_QUOTIENT_TERMS), "n, the number of terms of the numerator")
    rounding = Attribute(
        Word("half_up", "half_even", "toward_zero"),
        "to the nearest integer, ties upward or to the even one; or toward zero",
    )
    lo = Attribute(INT32, "the lower bound")
    hi = Attribute(INT32, "the upper bound")


def _pairs(call: Call) -> int:
    """The number n + k of tensors of a quotient, each of which has one factor."""
    return (len(call.shapes) - 2) // 2


def _quotient_factors_fit(call: Call) -> bool:
    first = _pairs(call)
    *divisor, c, e = call.shapes[first + call.attributes.terms :]
    own = call.shapes[first : first + call.attributes.terms]
    return broadcasts_to([*own, c], call.shapes[0]) and all(shape == (1,) for shape in (*divisor, e))


def _sums(operands: Sequence[Range], n: int) -> tuple[Range, Range]:
    """The ranges of numerator and divisor: wide enough for their sum and for twice either."""
    count = (len(operands) - 2) // 2
    products = [x * m for x, m in zip(operands[:count], operands[count : 2 * count], strict=True)]
    parts = [*products, *operands[2 * count :]]
    if 2 * sum(part.magnitude() for part in parts) > INT64_MAX:
        parts = [part.monotone(lambda bounds: bounds.astype(object)) for part in parts]
    numerator, divisor = parts[-2], parts[-1]
    for part in parts[:n]:
        numerator = numerator + part
    for part in parts[n:count]:
        divisor = divisor + part
    return numerator, divisor


def _divisor_is_positive(call: Call) -> bool:
    hulls = [Range.uniform(1, *operand.hull()) for operand in call.ranges]
    if _sums(hulls, call.attributes.terms)[1].lo.min() >= 1:
        return True
    least: list[int] = []

    def divisor(*operands: Range) -> Range:
        found = _sums(operands, call.attributes.terms)[1]
        least.append(int(found.lo.min()))
        return Range.uniform(len(call.shapes[0]), 0, 0)

    pointwise(aligned(call.ranges, len(call.shapes[0])), divisor)
    return min(least) >= 1


def _rounded_quotient(N: Bounds, D: Bounds, rounding: str) -> Bounds:
    """N / D rounded to integers, for D > 0."""
    if rounding == "half_up":
        return np.asarray((2 * N + D) // (2 * D))
    floor = N // D
    if rounding == "toward_zero":
        return np.asarray(np.where(N < 0, -(-N // D), floor))
    twice = 2 * (N - floor * D)
    return np.asarray(floor + ((twice > D) | ((twice == D) & (floor % 2 == 1))))


@register
class Quotient(Op):
    """A quotient of two weighted sums, rounded once and clipped: clip(round(N / D), lo, hi).

    N = sum m_i x_i + c and D = sum w_j y_j + e > 0. The inputs are x_1, .., x_n, y_1, .., y_k, m_1, .., m_n, w_1, ..,
    w_k, c, e, with n = terms from 1 to 6 and k from 1 to 3; all are broadcast to the shape of x_1, which is that of the
    result. w_j and e have one element. Each sum has fewer than 100 bits, whatever the operands are.
    """

    name = "quotient"
    family = "computed"
    source = "op-set 2 of cvm"
    op_set = 2
    inputs = (
        Input("x", "n + k tensors x_1, .., x_n, y_1, .., y_k, which broadcast to the first one's shape", many=True),
        Input(
            "m", "n + k factors: m_i, which broadcast to x_1's shape, and w_j of one element", "parameter", many=True
        ),
        Input("c", "the offset of the numerator, which broadcasts to x_1's shape", "parameter"),
        Input("e", "the offset of the divisor, one element", "parameter"),
    )
    Attributes = _QuotientAttributes
    constraints = (
        Constraint("C1", "two inputs for each term, and c and e: an even number", lambda c: len(c.shapes) % 2 == 0),
        Constraint(
            "C2",
            f"n = terms, and k from 1 to {MAX_DIVISOR_TERMS}",
            lambda c: 1 <= _pairs(c) - c.attributes.terms <= MAX_DIVISOR_TERMS,
        ),
        Constraint(
            "C3",
            "x_2, .., x_n and y_j of extents that, aligned at the right, are 1 or those of x_1",
            lambda c: broadcasts_to(c.shapes[1 : _pairs(c)], c.shapes[0]),
        ),
        Constraint(
            "C4",
            "m_i and c of extents that, aligned at the right, are 1 or those of x_1; w_j and e of shape (1,)",
            _quotient_factors_fit,
        ),
        Constraint("C5", "lo <= hi", lambda c: c.attributes.lo <= c.attributes.hi),
        Constraint("C6", "D of at least 1 for all values of the operands", _divisor_is_positive, on="ranges"),
    )

    def arity(self) -> tuple[int, int | None]:
        return 6, 2 * (MAX_QUOTIENT_TERMS + MAX_DIVISOR_TERMS) + 2

    def input_kinds(self, count: int) -> tuple[InputKind, ...]:
        tensors = max(0, count - 2) // 2
        return tuple("tensor" if index < tensors else "parameter" for index in range(count))

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return (call.shapes[0],)

    def range(self, call: Call) -> tuple[Range, ...]:
        a = call.attributes

        def rounded(*operands: Range) -> Range:
            N, D = _sums(operands, a.terms)
            # Rounding is monotone in N, and for a given N in D: the extremes are at the corners.
            small, large = (
                N.monotone(partial(_rounded_quotient, D=ends, rounding=a.rounding)) for ends in (D.lo, D.hi)
            )
            return small.union(large).monotone(lambda y: np.clip(y, a.lo, a.hi).astype(np.int64))

        return (pointwise(aligned(call.ranges, len(call.shapes[0])), rounded),)

    def work(self, call: Call) -> int:
        return (4 * _pairs(call) + 32) * math.prod(call.shapes[0])


class _NormalizeAttributes(TypedAttributes):
    """What a row is, what it is divided by, how to round, and the bounds of the result."""

    axes = Attribute(INTEGERS, "the axes along which a row runs, one at least")
    statistic = Attribute(
        Word("variance", "mean_square", "square_sum"),
        "the square of what rows are divided by; the variance also subtracts their mean",
    )
    shift = Attribute(Integer(0, 62), "the power of two that multiplies e", default=0)
    rounding = Attribute(Word("half_up", "half_even"), "to the nearest integer, ties upward or to even")
    lo = Attribute(INT32, "the lower bound")
    hi = Attribute(INT32, "the upper bound")


def _row(call: Call) -> int:
    """The number n of elements of a row."""
    shape = call.shapes[0]
    return math.prod(shape[axis] for axis in normal(call.attributes.axes, len(shape)))


def _hull_inside(call: Call, position: int, lo: int, hi: int) -> bool:
    least, largest = call.ranges[position].hull()
    return lo <= least and largest <= hi


def _comparison_fits(call: Call) -> bool:
    (c, k), largest = call.ranges[2:4], max(abs(call.attributes.lo), abs(call.attributes.hi))
    return bool((2 * largest + 1) * k.magnitude() + 2 * c.magnitude() < 2**64)


@register
class Normalize(Op):
    """Rows divided by their standard deviation or length, weighted, rounded once and clipped.

    Y[d] = clip(round((m[d] t[d] / sqrt(Q[d] + e 2^shift / r^2) + c[d]) / k[d]), lo, hi). With the sum S_1 of the n
    elements of the row of X[d] and the sum S_2 of their squares, t and Q are n x - S_1 and n S_2 - S_1^2 (variance),
    n x and n S_2 (mean_square), x and S_2 (square_sum). The squares of both sides of a comparison of Y with a code fit
    256 bits (C5 to C8).
    """

    name = "normalize"
    family = "computed"
    source = "op-set 2 of cvm"
    op_set = 2
    inputs = (
        Input("X", "any tensor, of N dimensions"),
        Input("m", "the weight, which broadcasts to X's shape", "parameter"),
        Input("c", "the offset, which broadcasts to X's shape", "parameter"),
        Input("k", "the divisor, which broadcasts to X's shape", "parameter"),
        Input("r", "the root of the divisor of e, one element", "parameter"),
        Input("e", "what is added to Q, times 2^shift / r^2, one element", "parameter"),
    )
    Attributes = _NormalizeAttributes
    constraints = (
        *axis_rules("C1", "C2"),
        Constraint("C3", "at least one axis, and r and e of shape (1,)",
                   lambda c: bool(c.attributes.axes) and c.shapes[4] == c.shapes[5] == (1,)),
        Constraint("C4", "m, c and k of extents that, aligned at the right, are 1 or those of X; lo <= hi",
                   lambda c: broadcasts_to(c.shapes[1:4], c.shapes[0]) and c.attributes.lo <= c.attributes.hi),
        Constraint("C5", "|m| < 2^62 and k >= 1",
                   lambda c: c.ranges[1].magnitude() < 2**62 and c.ranges[3].hull()[0] >= 1, on="ranges"),
        Constraint("C6", "1 <= r < 2^31 and 1 <= e < 2^62",
                   lambda c: _hull_inside(c, 4, 1, 2**31 - 1) and _hull_inside(c, 5, 1, 2**62 - 1), on="ranges"),
        Constraint("C7", "n^2 * max(X^2) < 2^62",
                   lambda c: (_row(c) * c.ranges[0].magnitude()) ** 2 < 2**62, on="ranges"),
        Constraint("C8", "(2 max(|lo|, |hi|) + 1) k + 2 |c| < 2^64", _comparison_fits, on="ranges"),
    )  # fmt: skip

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return (call.shapes[0],)

    def range(self, call: Call) -> tuple[Range, ...]:
        return (Range.uniform(len(call.shapes[0]), call.attributes.lo, call.attributes.hi),)

    def work(self, call: Call) -> int:
        return 256 * math.prod(call.shapes[0])


@register
class UpdateSlice(Op):
    """X with a slice along one axis replaced by U, from index I[0] on, clipped so that U fits.

    Y[d] = U[.., d_a - s, ..] if s <= d_a < s + u_a, else X[d], with s = clip(I[0], 0, n_a - u_a) and a = axis.
    """

    name = "update_slice"
    family = "computed"
    source = "op-set 2 of cvm"
    op_set = 2
    inputs = (
        Input("X", "any tensor, of N dimensions n_0, .., n_{N-1}"),
        Input("U", "what replaces the slice, of N dimensions u_0, .., u_{N-1}"),
        Input("I", "where the slice begins, one element"),
    )

    class Attributes(TypedAttributes):
        """Where the slice lies."""

        axis = Attribute(INTEGER, "the axis along which the slice is shorter than X")

    constraints = (
        axis_rule("C1"),
        Constraint(
            "C2",
            "U of as many dimensions as X, with the same extents but for axis, along which it has at most that of X",
            lambda c: (
                len(c.shapes[0]) == len(c.shapes[1])
                and all(
                    u == n or (index == c.attributes.axis % len(c.shapes[0]) and u < n)
                    for index, (n, u) in enumerate(zip(c.shapes[0], c.shapes[1], strict=True))
                )
            ),
        ),
        Constraint("C3", "I of shape (1,)", lambda c: c.shapes[2] == (1,)),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return (call.shapes[0],)

    def range(self, call: Call) -> tuple[Range, ...]:
        (lo, hi), (least, largest) = call.ranges[0].hull(), call.ranges[1].hull()
        return (Range.uniform(len(call.shapes[0]), min(lo, least), max(hi, largest)),)
