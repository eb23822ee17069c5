"""Building programs: what is added is checked at once, and a refusal adds nothing."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from cvm import ops
from cvm.errors import CvmError, Invalid, LimitExceeded
from cvm.limits import DEFAULT, LARGE
from cvm.program import Output, ProgramBuilder, Provenance, Value, verify
from cvm.quantization.quantizer import LinearQuantizer


def test_the_example_can_be_built_step_by_step():
    builder = ProgramBuilder()
    x = builder.input("x", (1, 2), 0, 15)
    zeros = builder.constant(np.zeros((1, 2), np.int64))
    memory = builder.state("memory", zeros, -100, 100)
    (total,) = builder.add("elemwise_add", [x, memory], name="total")
    assert builder.range(total).hull() == (-100, 115)
    assert builder.shape(total) == (1, 2)
    (clipped,) = builder.add("clip", [total], {"a_min": -100, "a_max": 100})
    builder.update(memory, clipped)
    program = builder.build([Output("y", clipped)], Provenance("a test"))
    assert [node.outputs[0] for node in program.nodes] == [
        Value("total", (1, 2), -100, 115),
        Value("clip", (1, 2), -100, 100),
    ]
    assert program.provenance.tool == "a test"
    assert verify(program).gas == builder.gas


def test_equal_constants_are_one():
    builder = ProgramBuilder()
    first = builder.constant(np.array([1, 2, 3], np.int8), "weights")
    assert builder.constant(np.array([1, 2, 3], np.int64), "others") == first == "weights"
    assert builder.constant(np.array([[1, 2, 3]])) == "constant"
    assert builder.constant([1, 2, 4]) == "constant_1"
    assert builder.parameter([1, 2, 3]) == "parameter"
    assert builder.constant([9, 9], "weights") == "weights_1"
    assert len(builder.build([Output("y", first)]).constants) == 5


def test_names_of_results_are_made_unique():
    builder = ProgramBuilder()
    x = builder.input("abs", (1,), -1, 1)
    assert builder.add("abs", [x]) == ("abs_1",)
    assert builder.add("abs", [x]) == ("abs_2",)
    assert builder.add("abs", [x], name="abs_1") == ("abs_1_1",)
    assert builder.add("abs", [x], name="abs_3") == ("abs_3",)
    assert builder.add("abs", [x]) == ("abs_4",)


def test_several_outputs_are_named_after_the_declaration():
    builder = ProgramBuilder()
    x = builder.input("x", (1, 4, 6), -1, 5)
    labels = ops.get("get_valid_count").outputs
    names = builder.add("get_valid_count", [x], {"score_threshold": 0}, name="valid")
    assert names == tuple(f"valid.{label}" for label in labels)
    verify(builder.build([Output(name, name) for name in names]))


def test_an_input_has_the_codes_of_its_quantizer():
    builder = ProgramBuilder()
    builder.input("x", (2,), quantizer=LinearQuantizer.linear(Fraction(0), Fraction(1), 8))
    assert builder.range("x").hull() == (0, 255)
    with pytest.raises(Invalid):
        builder.input("z", (2,), 0, 254, LinearQuantizer.linear(Fraction(0), Fraction(1), 8))
    with pytest.raises(Invalid):
        builder.input("z", (2,))


def test_a_refused_node_adds_nothing_and_building_goes_on():
    builder = ProgramBuilder()
    x = builder.input("x", (2,), -(2**31) + 1, 2**31 - 1)
    before = builder.gas
    with pytest.raises(Invalid) as caught:
        builder.add("elemwise_add", [x, x], name="total")
    assert caught.value.code == "program.range"
    assert caught.value.location.tensor == "total"
    assert caught.value.location.op == "elemwise_add"
    assert builder.gas == before
    with pytest.raises(Invalid):
        builder.range("total")
    for op, inputs, attributes in [("nothing", [x], {}), ("abs", ["z"], {}), ("abs", [], {}), ("clip", [x], {})]:
        with pytest.raises(CvmError):
            builder.add(op, inputs, attributes)
    (total,) = builder.add("elemwise_sub", [x, builder.constant([0, 0])], name="total")
    assert total == "total"
    assert len(builder.build([Output("y", total)]).nodes) == 1


def test_a_state_needs_an_update_that_fits():
    builder = ProgramBuilder()
    x = builder.input("x", (2,), 0, 300)
    builder.state("memory", builder.constant([0, 0]), 0, 255)
    with pytest.raises(Invalid):
        builder.build([Output("y", x)])
    with pytest.raises(Invalid):
        builder.update("memory", x)
    with pytest.raises(Invalid):
        builder.update("x", x)
    with pytest.raises(Invalid):
        builder.state("other", x, 0, 300)
    builder.update("memory", "memory")
    verify(builder.build([Output("y", x)]))


def test_limits_hold_while_building():
    builder = ProgramBuilder(replace(DEFAULT, nodes=2, constants=40, work=10))
    x = builder.input("x", (2,), 0, 1)
    builder.constant(np.zeros(8, np.int8))
    with pytest.raises(LimitExceeded):
        builder.constant(np.zeros(3, np.int8))
    builder.constant(np.ones(2, np.int8))
    with pytest.raises(LimitExceeded):
        builder.constant([5])
    builder.add("abs", [x])
    builder.add("abs", [x])
    with pytest.raises(LimitExceeded):
        builder.add("abs", [x])
    with pytest.raises(LimitExceeded):
        builder.build([Output(name, x) for name in "abc"])


def test_a_program_names_the_profile_it_was_built_under():
    builder = ProgramBuilder(LARGE)
    x = builder.input("x", (2,), 0, 1)
    assert builder.build([Output("y", x)]).limits == "large"


def test_constants_are_integers():
    with pytest.raises(TypeError):
        ProgramBuilder().constant([0.5])
