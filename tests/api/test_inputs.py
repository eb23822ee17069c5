from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cvm
from cvm.errors import Invalid
from cvm.inputs import Intake, Layout, arrange
from cvm.quantization.exact import round_fraction
from tests.api import small

CODES = np.arange(6, dtype=np.int64).reshape(1, 2, 3)


def refused(arrays, program=None, **options):
    with pytest.raises(Invalid) as caught:
        arrange(program or small.negated(), arrays, **options, intake=Intake(codes=True))
    return caught.value


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_integers_of_any_dtype_are_codes(dtype):
    layout, samples = arrange(small.negated(), {"image": CODES.astype(dtype)}, intake=Intake(codes=True))
    assert layout == Layout()
    assert samples[0][0]["image"].dtype == np.int32
    assert (samples[0][0]["image"] == CODES).all()


@given(st.lists(st.floats(-0.5, 1.5, width=32), min_size=6, max_size=6))
def test_floats_are_quantised_exactly(items):
    array = np.array(items, np.float32).reshape(1, 2, 3)
    _, samples = arrange(small.negated(), {"image": array})
    exact = [min(max(round_fraction(Fraction(float(x)) * 255, "half_up"), 0), 255) for x in array.ravel()]
    assert samples[0][0]["image"].ravel().tolist() == exact


def test_a_quantiser_per_channel_follows_the_batch_axis():
    program = small.channels()
    one = np.array([[[0.1, -0.1], [1.0, -1.0], [3.0, 30.0]]])
    expected = [[[1, -1], [7, -7], [1, 10]]]
    session = cvm.Session(program)
    assert session.run({"x": one})["y"].tolist() == expected
    stacked = session.run({"x": np.stack([one, one])})
    assert stacked["y"].tolist() == [expected, expected]
    in_place = session.run({"x": np.concatenate([one, one, one])})
    assert in_place["y"].tolist() == expected * 3
    for result, reals in ((stacked, np.stack([one, one])), (in_place, np.concatenate([one] * 3))):
        assert np.allclose(result.real("y"), reals)


@given(st.integers(1, 4), st.booleans(), st.integers(0, 2**32))
def test_a_batch_is_its_samples_one_by_one(samples, in_place, seed):
    session = cvm.Session(small.negated())
    images = np.random.default_rng(seed).integers(0, 256, (samples, 1, 2, 3))
    singles = [session.run({"image": image}, codes=True) for image in images]
    batch = session.run({"image": images[:, 0] if in_place else images}, capture="all", codes=True)
    for name in ("y", "total"):
        expected = np.stack([single[name] for single in singles])
        assert batch[name].tolist() == (expected[:, 0] if in_place else expected).tolist()
    assert (batch.real("y").reshape(-1) == [x for single in singles for x in single.real("y").ravel()]).all()


def test_inputs_of_one_call_have_the_same_batch():
    session = cvm.Session(small.pair())
    a, b = np.arange(12).reshape(3, 4), np.arange(12).reshape(3, 4) - 5
    assert session.run({"a": a, "b": b}, codes=True)["y"].tolist() == (a + b).tolist()
    assert session.run({"a": a[:, None], "b": b}, codes=True)["y"].tolist() == (a + b)[:, None].tolist()
    assert session.run({"a": a[:1], "b": b[:1]}, codes=True)["y"].tolist() == (a + b)[:1].tolist()
    assert session.run({"a": a[:1], "b": b[0]}, codes=True)["y"].tolist() == (a + b)[:1].tolist()
    for wrong in ({"a": a, "b": b[:2]}, {"a": a, "b": b[0]}, {"a": a[:1], "b": b}, {"a": a[:1, None], "b": b}):
        error = refused(wrong, small.pair())
        assert error.code == "input.batch"
        assert "holds" in error.message


@pytest.mark.parametrize(
    ("array", "code", "words"),
    [
        (CODES[0], "input.shape", "expected an array of shape [1, 2, 3]"),
        (CODES[:, :, :2], "input.shape", "found [1, 2, 2]"),
        (CODES[None, None], "input.shape", "[N, 1, 2, 3] or [N, 2, 3]"),
        (np.zeros((0, 2, 3), np.int32), "input.shape", "at least one element"),
        (CODES + 251, "input.code", "expected codes in [0, 255], found 256 at [0, 1, 2]"),
        (CODES - 1, "input.code", "found -1 at [0, 0, 0]"),
        (np.full((1, 2, 3), 2**63, np.uint64), "input.code", str(2**63)),
        (np.full((1, 2, 3), np.nan), "input.real", "found nan at [0, 0, 0]"),
        (np.full((1, 2, 3), np.inf, np.float16), "input.real", "found inf"),
        (CODES.astype(complex), "input.type", "complex128"),
        (CODES.astype(object), "input.type", "object"),
        (CODES.astype("U3"), "input.type", "<U3"),
        (CODES.astype("datetime64[s]"), "input.type", "datetime64"),
        (CODES.astype(bool), "input.type", "logical"),
        (np.zeros((1, 2, 3), "i4,i4"), "input.type", "f0"),
        ([[1, 2], [3]], "input.type", "expected an array of numbers"),
        ("image.npy", "input.type", "<U9"),
        (None, "input.type", "object"),
    ],
)
def test_what_does_not_fit_is_invalid_and_says_what_was_expected(array, code, words):
    error = refused({"image": array})
    assert error.code == code
    assert words in error.message
    assert error.location.tensor == "image"


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="here a long double is a double")
def test_floats_of_more_than_64_bits_are_refused():
    assert refused({"image": np.zeros((1, 2, 3), np.longdouble)}).code == "input.type"


def test_names_are_those_of_the_inputs():
    assert "there is no input 'x'; the inputs are 'image'" in refused({"image": CODES, "x": CODES}).message
    assert "the input 'image' is missing; found none" in refused({}).message


def test_an_input_without_quantiser_takes_integers_only():
    error = refused({"a": np.zeros((1, 4)), "b": np.zeros(4)}, small.pair())
    assert (error.code, error.location.tensor) == ("input.real", "b")


def test_memory_layout_and_byte_order_do_not_matter():
    session = cvm.Session(small.negated())
    expected = session.run({"image": CODES}, codes=True)["y"]
    wide = np.zeros((1, 4, 6), np.int64)
    wide[:, ::2, ::-2] = CODES
    read_only = CODES.copy()
    read_only.setflags(write=False)
    for array in (np.asfortranarray(CODES), wide[:, ::2, ::-2], CODES.astype(">i2"), read_only, CODES.tolist()):
        assert (session.run({"image": array}, codes=True)["y"] == expected).all()


def test_the_arrays_of_the_caller_are_neither_written_nor_kept():
    session = cvm.Session(small.negated())
    mine = CODES.astype(np.int32)
    result = session.run({"image": mine}, capture="all", codes=True)
    result["image"][:] = 77
    assert (mine == CODES).all()


def test_cycles_need_state_and_a_cycle_axis():
    assert refused({"image": CODES[None]}, cycles=True).code == "input.cycles"
    error = refused({"step": np.zeros((1, 2), np.int32)}, small.counter(), cycles=True)
    assert "[T, 1, 2] (T cycles) or [N, T, 1, 2] (N samples)" in error.message


def test_logarithmic_codes_of_reals_and_back():
    session = cvm.Session(small.powers())
    # 2^-(3/2) lies between the powers 1/4 and 1/2: just below it is the code 1, just above the code 2.
    halves = np.array([[np.nextafter(2**-1.5, 0), -np.nextafter(2**-1.5, 1), 0.0]])
    result = session.run({"x": halves})
    assert result["y"].tolist() == [[-1, 2, 0]]
    assert result.real("y").tolist() == [[-1.0, 2.0, 0.0]]
    stacked = session.run({"x": np.stack([halves, -1000 * halves])}, out_of_range="clamp")
    assert stacked["y"].tolist() == [[[-1, 2, 0]], [[4, -4, 0]]]
    assert stacked.real("y").tolist() == [[[-1.0, 2.0, 0.0]], [[8.0, -8.0, 0.0]]]
    assert refused({"x": np.array([[5, 0, 0]])}, small.powers()).code == "input.code"
    assert refused({"x": np.array([[np.nan, 0, 0]])}, small.powers()).code == "input.real"
