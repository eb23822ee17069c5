"""From provisional documents to documents of 1.0.1 with the same meaning."""

from __future__ import annotations

from pathlib import Path

import pytest

from cvm.errors import Unsupported
from cvm.frontends import nnef
from cvm.frontends.nnef.provisional import check_text, flat_form, upgrade_text
from tests.frontends.nnef.documents import error_of, flat, flatten_text
from tests.frontends.nnef.provisional.test_language import document


def body_of(text: str) -> list[str]:
    """The statements of the graph of a document, but for the external tensor."""
    lines = text.partition("graph ")[2].splitlines()
    return [line.strip() for line in lines[3:-1]]


def upgraded(text: str) -> str:
    """The upgrade of a document, after making sure that both have the same operations and shapes."""
    result = upgrade_text(text)
    before, after = flat_form(text), flatten_text(result)
    assert [(o.name, str(o.arguments)) for o in before.operations if not o.results] == []
    assert [o.name for o in before.operations] == [o.name for o in after.operations]
    assert [t.shape for o in before.operations for t in o.results if hasattr(t, "shape")] == [
        t.shape for o in after.operations for t in o.results if hasattr(t, "shape")
    ]
    return result


def test_a_flat_document_stays_flat_line_by_line() -> None:
    text = document(
        "w = variable(shape = [4,3], label = 'a/w')\n t = matmul(x, w, trB = true) y = transpose(t, perm = [1,0])"
    )
    result = upgraded(text)
    assert "extension" not in result
    assert body_of(result) == [
        "w = variable(shape = [4, 3], label = 'a/w');",
        "t = matmul(x, w, transposeB = true);",
        "y = transpose(t, axes = [1, 0]);",
    ]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("y = planewise_conv(x, 1.0)", None),
        ("y = l2_normalization(x, axes = [1])", ["y = l2_normalization(x, axes = [1]);"]),
        (
            "y = l2_normalization(x, axes = [1], bias = 0.5)",
            [
                "sqr_1 = sqr(x);",
                "sum_reduce_1 = sum_reduce(sqr_1, axes = [1]);",
                "add_1 = add(sum_reduce_1, 0.5);",
                "sqrt_1 = sqrt(add_1);",
                "y = div(x, sqrt_1);",
            ],
        ),
        (
            "y = softabs(x, epsilon = 0.1)",
            ["sqr_1 = sqr(x);", "add_1 = add(sqr_1, 0.1);", "y = sqrt(add_1);"],
        ),
        (
            "y = linear_layer(x, channels = 4, scope = 'a')",
            [
                "variable_1 = variable(shape = [4, 3], label = 'a/filter');",
                "variable_2 = variable(shape = [1, 4], label = 'a/bias');",
                "y = linear(x, variable_1, variable_2);",
            ],
        ),
        (
            "y = linear_layer(x, channels = 4, use_bias = false, scope = 'a')",
            ["variable_1 = variable(shape = [4, 3], label = 'a/filter');", "y = linear(x, variable_1);"],
        ),
        ("a, b = moments(x, axes = [0]) y = sub(a, b)", ["a, b = moments(x, axes = [0]);", "y = sub(a, b);"]),
    ],
)  # fmt: skip
def test_operations_are_said_as_1_0_1_says_them(statement: str, expected: list[str] | None) -> None:
    if expected is None:
        conv = document("w = variable(shape = [3,1,3,3], label = 'w') y = planewise_conv(x, w)", shape="[1,3,8,8]")
        assert body_of(upgraded(conv))[1] == "y = conv(x, w, groups = 0);"
        return
    assert body_of(upgraded(document(statement))) == expected


def test_layers_of_a_real_network() -> None:
    text = document(
        "c = conv_layer(x, channels = 4, size = [3,3], scope = 'c')\n"
        "b = batch_normalization_layer(c, epsilon = 0.001, scope = 'b')\n"
        "p = max_pool_layer(b, size = [2,2], stride = [2,2])\n"
        "y = avg_pool_layer(p, size = [4,4], padding = [(0,0),(0,0)])",
        shape="[1,3,8,8]",
    )
    assert body_of(upgraded(text)) == [
        "variable_1 = variable(shape = [4, 3, 3, 3], label = 'c/filter');",
        "variable_2 = variable(shape = [1, 4], label = 'c/bias');",
        "c = conv(x, variable_1, variable_2);",
        "variable_3 = variable(shape = [1, 4], label = 'b/gamma');",
        "variable_4 = variable(shape = [1, 4], label = 'b/beta');",
        "variable_5 = variable(shape = [1, 4], label = 'b/mean');",
        "variable_6 = variable(shape = [1, 4], label = 'b/variance');",
        "b = batch_normalization(c, variable_5, variable_6, variable_4, variable_3, epsilon = 0.001);",
        "p = max_pool(b, size = [1, 1, 2, 2], stride = [1, 1, 2, 2]);",
        "y = avg_pool(p, size = [1, 1, 4, 4], padding = [(0, 0), (0, 0), (0, 0), (0, 0)]);",
    ]
    assert check_text(text)["y"] == (1, 4, 1, 1)


def test_a_window_of_fewer_dimensions_than_its_tensor_is_extended() -> None:
    lrn = "local_response_normalization(x, size = [1,5], alpha = 0.5)"
    pool = "max_pool(x, size = [1,1,2], stride = [1,1,2], padding = [(0,0),(0,0),(0,0)])"
    text = document(f"y = {lrn} z = {pool}", shape="[1,3,8,8]")
    assert body_of(upgraded(text)) == [
        "y = local_response_normalization(x, size = [1, 5, 1, 1], alpha = 0.5);",
        "z = max_pool(x, size = [1, 1, 2, 1], padding = [(0, 0), (0, 0), (0, 0), (0, 0)], stride = [1, 1, 2, 1]);",
    ]
    fragments = f"fragment f( x: tensor ) -> ( y: tensor ) {{ y = {lrn} }}"
    text = document("y = f(x)", fragments, "[1,3,8,8]")
    assert body_of(upgraded(text)) == ["y = f(x);"]
    wrong = document("y = max_pool(x, size = [1,1,2,2,2])", shape="[1,3,8,8]")
    assert error_of(lambda: upgrade_text(wrong)).code.startswith("nnef.argument-validity.")


def test_fragments_stay_fragments_with_tensors_first_and_the_extensions_declared() -> None:
    fragments = "fragment f( k: extent, x: tensor, t: tensor = 0.5 ) -> ( y: tensor ) { y = x * scalar(k) + t }"
    result = upgraded(document("y = f(k = 2, x = x)", fragments))
    assert "extension KHR_enable_fragment_definitions;\nextension KHR_enable_operator_expressions;" in result
    assert "fragment f( x: tensor<scalar>, t: tensor<scalar> = 0.5, k: integer ) -> ( y: tensor<scalar> )" in result
    assert body_of(result) == ["y = f(k = 2, x = x);"]


def test_a_fragment_is_there_once_for_each_combination_of_data_types() -> None:
    fragments = (
        "fragment f( a: tensor ) -> ( b: tensor ) { b = reshape(a, shape = [6]) }\n"
        "fragment g( a: tensor ) -> ( b: tensor ) { b = f(a) }"
    )
    text = document("c = lt(x, 0.0) d = g(c) e = g(x) f_ = f(e) y = select(d, e, f_)", fragments)
    result = upgraded(text)
    assert result.count("fragment ") == 4
    assert "fragment f( a: tensor<logical> ) -> ( b: tensor<logical> )" in result
    assert "fragment g_( a: tensor<scalar> ) -> ( b: tensor<scalar> )" in result
    assert body_of(result)[1:3] == ["d = g(c);", "e = g_(x);"]


def test_definitions_that_a_fragment_needs_come_with_it() -> None:
    fragments = "fragment f( x: tensor ) -> ( y: tensor ) { y = cosh(softabs(x, epsilon = 1.0)) }"
    result = upgraded(document("y = f(x)", fragments))
    assert result.count("fragment ") == 3
    assert body_of(result) == ["y = f(x);"]


@pytest.mark.parametrize(
    "fragments",
    [
        "fragment f( x: tensor ) -> ( y: tensor ) { w = variable(shape = shape_of(x), label = 'w') y = x + w }",
        "fragment f( x: tensor ) -> ( y: tensor ) { t = ([1], x) y = t[1] * scalar(t[0][0]) }",
        (
            "fragment s( a: scalar[] ) -> ( r: scalar ) { r = a[0] + s(a[1:]) if length_of(a) > 0 else 0.0 }\n"
            "fragment f( x: tensor ) -> ( y: tensor ) { y = x * s([1.0, 2.0]) }"
        ),
        (
            "fragment g( p: (tensor, tensor) ) -> ( y: tensor ) { y = p[0] + p[1] }\n"
            "fragment f( x: tensor ) -> ( y: tensor ) { y = g(moments(x, axes = [0])) }"
        ),
        "fragment f( x: tensor ) -> ( y: tensor ) { y = reshape(x, shape = shape_of(neg(x))) }",
    ],
)
def test_what_1_0_1_does_not_admit_in_a_fragment_is_expanded(fragments: str) -> None:
    result = upgraded(document("y = f(x)", fragments))
    assert "fragment " not in result
    assert "f(x)" not in result


def test_a_scalar_without_a_decimal_is_written_as_a_quotient() -> None:
    fragments = (
        "fragment f( x: tensor ) -> ( y: tensor ) { w = variable(shape = [1], label = 'w') y = w * (-1.0 / 3.0) }"
    )
    result = upgraded(document("y = f(x)", fragments))
    assert "-1.0 / 3.0" in result


def test_names_that_have_become_keywords_or_operations_are_replaced_by_free_ones() -> None:
    fragments = "fragment squeeze( yield: tensor, yield_: tensor ) -> ( integer: tensor ) { integer = yield + yield_ }"
    result = upgraded(document("extension = squeeze(yield = x, yield_ = x) y = neg(extension)", fragments))
    assert (
        "fragment squeeze_( yield__: tensor<scalar>, yield_: tensor<scalar> ) -> ( integer_: tensor<scalar> )" in result
    )
    assert body_of(result) == ["extension_ = squeeze_(yield__ = x, yield_ = x);", "y = neg(extension_);"]


def test_an_external_tensor_becomes_a_parameter() -> None:
    assert "graph net( x, z ) -> ( y )" in upgraded(document("z = external(shape = [1]) y = add(x, z)"))


def test_what_1_0_1_cannot_say_is_refused_with_its_place() -> None:
    error = error_of(lambda: upgrade_text(document("y = relu(x)", shape="[0,3]")))
    assert isinstance(error, Unsupported)
    assert (error.code, error.location.line, error.location.column) == ("nnef.extension.unknown-extent", 5, 26)


def test_files_are_upgraded_and_documents_of_1_0_1_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "graph.nnef"
    path.write_text(document("y = relu(x)"))
    text = nnef.upgrade(tmp_path)
    path.write_text(text)
    assert nnef.upgrade(path) == text
    path.write_text(document("y = relu(z)"))
    assert error_of(lambda: nnef.upgrade(tmp_path)).location.file == str(path)


def test_a_document_of_1_0_1_stays_as_it_is_if_it_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "graph.nnef"
    for body, code in (
        ("y = relu(x); # comment", None),
        ("y = relu(x)", "nnef.syntax.token"),
        ("y = foo(x); z = bar(x);", "nnef.invocation.unknown-operation"),
        ("y = concat([x, x], axis = 9);", "nnef.argument-validity.axis"),
    ):
        path.write_text(flat(body))
        if code is None:
            assert nnef.upgrade(path) == path.read_text()
        else:
            error = error_of(lambda: nnef.upgrade(path))
            assert error.code == code
            assert error.location.line == (7 if "syntax" in code else 6)


def test_errors_of_an_upgrade_cite_the_provisional_specification(tmp_path: Path) -> None:
    path = tmp_path / "graph.nnef"
    path.write_text(document("y = foo(x)"))
    error = error_of(lambda: nnef.upgrade(path))
    assert error.__notes__ == ["(semantic, invocation, section 3.3.1)\n    6 |     y = foo(x)\n      |         ^"]
