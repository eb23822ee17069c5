"""Precisions that the C++ library derives, and what our declarations prove: each difference belongs to one class."""

from __future__ import annotations

import pytest

from cvm.ops import REGISTRY

from . import mapping
from .differences import AGREED, PRECISIONS, Difference, agreed, counted, matching
from .page import PAGE, markdown
from .precisions import largest, least, theirs
from .records import described, effect, precision_rules, verdict

RECORDS = precision_rules()

needs_records = pytest.mark.skipif(not RECORDS, reason="../shared/cvm_runtime/precision_rules.json is not there")


@needs_records
def test_their_precisions_follow_the_rules_that_the_notes_state() -> None:
    for record in RECORDS:
        assert record.out_precisions == theirs(record), described(record)
        assert record.accepted == (set() < set(theirs(record)) <= set(range(1, 33))), described(record)


@needs_records
def test_our_precision_is_the_least_sound_one() -> None:
    for record in RECORDS:
        ours = verdict(record)
        assert ours.accepted == (bool(largest(record)) and max(largest(record)) < 2**31), described(record)
        assert ours.precisions == (least(record) if ours.accepted else ()), described(record)
        assert ours.accepted or "[ops.clip.C1]" in ours.refusal or "[program.range]" in ours.refusal, ours.refusal


@needs_records
def test_where_ours_is_larger_theirs_is_unsound() -> None:
    for record in RECORDS:
        if effect(record) == "wider":
            assert any(there < need for there, need in zip(theirs(record), least(record), strict=True))


@needs_records
def test_every_difference_belongs_to_exactly_one_class() -> None:
    for record in RECORDS:
        assert len(matching(record, PRECISIONS)) == (effect(record) != "same"), described(record)


@needs_records
def test_the_classes_have_as_many_records_as_they_state() -> None:
    assert counted(RECORDS, PRECISIONS) == {item.name: item.counts for item in PRECISIONS}
    assert agreed(RECORDS) == AGREED["precision_rules.json"]


@needs_records
@pytest.mark.parametrize("item", PRECISIONS, ids=lambda item: item.name)
def test_the_example_of_a_class_is_one_of_its_records(item: Difference) -> None:
    examples = {described(record) for record in RECORDS if [item.name] == matching(record, PRECISIONS)}
    assert item.example in examples


@needs_records
def test_the_records_cover_every_op_but_those_that_only_move_elements() -> None:
    moving = {"repeat", "tile", "transpose", "strided_slice", "expand_dims", "reshape", "squeeze"}
    assert {record.op for record in RECORDS} == set(mapping.OPS) - moving
    assert {mapped.op for mapped in mapping.OPS.values()} == {
        op.name for op in REGISTRY.values() if not op.source.endswith("of cvm")
    }


def test_the_page_is_the_one_that_the_tables_give() -> None:
    assert PAGE.read_text("utf-8") == markdown(), "run python -m tests.vectors_cvm_runtime.page"
