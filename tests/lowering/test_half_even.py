"""A quantiser that rounds half to even: every code is that of the exact number, ties included."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph
from cvm.lowering import lower
from cvm.quantization import LinearQuantizer
from cvm.session import Session
from tests.selection import examples

DENOMINATORS = st.sampled_from([1, 2, 3, 4, 6, 8, 10, 64, 96, 2**20, 3 * 2**18, 7919])
FACTORS = st.builds(Fraction, st.integers(-40, 40).filter(bool), DENOMINATORS)


def graph(operations: list[GraphOperation], quantizer: LinearQuantizer, shape: tuple[int, ...]) -> QuantizedGraph:
    """Inputs ``a`` and ``b`` of codes in [-9, 9] that stand for themselves, and the result ``y`` under a quantiser."""
    codes = LinearQuantizer((Fraction(1),), (Fraction(0),), -9, 9)
    tensors = {name: GraphTensor(name, shape, "external", quantizer=codes) for name in ("a", "b")}
    for operation in operations:
        (name,) = operation.outputs
        tensors[name] = GraphTensor(name, shape, "computed", quantizer=quantizer if name == "y" else None)
    return QuantizedGraph("g", ("a", "b"), ("y",), tensors, tuple(operations))


def codes_of(network: QuantizedGraph, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return Session(lower(network), executor="numpy").run({"a": a, "b": b})["y"]


@settings(max_examples=examples(60), deadline=None)
@given(FACTORS, FACTORS, st.builds(Fraction, st.integers(-99, 99), DENOMINATORS), st.integers(-6, 2))
def test_sums_of_two_tensors_are_rounded_half_to_even(f: Fraction, g: Fraction, c: Fraction, lo: int) -> None:
    pairs = list(product(range(-9, 10), repeat=2))
    a, b = (np.array([pair[i] for pair in pairs]) for i in (0, 1))
    quantizer = LinearQuantizer((Fraction(1),), (Fraction(0),), lo, lo + 7, rounding="half_even")
    steps = [
        GraphOperation("mul", {"x": "a", "y": f}, {}, ("p",)),
        GraphOperation("mul", {"x": "b", "y": g}, {}, ("q",)),
        GraphOperation("add", {"x": "p", "y": "q"}, {}, ("r",)),
        GraphOperation("add", {"x": "r", "y": c}, {}, ("y",)),
    ]
    expected = [min(max(round(f * x + g * y + c), lo), lo + 7) for x, y in pairs]
    assert codes_of(graph(steps, quantizer, (len(pairs),)), a, b).tolist() == expected


@pytest.mark.parametrize("denominator", [2, 4, 6, 10, 2**16, 3 * 2**16])
@pytest.mark.parametrize(("lo", "hi"), [(-4, 4), (-5, 5), (1, 4), (-4, -1), (0, 1)])
def test_every_tie_of_one_tensor(denominator: int, lo: int, hi: int) -> None:
    values = np.arange(-9, 10)
    quantizer = LinearQuantizer((Fraction(denominator),), (Fraction(0),), lo, hi, rounding="half_even")
    steps = [GraphOperation("mul", {"x": "a", "y": Fraction(denominator, 2)}, {}, ("y",))]
    expected = [min(max(round(Fraction(int(x), 2)), lo), hi) for x in values]
    assert codes_of(graph(steps, quantizer, (19,)), values, values).tolist() == expected


@pytest.mark.parametrize("operation", ["min", "max", "relu", "sigmoid"])
def test_operations_that_choose_or_look_up(operation: str) -> None:
    pairs = list(product(range(-9, 10), repeat=2))
    a, b = (np.array([pair[i] for pair in pairs]) for i in (0, 1))
    quantizer = LinearQuantizer((Fraction(2),), (Fraction(0),), -128, 127, rounding="half_even")
    inputs = {"x": "a", "y": "b"} if operation in ("min", "max") else {"x": "a"}
    network = graph([GraphOperation(operation, inputs, {}, ("y",))], quantizer, (len(pairs),))
    function = {"min": min, "max": max, "relu": lambda x, _: max(x, 0), "sigmoid": lambda x, _: 0}[operation]
    assert codes_of(network, a, b).tolist() == [round(Fraction(function(x, y), 2)) for x, y in pairs]


def test_no_tie_costs_nothing_more_than_rounding_half_up() -> None:
    scale = Fraction(7919, 2**20)
    programs = [
        lower(
            graph(
                [GraphOperation("copy", {"x": "a"}, {}, ("y",))],
                LinearQuantizer((scale,), (Fraction(0),), -128, 127, rounding=rounding),
                (4,),
            )
        )
        for rounding in ("half_up", "half_even")
    ]
    assert programs[0].nodes == programs[1].nodes
