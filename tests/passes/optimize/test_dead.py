"""Dead code: what nothing needs goes; outputs, states and tensors of the document stay."""

from __future__ import annotations

from cvm.passes.optimize.dead import dead_code
from cvm.program import Output, ProgramBuilder
from tests.passes.optimize.chains import add, built, const, every, ops_of
from tests.passes.optimize.equality import assert_equal


def test_a_chain_that_nothing_reads_goes_with_its_constants():
    def grow(b, x):
        add(b, "abs", add(b, "broadcast_add", x, const(b, [7])))
        return add(b, "negative", x)

    program = built(-3, 3, grow)
    after = dead_code(program)
    assert ops_of(after) == {"negative": 1}
    assert after.constants == ()
    assert_equal(program, after, every(program))


def test_a_program_without_dead_code_is_returned_as_it_is():
    program = built(-3, 3, lambda b, x: add(b, "negative", x))
    assert dead_code(program) is program


def test_a_tensor_of_the_document_stays_with_what_it_needs():
    def grow(b, x):
        add(b, "abs", add(b, "broadcast_add", x, const(b, [7])), name="tensor")
        return add(b, "negative", x)

    program = built(-3, 3, grow, named=["tensor"])
    assert dead_code(program) is program


def test_a_tensor_that_is_another_order_of_a_value_goes_and_the_report_says_so():
    def grow(b, x):
        add(b, "flatten", x, name="tensor")
        return add(b, "negative", x)

    program = built(-3, 3, grow, named=["tensor"])
    after = dead_code(program)
    assert ops_of(after) == {"negative": 1}
    assert [(item.tensor, item.value) for item in after.provenance.exactness] == [("tensor tensor", "")]


def test_what_a_state_becomes_stays_and_its_first_value():
    builder = ProgramBuilder()
    x = builder.input("x", (2,), 0, 9)
    builder.state("h", const(builder, [1, 2]), -99, 99)
    builder.update("h", add(builder, "negative", x))
    program = builder.build([Output("y", x)])
    assert dead_code(program) is program


def test_a_node_of_several_results_stays_for_one_of_them():
    builder = ProgramBuilder()
    x = builder.input("x", (1, 3, 6), 0, 9)
    names = builder.add("get_valid_count", [x], {"score_threshold": 2})
    program = builder.build([Output("y", names[0])])
    assert dead_code(program) is program
