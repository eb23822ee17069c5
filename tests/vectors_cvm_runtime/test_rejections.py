"""Attributes and shapes that the C++ library was tried with: each verdict that differs belongs to one class."""

from __future__ import annotations

from collections import Counter

import pytest

from .differences import AGREED, VERDICTS, Difference, agreed, counted, matching
from .records import Record, described, effect, rejections, verdict

RECORDS = rejections()

needs_records = pytest.mark.skipif(not RECORDS, reason="../shared/cvm_runtime/rejections.json is not there")


@needs_records
@pytest.mark.parametrize("record", RECORDS, ids=described)
def test_the_verdict_is_theirs_or_the_difference_belongs_to_exactly_one_class(record: Record) -> None:
    assert len(matching(record, VERDICTS)) == (effect(record) != "same"), verdict(record)


@needs_records
def test_the_classes_have_as_many_records_as_they_state() -> None:
    assert counted(RECORDS, VERDICTS) == {item.name: item.counts for item in VERDICTS}
    assert agreed(RECORDS) == AGREED["rejections.json"]


@needs_records
@pytest.mark.parametrize("item", VERDICTS, ids=lambda item: item.name)
def test_the_example_of_a_class_is_one_of_its_records(item: Difference) -> None:
    examples = {described(record) for record in RECORDS if [item.name] == matching(record, VERDICTS)}
    assert item.example in examples


@needs_records
def test_what_is_refused_breaks_a_rule_of_the_op_or_has_attributes_that_cannot_be_said_with_types() -> None:
    untyped: Counter[str] = Counter()
    for record in RECORDS:
        refusal = verdict(record).refusal
        if refusal.startswith("attributes: "):
            untyped[record.op] += 1
        else:
            assert not refusal or "[ops." in refusal or "[program.shape]" in refusal, described(record)
    assert untyped == {"clip": 3, "relu": 1, "tile": 1, "sum": 1, "reshape": 1}
