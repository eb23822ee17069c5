"""The precisions that cvm-runtime derives: a tensor of precision p has elements in +-(2^(p-1) - 1), with p in 1..32.

Each op has one rule, which depends on the precisions of its operands alone. It uses two bit lengths of the library: a
sum of n terms adds bl(n) bits, and a bound of magnitude n has bl(n + 1) + 1 bits, where bl is the number of binary
digits. For some n both are one bit too many; that is part of the contract.

Three rules are unsound, since a result may exceed its precision: `where` has the precision of its condition; a
comparison has that of its left operand, although it may give 1 where that operand is always 0; and the rows of -1 that
vision ops fill in have the precision of the input. `derived` gives sound precisions unless the caller asks for those
of the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from cvm.errors import Invalid
from cvm.frontends.cvm_runtime.operators import Use

__all__ = ["LARGEST", "Precisions", "derived", "magnitude"]

Precisions = tuple[int, ...]
_Rule = Callable[[Use, Precisions], Precisions]

LARGEST = 32
"""The largest precision."""
_OPERAND = 8
"""The largest precision of an operand of conv2d and dense."""
_COORDINATE = 30
"""The largest precision of boxes: beyond it, differences of coordinates overflow."""


def magnitude(p: int) -> int:
    """The largest magnitude of an element of precision ``p``."""
    return int(2 ** (p - 1) - 1)


def derived(use: Use, precisions: Precisions, *, sound: bool = True) -> Precisions:
    """The precisions of the results of an op, from those of its operands.

    Raises `Invalid` (``cvm_runtime.precision``) where the library refuses the operands or a result would have more
    than 32 bits. With ``sound`` false, the rules are exactly those of the library.
    """
    name = use.operator.name
    rule = _SOUND.get(name, _RULES[name]) if sound else _RULES[name]
    found = rule(use, precisions)
    if not all(1 <= p <= LARGEST for p in found):
        given = ", ".join(map(str, precisions))
        raise _refused(
            name, f"a result of operands of {given} bits would have {max(found)} bits; at most {LARGEST} fit"
        )
    return found


def _refused(name: str, message: str) -> Invalid:
    return Invalid("cvm_runtime.precision", f"{name}: {message}")


def _first(use: Use, p: Precisions) -> Precisions:
    return p[:1]


def _second(use: Use, p: Precisions) -> Precisions:
    return p[1:2]


def _widest(use: Use, p: Precisions) -> Precisions:
    return (max(p),)


def _total(use: Use, p: Precisions) -> Precisions:
    return (max(p) + 1,)


def _declared(use: Use, p: Precisions) -> Precisions:
    return (use.values["precision"],)


def _shifted_left(use: Use, p: Precisions) -> Precisions:
    shift = use.values["shift_bit"]
    if p[0] + shift > LARGEST:
        raise _refused("cvm_left_shift", f"{p[0]} bits shifted by {shift} exceed {LARGEST}")
    return _declared(use, p)


def _clipped(use: Use, p: Precisions) -> Precisions:
    bound = max(abs(use.values["a_min"]), abs(use.values["a_max"]))
    return ((bound + 1).bit_length() + 1,)


def _summed(use: Use, p: Precisions) -> Precisions:
    terms = math.prod(use.shapes[0]) // math.prod(use.out_shapes[0])
    return (p[0] + terms.bit_length(),)


def _dot_product(use: Use, p: Precisions) -> Precisions:
    if max(p[:2]) > _OPERAND:
        name = use.operator.name
        raise _refused(name, f"operands have at most {_OPERAND} bits, found {p[0]} and {p[1]}")
    terms = math.prod(use.shapes[1][1:])
    products = p[0] + p[1] + terms.bit_length()
    return (max(products, p[2]) + 1,) if len(p) > 2 else (products,)


def _counted(use: Use, p: Precisions) -> Precisions:
    items = math.prod(use.shapes[0][1:])
    return ((items + 1).bit_length() + 1, p[0])


_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(
        (
            "abs",
            "negative",
            "relu",
            "flatten",
            "reshape",
            "max",
            "max_pool2d",
            "upsampling",
            "repeat",
            "tile",
            "expand_dims",
            "squeeze",
            "transpose",
            "strided_slice",
            "slice_like",
            "take",
            "broadcast_div",
            "broadcast_greater",
            "where",
            "non_max_suppression",
        ),
        _first,
    ),
    "cvm_lut": _second,
    **dict.fromkeys(("concatenate", "broadcast_max"), _widest),
    **dict.fromkeys(("elemwise_add", "elemwise_sub", "broadcast_add", "broadcast_sub"), _total),
    "broadcast_mul": lambda use, p: (sum(p),),
    "sum": _summed,
    **dict.fromkeys(("conv2d", "dense"), _dot_product),
    "cvm_precision": lambda use, p: (6,),
    "clip": _clipped,
    **dict.fromkeys(("cvm_clip", "cvm_right_shift"), _declared),
    "cvm_left_shift": _shifted_left,
    "get_valid_counts": _counted,
}


def _boxes(use: Use, p: Precisions) -> Precisions:
    """The rule of non_max_suppression about coordinates, which the library contains but does not register."""
    if p[0] > _COORDINATE:
        raise _refused("non_max_suppression", f"boxes have at most {_COORDINATE} bits, found {p[0]}")
    return (max(p[0], 2),)


_SOUND: Mapping[str, _Rule] = {
    "where": lambda use, p: (max(p[1:]),),
    "broadcast_greater": lambda use, p: (max(p[0], 2),),
    "get_valid_counts": lambda use, p: (_counted(use, p)[0], max(p[0], 2)),
    "non_max_suppression": _boxes,
}
"""Sound rules in place of the unsound ones."""
