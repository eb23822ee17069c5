"""Logarithmic quantisers on inputs, states, results, outputs and wide weights; what is refused, and why."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest

import cvm
from cvm.errors import CvmError, Unsupported
from cvm.frontends import nnef
from cvm.lowering import lower
from cvm.program import verify
from cvm.quantization import LogarithmicQuantizer
from tests.lowering.documents import Document, assert_exact


def logarithmic(maximum: str, bits: int) -> str:
    return f"logarithmic_quantize(max = {maximum}, bits = {bits})"


def refusal(document: Document, output: str, folder: Path) -> CvmError:
    document.write(folder, output)
    with pytest.raises(Unsupported) as caught:
        lower(nnef.load(folder))
    return caught.value


def test_inputs_and_outputs_keep_their_quantisers(tmp_path: Path) -> None:
    document = Document(Random(1))
    x = document.external((1, 4))
    y = document.apply(f"mul({x}, 2.0)")
    document.quantisers |= {x: logarithmic("1.0", 3), y: logarithmic("2.0", 3)}
    program = assert_exact(document, y, tmp_path)
    assert program.inputs[0].quantizer == LogarithmicQuantizer(0, 3)
    assert program.outputs[0].quantizer == LogarithmicQuantizer(1, 3)
    assert cvm.program.decode(program.to_bytes()).digest == program.digest
    result = cvm.Session(program).run({x: np.array([[0.7, -0.71, 0.0, 3.0]])}, out_of_range="clamp")
    assert result.real(y).tolist() == [[1.0, -2.0, 0.0, 2.0]]


@pytest.mark.parametrize("operation", ["sqrt", "rsqrt"])
def test_roots_of_powers_of_two_lie_at_ties_and_round_up(operation: str, tmp_path: Path) -> None:
    """sqrt(2^5) = 2^(2 + 1/2): the logarithm is exactly half-way between two exponents."""
    document = Document(Random(2))
    x = document.external((2, 4))
    document.quantisers[x] = logarithmic("8.0", 3)
    positive = document.apply(f"abs({x})", quantised=False)
    shifted = document.apply(f"max({positive}, 0.0625)", quantised=False)
    y = document.apply(f"neg({document.apply(f'{operation}({shifted})', quantised=False)})")
    document.quantisers[y] = logarithmic("4.0", 3)
    assert_exact(document, y, tmp_path, 6)


def test_batch_normalization_of_a_logarithmic_result_has_ties_decided_by_squares(tmp_path: Path) -> None:
    """x / sqrt(2) for powers of two x lies at the ties; so does its negative."""
    document = Document(Random(3))
    x = document.external((1, 2, 5))
    document.quantisers[x] = logarithmic("4.0", 3)
    y = document.apply(f"batch_normalization({x}, 0.0, 2.0, 0.0, 1.0, epsilon = 0.0)")
    document.quantisers[y] = logarithmic("8.0", 3)
    assert_exact(document, y, tmp_path, 8)


@pytest.mark.sweep
@pytest.mark.parametrize("weights", [5, 6])
@pytest.mark.parametrize("source", ["linear_quantize(min = -1.0, max = 1.1, bits = 8)", logarithmic("1.0", 5)])
@pytest.mark.parametrize("kind", ["conv", "linear", "deconv"])
def test_weights_of_a_wide_span_are_cut_into_digits(kind: str, source: str, weights: int, tmp_path: Path) -> None:
    """2^-63 .. 1 as integers have 64 bits: there is a sum for each digit, and the code is exact."""
    document = Document(Random(4))
    if kind == "linear":
        x, w = document.external((2, 6)), document.variable((3, 6))
        y = document.apply(f"linear({x}, {w}, 0.25)")
    else:
        x, w = document.external((1, 2, 4, 4)), document.variable((3, 2, 2, 2) if kind == "conv" else (2, 3, 2, 2))
        y = document.apply(f"{kind}({x}, {w}, 0.25)")
    spread = np.random.default_rng(5).uniform(-60, 0, document.stored[w].shape)
    document.stored[w] = (np.exp2(spread) * np.where(spread > -30, 1, -1)).astype(np.float32)
    document.quantisers |= {x: source, w: logarithmic("1.0", weights)}
    program = assert_exact(document, y, tmp_path)
    assert all(item.bound == 0 for item in program.provenance.exactness)


def test_a_state_keeps_logarithmic_codes(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(
        "version 1.0; graph g( x ) -> ( y ) { x = external(shape = [1, 2]);"
        " s = variable(shape = [1, 2], label = 's'); a = add(s, x); y = copy(a); u = update(s, a); }"
    )
    (tmp_path / "graph.quant").write_text(
        f'"x": {logarithmic("1.0", 2)};"s": {logarithmic("4.0", 3)};"y": {logarithmic("4.0", 3)};'
    )
    (tmp_path / "s.dat").write_bytes(nnef.write_tensor(np.array([[0.0, -0.5]], np.float32)))
    program = lower(nnef.load(tmp_path))
    verify(program)
    found = cvm.Session(program).run({"x": np.array([[[1.0, 0.5]]] * 4).reshape(4, 1, 2)}, cycles=True)
    # 1, 2, 3 -> 4, 5 -> 4 and -1/2 + 1/2 = 0, 1/2, 1, 3/2 -> 2 (log2 1.5 = 0.58)
    assert found.real("y").reshape(4, 2).tolist() == [[1.0, 0.0], [2.0, 0.5], [4.0, 1.0], [4.0, 2.0]]


def test_a_range_per_channel_in_the_graph(tmp_path: Path) -> None:
    document = Document(Random(6))
    x, limits = document.external((2, 3)), document.variable((1, 3), 0.1, 2.0, quantised=False)
    y = document.apply(f"logarithmic_quantize({x}, max = {limits}, bits = 3)", quantised=False)
    assert_exact(document, document.apply(f"copy({y})"), tmp_path, 6)


def test_too_many_codes_are_refused_by_name(tmp_path: Path) -> None:
    document = Document(Random(7))
    x = document.external((1, 2))
    document.quantisers[x] = logarithmic("1.0", 13)
    error = refusal(document, document.apply(f"neg({x})"), tmp_path)
    assert error.code == "lowering.logarithmic"
    assert error.location.tensor == x
    assert "at most 12 bits" in error.message


def test_powers_too_far_apart_for_integers_are_refused_by_name(tmp_path: Path) -> None:
    document = Document(Random(8))
    x = document.external((1, 4))
    document.quantisers[x] = logarithmic("1.0", 8)
    error = refusal(document, document.apply(f"sum_reduce({x}, axes = [1])"), tmp_path)
    assert error.code == "lowering.logarithmic"
    assert "2^-255 to 2^0" in error.message
    assert error.location.op == "sum_reduce"


def test_softmax_of_many_items_gives_linear_codes_only(tmp_path: Path) -> None:
    document = Document(Random(9))
    x = document.external((1, 12))
    y = document.apply(f"softmax({x}, axes = [1])")
    document.quantisers[y] = logarithmic("1.0", 3)
    error = refusal(document, y, tmp_path)
    assert error.code == "lowering.logarithmic"
    assert error.location.tensor == y


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9, 10])
def test_softmax_of_few_items_is_exact(count: int, tmp_path: Path) -> None:
    document = Document(Random(count))
    x = document.external((2, count, 1), -3.0, 3.0)
    document.quantise(x, -3.0, 3.0, 8 if count < 4 else 4 if count < 9 else 3)
    y = document.apply(f"softmax({x}, axes = [1])")
    document.quantisers[y] = "linear_quantize(min = 0.0, max = 1.0, bits = 8)"
    program = assert_exact(document, y, tmp_path, 12)
    (item,) = (item for item in program.provenance.exactness if item.tensor == y)
    assert item.bound == 0


def test_softmax_of_more_items_states_its_bound(tmp_path: Path) -> None:
    document = Document(Random(11))
    x = document.external((1, 12), -3.0, 3.0)
    y = document.apply(f"softmax({x}, axes = [1])")
    document.quantisers[y] = "linear_quantize(min = 0.0, max = 1.0, bits = 8)"
    program = assert_exact(document, y, tmp_path)
    (item,) = (item for item in program.provenance.exactness if item.tensor == y)
    assert item.bound == Fraction(1)


def test_all_items_equal_are_the_tie_of_softmax(tmp_path: Path) -> None:
    """Two equal items have 127.5 / 255 each, six 42.5: rounded up."""
    for count, bits, expected in ((2, 8, 128), (6, 4, 43)):
        document = Document(Random(12))
        x = document.external((1, count))
        document.quantisers[x] = f"linear_quantize(min = -2.0, max = 2.0, bits = {bits})"
        y = document.apply(f"softmax({x}, axes = [1])")
        document.quantisers[y] = "linear_quantize(min = 0.0, max = 1.0, bits = 8)"
        program = assert_exact(document, y, tmp_path)
        found = cvm.Session(program).run({x: np.full((1, count), 5)}, codes=True)
        assert found[y].tolist() == [[expected] * count]
