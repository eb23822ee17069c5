"""Section 5.3: quantisers are exact, and a wrong line is named."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from cvm.errors import Invalid, LimitExceeded, Malformed, Unsupported
from cvm.frontends import nnef
from cvm.frontends.nnef.quantization_file import read_quantization
from cvm.quantization import LinearQuantizer
from tests.frontends.nnef.documents import error_of, flat, flatten_text

GRAPH = flatten_text(flat("a = relu(x); i = argmax_reduce(a, axes = [0]); y = neg(a);"))


def read(text: str) -> dict[str, LinearQuantizer]:
    return dict(read_quantization(text, GRAPH.exported))


def test_ranges_are_the_decimals_that_are_written() -> None:
    quantizers = read("""# calibrated
"x": linear_quantize(min = -0.47589335, max = 0.1, bits = 8); 'a': linear_quantize(bits = 2 ^ 3,
    max = -(1.0 - 7.0) / 3.0, min = 0.0e0);""")
    assert quantizers == {
        "x": LinearQuantizer.linear(Fraction("-0.47589335"), Fraction(1, 10), 8),
        "a": LinearQuantizer.linear(Fraction(0), Fraction(2), 8),
    }
    assert read("") == {}


@pytest.mark.parametrize(
    ("line", "rule", "column"),
    [
        ('"z": linear_quantize(min = 0.0, max = 1.0, bits = 8);', "unknown-tensor", 1),
        ('"X": linear_quantize(min = 0.0, max = 1.0, bits = 8);', "unknown-tensor", 1),
        ('"i": linear_quantize(min = 0.0, max = 1.0, bits = 8);', "data-type", 1),
        ('"y": linear_quantise(min = 0.0, max = 1.0, bits = 8);', "algorithm", 1),
        ('"y": linear_quantize(0.0, max = 1.0, bits = 8);', "positional", 22),
        ('"y": linear_quantize(x = 0.0, max = 1.0, bits = 8);', "unknown-parameter", 22),
        ('"y": linear_quantize(min = 0.0, min = 1.0, bits = 8);', "twice", 33),
        ('"y": linear_quantize(max = 1.0, bits = 8);', "missing", 1),
        ('"y": linear_quantize(min = 0, max = 1.0, bits = 8);', "type", 28),
        ('"y": linear_quantize(min = [0.0], max = 1.0, bits = 8);', "type", 28),
        ('"y": linear_quantize(min = relu(0.0), max = 1.0, bits = 8);', "type", 28),
        ('"y": linear_quantize(min = 0.0, max = 1.0, bits = 8.0);', "type", 51),
        ('"y": linear_quantize(min = 0.0, max = 1.0, bits = length_of([relu(1.0)]));', "expression", 62),
        ('"y": linear_quantize(min = 0.0, max = 1.0, bits = 0);', "bits", 1),
        ('"y": linear_quantize(min = 0.0, max = 1.0, bits = -8);', "bits", 1),
        ('"y": linear_quantize(min = 0.0, max = 1.0, bits = 32);', "bits", 1),
        ('"y": linear_quantize(min = 1.0, max = 1.0, bits = 8);', "range", 1),
        ('"y": linear_quantize(min = 2.0, max = 1.0, bits = 8);', "range", 1),
        ('"x": linear_quantize(min = 2.0, max = 3.0, bits = 8);', "duplicate", 1),
    ],
)
def test_a_wrong_line_is_invalid_with_its_place(line: str, rule: str, column: int) -> None:
    error = error_of(lambda: read(f'"x": linear_quantize(min = 0.0, max = 1.0, bits = 8);\n{line}'))
    assert isinstance(error, Invalid)
    assert (error.code, error.location.line, error.location.column) == (f"nnef.quantization.{rule}", 2, column)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ('"y" linear_quantize(min = 0.0);', Malformed),
        ('"y": linear_quantize(min = 0.0)', Malformed),
        ('"y: linear_quantize(min = 0.0);', Malformed),
        ("y: linear_quantize(min = 0.0);", Malformed),
        ('"y": linear_quantize();', Malformed),
        ("version 1.0;", Malformed),
        ('"y": linear_quantize(min = 0.0, max = 2.0 ^ 99999999.0, bits = 8);', LimitExceeded),
        ('"y": linear_quantize(min = 0.0, max = 1.0, bits = length_of([1] * 99999999));', LimitExceeded),
        ('"y": linear_quantize(min = ' + "(" * 1000 + "0.0" + ")" * 1000 + ", max = 1.0, bits = 8);", LimitExceeded),
        ('"y": linear_quantize(min = 0.0, max = 1.0 / 0.0, bits = 8);', Invalid),
        ('"y": linear_quantize(min = z, max = 1.0, bits = 8);', Invalid),
    ],
)
def test_text_expressions_and_limits_are_those_of_documents(line: str, kind: type[Exception]) -> None:
    error = error_of(lambda: read(line))
    assert isinstance(error, kind)
    assert error.location.line == 1


@pytest.mark.parametrize("algorithm", ["logarithmic_quantize", "zero_point_linear_quantize", "min_max_linear_quantize"])
def test_further_algorithms_are_refused_by_name(algorithm: str) -> None:
    error = error_of(lambda: read(f'"x": {algorithm}(max = 1.0, bits = 8);'))
    assert isinstance(error, Unsupported)
    assert algorithm in error.message


def test_locals_of_fragments_and_new_names_are_not_exported(tmp_path: Path) -> None:
    text = flat("y = relu(relu(x));").replace(
        "version 1.0;", "version 1.0;\nextension KHR_enable_operator_expressions;", 1
    )
    (tmp_path / "graph.nnef").write_text(text)
    (tmp_path / "graph.quant").write_text('"relu_1": linear_quantize(min = 0.0, max = 1.0, bits = 8);')
    assert error_of(lambda: nnef.load(tmp_path)).code == "nnef.quantization.unknown-tensor"


def test_which_quantization_file_applies(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(flat("y = relu(x);"))
    (tmp_path / "graph.quant").write_text('"y": linear_quantize(min = 0.0, max = 1.0, bits = 8);')
    other = tmp_path / "other.quant"
    other.write_text('"x": linear_quantize(min = 0.0, max = 1.0, bits = 8);')

    def quantised(**options: object) -> list[str]:
        return [t.name for t in nnef.load(tmp_path, **options).tensors.values() if t.quantizer]  # type: ignore[arg-type]

    assert quantised() == ["y"]
    assert quantised(quant=False) == []
    assert quantised(quant=other) == ["x"]
    other.write_text('"q": x;')
    error = error_of(lambda: nnef.load(tmp_path, quant=other))
    assert (error.location.file, error.location.line) == (str(other), 1)
    assert not nnef.check(tmp_path, quant=other).valid
    assert nnef.check(tmp_path, quant=False).valid
