"""What errors say, and which of them are said together: NNEF 1.0.1 chapter 6."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.frontends import nnef
from cvm.frontends.nnef.checker import check_document
from cvm.frontends.nnef.diagnosis import Diagnosis, diagnose, excerpt
from cvm.frontends.nnef.faults import KINDS, MAX_ERRORS, SECTIONS
from cvm.frontends.nnef.parser import decode, parse_document
from tests.frontends.nnef.documents import EXTENSIONS, error_of, flat, flatten_text, graph


def diagnoses(tmp_path: Path, text: str) -> list[Diagnosis]:
    path = tmp_path / "graph.nnef"
    path.write_text(text)
    return list(nnef.check(path).errors)


def codes(tmp_path: Path, text: str) -> list[str]:
    return [error.code.removeprefix("nnef.") for error in diagnoses(tmp_path, text)]


FRAGMENTS = """
fragment inner( x: tensor<scalar>, n: integer[] ) -> ( y: tensor<scalar> ) { y = reshape(x, shape = n); }
fragment outer( x: tensor<scalar>, n: integer[] ) -> ( y: tensor<scalar> ) { y = inner(relu(x), n = n + [1]); }
fragment last( x: tensor<scalar>[] ) -> ( y: tensor<scalar> )
{ y = last(x[1:]) if length_of(x) > 1 else x[1]; }
"""


def test_an_error_shows_its_line_with_a_caret(tmp_path: Path) -> None:
    (error,) = diagnoses(tmp_path, flat("y = relu(z);"))
    assert error.excerpt == "    6 |     y = relu(z);\n      |              ^"
    assert str(error).splitlines()[1:] == error.excerpt.splitlines()
    assert "(semantic, identifier-usage, section 3.3.2)" in str(error)


@pytest.mark.parametrize(
    ("text", "line", "column", "shown"),
    [
        ("a\tb", 1, 3, "    1 | a b\n      |   ^"),
        ("a\r\nbc\r\n", 2, 2, "    2 | bc\n      |  ^"),
        ("a", 1, 2, "    1 | a\n      |  ^"),
        ("x" * 200, 1, 1, "    1 | " + "x" * 100 + "…\n      | ^"),
        ("x" * 200, 1, 101, "    1 | …" + "x" * 100 + "…\n      | " + " " * 51 + "^"),
        ("a", 2, 1, None),
    ],
)
def test_an_excerpt_is_one_line_cut_around_the_place(text: str, line: int, column: int, shown: str | None) -> None:
    assert excerpt(text, line, column) == shown


def test_a_syntax_error_says_what_was_expected_and_comes_alone(tmp_path: Path) -> None:
    (error,) = diagnoses(tmp_path, flat("y = relu(x) y = relu(z);"))
    assert (error.kind, error.verdict) == ("syntax", "Malformed")
    assert "';'" in error.expected
    assert "found 'y = relu(z);'" in error.message


def test_an_error_in_a_fragment_says_how_it_was_reached(tmp_path: Path) -> None:
    (error,) = diagnoses(tmp_path, graph("y = outer(x, n = [7]);", fragments=FRAGMENTS))
    assert error.location.op == "reshape"
    assert error.location.line == 3
    assert error.trace == ("in fragment inner, invoked at 4:82", "in fragment outer, invoked at 11:9")
    assert str(error).endswith("  in fragment inner, invoked at 4:82\n  in fragment outer, invoked at 11:9")


def test_an_error_in_an_argument_is_not_one_of_the_fragment() -> None:
    for body in ("y = outer(relu(x), n = [[1][3]]);", "y = outer(inner(x, n = [6]), n = [[1][3]]);"):
        error = error_of(lambda body=body: flatten_text(graph(body, fragments=FRAGMENTS)))  # type: ignore[misc]
        assert error.code == "nnef.argument-validity.subscript"
        assert error.trace == ()


def test_a_default_array_does_not_make_a_trace() -> None:
    assert error_of(lambda: flatten_text(graph("y = max_pool(x, size = [1]);"))).trace == ()


def test_recursion_is_told_by_the_fragment_and_cut_for_people(tmp_path: Path) -> None:
    array = ", ".join(["x"] * 20)
    (error,) = diagnoses(tmp_path, graph(f"y = last([{array}]);", fragments=FRAGMENTS))
    assert error.trace == ("in fragment last, invoked at 6:7 (19 times)", "in fragment last, invoked at 11:9")
    chain = "".join(
        f"fragment f{i}( x: tensor<scalar> ) -> ( y: tensor<scalar> ) {{ y = f{i + 1}(x); }}\n" for i in range(20)
    )
    end = "fragment f20( x: tensor<scalar> ) -> ( y: tensor<scalar> ) { y = reshape(x, shape = [7]); }"
    (error,) = diagnoses(tmp_path, graph("y = f0(x);", fragments=chain + end))
    assert len(error.trace) == 21
    assert str(error).endswith("  and 13 more")


def test_an_error_in_a_lowered_compound_names_its_place_once(tmp_path: Path) -> None:
    path = tmp_path / "graph.nnef"
    fragment = "fragment f( x: tensor<scalar> ) -> ( y: tensor<scalar> ) { y = rms_pool(x, size = [0,0]); }"
    path.write_text(graph("y = f(x);", fragments=fragment))
    for lower in ([], ["rms_pool"], ["rms_pool", "avg_pool", "sqr", "sqrt"]):
        error = error_of(lambda lower=lower: nnef.load(path, lower=lower))  # type: ignore[misc]
        found = diagnose(error)
        assert (found.location.line, found.location.column) == (2, 2 + len(EXTENSIONS) + fragment.index("rms_pool"))
        steps = ["in the definition of rms_pool"] if lower else []
        assert found.trace == (*steps, "in fragment f, invoked at 6:9")


def test_a_count_of_results_is_a_rule_of_assignments_and_of_the_operation_where_it_has_one(tmp_path: Path) -> None:
    many = "fragment many( x: tensor<scalar> ) -> ( ys: tensor<scalar>[] ) { ys = [x, x]; }"
    (error,) = diagnoses(tmp_path, graph("[a, b, c] = many(x); y = x;", fragments=many))
    assert (error.code, error.section) == ("nnef.shapes.count", "3.3.2")
    (error,) = diagnoses(tmp_path, graph("[a, b, c] = split(x, axis = 0, ratios = [1,1]); y = x;"))
    assert (error.code, error.section) == ("nnef.shapes.count", "4.5.3")


def test_independent_errors_are_reported_together_in_the_order_of_the_text(tmp_path: Path) -> None:
    text = graph("a = foo(x); b = relu(x, 1); c = neg(relu(x)); y = neg(q);")
    assert codes(tmp_path, text) == ["invocation.unknown-operation", "invocation.count", "identifier-usage.undefined"]


def test_what_depends_on_an_error_has_none(tmp_path: Path) -> None:
    text = graph("a = foo(x); b = relu(a); (c, d) = a; y = b + c * true;")
    assert codes(tmp_path, text) == ["invocation.unknown-operation"]


def test_a_statement_has_one_error(tmp_path: Path) -> None:
    assert len(codes(tmp_path, graph("y = foo(z) + bar(true + 1);"))) == 1


def test_a_wrong_declaration_is_reported_once_whatever_invokes_it(tmp_path: Path) -> None:
    fragments = "fragment f( k: scalar, x: tensor<scalar> ) -> ( y: tensor<scalar> ) { y = x; }"
    text = graph("a = f(x); b = f(1, 2, 3); y = relu(x);", fragments=fragments)
    assert codes(tmp_path, text) == ["fragment-definition.tensors-first"]
    twice = "fragment f( x: tensor<scalar> ) -> ( y: tensor<scalar> ) { y = x; }\n" * 3
    assert codes(tmp_path, graph("y = f(x);", fragments=twice)) == ["fragment-definition.duplicate"]


def test_errors_of_bodies_and_of_the_graph_are_independent(tmp_path: Path) -> None:
    fragments = "fragment f( x: tensor<scalar> ) -> ( y: tensor<scalar> ) { y = !x; }"
    text = graph("a = f(x); b = concat([a, a], axis = 9); c = concat([x, x], axis = 9); y = foo(x);", "[2]", fragments)
    assert codes(tmp_path, text) == [
        "types.operator",
        "invocation.unknown-operation",
        "argument-validity.axis",
    ]


def test_a_missing_extension_is_one_error_however_often_it_is_needed(tmp_path: Path) -> None:
    assert codes(tmp_path, flat("a = x + x; b = x * a; y = foo(b);")) == [
        "extension.operator-expressions",
        "invocation.unknown-operation",
    ]
    fragments = "fragment f( x: tensor<scalar> ) -> ( y: tensor<scalar> ) { y = relu(x); }"
    assert codes(tmp_path, graph("y = f(x);", fragments=fragments, extensions="")) == ["extension.fragments"]


def test_an_unknown_extension_is_the_only_error(tmp_path: Path) -> None:
    assert codes(tmp_path, graph("y = foo(z);", extensions="extension VENDOR_x;")) == ["extension.unknown"]


def test_wrong_arguments_are_reported_together_and_shapes_beside_them_known(tmp_path: Path) -> None:
    text = flat("a = softmax(x, axes = [5]); b = relu(a); c = neg(x); d = concat([c, c], axis = 2); y = sqr(c);")
    path = tmp_path / "graph.nnef"
    path.write_text(text)
    report = nnef.check(path)
    assert [error.code for error in report.errors] == ["nnef.argument-validity.axes", "nnef.argument-validity.axis"]
    assert [error.section for error in report.errors] == ["4.9.1", "4.5.3"]
    assert report.shapes == {"x": (2, 3), "c": (2, 3), "y": (2, 3)}


def test_one_error_of_a_fragment_that_is_invoked_twice_is_one(tmp_path: Path) -> None:
    text = graph("a = outer(x, n = [7]); b = outer(x, n = [8]); y = relu(x);", fragments=FRAGMENTS)
    assert codes(tmp_path, text) == ["shapes.volume"]


def test_a_hundred_errors_are_as_many_as_are_reported(tmp_path: Path) -> None:
    text = flat(" ".join(f"a{i} = foo(x);" for i in range(100)) + " y = relu(x);")
    assert len(codes(tmp_path, text)) == MAX_ERRORS
    text = flat(" ".join(f"a{i} = softmax(x, axes = [9]);" for i in range(100)) + " y = relu(x);")
    assert 1 < len(codes(tmp_path, text)) < MAX_ERRORS


def test_a_limit_is_the_last_error(tmp_path: Path) -> None:
    text = graph("a = x * scalar(length_of([1] * 99999999)); b = softmax(x, axes = [9]); y = relu(x);")
    assert codes(tmp_path, text) == ["limit.expansion"]
    (error,) = diagnoses(tmp_path, text)
    assert (error.kind, error.verdict) == ("limit", "LimitExceeded")


def test_callers_get_one_error_that_knows_the_others(tmp_path: Path) -> None:
    document = parse_document(graph("a = foo(x); y = relu(q);"))
    error = error_of(lambda: check_document(document))
    assert isinstance(error, Invalid)
    assert [e.code for e in error.errors] == ["nnef.invocation.unknown-operation", "nnef.identifier-usage.undefined"]
    path = tmp_path / "graph.nnef"
    path.write_text(graph("a = foo(x); y = relu(q);"))
    error = error_of(lambda: nnef.load(path))
    assert [e.location.file for e in error.errors] == [str(path)] * 2
    assert error.to_json()["class"] == "Invalid"


def test_every_verdict_class_is_of_a_kind_of_chapter_6() -> None:
    assert set(KINDS) == set(SECTIONS)
    semantic = [name for name, kind in KINDS.items() if kind == "semantic"]
    assert semantic == ["fragment-definition", "invocation", "types", "identifier-usage"]
    assert set(KINDS.values()) == {"syntax", "semantic", "argument", "data"}


def test_an_error_without_a_place_has_no_excerpt() -> None:
    diagnosis = diagnose(CvmError("other.rule", "what"), "text")
    assert (diagnosis.kind, diagnosis.class_, diagnosis.excerpt, diagnosis.section) == ("other", "other", None, None)
    assert str(diagnosis) == "what (other)"


def test_errors_of_a_model_s_files_show_their_own_text(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(flat("w = variable(shape = [2,3], label = 'w'); y = add(x, w);"))
    (tmp_path / "w.dat").write_bytes(nnef.write_tensor(np.zeros((3, 2), np.float32)))
    (tmp_path / "graph.quant").write_text('"x": linear_quantize(min = 0.0,\n    max = 1.0, bits = 8.0);\n')
    quant, data = nnef.check(tmp_path).errors
    assert quant.excerpt == "    2 |     max = 1.0, bits = 8.0);\n      |                       ^"
    assert (quant.kind, quant.section) == ("data", "5.3")
    assert (data.kind, data.class_, data.section, data.excerpt) == ("data", "tensor-file", "5.2", None)


def test_many_paths_are_judged_by_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "graph.nnef").write_text(flat("y = relu(x);"))
    (tmp_path / "a.nnef").write_text(flat("y = relu(z);"))
    (tmp_path / "old.nnef").write_text("version 1.0 graph g(x)->(y) { x = external(shape = [2]) y = relu(x) }")
    (tmp_path / "w.dat").write_bytes(nnef.write_tensor(np.zeros((3, 2), np.float32)))
    (tmp_path / "cut.dat").write_bytes(nnef.write_tensor(np.zeros((3, 2), np.float32))[:-1])
    (tmp_path / "ok.quant").write_text(
        '"anything": linear_quantize(min = 0.0, max = 1.0, bits = 8);\n'
        '"else": zero_point_linear_quantize(zero_point = [0,0,0], scale = [0.5,0.5,0.25], bits = 8, signed = true, '
        "symmetric = false);\n"
    )
    (tmp_path / "bad.quant").write_text('"a": linear_quantize(min = 0.0, max = 1.0);\n')
    names = ["model", "a.nnef", "old.nnef", "w.dat", "cut.dat", "ok.quant", "bad.quant", "none.nnef"]
    reports = nnef.check_paths([tmp_path / name for name in names])
    assert [report.valid for report in reports] == [True, False, True, True, False, True, False, False]
    assert not reports.valid
    assert [report.class_ for report in reports if not report.valid] == [
        "identifier-usage",
        "tensor-file",
        "quantization",
        "container",
    ]
    assert [report.edition for report in reports][:3] == ["1.0.1", "1.0.1", "provisional"]
    assert reports.results[3].shapes == {"w": (3, 2)}
    assert [entry["path"] for entry in reports.to_json()["results"]] == [str(tmp_path / name) for name in names]


def test_verdicts_keep_their_classes() -> None:
    assert isinstance(error_of(lambda: parse_document("version 1.0;")), Malformed)
    assert isinstance(
        error_of(lambda: flatten_text(graph("y = x * scalar(length_of([1] * 99999999));"))), LimitExceeded
    )


def test_an_error_of_loading_has_its_rule_excerpt_and_invocations_as_notes(tmp_path: Path) -> None:
    path = tmp_path / "graph.nnef"
    path.write_text(graph("y = outer(x, n = [7]);", fragments=FRAGMENTS))
    error = error_of(lambda: nnef.load(path))
    (note,) = error.__notes__
    rule, source, caret, *steps = note.splitlines()
    assert rule == "(argument, shapes, section 4.5.1)"
    assert source[caret.index("^") :] == "reshape(x, shape = n); }"
    assert steps == ["  in fragment inner, invoked at 4:82", "  in fragment outer, invoked at 11:9"]
    path.write_text(graph("a = foo(x); b = bar(x); y = baz(x);"))
    error = error_of(lambda: nnef.load(path))
    assert [len(each.__notes__) for each in error.errors] == [2, 1, 1]
    assert error.__notes__[1] == "and 2 more errors, which `cvm nnef check` lists"


def test_an_error_in_a_quantization_file_shows_its_line(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(flat("y = relu(x);"))
    (tmp_path / "graph.quant").write_text("# two wrong lines\n'z': foo(a = 1);\n'x': foo(a = 1);\n")
    for quant in (None, tmp_path / "graph.quant"):
        error = error_of(lambda quant=quant: nnef.load(tmp_path, quant))  # type: ignore[misc]
        assert [each.location.line for each in error.errors] == [2, 3]
        assert error.__notes__[0].splitlines()[1:] == ["    2 | 'z': foo(a = 1);", "      | ^"]
    assert [each.location.line for each in nnef.check(tmp_path).errors] == [2, 3]


def test_the_column_of_a_wrong_byte_counts_characters() -> None:
    error = error_of(lambda: decode(b"version 1.0;\n# \xc3\xa4\xc3\xb6 \xff\n"))
    assert (error.location.line, error.location.column) == (2, 6)
