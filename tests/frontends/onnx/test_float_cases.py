"""The node tests of the package onnx through the float reference, all of them: near, or refused with a reason."""

from __future__ import annotations

from collections import Counter

import onnx
import pytest

from tools.onnx_networks.float_cases import EXCLUDED, FloatOutcome, examine_floats
from tools.onnx_networks.node_cases import every_case

THIS_VERSION = onnx.__version__ == "1.23.2"
SAMPLED = 25
"""One of so many tests is always run."""

COUNTS = {
    "near": 1190, "excluded": 17, "sequence": 25, "onnx.operator": 238, "onnx.data-type": 122, "onnx.unsupported": 124,
    "onnx.input": 101, "onnx.constant": 22, "onnx.opset": 12, "input.real": 14, "onnx.node.shape": 5,
    "onnx.type": 4, "onnx.node.attribute": 4, "onnx.range": 3, "onnx.output": 3,
}  # fmt: skip


def require_near(outcomes: list[FloatOutcome]) -> None:
    assert [item for item in outcomes if item.verdict in ("far", "error")] == []
    assert all(item.message for item in outcomes if item.verdict != "near")


@pytest.mark.slow
def test_sampled_tests_are_near_or_refused_for_a_reason() -> None:
    require_near([examine_floats(case) for case in every_case()[::SAMPLED]])


@pytest.mark.long
def test_every_test_is_near_or_refused_for_its_reason() -> None:
    outcomes = [examine_floats(case) for case in every_case()]
    require_near(outcomes)
    if not THIS_VERSION:
        pytest.skip("the counts are those of onnx 1.23.2")
    assert set(EXCLUDED) <= {item.name for item in outcomes}
    assert Counter(item.verdict for item in outcomes) == COUNTS
