"""What becomes of real numbers out of range, and when integers are codes."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cvm
from cvm.errors import ClampWarning, Invalid
from cvm.inputs import Intake, arrange, stream
from cvm.program import Output, ProgramBuilder
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer
from cvm.quantization.exact import round_fraction
from tests.api import small

WIDE = np.array([[[5.0, -3.0, 0.5], [1e300, 0.0, 1.0]]])


def echo(quantizer, shape=(3,)):
    builder = ProgramBuilder()
    x = builder.input("x", shape, quantizer=quantizer)
    (y,) = builder.add("negative", [x])
    return builder.build([Output("y", y)])


def test_numbers_out_of_range_are_clamped_with_one_warning_that_says_how_many_and_how_far():
    session = cvm.Session(small.negated())
    with pytest.warns(ClampWarning) as caught:
        result = session.run({"image": WIDE})
    assert result["y"].tolist() == [[[0, 255, 127], [0, 255, 0]]]
    assert str(caught[0].message) == (
        "input 'image': 3 of 6 real numbers are out of the range [0, 1], the farthest by 1e+300 (1e+300 at [0, 1, 0]): "
        "they were clamped"
    )
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_clamp_says_nothing_and_refuse_refuses():
    session = cvm.Session(small.negated())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clamped = session.run({"image": WIDE}, out_of_range="clamp")
    assert clamped["y"].tolist() == [[[0, 255, 127], [0, 255, 0]]]
    with pytest.raises(Invalid, match=r"found 1e\+300 at \[0, 1, 0\]; 3 of 6 numbers are out of range") as caught:
        session.run({"image": WIDE}, out_of_range="refuse")
    assert (caught.value.code, caught.value.location.tensor) == ("input.range", "image")
    with pytest.raises(Invalid, match="out_of_range is one of 'refuse', 'warn', 'clamp', found 'wrap'"):
        session.run({"image": WIDE}, out_of_range="wrap")


def test_a_refused_run_leaves_the_state_as_it_was():
    session = cvm.Session(small.counter())
    session.run({"step": np.array([[1, 2]])})
    before = session.state["memory"].tolist()
    with pytest.raises(Invalid):
        session.run({"step": np.array([[1, 20]])}, out_of_range="refuse")
    assert session.state["memory"].tolist() == before


LINEAR = st.builds(
    lambda scale, offset, lo, steps, rounding: LinearQuantizer((scale,), (offset,), lo, lo + steps, None, rounding),
    st.fractions(Fraction(1, 300), 300, max_denominator=300),
    st.fractions(-50, 50, max_denominator=300),
    st.integers(-130, 130),
    st.integers(1, 300),
    st.sampled_from(["half_up", "half_even", "toward_zero"]),
)


@given(LINEAR, st.data())
def test_out_of_range_is_what_rounds_to_no_code(quantizer, data):
    ends = [quantizer.value(quantizer.lo), quantizer.value(quantizer.hi)]
    near = [float(end + step * quantizer.scale[0]) for end in ends for step in (Fraction(-1, 2), 0, Fraction(1, 2), 1)]
    items = [data.draw(st.one_of(st.sampled_from(near), st.floats(-1e5, 1e5))) for _ in range(3)]
    exact = [
        round_fraction((Fraction(x) - quantizer.offset[0]) / quantizer.scale[0], quantizer.rounding) for x in items
    ]
    intake = Intake(out_of_range="warn")
    _, ((feed,),) = arrange(echo(quantizer), {"x": np.array(items)}, intake=intake)
    assert feed["x"].tolist() == [min(max(code, quantizer.lo), quantizer.hi) for code in exact]
    assert sum(item.count for item in intake.clamped) == sum(not quantizer.lo <= code <= quantizer.hi for code in exact)


@pytest.mark.parametrize(("top", "bits"), [(1, 2), (0, 1), (-3, 4), (1024, 5)])
def test_powers_of_two_are_out_of_range_beyond_the_greatest(top, bits):
    quantizer = LogarithmicQuantizer(top, bits)
    greatest = 2.0 ** min(top, 1023)
    items = np.array([greatest, -greatest * 1.4, 1e-300]) if top < 1024 else np.array([1.7e308, -1.7e308, 0.0])
    intake = Intake(out_of_range="warn")
    arrange(echo(quantizer), {"x": items}, intake=intake)
    assert not intake.clamped
    if top < 1024:
        arrange(echo(quantizer), {"x": items * 1.5}, intake=intake)
        assert [(item.count, item.of) for item in intake.clamped] == [(2, 3)]


def test_ranges_of_channels_are_those_of_the_channel():
    x = np.array([[[0.1, -0.1], [1.0, -1.0], [3.0, 1000.0]], [[90.0, 0.0], [0.0, 0.0], [0.0, 0.0]]])
    with pytest.warns(ClampWarning, match=r"2 of 12 .* \[-384, 381\], the farthest by 619 \(1000 at \[0, 2, 1\]\)"):
        cvm.Session(small.channels()).run({"x": x})


def test_streamed_samples_are_counted_among_all(monkeypatch):
    monkeypatch.setattr("cvm.inputs._PART", 6)
    intake = Intake(out_of_range="warn")
    images = np.zeros((3, 1, 2, 3))
    images[1, 0, 1, 2], images[2, 0, 0, 0] = 7.0, -2.0
    _, samples = stream(small.negated(), {"image": images}, intake=intake)
    assert len(list(samples)) == 3
    assert [item.index for item in intake.clamped] == [(1, 0, 1, 2), (2, 0, 0, 0)]
    with pytest.warns(ClampWarning, match=r"2 of 12 real numbers .* the farthest by 6 \(7 at \[1, 0, 1, 2\]\)"):
        intake.report()


def test_many_inputs_give_one_warning_for_all():
    session = cvm.Session(small.pair(), "numpy")
    given = [{"a": np.full((1, 4), x), "b": np.zeros(4, int)} for x in (0.5, 2.0, -1.0)]
    with pytest.warns(ClampWarning, match=r"input 'a': 8 of 8 real numbers") as caught:
        session.run_many(given)
    assert len(caught) == 1
    with pytest.raises(Invalid, match="number 1 of the 3 inputs of run_many: "):
        session.run_many(given, out_of_range="refuse")


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_integers_for_real_numbers_are_refused_unless_they_are_said_to_be_codes(dtype):
    session = cvm.Session(small.negated())
    image = np.ones((1, 2, 3), dtype)
    for run in (session.run, lambda *given, **rules: session.run_many(given, **rules)[0]):
        with pytest.raises(
            Invalid, match=r"astype\('float32'\).*codes in \[0, 255\]: codes=True \(.*--codes\)"
        ) as caught:
            run({"image": image})
        assert (caught.value.code, caught.value.location.tensor) == ("input.integers", "image")
        assert run({"image": image}, codes=True)["y"].tolist() == [[[254] * 3] * 2]
        assert run({"image": image.astype(np.float32)})["y"].tolist() == [[[0] * 3] * 2]
    assert session.run({"image": image.astype(np.float32)}, codes=True)["y"].tolist() == [[[0] * 3] * 2]


def test_inputs_whose_codes_stand_for_themselves_take_integers():
    unit = LinearQuantizer((Fraction(1),), (Fraction(0),), -128, 127)
    for program in (echo(unit), echo(replaced_channels())):
        assert cvm.Session(program).run({"x": np.array([1, -2, 3])})["y"].tolist() == [-1, 2, -3]
    shifted = LinearQuantizer((Fraction(1),), (Fraction(5),), -128, 127)
    with pytest.raises(Invalid, match="it takes real numbers from -123 to 132"):
        cvm.Session(echo(shifted)).run({"x": np.array([1, -2, 3])})
    assert cvm.Session(small.pair()).run({"a": np.zeros((1, 4)), "b": np.arange(4)})["y"].tolist() == [[0, 1, 2, 3]]


def replaced_channels():
    return LinearQuantizer((Fraction(1),) * 3, (Fraction(0),) * 3, -9, 9, 0)


def test_calibration_data_follow_the_same_rule(tmp_path):
    (tmp_path / "graph.nnef").write_text(
        "version 1.0;\ngraph g(x) -> (y) { x = external<scalar>(shape = [1, 3]); y = relu(x); }\n"
    )
    (tmp_path / "graph.quant").write_text('"x": linear_quantize(min = -1.0, max = 1.0, bits = 8);\n')
    data = {"x": np.array([[0, 128, 255]])}
    for quantize in (cvm.quantize, cvm.quantize_program):
        with pytest.raises(Invalid, match="codes=True"):
            quantize(tmp_path, data)
        assert quantize(tmp_path, data, codes=True) is not None
