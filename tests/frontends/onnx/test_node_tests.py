"""The node tests of the package onnx whose data are integers, and those of quantised operators."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest

from tools.generated_pages.onnx import MEASURED
from tools.onnx_networks.node_cases import cases, examine

INTEGER_REFUSALS = {
    "test_bitcast_uint32_to_int32": "onnx.range",
    "test_bitshift_left_int32_negative_shift": "lowering.overflow",
    "test_bitshift_left_int32_overflow": "lowering.overflow",
    "test_bitshift_left_int32_shift_ge_width": "lowering.overflow",
    "test_bitshift_right_int32_negative_input": "onnx.range",
    "test_constantofshape_int_shape_zero": "onnx.unsupported",
    "test_range_int32_type_negative_delta_expanded": "onnx.operator",
    "test_reduce_max_empty_set_bool": "onnx.input",
    "test_tril_zero": "onnx.input",
    "test_triu_zero": "onnx.input",
    "test_unique_length_1": "onnx.operator",
}
"""Integers of the whole width of 32 bits, tensors without items, loops, and results whose shapes depend on data;
operators on images and optional values besides."""
QUANTISED_REFUSALS = {
    "test_quantizelinear_e4m3fn": "onnx.data-type",
    "test_quantizelinear_e5m2": "onnx.data-type",
    "test_quantizelinear_float4e2m1": "onnx.data-type",
}
"""Floats of 4 and 8 bits."""
THIS_VERSION = onnx.__version__ == "1.23.2"


@pytest.mark.slow
def test_every_test_of_integers_is_equal_or_refused_for_its_reason() -> None:
    outcomes = [examine(case) for case in cases()[0]]
    assert [outcome for outcome in outcomes if outcome.verdict == "different"] == []
    refused = {item.name: item.verdict for item in outcomes if item.verdict != "equal"}
    unknown = {name for name in refused if name.startswith(("test_image_decoder", "test_optional_has_element"))}
    assert {refused[name] for name in unknown} <= {"onnx.operator"}
    assert all(item.message for item in outcomes if item.verdict != "equal")
    if not THIS_VERSION:
        pytest.skip("the counts are those of onnx 1.23.2")
    assert {name: code for name, code in refused.items() if name not in unknown} == INTEGER_REFUSALS
    assert Counter(item.verdict == "equal" for item in outcomes) == {
        True: 209,
        False: len(INTEGER_REFUSALS) + len(unknown),
    }


@pytest.mark.slow
def test_every_test_of_quantised_operators_is_equal_or_refused_for_its_reason() -> None:
    outcomes = [examine(case) for case in cases()[1]]
    assert [outcome for outcome in outcomes if outcome.verdict == "different"] == []
    refused = {item.name: item.verdict for item in outcomes if item.verdict != "equal"}
    if not THIS_VERSION:
        pytest.skip("the counts are those of onnx 1.23.2")
    assert refused == QUANTISED_REFUSALS
    counts = Counter(item.op for item in outcomes if item.verdict == "equal")
    assert counts == {"QuantizeLinear": 10, "QLinearMatMul": 8, "QLinearConv": 1, "MatMulInteger": 1, "ConvInteger": 2}


def test_the_page_states_these_counts() -> None:
    page = (Path(__file__).parents[3] / "docs" / "onnx.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.partition(MEASURED)[2].splitlines() if line.startswith("| `")]
    counted = [sum(int(row[place]) for row in rows if len(row) == 5) for place in (1, 2, 3)]
    assert counted == [209 + 22, len(INTEGER_REFUSALS) + 13 + len(QUANTISED_REFUSALS), 0]
    assert f"| all | {' | '.join(map(str, counted))} | |" in page
