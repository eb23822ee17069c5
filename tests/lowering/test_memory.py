"""What lowering holds of the weights of a network: a few bytes for each, however many layers there are."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph, TensorData
from cvm.lowering import lower
from cvm.lowering.forms.form import Known
from cvm.lowering.forms.known import KnownTensors
from cvm.lowering.parts.digits import array_digits
from cvm.passes.optimize import optimize
from cvm.quantization import LinearQuantizer
from cvm.quantization.rationals import Rationals
from tests.selection import mostly_long

WIDTH = 256


def network(layers: int) -> QuantizedGraph:
    """Matrices of 8 bits, one after the other, each rounded to 8 bits again."""
    random = np.random.default_rng(3)
    activations = LinearQuantizer((Fraction(1, 20),), (Fraction(-6),), 0, 255)
    weights = LinearQuantizer((Fraction(1, 1000),), (Fraction(0),), -128, 127)
    tensors = {"x0": GraphTensor("x0", (1, WIDTH), "external", quantizer=activations)}
    operations = []
    for layer in range(layers):
        items = random.integers(-128, 128, (WIDTH, WIDTH)).astype(np.int8)
        data = TensorData(items, weights)
        tensors[f"w{layer}"] = GraphTensor(f"w{layer}", items.shape, "constant", quantizer=weights, data=data)
        name = f"x{layer + 1}"
        tensors[name] = GraphTensor(name, (1, WIDTH), "computed", quantizer=activations)
        operands = {"A": f"x{layer}", "B": f"w{layer}"}
        attributes = {"transposeA": False, "transposeB": False}
        operations.append(GraphOperation("matmul", operands, attributes, (name,)))
    return QuantizedGraph("g", ("x0",), (f"x{layers}",), tensors, tuple(operations))


@pytest.mark.slow
@pytest.mark.parametrize("layers", mostly_long([16, 64], always=[16]))
def test_lowering_and_optimisation_take_few_bytes_for_each_weight(layers: int) -> None:
    graph = network(layers)
    lower(graph)  # what is imported and cached stays
    tracemalloc.start()
    try:
        program = optimize(lower(graph))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    weights = layers * WIDTH * WIDTH
    held = sum(len(constant.data) for constant in program.constants)
    assert weights <= held < 1.1 * weights
    assert peak <= 2 * weights + 10 * 2**20  # besides, some copies of one layer and blocks of proofs, in 64 bits


@pytest.mark.parametrize(("most", "width"), [(100, 1), (30_000, 2), (2**30, 4), (2**40, 8)])
def test_a_constant_tensor_is_kept_in_few_bytes_and_read_in_64_bits(most: int, width: int) -> None:
    codes = np.linspace(-most, most, 2**13).astype(np.int64).reshape(64, 128)
    known = Known(codes, Rationals.scalar(2, 2), Rationals.scalar(1, 2))
    tensors = KnownTensors()
    tensors["w"] = known
    assert tensors._held["w"][0].codes.dtype.itemsize == width
    found = tensors["w"]
    assert found.codes.dtype == np.int64
    np.testing.assert_array_equal(found.codes, codes)
    assert found.scale is known.scale
    assert "w" in tensors
    assert list(tensors) == ["w"]
    assert tensors.pop("w").codes.dtype == np.int64
    assert len(tensors) == 0
    assert "w" not in tensors


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32])
def test_codes_that_are_narrow_are_kept_without_a_copy(dtype: type) -> None:
    codes = np.arange(2**13).astype(dtype).reshape(64, 128)
    tensors = KnownTensors()
    tensors["w"] = Known(codes, Rationals.scalar(2, 2), Rationals.scalar(1, 2))
    assert tensors._held["w"][0].codes is codes
    found = tensors["w"].codes
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, codes)


def test_few_codes_and_integers_of_any_size_are_kept_as_they_are() -> None:
    tensors = KnownTensors()
    for name, codes in (("few", np.arange(10)), ("any", np.full(2**13, 2**70, dtype=object))):
        tensors[name] = Known(codes, Rationals.scalar(1, 1), Rationals.scalar(0, 1))
        assert tensors[name].codes is codes


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32])
@pytest.mark.parametrize("far", [0, 1, 300, 2**20])
def test_narrow_codes_around_zero_stay_narrow_and_exact(dtype: type, far: int) -> None:
    ends = np.iinfo(dtype)
    drawn = np.random.default_rng(far).integers(ends.min, ends.max, (60, 50), np.int64, endpoint=True)
    codes = drawn.astype(dtype)
    codes[0, :2] = ends.min, ends.max
    zeros = [far - row % 2 for row in range(60)]
    offsets = Rationals.of([Fraction(-3 * zero, 7) for zero in zeros], (60, 1))
    known = Known(codes, Rationals.scalar(Fraction(3, 7), 2), offsets)
    found, rest = known.centred()
    assert rest.is_zero()
    expected = codes.astype(object) - np.array(zeros, dtype=object)[:, None]
    assert (found.astype(object) == expected).all()
    held = max(abs(int(expected.min())), abs(int(expected.max())))
    assert found.dtype.itemsize <= next(size for size in (1, 2, 4, 8) if held < 2 ** (8 * size - 1))


@pytest.mark.parametrize("limit", [1, 100, 2**20])
def test_digits_of_narrow_integers_are_those_of_python_integers(limit: int) -> None:
    for dtype in (np.int8, np.int16, np.int32):
        ends = np.iinfo(dtype)
        items = np.array([ends.min, ends.min + 1, -limit % 50, -1, 0, 1, 77, ends.max], dtype)
        found, exact = array_digits(items, limit), array_digits(items.astype(object), limit)
        assert [(part.tolist(), weight) for part, weight in found] == [(p.tolist(), w) for p, w in exact]
        columns = zip(*((part.astype(object) * weight).tolist() for part, weight in found), strict=True)
        assert [sum(column) for column in columns] == items.tolist()
