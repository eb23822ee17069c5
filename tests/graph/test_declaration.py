"""The declared operations: read from their notation, complete, and each with a shape rule."""

from __future__ import annotations

from fractions import Fraction

import pytest

from cvm.errors import Unsupported
from cvm.frontends.nnef.declarations import khronos_library, sections
from cvm.graph import declaration, declarations
from cvm.graph.shapes import RULES
from cvm.lowering import CLAIMS


def test_every_operation_has_a_meaning_a_source_and_a_shape_rule() -> None:
    assert set(declarations()) == set(RULES)
    assert all(item.meaning and item.source for item in declarations().values())


def test_lowering_knows_declared_operations_only() -> None:
    assert {name.split("(")[0] for name in CLAIMS} <= set(declarations())


@pytest.mark.parametrize("name", sorted(set(khronos_library()) - {"gelu"}))
def test_declarations_say_what_the_parser_of_nnef_reads(name: str) -> None:
    fragment, found = khronos_library()[name], declaration(name)
    parameters = [item for item in found.parameters if item.name != "accuracy"]  # which graphs have beyond NNEF
    for formals, own in ((fragment.parameters, parameters), (fragment.results, found.results)):
        assert [(item.name, str(item.type).replace(", ", ",")) for item in formals] == [(p.name, p.type) for p in own]
    given = [parameter.default is not None for parameter in fragment.parameters]
    assert given == [parameter.default is not None for parameter in parameters]
    assert found.source == f"NNEF 1.0.1 section {sections()[name]}"


def test_what_is_not_given_has_its_default_value() -> None:
    inputs, attributes = declaration("conv").complete({"input": "x", "filter": "f"}, {"stride": (2, 2)})
    assert inputs == {"input": "x", "filter": "f", "bias": Fraction(0)}
    assert attributes == {"border": "constant", "padding": (), "stride": (2, 2), "dilation": (), "groups": 1}
    assert declaration("sum_reduce").complete({}, {"axes": (1,)})[1] == {"axes": (1,), "normalize": False}
    assert declaration("selu").complete({}, {})[1]["lambda"] == Fraction("1.05070102")


def test_attributes_are_exact_values_of_their_types() -> None:
    axes, epsilon = declaration("layer_normalization").attributes
    assert axes.admits((0, 1))
    assert not axes.admits([0, 1])
    assert not axes.admits((True,))
    assert epsilon.admits(Fraction(1, 3))
    assert not epsilon.admits(0.1)
    padding = declaration("pad").attributes[0]
    assert padding.admits(((0, 1), (2, 3)))
    assert not padding.admits(((0, 1, 2),))


def test_an_operation_that_is_not_declared_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="magic") as caught:
        declaration("magic")
    assert caught.value.code == "graph.operation"
