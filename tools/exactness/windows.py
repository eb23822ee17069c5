"""Sliding windows, products and interpolation: NNEF 1.0.1 sections 4.3, 4.7, 4.9.2 and 4.9.3.

Letters are the document's: f is the size of the kernel, s the stride, d the dilation, p the padding before the data,
X the up-scaled and x the down-scaled extent. Tap j of window i reads the up-scaled index i*s + j*d - p.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

from tests.oracle.real import Number, power, sign, total
from tools.exactness.call import Call, evaluates
from tools.exactness.elements import Elements, Index, aligned, dot

__all__ = ["source"]


def source(position: int, extent: int, border: str) -> int | None:
    """The index of the element that stands at a position of the extended input; None if there is none."""
    if 0 <= position < extent:
        return position
    if border == "replicate":
        return min(max(position, 0), extent - 1)
    if border == "reflect":
        period = max(2 * (extent - 1), 1)
        return min(position % period, period - position % period) if extent > 1 else 0
    if border == "reflect-even":
        return min(position % (2 * extent), 2 * extent - 1 - position % (2 * extent))
    return None


class _Axis:
    """One axis that windows slide along: the up-scaled extent X, the down-scaled extent x."""

    def __init__(self, call: Call, axis: int, f: int, X: int, x: int) -> None:
        a = call.attributes
        self.f = f
        self.s = a["stride"][axis] if a["stride"] else 1
        self.d = a["dilation"][axis] if a["dilation"] else 1
        reach = (f - 1) * self.d + 1
        self.p = a["padding"][axis][0] if a["padding"] else max((x - 1) * self.s + reach - X, 0) // 2

    def positions(self, i: int) -> Iterator[int]:
        """The up-scaled positions that window i reads."""
        return (i * self.s + j * self.d - self.p for j in range(self.f))

    def origins(self, i: int) -> Iterator[tuple[int, int]]:
        """The taps j and windows that add to the up-scaled index i: (j, (i + p - j d) / s) where that is whole."""
        for j in range(self.f):
            place, rest = divmod(i + self.p - j * self.d, self.s)
            if rest == 0:
                yield j, place


def _axes(call: Call, sizes: tuple[int, ...], up: tuple[int, ...], down: tuple[int, ...]) -> list[_Axis]:
    return [_Axis(call, axis, *item) for axis, item in enumerate(zip(sizes, up, down, strict=True))]


def _window(axes: list[_Axis], d: Index, extents: tuple[int, ...], border: str) -> Iterator[Index | None]:
    """The indices that a window reads, in row-major order of its taps; None where there is no element."""
    along = [
        [source(place, n, border) for place in axis.positions(i)] for axis, i, n in zip(axes, d, extents, strict=True)
    ]
    for places in product(*along):
        yield None if None in places else places  # type: ignore[misc]


@evaluates("conv")
def conv(call: Call) -> Elements:
    """Bias + sum over channels and taps of filter times input."""
    x, w, bias = (call.operands[name] for name in ("input", "filter", "bias"))
    axes = _axes(call, w.shape[2:], x.shape[2:], call.shapes[0][2:])
    groups = call.attributes["groups"] or x.shape[1]
    per_group, border = w.shape[0] // groups, call.attributes["border"]

    def rule(d: Index) -> Number:
        first = d[1] // per_group * w.shape[1]
        taps = list(product(*(range(n) for n in w.shape[2:])))
        window = list(_window(axes, d[2:], x.shape[2:], border))
        pairs = ((x[(d[0], first + c, *place)], w[(d[1], c, *tap)]) for c in range(w.shape[1])
                 for tap, place in zip(taps, window, strict=True) if place is not None)  # fmt: skip
        return dot(pairs) + aligned(bias, d)

    return call.made(rule)


@evaluates("deconv")
def deconv(call: Call) -> Elements:
    """The transpose of conv, plus the bias."""
    x, w, bias = (call.operands[name] for name in ("input", "filter", "bias"))
    if call.attributes["border"] not in ("constant", "ignore"):
        raise NotImplementedError(f"deconv with border {call.attributes['border']!r}")
    axes = _axes(call, w.shape[2:], call.shapes[0][2:], x.shape[2:])
    groups = call.attributes["groups"] or call.shapes[0][1]
    inputs = x.shape[1] // groups

    def rule(d: Index) -> Number:
        group, channel = divmod(d[1], w.shape[1])
        along = [list(axis.origins(i)) for axis, i in zip(axes, d[2:], strict=True)]
        pairs = []
        for found in product(*along):
            tap, place = tuple(j for j, _ in found), tuple(i for _, i in found)
            if all(0 <= i < n for i, n in zip(place, x.shape[2:], strict=True)):
                pairs += [(x[(d[0], c, *place)], w[(c, channel, *tap)])
                          for c in range(group * inputs, (group + 1) * inputs)]  # fmt: skip
        return dot(pairs) + aligned(bias, d)

    return call.made(rule)


@evaluates("matmul")
def matmul(call: Call) -> Elements:
    """The product of the last two axes; the others are broadcast as a batch."""
    return call.made(_product(call, "A", "B", call.attributes["transposeA"], call.attributes["transposeB"]))


@evaluates("linear")
def linear(call: Call) -> Elements:
    """Input * transpose(filter) + bias."""
    product_of, bias = _product(call, "input", "filter", False, True), call.operands["bias"]
    return call.made(lambda d: product_of(d) + aligned(bias, d))


def _product(call: Call, left: str, right: str, transpose_a: bool, transpose_b: bool) -> Any:
    A, B = call.operands[left], call.operands[right]
    K = A.shape[-2] if transpose_a else A.shape[-1]

    def batch(shape: tuple[int, ...], d: Index) -> Index:
        own = shape[:-2]
        return tuple(0 if n == 1 else i for n, i in zip(own, d[len(d) - 2 - len(own) : -2], strict=True))

    def rule(d: Index) -> Number:
        of_a, of_b = batch(A.shape, d), batch(B.shape, d)
        return dot(
            (A[(*of_a, k, d[-2])] if transpose_a else A[(*of_a, d[-2], k)],
             B[(*of_b, d[-1], k)] if transpose_b else B[(*of_b, k, d[-1])])
            for k in range(K)
        )  # fmt: skip

    return rule


def _pooled(call: Call, x: Elements) -> Any:
    """For an index of the result: the elements of its window (None beyond the data)."""
    axes = _axes(call, call.attributes["size"], x.shape, call.shapes[0])
    border = call.attributes["border"]
    return lambda d: [None if place is None else x[place] for place in _window(axes, d, x.shape, border)]


@evaluates("box", "avg_pool")
def box(call: Call) -> Elements:
    """The sum or, normalised, the mean of each window; border 'ignore' counts the elements on data alone."""
    return call.made(_box(call, call.operands["input"], call.attributes.get("normalize", True)))


def _box(call: Call, x: Elements, normalize: bool) -> Any:
    window = _pooled(call, x)

    def rule(d: Index) -> Number:
        found = window(d)
        items = [item for item in found if item is not None]
        count = len(items) if call.attributes["border"] == "ignore" else len(found)
        return total(items) * (Fraction(1, count) if normalize else 1)

    return rule


@evaluates("rms_pool", "l2_pool")
def rms_pool(call: Call) -> Elements:
    """The root of the sum (l2) or of the mean (rms) of squares of each window."""
    x = call.operands["input"]
    squares = call.made(lambda d: x[d] * x[d], x.shape)
    rule = _box(call, squares, call.name == "rms_pool")
    return call.made(lambda d: power(rule(d), Fraction(1, 2)))


@evaluates("max_pool")
def max_pool(call: Call) -> Elements:
    """The maximum of each window; a constant border takes part with its zeros, an ignored one does not."""
    window, ignored = _pooled(call, call.operands["input"]), call.attributes["border"] == "ignore"

    def rule(d: Index) -> Number:
        items = [Fraction(0) if item is None else item for item in window(d) if item is not None or not ignored]
        found = items[0]
        for item in items[1:]:
            found = item if sign(item - found) > 0 else found
        return found

    return call.made(rule)


@evaluates("debox")
def debox(call: Call) -> Elements:
    """The transpose of box."""
    x, a = call.operands["input"], call.attributes
    if a["border"] not in ("constant", "ignore"):
        raise NotImplementedError(f"debox with border {a['border']!r}")
    axes = _axes(call, a["size"], call.shapes[0], x.shape)

    def rule(d: Index) -> Number:
        along = [
            [place for _, place in axis.origins(i) if 0 <= place < n]
            for axis, i, n in zip(axes, d, x.shape, strict=True)
        ]
        items = [x[place] for place in product(*along)]
        count = max(len(items), 1) if a["border"] == "ignore" else prod(a["size"])
        return total(items) * (Fraction(1, count) if a["normalize"] else 1)

    return call.made(rule)


@evaluates("area_downsample")
def area_downsample(call: Call) -> Elements:
    """The mean of each block."""
    x, factor = call.operands["input"], (1, 1, *call.attributes["factor"])

    def rule(d: Index) -> Number:
        block = product(*(range(i * f, (i + 1) * f) for i, f in zip(d, factor, strict=True)))
        return total(x[place] for place in block) * Fraction(1, prod(factor))

    return call.made(rule)


@evaluates("multilinear_upsample")
def multilinear_upsample(call: Call) -> Elements:
    """Interpolation between neighbours, along every axis of space."""
    x, factor = call.operands["input"], call.attributes["factor"]
    method, border = call.attributes["method"], call.attributes["border"]

    def weights(i: int, n: int, f: int) -> list[tuple[int | None, Fraction]]:
        place = {"asymmetric": Fraction(i, f), "symmetric": Fraction(2 * i - (f - 1), 2 * f),
                 "aligned": Fraction(i * (n - 1), max(n * f - 1, 1))}[method]  # fmt: skip
        lower = place.numerator // place.denominator
        return [(source(lower, n, border), 1 - (place - lower)), (source(lower + 1, n, border), place - lower)]

    def rule(d: Index) -> Number:
        along = [weights(i, n, f) for i, n, f in zip(d[2:], x.shape[2:], factor, strict=True)]
        pairs = []
        for found in product(*along):
            share = prod((weight for _, weight in found), start=Fraction(1))
            if share and all(place is not None for place, _ in found):
                pairs.append((x[(*d[:2], *(place for place, _ in found))], share))
        return dot(pairs)

    return call.made(rule)
