"""The witnesses of formal/ERRATA.md: for every erratum a use of an op that tells the decision from other readings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import formal.registry
from cvm.errors import Invalid
from cvm.ops import Call, Range, get
from formal.registry import OPS
from tests.formal.formal_tensors import arange, nested, tensor

MAX = 2**31 - 1
NO_ROW = [-1] * 6


@dataclass(frozen=True)
class Legal:
    """A use of an op and what it gives; one result, or a tuple of results."""

    name: str
    op: str
    inputs: tuple[Any, ...]
    expected: Any
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Illegal:
    """A use of an op that must be refused: input shapes, attributes, and the code of the refusal."""

    name: str
    op: str
    shapes: tuple[tuple[int, ...], ...]
    code: str
    attributes: dict[str, Any] = field(default_factory=dict)


def conv(padding: int = 0, groups: int = 1) -> dict[str, Any]:
    return {"padding": (padding, padding), "stride": (1, 1), "dilation": (1, 1), "groups": groups}


def pool(size: tuple[int, int], padding: tuple[int, int], stride: int, ceil_mode: bool = False) -> dict[str, Any]:
    return {"pool_size": size, "padding": padding, "strides": (stride, stride), "ceil_mode": ceil_mode}


def nms(threshold: int = 50, limit: int = -1, force: bool = False, top_k: int = -1) -> dict[str, Any]:
    return {"iou_threshold": threshold, "max_output_size": limit, "force_suppress": force, "top_k": top_k}


def reduce(*axes: int, keepdims: bool = False, exclude: bool = False) -> dict[str, Any]:
    return {"axes": axes, "keepdims": keepdims, "exclude": exclude}


POWERS = [2**k for k in range(31)]
# 999999599 * 999999601 = 100 m + 99 and 999999590 * 499999805 = 50 m: just under 50 %, but 50 m / floor(u / 100) = 50.
OUTER, INNER = [0, 9, 0, 0, 999999599, 999999601], [0, 8, 0, 0, 999999590, 499999805]
SQUARE = [0, 9, 0, 0, 10, 10]
HALF = [0, 8, 0, 0, 5, 10]
THIRD = [0, 8, 5, 0, 15, 10]

LEGAL = [
    Legal("errata_E1_largest_magnitude", "negative", ([MAX, -MAX],), [-MAX, MAX]),
    Legal("errata_E2_reps_at_the_limit", "tile", ([7],), [7] * 4096, {"reps": (4096,)}),
    Legal("errata_E5_equal_elements", "sum", ([[2, 2, 2], [1, 2, 1]],), [6, 4], reduce(1)),
    Legal("errata_E6_all_axes_listed", "sum", ([[1, 2], [3, 4]],), [10], reduce(0, 1)),
    Legal("errata_E6_squeeze_to_nothing", "squeeze", ([[5]],), [5], {"axes": ()}),
    Legal("errata_E7_max_of_negatives", "max", ([[-3, -4], [-2, -5]],), [-2], reduce()),
    Legal("errata_E7_no_axes_excluded", "sum", ([[1, 2], [3, 4]],), [[10]], reduce(keepdims=True, exclude=True)),
    Legal("errata_E8_exclude_all", "max", ([[1, 2], [3, 4]],), [[1, 2], [3, 4]], reduce(0, -1, exclude=True)),
    Legal("errata_E9_aligned_from_the_right", "broadcast_add", ([[1, 2, 3], [4, 5, 6]], [10, 20, 30]),
          [[11, 22, 33], [14, 25, 36]]),
    Legal("errata_E9_both_grow", "broadcast_add", ([[1], [2], [3]], [10, 20]), [[11, 21], [12, 22], [13, 23]]),
    Legal("errata_E10_ranks_differ", "broadcast_sub", ([1, 2], [[[1, 2]], [[3, 5]]]), [[[0, 0]], [[-2, -3]]]),
    Legal("errata_E11_division", "broadcast_div", ([7, -7, 7, -7, 5, 0, MAX, -MAX], [2, 2, -2, -2, 0, 0, -1, -1]),
          [3, -3, -3, 3, 0, 0, -MAX, MAX]),
    Legal("errata_E12_width_and_weight", "conv2d", ([[[[1, 2, 3, 4]]]], [[[[1, 1]]], [[[1, -1]]], [[[0, 1]]]]),
          [[[[3, 5, 7]], [[-1, -1, -1]], [[2, 3, 4]]]], conv()),
    Legal("errata_E13_kernel_sum", "conv2d", ([[[[1, 10, 100], [1000, 10**4, 10**5]]]], [[[[1, 1]]]]),
          [[[[11, 110], [11000, 110000]]]], conv()),
    Legal("errata_E14_wide_operands", "conv2d", ([[[[32767]], [[-32767]]]], [[[[300]]], [[[-200]]]]),
          [[[[9830100]], [[6553400]]]], conv(groups=2)),
    Legal("errata_E15_bias_of_square_output", "dense", ([[1], [2]], [[1], [2]], [10, 20]), [[11, 22], [12, 24]]),
    Legal("errata_E16_padding_of_two_sizes", "max_pool2d", ([[[[1, 2], [3, 4]]]],), [[[[1, 2], [3, 4], [3, 4]]]],
          pool((2, 1), (1, 0), 1)),
    Legal("errata_E17_negative_data_under_padding", "max_pool2d", ([[[[-5, -6], [-7, -8]]]],),
          [[[[-5, -5, -6], [-5, -5, -6], [-7, -7, -8]]]], pool((2, 2), (1, 1), 1)),
    Legal("errata_E18_last_window_partly_outside", "max_pool2d", ([[[[1, 2, 3, 4]]]],), [[[[2, 4]]]],
          pool((1, 2), (0, 0), 2, ceil_mode=True)),
    Legal("errata_E19_powers_of_two", "cvm_precision", ([0, *POWERS, *(1 - p for p in POWERS), MAX],),
          [1, *range(1, 32), 1, *range(1, 31), 31]),
    Legal("errata_E20_equal_bounds", "clip", ([4, 5, 6],), [5, 5, 5], {"a_min": 5, "a_max": 5}),
    Legal("errata_E21_rounding_in_wide_arithmetic", "cvm_right_shift", ([MAX, -MAX],), [2**30, -(2**30) + 1],
          {"precision": 32, "shift_bit": 1}),
    Legal("errata_E21_half_up", "cvm_right_shift", (list(range(-6, 7)),), [-1, -1, -1, -1, 0, 0, 0, 0, 1, 1, 1, 1, 2],
          {"precision": 8, "shift_bit": 2}),
    Legal("errata_E21_long_shifts", "cvm_right_shift", ([2**30, 2**30 - 1, -(2**30), -(2**30) - 1, -1],),
          [1, 0, 0, -1, 0], {"precision": 32, "shift_bit": 31}),
    Legal("errata_E21_longest_shift", "cvm_right_shift", ([MAX, 1, 0, -1, -MAX],), [0] * 5,
          {"precision": 32, "shift_bit": 32}),
    Legal("errata_E22_clip_after_the_product", "cvm_left_shift", ([MAX, 1, 0, -1, -MAX],), [127, 127, 0, -127, -127],
          {"precision": 8, "shift_bit": 32}),
    Legal("errata_E23_repeat_last_axis", "repeat", ([[1, 2], [3, 4]],), [[1, 1, 2, 2], [3, 3, 4, 4]],
          {"axis": -1, "repeats": 2}),
    Legal("errata_E23_concatenate_last_axis", "concatenate", ([[1], [2]], [[3], [4]]), [[1, 3], [2, 4]], {"axis": -1}),
    Legal("errata_E24_last_dimension", "tile", ([1, 2],), [1, 2] * 3, {"reps": (3,)}),
    Legal("errata_E24_more_reps_than_dimensions", "tile", ([1, 2],), [[1, 2, 1, 2]] * 3, {"reps": (3, 2)}),
    Legal("errata_E24_fewer_reps_than_dimensions", "tile", ([[1, 2], [3, 4]],), [[1, 2, 1, 2], [3, 4, 3, 4]],
          {"reps": (2,)}),
    Legal("errata_E25_one_dimension", "flatten", ([[[1, 2, 3]], [[4, 5, 6]]],), [1, 2, 3, 4, 5, 6]),
    Legal("errata_E26_negative_axes", "transpose", (arange((2, 3, 4)),),
          arange((2, 3, 4)).transpose(2, 0, 1).tolist(), {"axes": (-1, 0, -2)}),
    Legal("errata_E27_negative_bounds_per_axis", "slice", ([[1, 2, 3], [4, 5, 6]],), [[2], [5]],
          {"begin": (-2, -2), "end": (2, -1), "strides": ()}),
    Legal("errata_E28_last_element", "slice", ([1, 2, 3],), [1, 2, 3], {"begin": (0,), "end": (3,), "strides": (1,)}),
    Legal("errata_E28_first_element_backwards", "slice", ([1, 2, 3],), [3, 2, 1],
          {"begin": (9,), "end": (-9,), "strides": (-1,)}),
    Legal("errata_E29_backwards_by_two", "slice", ([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]],), [[10, 8, 6], [5, 3, 1]],
          {"begin": (1, 4), "end": (-3, -6), "strides": (-1, -2)}),
    Legal("errata_E31_other_rank_with_axes", "slice_like", ([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]], [0, 0]),
          [[1, 2, 3, 4], [5, 6, 7, 8]], {"axes": (0,)}),
    Legal("errata_E32_indices_clamped", "take", ([[1, 2, 3], [4, 5, 6]], [-5, 9, 1]), [[1, 3, 2], [4, 6, 5]],
          {"axis": -1}),
    Legal("errata_E32_lut_order", "cvm_lut", ([10, 20, 30], [2, 0, 0, 7]), [30, 10, 10, 30]),
    Legal("errata_E33_behind_the_last", "expand_dims", ([1, 2],), [[1], [2]], {"axis": -1, "num_newaxis": 1}),
    Legal("errata_E33_no_new_axis", "expand_dims", ([1, 2],), [1, 2], {"axis": 0, "num_newaxis": 0}),
    Legal("errata_E34_other_rank", "reshape", ([[1, 2, 3], [4, 5, 6]],), [[[1, 2]], [[3, 4]], [[5, 6]]],
          {"target_shape": (3, 1, 2)}),
    Legal("errata_E35_some_of_the_ones", "squeeze", ([[[1], [2]]],), [[1, 2]], {"axes": (-1,)}),
    Legal("errata_E36_rows", "where", ([0, 2], [[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]]),
          [[7, 8, 9], [4, 5, 6]]),
    Legal("errata_E36_wide_data_under_narrow_condition", "where", ([0, 1], [1, MAX], [-MAX, 2]), [-MAX, MAX]),
    Legal("errata_E37_thirty_two_values", "get_valid_count", ([[[0, 1, *range(30)], [0, -1, *range(30)]]],),
          ([1], [[[0, 1, *range(30)], [-1] * 32]]), {"score_threshold": 0}),
    Legal("errata_E37_strictly_greater", "get_valid_count", ([[[4, 5], [6, 6]]],), ([1], [[[6, 6], [-1, -1]]]),
          {"score_threshold": 5}),
    # As corners the second box lies inside the first; as centre and size it would be far from it.
    Legal("errata_E38_corners", "non_max_suppression", ([[[0, 9, 50, 50, 60, 60], [0, 8, 51, 51, 60, 60]]], [2]),
          [[[0, 9, 50, 50, 60, 60], NO_ROW]], nms(80)),
    Legal("errata_E39_keep_nothing", "non_max_suppression", ([[SQUARE]], [1]), [[NO_ROW]], nms(limit=0)),
    Legal("errata_E39_look_at_nothing", "non_max_suppression", ([[SQUARE]], [1]), [[NO_ROW]], nms(top_k=0)),
    Legal("errata_E39_counts_beyond_the_rows", "non_max_suppression", ([[SQUARE]] * 3, [-1, 0, 6]),
          [[NO_ROW], [NO_ROW], [SQUARE]], nms()),
    # The second overlaps the first and the third by a half, the first and the third do not meet.
    Legal("errata_E40_suppressed_rows_do_not_suppress", "non_max_suppression",
          ([[[0, 9, 0, 0, 4, 4], [0, 8, 0, 0, 8, 4], [0, 7, 4, 0, 8, 4]]], [3]),
          [[[0, 9, 0, 0, 4, 4], [0, 7, 4, 0, 8, 4], NO_ROW]], nms()),
    Legal("errata_E41_negative_id_in_front", "non_max_suppression", ([[[-1, 9, 0, 0, 10, 10], SQUARE, HALF]], [3]),
          [[SQUARE, NO_ROW, NO_ROW]], nms(force=True)),
    Legal("errata_E42_exactly_at_the_threshold", "non_max_suppression", ([[SQUARE, HALF], [SQUARE, THIRD]], [2, 2]),
          [[SQUARE, NO_ROW], [SQUARE, NO_ROW]], nms(33)),
    Legal("errata_E42_under_the_threshold", "non_max_suppression", ([[SQUARE, HALF], [SQUARE, THIRD]], [2, 2]),
          [[SQUARE, NO_ROW], [SQUARE, THIRD]], nms(34)),
    Legal("errata_E42_half_at_fifty", "non_max_suppression", ([[SQUARE, HALF]], [2]), [[SQUARE, NO_ROW]], nms(50)),
    Legal("errata_E42_half_at_fifty_one", "non_max_suppression", ([[SQUARE, HALF]], [2]), [[SQUARE, HALF]], nms(51)),
    Legal("errata_E42_full_overlap", "non_max_suppression", ([[SQUARE, SQUARE]], [2]), [[SQUARE, NO_ROW]], nms(100)),
    Legal("errata_E42_beyond_full_overlap", "non_max_suppression", ([[SQUARE, SQUARE]], [2]), [[SQUARE, SQUARE]],
          nms(101)),
    Legal("errata_E42_large_areas", "non_max_suppression", ([[OUTER, INNER]], [2]), [[OUTER, INNER]], nms(50)),
    # Two equal empty boxes, two equal boxes with swapped corners on one axis, and one swapped box over a good one.
    Legal("errata_E43_empty_and_swapped_boxes", "non_max_suppression",
          ([[[0, 9, 3, 3, 3, 9]] * 2, [[0, 9, 9, 3, 3, 9]] * 2, [SQUARE, [0, 8, 5, 0, 0, 5]]], [2, 2, 2]),
          [[[0, 9, 3, 3, 3, 9]] * 2, [[0, 9, 9, 3, 3, 9]] * 2, [SQUARE, [0, 8, 5, 0, 0, 5]]], nms(1)),
    Legal("errata_E44_equal_scores", "non_max_suppression", ([[[2, 5, 0, 0, 1, 1], [1, 5, 0, 0, 1, 1], SQUARE]], [3]),
          [[SQUARE, [2, 5, 0, 0, 1, 1], [1, 5, 0, 0, 1, 1]]], nms()),
]  # fmt: skip

ILLEGAL = [
    Illegal("errata_E2_reps_beyond_the_limit", "tile", ((1,),), "ops.tile.attribute.reps", {"reps": (4097,)}),
    Illegal("errata_E3_misprinted_name", "cvm_cilp", ((1,),), "ops.unknown", {"precision": 8}),
    Illegal("errata_E4_rank_nine", "expand_dims", ((1,) * 8,), "ops.expand_dims.C2", {"axis": 0}),
    Illegal("errata_E8_axis_twice", "sum", ((2, 2),), "ops.sum.C2", reduce(0, -2)),
    Illegal("errata_E14_kernel_too_large", "conv2d", ((1, 1, 2, 2), (1, 1, 5, 1)), "ops.conv2d.C6", conv(padding=1)),
    Illegal("errata_E14_weight_channels", "conv2d", ((1, 4, 2, 2), (2, 4, 1, 1)), "ops.conv2d.C3", conv(groups=2)),
    Illegal("errata_E16_pool_not_greater_than_padding", "max_pool2d", ((1, 1, 4, 4),), "ops.max_pool2d.C3",
            pool((2, 2), (2, 0), 1)),
    Illegal("errata_E18_last_window_outside", "max_pool2d", ((1, 1, 3, 1),), "ops.max_pool2d.C4",
            pool((1, 1), (0, 0), 3, ceil_mode=True)),
    Illegal("errata_E20_crossed_bounds", "clip", ((1,),), "ops.clip.C1", {"a_min": 1, "a_max": 0}),
    Illegal("errata_E26_not_a_permutation", "transpose", ((2, 3),), "ops.transpose.C3", {"axes": (1, -1)}),
    Illegal("errata_E29_backwards_without_bounds", "slice", ((4,),), "ops.slice.C3", {"strides": (-1,)}),
    Illegal("errata_E30_more_entries_than_dimensions", "slice", ((4,),), "ops.slice.C1", {"begin": (0, 0)}),
    Illegal("errata_E30_empty_selection", "slice", ((4,),), "ops.slice.C3", {"begin": (2,), "end": (2,)}),
    Illegal("errata_E31_other_rank_without_axes", "slice_like", ((3, 4), (2,)), "ops.slice_like.C1"),
    Illegal("errata_E34_code_is_no_extent", "reshape", ((2, 3),), "ops.reshape.attribute.target_shape",
            {"target_shape": (-1,)}),
    Illegal("errata_E35_axis_twice", "squeeze", ((2, 1),), "ops.squeeze.C2", {"axes": (1, -1)}),
]  # fmt: skip


@pytest.mark.parametrize("witness", LEGAL, ids=lambda witness: witness.name)
def test_formal_decides_as_the_errata_say(witness: Legal) -> None:
    result = OPS[witness.op](*(tensor(item) for item in witness.inputs), **witness.attributes)
    if isinstance(result, tuple):
        assert tuple(nested(output) for output in result) == witness.expected
    else:
        assert nested(result) == witness.expected


@pytest.mark.parametrize("witness", LEGAL, ids=lambda witness: witness.name)
def test_every_legal_witness_satisfies_the_declaration(witness: Legal) -> None:
    op = get(witness.op)
    shapes = tuple(np.shape(item) for item in witness.inputs)
    outputs = witness.expected if isinstance(witness.expected, tuple) else (witness.expected,)
    assert op.infer(Call(shapes, op.parse(witness.attributes))) == tuple(np.shape(output) for output in outputs)


@pytest.mark.parametrize("witness", ILLEGAL, ids=lambda witness: witness.name)
def test_every_illegal_witness_is_refused(witness: Illegal) -> None:
    with pytest.raises(Invalid) as caught:
        get(witness.op).infer(Call(witness.shapes, get(witness.op).parse(witness.attributes)))
    assert caught.value.code == witness.code


def test_errata_e1_a_sum_beyond_int32_is_seen_in_its_range() -> None:
    full = Range.uniform(1, -MAX, MAX)
    op = get("elemwise_add")
    (bounds,) = op.prove(Call(((1,), (1,)), op.parse({}), (full, full)))
    assert bounds.hull() == (-2 * MAX, 2 * MAX)


def test_every_erratum_has_a_number_and_every_witness_a_test() -> None:
    text = (Path(formal.registry.__file__).parent / "ERRATA.md").read_text("utf-8")
    sections = re.split(r"^### (?=E)", text, flags=re.MULTILINE)[1:]
    assert [section.split(".")[0] for section in sections] == [f"E{i + 1}" for i in range(len(sections))]
    for section in sections:
        number = section.split(".")[0]
        named = re.findall(r"`(errata_\w+)`", section)
        assert named, number
        assert all(name.startswith(f"errata_{number}_") for name in named), number
    in_text = set(re.findall(r"`(errata_\w+)`", text))
    here = [legal.name for legal in LEGAL] + [illegal.name for illegal in ILLEGAL] + ["errata_E1_sum_beyond_int32"]
    assert len(set(here)) == len(here)
    assert set(here) == in_text
