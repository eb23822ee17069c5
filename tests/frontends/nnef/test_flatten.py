"""Chapter 6: fragments expanded, concrete arguments, and the text of the flat document."""

from __future__ import annotations

from pathlib import Path

import pytest

from cvm.errors import LimitExceeded, Unsupported
from cvm.frontends import nnef
from cvm.frontends.nnef.printer import print_graph
from cvm.limits import Limits
from tests.frontends.nnef.documents import corpus, error_of, flat, flatten_text, folders, graph

AFFINE = """fragment affine( x: tensor<scalar>, b: tensor<scalar> = 0.5, k: scalar = 2.0 ) -> ( y: tensor<scalar> )
{ t = mul(x, k); y = add(t, b); }"""
SUM = """fragment total( x: tensor<scalar>[] ) -> ( y: tensor<scalar> )
{ y = x[0] + total(x[1:]) if length_of(x) > 1 else x[0]; }"""
TWICE = """fragment twice( x: tensor<scalar>, n: integer ) -> ( y: tensor<scalar> )
{ y = twice(x, n = n - 1) + twice(x, n = n - 1) if n > 0 else x; }"""
DEEP = "fragment deep( x: tensor<scalar> ) -> ( y: tensor<scalar> ) { y = deep(x); }"


def lines(text: str) -> list[str]:
    return [line.strip() for line in print_graph(flatten_text(text)).splitlines() if line.startswith("    ")]


def test_a_fragment_is_expanded_with_its_defaults() -> None:
    assert lines(graph("y = affine(x);", fragments=AFFINE)) == [
        "x = external<scalar>(shape = [2, 3]);",
        "mul_1 = mul(x, 2.0);",
        "y = add(mul_1, 0.5);",
    ]


def test_arguments_replace_defaults_in_any_order() -> None:
    assert lines(graph("y = affine(x, k = 3.0, b = x);", fragments=AFFINE))[1:] == [
        "mul_1 = mul(x, 3.0);",
        "y = add(mul_1, x);",
    ]


def test_new_names_avoid_those_of_the_document() -> None:
    assert lines(graph("mul_1 = relu(x); y = affine(mul_1);", fragments=AFFINE))[2] == "mul_2 = mul(mul_1, 2.0);"


def test_recursion_ends_where_its_condition_says() -> None:
    assert lines(graph("y = total([x] * 4);", fragments=SUM))[1:] == [
        "add_1 = add(x, x);",
        "add_2 = add(x, add_1);",
        "y = add(x, add_2);",
    ]


def test_a_second_name_is_a_copy_and_a_literal_a_constant() -> None:
    fragment = "fragment half( x: tensor<scalar> ) -> ( y: tensor<scalar>, z: tensor<scalar> ) { y = 0.5; z = x; }"
    assert lines(graph("a, y = half(x);", fragments=fragment))[1:] == [
        "a = constant<scalar>(shape = [1], value = [0.5]);",
        "y = copy<scalar>(x);",
    ]


def test_generic_types_are_deduced_and_passed_on() -> None:
    fragment = "fragment pick<?>( a: tensor<?>[], k: integer ) -> ( y: tensor<?> ) { y = copy<?>(a[k]); }"
    text = graph("i = argmax_reduce(x, axes = [0]); y = pick([i, i], k = 1);", fragments=fragment)
    assert lines(text)[-1] == "y = copy<integer>(i);"
    assert flatten_text(text).exported["y"].dtype == "integer"


def test_flat_text_says_what_decimals_cannot() -> None:
    text = print_graph(flatten_text(graph("y = x * (1.0 / 3.0);")))
    assert "mul(x, 1.0 / 3.0)" in text
    assert "extension KHR_enable_operator_expressions;" in text
    assert print_graph(flatten_text(text)) != ""


def test_a_custom_operation_is_kept_declared_and_without_shape(tmp_path: Path) -> None:
    custom = "fragment magic<? = scalar>( x: tensor<?>, k: integer[] = [1] ) -> ( y: tensor<?>[] );"
    text = graph("[a, b] = magic<scalar>(x); c = relu(a); y = add(c, b);", fragments=custom)
    path = tmp_path / "graph.nnef"
    path.write_text(text)
    flat_text = nnef.flatten(path)
    assert "fragment magic<? = scalar>( x: tensor<?>, k: integer[] ) -> ( y: tensor<?>[] );" in flat_text
    assert "[a, b] = magic<scalar>(x, k = [1]);" in flat_text
    report = nnef.check(path)
    assert report.valid
    assert dict(report.shapes) == {"x": (2, 3)}
    error = error_of(lambda: nnef.load(path))
    assert isinstance(error, Unsupported)
    assert (error.location.op, error.location.line) == ("magic", 6)


def test_the_shape_of_a_custom_result_cannot_be_asked_for() -> None:
    custom = "fragment magic( x: tensor<scalar> ) -> ( y: tensor<scalar> );"
    error = error_of(
        lambda: flatten_text(graph("m = magic(x); y = reshape(x, shape = shape_of(m));", fragments=custom))
    )
    assert isinstance(error, Unsupported)


@pytest.mark.parametrize(
    ("fragment", "call", "limit"),
    [(DEEP, "deep(x)", "nesting"), (TWICE, "twice(x, n = 26)", "expansion"), (TWICE, "twice(x, n = 100)", "nesting")],
    ids=["endless", "exponential", "deep"],
)
def test_expansion_is_bounded(fragment: str, call: str, limit: str) -> None:
    limits = Limits("test", expansion=1_000)
    error = error_of(lambda: flatten_text(graph(f"y = {call};", fragments=fragment), limits))
    assert isinstance(error, LimitExceeded)
    assert error.code == f"limit.{limit}"
    assert error.location.line == (2 if fragment is DEEP else 3)


def test_recursion_to_the_limit_fits_the_stack() -> None:
    assert len(flatten_text(graph("y = total([x] * 60);", fragments=SUM)).operations) == 60


def test_a_flat_document_may_have_more_operations_than_fragments_may_make() -> None:
    body = "".join(f"a{i} = relu(x); " for i in range(50)) + "y = neg(x);"
    assert len(flatten_text(flat(body), Limits("test", expansion=10)).operations) == 52
    assert error_of(lambda: flatten_text(flat(body), Limits("test", nodes=40))).code == "limit.nodes"


@pytest.mark.parametrize("entry", corpus("valid"))
def test_flat_text_denotes_the_same_flat_document(entry: dict[str, str]) -> None:
    from tests.frontends.nnef.documents import SHARED

    text = nnef.flatten(SHARED / "nnef" / "corpus" / entry["file"])
    assert print_graph(flatten_text(text)) == text


@pytest.mark.parametrize("folder", folders("models/digits"))
def test_models_flatten_to_themselves(folder: Path) -> None:
    text = nnef.flatten(folder)
    assert print_graph(flatten_text(text)) == text
