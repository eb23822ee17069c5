"""The rules behind the precisions: the C++ library's as its notes state them, and the least precision that is sound.

`theirs` is the library's rule of each op, for inputs of given precisions. `largest` is the largest magnitude that an
output of the op can have for inputs anywhere in the intervals of their precisions, derived from the op's meaning alone.
Both are functions of a record; neither asks the product anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TypeAlias

from .mapping import boolean, integer
from .records import Record, magnitude

Rule: TypeAlias = "Callable[[Record], tuple[int, ...]]"


def bits(n: int) -> int:
    """Their ``bl``: the number of binary digits of n, 0 for 0."""
    return n.bit_length()


def terms(record: Record) -> int:
    """How many products an element of a convolution or a dense layer sums, or how many elements a sum."""
    return prod(record.shapes[0]) if record.op == "sum" else prod(record.shapes[1][1:])


def _number(record: Record, name: str) -> int:
    return integer(record.attributes[name])


# --- theirs -----------------------------------------------------------------------------------------------------------


def _first(record: Record) -> tuple[int, ...]:
    return record.precisions[:1]


def _wider(record: Record) -> tuple[int, ...]:
    return (max(record.precisions[:2]),)


def _wider_and_one(record: Record) -> tuple[int, ...]:
    return (max(record.precisions[:2]) + 1,)


def _declared(record: Record) -> tuple[int, ...]:
    return (_number(record, "precision"),)


def _their_dot_product(record: Record) -> tuple[int, ...]:
    if max(record.precisions[:2]) > 8:
        return ()
    products = sum(record.precisions[:2]) + bits(terms(record))
    biased = boolean(record.attributes.get("use_bias", "True"))
    return (max(products, record.precisions[2]) + 1 if biased else products,)


def _their_clip(record: Record) -> tuple[int, ...]:
    low, high = _number(record, "a_min"), _number(record, "a_max")
    return (bits(max(abs(low), abs(high)) + 1) + 1,) if low < high else ()


def _their_left_shift(record: Record) -> tuple[int, ...]:
    return _declared(record) if record.precisions[0] + _number(record, "shift_bit") <= 32 else ()


_THEIRS: Mapping[str, Rule] = {
    **dict.fromkeys(("abs", "negative", "relu", "flatten", "max", "max_pool2d", "upsampling", "slice_like"), _first),
    **dict.fromkeys(("take", "broadcast_div", "broadcast_greater", "non_max_suppression"), _first),
    "where": _first,  # that is the condition
    "cvm_lut": lambda record: record.precisions[1:],  # the table stands second there
    **dict.fromkeys(("concatenate", "broadcast_max"), _wider),
    **dict.fromkeys(("elemwise_add", "elemwise_sub", "broadcast_add", "broadcast_sub"), _wider_and_one),
    "broadcast_mul": lambda record: (sum(record.precisions),),
    "sum": lambda record: (record.precisions[0] + bits(terms(record)),),
    **dict.fromkeys(("conv2d", "dense"), _their_dot_product),
    "cvm_precision": lambda _: (6,),
    "clip": _their_clip,
    **dict.fromkeys(("cvm_clip", "cvm_right_shift"), _declared),
    "cvm_left_shift": _their_left_shift,
    "get_valid_counts": lambda record: (bits(prod(record.shapes[0][1:]) + 1) + 1, record.precisions[0]),
}


def theirs(record: Record) -> tuple[int, ...]:
    """The precisions that their rule gives, beyond 32 too; () where an operand or attribute is refused."""
    return _THEIRS[record.op](record)


# --- the least sound one ----------------------------------------------------------------------------------------------


def _magnitudes(record: Record) -> list[int]:
    return [magnitude(p) for p in record.precisions]


def _same(record: Record) -> tuple[int, ...]:
    return (magnitude(record.precisions[0]),)


def _either(record: Record) -> tuple[int, ...]:
    return (max(_magnitudes(record)[:2]),)


def _total(record: Record) -> tuple[int, ...]:
    return (sum(_magnitudes(record)[:2]),)


def _dot_product(record: Record) -> tuple[int, ...]:
    x, w, *bias = _magnitudes(record)
    return (terms(record) * x * w + sum(bias),)


def _quotient(record: Record) -> tuple[int, ...]:
    dividend, divisor = _magnitudes(record)
    return (dividend if divisor else 0,)  # divisors +-1 occur where others than 0 do; x / 0 = 0


def _selected(record: Record) -> tuple[int, ...]:
    condition, a, b = _magnitudes(record)
    return (max(a, b) if condition else b,)


def _clip(record: Record) -> tuple[int, ...]:
    low, high = _number(record, "a_min"), _number(record, "a_max")
    if low > high:
        return ()
    x = magnitude(record.precisions[0])
    return (max(abs(min(max(end, low), high)) for end in (-x, x)),)


def _shifted(record: Record, product: Callable[[int, int], int]) -> tuple[int, ...]:
    x, shift = magnitude(record.precisions[0]), _number(record, "shift_bit")
    alpha = magnitude(_number(record, "precision"))
    return (min(alpha, max(abs(product(end, shift)) for end in (-x, x))),)


def _rows(record: Record) -> tuple[int, ...]:
    x = magnitude(record.precisions[0])
    return (record.shapes[0][1] if x else 0, max(x, 1))  # a score above 0 needs x > 0; the filling is -1


_LARGEST: Mapping[str, Rule] = {
    **dict.fromkeys(("abs", "negative", "relu", "flatten", "max", "max_pool2d", "upsampling", "slice_like"), _same),
    "take": _same,
    "cvm_lut": lambda record: (magnitude(record.precisions[1]),),
    **dict.fromkeys(("concatenate", "broadcast_max"), _either),
    **dict.fromkeys(("elemwise_add", "elemwise_sub", "broadcast_add", "broadcast_sub"), _total),
    "broadcast_mul": lambda record: (prod(_magnitudes(record)),),
    "broadcast_div": _quotient,
    "broadcast_greater": lambda record: (min(1, max(_magnitudes(record))),),
    "sum": lambda record: (terms(record) * magnitude(record.precisions[0]),),
    **dict.fromkeys(("conv2d", "dense"), _dot_product),
    "cvm_precision": lambda record: (max(1, bits(magnitude(record.precisions[0]))),),
    "clip": _clip,
    "cvm_clip": lambda record: (min(magnitude(record.precisions[0]), magnitude(_number(record, "precision"))),),
    "cvm_right_shift": lambda record: _shifted(record, lambda x, shift: ((x >> (shift - 1)) + 1) >> 1),
    "cvm_left_shift": lambda record: _shifted(record, lambda x, shift: x << shift),
    "where": _selected,
    "get_valid_counts": _rows,
    "non_max_suppression": lambda record: (max(magnitude(record.precisions[0]), 1),),
}


def largest(record: Record) -> tuple[int, ...]:
    """The largest magnitude that occurs in each output, beyond int32 too; () where an attribute has no meaning."""
    return _LARGEST[record.op](record)


def least(record: Record) -> tuple[int, ...]:
    """The least sound precision of each output, beyond 32 too; () where an attribute has no meaning."""
    return tuple(bits(found) + 1 for found in largest(record))
