from dataclasses import replace
from fractions import Fraction

import pytest

from cvm.errors import Mismatch
from cvm.frontends import nnef
from cvm.lowering import lower
from cvm.passes.legalize import legalize
from cvm.program import verify
from cvm.program.model import Provenance
from cvm.report import check_source
from cvm.report.pairing import Source, pairs
from tests.report.documents import CHAIN, CHAIN_QUANT, chain, memory


@pytest.fixture
def graph(tmp_path):
    return nnef.load(chain(tmp_path))


@pytest.fixture
def verified(graph):
    return verify(lower(graph))


def rewritten(tmp_path, document=CHAIN, quant=CHAIN_QUANT):
    """The graph of the model with another document or other quantisation information."""
    folder = chain(tmp_path / "rewritten")
    (folder / "graph.nnef").write_text(document)
    (folder / "graph.quant").write_text(quant)
    return nnef.load(folder)


def test_a_program_is_recognised_by_what_its_model_compiles_to(graph, verified):
    assert check_source(verified, graph) == Source(True, True)
    unnamed = replace(verified.program, provenance=Provenance())
    assert check_source(verify(unnamed), graph) == Source(None, True)


def test_other_programs_of_the_model_are_told_apart(tmp_path, graph, verified):
    assert check_source(verify(legalize(verified.program)), graph) == Source(True, False)
    spaced = rewritten(tmp_path, CHAIN.replace("relu(", "relu( "))
    assert check_source(verified, spaced) == Source(False, True)
    inner = rewritten(tmp_path, quant=CHAIN_QUANT.replace("max = 1.5", "max = 1.25"))
    assert check_source(verified, inner) == Source(True, False)
    refused = rewritten(tmp_path, CHAIN.replace("unused = exp(x)", "unused = div(x, y)"))  # y may be 0
    assert check_source(verified, refused) == Source(False, None)


@pytest.mark.parametrize(
    ("document", "quant", "what"),
    [
        (CHAIN.replace("( x, y )", "( z, y )").replace(" x ", " z ").replace("x,", "z,").replace("x)", "z)"),
         CHAIN_QUANT.replace('"x"', '"z"'), "inputs of the program are 'x', 'y', those of the model 'z', 'y'"),
        (CHAIN.replace("-> ( scores, above )", "-> ( scores )"), CHAIN_QUANT, "outputs of the program"),
        (CHAIN.replace("[1, 4]", "[2, 4]", 2).replace("w = variable(shape = [1, 4]", "w = variable(shape = [1, 4]")
         .replace("shape = [1, 4]);\n    unused", "shape = [2, 4]);\n    unused"), CHAIN_QUANT,
         r"the input 'x' has the shape \[1, 4\] in the program and \[2, 4\] in the model"),
        (CHAIN, CHAIN_QUANT.replace("bits = 4", "bits = 5"), "the input 'y' has another quantiser"),
        (CHAIN, CHAIN_QUANT.replace("bits = 6", "bits = 7"), "the output 'scores' has another quantiser"),
        (CHAIN.replace("doubled", "twice"), CHAIN_QUANT, None),
        (CHAIN.replace("active", "positive"), CHAIN_QUANT.replace("active", "positive"), "has a tensor 'active'"),
    ],
)  # fmt: skip
def test_another_model_is_refused(tmp_path, verified, document, quant, what):
    other = rewritten(tmp_path, document, quant)
    if what is None:  # a symbolic tensor leaves no trace in the program
        assert check_source(verified, other).compiled is True
        return
    with pytest.raises(Mismatch, match=what) as caught:
        check_source(verified, other)
    assert caught.value.code == "report.model"


def test_codes_that_a_quantiser_does_not_have_are_refused(tmp_path, verified):
    narrow = rewritten(tmp_path, quant=CHAIN_QUANT.replace("max = 3.0, bits = 16", "max = 3.0, bits = 12"))
    with pytest.raises(Mismatch, match=r"'shifted'.*0 to 4095"):
        pairs(verified, narrow)


def test_values_are_found_by_the_compilers_report(graph, verified):
    found, absent = pairs(verified, graph)
    assert {item.tensor.name: item.value for item in found}["scores"] == "scores"
    assert all(item.exactness is not None and item.exactness.bound == Fraction(0) for item in found)
    assert {item.tensor.name for item in found}.isdisjoint(item.tensor.name for item in absent)
    assert len(found) + len(absent) == len(graph.tensors)


def test_without_that_report_inputs_outputs_and_state_remain(tmp_path, graph, verified):
    bare = verify(replace(verified.program, provenance=Provenance()))
    found, absent = pairs(bare, graph)
    assert {item.tensor.name for item in found} == {"x", "y", "scores", "above"}
    assert all(item.exactness is None for item in found)
    reasons = {item.tensor.name: item.reason for item in absent}
    assert reasons["active"].startswith("merged")
    other = nnef.load(memory(tmp_path / "memory"))
    program = verify(replace(lower(other), provenance=Provenance()))
    assert {item.tensor.name for item in pairs(program, other)[0]} == {"step", "held", "level"}


def test_a_tensor_held_in_another_shape_is_not_measured(graph, verified):
    changed = dict(graph.tensors)
    changed["active"] = replace(changed["active"], shape=(2, 2))
    changed["same"] = replace(changed["same"], shape=(4,))
    found, absent = pairs(verified, replace(graph, tensors=changed))
    assert "same" in {item.tensor.name for item in found}
    (active,) = (item for item in absent if item.tensor.name == "active")
    assert "has the shape [1, 4]" in active.reason
