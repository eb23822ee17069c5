"""Every labelled rule has a call that breaks it and nothing before it; and calls at the edge of a rule are accepted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cvm.errors import Invalid
from cvm.ops import REGISTRY, Call, Range, Shape, get

Case = tuple[str, str, tuple[Shape, ...], dict[str, Any]]

POOL = {"pool_size": (3, 3)}
RQ = {"rounding": "half_up", "lo": 0, "hi": 255}
VECTOR = (4,)
QUOTIENT = {"terms": 1, **RQ}
NORMALIZE = {"axes": (0,), "statistic": "variance", **RQ}
ONE = (1,)

VIOLATIONS: list[Case] = [
    *((op, "C1", ((2, 3),), {"axes": (axis,)}) for op in ("sum", "max") for axis in (2, -3, 2**31 - 1)),
    *((op, "C2", ((2, 3),), {"axes": axes}) for op in ("sum", "max") for axes in [(1, 1), (1, -1)]),
    *((op, "C1", ((2, 3), (2,)), {}) for op in REGISTRY if op.startswith("broadcast_")),
    *((op, "C1", ((2, 3), (3, 2)), {}) for op in REGISTRY if op.startswith("broadcast_")),
    ("conv2d", "C1", ((1, 4, 4), (2, 1, 3, 3)), {}),
    ("conv2d", "C2", ((1, 1, 4, 4), (2, 1, 3)), {}),
    ("conv2d", "C3", ((1, 3, 4, 4), (2, 2, 3, 3)), {}),
    ("conv2d", "C3", ((1, 3, 4, 4), (2, 1, 3, 3)), {"groups": 2}),
    ("conv2d", "C3", ((1, 4, 4, 4), (2, 4, 3, 3)), {"groups": 2}),
    ("conv2d", "C4", ((1, 4, 4, 4), (3, 2, 3, 3)), {"groups": 2}),
    ("conv2d", "C5", ((1, 1, 4, 4), (2, 1, 3, 3), (1,)), {}),
    ("conv2d", "C5", ((1, 1, 4, 4), (2, 1, 3, 3), (1, 2)), {}),
    ("conv2d", "C6", ((1, 1, 2, 4), (2, 1, 3, 3)), {}),
    ("conv2d", "C6", ((1, 1, 4, 4), (2, 1, 3, 3)), {"dilation": (1, 2)}),
    ("conv2d", "C6", ((1, 1, 4, 4), (2, 1, 3, 3)), {"dilation": (4, 1), "padding": (2, 0)}),
    ("dense", "C1", ((3,), (2, 3)), {}),
    ("dense", "C2", ((1, 3), (3,)), {}),
    ("dense", "C3", ((1, 3), (3, 2)), {}),
    ("dense", "C4", ((1, 3), (2, 3), (3,)), {}),
    ("matmul", "C1", ((3,), (3,)), {}),
    ("matmul", "C1", ((1, 2, 3), (3, 2)), {}),
    ("matmul", "C2", ((2, 2, 3), (4, 3, 2)), {}),
    ("matmul", "C2", ((3, 2, 3), (2, 3, 2)), {}),
    ("matmul", "C3", ((2, 3), (2, 3)), {}),
    ("matmul", "C3", ((2, 3), (3, 2)), {"transpose_a": True}),
    ("quotient", "C1", (VECTOR, VECTOR, ONE, ONE, ONE, ONE, ONE), QUOTIENT),
    ("quotient", "C2", (VECTOR, VECTOR, ONE, ONE, ONE, ONE), {**QUOTIENT, "terms": 2}),
    ("quotient", "C2", (VECTOR,) * 5 + (ONE,) * 7, QUOTIENT),
    ("quotient", "C3", (VECTOR, (2,), ONE, ONE, ONE, ONE), QUOTIENT),
    ("quotient", "C3", (ONE, VECTOR, ONE, ONE, ONE, ONE), QUOTIENT),
    ("quotient", "C4", (VECTOR, VECTOR, (2,), ONE, ONE, ONE), QUOTIENT),
    ("quotient", "C4", (VECTOR, VECTOR, ONE, ONE, (1, 4), ONE), QUOTIENT),
    ("quotient", "C4", (VECTOR, VECTOR, ONE, VECTOR, ONE, ONE), QUOTIENT),
    ("quotient", "C4", (VECTOR, VECTOR, ONE, ONE, ONE, VECTOR), QUOTIENT),
    ("quotient", "C4", (VECTOR, VECTOR, ONE, ONE, ONE, (1, 1)), QUOTIENT),
    ("quotient", "C5", (VECTOR, VECTOR, ONE, ONE, ONE, ONE), {**QUOTIENT, "lo": 256}),
    ("normalize", "C1", (VECTOR, ONE, ONE, ONE, ONE, ONE), {**NORMALIZE, "axes": (1,)}),
    ("normalize", "C2", (VECTOR, ONE, ONE, ONE, ONE, ONE), {**NORMALIZE, "axes": (0, -1)}),
    ("normalize", "C3", (VECTOR, ONE, ONE, ONE, ONE, ONE), {**NORMALIZE, "axes": ()}),
    ("normalize", "C3", (VECTOR, ONE, ONE, ONE, VECTOR, ONE), NORMALIZE),
    ("normalize", "C3", (VECTOR, ONE, ONE, ONE, ONE, (1, 1)), NORMALIZE),
    *(
        ("normalize", "C4", (VECTOR, *(wrong if k == at else ONE for k in range(3)), ONE, ONE), NORMALIZE)
        for at in range(3)
        for wrong in ((2,), (1, 4))
    ),
    ("normalize", "C4", (VECTOR, ONE, ONE, ONE, ONE, ONE), {**NORMALIZE, "lo": 256}),
    ("update_slice", "C1", ((2, 3), (2, 3), ONE), {"axis": 2}),
    ("update_slice", "C1", ((2, 3), (2, 3), ONE), {"axis": -3}),
    ("update_slice", "C2", ((2, 3), (3,), ONE), {"axis": 1}),
    ("update_slice", "C2", ((2, 3), (2, 4), ONE), {"axis": 1}),
    ("update_slice", "C2", ((2, 3), (1, 2), ONE), {"axis": 1}),
    ("update_slice", "C2", ((2, 3), (1, 3), ONE), {"axis": -1}),
    ("update_slice", "C3", ((2, 3), (2, 1), (2,)), {"axis": 1}),
    ("update_slice", "C3", ((2, 3), (2, 1), (1, 1)), {"axis": 1}),
    ("max_pool2d", "C1", ((4, 4),), POOL),
    ("max_pool2d", "C2", ((1, 1, 4, 2),), POOL),
    ("max_pool2d", "C3", ((1, 1, 9, 9),), {**POOL, "padding": (0, 3)}),
    ("max_pool2d", "C4", ((1, 1, 5, 5),), {"pool_size": (1, 1), "strides": (1, 5), "ceil_mode": True}),
    ("upsampling", "C1", ((4, 4),), {"scale": 2}),
    *((op, "C1", ((2, 3), (1, 3)), {}) for op in ("elemwise_add", "elemwise_sub")),
    ("clip", "C1", (VECTOR,), {"a_min": 1, "a_max": 0}),
    ("repeat", "C1", ((2, 3),), {"axis": 2, "repeats": 1}),
    ("concatenate", "C1", ((2, 3), (2, 3, 1)), {"axis": 0}),
    ("concatenate", "C2", ((2, 3), (2, 3)), {"axis": -3}),
    ("concatenate", "C3", ((2, 3), (2, 4)), {"axis": 0}),
    ("transpose", "C1", ((2, 3),), {"axes": (0,)}),
    ("transpose", "C2", ((2, 3),), {"axes": (0, 2)}),
    ("transpose", "C3", ((2, 3),), {"axes": (1, -1)}),
    *(("slice", "C1", (VECTOR,), {name: (1, 1)}) for name in ("begin", "end", "strides")),
    ("slice", "C2", (VECTOR,), {"strides": (0,)}),
    ("slice", "C3", (VECTOR,), {"begin": (4,)}),
    ("slice", "C3", (VECTOR,), {"begin": (2,), "end": (2,)}),
    ("slice", "C3", (VECTOR,), {"strides": (-1,)}),
    ("slice", "C3", (VECTOR,), {"begin": (3,), "end": (-1,), "strides": (-1,)}),
    ("slice_like", "C1", ((2, 3), (2,)), {}),
    ("slice_like", "C1", ((2,), (2, 3)), {}),
    ("slice_like", "C2", ((2, 3), (2, 3)), {"axes": (2,)}),
    ("slice_like", "C3", ((2, 3), (2, 3)), {"axes": (0, -2)}),
    ("slice_like", "C4", ((2, 3), (2,)), {"axes": (-1,)}),
    ("slice_like", "C5", ((2, 3), (3, 3)), {"axes": (0,)}),
    ("slice_like", "C5", ((2, 3), (2, 4)), {}),
    ("take", "C1", ((2, 3), (2,)), {"axis": 2}),
    ("take", "C2", ((1,) * 8, (1, 1)), {"axis": 0}),
    ("expand_dims", "C1", ((2, 3),), {"axis": 3}),
    ("expand_dims", "C1", ((2, 3),), {"axis": -4}),
    ("expand_dims", "C2", ((2, 3),), {"axis": 0, "num_newaxis": 7}),
    ("reshape", "C1", ((2, 3),), {"target_shape": (5,)}),
    ("squeeze", "C1", ((1, 3),), {"axes": (2,)}),
    ("squeeze", "C2", ((1, 3),), {"axes": (0, -2)}),
    ("squeeze", "C3", ((1, 3),), {"axes": (1,)}),
    ("where", "C1", ((2, 3), (2, 3), (2, 1)), {}),
    ("where", "C2", ((3,), (2, 3), (2, 3)), {}),
    ("where", "C2", ((2, 1), (2, 3), (2, 3)), {}),
    ("get_valid_count", "C1", ((2, 3),), {"score_threshold": 0}),
    ("get_valid_count", "C2", ((1, 3, 1),), {"score_threshold": 0}),
    ("get_valid_count", "C2", ((1, 3, 33),), {"score_threshold": 0}),
    ("non_max_suppression", "C1", ((2, 6), (2,)), {"iou_threshold": 50}),
    ("non_max_suppression", "C1", ((1, 3, 5), (1,)), {"iou_threshold": 50}),
    ("non_max_suppression", "C2", ((2, 3, 6), (3,)), {"iou_threshold": 50}),
    ("non_max_suppression", "C2", ((2, 3, 6), (2, 1)), {"iou_threshold": 50}),
    ("requantize", "C1", (VECTOR, (1,), (1,), (1,), (1,)), RQ),
    ("requantize", "C2", (VECTOR, (2,), (1,), (1,), (1,), (1,)), RQ),
    ("requantize", "C2", ((1,), VECTOR, (1,), (1,), (1,), (1,)), RQ),
    ("requantize", "C2", (VECTOR, (1, 4), (1,), (1,), (1,), (1,)), RQ),
    ("requantize", "C3", (VECTOR, (2,), (1,), (1,)), RQ),
    ("requantize", "C3", (VECTOR, (1,), (1,), (1, 4)), RQ),
    ("requantize", "C4", (VECTOR, (1,), (1,), (1,)), {**RQ, "lo": 256}),
]

ACCEPTED: list[tuple[str, tuple[Shape, ...], dict[str, Any], tuple[Shape, ...]]] = [
    ("sum", ((2, 3),), {}, ((1,),)),
    ("sum", ((2, 3),), {"exclude": True}, ((1,),)),
    ("sum", ((2, 3),), {"keepdims": True}, ((1, 1),)),
    ("max", ((2, 3),), {"axes": (0, 1), "exclude": True}, ((2, 3),)),
    ("max", ((2, 3, 4),), {"axes": (-1,)}, ((2, 3),)),
    ("max", ((2, 3, 4),), {"axes": (-1,), "exclude": True, "keepdims": True}, ((1, 1, 4),)),
    ("broadcast_add", ((2, 1, 4), (3, 1)), {}, ((2, 3, 4),)),
    ("conv2d", ((1, 1, 2, 4), (2, 1, 3, 3)), {"padding": (1, 0)}, ((1, 2, 2, 2),)),
    (
        "conv2d",
        ((2, 4, 9, 9), (6, 2, 3, 3), (6,)),
        {"groups": 2, "stride": (2, 3), "dilation": [4, 1]},
        ((2, 6, 1, 3),),
    ),
    ("dense", ((5, 3), (2, 3), (2,)), {}, ((5, 2),)),
    ("matmul", ((6, 4, 5, 3), (2, 4, 3, 7)), {}, ((6, 4, 5, 7),)),
    ("matmul", ((3, 5), (7, 3)), {"transpose_a": True, "transpose_b": True}, ((5, 7),)),
    ("quotient", ((2, 3), (2, 1), (3,), ONE, (2, 1), ONE), QUOTIENT, ((2, 3),)),
    ("quotient", ((2, 3),) * 9 + (ONE,) * 11, {**QUOTIENT, "terms": 6}, ((2, 3),)),
    ("normalize", ((2, 3, 4), (4,), (3, 1), (2, 3, 4), ONE, ONE), {**NORMALIZE, "axes": (-1, 0)}, ((2, 3, 4),)),
    ("update_slice", ((2, 3), (2, 3), ONE), {"axis": 0}, ((2, 3),)),
    ("update_slice", ((2, 3), (1, 3), ONE), {"axis": -2}, ((2, 3),)),
    ("max_pool2d", ((1, 1, 4, 4),), {**POOL, "padding": 1, "strides": (2, 2)}, ((1, 1, 2, 2),)),
    ("max_pool2d", ((1, 1, 4, 4),), {**POOL, "strides": (2, 2), "ceil_mode": True}, ((1, 1, 2, 2),)),
    ("upsampling", ((1, 2, 3, 4),), {"scale": 3}, ((1, 2, 9, 12),)),
    ("clip", (VECTOR,), {"a_min": 1, "a_max": 1}, (VECTOR,)),
    ("repeat", ((2, 3),), {"axis": -1, "repeats": 2**31 - 1}, ((2, 3 * (2**31 - 1)),)),
    ("tile", ((2, 3),), {"reps": (2,)}, ((2, 6),)),
    ("tile", ((3,),), {"reps": (4096,) + (1,) * 7}, ((4096, *(1,) * 6, 3),)),
    ("flatten", ((2, 3),), {}, ((6,),)),
    ("concatenate", ((2, 3), (2, 1)), {"axis": -1}, ((2, 4),)),
    ("transpose", ((2, 3, 4),), {}, ((4, 3, 2),)),
    ("transpose", ((2, 3, 4),), {"axes": (-1, 0, 1)}, ((4, 2, 3),)),
    ("slice", ((5, 6),), {"begin": (-9, 1), "end": (99,), "strides": (2,)}, ((3, 5),)),
    ("slice", (VECTOR,), {"begin": (9,), "end": (-9,), "strides": (-2,)}, ((2,),)),
    ("slice_like", ((4, 5), (2, 3)), {}, ((2, 3),)),
    ("slice_like", ((4, 5), (2,)), {"axes": (0,)}, ((2, 5),)),
    ("take", ((4, 5), (2, 3)), {}, ((2, 3),)),
    ("take", ((4, 5), (2, 3)), {"axis": -1}, ((4, 2, 3),)),
    ("cvm_lut", ((4, 5), (2, 3)), {}, ((2, 3),)),
    ("expand_dims", ((2, 3),), {"axis": -1, "num_newaxis": 2}, ((2, 3, 1, 1),)),
    ("expand_dims", ((2, 3),), {"axis": -3, "num_newaxis": 0}, ((2, 3),)),
    ("reshape", ((2, 3),), {"target_shape": (1, 6)}, ((1, 6),)),
    ("squeeze", ((1, 3, 1),), {}, ((3,),)),
    ("squeeze", ((1, 1),), {}, ((1,),)),
    ("squeeze", ((1, 3, 1),), {"axes": (-1,)}, ((1, 3),)),
    ("where", ((2,), (2, 3), (2, 3)), {}, ((2, 3),)),
    ("get_valid_count", ((2, 3, 32),), {"score_threshold": 0}, ((2,), (2, 3, 32))),
    ("non_max_suppression", ((2, 3, 6), (2,)), {"iou_threshold": 1}, ((2, 3, 6),)),
    ("requantize", ((2, 3), (2, 1), (1,), (3,), (2, 1), (1, 1)), RQ, ((2, 3),)),
]

ATTRIBUTES: list[tuple[str, str, dict[str, Any]]] = [
    ("sum", "axes", {"axes": 1}),
    ("sum", "axes", {"axes": (0,) * 9}),
    ("sum", "keepdims", {"keepdims": 1}),
    ("sum", "axis", {"axis": (0,)}),
    ("conv2d", "padding", {"padding": (0, 4097)}),
    ("conv2d", "padding", {"padding": (-1, 0)}),
    ("conv2d", "padding", {"padding": (1,)}),
    ("conv2d", "stride", {"stride": (0, 1)}),
    ("conv2d", "dilation", {"dilation": (1, 4097)}),
    ("conv2d", "groups", {"groups": 0}),
    ("max_pool2d", "pool_size", {}),
    ("max_pool2d", "padding", {**POOL, "padding": True}),
    ("max_pool2d", "padding", {**POOL, "padding": 4097}),
    ("max_pool2d", "strides", {**POOL, "strides": (1, 0)}),
    ("upsampling", "scale", {"scale": 0}),
    ("upsampling", "scale", {"scale": 1.0}),
    ("clip", "a_min", {"a_min": -(2**31), "a_max": 0}),
    ("cvm_clip", "precision", {"precision": 33}),
    ("cvm_right_shift", "shift_bit", {"precision": 8, "shift_bit": 0}),
    ("repeat", "repeats", {"repeats": 2**31}),
    ("tile", "reps", {"reps": ()}),
    ("tile", "reps", {"reps": (0,)}),
    ("concatenate", "axis", {}),
    ("expand_dims", "num_newaxis", {"axis": 0, "num_newaxis": -1}),
    ("reshape", "target_shape", {"target_shape": ()}),
    ("reshape", "target_shape", {"target_shape": (2, -1)}),
    ("reshape", "target_shape", {"target_shape": (1,) * 9}),
    ("slice", "begin", {"begin": (10**100,)}),
    ("non_max_suppression", "iou_threshold", {"iou_threshold": 0}),
    ("requantize", "rounding", {**RQ, "rounding": "up"}),
    ("requantize", "hi", {**RQ, "hi": 2**31}),
]


@pytest.mark.parametrize(("name", "label", "shapes", "attributes"), VIOLATIONS)
def test_a_broken_rule_is_named(name: str, label: str, shapes: tuple[Shape, ...], attributes: dict[str, Any]) -> None:
    op = get(name)
    with pytest.raises(Invalid) as caught:
        op.infer(Call(shapes, op.parse(attributes)))
    assert caught.value.code == f"ops.{name}.{label}"
    (rule,) = (rule for rule in op.constraints if rule.label == label)
    assert rule.text in caught.value.message


@pytest.mark.parametrize(("name", "shapes", "attributes", "expected"), ACCEPTED)
def test_a_call_within_the_rules_has_the_documents_shape(
    name: str, shapes: tuple[Shape, ...], attributes: dict[str, Any], expected: tuple[Shape, ...]
) -> None:
    op = get(name)
    assert op.infer(Call(shapes, op.parse(attributes))) == expected


@pytest.mark.parametrize(("name", "attribute", "values"), ATTRIBUTES)
def test_an_attribute_out_of_its_range_is_named(name: str, attribute: str, values: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as caught:
        get(name).parse(values)
    assert caught.value.code == f"ops.{name}.attribute.{attribute}"


def requantized(x: tuple[int, int], m: int, c: int, s: int) -> tuple[int, int]:
    op = get("requantize")
    parameters = (Range.exactly(np.array([item], np.int64)) for item in (m, c, s))
    call = Call(((1,),) * 4, op.parse({"rounding": "half_up", "lo": 0, "hi": 9}), (Range.uniform(1, *x), *parameters))
    return op.prove(call)[0].hull()


ON_RANGES = [
    ("C5", (0, 1), 1, 0, -1),
    ("C5", (0, 1), 1, 0, 63),
    ("C5", (0, 1), 1, 0, -(2**63)),
    ("C6", (0, 0), 2**62, 0, 0),
    ("C6", (0, 0), -(2**63), 0, 0),
    ("C7", (0, 1), 1, 2**63 - 1, 0),
    ("C7", (0, 0), 0, 2**63 - 1, 1),
    ("C7", (0, 0), 0, -(2**63), 0),
    ("C7", (-(2**31) + 1, 0), 2**40, 0, 0),
    ("C7", (-1, 1), 2**61, 2**63 - 2**61, 0),
]


@pytest.mark.parametrize(("label", "x", "m", "c", "s"), ON_RANGES)
def test_a_broken_rule_on_ranges_is_named(label: str, x: tuple[int, int], m: int, c: int, s: int) -> None:
    with pytest.raises(Invalid) as caught:
        requantized(x, m, c, s)
    assert caught.value.code == f"ops.requantize.{label}"


def test_parameters_at_the_end_of_their_ranges_are_accepted() -> None:
    assert requantized((0, 1), 1, 2**63 - 2, 0) == (9, 9)
    assert requantized((0, 0), 0, -(2**63) + 1, 62) == (0, 0)
    assert requantized((0, 1), 2**62 - 1, 0, 62) == (0, 1)
    assert requantized((0, 0), 0, 2**63 - 1 - 2**61, 62) == (1, 1) == requantized((0, 1), 0, 2**62, 62)


def proven(name: str, attributes: dict[str, Any], intervals: list[tuple[int, int]], extent: int = 1) -> tuple[int, int]:
    """The interval of an op on vectors: the first one of some extent, the others of one element."""
    op = get(name)
    shapes = ((extent,), *((1,) for _ in intervals[1:]))
    call = Call(shapes, op.parse(attributes), tuple(Range.uniform(1, *ends) for ends in intervals))
    op.infer(call)
    (found,) = op.prove(call)
    return found.hull()


def exactly(*items: int) -> list[tuple[int, int]]:
    return [(item, item) for item in items]


NORMALIZED_TO_BYTES = {**NORMALIZE, "lo": -128, "hi": 127}
FULL, HALF, QUARTER = 2**64 - 1, 2**31 - 1, 2**62 - 1
COMPUTED_ON_RANGES = [
    ("quotient", "C6", QUOTIENT, [(0, 9), (0, 9), *exactly(1, 1, 0, 0)]),
    ("quotient", "C6", QUOTIENT, [(0, 9), (-4, 9), *exactly(1, 1, 0, 4)]),
    ("quotient", "C6", QUOTIENT, [(0, 9), (-4, 5), *exactly(1, -2**62, 0, 2**62)]),
    *(("normalize", "C5", NORMALIZE, [(0, 9), *exactly(m, 0, k, 1, 1)])
      for m, k in ((2**62, 1), (-(2**62), 1), (1, 0))),
    *(("normalize", "C6", NORMALIZE, [(0, 9), *exactly(1, 0, 1, r, e)])
      for r, e in ((0, 1), (-1, 1), (2**31, 1), (1, 0), (1, 2**62))),
    ("normalize", "C8", NORMALIZED_TO_BYTES, [(0, 9), *exactly(1, 0, FULL // 257 + 1, 1, 1)]),
    ("normalize", "C8", NORMALIZED_TO_BYTES, [(0, 9), *exactly(1, -(FULL - 257) // 2 - 1, 1, 1, 1)]),
]  # fmt: skip
"""Op, label, attributes and the intervals of the operands."""


@pytest.mark.parametrize(("name", "label", "attributes", "intervals"), COMPUTED_ON_RANGES)
def test_a_broken_rule_on_ranges_of_op_set_2_is_named(
    name: str, label: str, attributes: dict[str, Any], intervals: list[tuple[int, int]]
) -> None:
    with pytest.raises(Invalid) as caught:
        proven(name, attributes, intervals)
    assert caught.value.code == f"ops.{name}.{label}"


def test_rows_that_are_too_long_for_the_sum_of_their_squares_are_refused() -> None:
    rest = exactly(1, 0, 1, 1, 1)
    assert proven("normalize", NORMALIZE, [(0, HALF), *rest], 1) == (0, 255)
    assert proven("normalize", NORMALIZE, [(-(2**28) + 1, 0), *rest], 8) == (0, 255)
    for bound, extent in ((HALF, 2), (2**28, 8)):
        with pytest.raises(Invalid) as caught:
            proven("normalize", NORMALIZE, [(-bound, 0), *rest], extent)
        assert caught.value.code == "ops.normalize.C7"


@pytest.mark.parametrize("c", [(FULL - 257) // 2, -((FULL - 257) // 2)])
def test_operands_of_op_set_2_at_the_ends_of_their_ranges_are_accepted(c: int) -> None:
    assert proven("quotient", QUOTIENT, [(0, 9), (-3, 9), *exactly(1, 1, 0, 4)]) == (0, 9)
    wide = [(-HALF, HALF), (0, HALF), *exactly(2**63 - 1, 2**63 - 1, 0, 1)]
    assert proven("quotient", QUOTIENT, wide) == (0, 255)
    assert proven("normalize", NORMALIZED_TO_BYTES, [(0, HALF), *exactly(QUARTER, c, 1, HALF, QUARTER)]) == (-128, 127)
    assert proven("normalize", NORMALIZED_TO_BYTES, [(0, 9), *exactly(1, 0, FULL // 257, 1, 1)]) == (-128, 127)


def test_every_label_has_a_call_that_breaks_it() -> None:
    broken = {(name, label) for name, label, *_ in VIOLATIONS} | {("requantize", label) for label, *_ in ON_RANGES}
    broken |= {(name, label) for name, label, *_ in COMPUTED_ON_RANGES} | {("normalize", "C7")}
    assert broken == {(op.name, rule.label) for op in REGISTRY.values() for rule in op.constraints}


@pytest.mark.parametrize(("name", "count"), [
    ("relu", 0), ("relu", 2), ("conv2d", 1), ("conv2d", 4), ("concatenate", 0), ("requantize", 2), ("requantize", 20),
])  # fmt: skip
def test_a_wrong_number_of_inputs_is_invalid(name: str, count: int) -> None:
    op = get(name)
    given: dict[str, dict[str, Any]] = {"concatenate": {"axis": 0}, "requantize": RQ}
    attributes = given.get(name, {})
    with pytest.raises(Invalid) as caught:
        op.infer(Call(((1,),) * count, op.parse(attributes)))
    assert caught.value.code == f"ops.{name}.arity"
