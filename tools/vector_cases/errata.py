"""The witnesses of formal/ERRATA.md as cases: for every rule, uses of an op that distinguish it from other readings.

Each line is written by hand: name, op, inputs, attributes, and the expected result, which is the outputs or the code of
the error. The maker of the vectors takes the outputs from FORMAL, as for any case, and stops if FORMAL does not agree
with the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tools.vector_cases.case import Case, Tensor, tensor
from tools.vector_cases.stream import MAX

__all__ = ["ERRATA", "Erratum", "case", "nested_tensor"]

Nested: TypeAlias = "int | Sequence[Nested]"


@dataclass(frozen=True)
class Erratum:
    """One line. ``outputs`` are nested lists, one per output; ``code`` is the code of the refusal, if there is one."""

    name: str
    op: str
    inputs: tuple[Nested, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[Nested, ...] = ()
    code: str | None = None


def nested_tensor(nested: Nested) -> Tensor:
    """The tensor that nested lists describe."""
    shape, level = [], nested
    while not isinstance(level, int):
        shape.append(len(level))
        level = level[0]
    return tensor(shape, list(_flat(nested)))


def _flat(nested: Nested) -> Iterator[int]:
    if isinstance(nested, int):
        yield nested
    else:
        for item in nested:
            yield from _flat(item)


def case(line: Erratum) -> Case:
    """The line as a case."""
    section = line.name.split("_")[1]
    inputs = tuple(nested_tensor(item) for item in line.inputs)
    return Case(line.name, f"formal/ERRATA.md, {section}", inputs, line.attributes, line.code)


def _conv(padding: int = 0, groups: int = 1) -> dict[str, Any]:
    return {"padding": (padding, padding), "stride": (1, 1), "dilation": (1, 1), "groups": groups}


def _pool(size: tuple[int, int], padding: tuple[int, int], stride: int, ceil_mode: bool = False) -> dict[str, Any]:
    return {"pool_size": size, "padding": padding, "strides": (stride, stride), "ceil_mode": ceil_mode}


def _nms(threshold: int = 50, limit: int = -1, force: bool = False, top_k: int = -1) -> dict[str, Any]:
    return {"iou_threshold": threshold, "max_output_size": limit, "force_suppress": force, "top_k": top_k}


def _reduce(*axes: int, keepdims: bool = False, exclude: bool = False) -> dict[str, Any]:
    return {"axes": axes, "keepdims": keepdims, "exclude": exclude}


def _part(begin: Sequence[int] = (), end: Sequence[int] = (), strides: Sequence[int] = ()) -> dict[str, Any]:
    return {"begin": tuple(begin), "end": tuple(end), "strides": tuple(strides)}


NONE = [-1] * 6
SQUARE = [0, 9, 0, 0, 10, 10]
HALF = [0, 8, 0, 0, 5, 10]
THIRD = [0, 8, 5, 0, 15, 10]
# 999999599 * 999999601 = 100 m + 99 and 999999590 * 499999805 = 50 m: just under 50 %, but 50 m / floor(u / 100) = 50.
OUTER, INNER = [0, 9, 0, 0, 999999599, 999999601], [0, 8, 0, 0, 999999590, 499999805]

_ARANGE_2_3_4 = [[[12 * i + 4 * j + k for k in range(4)] for j in range(3)] for i in range(2)]

ERRATA: tuple[Erratum, ...] = (
    Erratum("errata_E1_largest_magnitude", "negative", ([MAX, -MAX],), {}, ([-MAX, MAX],)),
    Erratum("errata_E1_sum_beyond_int32", "elemwise_add", ([MAX], [1]), {}, code="program.range"),
    Erratum("errata_E2_reps_at_the_limit", "tile", ([7],), {"reps": (4096,)}, ([7] * 4096,)),
    Erratum("errata_E2_reps_beyond_the_limit", "tile", ([7],), {"reps": (4097,)}, code="ops.tile.attribute.reps"),
    Erratum("errata_E3_misprinted_name", "cvm_cilp", ([1],), {"precision": 8}, code="ops.unknown"),
    Erratum("errata_E4_rank_nine", "expand_dims", ([[[[[[[[1]]]]]]]],), {"axis": 0, "num_newaxis": 1},
            code="ops.expand_dims.C2"),
    Erratum("errata_E5_equal_elements", "sum", ([[3, 3, 3], [4, 5, 4]],), _reduce(1), ([9, 13],)),
    Erratum("errata_E6_all_axes_listed", "sum", ([[1, 2], [3, 4]],), _reduce(0, 1), ([10],)),
    Erratum("errata_E6_squeeze_to_nothing", "squeeze", ([[-5]],), {"axes": ()}, ([-5],)),
    Erratum("errata_E7_max_of_negatives", "max", ([[-3, -4], [-2, -5]],), _reduce(), ([-2],)),
    Erratum("errata_E7_no_axes_excluded", "sum", ([[1, 2], [3, 4]],), _reduce(keepdims=True, exclude=True), ([[10]],)),
    Erratum("errata_E8_axis_twice", "sum", ([[1, 2], [3, 4]],), _reduce(0, -2), code="ops.sum.C2"),
    Erratum("errata_E8_exclude_all", "max", ([[1, 2], [3, 4]],), _reduce(0, -1, exclude=True), ([[1, 2], [3, 4]],)),
    Erratum("errata_E9_aligned_from_the_right", "broadcast_add", ([[1, 2, 3], [4, 5, 6]], [10, 20, 30]), {},
            ([[11, 22, 33], [14, 25, 36]],)),
    Erratum("errata_E9_both_grow", "broadcast_add", ([[1], [2], [3]], [10, 20]), {},
            ([[11, 21], [12, 22], [13, 23]],)),
    Erratum("errata_E10_ranks_differ", "broadcast_sub", ([1, 2], [[[1, 2]], [[3, 5]]]), {},
            ([[[0, 0]], [[-2, -3]]],)),
    Erratum("errata_E11_division", "broadcast_div", ([7, -7, 7, -7, 5, 0, MAX, -MAX], [2, 2, -2, -2, 0, 0, -1, -1]), {},
            ([3, -3, -3, 3, 0, 0, -MAX, MAX],)),
    Erratum("errata_E12_width_and_weight", "conv2d", ([[[[1, 2, 3, 4]]]], [[[[1, 1]]], [[[1, -1]]], [[[0, 1]]]]),
            _conv(), ([[[[3, 5, 7]], [[-1, -1, -1]], [[2, 3, 4]]]],)),
    Erratum("errata_E13_kernel_sum", "conv2d", ([[[[1, 10, 100], [1000, 10**4, 10**5]]]], [[[[1, 1]]]]), _conv(),
            ([[[[11, 110], [11000, 110000]]]],)),
    Erratum("errata_E14_wide_operands", "conv2d", ([[[[32767]], [[-32767]]]], [[[[300]]], [[[-200]]]]), _conv(groups=2),
            ([[[[9830100]], [[6553400]]]],)),
    Erratum("errata_E14_kernel_too_large", "conv2d", ([[[[1, 2], [3, 4]]]], [[[[1], [1], [1], [1], [1]]]]), _conv(1),
            code="ops.conv2d.C6"),
    Erratum("errata_E14_weight_channels", "conv2d", ([[[[1]], [[2]]]], [[[[1]], [[1]]], [[[1]], [[1]]]]),
            _conv(groups=2), code="ops.conv2d.C3"),
    Erratum("errata_E15_bias_of_square_output", "dense",
            ([[1], [2]], [[1], [2]], [10, 20]), {}, ([[11, 22], [12, 24]],)),
    Erratum("errata_E16_pool_not_greater_than_padding", "max_pool2d", ([[[[1, 2], [3, 4]]]],), _pool((2, 2), (2, 0), 1),
            code="ops.max_pool2d.C3"),
    Erratum("errata_E16_padding_of_two_sizes", "max_pool2d", ([[[[1, 2], [3, 4]]]],), _pool((2, 1), (1, 0), 1),
            ([[[[1, 2], [3, 4], [3, 4]]]],)),
    Erratum("errata_E17_negative_data_under_padding", "max_pool2d", ([[[[-5, -6], [-7, -8]]]],),
            _pool((2, 2), (1, 1), 1), ([[[[-5, -5, -6], [-5, -5, -6], [-7, -7, -8]]]],)),
    Erratum("errata_E18_last_window_outside", "max_pool2d", ([[[[1], [2], [3]]]],), _pool((1, 1), (0, 0), 3, True),
            code="ops.max_pool2d.C4"),
    Erratum("errata_E18_last_window_partly_outside", "max_pool2d", ([[[[4, 1, 2, 3, 5]]]],),
            _pool((1, 2), (0, 0), 2, True), ([[[[4, 3, 5]]]],)),
    Erratum("errata_E19_powers_of_two", "cvm_precision",
            ([0, *(2**k for k in range(31)), *(1 - 2**k for k in range(31)), MAX],),
            {}, ([1, *range(1, 32), 1, *range(1, 31), 31],)),
    Erratum("errata_E20_equal_bounds", "clip", ([4, 5, 6],), {"a_min": 5, "a_max": 5}, ([5, 5, 5],)),
    Erratum("errata_E20_crossed_bounds", "clip", ([4, 5, 6],), {"a_min": 1, "a_max": 0}, code="ops.clip.C1"),
    Erratum("errata_E21_rounding_in_wide_arithmetic", "cvm_right_shift", ([MAX, -MAX],),
            {"precision": 32, "shift_bit": 1}, ([2**30, 1 - 2**30],)),
    Erratum("errata_E21_half_up", "cvm_right_shift", (list(range(-6, 7)),), {"precision": 8, "shift_bit": 2},
            ([-1, -1, -1, -1, 0, 0, 0, 0, 1, 1, 1, 1, 2],)),
    Erratum("errata_E21_long_shifts", "cvm_right_shift", ([2**30, 2**30 - 1, -(2**30), -(2**30) - 1, -1],),
            {"precision": 32, "shift_bit": 31}, ([1, 0, 0, -1, 0],)),
    Erratum("errata_E21_longest_shift", "cvm_right_shift", ([MAX, 1, 0, -1, -MAX],), {"precision": 32, "shift_bit": 32},
            ([0, 0, 0, 0, 0],)),
    Erratum("errata_E22_clip_after_the_product", "cvm_left_shift", ([MAX, 1, 0, -1, -MAX],),
            {"precision": 8, "shift_bit": 32}, ([127, 127, 0, -127, -127],)),
    Erratum("errata_E23_repeat_last_axis", "repeat", ([[1, 2], [3, 4]],), {"axis": -1, "repeats": 2},
            ([[1, 1, 2, 2], [3, 3, 4, 4]],)),
    Erratum("errata_E23_concatenate_last_axis", "concatenate", ([[1], [2]], [[3], [4]]), {"axis": -1},
            ([[1, 3], [2, 4]],)),
    Erratum("errata_E24_last_dimension", "tile", ([1, 2],), {"reps": (3,)}, ([1, 2, 1, 2, 1, 2],)),
    Erratum("errata_E24_more_reps_than_dimensions", "tile", ([1, 2],), {"reps": (3, 2)}, ([[1, 2, 1, 2]] * 3,)),
    Erratum("errata_E24_fewer_reps_than_dimensions", "tile", ([[1, 2], [3, 4]],), {"reps": (2,)},
            ([[1, 2, 1, 2], [3, 4, 3, 4]],)),
    Erratum("errata_E25_one_dimension", "flatten", ([[[1, 2, 3]], [[4, 5, 6]]],), {}, ([1, 2, 3, 4, 5, 6],)),
    Erratum("errata_E26_negative_axes", "transpose", (_ARANGE_2_3_4,), {"axes": (-1, 0, -2)},
            ([[[12 * i + 4 * j + k for j in range(3)] for i in range(2)] for k in range(4)],)),
    Erratum("errata_E26_not_a_permutation", "transpose", ([[1, 2, 3], [4, 5, 6]],), {"axes": (1, -1)},
            code="ops.transpose.C3"),
    Erratum("errata_E27_negative_bounds_per_axis", "slice", ([[1, 2, 3], [4, 5, 6]],), _part((-2, -2), (2, -1)),
            ([[2], [5]],)),
    Erratum("errata_E28_last_element", "slice", ([1, 2, 3],), _part((0,), (3,), (1,)), ([1, 2, 3],)),
    Erratum("errata_E28_first_element_backwards", "slice", ([1, 2, 3],), _part((9,), (-9,), (-1,)), ([3, 2, 1],)),
    Erratum("errata_E29_backwards_by_two", "slice", ([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]],),
            _part((1, 4), (-3, -6), (-1, -2)), ([[10, 8, 6], [5, 3, 1]],)),
    Erratum("errata_E29_backwards_without_bounds", "slice", ([1, 2, 3, 4],), _part((), (), (-1,)), code="ops.slice.C3"),
    Erratum("errata_E30_more_entries_than_dimensions", "slice", ([1, 2, 3, 4],), _part((0, 0)), code="ops.slice.C1"),
    Erratum("errata_E30_empty_selection", "slice", ([1, 2, 3, 4],), _part((2,), (2,)), code="ops.slice.C3"),
    Erratum("errata_E31_other_rank_with_axes", "slice_like", ([[1, 2], [3, 4], [5, 6]], [0, 0]), {"axes": (0,)},
            ([[1, 2], [3, 4]],)),
    Erratum("errata_E31_other_rank_without_axes", "slice_like", ([[1, 2], [3, 4], [5, 6]], [0, 0]), {"axes": ()},
            code="ops.slice_like.C1"),
    Erratum("errata_E32_indices_clamped", "take", ([[1, 2, 3], [4, 5, 6]], [-5, 9, 1]), {"axis": -1},
            ([[1, 3, 2], [4, 6, 5]],)),
    Erratum("errata_E32_lut_order", "cvm_lut", ([10, 20, 30], [2, 0, 0, 7]), {}, ([30, 10, 10, 30],)),
    Erratum("errata_E33_behind_the_last", "expand_dims", ([1, 2],), {"axis": -1, "num_newaxis": 1}, ([[1], [2]],)),
    Erratum("errata_E33_no_new_axis", "expand_dims", ([1, 2],), {"axis": 0, "num_newaxis": 0}, ([1, 2],)),
    Erratum("errata_E34_other_rank", "reshape", ([[1, 2, 3], [4, 5, 6]],), {"target_shape": (3, 1, 2)},
            ([[[1, 2]], [[3, 4]], [[5, 6]]],)),
    Erratum("errata_E34_code_is_no_extent", "reshape", ([[1, 2, 3], [4, 5, 6]],), {"target_shape": (-1,)},
            code="ops.reshape.attribute.target_shape"),
    Erratum("errata_E35_axis_twice", "squeeze", ([[1], [2]],), {"axes": (1, -1)}, code="ops.squeeze.C2"),
    Erratum("errata_E35_some_of_the_ones", "squeeze", ([[[1], [2]]],), {"axes": (-1,)}, ([[1, 2]],)),
    Erratum("errata_E36_rows", "where", ([0, 2], [[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]]), {},
            ([[7, 8, 9], [4, 5, 6]],)),
    Erratum("errata_E36_wide_data_under_narrow_condition", "where", ([0, 1], [1, MAX], [-MAX, 2]), {}, ([-MAX, MAX],)),
    Erratum("errata_E37_thirty_two_values", "get_valid_count", ([[[0, 1, *range(30)], [0, -1, *range(30)]]],),
            {"score_threshold": 0}, ([1], [[[0, 1, *range(30)], [-1] * 32]])),
    Erratum("errata_E37_strictly_greater", "get_valid_count", ([[[4, 5], [6, 6]]],), {"score_threshold": 5},
            ([1], [[[6, 6], [-1, -1]]])),
    Erratum("errata_E38_corners", "non_max_suppression", ([[[0, 9, 50, 50, 60, 60], [0, 8, 51, 51, 60, 60]]], [2]),
            _nms(80), ([[[0, 9, 50, 50, 60, 60], NONE]],)),
    Erratum("errata_E39_keep_nothing", "non_max_suppression", ([[SQUARE]], [1]), _nms(limit=0), ([[NONE]],)),
    Erratum("errata_E39_look_at_nothing", "non_max_suppression", ([[SQUARE]], [1]), _nms(top_k=0), ([[NONE]],)),
    Erratum("errata_E39_counts_beyond_the_rows", "non_max_suppression", ([[SQUARE]] * 3, [-1, 0, 6]), _nms(),
            ([[NONE], [NONE], [SQUARE]],)),
    Erratum("errata_E40_suppressed_rows_do_not_suppress", "non_max_suppression",
            ([[[0, 9, 0, 0, 4, 4], [0, 8, 0, 0, 8, 4], [0, 7, 4, 0, 8, 4]]], [3]), _nms(),
            ([[[0, 9, 0, 0, 4, 4], [0, 7, 4, 0, 8, 4], NONE]],)),
    Erratum("errata_E41_negative_id_in_front", "non_max_suppression", ([[[-1, 9, 0, 0, 10, 10], SQUARE, HALF]], [3]),
            _nms(force=True), ([[SQUARE, NONE, NONE]],)),
    Erratum("errata_E42_exactly_at_the_threshold", "non_max_suppression", ([[SQUARE, HALF], [SQUARE, THIRD]], [2, 2]),
            _nms(33), ([[SQUARE, NONE], [SQUARE, NONE]],)),
    Erratum("errata_E42_under_the_threshold", "non_max_suppression", ([[SQUARE, HALF], [SQUARE, THIRD]], [2, 2]),
            _nms(34), ([[SQUARE, NONE], [SQUARE, THIRD]],)),
    Erratum("errata_E42_half_at_fifty", "non_max_suppression", ([[SQUARE, HALF]], [2]), _nms(50), ([[SQUARE, NONE]],)),
    Erratum("errata_E42_half_at_fifty_one", "non_max_suppression", ([[SQUARE, HALF]], [2]), _nms(51),
            ([[SQUARE, HALF]],)),
    Erratum("errata_E42_full_overlap", "non_max_suppression",
            ([[SQUARE, SQUARE]], [2]), _nms(100), ([[SQUARE, NONE]],)),
    Erratum("errata_E42_beyond_full_overlap", "non_max_suppression", ([[SQUARE, SQUARE]], [2]), _nms(101),
            ([[SQUARE, SQUARE]],)),
    Erratum("errata_E42_large_areas", "non_max_suppression", ([[OUTER, INNER]], [2]), _nms(50), ([[OUTER, INNER]],)),
    Erratum("errata_E43_empty_and_swapped_boxes", "non_max_suppression",
            ([[[0, 9, 3, 3, 3, 9]] * 2, [[0, 9, 9, 3, 3, 9]] * 2, [SQUARE, [0, 8, 5, 0, 0, 5]]], [2, 2, 2]), _nms(1),
            ([[[0, 9, 3, 3, 3, 9]] * 2, [[0, 9, 9, 3, 3, 9]] * 2, [SQUARE, [0, 8, 5, 0, 0, 5]]],)),
    Erratum("errata_E44_equal_scores", "non_max_suppression",
            ([[[2, 5, 0, 0, 1, 1], [1, 5, 0, 0, 1, 1], SQUARE]], [3]), _nms(),
            ([[SQUARE, [2, 5, 0, 0, 1, 1], [1, 5, 0, 0, 1, 1]]],)),
)  # fmt: skip
"""All lines, in the order of the page."""
