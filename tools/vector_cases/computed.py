"""Cases of the ops of op-set 2."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Any

from tools.vector_cases.case import Cases, Tensor, arange, filled, parameter, tensor
from tools.vector_cases.shapes import RANKS
from tools.vector_cases.stream import MAX, Stream

__all__ = ["FAMILY"]

ROUNDINGS = ("half_up", "half_even", "toward_zero")
STATISTICS = ("variance", "mean_square", "square_sum")
ROW = (-3, -1, 1, 3, 4, 0, -6, 2)
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


def scalar(x: int) -> Tensor:
    """A parameter of one element."""
    return parameter((1,), [x])


def _quotient_roundings(c: Cases) -> None:
    """Numerators around all multiples of halves of a divisor: as they are, beyond 64 bits, and next to ties."""
    for rounding in ROUNDINGS:
        up = {"terms": 1, "rounding": rounding, "lo": -100, "hi": 100}
        x = tensor((41,), range(-20, 21))
        for y in (1, 2, 3, 4, 7):
            c.value(f"{rounding}_over_{y}", f"integers over {y}", x, scalar_tensor(y), *_parameters(1, 1, 0, 0), **up)
        for name, factor in (("wide", 2**58 + 1), ("widest", 2**62 - 1)):
            for label, nudge in (("tie", 0), ("above", 1), ("below", -1)):
                aim = f"halves of {factor}, {label}"
                operands = (x, scalar_tensor(2), *_parameters(factor, factor, nudge, 0))
                c.value(f"{rounding}_{name}_{label}", aim, *operands, **up)
        odd = (tensor((6,), [-3, -2, -1, 1, 2, 3]), scalar_tensor(0), *_parameters(3, 5, 0, 2))
        c.value(f"{rounding}_offset_alone", "a divisor that is an offset", *odd, **up)
        ends = tensor((7,), [MAX, -MAX, MAX - 1, 1 - MAX, 1, -1, 0])
        for label, m, w, offset in (
            ("whole", 2**62, 2**62, 0), ("tie_above", 2**62, 2**62, 2**61), ("tie_below", 2**62, 2**62, -(2**61)),
            ("least", 2**62 + 1, 2**62, -(2**61) + 1), ("far", 2**63 - 1, 1, 0), ("near_one", 2**62, 2**62 - 1, 0),
        ):  # fmt: skip
            operands = (ends, scalar_tensor(1), *_parameters(m, w, offset, 0))
            bounds = {**up, "lo": -MAX, "hi": MAX}
            c.value(f"{rounding}_ends_{label}", f"the ends of 32 bits, {label}", *operands, **bounds)
        c.value(f"{rounding}_cut", "results beyond both bounds", x, scalar_tensor(2), *_parameters(3, 1, 1, 0),
                **{**up, "lo": -5, "hi": 7})  # fmt: skip


def scalar_tensor(x: int) -> Tensor:
    """A tensor of one element."""
    return tensor((1,), [x])


def _parameters(*items: int) -> tuple[Tensor, ...]:
    return tuple(scalar(item) for item in items)


def _quotient_shapes(c: Cases) -> None:
    """One to six terms over one to three; operands of all shapes and ranks; wide factors that cancel."""
    for n in range(1, 7):
        for k in range(1, 4):
            s = Stream(f"quotient/terms_{n}_{k}")
            shape = s.choice(((2, 3), (3, 1, 2), (4,)))

            def fitting(shape: tuple[int, ...] = shape, s: Stream = s) -> tuple[int, ...]:
                return tuple(s.choice((1, extent)) for extent in shape)[s.between(0, len(shape) - 1) :]

            bits = s.choice((10, 31, 40, 62))
            xs = [s.tensor(shape, -MAX, MAX), *(s.tensor(fitting(), -MAX, MAX) for _ in range(n - 1))]
            ys = [s.tensor(fitting(), 0, MAX) for _ in range(k)]
            ms = [_stored(s.tensor(fitting(), -(2**bits), 2**bits)) for _ in range(n)]
            ws = [scalar(s.between(0, 2**bits)) for _ in range(k)]
            ends = (_stored(s.tensor(fitting(), -(2**62), 2**62)), scalar(s.between(1, 2**20)))
            c.value(
                f"terms_{n}_{k}", f"{n} terms over {k}, factors of {bits} bits", *xs, *ys, *ms, *ws, *ends,
                terms=n, rounding=ROUNDINGS[(n + k) % 3], lo=-MAX, hi=MAX,
            )  # fmt: skip
    for index, (x, y, m, b) in enumerate((
        ((2, 3), (2, 1), (3,), (1, 3)), ((2, 3), (3,), (2, 1), (2, 3)), ((1, 3, 2, 2), (1, 1, 2, 2), (3, 1, 1), (2,)),
        ((2, 3, 2), (2, 3, 2), (2, 3, 2), (2, 3, 2)), ((1,), (1,), (1,), (1,)), (RANKS[8], (2, 1), (2, 1, 2, 1), (1,)),
    )):  # fmt: skip
        for rounding in ROUNDINGS:
            s = Stream(f"quotient/shapes_{index}_{rounding}")
            operands = (s.tensor(x, -9999, 9999), s.tensor(y, 1, 99), _stored(s.tensor(m, -99, 99)), scalar(7))
            aim = f"x {list(x)}, y {list(y)}, m {list(m)}, c {list(b)}"
            ends = (_stored(s.tensor(b, -999, 999)), scalar(3))
            c.value(f"shapes_{index}_{rounding}", aim, *operands, *ends, terms=1, rounding=rounding, lo=-9999, hi=9999)


def _stored(item: Tensor) -> Tensor:
    """The same elements as a parameter."""
    return parameter(item.shape, item.elements)


def quotient(op: str) -> Cases:
    """All roundings at their ties in both widths; all shapes; the ends of 64 bits; a divisor that is not positive."""
    c = Cases(op)
    _quotient_roundings(c)
    _quotient_shapes(c)
    given = {"terms": 1, "rounding": "half_up", "lo": -128, "hi": 127}
    largest = 2**63 - 1
    x, y = arange((2, 3)), tensor((1,), [4])
    most = {**given, "lo": -MAX, "hi": MAX}
    for rounding in ROUNDINGS:
        wide = {**most, "terms": 6, "rounding": rounding}
        xs, ys = [filled((2,), MAX)] * 6, [filled((2,), MAX)] * 3
        c.value(f"largest_{rounding}", "all operands at their ends", *xs, *ys, *[scalar(largest)] * 9,
                scalar(largest), scalar(largest), **wide)  # fmt: skip
        c.value(f"least_{rounding}", "the least numerator", *xs, *ys, *[scalar(-largest)] * 6, *[scalar(largest)] * 3,
                scalar(-largest), scalar(largest), **wide)  # fmt: skip
    cancelling = (filled((1,), MAX), filled((1,), MAX), filled((1,), MAX), filled((1,), MAX))
    c.value("cancel", "products beyond 64 bits that cancel, in both sums", *cancelling,
            *_parameters(largest, -largest, largest, -largest, 7, 2), **{**given, "terms": 2})  # fmt: skip
    s = Stream(f"{op}/long")
    many = [s.tensor((600,), -MAX, MAX), s.tensor((600,), -9, 9), s.tensor((1,), -9, 9), s.tensor((600,), 1, MAX)]
    divisors = [s.tensor((1,), 1, 9), s.tensor((600,), 0, 9)]
    factors = [_stored(s.tensor((600,), -(2**40), 2**40)), *_parameters(2**62, -5, 2**38, 3, 2**60)]
    offset = _stored(s.tensor((600,), -(2**62), 2**62))
    c.value("long", "three terms over three, of 600 elements", *many, *divisors, *factors, offset, scalar(1),
            **{**most, "terms": 3})  # fmt: skip
    rest = _parameters(1, 1, 0, 0)
    c.refused("C1", "seven inputs", x, y, *rest, scalar(1), **given)
    c.refused("C2", "no divisor", x, x, *rest, **{**given, "terms": 2})
    c.refused("C2", "more terms than tensors", x, y, *rest, **{**given, "terms": 6})
    c.refused("C2", "four divisors", x, *[y] * 4, *[scalar(1)] * 5, scalar(0), scalar(1), **given)
    c.refused("C3", "a divisor of another extent", x, arange((2,), 1), *rest, **given)
    c.refused("C3", "a divisor of higher rank", x, filled((1, 2, 3), 1), *rest, **given)
    c.refused("C3", "a divisor that would grow x_1", tensor((1,), [1]), filled((3,), 2), *rest, **given)
    two = {**given, "terms": 2}
    c.refused("C3", "a second term of another extent", x, arange((2,)), y, *_parameters(1, 1, 1, 0, 0), **two)
    one, zero = scalar(1), scalar(0)
    c.refused("C4", "a factor of another extent", x, y, parameter((2,), [1, 1]), one, zero, zero, **given)
    c.refused("C4", "an offset of higher rank", x, y, one, one, parameter((1, 2, 3), [0] * 6), zero, **given)
    c.refused(
        "C4", "a factor of the divisor of three elements", x, y, one, parameter((3,), [1] * 3), zero, zero, **given
    )
    c.refused("C4", "a factor of the divisor of two dimensions", x, y, one, parameter((1, 1), [1]), zero, zero, **given)
    c.refused(
        "C4", "an offset of the divisor of three elements", x, y, one, one, zero, parameter((3,), [1] * 3), **given
    )
    c.refused("C5", "lo > hi", x, y, *rest, **{**given, "lo": 1, "hi": 0})
    c.refused("C6", "a divisor of 0", x, tensor((1,), [0]), *rest, **given)
    c.refused("C6", "a negative divisor", x, y, *_parameters(1, -1, 0, 0), **given)
    c.refused("C6", "a divisor that is 0 once", x, arange((3,)), *rest, **given)
    c.refused("C6", "a divisor that its offset makes 0", x, y, *_parameters(1, 1, 0, -4), **given)
    c.refused("attribute.terms", "no term", x, y, *rest, **{**given, "terms": 0})
    c.refused("attribute.terms", "seven terms", x, y, *rest, **{**given, "terms": 7})
    c.refused("attribute.rounding", "a rounding that is none", x, y, *rest, **{**given, "rounding": "half_down"})
    c.refused("attribute.lo", "-2^31 is no element", x, y, *rest, **{**given, "lo": -(2**31)})
    c.refused("attribute.hi", "2^31 is no element", x, y, *rest, **{**given, "hi": 2**31})
    c.refused("arity", "four inputs", x, y, one, one, **given)
    c.refused("arity", "ten tensors", *[x] * 7, *[y] * 3, *[one] * 10, zero, zero, **{**given, "terms": 6})
    c.refused("program.kind", "a factor that is no parameter", x, y, y, one, zero, zero, **given)
    c.refused("program.kind", "a divisor that is a parameter", x, one, one, one, zero, zero, **given)
    return c


def _square_rest(statistic: str) -> tuple[int, int]:
    """The root of the next square from Q of `ROW`, and what is left to it."""
    n, S_1, S_2 = len(ROW), sum(ROW), sum(x * x for x in ROW)
    Q = {"variance": n * S_2 - S_1 * S_1, "mean_square": n * S_2, "square_sum": S_2}[statistic]
    root = isqrt(Q) + 1
    return root, root * root - Q


def _normalize_ties(c: Cases) -> None:
    """Rows whose root is rational, so that there are ties; at each of them, above and below."""
    for statistic in STATISTICS:
        root, rest = _square_rest(statistic)
        for rounding in ROUNDINGS[:2]:
            given = {"axes": (0,), "statistic": statistic, "shift": 0, "rounding": rounding, "lo": -60, "hi": 60}
            x = tensor((len(ROW),), ROW)
            name = f"{statistic}_{rounding}"
            halves = [root * half for half in (1, 1, 3, 5, 7, 9, 11, 1)]
            for label, nudge in (("tie", 0), ("above", 1), ("below", -1)):
                m = parameter((len(ROW),), [2**20 * half + nudge for half in halves])
                ends = _parameters(0, 2**21, 1, rest)
                c.value(f"{name}_{label}", f"halves, {label}", x, m, *ends, **given)
                m = parameter((len(ROW),), [2**20 * half for half in halves])
                ends = _parameters(2**21 * 3 + nudge, 2**21, 1, rest)
                c.value(f"{name}_offset_{label}", f"halves by an offset, {label}", x, m, *ends, **given)
            r = 12345
            m = parameter((len(ROW),), halves)
            c.value(f"{name}_scaled", "ties where r is large", x, m, *_parameters(0, 2, r, rest * r * r), **given)
            c.value(f"{name}_shifted", "ties where e is shifted", x, m, *_parameters(1, 2, 64, rest),
                    **{**given, "shift": 12})  # fmt: skip
            c.value(f"{name}_odd", "ties of an odd divisor", x, m, *_parameters(3, 3, 1, rest), **given)


def _normalize_shapes(c: Cases) -> None:
    """Rows along all axes of all ranks; parameters of all shapes; drawn factors of every width."""
    shapes = ((4,), (2, 3), (2, 3, 2), (1, 3, 2, 2), RANKS[5], RANKS[8])
    for index, shape in enumerate(shapes):
        rank = len(shape)
        for number, axes in enumerate(
            dict.fromkeys(((0,), (-1,), tuple(range(rank)), (rank - 1, 0)[: min(rank, 2)], (rank // 2,)))
        ):
            if len({axis % rank for axis in axes}) < len(axes):
                continue
            name = f"shapes_{index}_{'_'.join(str(axis) for axis in axes)}"
            s = Stream(f"normalize/{name}")

            def fitting(shape: tuple[int, ...] = shape, s: Stream = s) -> tuple[int, ...]:
                return tuple(s.choice((1, extent)) for extent in shape)[s.between(0, len(shape) - 1) :]

            bits = s.choice((12, 30, 61))
            m, b = (
                s.tensor(fitting(), -(2**bits), 2**bits),
                s.tensor(fitting(), -(2 ** min(bits, 50)), 2 ** min(bits, 50)),
            )
            k = s.spread(fitting(), 2 ** max(1, min(bits, 54) - 7), 2 ** min(bits, 54))
            inputs = (s.spread(shape, -30000, 30000), _stored(m), _stored(b), _stored(k))
            ends = (scalar(s.between(1, 2**31 - 1)), scalar(s.between(1, 2**62 - 1)))
            c.value(
                name, f"{list(shape)} along {list(axes)}, factors of {bits} bits", *inputs, *ends, axes=axes,
                statistic=STATISTICS[(index + number) % 3], shift=s.choice((0, 5, 31)),
                rounding=ROUNDINGS[(index + number) % 2], lo=-200, hi=200,
            )  # fmt: skip


def _normalize_limits(c: Cases) -> None:
    """The ends of every width; bounds that cut; rows without spread."""
    given = {"axes": (0,), "statistic": "variance", "shift": 0, "rounding": "half_even", "lo": -128, "hi": 127}
    quarter = 2**62 - 1
    for statistic in STATISTICS:
        wide = {**given, "statistic": statistic}
        one = tensor((1,), [MAX])
        pair = tensor((2,), [2**30 - 1, 1 - 2**30])
        c.value(
            f"{statistic}_constant", "a row of equal elements", filled((4,), 7), *_parameters(100, 5, 2, 1, 1), **wide
        )
        c.value(f"{statistic}_zeros", "a row of zeros", filled((4,), 0), *_parameters(quarter, -7, 2, 1, 1), **wide)
        for sign in (1, -1):
            label = "most" if sign > 0 else "least"
            ends = _parameters(sign * quarter, sign * 2**40, 2**50, MAX, quarter)
            c.value(f"{statistic}_{label}_one", "a row of one element at the ends", one, *ends, **wide)
            c.value(f"{statistic}_{label}_two", "a row of two elements at the ends", pair, *ends, **wide)
            c.value(f"{statistic}_{label}_shift", "e with all its bits shifted", pair, *ends, **{**wide, "shift": 62})
        for k, b in (((2**64 - 1) // 257, 0), (1, (2**64 - 258) // 2), (1, -((2**64 - 258) // 2)), (2**54, 2**62)):
            label = f"{statistic}_divisor_{k.bit_length()}_{b.bit_length()}_{'n' if b < 0 else 'p'}"
            c.value(label, "k and c at the ends of C8", pair, *_parameters(quarter, b, k, 1, 1), **wide)
        row = tensor((5,), (-9, -3, 0, 3, 9))
        for lo, hi in ((-1, 1), (2, 3), (-3, -3), (0, 0), (-MAX, MAX)):
            label = f"{statistic}_cut_{lo if lo >= 0 else f'm{-lo}'}_{hi if hi >= 0 else f'm{-hi}'}"
            c.value(
                label, "results beyond the bounds", row, *_parameters(7, 1, 2, 3, 5), **{**wide, "lo": lo, "hi": hi}
            )
    plain = {key: value for key, value in given.items() if key != "shift"}
    c.value("default", "no shift is given", arange((5,), -2), *_parameters(9, 0, 1, 1, 1), **plain)


def normalize(op: str) -> Cases:
    """All statistics at ties of both roundings; rows along all axes; the ends of C5 to C8."""
    c = Cases(op)
    _normalize_ties(c)
    _normalize_shapes(c)
    _normalize_limits(c)
    s = Stream(f"{op}/long")
    long = (s.tensor((600,), -32767, 32767), _stored(s.tensor((600,), -(2**30), 2**30)))
    offsets = (_stored(s.tensor((600,), -(2**30), 2**30)), _stored(s.spread((600,), 2**13, 2**14)))
    c.value("long", "a row of 600 elements", *long, *offsets, scalar(1000), scalar(10**9), axes=(0,),
            statistic="variance", shift=10, rounding="half_up", lo=-32768, hi=32767)  # fmt: skip
    given = {"axes": (1,), "statistic": "variance", "rounding": "half_up", "lo": -128, "hi": 127}
    x, one, zero = arange((2, 3)), scalar(1), scalar(0)
    rest = (one, zero, one, one, one)
    two = parameter((2,), [1, 1])
    c.refused("C1", "axis 2 of a matrix", x, *rest, **{**given, "axes": (2,)})
    c.refused("C1", "axis -3 of a matrix", x, *rest, **{**given, "axes": (-3,)})
    c.refused("C2", "one axis twice", x, *rest, **{**given, "axes": (1, -1)})
    c.refused("C3", "no axis", x, *rest, **{**given, "axes": ()})
    c.refused("C3", "r of two elements", x, one, zero, one, two, one, **given)
    c.refused("C3", "e of two dimensions", x, one, zero, one, one, parameter((1, 1), [1]), **given)
    c.refused("C4", "m of another extent", x, two, zero, one, one, one, **given)
    c.refused("C4", "c of another extent", x, one, two, one, one, one, **given)
    c.refused("C4", "k of higher rank", x, one, zero, parameter((1, 2, 3), [1] * 6), one, one, **given)
    c.refused("C4", "lo > hi", x, *rest, **{**given, "lo": 1, "hi": 0})
    c.refused("C5", "m = 2^62", x, scalar(2**62), zero, one, one, one, **given)
    c.refused("C5", "m = -2^62", x, scalar(-(2**62)), zero, one, one, one, **given)
    c.refused("C5", "k = 0", x, one, zero, zero, one, one, **given)
    c.refused("C5", "one k is -1", x, one, zero, parameter((3,), [1, -1, 1]), one, one, **given)
    for r, e in ((0, 1), (-1, 1), (2**31, 1), (1, 0), (1, -1), (1, 2**62)):
        c.refused("C6", f"r = {r}, e = {e}", x, one, zero, one, scalar(r), scalar(e), **given)
    c.refused("C7", "two elements of 2^30", tensor((1, 2), [2**30, 0]), *rest, **given)
    c.refused("C7", "two elements of -2^30", tensor((1, 2), [0, -(2**30)]), *rest, **given)
    c.refused("C8", "k beyond 2^64 / 257", x, one, zero, scalar((2**64 - 1) // 257 + 1), one, one, **given)
    c.refused("C8", "c beyond 63 bits less k", x, one, scalar(-((2**64 - 258) // 2) - 1), one, one, one, **given)
    c.refused("attribute.axes", "nine axes", x, *rest, **{**given, "axes": (0,) * 9})
    c.refused("attribute.statistic", "a statistic that is none", x, *rest, **{**given, "statistic": "median"})
    c.refused("attribute.shift", "a shift of 63", x, *rest, **given, shift=63)
    c.refused("attribute.shift", "a shift of -1", x, *rest, **given, shift=-1)
    c.refused("attribute.rounding", "toward zero", x, *rest, **{**given, "rounding": "toward_zero"})
    c.refused("attribute.lo", "-2^31 is no element", x, *rest, **{**given, "lo": -(2**31)})
    c.refused("attribute.hi", "2^31 is no element", x, *rest, **{**given, "hi": 2**31})
    c.refused("arity", "no e", x, one, zero, one, one, **given)
    c.refused("arity", "seven inputs", x, *rest, one, **given)
    c.refused("program.kind", "a weight that is no parameter", x, tensor((1,), [1]), zero, one, one, one, **given)
    return c


def update_slice(op: str) -> Cases:
    """Slices along all axes of all ranks, at all places, before and beyond the ends."""
    c = Cases(op)
    for index, shape in enumerate(((5,), (3, 4), (2, 3, 4), (1, 3, 2, 3), RANKS[5], RANKS[8])):
        for axis in range(-len(shape), len(shape)):
            extent = shape[axis]
            for count in sorted({1, extent, (extent + 1) // 2}):
                own = tuple(count if k == axis % len(shape) else n for k, n in enumerate(shape))
                s = Stream(f"update_slice/{index}_{axis}_{count}")
                x, u = s.spread(shape), s.spread(own)
                places = range(-1, extent - count + 2) if index < 3 and axis >= 0 else (s.between(0, extent - count),)
                for place in places:
                    name = f"{index}_{'m' if axis < 0 else ''}{abs(axis)}_{count}_{place + 1}"
                    aim = f"{list(own)} into {list(shape)} along {axis}, from {place}"
                    c.value(name, aim, x, u, scalar_tensor(place), axis=axis)
    x, u = arange((2, 3)), arange((2, 2), 50)
    for name, place in (("far_before", -MAX), ("far_beyond", MAX)):
        c.value(name, "an index that is clipped", x, u, scalar_tensor(place), axis=1)
    i = scalar_tensor(0)
    c.refused("C1", "axis 2 of a matrix", x, x, i, axis=2)
    c.refused("C1", "axis -3 of a matrix", x, x, i, axis=-3)
    c.refused("C2", "a vector for a matrix", x, arange((3,)), i, axis=1)
    c.refused("C2", "a slice of higher rank", x, arange((1, 2, 3)), i, axis=1)
    c.refused("C2", "a slice that is longer than X", x, arange((2, 4)), i, axis=1)
    c.refused("C2", "another extent beside the axis", x, arange((1, 2)), i, axis=1)
    c.refused("C2", "a shorter extent beside the axis", x, arange((1, 3)), i, axis=-1)
    c.refused("C3", "two indices", x, u, arange((2,)), axis=1)
    c.refused("C3", "an index of two dimensions", x, u, arange((1, 1)), axis=1)
    c.refused("attribute.axis", "axis is missing", x, u, i)
    c.refused("arity", "no index", x, u, axis=1)
    c.refused("program.kind", "an index that is a parameter", x, u, scalar(0), axis=1)
    return c


FAMILY: dict[str, Callable[[str], Cases]] = {
    "matmul": matmul, "quotient": quotient, "normalize": normalize, "update_slice": update_slice,
}  # fmt: skip
"""For each op, the function that makes its cases."""
