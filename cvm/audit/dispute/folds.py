"""The computation of every element in small steps, op by op, in the style of FORMAL.

An element of an op's output is a fold: a number of steps and a number to start with. Step j turns the result of the
steps before it, a single integer called the partial, into the next partial. The last partial is the element.

Most ops take one step. This step is FORMAL's own function: it asks the operands for the elements that it needs, and
these are the elements that it reads. Reductions take one step for each chunk of their index space
(`cvm.audit.dispute.chunks`), in FORMAL's index names. Searches (`concatenate`, and the ops of
`cvm.audit.dispute.vision`) have two kinds of partials: elements of int32, which are found, and numbers from `SEARCHING`
on, which say how far the search is. No step reads more than `TERMS` elements of an operand, or touches more than 8
leaves of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from cvm.audit.dispute.chunks import Chunks
from cvm.audit.dispute.reading import Operands
from cvm.audit.dispute.records import OpRecord
from cvm.errors import Invalid
from cvm.program.model import Shape
from cvm.records import dataclass
from formal.broadcast import aligned
from formal.computed import moments, normalized
from formal.extension import rounded_quotient
from formal.registry import OPS
from formal.tensor import Index

__all__ = ["SEARCHING", "Fold", "FoldCall", "strides_of"]

SEARCHING = 2**32
"""Partials from this number on are not elements: a search has found nothing yet."""
INT32_MIN = -(2**31)
"""A number less than every element."""
PARTS = 8
"""The operands of a concatenate that one step looks at."""
LARGEST_SHIFT = 62
"""The largest shift of a requantize in a valid program."""
SQUARES = 2**64
"""What multiplies the sum of squares in a partial of a normalize, beside the sum of the row."""


@dataclass(frozen=True, slots=True)
class FoldCall:
    """The arguments of a fold: the op, its operands, and one element of one of its targets."""

    record: OpRecord
    output: int
    """The index of the output among those of the op."""
    operands: Operands
    d: Index

    def attribute(self, name: str) -> int:
        """An attribute that is an integer."""
        value = self.record.attributes[name]
        assert isinstance(value, int)
        return value

    def pair(self, name: str) -> tuple[int, int]:
        """An attribute that is two integers."""
        first, second = self.integers(name)
        return first, second

    def integers(self, name: str) -> tuple[int, ...]:
        """An attribute that is several integers."""
        value = self.record.attributes[name]
        assert isinstance(value, tuple)
        return value


@dataclass(frozen=True, slots=True)
class Fold:
    """The computation of one element as a sequence of steps on a partial result."""

    count: int
    """The number of steps."""
    start: int
    step: Callable[[int, int], int]
    """From the number of a step and the partial before it to the partial after it."""
    leaves: Mapping[int, int]
    """The most leaves of each operand that a step touches, by the operand's position."""
    groups: tuple[tuple[int, ...], ...] = ()
    """For each kind of step, the operands that it opens; () if every step may open all in ``leaves``."""
    all_leaves: int | None = None
    """The most leaves of all operands together that a step touches, if that is less than their sum."""


def strides_of(shape: Shape) -> list[int]:
    """The distance of neighbours along each axis, in elements, row-major."""
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return strides[::-1]


def at_once(call: FoldCall) -> Fold:
    """One step, which is FORMAL's function of the op."""
    record = call.record

    def step(_: int, __: int) -> int:
        result = OPS[record.op](*call.operands, **record.attributes)
        outputs = result if isinstance(result, tuple) else (result,)
        declared = record.outputs[call.output].shape
        if outputs[call.output].shape != declared:
            raise Invalid("step.shape", f"{record.op} gives {outputs[call.output].shape}, declared is {declared}")
        return outputs[call.output][call.d]

    return Fold(1, 0, step, dict.fromkeys(range(len(call.operands)), 1))


def _with_bias(call: FoldCall, chunks: Chunks) -> Mapping[int, int]:
    return dict(enumerate((*chunks.leaves, 1)[: len(call.operands)]))


def conv2d(call: FoldCall) -> Fold:
    """Partials are sums over some (ic, k_i, k_j), in chunks; the last step adds B[oc]."""
    X, W = call.operands[0], call.operands[1]
    n, oc, p, q = call.d
    _, _, H, WD = X.shape
    OC, IC, KH, KW = W.shape
    (PH, PW), (SH, SW), (DH, DW) = call.pair("padding"), call.pair("stride"), call.pair("dilation")
    OPG = OC // call.attribute("groups")
    chunks = Chunks((IC, KH, KW), [(H * WD, DH * WD, DW), (KH * KW, KW, 1)])

    def pad(n: int, j: int, p: int, q: int) -> int:
        return X[n, j, p, q] if 0 <= p < H and 0 <= q < WD else 0

    def step(j: int, before: int) -> int:
        total = before
        for ic, k_i, k_j in chunks.indices(j):
            x = pad(n, (oc // OPG) * IC + ic, p * SH - PH + k_i * DH, q * SW - PW + k_j * DW)
            total += x * W[oc, ic, k_i, k_j]
        last = j == chunks.count - 1
        return total + call.operands[2][oc,] if last and len(call.operands) == 3 else total

    return Fold(chunks.count, 0, step, _with_bias(call, chunks))


def dense(call: FoldCall) -> Fold:
    """Partials are sums over some k, in chunks; the last step adds B[n]."""
    X, W = call.operands[0], call.operands[1]
    m, n = call.d
    _, K = X.shape
    chunks = Chunks((K,), [(1,), (1,)])

    def step(j: int, before: int) -> int:
        total = before + sum(X[m, k] * W[n, k] for (k,) in chunks.indices(j))
        last = j == chunks.count - 1
        return total + call.operands[2][n,] if last and len(call.operands) == 3 else total

    return Fold(chunks.count, 0, step, _with_bias(call, chunks))


def matmul(call: FoldCall) -> Fold:
    """Partials are sums over some k, in chunks."""
    A, B = call.operands[0], call.operands[1]
    transpose_a, transpose_b = call.attribute("transpose_a"), call.attribute("transpose_b")
    *b, m, n = call.d
    shared = [b_i // (p_i // q_i) for b_i, p_i, q_i in zip(b, A.shape[:-2], B.shape[:-2], strict=True)]
    K = A.shape[-2] if transpose_a else A.shape[-1]
    chunks = Chunks((K,), [(A.shape[-1] if transpose_a else 1,), (1 if transpose_b else B.shape[-1],)])

    def step(j: int, before: int) -> int:
        for (k,) in chunks.indices(j):
            before += (
                A[(*b, k, m) if transpose_a else (*b, m, k)] * B[(*shared, n, k) if transpose_b else (*shared, k, n)]
            )
        return before

    return Fold(chunks.count, 0, step, dict(enumerate(chunks.leaves)))


def max_pool2d(call: FoldCall) -> Fold:
    """Partials are maxima over some (k_i, k_j) of the window; the padding never wins."""
    X = call.operands[0]
    n, i, p, q = call.d
    _, _, H, WD = X.shape
    (PH, PW), (SH, SW) = call.pair("padding"), call.pair("strides")
    chunks = Chunks(call.pair("pool_size"), [(WD, 1)])

    def pad(p_: int, q_: int) -> int:
        return X[n, i, p_, q_] if 0 <= p_ < H and 0 <= q_ < WD else INT32_MIN

    def step(j: int, before: int) -> int:
        return max(before, *(pad(p * SH - PH + k_i, q * SW - PW + k_j) for k_i, k_j in chunks.indices(j)))

    return Fold(chunks.count, INT32_MIN, step, {0: chunks.leaves[0]})


def reduced(call: FoldCall, start: int, combine: Callable[[int, int], int]) -> Fold:
    """Partials combine the elements at some indices of the reduced axes R, in chunks; the axes I have those of d."""
    X = call.operands[0]
    n = X.shape
    N = len(n)
    axes, exclude = call.integers("axes"), bool(call.attribute("exclude"))
    T = [i if i >= 0 else i + N for i in axes]
    R = [j for j in range(N) if not axes or (j in T) != exclude]
    I = [i for i in range(N) if i not in R]  # noqa: E741 - the document's name
    kept = dict(zip(I, (call.d[i] for i in I) if len(call.d) == N else call.d, strict=False))
    strides = strides_of(n)
    chunks = Chunks([n[i] for i in R], [[strides[i] for i in R]])

    def step(j: int, before: int) -> int:
        total = before
        for z in chunks.indices(j):
            d = kept | dict(zip(R, z, strict=True))
            total = combine(total, X[tuple(d[i] for i in range(N))])
        return total

    return Fold(chunks.count, start, step, {0: chunks.leaves[0]})


def sum_(call: FoldCall) -> Fold:
    """Partials are sums of some of Z."""
    return reduced(call, 0, lambda a, b: a + b)


def max_(call: FoldCall) -> Fold:
    """Partials are maxima of some of Z."""
    return reduced(call, INT32_MIN, max)


def requantize(call: FoldCall) -> Fold:
    """Step i adds m_i[d] x_i[d]; the last one adds c[d] as well, rounds and clips."""
    d, n = call.d, (len(call.operands) - 2) // 2
    rounding = call.record.attributes["rounding"]

    def step(i: int, before: int) -> int:
        x, m = call.operands[i], call.operands[n + i]
        v = before + m[aligned(d, m.shape)] * x[aligned(d, x.shape)]
        if i < n - 1:
            return v
        c, s = call.operands[2 * n], call.operands[2 * n + 1]
        v += c[aligned(d, c.shape)]
        shift = s[aligned(d, s.shape)]
        if not 0 <= shift <= LARGEST_SHIFT:
            raise Invalid("step.shift", f"a shift is in [0, {LARGEST_SHIFT}], found {shift}")
        return max(call.attribute("lo"), min(rounded_quotient(v, 2**shift, str(rounding)), call.attribute("hi")))

    ends = (2 * n, 2 * n + 1)
    groups = tuple((i, n + i, *(ends if i == n - 1 else ())) for i in range(n))
    return Fold(n, 0, step, dict.fromkeys(range(2 * n + 2), 1), groups)


def quotient(call: FoldCall) -> Fold:
    """Step i adds m_i[d] x_i[d], and the last of these c[d] as well; one more step forms D, divides, rounds and clips.

    Partials are below 2^97. The last step opens the whole divisor, of which all but the y_j have one element.
    """
    d, n, count = call.d, call.attribute("terms"), (len(call.operands) - 2) // 2
    if not n < count:
        raise Invalid("step.terms", f"a quotient of {count} tensors has not {n} terms")

    def product(i: int) -> int:
        x, m = call.operands[i], call.operands[count + i]
        return m[aligned(d, m.shape)] * x[aligned(d, x.shape)]

    def at(position: int) -> int:
        return call.operands[position][aligned(d, call.operands[position].shape)]

    def step(i: int, before: int) -> int:
        if i < n:
            return before + product(i) + (at(2 * count) if i == n - 1 else 0)
        D = sum(product(j) for j in range(n, count)) + at(2 * count + 1)
        if D < 1:
            raise Invalid("step.divisor", f"a divisor is positive, found {D}")
        code = rounded_quotient(before, D, str(call.record.attributes["rounding"]))
        return max(call.attribute("lo"), min(code, call.attribute("hi")))

    terms = tuple((i, count + i, *((2 * count,) if i == n - 1 else ())) for i in range(n))
    divisor = (*range(n, count), *range(count + n, 2 * count), 2 * count + 1)
    return Fold(n + 1, 0, step, dict.fromkeys(range(2 * count + 2), 1), (*terms, divisor))


def normalize(call: FoldCall) -> Fold:
    """Partials are S_2 * 2^64 + S_1 of some elements of the row, in chunks; one more step computes the code.

    n |X| < 2^31 (C7), so that |S_1| < 2^31, 0 <= S_2 < 2^62, and a partial has 127 bits at most.
    """
    X, axes = call.operands[0], call.integers("axes")
    declared = call.record.outputs[0].shape
    if X.shape != declared:
        raise Invalid("step.shape", f"normalize gives {X.shape}, declared is {declared}")
    N = len(X.shape)
    R = [axis if axis >= 0 else axis + N for axis in axes]
    strides = strides_of(X.shape)
    chunks = Chunks([X.shape[i] for i in R], [[strides[i] for i in R]])

    def step(j: int, before: int) -> int:
        if j < chunks.count:
            for z in chunks.indices(j):
                at = dict(zip(R, z, strict=True))
                x = X[tuple(at.get(i, call.d[i]) for i in range(N))]
                before += x * x * SQUARES + x
            return before
        S_1 = (before + SQUARES // 2) % SQUARES - SQUARES // 2
        S_2 = (before - S_1) // SQUARES
        t, Q = moments(X[call.d], prod(X.shape[i] for i in R), S_1, S_2, str(call.record.attributes["statistic"]))
        m, c, k, r, e = (f[aligned(call.d, f.shape)] for f in (call.operands[position] for position in range(1, 6)))
        rounding, lo, hi = str(call.record.attributes["rounding"]), call.attribute("lo"), call.attribute("hi")
        return normalized(t, Q, m, c, k, r, e * 2 ** call.attribute("shift"), rounding, lo, hi)

    leaves = {0: chunks.leaves[0], **dict.fromkeys(range(1, 6), 1)}
    return Fold(chunks.count + 1, 0, step, leaves, ((0,), tuple(range(6))), max(6, chunks.leaves[0]))


def concatenate(call: FoldCall) -> Fold:
    """Step j looks at `PARTS` operands. Until the element is found, partials count the indices left to skip."""
    real_axis = call.attribute("axis") % len(call.d)
    M = len(call.operands)

    def step(j: int, before: int) -> int:
        if before < SEARCHING:
            return before
        rest = before - SEARCHING
        for index in range(PARTS * j, min(PARTS * (j + 1), M)):
            part = call.operands[index]
            extent = part.shape[real_axis]
            if rest < extent:
                return part[(*call.d[:real_axis], rest, *call.d[real_axis + 1 :])]
            rest -= extent
        return SEARCHING + rest

    groups = tuple(tuple(range(start, min(start + PARTS, M))) for start in range(0, M, PARTS))
    return Fold(len(groups), SEARCHING + call.d[real_axis], step, dict.fromkeys(range(M), 1), groups, 1)


FOLDS: Mapping[str, Callable[[FoldCall], Fold]] = {
    "sum": sum_,
    "max": max_,
    "conv2d": conv2d,
    "dense": dense,
    "matmul": matmul,
    "max_pool2d": max_pool2d,
    "concatenate": concatenate,
    "requantize": requantize,
    "quotient": quotient,
    "normalize": normalize,
}
"""The ops that take more than one step, except those of vision."""
