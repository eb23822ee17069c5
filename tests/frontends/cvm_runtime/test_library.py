"""The library as the tests know it: it judges every record as the C++ library did, and computes the op vectors."""

from __future__ import annotations

import numpy as np
import pytest

from tests.vectors_cvm_runtime.records import Record, described, precision_rules, rejections

from .backends import computed
from .library_rules import Hazard, Refused, attributes_of, judged
from .vectors import OPS, vectors

RECORDS = [*precision_rules(), *rejections()]

needs_records = pytest.mark.skipif(not RECORDS, reason="../shared/cvm_runtime is not there")

LATER = {"out_dtype": "int8"}
"""An attribute that passes the rules on shapes, of which the records tell, and not those on types, which come later."""


@needs_records
def test_every_record_is_judged_as_the_library_does() -> None:
    for record in RECORDS:
        assert _verdict(record) == record.accepted, described(record)


def _verdict(record: Record) -> bool:
    try:
        _, shapes, precisions = judged(record.op, record.attributes, record.shapes, record.precisions)
    except Refused:
        return False
    if record.out_shapes is not None and record.accepted:
        assert tuple(shapes) == record.out_shapes, described(record)
    if record.out_precisions is not None and record.accepted:
        assert tuple(precisions) == record.out_precisions, described(record)
    return True


def _all_vectors():
    for op in OPS:
        for case, inputs, outputs in vectors(op):
            yield op, case, [array.astype(np.int64) for array in inputs], outputs


@needs_records
def test_the_formal_backend_of_the_tests_gives_the_vectors_that_the_library_gave() -> None:
    compared = 0
    for op, case, inputs, outputs in _all_vectors():
        if not case["peer_agrees"]:
            continue
        try:
            found = computed("formal", op, attributes_of(op, case["attrs"]), inputs)
        except Hazard:
            continue
        compared += 1
        for mine, theirs in zip(found, outputs, strict=True):
            assert np.array_equal(mine.reshape(theirs.shape), theirs), (op, case["id"])
    assert compared > 300


@needs_records
def test_the_backends_of_the_tests_agree_where_those_of_the_library_do() -> None:
    """Or raise a hazard, which may be said too often, but never too seldom."""
    compared, hazards = 0, 0
    for op, case, inputs, _ in _all_vectors():
        attributes = attributes_of(op, case["attrs"])
        try:
            formal, cpu = [computed(backend, op, attributes, inputs) for backend in ("formal", "cpu")]
        except Hazard:
            hazards += 1
            continue
        compared += 1
        agree = all(np.array_equal(*pair) for pair in zip(formal, cpu, strict=True))
        assert agree == case["peer_backends_agree"], (op, case["id"])
    assert (compared, hazards) == (583, 58)
