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
