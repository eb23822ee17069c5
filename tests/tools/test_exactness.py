"""The element-wise evaluation of graphs agrees with results by hand, and finds a program that is not exact."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from cvm.compiling import program_of
from cvm.demo import MODEL
from cvm.frontends import nnef
from cvm.graph import QuantizedGraph, TensorData
from cvm.program import Program
from cvm.program.model import Constant
from cvm.quantization import LinearQuantizer
from tests.oracle import real
from tests.oracle.test_operations import CASES, as_number
from tools.check_exactness import main
from tools.exactness.call import OPERATIONS
from tools.exactness.comparison import Sampling, compared
from tools.exactness.elements import Budget
from tools.exactness.evaluation import Evaluation, code_of
from tools.exactness.functions import FUNCTIONS

HALF = Fraction(1, 2)
DATA_TYPES = {"integer": np.int64, "logical": np.bool_, "scalar": np.float64}
TYPES = {
    "not": ("logical", "scalar"), "and": ("logical", "logical"), "or": ("logical", "logical"),
    "select": ("logical", "scalar"), "sample": ("scalar", "integer"), "desample": ("scalar", "integer"),
    "gather": ("scalar", "integer"), "any_reduce": ("logical", "scalar"), "all_reduce": ("logical", "scalar"),
}  # fmt: skip
"""The types of x and w where these are not real numbers."""


def graph_of(call: str, x: object, w: object, folder: Path) -> QuantizedGraph:
    """The graph of ``y = call`` with the given contents of x and w."""
    types = TYPES.get(call.partition("(")[0], ("scalar", "scalar"))
    given = {"x": np.asarray(x, DATA_TYPES[types[0]]), "w": np.asarray(w, DATA_TYPES[types[1]])}
    lines = [
        f"{name} = external<{kind}>(shape = {list(array.shape)});"
        for (name, array), kind in zip(given.items(), types, strict=True)
    ]
    text = f"version 1.0; graph g( x, w ) -> ( y ) {{ {' '.join(lines)} y = {call}; }}"
    folder.mkdir(exist_ok=True)
    (folder / "graph.nnef").write_text(text)
    graph = nnef.load(folder, dialect="khronos")
    tensors = {
        name: replace(tensor, kind="constant", data=TensorData(given[name])) if name in given else tensor
        for name, tensor in graph.tensors.items()
    }
    return replace(graph, tensors=MappingProxyType(tensors))


def items_of(graph: QuantizedGraph) -> list[Any]:
    exact = Evaluation(graph, {}, Budget(100_000)).exact[graph.outputs[0]]
    return [exact[index] for index in product(*map(range, exact.shape))]


EVALUATED = [case for case in CASES if not case[0].startswith(("constant(", "pad(x, padding = [(1, -1)]"))]
"""All cases but constants, which no operation computes, and a negative padding, which graphs do not have."""


@pytest.mark.parametrize(("call", "x", "w", "expected"), EVALUATED)
def test_elements_are_those_by_hand(call: str, x: object, w: object, expected: list[Any], tmp_path: Path) -> None:
    found = items_of(graph_of(call, x, w, tmp_path / "model"))
    assert len(found) == len(expected)
    assert all(real.sign(a - as_number(b)) == 0 for a, b in zip(found, expected, strict=True)), found


def test_most_operations_are_evaluated_element_by_element() -> None:
    named = {re.split(r"[<(]", call)[0] for call, *_ in CASES}
    whole = named - set(OPERATIONS) - set(FUNCTIONS) - {"constant"}
    assert whole == {
        "add_n", "argmax_pool", "desample", "local_contrast_normalization", "local_mean_normalization",
        "local_variance_normalization", "sample", "selu", "softabs",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [("half_up", [-1, 0, 1, 2, 3]), ("half_even", [-2, 0, 0, 2, 2]), ("toward_zero", [-1, 0, 0, 1, 2])],
)
def test_ties_are_rounded_as_the_quantiser_says(rounding: Any, expected: list[int]) -> None:
    quantizer = LinearQuantizer((Fraction(1, 3),), (Fraction(1, 7),), -128, 127, None, rounding)
    ties = [Fraction(1, 7) + Fraction(1, 3) * (k + HALF) for k in range(-2, 3)]
    assert [code_of(x, quantizer) for x in ties] == expected
    root = real.power(2, HALF)
    steps = real.floor_of(root, Fraction(3), HALF - Fraction(3, 7))[0]
    assert code_of(root, replace(quantizer, rounding="half_up")) == steps
    assert code_of(Fraction(10**6), quantizer) == 127


@pytest.fixture(scope="module")
def demo() -> tuple[QuantizedGraph, Program]:
    graph = nnef.load(MODEL)
    return graph, program_of(graph)


def test_the_digits_model_is_exact(demo: tuple[QuantizedGraph, Program]) -> None:
    outcome = compared(*demo, Sampling(elements=6, output_elements=6))
    assert outcome.wrong == []
    assert outcome.skipped == {}
    assert outcome.tensors > 8
    assert outcome.elements > 50


def test_a_wrong_multiplier_is_found(demo: tuple[QuantizedGraph, Program]) -> None:
    """One part in a hundred, which changes hardly any code by more than one."""
    graph, program = demo

    def changed(constant: Constant, name: str) -> Constant:
        if constant.name != name:
            return constant
        return Constant.of(constant.name, constant.array() - constant.array() // 100, constant.kind)

    node = next(node for node in program.nodes if node.op == "requantize")
    multiplier = node.inputs[(len(node.inputs) - 2) // 2]
    wrong = replace(program, constants=tuple(changed(constant, multiplier) for constant in program.constants))
    assert compared(graph, wrong, Sampling(elements=200)).wrong


def test_a_claim_of_another_rounding_is_found(demo: tuple[QuantizedGraph, Program]) -> None:
    graph, program = demo
    name = next(
        item.tensor for item in program.provenance.exactness if item.note == "the same codes" or item.accumulator
    )
    tensor = graph.tensors[name]
    assert isinstance(tensor.quantizer, LinearQuantizer)
    other = replace(tensor, quantizer=replace(tensor.quantizer, rounding="toward_zero"))
    changed = replace(graph, tensors=MappingProxyType({**graph.tensors, name: other}))
    assert compared(changed, program, Sampling(elements=200)).wrong


def test_what_costs_too_much_is_named(demo: tuple[QuantizedGraph, Program]) -> None:
    outcome = compared(*demo, Sampling(elements=2, output_elements=2, reads=20))
    assert any("TooCostly: it depends on more than 20 elements" in reason for reason in outcome.skipped)


def test_the_command_line_prints_what_was_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    arguments = [str(MODEL), "--elements", "2", "--output-elements", "2", "--log", str(log)]
    assert main(arguments) == 0
    assert "0 wrong" in capsys.readouterr().out
    assert main(arguments) == 0, "the file is in the log"
    assert len(log.read_text().splitlines()) == 1
