"""Versions of the op-set: a program states the least one that has all its ops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cvm.errors import Invalid
from cvm.ops import REGISTRY, op_set
from cvm.program import Output, Program, ProgramBuilder, decode, verify


def built(op: str) -> Program:
    builder = ProgramBuilder()
    x = builder.input("x", (2, 2), -9, 9)
    (y,) = builder.add(op, [x, x])
    return builder.build([Output("y", y)])


def test_the_builder_states_the_least_version() -> None:
    assert built("elemwise_add").op_set == 1
    assert built("matmul").op_set == 2
    assert decode(built("matmul").to_bytes()).op_set == 2


@pytest.mark.parametrize(("op", "stated"), [("matmul", 1), ("elemwise_add", 2), ("matmul", 3), ("elemwise_add", 0)])
def test_any_other_version_is_refused(op: str, stated: int) -> None:
    with pytest.raises(Invalid, match=f"found {stated}") as caught:
        verify(replace(built(op), op_set=stated))
    assert caught.value.code == "program.op_set"


def test_a_name_that_is_no_op_counts_for_nothing() -> None:
    assert op_set([]) == op_set(["add"]) == 1
    assert op_set(["relu", "matmul", "add"]) == 2
    program = built("elemwise_add")
    (node,) = program.nodes
    with pytest.raises(Invalid) as caught:
        verify(replace(program, nodes=(replace(node, op="add"),)))
    assert caught.value.code == "ops.unknown"


def test_op_set_2_has_the_ops_of_one_family() -> None:
    assert {op.name for op in REGISTRY.values() if op.op_set == 2} == {
        "matmul", "quotient", "normalize", "update_slice",
    }  # fmt: skip
