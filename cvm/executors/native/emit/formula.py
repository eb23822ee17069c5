"""The code of formulas: how a kernel computes the value at one index from the elements that it reads there.

A formula is a list of steps in the order in which they are computed. Its first values are the tensors that the kernel
reads; every step adds one value. `evaluate` writes the code for any number of lanes. A value that is the same in all
lanes stays a scalar until an instruction combines it with a vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from cvm.executors.native.descriptions.expressions import SINGLE, Formula, FormulaStep, Requantization, Static
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.emit.elements import decoded, load
from cvm.executors.native.emit.ir import Code, V, lanes, typed, vector
from cvm.executors.native.emit.requantize import requantized
from cvm.executors.native.emit.tables import permuted, picked
from cvm.executors.native.emit.words import in_words
from cvm.records import dataclass

__all__ = ["Reader", "evaluate"]


class Reader(Protocol):
    """The elements that a kernel reads at the current index."""

    def value(self, number: int) -> V:
        """The elements of a tensor, or a scalar if they are the same in all lanes."""

    def halves(self, number: int) -> tuple[V, V]:
        """The elements of the even and of the odd lanes of a tensor of i64."""

    def addresses(self, number: int) -> tuple[V, list[int]]:
        """An address in a tensor, and for each lane the distance in bytes from this address to the lane's element."""


def evaluate(code: Code, formula: Formula, reader: Reader, count: int) -> V:
    """Write the code of a formula in ``count`` lanes, and return its value."""
    values: dict[int, V] = {}

    def value(number: int) -> V:
        if number not in values:
            values[number] = reader.value(number)
        return values[number]

    for number, step in enumerate(formula.steps, formula.reads):
        if step.op in ("gather", "pick"):
            values[number] = _gathered(code, step, reader, value(step.arguments[1]), count)
        elif step.op in ("permute", "shuffle"):
            (index,) = _aligned(code, [value(step.arguments[1])], count, whole=True)
            values[number] = permuted(code, step, reader.addresses(step.arguments[0])[0], index)
        elif step.op == "requantize":
            (rule,) = step.static
            assert isinstance(rule, Requantization)
            parameters = [_Operand(code, formula, reader, value, n, count) for n in step.arguments[rule.terms :]]
            xs = [
                code.splat(x, count) if lanes(x.type) < count else x for x in map(value, step.arguments[: rule.terms])
            ]
            if rule.arithmetic == "words":
                values[number] = in_words(code, rule, xs[0], [value(n) for n in step.arguments[1:]])
            else:
                values[number] = requantized(code, rule, xs, parameters)
        else:
            arguments = _aligned(code, [value(argument) for argument in step.arguments], count)
            values[number] = _STEPS[step.op](code, arguments, step.static)
    return _aligned(code, [value(formula.result)], count, whole=True)[0]


def _aligned(code: Code, values: list[V], count: int, whole: bool = False) -> list[V]:
    """The values with equal numbers of lanes: all scalars (unless ``whole``), or all vectors of ``count`` lanes."""
    if count == 1 or (not whole and all(lanes(value.type) == 1 for value in values)):
        return values
    return [code.splat(value, count) if lanes(value.type) == 1 else value for value in values]


@dataclass(frozen=True, slots=True)
class _Operand:
    """A parameter of a requantization: an element of a tensor, or a constant number."""

    code: Code
    formula: Formula
    reader: Reader
    of: Callable[[int], V]
    number: int
    count: int

    def value(self) -> V:
        """See `Parameter.value`."""
        value = self.of(self.number)
        return self.code.splat(value, self.count) if lanes(value.type) < self.count else value

    def halves(self) -> tuple[V, V]:
        """See `Parameter.halves`."""
        if self.number < self.formula.reads:
            return self.reader.halves(self.number)
        (number,) = self.formula.steps[self.number - self.formula.reads].static
        assert isinstance(number, int)
        half = typed(vector(64, self.count // 2), number)
        return half, half


def _gathered(code: Code, step: FormulaStep, reader: Reader, index: V, count: int) -> V:
    """Load the elements at base + index * stride, where the index is clipped to the extent.

    A ``pick`` has the stride 1, and its elements are bytes.
    """
    extent, stride, format_ = step.static
    assert isinstance(extent, int)
    assert isinstance(stride, int)
    assert isinstance(format_, Format)
    base, offsets = reader.addresses(step.arguments[0])
    index = code.intrinsic("smin", code.intrinsic("smax", index, 0), extent - 1)
    if step.op == "pick" and lanes(index.type) > 1 and not any(offsets):
        return picked(code, format_, base, extent, index)
    distances = code.cast("sext", index, 64)
    if stride * format_.bytes != 1:
        distances = code.binary("mul", distances, stride * format_.bytes)
    if lanes(distances.type) == 1:
        address = code.at(code.at(base, distances), offsets[0])
        moved = [offset - offsets[0] for offset in offsets]
        if not any(moved):
            return load(code, format_, address, 1)
        if moved == [lane * format_.bytes for lane in range(count)]:
            return load(code, format_, address, count)
    loaded = []
    for lane, offset in enumerate(offsets):
        address = code.at(code.at(base, code.extract(distances, lane)), offset)
        loaded.append(code.load(vector(format_.bits, 1), address))
    return decoded(code, format_, code.gathered(loaded))


Emission: TypeAlias = Callable[[Code, list[V], tuple[Static, ...]], V]


def _binary(op: str) -> Emission:
    return lambda code, values, static: code.binary(op, values[0], values[1])


def _limits(op: str) -> Emission:
    return lambda code, values, static: code.intrinsic(op, values[0], values[1])


def _immediate(code: Code, values: list[V], static: tuple[Static, ...]) -> V:
    (number,) = static
    assert isinstance(number, int)
    return typed("i32" if -(2**31) <= number < 2**31 else "i64", number)


def _greater(code: Code, values: list[V], static: tuple[Static, ...]) -> V:
    return code.cast("zext", code.compare("sgt", values[0], values[1]), 32)


def _divided(code: Code, values: list[V], static: tuple[Static, ...]) -> V:
    """Truncated division; x / 0 = 0.

    Lanes behind the last channel may hold any number. So the code avoids -2^31 / -1, which would trap or not fit.
    """
    a, b = values
    a = code.intrinsic("smax", a, -(2**31) + 1)
    zero = code.compare("eq", b, 0)
    b = code.select(zero, typed(b.type, 1), b)
    kind = "float" if static == (SINGLE,) else "double"
    quotient = code.binary("sdiv", a, b) if lanes(a.type) == 1 else _vector_quotient(code, a, b, kind)
    return code.select(zero, typed(a.type, 0), quotient)


def _vector_quotient(code: Code, a: V, b: V, kind: str) -> V:
    """The truncated quotient a / b in floating point, since no processor divides vectors of integers.

    This is exact. If q = a / b is no integer, the next integer further from 0 is at least 1 / |b| = |q| / |a| away,
    that is, 2^-31 of |q|. Float64 division errs by at most 2^-53 of |q|, so it does not reach that integer. An integer
    q is a float64 number itself. In float32 the same holds for |a| and |b| below 2^24: these are float32 numbers, the
    next integer is more than 2^-24 of |q| away, and the division errs by at most 2^-24 of |q|.
    """
    type_ = f"<{lanes(a.type)} x {kind}>"
    x, y = (code.value(type_, f"sitofp {one} to {type_}") for one in (a, b))
    return code.value(a.type, f"fptosi {code.value(type_, f'fdiv {x}, {y.text}')} to {a.type}")


def _magnitude(code: Code, values: list[V], static: tuple[Static, ...]) -> V:
    return _absolute(code, values[0])


def _absolute(code: Code, x: V) -> V:
    return code.intrinsic("smax", x, code.binary("sub", typed(x.type, 0), x))


def _negated(code: Code, values: list[V], static: tuple[Static, ...]) -> V:
    return code.binary("sub", typed(values[0].type, 0), values[0])


def _clipped(code: Code, values: list[V], static: tuple[Static, ...]) -> V:
    lo, hi = static
    assert isinstance(lo, int)
    assert isinstance(hi, int)
    return code.intrinsic("smin", code.intrinsic("smax", values[0], lo), hi)


def _precision(code: Code, values: list[V], static: tuple[Static, ...]) -> V:
    """max(1, 32 - the number of leading zeros of |x|)."""
    x = _absolute(code, values[0])
    suffix = x.type if lanes(x.type) == 1 else f"v{lanes(x.type)}i32"
    zeros = code.call(x.type, f"llvm.ctlz.{suffix}", x, V("i1", "false"))
    return code.intrinsic("smax", code.binary("sub", typed(x.type, 32), zeros), 1)


def _right_shift(code: Code, values: list[V], static: tuple[Static, ...]) -> V:
    """floor((t + 1) / 2) with t = floor(x / 2^(shift - 1)); computed as floor(t / 2) + (t mod 2), which fits in i32."""
    (shift,) = static
    assert isinstance(shift, int)
    t = code.binary("ashr", values[0], shift - 1)
    return code.binary("add", code.binary("ashr", t, 1), code.binary("and", t, 1))


def _left_shift(code: Code, values: list[V], static: tuple[Static, ...]) -> V:
    """``x * 2^shift`` clipped to [-alpha, alpha], computed in i64: its magnitude is at most 2^31 * 2^32.

    Let b = floor(alpha / 2^shift) + 1. An |x| of b or more is clipped anyway, so x may be clipped to [-b, b]
    first. If b * 2^shift fits, 32 bits are enough then.
    """
    shift, alpha = static
    assert isinstance(shift, int)
    assert isinstance(alpha, int)
    beyond = (alpha >> shift) + 1
    if beyond << shift < 2**31:
        near = code.intrinsic("smin", code.intrinsic("smax", values[0], -beyond), beyond)
        moved = code.binary("shl", near, shift)
        return code.intrinsic("smin", code.intrinsic("smax", moved, -alpha), alpha)
    wide = code.binary("shl", code.cast("sext", values[0], 64), shift)
    return code.cast("trunc", code.intrinsic("smin", code.intrinsic("smax", wide, -alpha), alpha), 32)


def _chosen(code: Code, values: list[V], static: tuple[Static, ...]) -> V:
    condition, a, b = values
    return code.select(code.compare("ne", condition, 0), a, b)


def _same(code: Code, values: list[V], static: tuple[Static, ...]) -> V:
    return values[0]


_STEPS: dict[str, Emission] = {
    "same": _same,
    "immediate": _immediate,
    "add": _binary("add"),
    "sub": _binary("sub"),
    "mul": _binary("mul"),
    "max": _limits("smax"),
    "greater": _greater,
    "div": _divided,
    "abs": _magnitude,
    "negative": _negated,
    "clip": _clipped,
    "precision": _precision,
    "right_shift": _right_shift,
    "left_shift": _left_shift,
    "where": _chosen,
}
"""The function that writes each kind of step. All arithmetic is modulo 2^32, which gives the true result wherever that
is proven to be an int32.
"""
