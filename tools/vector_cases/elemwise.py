"""Cases of the elementwise ops."""

from __future__ import annotations

from collections.abc import Callable

from tools.vector_cases.case import Cases, Tensor, arange, filled, tensor
from tools.vector_cases.shapes import RANKS
from tools.vector_cases.stream import MAX, Stream

__all__ = ["FAMILY", "around_powers", "unary"]


def around_powers(k: int) -> Tensor:
    """The elements next to 2^k and -2^k that are legal."""
    near = [sign * (2**k + step) for sign in (1, -1) for step in (-1, 0, 1)]
    legal = [x for x in near if abs(x) <= MAX]
    return tensor((len(legal),), legal)


def unary(op: str) -> Cases:
    """An op without attributes on one tensor: all ranks, the neighbours of all powers of two, the extremes."""
    c = Cases(op)
    for rank, shape in RANKS.items():
        c.value(f"rank_{rank}", f"rank {rank}, the whole range", Stream(f"{op}/rank_{rank}").tensor(shape, -MAX, MAX))
    for k in range(32):
        c.value(f"near_power_{k:02}", f"2^{k} - 1, 2^{k}, 2^{k} + 1 and their negatives", around_powers(k))
    c.value("small", "every integer in [-70, 70]", arange((141,), -70))
    for label, x in (("zero", 0), ("largest", MAX), ("least", -MAX)):
        c.value(f"single_{label}", "one element", tensor((1,), [x]))
        c.value(f"filled_{label}", "equal elements", filled((2, 2), x))
    c.refused("arity", "no input")
    c.refused("arity", "two inputs", tensor((1,), [1]), tensor((1,), [2]))
    c.refused("attribute.axis", "an attribute that the op has not", tensor((1,), [1]), axis=0)
    return c


def binary(op: str) -> Cases:
    """elemwise_add, elemwise_sub."""
    sign = 1 if op == "elemwise_add" else -1
    c = Cases(op)
    for rank, shape in RANKS.items():
        s = Stream(f"{op}/rank_{rank}")
        c.value(
            f"rank_{rank}", f"rank {rank}", s.tensor(shape, -(2**30), 2**30 - 1), s.tensor(shape, 1 - 2**30, 2**30 - 1)
        )
    for k in range(1, 30):
        s = Stream(f"{op}/magnitude_{k}")
        a, b = s.tensor((2, 4), -(2**k), 2**k), s.tensor((2, 4), -(2**k), 2**k)
        c.value(f"magnitude_{k:02}", f"elements up to 2^{k}", a, b)
    for label, first, second in (
        ("largest_result", 2**30, 2**30 - 1),
        ("least_result", -(2**30), 1 - 2**30),
        ("largest_operand", MAX, 0),
        ("least_operand", -MAX, 0),
        ("zero_operand", 0, MAX),
        ("cancel", MAX, -MAX),
        ("cancel_least", -MAX, MAX),
        ("one_off", MAX - 1, 1),
    ):
        c.value(label, f"{first} and {second}: the ends of int32", tensor((1,), [first]), tensor((1,), [sign * second]))
    a, b = arange((3, 1, 5), -7), arange((3, 1, 5), 3)
    c.value("order", "A OP B, not B OP A", a, b)
    c.refused("C1", "shapes that only broadcast", arange((2, 3)), arange((1, 3)))
    c.refused("C1", "equal numbers of elements in different shapes", arange((2, 3)), arange((3, 2)))
    c.refused("C1", "ranks differ", arange((3,)), arange((1, 3)))
    c.refused("program.range", "2^31", tensor((2,), [0, MAX]), tensor((2,), [0, sign]))
    c.refused("program.range", "-2^31", tensor((2,), [0, -MAX]), tensor((2,), [0, -sign]))
    c.refused("arity", "one input", arange((3,)))
    c.refused("arity", "three inputs", arange((3,)), arange((3,)), arange((3,)))
    return c


def clip(op: str) -> Cases:
    """Clip: both bounds, alone, equal, one apart, at the ends of the range."""
    c = Cases(op)
    bounds = [
        (-3, 5), (0, 0), (1, 1), (-1, -1), (0, 1), (-1, 0), (-128, 127), (-127, 127), (0, 255), (1, 255), (-255, -1),
        (-MAX, MAX), (0, MAX), (-MAX, 0), (MAX, MAX), (-MAX, -MAX), (MAX - 1, MAX), (-MAX, 1 - MAX), (-2**30, 2**30),
        (100, 200), (-200, -100), (-32768, 32767), (-65536, 65535), (7, 8),
    ]  # fmt: skip
    for index, (a_min, a_max) in enumerate(bounds):
        near = [x for bound in (a_min, a_max) for x in (bound - 1, bound, bound + 1) if abs(x) <= MAX]
        x = tensor((len(near) + 5,), [*near, 0, 1, -1, MAX, -MAX])
        c.value(f"bounds_{index:02}", "the neighbours of both bounds, and the extremes", x, a_min=a_min, a_max=a_max)
    for rank, shape in RANKS.items():
        x = Stream(f"{op}/rank_{rank}").tensor(shape, -300, 300)
        c.value(f"rank_{rank}", f"rank {rank}", x, a_min=-100, a_max=90)
    for k in range(1, 31, 2):
        s = Stream(f"{op}/magnitude_{k}")
        lo, hi = sorted((s.between(-(2**k), 2**k), s.between(-(2**k), 2**k)))
        c.value(f"magnitude_{k:02}", f"bounds up to 2^{k}", s.tensor((3, 4), -(2**k), 2**k), a_min=lo, a_max=hi)
    x = arange((5,), -2)
    c.refused("C1", "a_min > a_max", x, a_min=1, a_max=0)
    c.refused("C1", "a_min > a_max at the ends", x, a_min=MAX, a_max=-MAX)
    c.refused("attribute.a_min", "a_min is missing", x, a_max=3)
    c.refused("attribute.a_max", "a_max is missing", x, a_min=3)
    c.refused("attribute.a_min", "-2^31 is no element", x, a_min=-MAX - 1, a_max=0)
    c.refused("attribute.a_max", "2^31 is no element", x, a_min=0, a_max=MAX + 1)
    c.refused("attribute.a_max", "a boolean is no integer", x, a_min=0, a_max=True)
    c.refused("attribute.a_min", "a string is no integer", x, a_min="0", a_max=1)
    c.refused("attribute.a_mid", "an attribute that the op has not", x, a_min=0, a_max=1, a_mid=0)
    c.refused("arity", "no input", a_min=0, a_max=1)
    return c


def _around(limit: int) -> list[int]:
    near = [sign * (limit + step) for sign in (1, -1) for step in (-1, 0, 1)]
    return sorted({x for x in (*near, 0, 1, -1, MAX, -MAX) if abs(x) <= MAX})


def cvm_clip(op: str) -> Cases:
    """Every precision; the neighbours of +-alpha."""
    c = Cases(op)
    for precision in range(1, 33):
        near = _around(2 ** (precision - 1) - 1)
        aim = f"the neighbours of +-alpha = 2^{precision - 1} - 1"
        c.value(f"precision_{precision:02}", aim, tensor((len(near),), near), precision=precision)
    for rank, shape in RANKS.items():
        x = Stream(f"{op}/rank_{rank}").tensor(shape, -(2**rank) - 1, 2**rank + 1)
        c.value(f"rank_{rank}", f"rank {rank}", x, precision=rank)
    x = arange((5,), -2)
    for precision in (0, 33, -1):
        c.refused("attribute.precision", f"precision {precision} is not in [1, 33)", x, precision=precision)
    c.refused("attribute.precision", "a boolean is no integer", x, precision=True)
    c.refused("attribute.precision", "precision is missing", x)
    c.refused("attribute.is_sign", "an attribute that the op has not", x, precision=8, is_sign=True)
    c.refused("arity", "two inputs", x, x, precision=8)
    return c


def _shift_refusals(c: Cases) -> None:
    x = arange((5,), -2)
    for name in ("precision", "shift_bit"):
        for bad in (0, 33, -1):
            given = {"precision": 8, "shift_bit": 1, name: bad}
            c.refused(f"attribute.{name}", f"{name} {bad} is not in [1, 33)", x, **given)
        left = {"precision": 8, "shift_bit": 1}
        del left[name]
        c.refused(f"attribute.{name}", f"{name} is missing", x, **left)
    c.refused("attribute.is_sign", "an attribute that the op has not", x, precision=8, shift_bit=1, is_sign=True)
    c.refused("arity", "no input", precision=8, shift_bit=1)


def cvm_right_shift(op: str) -> Cases:
    """Every shift at full precision and at a narrow one: ties of both signs, their neighbours, the extremes."""
    c = Cases(op)
    for shift in range(1, 33):
        half = 2 ** (shift - 1)
        ties = [(2 * k + 1) * half + step for k in (-2, -1, 0, 1) for step in (-1, 0, 1)]
        whole = [k * 2 * half for k in (-2, -1, 0, 1, 2)]
        items = sorted({x for x in (*ties, *whole, 0, 1, -1, MAX, -MAX, MAX - 1, 1 - MAX) if abs(x) <= MAX})
        data = tensor((len(items),), items)
        c.value(f"ties_{shift:02}", f"halves of 2^{shift}: rounded up", data, precision=32, shift_bit=shift)
        narrow = (7 * shift) % 31 + 1
        c.value(f"cut_{shift:02}", f"cut to precision {narrow}", data, precision=narrow, shift_bit=shift)
    for rank, shape in RANKS.items():
        x = Stream(f"{op}/rank_{rank}").tensor(shape, -MAX, MAX)
        c.value(f"rank_{rank}", f"rank {rank}", x, precision=10 + rank, shift_bit=3 * rank)
    c.value("small", "every integer in [-70, 70] by 4", arange((141,), -70), precision=5, shift_bit=2)
    _shift_refusals(c)
    return c


def cvm_left_shift(op: str) -> Cases:
    """Every shift at full precision and at a narrow one: what just fits, what is just clipped, the extremes."""
    c = Cases(op)
    for shift in range(1, 33):
        for label, precision in (("full", 32), ("cut", (11 * shift) % 31 + 1)):
            edge = (2 ** (precision - 1) - 1) >> shift
            items = sorted({*_around(edge), 2, -2, 3, -3})
            aim = f"the last factors of 2^{shift} within precision {precision}, and beyond"
            c.value(f"{label}_{shift:02}", aim, tensor((len(items),), items), precision=precision, shift_bit=shift)
    for rank, shape in RANKS.items():
        x = Stream(f"{op}/rank_{rank}").tensor(shape, -(2 ** (2 * rank)), 2 ** (2 * rank))
        c.value(f"rank_{rank}", f"rank {rank}", x, precision=10 + rank, shift_bit=rank)
    _shift_refusals(c)
    return c


FAMILY: dict[str, Callable[[str], Cases]] = {
    "abs": unary,
    "cvm_precision": unary,
    "elemwise_add": binary,
    "elemwise_sub": binary,
    "negative": unary,
    "clip": clip,
    "cvm_clip": cvm_clip,
    "cvm_right_shift": cvm_right_shift,
    "cvm_left_shift": cvm_left_shift,
}
"""For each op, the function that makes its cases."""
