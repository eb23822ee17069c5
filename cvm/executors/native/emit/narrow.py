"""Formulas in lanes of 8 or 16 bits, where these give the stored integers exactly: more elements in each vector.

Sums, differences and products are exact modulo 2^bits. So they may wrap if only such steps use their results, and the
lanes hold the bits that are stored. All other steps compare numbers or drop low bits. Their operands must be the true
numbers, so it is derived from the formats of the tensors read that these fit the lanes.
"""

from __future__ import annotations

from collections.abc import Callable

from cvm.executors.native.descriptions.expressions import Formula, FormulaStep
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.loops import Nest
from cvm.executors.native.emit.ir import Code, V, element, lanes, typed, vector

__all__ = ["evaluated", "lane_bits", "loaded", "stored"]

Interval = tuple[int, int]
_RING = frozenset({"same", "add", "sub", "mul", "negative"})
_OTHERS = frozenset({
    "max", "greater", "abs", "clip", "precision", "right_shift", "left_shift", "immediate", "where"
})  # fmt: skip


def lane_bits(nest: Nest) -> int | None:
    """The fewest bits of lanes that a nest may be computed in, or None if it needs 32 or other steps.

    All tensors must be read at one address or along vectors.
    """
    if not nest.formula.steps or any(step.op not in _RING | _OTHERS for step in nest.formula.steps):
        return None
    *reads, target = (loop for loop in nest.loops[-1].strides)
    if target != 1 or any(stride not in (0, 1) for stride in reads):
        return None
    return next((bits for bits in (8, 16) if nest.formats[-1].bits <= bits and _exact(nest, bits)), None)


def _exact(nest: Nest, bits: int) -> bool:
    """Whether the stored result is exact in lanes of so many bits."""
    found: list[Interval] = [format_.hull for format_ in nest.formats[:-1]]
    lo, hi = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for step in nest.formula.steps:
        values = [found[argument] for argument in step.arguments]
        if not _may_read(step.op, values, bits):
            return False
        found.append(_INTERVALS[step.op](values, step))
        if step.op in ("clip", "left_shift", "immediate") and not (lo <= found[-1][0] and found[-1][1] <= hi):
            return False
        if step.op == "left_shift" and not _shifted_fits(values[0], step, lo, hi):
            return False
    return True


def _may_read(op: str, values: list[Interval], bits: int) -> bool:
    """Whether a step may have these values in lanes."""
    if op == "where":  # a condition that is not 0 must not become 0
        lo, hi = values[0]
        return -(1 << bits) < lo and hi < 1 << bits
    if op in _RING:
        return op != "mul" or bits >= 16  # processors multiply no bytes
    return all(-(1 << bits - 1) <= lo and hi < 1 << bits - 1 for lo, hi in values)


def _shifted_fits(value: Interval, step: FormulaStep, lo: int, hi: int) -> bool:
    shift, _ = step.static
    assert isinstance(shift, int)
    return lo <= value[0] << shift and value[1] << shift <= hi


def _integers(step: FormulaStep) -> tuple[int, ...]:
    assert all(isinstance(number, int) for number in step.static)
    return tuple(number for number in step.static if isinstance(number, int))


def _product(values: list[Interval], step: FormulaStep) -> Interval:
    ends = [a * b for a in values[0] for b in values[1]]
    return min(ends), max(ends)


def _clip(values: list[Interval], step: FormulaStep) -> Interval:
    lo, hi = _integers(step)
    least, most = (min(max(end, lo), hi) for end in values[0])
    return least, most


def _left(values: list[Interval], step: FormulaStep) -> Interval:
    _, alpha = _integers(step)
    return -alpha, alpha


_INTERVALS: dict[str, Callable[[list[Interval], FormulaStep], Interval]] = {
    "same": lambda values, step: values[0],
    "add": lambda values, step: (values[0][0] + values[1][0], values[0][1] + values[1][1]),
    "sub": lambda values, step: (values[0][0] - values[1][1], values[0][1] - values[1][0]),
    "mul": _product,
    "negative": lambda values, step: (-values[0][1], -values[0][0]),
    "max": lambda values, step: (max(values[0][0], values[1][0]), max(values[0][1], values[1][1])),
    "greater": lambda values, step: (0, 1),
    "precision": lambda values, step: (1, 32),
    "abs": lambda values, step: (0, max(-values[0][0], values[0][1])),
    "clip": _clip,
    "right_shift": lambda values, step: values[0],
    "left_shift": _left,
    "immediate": lambda values, step: (_integers(step)[0], _integers(step)[0]),
    "where": lambda values, step: (min(values[1][0], values[2][0]), max(values[1][1], values[2][1])),
}
"""The interval of the result of each kind of step."""


def loaded(code: Code, format_: Format, pointer: V, count: int, bits: int) -> V:
    """``count`` elements modulo 2^bits."""
    raw = code.load(vector(format_.bits, count), pointer)
    fits = format_.bits > bits
    lanes_ = code.cast("trunc" if fits else "sext" if format_.signed else "zext", raw, bits)
    return code.binary("sub", lanes_, _wrapped(format_.bias, bits)) if format_.bias else lanes_


def stored(code: Code, format_: Format, value: V, pointer: V) -> None:
    """Store elements that are known modulo 2^bits, in a format of at most as many bits."""
    bits = int(element(value.type)[1:])
    moved = code.binary("add", value, _wrapped(format_.bias, bits)) if format_.bias else value
    code.store(code.cast("trunc", moved, format_.bits), pointer)


def _wrapped(number: int, bits: int) -> int:
    """The signed number of so many bits that equals ``number`` modulo 2^bits."""
    half = 1 << bits - 1
    return (number + half) % (2 * half) - half


def evaluated(code: Code, formula: Formula, read: Callable[[int], V], count: int, bits: int) -> V:
    """Write the code of a formula in ``count`` lanes; ``read`` gives the elements of a tensor in lanes, or one."""
    values: dict[int, V] = {}

    def value(number: int) -> V:
        if number not in values:
            values[number] = read(number)
        return values[number]

    for number, step in enumerate(formula.steps, formula.reads):
        if step.op == "immediate":
            values[number] = typed(f"i{bits}", _wrapped(_integers(step)[0], bits))
            continue
        found = [value(argument) for argument in step.arguments]
        if count > 1:
            found = [code.splat(one, count) if lanes(one.type) == 1 else one for one in found]
        values[number] = _STEPS[step.op](code, found, step)
    result = value(formula.result)
    return code.splat(result, count) if count > 1 and lanes(result.type) == 1 else result


def _binary(op: str) -> Callable[[Code, list[V], FormulaStep], V]:
    return lambda code, values, step: code.binary(op, values[0], values[1])


def _negated(code: Code, values: list[V], step: FormulaStep) -> V:
    return code.binary("sub", typed(values[0].type, 0), values[0])


def _magnitude(code: Code, values: list[V], step: FormulaStep) -> V:
    return code.intrinsic("umin", values[0], _negated(code, values, step))


def _greater(code: Code, values: list[V], step: FormulaStep) -> V:
    return code.cast("zext", code.compare("sgt", values[0], values[1]), int(element(values[0].type)[1:]))


def _clipped(code: Code, values: list[V], step: FormulaStep) -> V:
    lo, hi = _integers(step)
    most = 2 ** (int(element(values[0].type)[1:]) - 1) - 1
    if lo > -most - 1:
        values = [code.intrinsic("smax", values[0], lo)]
    return code.intrinsic("smin", values[0], hi) if hi < most else values[0]


def _precision(code: Code, values: list[V], step: FormulaStep) -> V:
    """max(1, the bits of a lane less the number of leading zeros of |x|)."""
    bits, x = int(element(values[0].type)[1:]), _magnitude(code, values, step)
    suffix = x.type if lanes(x.type) == 1 else f"v{lanes(x.type)}{element(x.type)}"
    zeros = code.call(x.type, f"llvm.ctlz.{suffix}", x, V("i1", "false"))
    return code.intrinsic("smax", code.binary("sub", typed(x.type, bits), zeros), 1)


def _right_shift(code: Code, values: list[V], step: FormulaStep) -> V:
    """floor((t + 1) / 2) with t = floor(x / 2^(shift - 1)), computed as floor(t / 2) + (t mod 2)."""
    (shift,) = _integers(step)
    bits = int(element(values[0].type)[1:])
    t = code.binary("ashr", values[0], min(shift - 1, bits - 1))
    return code.binary("add", code.binary("ashr", t, 1), code.binary("and", t, 1))


def _left_shift(code: Code, values: list[V], step: FormulaStep) -> V:
    shift, alpha = _integers(step)
    shifted = code.binary("shl", values[0], shift)
    return code.intrinsic("smin", code.intrinsic("smax", shifted, -alpha), alpha)


def _chosen(code: Code, values: list[V], step: FormulaStep) -> V:
    return code.select(code.compare("ne", values[0], 0), values[1], values[2])


_STEPS: dict[str, Callable[[Code, list[V], FormulaStep], V]] = {
    "same": lambda code, values, step: values[0],
    "add": _binary("add"),
    "sub": _binary("sub"),
    "mul": _binary("mul"),
    "negative": _negated,
    "max": lambda code, values, step: code.intrinsic("smax", values[0], values[1]),
    "greater": _greater,
    "abs": _magnitude,
    "clip": _clipped,
    "precision": _precision,
    "right_shift": _right_shift,
    "left_shift": _left_shift,
    "where": _chosen,
}
"""The function that writes each kind of step."""
