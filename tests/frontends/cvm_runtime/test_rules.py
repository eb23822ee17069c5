"""The rules of single ops: judged as the C++ library judges, computed as its vectors say."""

from __future__ import annotations

import numpy as np
import pytest

from cvm.errors import CvmError
from cvm.frontends.cvm_runtime.operators import OPERATORS, operator
from cvm.frontends.cvm_runtime.precisions import derived, magnitude
from tests.vectors_cvm_runtime import mapping
from tests.vectors_cvm_runtime.records import Record, described, precision_rules, rejections

from .library_rules import Refused, judged
from .models import Op, Variable, document, given, loaded, parameters
from .vectors import vectors

RECORDS = [*precision_rules(), *rejections()]

needs_records = pytest.mark.skipif(not RECORDS, reason="../shared/cvm_runtime is not there")

STRICTER = {
    "conv2d channels=4 kernel_size=(0,1)": "the weight's shape is not looked at there, and a kernel of 0 rows passes",
    "conv2d channels=4 kernel_size=(1,1) out_dtype=int8": "it passes the rules on shapes, and fails those on types",
    "strided_slice begin=(0,0,0)": "the kernels read beyond the shape for entries beyond the rank",
}
"""Records that the library accepts and that are refused here."""


def _judged(record: Record, sound: bool) -> tuple[bool, tuple[int, ...], tuple[tuple[int, ...], ...]]:
    try:
        use = operator(record.op).use(record.attributes, record.shapes)
        return True, derived(use, record.precisions, sound=sound), use.out_shapes
    except CvmError:
        return False, (), ()


@needs_records
def test_every_record_is_judged_as_the_library_does_but_where_it_reads_beyond_a_tensor() -> None:
    stricter = set()
    for record in RECORDS:
        accepted, precisions, shapes = _judged(record, sound=False)
        reason = next((key for key in STRICTER if described(record).startswith(f"`{key}")), None)
        if reason is not None:
            stricter.add(reason)
            assert (accepted, record.accepted) == (False, True), described(record)
            continue
        assert accepted == record.accepted, described(record)
        if accepted and record.out_precisions is not None:
            assert precisions == record.out_precisions, described(record)
        if accepted and record.out_shapes is not None:
            assert shapes == record.out_shapes, described(record)
    assert stricter == set(STRICTER)


UNSOUND = {"where", "broadcast_greater", "get_valid_counts", "non_max_suppression"}


@needs_records
def test_sound_precisions_differ_for_four_ops_and_are_never_exceeded() -> None:
    different = set()
    for record in RECORDS:
        theirs, ours = _judged(record, sound=False), _judged(record, sound=True)
        if theirs != ours:
            different.add(record.op)
    assert different == UNSOUND


@needs_records
def test_every_op_of_the_library_is_known() -> None:
    assert set(OPERATORS) == set(mapping.OPS)
    assert {name: item.ours for name, item in OPERATORS.items() if name != "flatten"} == {
        name: mapped.op for name, mapped in mapping.OPS.items() if name != "flatten"
    }


def _contained(arrays, precisions) -> bool:
    pairs = zip(arrays, precisions, strict=True)
    return all(int(np.abs(array.astype(np.int64)).max()) <= magnitude(p) for array, p in pairs)


def _beyond_a_rule(node: Op, variables: list[Variable]) -> bool:
    """Whether a vector was computed apart from any model, with precisions that no model may have."""
    try:
        texts, shapes = node.attributes, [tuple(item.shape) for item in variables]
        judged(node.func, texts, shapes, [item.precision for item in variables])
    except Refused:
        return True
    return node.func == "non_max_suppression" and variables[0].precision > 30


@needs_records
@pytest.mark.parametrize("op", sorted(OPERATORS))
def test_models_of_one_op_give_what_its_vectors_say(op: str) -> None:
    """Every vector within the contract, as a model: the first operand is the input, the others are parameters."""
    compared = 0
    for case, inputs, outputs in vectors(op):
        if not _contained(inputs, case["in_precisions"]):
            continue
        variables = [
            Variable("data" if place == 0 else f"w{place}", array.shape, precision)
            for place, (array, precision) in enumerate(zip(inputs, case["in_precisions"], strict=True))
        ]
        node = Op(op, list(range(len(inputs))), [array.shape for array in outputs], case["attrs"])
        place = len(variables)
        for output, expected in enumerate(outputs):
            made = document(*variables, node, heads=[(place, output)])
            arrays = [(f"w{number}", array.astype(np.int32)) for number, array in enumerate(inputs) if number]
            if _beyond_a_rule(node, variables):
                with pytest.raises(CvmError, match=r"\[cvm_runtime.precision\]"):
                    loaded(made, parameters(*arrays))
                continue
            imported = loaded(made, parameters(*arrays))
            size = imported.model.interface.input_size
            found = given(imported, inputs[0].astype(f"<i{size}").tobytes())
            assert found == expected.astype(f"<i{imported.model.interface.output_size}").tobytes(), case["id"]
            compared += 1
    assert compared > 5, compared
