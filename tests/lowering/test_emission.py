"""The handle on tensors of a program that is being built: which ops it emits, under which names, for whom."""

from __future__ import annotations

from fractions import Fraction

import pytest

from cvm.errors import Location, Unsupported
from cvm.graph import GraphOperation
from cvm.limits import DEFAULT, INT32_MAX
from cvm.lowering.forms.emission import Emission, Value
from cvm.program.model import Output


def operation(name: str, output: str) -> GraphOperation:
    return GraphOperation(name, {}, {}, (output,), Location("model", 3))


@pytest.fixture
def emission() -> Emission:
    return Emission(DEFAULT)


@pytest.fixture
def x(emission: Emission) -> Value:
    return Value(emission.builder.input("x", (2, 3), -8, 7), emission)


def nodes(emission: Emission, value: Value) -> list[tuple[str, str]]:
    program = emission.builder.build([Output("y", value.name)])
    return [(node.op, node.outputs[0].name) for node in program.nodes]


def test_ops_are_emitted_for_the_operation_and_named_after_its_result(emission: Emission, x: Value) -> None:
    with emission.at(operation("relu", "y")):
        zero = emission.tensor_constant([3], "zero")
        value = abs(-(x - zero) * x).maximum(x + x).clip(0, 50)
    assert nodes(emission, value) == [
        ("broadcast_sub", "y.broadcast_sub"),
        ("negative", "y.negative"),
        ("broadcast_mul", "y.broadcast_mul"),
        ("abs", "y.abs"),
        ("broadcast_add", "y.broadcast_add"),
        ("broadcast_max", "y.broadcast_max"),
        ("clip", "y.clip"),
    ]
    assert (zero.name, value.shape, value.rank) == ("y.zero", (2, 3), 2)
    assert value.range.hull() == (0, 50)


def test_movements_and_reductions_have_their_shapes(emission: Emission, x: Value) -> None:
    with emission.at(operation("any", "y")):
        indices = emission.tensor_constant([0, 2], "indices")
        assert x.transpose((1, 0)).shape == (3, 2)
        assert x.reshape((6,)).shape == (6,)
        assert x.repeat(1, 2).shape == (2, 6)
        assert x.sum((1,)).shape == (2,)
        assert x.max((1,), keepdims=True).shape == (2, 1)
        assert x.take(indices, 1).shape == (2, 2)
        assert x.greater(x).range.hull() == (0, 1)
        assert x.in_shape((2, 3)) is x
        assert x.in_shape((3, 2)).shape == (3, 2)
        assert x.broadcast((2, 3)) is x
        assert x.sum((1,), keepdims=True).broadcast((2, 3)).shape == (2, 3)


def test_parts_have_names_of_their_own_and_nothing_is_claimed_of_them(emission: Emission, x: Value) -> None:
    with emission.at(operation("any", "y")):
        with emission.part("up"):
            emission.claim(x + x, "not a tensor of the document")
            with emission.part("estimate"):
                inner = x.apply("broadcast_add", x, label="")
            whole = x.apply("broadcast_add", x, label="half")
        emission.claim(whole, "exact", Fraction(0), (-1, 1))
    assert (inner.name, whole.name) == ("y.up.estimate", "y.up.half")
    (claimed,) = emission.report
    assert (claimed.tensor, claimed.value, claimed.note) == ("y", "y.up.half", "exact")


def test_an_error_leaves_the_operation_and_the_part(emission: Emission, x: Value) -> None:
    with emission.at(operation("first", "y")):
        with pytest.raises(KeyError), emission.at(operation("second", "z")), emission.part("up"):
            raise KeyError
        assert (emission.operation.name, emission.owner) == ("first", "y")
        assert (x + x).name == "y.broadcast_add"


def test_a_result_that_may_leave_32_bits_is_refused_for_the_operation(emission: Emission) -> None:
    wide = Value(emission.builder.input("w", (1,), -INT32_MAX, INT32_MAX), emission)
    with emission.at(operation("add", "y")), pytest.raises(Unsupported) as refused:
        wide + wide
    assert refused.value.code == "lowering.range"
    assert refused.value.message.startswith("add: ")
    assert refused.value.location.tensor == "y"
    assert refused.value.location.line == 3
    with emission.at(operation("add", "y")), pytest.raises(Unsupported, match="offset does not fit 32 bits"):
        emission.tensor_constant([2**31], "offset")
