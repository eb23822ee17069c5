"""What is stated of the ops, for authors of verifiers, is what the declarations compute."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cvm.errors import Invalid
from cvm.ops import REGISTRY, Op
from cvm.ops.ranges import aligned
from cvm.ops.specification import STATEMENTS, Each, evaluated_gas, evaluated_interval, evaluated_shapes
from tools.generated_pages.parts.op_examples import worked

from .strategies import proven_call

every_op = pytest.mark.parametrize("op", REGISTRY.values(), ids=REGISTRY)
drawn = settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))

ON_ELEMENTS = [name for name, statement in STATEMENTS.items() if isinstance(statement.interval, Each)]


def test_every_op_has_a_statement_in_the_order_of_the_declarations() -> None:
    assert list(STATEMENTS) == list(REGISTRY)
    assert all(len(statement.shapes) == len(REGISTRY[name].outputs) for name, statement in STATEMENTS.items())
    assert all(statement.interval for statement in STATEMENTS.values())


def test_intervals_of_ops_on_single_elements_are_lines_and_of_others_words() -> None:
    movers = {op.name for op in REGISTRY.values() if op.family in ("reduce", "transform", "vision")}
    assert set(REGISTRY) - set(ON_ELEMENTS) == movers | {"conv2d", "dense", "max_pool2d", "upsampling", "matmul",
        "normalize", "update_slice"}  # fmt: skip


@every_op
@drawn
@given(data=st.data())
def test_shapes_and_gas_are_those_that_are_stated(op: Op, data: st.DataObject) -> None:
    call = data.draw(proven_call(op))
    attributes = dict(call.attributes)
    statement = STATEMENTS[op.name]
    assert evaluated_shapes(statement, op, call.shapes, attributes) == op.infer(call)
    assert evaluated_gas(statement, op, call.shapes, attributes) == op.gas(call)


@pytest.mark.parametrize("name", ON_ELEMENTS)
@drawn
@given(data=st.data())
def test_intervals_of_ops_on_single_elements_are_those_that_are_stated(name: str, data: st.DataObject) -> None:
    op, each = REGISTRY[name], STATEMENTS[name].interval
    assert isinstance(each, Each)
    call = data.draw(proven_call(op))
    try:
        (proven,) = op.prove(call)
    except Invalid:
        return
    operands = aligned(call.ranges, proven.rank)
    shape = np.broadcast_shapes(*(operand.shape for operand in operands))
    for index in np.ndindex(shape):
        intervals = [
            (int(np.broadcast_to(operand.lo, shape)[index]), int(np.broadcast_to(operand.hi, shape)[index]))
            for operand in operands
        ]
        found = (int(proven.lo[index]), int(proven.hi[index]))
        assert evaluated_interval(each, op, intervals, dict(call.attributes)) == found


@every_op
def test_examples_are_small_and_show_an_interval_that_their_result_keeps(op: Op) -> None:
    example = STATEMENTS[op.name].example
    assert all(len(tensor.elements) <= 18 for tensor in example.inputs)
    for _, shape, items, kept in worked(op.name, example).outputs:
        values = np.array(items).reshape(shape)
        assert (kept.lo <= values).all()
        assert (values <= kept.hi).all()
