"""Cases of the extension ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tools.vector_cases.broadcast import broadcast
from tools.vector_cases.case import Cases, Tensor, arange, parameter, tensor
from tools.vector_cases.shapes import RANKS
from tools.vector_cases.stream import MAX, Stream

__all__ = ["FAMILY"]

ROUNDINGS = ("half_up", "half_even", "toward_zero")
WIDE = 2**63 - 1
"""The largest magnitude of a parameter, and of a sum."""


def scalar(x: int) -> Tensor:
    """A parameter for the whole tensor."""
    return parameter((1,), [x])


def _ties(s: int) -> list[int]:
    """Elements with a remainder of one half over 2^s, those next to them, and those without remainder."""
    half = 2 ** (s - 1)
    near = [(2 * k + 1) * half + step for k in range(-3, 3) for step in (-1, 0, 1)]
    return sorted({x for x in (*near, *(k * 2**s for k in range(-2, 3)), MAX, -MAX) if abs(x) <= MAX})


def _roundings(c: Cases) -> None:
    """All roundings over many shifts: ties with m = 1, the same by the offset, scaled wide sums."""
    for rounding in ROUNDINGS:

        def add(
            name: str,
            aim: str,
            x: Sequence[int],
            m: int,
            b: int,
            s: int,
            lo: int = -MAX,
            hi: int = MAX,
            rounding: str = rounding,
        ) -> None:
            inputs = (tensor((len(x),), x), scalar(m), scalar(b), scalar(s))
            c.value(f"{rounding}_{name}", aim, *inputs, rounding=rounding, lo=lo, hi=hi)

        small = list(range(-9, 10))
        add("shift_00", "s = 0: no rounding", small, 1, 0, 0)
        add("shift_00_scaled", "s = 0: a linear form", small, -7, 3, 0)
        for s in (1, 2, 3, 7, 15, 30):
            add(f"shift_{s:02}", f"halves of 2^{s}", _ties(s), 1, 0, s)
        for s in (31, 32, 40, 61, 62):
            half = 2 ** (s - 1)
            aim = f"halves of 2^{s} by a multiplier beyond 31 bits"
            for label, offset in (("tie", 0), ("above", 1), ("below", -1)):
                x = [k for k in (-3, -2, -1, 0, 1, 2, 3) if abs(k * half) + half + 1 <= WIDE]
                add(f"shift_{s}_{label}", aim, x, half, offset, s)
        add("offset_tie", "halves by the offset alone", small, 2, 1, 1)
        add("offset_negative_tie", "halves by the offset alone", small, -2, -1, 1)
        add("wide_offset", "an offset beyond 32 bits", [0, 1, -1], 1, 2**61 + 2**40, 41)
        add("cut", "results beyond both bounds", list(range(-20, 21)), 3, 1, 2, -5, 7)
        add("cut_positive", "bounds above zero", small, 3, 1, 2, 2, 4)
        add("cut_equal", "equal bounds", small, 3, 1, 2, 1, 1)
        add(
            "uint8",
            "an accumulator to 8 bits",
            [-100000, -1, 0, 1, 77777, 123456, 10**6],
            1518500249,
            3 * 2**36,
            38,
            0,
            255,
        )


def _shapes(c: Cases) -> None:
    """Parameters per tensor, per channel, per element, of lower rank; every rank; one to eight terms."""
    for index, (x, m, b, s) in enumerate((
        ((2, 3), (1,), (1,), (1,)), ((2, 3), (3,), (3,), (3,)), ((2, 3), (2, 1), (1, 3), (2, 3)),
        ((2, 3), (1, 1), (2, 3), (1,)),
        ((1, 3, 2, 2), (1, 3, 1, 1), (3, 1, 1), (1, 1, 1, 1)), ((1, 3, 2, 2), (1, 3, 1, 1), (1, 3, 2, 2), (3, 1, 1)),
        ((2, 3, 2, 2), (3, 1, 1), (2, 2), (2, 1, 1, 2)), ((4,), (4,), (1,), (4,)), ((1,), (1,), (1,), (1,)),
        (RANKS[5], (3,), (2, 1, 1), (1, 1, 2, 1, 1)), (RANKS[8], (2, 1, 1, 2, 1, 2, 1), (1,), RANKS[8]),
    )):  # fmt: skip
        for rounding in ROUNDINGS:
            name = f"shapes_{index:02}_{rounding}"
            stream = Stream(f"requantize/{name}")
            multipliers = stream.tensor(m, -(2**31), 2**31 + 5)
            offsets = stream.tensor(b, -(2**60), 2**60)
            shifts = stream.spread(s, 25, 45)
            inputs = (
                stream.tensor(x, -(2**29), 2**29),
                parameter(m, multipliers.elements), parameter(b, offsets.elements), parameter(s, shifts.elements),
            )  # fmt: skip
            aim = f"x {list(x)}, m {list(m)}, c {list(b)}, s {list(s)}"
            c.value(name, aim, *inputs, rounding=rounding, lo=-(2**20), hi=2**20)
    for index, shapes in enumerate((
        ((2, 3), (3,)), ((2, 3), (1,)), ((2, 3), (2, 1)), ((2, 3), (1, 3), (2, 1)), ((1, 3, 2, 2), (3, 1, 1)),
        ((2, 3, 2, 2), (1, 1, 2, 2), (3, 1, 1), (1,)), ((3,), (1,)), (RANKS[8], (2, 1), (2, 1, 2, 1)),
    )):  # fmt: skip
        stream = Stream(f"requantize/terms_broadcast_{index}")
        xs = [stream.tensor(shape, -(2**24), 2**24) for shape in shapes]
        ms = [parameter(shape[-1:], stream.tensor(shape[-1:], -(2**30), 2**30).elements) for shape in shapes]
        aim = "terms " + ", ".join(str(list(shape)) for shape in shapes)
        bounds = {"lo": -MAX, "hi": MAX}
        c.value(
            f"terms_broadcast_{index}", aim, *xs, *ms, scalar(5), scalar(26), rounding=ROUNDINGS[index % 3], **bounds
        )
    for n in range(1, 9):
        rounding = ROUNDINGS[n % 3]
        stream = Stream(f"requantize/terms_{n}")
        xs = [stream.tensor((2, 3), -(2**24), 2**24) for _ in range(n)]
        ms = [stream.tensor((3,), -(2**34), 2**34) for _ in range(n)]
        factors = [parameter((3,), m.elements) for m in ms]
        rest = (scalar(-(2**50) - 1), scalar(33))
        c.value(f"terms_{n}", f"{n} terms", *xs, *factors, *rest, rounding=rounding, lo=-MAX, hi=MAX)


def _limits(c: Cases) -> None:
    """The ends of 64 bits: multipliers of 62 bits, sums that just fit with their rounding addend, wide cancellation."""
    bounds = {"lo": -MAX, "hi": MAX}
    up = {"rounding": "half_up", **bounds}
    c.value(
        "largest_multiplier",
        "m of 62 bits, both signs",
        tensor((3,), [1, -1, 0]),
        parameter((3,), [2**62 - 1, 2**62 - 1, 1 - 2**62]),
        scalar(0),
        scalar(40),
        **up,
    )
    c.value(
        "largest_sum", "2^63 - 1 without a shift", tensor((1,), [1]), scalar(2**62 - 1), scalar(2**62), scalar(0), **up
    )
    c.value(
        "least_sum",
        "-(2^63 - 1) without a shift",
        tensor((1,), [-1]),
        scalar(2**62 - 1),
        scalar(-(2**62)),
        scalar(0),
        **up,
    )
    c.value(
        "largest_sum_with_addend",
        "2^63 - 1 with 2^61 by rounding",
        tensor((1,), [0]),
        scalar(1),
        scalar(2**63 - 1 - 2**61),
        scalar(62),
        **up,
    )
    c.value(
        "least_sum_shifted",
        "-(2^63 - 1), shift 62",
        tensor((3,), [0, 0, 0]),
        scalar(1),
        scalar(-WIDE),
        scalar(62),
        **up,
    )
    for rounding in ROUNDINGS:
        c.value(
            f"least_sum_{rounding}",
            "-(2^63 - 1) over 2^32",
            tensor((1,), [0]),
            scalar(1),
            scalar(-WIDE),
            scalar(32),
            rounding=rounding,
            **bounds,
        )
        c.value(
            f"beyond_53_bits_{rounding}",
            "next to a tie, which float64 cannot see",
            tensor((4,), [1, -1, 3, -3]),
            scalar(2**60 + 1),
            scalar(0),
            scalar(61),
            rounding=rounding,
            **bounds,
        )
    c.value(
        "cancel",
        "products that cancel",
        tensor((1,), [MAX]),
        tensor((1,), [MAX]),
        scalar(2**31),
        scalar(-(2**31)),
        scalar(1),
        scalar(1),
        **up,
    )
    c.value(
        "comparison",
        "s = 0 as an exact comparison",
        arange((5,), -2),
        scalar(2**40),
        scalar(-(2**40) + 1),
        scalar(0),
        rounding="half_up",
        lo=0,
        hi=1,
    )


def requantize(op: str) -> Cases:
    """All roundings; parameters of all shapes and up to 62 bits; one to eight terms; the ends of 64 bits."""
    c = Cases(op)
    _roundings(c)
    _shapes(c)
    _limits(c)
    given = {"rounding": "half_up", "lo": -128, "hi": 127}
    x, one, zero = arange((2, 3)), scalar(1), scalar(0)
    c.refused("C1", "five inputs", x, one, one, zero, zero, **given)
    c.refused("C2", "a second term of another extent", x, arange((2,)), one, one, zero, zero, **given)
    c.refused("C2", "a second term of higher rank", x, arange((1, 2, 3)), one, one, zero, zero, **given)
    c.refused("C2", "a second term that would grow the first", arange((1, 3)), x, one, one, zero, zero, **given)
    c.refused("C2", "a third term of another extent", x, x, arange((2, 2)), one, one, one, zero, zero, **given)
    c.refused("C3", "a multiplier of another extent", x, parameter((2,), [1, 1]), zero, zero, **given)
    c.refused("C3", "a multiplier of higher rank", x, parameter((1, 2, 3), [1] * 6), zero, zero, **given)
    c.refused("C3", "an offset that would grow x", tensor((1,), [1]), one, parameter((3,), [1, 2, 3]), zero, **given)
    c.refused("C3", "a shift of another extent", x, one, zero, parameter((3, 1), [1, 2, 3]), **given)
    c.refused("C4", "lo > hi", x, one, zero, zero, **{**given, "lo": 1, "hi": 0})
    c.refused("C5", "s = 63", x, one, zero, scalar(63), **given)
    c.refused("C5", "s = -1", x, one, zero, scalar(-1), **given)
    c.refused("C5", "one of several shifts is 63", x, one, zero, parameter((3,), [1, 63, 2]), **given)
    c.refused("C6", "m = 2^62", x, scalar(2**62), zero, one, **given)
    c.refused("C6", "m = -2^62", tensor((1,), [0]), scalar(-(2**62)), zero, one, **given)
    c.refused("C7", "a sum of 2^63", tensor((1,), [2]), scalar(2**61), scalar(2**62), zero, **given)
    c.refused(
        "C7", "the rounding addend is one too much", tensor((1,), [0]), one, scalar(2**63 - 2**61), scalar(62), **given
    )
    c.refused(
        "C7",
        "products that cancel, each beyond 64 bits",
        tensor((1,), [4]),
        tensor((1,), [4]),
        scalar(2**61),
        scalar(-(2**61)),
        zero,
        zero,
        **given,
    )
    c.refused("C7", "a sum of -2^63", tensor((1,), [-2]), scalar(2**61), scalar(-(2**62)), zero, **given)
    c.refused("attribute.rounding", "a rounding that is none", x, one, zero, zero, **{**given, "rounding": "half_down"})
    c.refused("attribute.rounding", "rounding is missing", x, one, zero, zero, lo=0, hi=1)
    c.refused("attribute.lo", "-2^31 is no element", x, one, zero, zero, **{**given, "lo": -(2**31)})
    c.refused("attribute.hi", "2^31 is no element", x, one, zero, zero, **{**given, "hi": 2**31})
    c.refused("attribute.shift", "an attribute that the op has not", x, one, zero, zero, **given, shift=1)
    c.refused("arity", "three parameters", one, one, zero, **given)
    c.refused("arity", "nine terms", *[x] * 9, *[one] * 9, zero, zero, **given)
    c.refused("program.kind", "a multiplier that is no parameter", x, tensor((1,), [1]), zero, zero, **given)
    c.refused("program.kind", "a term that is a parameter", one, one, zero, zero, **given)
    return c


FAMILY: dict[str, Callable[[str], Cases]] = {"requantize": requantize, "broadcast_greater": broadcast}
"""For each op, the function that makes its cases."""
