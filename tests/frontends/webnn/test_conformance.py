"""The cases of the web platform tests: integers equal, quantised graphs at 0 ULP, movement and order exact."""

import json
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

from cvm import webnn
from tools import webnn_conformance as conformance
from tools.generated_pages.webnn import markdown

pytestmark = pytest.mark.skipif(not conformance.files("conformance"), reason="../shared/webnn is not there")


@cache
def verdicts() -> list[tuple[str, conformance.Case, tuple[str, str]]]:
    """Each case, the file that it stands in, and what became of it."""
    return [
        (path.stem, case, conformance.verdict(case))
        for path in conformance.files("conformance")
        for case in conformance.cases(path)
    ]


def counted(*classes: str) -> Counter[tuple[str, str]]:
    return Counter(found for _, case, found in verdicts() if case["klass"] in classes)


@pytest.mark.slow
def test_integer_cases_are_equal_where_all_integers_fit_the_machine() -> None:
    assert counted("integer_exact") == {("equal", "as it is"): 100, ("refused", "integers beyond +-(2^31 - 1)"): 9}
    for _, case, (what, _) in verdicts():
        if case["klass"] == "integer_exact" and what == "refused":  # what is given is beyond it, too
            results = [conformance.array(tensor) for tensor in case["expected"].values()]
            assert any(int(abs(array.astype(object)).max()) > 2**31 - 1 for array in results)


@pytest.mark.slow
def test_quantised_graphs_are_equal_to_the_last_bit() -> None:
    assert counted("qdq") == {("equal", "as it is"): 43}
    assert counted("quantization") == {("equal", "as it is"): 30}


def test_float_cases_that_only_move_or_compare_are_exact_as_integers_of_the_same_order() -> None:
    found = Counter(
        result
        for _, case, result in verdicts()
        if case["klass"] not in conformance.EXACT and (case["data_movement_only"] or case["order_only"])
    )
    assert found == {("equal", "in integers of the same order"): 831, ("refused", "NaN"): 1}


def test_graphs_of_floats_are_refused_and_nothing_else_is() -> None:
    reasons = Counter(why for _, _, (what, why) in verdicts() if what == "refused")
    assert set(reasons) == {*conformance.REASONS.values()}
    assert not [name for name, _, (what, _) in verdicts() if what == "different"]


def test_the_record_is_that_of_this_replay() -> None:
    """Write it with ``python tools/webnn_conformance.py --write``."""
    assert json.loads(conformance.RECORD.read_text(encoding="utf-8")) == conformance.record_of(verdicts())


def test_four_bits_are_held_in_eight() -> None:
    four = [found for _, case, found in verdicts() if "int4" in json.dumps(case)]
    assert four == [("equal", "as it is")] * 14


def test_a_wrong_expectation_is_seen() -> None:
    path = next(path for path in conformance.files("conformance") if path.stem == "neg")
    case = next(case for case in conformance.cases(path) if case["klass"] == "integer_exact")
    (name,) = case["expected"]
    changed: Any = {**case["expected"][name], "data": [0 for _ in case["expected"][name]["data"]]}
    assert conformance.verdict(case)[0] == "equal"
    assert conformance.verdict({**case, "expected": {name: changed}}) == ("different", name)


def test_the_page_counts_every_case() -> None:
    record = json.loads(conformance.RECORD.read_text(encoding="utf-8"))
    last = markdown(record).strip().splitlines()[-1].split("|")
    assert [cell.strip() for cell in last[1:6]] == ["all", "2219", "173", "43", "831"]


def float_verdicts(every: int) -> list[tuple[str, tuple[str, str]]]:
    """What became of every so many graphs of floats with calibration; a power or quotient of two tensors takes long."""
    chosen = [(name, case) for name, case in conformance.float_cases() if every == 1 or name not in ("div", "pow")]
    return [(name, conformance.calibrated_verdict(case)) for name, case in chosen[::every]]


def test_graphs_of_floats_are_within_the_error_that_they_state_with_calibration() -> None:
    found = Counter(what for _, (what, _) in float_verdicts(24))
    assert found["within"] >= 40
    assert not found["beyond"]


def test_a_wrong_expectation_of_floats_is_seen() -> None:
    case = next(case for name, case in conformance.float_cases() if name == "gemm")
    (name,) = case["expected"]
    tensor = case["expected"][name]
    items = [item + 10 for item in tensor["data"]]
    assert conformance.calibrated_verdict({**case, "expected": {name: {**tensor, "data": items}}})[0] == "beyond"


def test_recurrent_networks_of_the_platform_tests_are_within_the_stated_error() -> None:
    cells = [(name, case) for name, case in conformance.float_cases() if name in ("lstmCell", "gruCell", "lstm")]
    assert {conformance.calibrated_verdict(case)[0] for _, case in cells[::3]} == {"within"}


@pytest.mark.long
def test_every_graph_of_floats_is_within_the_stated_error_or_refused_for_its_numbers() -> None:
    """Takes a minute."""
    found = conformance.record_of_floats(float_verdicts(1))
    reasons = {f"refused: {why}" for why in conformance.CALIBRATED_REASONS.values()}
    assert {key for counts in found.values() for key in counts} <= {"within", *reasons}


@pytest.mark.long
def test_all_executors_agree_on_the_quantised_graphs() -> None:
    """Run with ``pytest -m long tests/frontends/webnn``."""
    for _, case, _ in verdicts():
        if case["klass"] == "qdq":
            outputs = [conformance.run(case, executor)[0] for executor in ("numpy", "native", "formal")]
            for name in case["expected"]:
                for other in outputs[1:]:
                    np.testing.assert_array_equal(outputs[0][name], other[name], case["name"])


def test_nan_has_no_order() -> None:
    tensor = {"data": ["NaN", 1.0], "shape": [2], "dataType": "float32"}
    case = {"inputs": {"x": tensor}, "expected": {"y": tensor}, "operators": [{"name": "relu", "arguments": []}]}
    with pytest.raises(webnn.NotSupportedError, match="NaN"):
        conformance.ranked(case)
