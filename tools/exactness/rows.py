"""Operations over whole rows: reductions (4.4), softmax, normalisations (4.9.4) and suppression."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from math import prod

from tests.oracle.real import Number, exp, floor_of, log, power, reciprocal, sign, total
from tools.exactness.call import Call, evaluates
from tools.exactness.elements import Elements, Index, aligned
from tools.exactness.functions import greatest, least

__all__: list[str] = []

_HALF = Fraction(1, 2)


def _row(x: Elements, axes: tuple[int, ...], d: Index) -> Iterator[Index]:
    """The indices of the row of d, in row-major order."""
    return product(*(range(n) if axis in axes else (d[axis],) for axis, n in enumerate(x.shape)))


def _reduced(
    call: Call, x: Elements, axes: tuple[int, ...], function: Callable[[Iterator[Number]], Number]
) -> Elements:
    """A number for each row, in a tensor with extents of 1 along the axes."""
    shape = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    return call.made(lambda d: function(x[place] for place in _row(x, axes, d)), shape)


def _extreme(better: Callable[[Number, Number], Number]) -> Callable[[Iterator[Number]], Number]:
    def function(items: Iterator[Number]) -> Number:
        found = next(items)
        for item in items:
            found = better(item, found)
        return found

    return function


def _first(greater: int) -> Callable[[Iterator[Number]], Number]:
    def function(items: Iterator[Number]) -> Number:
        best, found = next(items), 0
        for place, item in enumerate(items, 1):
            if sign(item - best) == greater:
                best, found = item, place
        return Fraction(found)

    return function


_REDUCTIONS: dict[str, Callable[[Iterator[Number]], Number]] = {
    "sum_reduce": total,
    "max_reduce": _extreme(greatest),
    "min_reduce": _extreme(least),
    "argmax_reduce": _first(1),
    "argmin_reduce": _first(-1),
    "any_reduce": lambda items: Fraction(any(map(bool, items))),
    "all_reduce": lambda items: Fraction(all(map(bool, items))),
    "l2_reduce": lambda items: power(total(item * item for item in items), _HALF),
    "log_sum_reduce": lambda items: log(total(items)),
    "log_sum_exp_reduce": lambda items: log(total(map(exp, items))),
}


def _enter(name: str, function: Callable[[Iterator[Number]], Number]) -> None:
    @evaluates(name)
    def reduce(call: Call) -> Elements:
        x, axes = call.operands["input"], tuple(call.attributes["axes"])
        found = _reduced(call, x, axes, function)
        if not call.attributes.get("normalize", False):
            return found
        share = Fraction(1, prod(x.shape[axis] for axis in axes))
        return call.made(lambda d: found[d] * share)


for _name, _function in _REDUCTIONS.items():
    _enter(_name, _function)


def _mean(call: Call, x: Elements, axes: tuple[int, ...]) -> Elements:
    share = Fraction(1, prod(x.shape[axis] for axis in axes))
    return _reduced(call, x, axes, lambda items: total(items) * share)


@evaluates("mean_reduce")
def mean_reduce(call: Call) -> Elements:
    """The mean over the axes."""
    return _mean(call, call.operands["input"], tuple(call.attributes["axes"]))


@evaluates("softmax")
def softmax(call: Call) -> Elements:
    """e^x over the sum of e^x along the axes."""
    return _softmax(call, call.operands["x"], tuple(call.attributes["axes"]))


@evaluates("masked_softmax")
def masked_softmax(call: Call) -> Elements:
    """Softmax of x where seen, and of -2^200 elsewhere, the exponential of which is 0 for any number of digits."""
    x, seen = call.operands["x"], call.operands["seen"]

    def rule(d: Index) -> Number:
        return aligned(x, d) if aligned(seen, d) else Fraction(-(2**200))

    return _softmax(call, call.made(rule), tuple(call.attributes["axes"]))


def _softmax(call: Call, x: Elements, axes: tuple[int, ...]) -> Elements:
    """Exponentials below e^(-2^100) are taken as 0: no quantiser tells them from it."""
    shape = call.shapes[0]
    most = _reduced(call, x, axes, _extreme(greatest))

    def power_of(d: Index) -> Number:
        distance = x[d] - aligned(most, d)
        return exp(distance) if distance > -(2**100) else Fraction(0)

    powers = call.made(power_of, shape)
    sums = _reduced(call, powers, axes, total)
    shares = call.made(lambda d: reciprocal(sums[d]), sums.shape)
    return call.made(lambda d: powers[d] * aligned(shares, d))


@evaluates("layer_normalization")
def layer_normalization(call: Call) -> Elements:
    """Offset + scale * (x - mean) / sqrt(variance + epsilon), over the axes."""
    x, scale, offset = (call.operands[name] for name in ("input", "scale", "offset"))
    axes, epsilon = tuple(call.attributes["axes"]), Fraction(call.attributes["epsilon"])
    mean = _mean(call, x, axes)
    distance = call.made(lambda d: x[d] - aligned(mean, d), x.shape)
    variance = _mean(call, call.made(lambda d: distance[d] * distance[d], x.shape), axes)
    root = call.made(lambda d: power(variance[d] + epsilon, -_HALF), variance.shape)
    return call.made(lambda d: aligned(offset, d) + aligned(scale, d) * distance[d] * aligned(root, d))


@evaluates("batch_normalization")
def batch_normalization(call: Call) -> Elements:
    """Offset + scale * (input - mean) / sqrt(variance + epsilon), with given mean and variance."""
    o, epsilon = call.operands, Fraction(call.attributes["epsilon"])

    def rule(d: Index) -> Number:
        root = power(aligned(o["variance"], d) + epsilon, -_HALF)
        distance = aligned(o["input"], d) - aligned(o["mean"], d)
        return aligned(o["offset"], d) + aligned(o["scale"], d) * distance * root

    return call.made(rule)


@evaluates("l1_normalization", "l2_normalization")
def norm_normalization(call: Call) -> Elements:
    """Input / max(norm + bias, epsilon), with the l1 or the l2 norm of each row."""
    a = call.attributes
    x: Elements = call.operands["input"]
    by_l2 = call.name == "l2_normalization"
    sums = _reduced(call, x, tuple(a["axes"]), lambda items: total(i * i if by_l2 else abs(i) for i in items))

    def rule(d: Index) -> Number:
        norm = power(aligned(sums, d), _HALF) if by_l2 else aligned(sums, d)
        return x[d] * reciprocal(greatest(norm + Fraction(a["bias"]), Fraction(a["epsilon"])))

    return call.made(rule)


@evaluates("local_response_normalization")
def local_response_normalization(call: Call) -> Elements:
    """Input / (bias + alpha * mean of squares in a window)^beta, zeros beyond the data."""
    a = call.attributes
    x: Elements = call.operands["input"]
    share = Fraction(1, prod(a["size"]))

    def rule(d: Index) -> Number:
        starts = [i - (size - 1) // 2 for i, size in zip(d, a["size"], strict=True)]
        window = product(*(range(max(first, 0), min(first + size, n))
                           for first, size, n in zip(starts, a["size"], x.shape, strict=True)))  # fmt: skip
        sigma = total(x[place] * x[place] for place in window) * share * Fraction(a["alpha"]) + Fraction(a["bias"])
        return x[d] * power(sigma, -Fraction(a["beta"]))

    return call.made(rule)


@evaluates("non_max_suppression")
def non_max_suppression(call: Call) -> Elements:
    """The indices of the boxes that are kept, by falling score; then -1."""
    boxes, scores, a = call.operands["boxes"], call.operands["scores"], call.attributes
    kept: dict[int, list[int]] = {}

    def corners(batch: int, box: int) -> list[Number]:
        return [boxes[(batch, box, side)] for side in range(4)]

    def overlaps(one: list[Number], other: list[Number]) -> bool:
        inner = [greatest(least(one[k + 2], other[k + 2]) - greatest(one[k], other[k]), Fraction(0)) for k in (0, 1)]
        both = inner[0] * inner[1]
        areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
        union = areas[0] + areas[1] - both
        return sign(both * 100 - union * a["overlap"]) >= 0 if sign(union) > 0 else a["overlap"] <= 0

    def chosen(batch: int) -> list[int]:
        every = range(boxes.shape[1])
        values = {box: scores[(batch, box)] for box in every}
        order = sorted(every, key=lambda box: (-values[box], box))
        found: list[int] = []
        for box in order:
            if len(found) == a["count"] or values[box] < a["score_threshold"]:
                break
            if not any(overlaps(corners(batch, other), corners(batch, box)) for other in found):
                found.append(box)
        return [*found, *[-1] * (a["count"] - len(found))]

    def rule(d: Index) -> Number:
        if d[0] not in kept:
            kept[d[0]] = chosen(d[0])
        return Fraction(kept[d[0]][d[1]])

    return call.made(rule)


@evaluates("cast")
def cast(call: Call) -> Elements:
    """The same numbers; integers and truth values of real numbers are made by the evaluation, which knows the type."""
    x = call.operands["input"]
    return call.made(lambda d: x[d])


@evaluates("bitwise")
def bitwise(call: Call) -> Elements:
    """The bits of two integers, joined."""
    joined: dict[str, Callable[[int, int], int]] = {
        "and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y,
    }  # fmt: skip
    function, (x, y) = joined[call.attributes["kind"]], (call.operands[name] for name in ("x", "y"))

    def whole(number: Number) -> int:
        return floor_of(number + _HALF)[0]

    return call.made(lambda d: Fraction(function(whole(aligned(x, d)), whole(aligned(y, d)))))
