"""Every difference between the C++ library's verdicts on single uses of ops and ours, in classes with reasons.

``docs/cvm-runtime-differences.md`` is written from these tables (`page`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .records import Effect, Record, effect, verdict

Counts: TypeAlias = "Mapping[Effect, int]"


@dataclass(frozen=True, eq=False)
class Difference:
    """A class of differences: the records with an effect in ``counts`` that it covers, and how many there are."""

    name: str
    covers: Callable[[Record], bool]
    reason: str
    example: str
    """One record of the class, as `records.described` writes it."""
    counts: Counts


def of(*ops: str) -> Callable[[Record], bool]:
    """Records of these ops."""
    return lambda record: record.op in ops


_SUMS = of("elemwise_add", "elemwise_sub", "broadcast_add", "broadcast_sub")
_DOT_PRODUCTS = of("conv2d", "dense")


def _zero(record: Record) -> bool:
    """An operand that can only be 0."""
    return 1 in record.precisions[:2]


def _wide(record: Record) -> bool:
    return _DOT_PRODUCTS(record) and max(record.precisions[:2]) > 8


def _zero_operand(record: Record) -> bool:
    arithmetic = _SUMS(record) or _DOT_PRODUCTS(record) or of("sum", "broadcast_mul", "broadcast_div")(record)
    return arithmetic and _zero(record) and not _wide(record)


def _input_decides(record: Record) -> bool:
    """A clip whose input is known to lie closer to 0 than the bounds do."""
    low, high = (int(record.attributes[name]) for name in ("a_min", "a_max"))
    return verdict(record).precisions < (max(abs(low), abs(high)).bit_length() + 1,)


def _equal_bounds(record: Record) -> bool:
    return record.op == "clip" and record.attributes["a_min"] == record.attributes["a_max"]


def _bound_too_wide(record: Record) -> bool:
    if record.op != "clip" or _equal_bounds(record):
        return False
    return not record.accepted or not _input_decides(record)


def _small_input(record: Record) -> bool:
    if record.op == "clip":
        return record.accepted and _input_decides(record)
    return of("cvm_clip", "cvm_right_shift", "cvm_left_shift")(record)


_ABSENT: Mapping[str, tuple[str, ...]] = {
    "sum": ("dtype",),
    "conv2d": ("layout",),
    "upsampling": ("method",),
    "non_max_suppression": ("return_indices", "invalid_to_bottom", "coord_start", "score_index", "id_index"),
}
"""Attributes that our ops do not have and whose values, all but one or a few, the C++ library refuses."""


def _absent_attribute(record: Record) -> bool:
    return any(name in record.attributes for name in _ABSENT.get(record.op, ()))


PRECISIONS: Sequence[Difference] = (
    Difference(
        "zero operand",
        _zero_operand,
        "An element of precision 1 is 0. Here the interval of the result follows from that; their rule adds bits for "
        "the operand or for the number of terms all the same.",
        "`broadcast_mul` of INT1 (2,), INT8 (2,): there INT9, here INT1",
        {"tighter": 141, "admitted": 10},
    ),
    Difference(
        "sign of a product",
        lambda record: record.op == "broadcast_mul" and not _zero(record),
        "Their product has the sum of both precisions, which counts the sign twice; the least precision is at least "
        "one less.",
        "`broadcast_mul` of INT8 (2,), INT8 (2,): there INT16, here INT15",
        {"tighter": 48, "admitted": 6},
    ),
    Difference(
        "number of terms",
        lambda record: record.op == "sum" and not _zero(record),
        "Their sum of n terms has bl(n) = floor(log2 n) + 1 bits more than a term: one too many for every power of "
        "two, a single term included, and for an n whose n * (2^(p-1) - 1) stays below the next power of two.",
        "`sum` of INT8 (1,): there INT9, here INT8",
        {"tighter": 35, "admitted": 3},
    ),
    Difference(
        "sum of products",
        lambda record: _DOT_PRODUCTS(record) and not _zero(record) and not _wide(record),
        "The two reasons before this one together; and a bias adds a bit there, however small it is.",
        "`dense units=2 use_bias=False` of INT8 (1, 1), INT8 (2, 1): there INT17, here INT15",
        {"tighter": 44},
    ),
    Difference(
        "wide operands",
        _wide,
        "Their convolutions and dense layers take operands of at most 8 bits. Here any operands are legal whose sum "
        "is proven to be int32 (E14).",
        "`dense units=2 use_bias=False` of INT16 (1, 1), INT9 (2, 1): there refused, here INT24",
        {"admitted": 182},
    ),
    Difference(
        "length of the input",
        of("cvm_precision"),
        "Their `cvm_precision` has precision 6, which the largest result needs; here it is what the longest number of "
        "the input's interval needs.",
        "`cvm_precision` of INT8 (2, 3): there INT6, here INT4",
        {"tighter": 7},
    ),
    Difference(
        "bound of 2^k - 1",
        _bound_too_wide,
        "Their precision of a number n is bl(n + 1) + 1, one bit more than n = 2^k - 1 needs: clipping to 127 gives 9 "
        "bits, which no convolution takes there, and to 2^31 - 1 gives 33 bits, which is refused.",
        "`clip a_min=-127 a_max=127` of INT8 (2,): there INT9, here INT8",
        {"tighter": 4, "admitted": 2},
    ),
    Difference(
        "small input",
        _small_input,
        "Their clips and shifts have the precision of the bounds whatever the input is; here an input that is known "
        "to be smaller counts.",
        "`cvm_clip precision=32` of INT8 (2,): there INT32, here INT8",
        {"tighter": 30},
    ),
    Difference(
        "equal bounds",
        _equal_bounds,
        "They require a_min < a_max; here a_min = a_max is legal, since both cases of the definition agree (E20).",
        "`clip a_min=5 a_max=5` of INT8 (2,): there refused, here INT4",
        {"admitted": 1},
    ),
    Difference(
        "bits shifted out",
        of("cvm_left_shift"),
        "They refuse a left shift unless the input's precision and shift_bit are 32 together at most; here the "
        "product is taken in wide arithmetic and then clipped, for any input (E22).",
        "`cvm_left_shift precision=8 shift_bit=31` of INT2 (2,): there refused, here INT8",
        {"admitted": 28},
    ),
    Difference(
        "comparison",
        of("broadcast_greater"),
        "Their result has the precision of the left operand; here it is 0 or 1. Where the left operand has precision "
        "1, theirs is unsound: 0 > -1 gives 1.",
        "`broadcast_greater` of INT32 (2,), INT8 (2,): there INT32, here INT2",
        {"tighter": 99, "wider": 10},
    ),
    Difference(
        "precision of a condition",
        of("where"),
        "Their result has the precision of the condition; here the interval of what is selected (E36). Where that is "
        "wider than the condition, theirs is unsound: values of 32 bits pass for fewer, and may enter a convolution.",
        "`where` of INT1 (2,), INT17 (2,), INT32 (2,): there INT1, here INT32",
        {"tighter": 35, "wider": 76},
    ),
    Difference(
        "count of rows",
        lambda record: record.op == "get_valid_counts" and not _zero(record),
        "Their count has the precision of N * K; here it is at most N (E37).",
        "`get_valid_counts` of INT8 (2, 5, 6): there INT6, INT8, here INT4, INT8",
        {"tighter": 10},
    ),
    Difference(
        "filling",
        lambda record: of("get_valid_counts", "non_max_suppression")(record) and record.precisions[0] == 1,
        "Rows that are left over hold -1, which is no number of precision 1: theirs is unsound (E37).",
        "`non_max_suppression` of INT1 (2, 5, 6), INT32 (2,): there INT1, here INT2",
        {"wider": 2},
    ),
)
"""The classes of ``precision_rules.json``."""

VERDICTS: Sequence[Difference] = (
    Difference(
        "attribute we do not have",
        _absent_attribute,
        "The attribute exists there to hold one value, or is read and ignored: a layout, a method, the places of the "
        "columns of a box. Our ops mean that value and have no such attribute; whoever reads a foreign file refuses "
        "the others.",
        "`upsampling scale=2 method=BILINEAR` of INT8 (1, 1, 1, 1): there refused, here INT8",
        {"admitted": 8},
    ),
    Difference(
        "attribute that repeats shapes",
        lambda record: of("dense", "cvm_lut")(record) and not _wide(record),
        "units, use_bias and in_dim say there what the shapes and the number of the inputs say. Our ops do not have "
        "them, so they cannot contradict.",
        "`cvm_lut in_dim=5` of INT8 (4, 5), INT8 (4,): there refused, here INT8",
        {"admitted": 4},
    ),
    Difference(
        "weights that are not checked",
        lambda record: record.op == "conv2d" and "kernel_size" in record.attributes,
        "They take the output's shape from kernel_size and never look at the weight's: with one that differs, the "
        "kernels read beyond the weight. Here the weight's shape is the kernel's (E14).",
        "`conv2d channels=4 kernel_size=(0,1) use_bias=0` of INT8 (1, 6, 4, 4), INT8 (4, 6, 1, 1): there (1, 4, 5, "
        "4), here (1, 4, 4, 4)",
        {"shape": 1},
    ),
    Difference(
        "wide operands",
        _wide,
        "As above.",
        "`dense units=3 use_bias=False` of INT9 (1, 2), INT8 (3, 2): there refused, here (1, 3)",
        {"admitted": 1},
    ),
    Difference(
        "equal bounds",
        _equal_bounds,
        "As above.",
        "`clip a_min=5 a_max=5` of INT8 (2,): there refused, here (2,)",
        {"admitted": 1},
    ),
    Difference(
        "no new axis",
        of("expand_dims"),
        "They require num_newaxis >= 1. The document's range begins at 0, which changes nothing (E33).",
        "`expand_dims axis=0 num_newaxis=0` of INT8 (2,): there refused, here INT8",
        {"admitted": 1},
    ),
    Difference(
        "thirty-two values in a row",
        lambda record: record.op == "get_valid_counts" and record.shapes[0][2] == 32,
        "They require K < 32, the document K <= 32 (E37).",
        "`get_valid_counts` of INT8 (1, 5, 32): there refused, here INT4, INT8",
        {"admitted": 1},
    ),
    Difference(
        "place of the inferred extent",
        of("reshape"),
        "Their codes of a target shape are extents here, found where a foreign file is read (E34). There a -1 that "
        "does not stand at its own place in the output, as after -2, fills in another one.",
        "`reshape shape=(-2,-1)` of INT8 (4, 5): there refused, here INT8",
        {"admitted": 1},
    ),
    Difference(
        "axis named twice",
        of("squeeze"),
        "They tolerate it in squeeze; here the axes are distinct in every op, so whoever reads a foreign file removes "
        "the repetition (E35).",
        "`squeeze axis=(1,1)` of INT8 (2, 1): there (2,), here refused",
        {"refused": 2},
    ),
    Difference(
        "more entries than dimensions",
        of("strided_slice"),
        "Their shape rule ignores such entries, and their kernels read beyond the shape for them (E30).",
        "`strided_slice begin=(0,0,0) end=(1,1,1)` of INT8 (4, 5): there (1, 1), here refused",
        {"refused": 1},
    ),
)
"""The classes of ``rejections.json``."""

AGREED: Mapping[str, Mapping[str, int]] = {
    "precision_rules.json": {"accepted": 1210, "refused": 380},
    "rejections.json": {"accepted": 31, "refused": 71},
}
"""How many records of each file get the same verdict: accepted with the same result, or refused."""


def matching(record: Record, table: Sequence[Difference]) -> list[str]:
    """The classes of a record that our verdict differs on: one, if the table is right."""
    found = effect(record)
    return [item.name for item in table if found in item.counts and item.covers(record)]


def counted(records: Sequence[Record], table: Sequence[Difference]) -> Mapping[str, Counts]:
    """How many records of each class have which effect."""
    counts: dict[str, Counter[Effect]] = {item.name: Counter() for item in table}
    for record in records:
        for name in matching(record, table):
            counts[name][effect(record)] += 1
    return counts


def agreed(records: Sequence[Record]) -> Mapping[str, int]:
    """How many records get the same verdict."""
    return Counter("accepted" if record.accepted else "refused" for record in records if effect(record) == "same")
