import numpy as np
import pytest

from cvm.bench.engines import ENGINES, _random, _shape, random_inputs
from cvm.errors import Unsupported
from cvm.executors import DEVICES, EXECUTORS
from cvm.program import Output, ProgramBuilder
from tests.api import small


def test_all_executors_are_engines_and_only_they_read_programs():
    assert {name for name, engine in ENGINES.items() if not engine.foreign} == EXECUTORS.keys() | DEVICES.keys()
    assert all(name == engine.name for name, engine in ENGINES.items())


def test_random_inputs_are_the_same_valid_codes_every_time():
    builder = ProgramBuilder()
    wide = builder.input("wide", (1, 500), -(2**31) + 1, 2**31 - 1)
    narrow = builder.input("narrow", (3, 500), -1, 1)
    program = builder.build([Output("wide", wide), Output("narrow", narrow)])
    first, second = random_inputs(program.inputs, 1), random_inputs(program.inputs, 1)
    assert all(np.array_equal(first[name], second[name]) for name in ("wide", "narrow"))
    assert first["wide"].shape == (1, 500)
    assert set(np.unique(first["narrow"])) == {-1, 0, 1}
    assert first["wide"].dtype == np.int32
    assert first["wide"].min() < -(2**30) < 2**30 < first["wide"].max()


def test_a_batch_takes_the_place_of_a_leading_1_or_stands_before_it():
    inputs = random_inputs(small.pair().inputs, 4)
    assert {name: array.shape for name, array in inputs.items()} == {"a": (4, 4), "b": (4, 4)}


def test_the_batch_of_a_model_of_another_engine():
    assert _shape("x", ["N", 3, 8], 4) == (4, 3, 8)
    assert _shape("x", [None, 3], 2) == (2, 3)
    assert _shape("x", [1, 3], 1) == (1, 3)
    assert _shape("x", [1, 3], 5, True) == (5, 3)
    assert _shape("x", [], 5) == ()
    with pytest.raises(Unsupported, match="made for a batch of 1, not 2"):
        _shape("x", [1, 3], 2)
    with pytest.raises(Unsupported, match="made for a batch of 3, not 2"):
        _shape("x", [3, 3], 2, True)
    with pytest.raises(Unsupported, match="not fixed"):
        _shape("x", ["N", 3, "H"], 1)


def test_items_for_other_engines():
    assert set(np.unique(_random((9, 999), np.uint8))) == set(range(256))
    assert set(np.unique(_random((9, 999), np.int8))) == set(range(-128, 128))
    words = _random((9, 9999), np.int16)
    assert words.dtype == np.int16
    assert words.min() < -(2**14) < 2**14 < words.max()
    reals = _random((100,), np.float32)
    assert reals.dtype == np.float32
    assert 0 <= reals.min() < reals.max() < 1
    assert not _random((3,), np.int64).any()
    with pytest.raises(Unsupported, match="type"):
        _random((3,), np.bool_)
