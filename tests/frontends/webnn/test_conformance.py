"""The cases of the web platform tests: integers equal, quantised graphs at 0 ULP, movement and order exact."""

from collections import Counter

import numpy as np
import pytest

from cvm import webnn
from tests.frontends.webnn import replay

EXACT = ("integer_exact", "qdq", "quantization")

pytestmark = pytest.mark.skipif(not replay.files("conformance"), reason="../shared/webnn is not there")

REFUSED = (
    "beyond +-(2^31 - 1)",  # integers that the machine has not
    "not proven to fit [0, 2147483647]",  # a difference of uint32 that may be negative
    "is not in the specification",  # int4 and uint4
)


def verdicts(kinds: tuple[str, ...]) -> tuple[Counter[str], list[str]]:
    counts: Counter[str] = Counter()
    wrong = []
    for path in replay.files("conformance"):
        for case in replay.cases(path):
            if case["klass"] not in kinds:
                continue
            try:
                found, _ = replay.run(case)
            except webnn.NotSupportedError as error:
                known = any(reason in str(error) for reason in REFUSED)
                counts["refused" if known else f"{case['name']}: {error}"] += 1
                continue
            for name, tensor in case["expected"].items():
                expected = replay.array(tensor)
                if found[name].dtype != expected.dtype or not np.array_equal(found[name], expected):
                    wrong.append(f"{path.stem}: {case['name']}")
            counts["equal"] += 1
    return counts, wrong


def test_integer_cases_are_equal() -> None:
    counts, wrong = verdicts(("integer_exact",))
    assert not wrong
    assert counts == {"equal": 95, "refused": 14}


def test_quantised_graphs_are_equal_to_the_last_bit() -> None:
    counts, wrong = verdicts(("qdq", "quantization"))
    assert not wrong
    assert counts == {"equal": 59, "refused": 14}


def test_float_cases_that_only_move_or_compare_are_exact_as_integers_of_the_same_order() -> None:
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for path in replay.files("conformance"):
        for case in replay.cases(path):
            if case["klass"] in EXACT or not (case["data_movement_only"] or case["order_only"]):
                continue
            if path.stem == "sign":
                continue  # its results are the number 1, not an item
            try:
                encoded = replay.ranked(case)
                found, _ = replay.run(encoded)
            except (webnn.NotSupportedError, webnn.MLTypeError) as error:
                counts["refused"] += 1
                reasons[f"{path.stem}: {str(error)[:150]}"] += 1
                continue
            for name, tensor in encoded["expected"].items():
                np.testing.assert_array_equal(found[name], replay.array(tensor), case["name"])
            counts["equal"] += 1
    # Infinite bounds of a clamp, and scatters whose indices are computed.
    assert counts == {"equal": 812, "refused": 16}, reasons
    assert all("an infinity" in reason or "needs constant indices" in reason for reason in reasons)


@pytest.mark.long
def test_all_executors_agree_on_the_quantised_graphs() -> None:
    """Run with ``pytest -m long tests/frontends/webnn``."""
    for path in replay.files("conformance"):
        for case in replay.cases(path):
            if case["klass"] == "qdq":
                outputs = [replay.run(case, executor)[0] for executor in ("numpy", "native", "formal")]
                for name in case["expected"]:
                    for other in outputs[1:]:
                        np.testing.assert_array_equal(outputs[0][name], other[name], case["name"])
