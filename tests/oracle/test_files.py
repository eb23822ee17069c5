"""Tensor files and texts are read as the document says."""

from __future__ import annotations

import json
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from .exact import model
from .files import Stored, decode
from .harness import fractions, quant, shared
from .reader import Reference, names_in, parse_document, parse_quantisation


def tensor_file(body: bytes, shape: tuple[int, ...], bits: int, code: int, parameters: bytes = b"") -> bytes:
    extents = [*shape, *[0] * (8 - len(shape))]
    header = struct.pack("<4s12I", b"N\xef\x01\x00", len(body), len(shape), *extents, bits, code) + parameters
    return header.ljust(128, b"\0") + body


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8"])
def test_stored_floats_are_the_dyadic_rationals_they_are(dtype: str) -> None:
    items = np.array([[0.1, -3.0, 6.1e-5]], dtype=dtype)
    stored = decode(tensor_file(items.tobytes(), items.shape, items.itemsize * 8, 0))
    assert fractions(stored.values) == [Fraction(float(item)) for item in items.flat]
    assert not stored.are_codes


ITEMS: list[tuple[int, int, bytes, bytes, list[int], bool]] = [
    # code, bits, parameters, bytes, values, whether they are codes
    (1, 8, b"", b"\x00\x7f\x80\xff", [0, 127, 128, 255], False),
    (1, 8, b"\x01\0\0\0", b"\x00\x7f\x80\xff", [0, 127, -128, -1], False),
    (1, 3, b"", b"\xd1\xd8\x1f", [1, 2, 3, 4, 5, 7, 7, 0], False),  # 001 010 011 100 101 111 111 000, lowest bit first
    (4, 16, b"", b"\xff\xff\x01\x00", [-1, 1], False),
    (2, 8, b"", b"\x00\xff", [0, 255], True),
    (3, 8, b"", b"\x00\xff", [0, -1], True),
    (3, 32, b"", b"\x8a\xfe\xff\xff", [-374], True),
    (5, 1, b"", b"\xa0", [1, 0, 1], False),  # Khronos' logicals start at the highest bit
    (5, 8, b"", b"\x00\x01\xff", [0, 1, 1], False),
]


@pytest.mark.parametrize(("code", "bits", "parameters", "body", "values", "are_codes"), ITEMS)
def test_integer_items(
    code: int, bits: int, parameters: bytes, body: bytes, values: list[int], are_codes: bool
) -> None:
    stored = decode(tensor_file(body, (len(values),), bits, code, parameters))
    assert (fractions(stored.values), stored.are_codes) == (values, are_codes)


def test_linear_items_decode_with_the_floats_of_the_header() -> None:
    stored = decode(tensor_file(b"\x00\x80\xff", (3,), 8, 0x10, struct.pack("<2f", -0.1, 0.2)))
    low, high = Fraction(float(np.float32(-0.1))), Fraction(float(np.float32(0.2)))
    assert fractions(stored.values) == [low, low + (high - low) * Fraction(128, 255), high]


def test_logarithmic_items_are_powers_with_the_sign_in_the_highest_bit() -> None:
    unsigned = decode(tensor_file(b"\x1b", (4,), 2, 0x11, struct.pack("<2f", 0, 0.75)))  # m = 0, r = 3
    assert fractions(unsigned.values) == [1, Fraction(1, 2), Fraction(1, 4), Fraction(1, 8)]
    signed = decode(tensor_file(b"\x00\x7f\x80\xff", (4,), 8, 0x11, struct.pack("<2f", -6, 6)))  # m = 3, r = 127
    assert fractions(signed.values) == [Fraction(2) ** -124, 8, -(Fraction(2) ** -124), -8]


def test_codes_are_decoded_by_the_quantiser_of_graph_quant_and_refused_without_one() -> None:
    text = "version 1.0; graph g( x ) -> ( y ) { x = external(shape = [1]); w = variable(shape = [2], label = 'w');"
    text += " y = add(x, w); }"
    stored = decode(tensor_file(b"\x02\xfe", (2,), 8, 3))
    line = '"w": zero_point_linear_quantize(zero_point = 1, scale = 0.5, bits = 8, signed = true, symmetric = false);'
    result = model(text, line, lambda _: stored).run(np.zeros(1))
    assert fractions(result.values["y"]) == [Fraction(1, 2), Fraction(-3, 2)]
    assert result.codes["w"].tolist() == [2, -2]
    with pytest.raises(ValueError, match="no quantiser"):
        model(text, "", lambda _: stored)
    with pytest.raises(ValueError, match="codes outside"):
        model(text, line.replace("bits = 8", "bits = 2"), lambda _: stored)


def test_a_file_that_does_not_fit_its_header_is_refused() -> None:
    good = tensor_file(b"\x00\x01", (2,), 8, 1)
    assert isinstance(decode(good), Stored)
    for wrong in (
        good[:-1],
        good + b"\0",
        good[:100],
        b"M" + good[1:],
        tensor_file(b"\x00", (2,), 8, 1),
        tensor_file(b"\x00\x01", (2,), 8, 2**16 + 1),
        tensor_file(b"\x08", (3,), 1, 1),
        tensor_file(b"\0\0\0", (1,), 24, 0),
        tensor_file(b"\0", (1,), 8, 0x11, struct.pack("<2f", -1, 2)),
    ):
        with pytest.raises(ValueError, match="not satisfied"):
            decode(wrong)


def corpus_files() -> list[dict[str, Any]]:
    manifest = shared("nnef", "corpus", "manifest.json")
    entries: list[dict[str, Any]] = json.loads(manifest.read_text())
    chosen = [entry for entry in entries if entry["kind"] == "dat-valid" and entry.get("bit_order") != "msb"]
    return [entry for entry in chosen if "special" not in entry["file"]]


def test_the_tensor_files_of_the_corpus_decode_to_their_recorded_values() -> None:
    entries = corpus_files()
    assert len(entries) > 40
    for entry in entries:
        root = shared("nnef", "corpus")
        found = decode((root / entry["file"]).read_bytes()).values
        expected: npt.NDArray[Any] = np.load(root / entry["expected"])
        assert found.shape == expected.shape, entry["file"]
        if "exponents" in entry.get("extra", {}):
            exponents, signs = (np.load(root / entry["extra"][key]) for key in ("exponents", "signs"))
            wanted = [Fraction(2) ** int(e) * (-1) ** int(s) for e, s in zip(exponents.flat, signs.flat, strict=True)]
        elif entry["code"] == 0x10:  # exact rationals rounded once to float64
            assert [float(item) for item in fractions(found)] == expected.ravel().tolist(), entry["file"]
            continue
        else:
            wanted = [Fraction(item) for item in expected.ravel().tolist()]
        assert fractions(found) == wanted, entry["file"]


# --- texts ------------------------------------------------------------------------------------------------------------


def test_the_reader_takes_the_flat_grammar_and_nothing_else() -> None:
    text = """version 1.0; # a comment
    graph g( a, b ) -> ( c ) { c = op<scalar>(a, [b, -1], p = [(1, 2)], e = 1.0e-05, t = true, s = "q\\"'"); }"""
    (line,) = parse_document(text).assignments
    assert line.positional == (Reference("a"), [Reference("b"), -1])
    assert line.named == {"p": [(1, 2)], "e": Fraction(1, 100000), "t": True, "s": "q\"'"}
    for wrong in ("c = a + b;", "c = op(p = 1, a);", "c = op(p = 1, p = 2);", "c = op(a)", "1 = op(a);", "c = a;"):
        with pytest.raises(ValueError, match=r"expected|lexical|follows|twice"):
            parse_document("version 1.0; graph g( a ) -> ( c ) {" + wrong + "}")


@pytest.mark.parametrize(
    ("text", "names"), [("[a, b]", "ab"), ("(a, b)", "ab"), ("a, b", "ab"), ("[a, [b, c]], d", "abcd")]
)
def test_results_are_assigned_to_arrays_and_tuples_of_names(text: str, names: str) -> None:
    (line,) = parse_document("version 1.0; graph g( a ) -> ( c ) {" + text + " = op(x);}").assignments
    assert names_in(line.target) == list(names)


def test_fragments_with_flat_bodies_have_defaults_and_inner_tensors_without_quantisation() -> None:
    text = """version 1.0; extension KHR_enable_fragment_definitions;
    fragment twice<? = scalar>( x: tensor<scalar>, by: scalar = 2.0, s: (integer, integer)[] = [] )
    -> ( y: tensor<scalar>, z: tensor<?> ) { y = mul(x, by); z = half(y); }
    fragment half( y: tensor<> ) -> ( z: tensor<> ) { z = mul(y, 0.5); }
    graph g( x ) -> ( y ) { x = external(shape = [1]); (y, z) = twice(x, by = 3.0); w, v = twice(z); }"""
    result = model(text, quant("y", "0", "4", 2) + quant("z", "0", "255", 8), lambda _: np.zeros(1)).run(np.ones(1))
    assert {name: result.values[name].item(0) for name in "yzwv"} == {"y": 2 * Fraction(4, 3), "z": 2, "w": 4, "v": 2}


@pytest.mark.parametrize(
    "line",
    [
        quant("a", "1.0", "1.0", 8),
        quant("a", "0", "1", 0),
        quant("a", "true", "1", 8),
        '"a": linear_quantize(0.0, max = 1.0, bits = 8);',
        '"a": linear_quantize(min = 0.0, bits = 8);',
        '"a": linear_quantize(min = [0.0, 1.0], max = [2.0, 2.0, 2.0], bits = 8);',
        '"a": unknown_quantize(min = 0.0, max = 1.0, bits = 8);',
        '"a": logarithmic_quantize(max = 0.0, bits = 8);',
        '"a": zero_point_linear_quantize(zero_point = 0.5, scale = 1.0, bits = 8, signed = true, symmetric = true);',
        '"a": zero_point_linear_quantize(zero_point = 0, scale = 1.0, bits = 8, signed = 1, symmetric = true);',
        quant("a", "0", "1", 8) * 2,
    ],
)
def test_a_line_of_graph_quant_that_is_no_quantiser_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"not |one length"):
        parse_quantisation(line)


def test_quantisation_of_unknown_tensors_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown tensors"):
        model(
            "version 1.0; graph g( x ) -> ( x ) { x = external(shape = [1]); }",
            quant("X", "0", "1", 8),
            lambda _: np.zeros(1),
        )
