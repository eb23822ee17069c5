"""Section 5.3: a fragment of the document as the algorithm of a tensor, against the fragment computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cvm
from cvm.errors import Unsupported
from cvm.frontends.nnef.quantization_file import QuantizationInfo, read_quantization
from cvm.quantization import LinearQuantizer
from cvm.quantization.reals import code, rational
from tests.frontends.nnef.documents import EXTENSIONS, error_of, flatten_text, graph

FRAGMENTS = """
fragment affine( x: tensor<scalar>, scale: scalar, zero: integer ) -> ( y: tensor<scalar> )
{
    q = clamp(round(x / scale) + scalar(zero), -128.0, 127.0);
    y = (q - scalar(zero)) * scale;
}
fragment named( x: tensor<scalar>, low: tensor<scalar>, high: tensor<scalar>, bits: integer ) -> ( y: tensor<scalar> )
{
    y = linear_quantize(x, min = low, max = high, bits = bits);
}
fragment down( x: tensor<scalar>, scale: scalar ) -> ( y: tensor<scalar> )
{
    y = clamp(floor(x / scale), 0.0, 15.0) * scale;
}
fragment up( x: tensor<scalar>, scale: scalar ) -> ( y: tensor<scalar> )
{
    y = min(max(ceil(x / scale), -7.0), 8.0) * scale;
}
fragment mirrored( x: tensor<scalar>, scale: scalar ) -> ( y: tensor<scalar> )
{
    y = -(clamp(round(-x / scale), -7.0, 7.0) * scale);
}
fragment squares( x: tensor<scalar>, by: scalar ) -> ( y: tensor<scalar> )
{
    n = clamp(round(x), -3.0, 5.0);
    y = sqr(n) / by;
}
fragment powers( x: tensor<scalar>, most: scalar ) -> ( y: tensor<scalar> )
{
    y = 2.0 ^ clamp(round(x), -3.0, most);
}
fragment uneven( x: tensor<scalar>, most: scalar ) -> ( y: tensor<scalar> )
{
    y = clamp(round(x), 0.0, most);
}
fragment wave( x: tensor<scalar>, by: scalar ) -> ( y: tensor<scalar> ) { y = sin(x) * by; }
fragment roots( x: tensor<scalar>, by: scalar ) -> ( y: tensor<scalar> ) { y = sqrt(clamp(round(x), 0.0, by)); }
fragment endless( x: tensor<scalar>, by: scalar ) -> ( y: tensor<scalar> ) { y = round(x) * by; }
fragment flat( x: tensor<scalar>, by: scalar ) -> ( y: tensor<scalar> ) { y = clamp(round(x), 1.0, 1.0) * by; }
fragment many( x: tensor<scalar>, by: scalar ) -> ( y: tensor<scalar> ) { y = clamp(round(x), 0.0, 65536.0) * by; }
fragment twice( x: tensor<scalar>, by: scalar ) -> ( y: tensor<scalar> ) { y = round(x * by) + x; }
fragment logical_one( x: tensor<logical>, by: scalar ) -> ( y: tensor<logical> ) { y = !x; }
"""
GRAPH = flatten_text(graph("a = relu(x); y = neg(a);", fragments=FRAGMENTS))


def read(line: str) -> QuantizationInfo:
    return read_quantization(line, GRAPH)


def clamp(x: Fraction, low: int, high: int) -> Fraction:
    return min(max(x, Fraction(low)), Fraction(high))


def nearest(x: Fraction) -> Fraction:
    return Fraction(floor(x + Fraction(1, 2)))


def test_a_clamp_and_a_round_of_linear_forms_is_a_quantiser() -> None:
    info = read('"a": affine(scale = 0.5, zero = 3); "x": named(low = -1.0, high = 2.0, bits = 8);')
    assert info.expansions == {}
    assert info.dialect == "1.0.1"
    assert info.quantizers["x"] == LinearQuantizer.linear(Fraction(-1), Fraction(2), 8)
    assert info.quantizers["a"] == LinearQuantizer((Fraction(1, 2),), (Fraction(-131, 2),), 0, 255)


@given(st.fractions(-9, 9, max_denominator=50), st.fractions("1/50", 3, max_denominator=50), st.integers(-128, 127))
def test_the_quantiser_of_a_fragment_gives_its_numbers(x: Fraction, scale: Fraction, zero: int) -> None:
    line = f'"a": affine(scale = {scale.numerator}.0 / {scale.denominator}.0, zero = {zero});'
    quantizer = read(line).quantizers["a"]
    assert isinstance(quantizer, LinearQuantizer)
    expected = (clamp(nearest(x / scale) + zero, -128, 127) - zero) * scale
    assert quantizer.offset[0] + quantizer.scale[0] * code(rational(x), quantizer) == expected


MEANINGS: dict[str, Callable[[Fraction], Fraction]] = {
    "down(scale = 0.25)": lambda x: clamp(Fraction(floor(x * 4)), 0, 15) / 4,
    "up(scale = 0.5)": lambda x: clamp(Fraction(ceil(x * 2)), -7, 8) / 2,
    "mirrored(scale = 0.5)": lambda x: -clamp(nearest(-x * 2), -7, 7) / 2,
    "squares(by = 4.0)": lambda x: clamp(nearest(x), -3, 5) ** 2 / 4,
    "powers(most = 4.0)": lambda x: Fraction(2) ** int(clamp(nearest(x), -3, 4)),
    "uneven(most = 2.5)": lambda x: min(max(nearest(x), Fraction(0)), Fraction(5, 2)),
    "affine(scale = 0.125, zero = -7)": lambda x: (clamp(nearest(x * 8) - 7, -128, 127) + 7) / 8,
}
WEIGHTS = [Fraction(w, 8) for w in (4, -10, 6, 8, 3, 8, -4, 2)]
MODEL = f"""version 1.0;
{EXTENSIONS} {FRAGMENTS}
graph net( x ) -> ( y )
{{
    x = external(shape = [1, 4]);
    w = constant(shape = [2, 4], value = [{", ".join(f"{float(w)}" for w in WEIGHTS)}]);
    y = linear(x, w, 0.0625);
}}
"""


@pytest.mark.sweep
@pytest.mark.parametrize("algorithm", MEANINGS)
@settings(max_examples=5)
@given(st.data())
def test_codes_of_a_program_are_those_of_the_fragment(
    algorithm: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder: Path = tmp_path_factory.mktemp("model")
    (folder / "graph.nnef").write_text(MODEL)
    (folder / "graph.quant").write_text(f'"x": linear_quantize(min = -4.0, max = 3.9375, bits = 7); "y": {algorithm};')
    program = cvm.compile(folder)
    codes = np.array(data.draw(st.lists(st.integers(0, 127), min_size=40, max_size=40)), np.int32).reshape(10, 1, 4)
    quantizer = read(f'"a": {algorithm};').quantizers["a"]
    assert isinstance(quantizer, LinearQuantizer)
    session = cvm.Session(program, executor="numpy")
    for row in codes:
        reals = [Fraction(-4) + Fraction(int(code), 16) for code in row[0]]
        for channel, found in enumerate(session.run({"x": row}, codes=True)["y"][0].tolist()):
            weights = WEIGHTS[4 * channel : 4 * channel + 4]
            total = sum((w * x for w, x in zip(weights, reals, strict=True)), Fraction(1, 16))
            assert quantizer.offset[0] + quantizer.scale[0] * found == MEANINGS[algorithm](total)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('"a": wave(by = 1.0);', "'sin' in 'wave' cannot be followed exactly"),
        ('"a": roots(by = 3.0);', "'sqrt' in 'roots' cannot be followed exactly"),
        ('"a": twice(by = 3.0);', "'add' in 'twice' cannot be followed exactly"),
        ('"a": endless(by = 2.0);', "'endless' gives no codes"),
        ('"a": flat(by = 2.0);', "'flat' gives no codes"),
        ('"a": many(by = 2.0);', "'many' gives no codes"),
        ('"x": down(scale = 0.5);', "'x' is external"),
    ],
)
def test_what_has_no_codes_is_refused_by_name(line: str, words: str) -> None:
    error = error_of(lambda: read(line))
    assert isinstance(error, Unsupported)
    assert (error.code, error.location.line) == ("nnef.quantization.fragment", 1)
    assert words in error.message


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ('"a": logical_one(by = 1.0);', "algorithm"),
        ('"a": relu(by = 1.0);', "algorithm"),
        ('"a": down(step = 1.0);', "unknown-parameter"),
        ('"a": affine(scale = 1.0);', "missing"),
        ('"a": down(scale = 1);', "type"),
        ('"a": named(low = [0.0], high = 1.0, bits = 8);', "type"),
    ],
)
def test_arguments_of_fragments_are_checked(line: str, rule: str) -> None:
    assert error_of(lambda: read(line)).code == f"nnef.quantization.{rule}"


def test_a_division_by_zero_is_located_at_the_line() -> None:
    error = error_of(lambda: read('\n"a": down(scale = 0.0);'))
    assert error.location.line == 2
