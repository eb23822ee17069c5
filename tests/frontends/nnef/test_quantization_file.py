"""Section 5.3: quantisers are exact, and a wrong line is named."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from cvm.errors import Invalid, LimitExceeded, Malformed
from cvm.frontends import nnef
from cvm.frontends.nnef.quantization_file import read_quantization
from cvm.frontends.nnef.values import FlatGraph
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer
from tests.frontends.nnef.documents import error_of, flat, flatten_text

GRAPH = flatten_text(flat("a = relu(x); i = argmax_reduce(a, axes = [0]); y = neg(a);"))


def read(text: str, graph: FlatGraph = GRAPH) -> dict[str, Quantizer]:
    return dict(read_quantization(text, graph).quantizers)


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
        ('"y": linear_quantize(min = 0.0, max = 1.0, bits = 0);', "bits", 51),
        ('"y": linear_quantize(min = 0.0, max = 1.0, bits = -8);', "bits", 51),
        ('"y": linear_quantize(min = 0.0, max = 1.0, bits = 32);', "bits", 51),
        ('"y": linear_quantize(min = 1.0, max = 1.0, bits = 8);', "range", 28),
        ('"y": linear_quantize(min = 2.0, max = 1.0, bits = 8);', "range", 28),
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


def test_the_logarithmic_quantiser_is_that_of_its_maximum_and_bits() -> None:
    quantizers = read('"x": logarithmic_quantize(max = 0.7, bits = 3); "a": logarithmic_quantize(bits = 8, max = 3.0);')
    assert quantizers == {"x": LogarithmicQuantizer(0, 3), "a": LogarithmicQuantizer(2, 8)}


SIGNED = "bits = 8, signed = true, symmetric = false"


def test_quantisers_of_the_khronos_tools_are_exact() -> None:
    quantizers = read(
        f"""'x': zero_point_linear_quantize(zero_point = -128, scale = 0.024480115622282028, {SIGNED});
        'a': min_max_linear_quantize(min = -1.0, max = 2.0, bits = 4, signed = false, symmetric = true);
        'y': min_max_linear_quantize(min = [-1.0], max = 1.0, bits = 4, signed = true, symmetric = true);"""
    )
    scale = Fraction("0.024480115622282028")
    assert quantizers["x"] == LinearQuantizer((scale,), (128 * scale,), -128, 127)
    assert quantizers["a"] == LinearQuantizer.linear(Fraction(-1), Fraction(2), 4)
    assert quantizers["y"] == LinearQuantizer((Fraction(1, 7),), (Fraction(0),), -7, 7)


def test_a_list_belongs_to_the_axis_of_its_length() -> None:
    quantizers = read(
        f"""'x': zero_point_linear_quantize(zero_point = 0, scale = [0.5, 0.25, 2.0], {SIGNED});
        'a': zero_point_linear_quantize(zero_point = [1, -1], scale = [0.5], {SIGNED});
        'y': min_max_linear_quantize(min = [0.0, -1.0], max = [1.0, 1.0], {SIGNED});"""
    )
    half, quarter = Fraction(1, 2), Fraction(1, 4)
    zero = Fraction(0)
    assert quantizers["x"] == LinearQuantizer((half, quarter, Fraction(2)), (zero,) * 3, -128, 127, 1)
    assert quantizers["a"] == LinearQuantizer((half, half), (-half, half), -128, 127, 0)
    assert isinstance(quantizers["y"], LinearQuantizer)
    assert quantizers["y"].axis == 0


def test_the_dialect_of_a_file_is_told_and_can_be_refused() -> None:
    text = f"'x': zero_point_linear_quantize(zero_point = 0, scale = 0.5, {SIGNED});"
    assert read_quantization(text, GRAPH).dialect == "khronos"
    assert read_quantization("'x': linear_quantize(min = 0.0, max = 1.0, bits = 8);", GRAPH).dialect == "1.0.1"
    error = error_of(lambda: read_quantization(text, replace(GRAPH, allowed="1.0.1")))
    assert (error.code, error.location.line, error.location.column) == ("nnef.quantization.algorithm", 1, 1)


ZERO_POINT, MIN_MAX = "zero_point_linear_quantize", "min_max_linear_quantize"


@pytest.mark.parametrize(
    ("algorithm", "arguments", "rule", "blamed"),
    [
        (ZERO_POINT, f"zero_point = 0, scale = 0.0, {SIGNED}", "scale", "0.0"),
        (ZERO_POINT, f"zero_point = 0, scale = [0.5, -1.0, 1.0], {SIGNED}", "scale", "[0.5"),
        (ZERO_POINT, f"zero_point = [0, 0], scale = [0.5, 1.0, 1.0], {SIGNED}", "lists", "[0, 0]"),
        (ZERO_POINT, f"zero_point = [], scale = 0.5, {SIGNED}", "type", "[]"),
        (ZERO_POINT, f"zero_point = 0, scale = [0.5, 1.0, 1.0, 2.0], {SIGNED}", "channels", "[0.5"),
        (ZERO_POINT, f"zero_point = 0.0, scale = 0.5, {SIGNED}", "type", "0.0"),
        (ZERO_POINT, f"zero_point = 0, scale = 1, {SIGNED}", "type", "1,"),
        (ZERO_POINT, f"zero_point = 0, scale = [[1.0]], {SIGNED}", "type", "[[1.0"),
        (ZERO_POINT, "zero_point = 0, scale = 0.5, bits = 33, signed = true, symmetric = false", "bits", "33"),
        (ZERO_POINT, "zero_point = 0, scale = 0.5, bits = [8], signed = true, symmetric = false", "type", "[8"),
        (ZERO_POINT, "zero_point = 0, scale = 0.5, bits = 8, signed = 1, symmetric = false", "type", "1, symm"),
        (ZERO_POINT, "zero_point = 0, scale = 0.5, bits = 1, signed = true, symmetric = true", "codes", "1, signed"),
        (ZERO_POINT, "zero_point = 0, scale = 0.5, bits = 8, signed = true", "missing", "'x'"),
        (MIN_MAX, f"min = [0.0, 1.0, 2.0], max = 1.0, {SIGNED}", "range", "[0.0"),
        (MIN_MAX, f"min = 0.0, max = 1.0, zero_point = 0, {SIGNED}", "unknown-parameter", "zero_point"),
        (MIN_MAX, "min = 0.0, max = 1.0, bits = 1, signed = true, symmetric = true", "codes", "1, signed"),
        ("logarithmic_quantize", "max = 0.0, bits = 8", "range", "0.0"),
        ("logarithmic_quantize", "max = 1.0, bits = 17", "bits", "17"),
        ("logarithmic_quantize", "max = [1.0], bits = 8", "type", "[1.0"),
    ],
)
def test_wrong_arguments_are_invalid_at_their_place(algorithm: str, arguments: str, rule: str, blamed: str) -> None:
    line = f"'x': {algorithm}({arguments});"
    error = error_of(lambda: read(f"# first\n{line}"))
    assert isinstance(error, Invalid)
    assert error.code == f"nnef.quantization.{rule}"
    assert (error.location.line, error.location.column) == (2, line.index(blamed) + 1)


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
